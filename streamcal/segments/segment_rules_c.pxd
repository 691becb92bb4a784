# The types with which segment_rules_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.engine cimport event_rules_c
from streamcal.segments.fields_c cimport Fields, names_of
from streamcal.segments.names_c cimport name_of

cdef double _WORTH

cdef class SegmentRules(event_rules_c.EventRules):
    cdef public object segments
    cdef Fields _fields
    cdef bint _has_own
    cdef list _places

    cpdef bint learn_usual(self, score, label, domain, time, weight, memo, positive) except -1
    @cython.locals(names=list, place=Py_ssize_t, forecast=bytes)
    cpdef tuple carry(self, kept, double score, double probability)
    cpdef learn_memo(self, double score, int label, memo)
