# The types with which between_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

cdef int _OFFSETS, _SLOPES, _SIZE
cdef const double[::1] _OFFSET_PRECISION, _SLOPE_PRECISION, _PRIOR_VARIANCE, _LOG_OFFSET_PRECISION, _LOG_SLOPE_PRECISION
cdef double _ODDS, _SURE, _NOTHING


@cython.final
cdef class BetweenSegments:
    cdef readonly double share, offset_precision, slope_precision
    cdef double[::1] _evidence

    @cython.locals(
        aa=double, ab=double, bb=double, a=double, b=double, old_aa=double, old_ab=double, old_bb=double,
        old_a=double, old_b=double,
    )
    cpdef replace(self, const float[::1] rows, Py_ssize_t old, Py_ssize_t new)
    @cython.locals(
        rest=double, cross=double, i=int, j=int, at=int, first=double, second=double, one=double, other=double,
        both=double, found=double, log_m=double, parts=double,
    )
    cdef void _add(self, double sign, double aa, double ab, double bb, double a, double b) noexcept
    @cython.locals(top=double, k=int, i=int, j=int, total=double, offset=double, slope=double, behind=double, part=double, factor=double)
    cpdef refresh(self)

cpdef double determinant(
    double offset_precision, double slope_precision, double aa, double ab, double bb
) noexcept
