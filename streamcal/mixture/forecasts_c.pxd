# The types with which forecasts_c.py is compiled; see docs/architecture.md.
cimport cython

@cython.locals(
    last=Py_ssize_t, i=Py_ssize_t, x=double, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, slope=double,
)
cpdef interpolate(const double[::1] knots, const double[::1] values, const double[::1] points, double[:] out)

@cython.locals(start=Py_ssize_t, each=Py_ssize_t, row=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, weight=double)
cpdef mix(
    const double[:, :, :] weights, const double[:, ::1] forecasts, const long long[::1] ends, double[:, ::1] out
)
