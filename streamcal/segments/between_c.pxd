# The types with which between_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

cdef int _OFFSETS, _SLOPES, _SIZE
cdef const double[::1] _OFFSET_PRECISION, _SLOPE_PRECISION, _LOG_OFFSET_PRECISION, _LOG_SLOPE_PRECISION
cdef double _ODDS, _SURE, _FINENESS


@cython.final
cdef class BetweenSegments:
    cdef readonly double share, offset_precision, slope_precision
    cdef double[::1] _evidence

    @cython.locals(
        aa=double, ab=double, bb=double, a=double, b=double, old_aa=double, old_ab=double, old_bb=double,
        old_a=double, old_b=double, i=int, j=int, first=double, second=double, had_labels=bint,
    )
    cpdef replace(self, const float[::1] rows, Py_ssize_t old, Py_ssize_t new)
    @cython.locals(top=double, k=int, i=int, j=int, total=double, offset=double, slope=double, part=double, factor=double)
    cpdef refresh(self)

@cython.locals(both=double, found=double)
cdef double _log_marginal(
    double first, double second, double aa, double ab, double bb, double a, double b
) noexcept

cpdef double determinant(
    double offset_precision, double slope_precision, double aa, double ab, double bb
) noexcept
