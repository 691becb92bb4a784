# The types with which fits_c.py is compiled; see docs/architecture.md.
cimport cython
from streamcal.maps cimport isotonic_c, logistic_c

@cython.locals(
    m=Py_ssize_t, means="double[::1]", sizes="double[::1]", starts="long long[::1]", i=Py_ssize_t,
    positives=double, weight=double, one=double, blocks=Py_ssize_t,
)
cpdef Py_ssize_t isotonic_knots(
    const double[::1] logits, const long long[:, :] counts, const double[:] squares, double[::1] knots,
    double[::1] values
)

@cython.locals(
    m=Py_ssize_t, own="double[:, ::1]", sums="double[:, ::1]", means="double[::1]", groups=Py_ssize_t,
    known="double[:, ::1]", i=Py_ssize_t,
)
cpdef fit_logistic(
    const double[::1] logits, const long long[:, :] counts, double scale, const double[::1] bends,
    const double[::1] centre, const double[::1] ridge, double[::1] theta
)
