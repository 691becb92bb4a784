# The types with which sums_c.py is compiled; see docs/architecture.md.
cimport cython


@cython.locals(
    i=Py_ssize_t, at=Py_ssize_t, side=Py_ssize_t, differences=Py_ssize_t, squares=Py_ssize_t, before=double,
    after=double, label=double, value=double, of_zero=double, of_one=double, gain=double, extreme=double,
)
cpdef add_sums(
    double[::1] sums, const double[::1] bands, const double[::1] ranges, const double[:, ::1] forecasts,
    const double[::1] labels, Py_ssize_t begin, Py_ssize_t end,
)

@cython.locals(
    i=Py_ssize_t, row=Py_ssize_t, score=double, forecast=double, label=double, count=double, expected=double,
    error=double,
)
cpdef add_labels(
    double[:, ::1] sums, const long long[::1] at, const double[:, ::1] forecasts, const double[::1] labels
)

@cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
cdef inline Py_ssize_t _place(const double[::1] edges, double value) noexcept
