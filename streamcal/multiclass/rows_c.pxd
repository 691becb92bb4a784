# The types with which rows_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, total=double)
cpdef bint are_shares(double[:, :] rows, double rounding)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t)
cpdef logarithms(const double[:, :] rows, double least, double[:, :] out)

@cython.locals(
    i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, classes=Py_ssize_t, slopes=Py_ssize_t, mean=double, most=double,
    total=double,
)
cpdef scale(const double[:, :] x, const double[::1] parameters, double[:, :] out)

@cython.locals(m=Py_ssize_t, x="double[:, :]")
cpdef scale_each(const double[:, :] rows, double least, parameters, double[:, :, :] out)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, total=double)
cpdef normalise(double[:, :] rows, const double[:, :] instead)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t, m=Py_ssize_t, total=double, mixed=double)
cpdef mix(const double[::1] weights, const double[:, :, :] made, double[:, :] out)

@cython.locals(
    candidates=Py_ssize_t, classes=Py_ssize_t, i=Py_ssize_t, m=Py_ssize_t, knew=bint, by_first=double,
    by_second=double, now=double, then=double, first=double, second=double, late=double,
)
cpdef gather(
    const double[:, :, :] made, const long long[::1] codes, const double[:, :] trackers,
    const double[:, :] carried, double observed, const double[::1] shares, double least, Py_ssize_t logs,
    double[:, :] out
)
