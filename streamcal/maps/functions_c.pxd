# The types with which functions_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math
from streamcal.sketch cimport counts_c

cpdef class_prior(double positives, double n)
@cython.locals(p=double, q=double)
cpdef tuple shift_weights(source, target)
@cython.locals(w0=double, w1=double, positive=double, total=double)
cpdef double shift_correction_one(double probability, tuple weights) except? -1.0


@cython.final
cdef class LinearFunction:
    cdef double[::1] _knots
    cdef double[::1] _log_odds
    cdef double[::1] _slopes
    cdef long long[::1] _guide
    cdef double _density, _low, _high
    cdef bint _clips

    @cython.locals(end=double, largest=double, x=double, exponent=double, last=Py_ssize_t, slot=Py_ssize_t, place=Py_ssize_t)
    cpdef double one(self, double score)

    @cython.locals(i=Py_ssize_t)
    cpdef apply(self, const double[::1] scores, double[::1] out)


@cython.final
cdef class StepFunction:
    cdef double[::1] _edges
    cdef double[::1] _values
    cdef int[::1] _guide
    cdef Py_ssize_t _last
    cdef int _shift
    cdef long long _first, _without

    @cython.locals(left="long long")
    cdef int _count(self, Py_ssize_t scores) except -1
    @cython.locals(last=Py_ssize_t, slot=Py_ssize_t, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t bin_of(self, double score) noexcept
    cpdef double one(self, double score)
    @cython.locals(i=Py_ssize_t, values=cython.double[::1])
    cpdef apply(self, const double[::1] scores, tuple weights, double[::1] out)
