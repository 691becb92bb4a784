# The types with which join_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.join cimport rules_c


cdef double _NO_TIME


cdef class Join:
    cdef object _counts, _label_delay_limit
    cdef double _watermark
    cdef long long _most, _predictions, _labels, _joined
    cdef public object config, guard
    cdef public bint matures, takes_blocks
    cdef readonly rules_c.JoinRules rows

    cpdef bint knows(self, str id_) except -1
    cpdef admit(self, event, origin_of=*)
    @cython.locals(rows=rules_c.JoinRules, row=Py_ssize_t)
    cpdef hold(self, event, double probability, long long prediction_index, answer=*, memo=*)
    cpdef finalize(self, event)
    cpdef take_early(self, str id_)
    @cython.locals(row=Py_ssize_t)
    cpdef match(self, event, origin_of=*, bint is_new=*)
