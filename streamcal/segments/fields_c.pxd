# The types with which fields_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.segments.corrections_c cimport Corrections, expit, taken_back

cdef double _COMMON, _COMMON_PRECISION, _FARTHEST
cdef int _CENTRED, _READ
cdef object _NEW


@cython.final
cdef class Fields:
    cdef readonly list fields
    cdef double _centre, _score, _information
    cdef long long _centred
    cdef long long[::1] _places
    cdef double[::1] _read

    @cython.locals(x=double, read="double[::1]", i=Py_ssize_t, field=Corrections, delta=double, terms=list)
    cpdef list forecast(self, double logit, names, own)
    @cython.locals(
        x=double, read="double[::1]", count=Py_ssize_t, before=double, noise=double, i=Py_ssize_t,
        field=Corrections, common=double, now=double, p=double, curvature=double, others=double,
        their_noise=double,
    )
    cpdef learn(self, double logit, int label, names, then)
    @cython.locals(
        x=double, read="double[::1]", count=Py_ssize_t, now=double, noise=double, change=double, i=Py_ssize_t,
        field=Corrections, variance=double, share=double, others=double,
    )
    cpdef relabel(self, double logit, int label, names, then)
    @cython.locals(read="double[::1]", before=double, added=double, noise=double, i=Py_ssize_t, field=Corrections, common=double)
    cdef (double, double, double) _sums(self, double logit, double x, then)
    cdef double _x(self, double logit) noexcept
