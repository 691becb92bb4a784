# The types with which fields_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.engine cimport event_rules_c
from streamcal.segments.corrections_c cimport Corrections, as_bytes, as_name, expit, logit_of

cdef double _COMMON, _COMMON_PRECISION, _FARTHEST
cdef int _CENTRED, _READ, _TERMS, _SIZE
cdef double _NONE


@cython.final
cdef class Fields:
    cdef readonly list fields
    cdef readonly double served, labels
    cdef double _centre, _score, _information
    cdef long long _centred
    cdef long long[::1] _places
    cdef double[::1] _read, _then, _row
    cdef unsigned char[::1] _then_bytes
    cdef bytearray _out

    @cython.locals(x=double, read="double[::1]", i=Py_ssize_t, field=Corrections, out=list)
    cpdef list added(self, double logit, names)
    @cython.locals(
        logit=double, x=double, added=double, read="double[::1]", row="double[::1]", i=Py_ssize_t, at=Py_ssize_t,
        count=Py_ssize_t, field=Corrections, delta=double, data=bytes, values=bytes,
        out=cython.p_uchar,
    )
    cpdef bytes forecast(self, double pooled, names, own)
    @cython.locals(
        logit=double, x=double, read="double[::1]", count=Py_ssize_t, before=double, noise=double,
        i=Py_ssize_t, at=Py_ssize_t, sizes=Py_ssize_t, size=Py_ssize_t, field=Corrections, common=double, now=double, p=double,
        curvature=double, others=double, their_noise=double, without=double,
    )
    cpdef learn(self, int label, bytes given)
    @cython.locals(
        sizes=Py_ssize_t, data=cython.p_uchar, left=Py_ssize_t, k=Py_ssize_t, i=Py_ssize_t,
    )
    cdef double _take(self, bytes given) except? -1.0
    @cython.locals(read="double[::1]", before=double, added=double, noise=double, i=Py_ssize_t, field=Corrections, common=double)
    cdef (double, double, double) _sums(self, double logit, double x)
    cdef double _x(self, double logit) noexcept

@cython.locals(sizes=Py_ssize_t, at=Py_ssize_t, i=Py_ssize_t, names=list, each=bytes)
cpdef list names_of(list given, Py_ssize_t count, Py_ssize_t field)

cdef Py_ssize_t size_of(const unsigned char* data, Py_ssize_t at) noexcept


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

cdef Py_ssize_t _LONGEST, _PLAIN

@cython.locals(text=str, size=Py_ssize_t)
cpdef name_of(value)
