# The types with which fields_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.segments.corrections_c cimport Corrections, expit, logit_of, taken_back

cdef double _COMMON, _COMMON_PRECISION, _FARTHEST
cdef int _CENTRED, _READ, _TERMS
cdef double _NONE


@cython.final
cdef class Fields:
    cdef readonly list fields
    cdef readonly double served, labels
    cdef double _centre, _score, _information
    cdef long long _centred
    cdef long long[::1] _places
    cdef double[::1] _read, _then

    @cython.locals(x=double, read="double[::1]", i=Py_ssize_t, field=Corrections, out=list)
    cpdef list added(self, double logit, names)
    @cython.locals(
        logit=double, x=double, added=double, read="double[::1]", i=Py_ssize_t, field=Corrections, delta=double,
        out=list,
    )
    cpdef tuple forecast(self, double pooled, names, own)
    @cython.locals(
        logit=double, x=double, read="double[::1]", count=Py_ssize_t, before=double, noise=double,
        i=Py_ssize_t, at=Py_ssize_t, field=Corrections, common=double, now=double, p=double,
        curvature=double, others=double, their_noise=double, without=double,
    )
    cpdef learn(self, int label, tuple given)
    @cython.locals(
        logit=double, x=double, read="double[::1]", count=Py_ssize_t, now=double, noise=double, change=double,
        i=Py_ssize_t, at=Py_ssize_t, field=Corrections, variance=double, share=double, others=double,
        their_noise=double,
    )
    cpdef relabel(self, int label, tuple given)
    @cython.locals(count=Py_ssize_t, k=Py_ssize_t)
    cdef double _take(self, tuple given) except? -1.0
    @cython.locals(read="double[::1]", before=double, added=double, noise=double, i=Py_ssize_t, field=Corrections, common=double)
    cdef (double, double, double) _sums(self, double logit, double x)
    cdef double _x(self, double logit) noexcept
