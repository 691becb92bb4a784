# The types with which rows_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

@cython.locals(i=Py_ssize_t, good=bint)
cpdef bint are_shares(double[:, :] rows, double rounding)

@cython.locals(made="double[:, ::1]")
cpdef shares_of(const double[:] row, double rounding)

@cython.locals(k=Py_ssize_t, total=double)
cdef bint _put_shares(const double[:] row, double rounding, double[:] out) noexcept

@cython.locals(i=Py_ssize_t, most=double)
cpdef double largest(const double[:] values)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t)
cpdef logarithms(const double[:, :] rows, double least, double[:, :] out)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, total=double)
cpdef normalise(double[:, :] rows, const double[:, :] instead)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, m=Py_ssize_t, total=double, mixed=double)
cpdef mix(const double[::1] weights, const double[:, :, :] made, double[:, :] out)

@cython.locals(
    candidates=Py_ssize_t, classes=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, m=Py_ssize_t, knew=bint, by_first=double,
    by_second=double, now=double, then=double, first=double, second=double, late=double,
)
cpdef gather(
    const double[:, :, :] made, const long long[::1] codes, const double[:, :] trackers,
    const double[:, :] carried, double observed, const double[::1] shares, double[:, :] out
)

@cython.locals(c=Py_ssize_t, i=Py_ssize_t)
cpdef log_losses(const double[:, :] given, const double[:] shares, double least, double[:, ::1] out)

@cython.locals(k=Py_ssize_t, i=Py_ssize_t, left=double)
cpdef count(const long long[:] codes, const double[:] weights, double kept, double[:, :] counts)
