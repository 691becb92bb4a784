# The types with which groups_c.py is compiled; see docs/architecture.md.
cimport cython


@cython.locals(
    i=Py_ssize_t, row=Py_ssize_t, score=double, forecast=double, label=double, count=double, expected=double,
    error=double,
)
cpdef add_labels(
    double[:, ::1] sums, const long long[::1] at, const double[:, ::1] forecasts, const double[::1] labels
)

@cython.locals(out="long long[::1]", i=Py_ssize_t)
cpdef places_of(names, dict places)

@cython.locals(count=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, place=Py_ssize_t, weight=double)
cpdef add_to_bins(
    double[:, :, :] bins, const double[:, :] forecasts, const long long[::1] codes, const double[::1] weights
)
