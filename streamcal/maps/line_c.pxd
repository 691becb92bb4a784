# The types with which line_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

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
