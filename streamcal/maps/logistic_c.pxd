# The types with which logistic_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

@cython.locals(i=Py_ssize_t, j=Py_ssize_t)
cpdef put_features(const double[::1] logits, const double[::1] knots, double[:, ::1] out)

@cython.locals(
    most_steps=Py_ssize_t, most_halvings=Py_ssize_t, d=Py_ssize_t, m=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t,
    k=Py_ssize_t, used=Py_ssize_t, tolerance=double, sufficient=double, loss=double, first=double, second=double, weighed=double,
    decrease=double, scale=double, after=double, curvature="double[:, ::1]", slope="double[::1]",
    step="double[::1]", trial="double[::1]", now="double[::1]", new="double[::1]",
)
cpdef minimise(
    double[::1] fitted, const double[::1] centre, const double[::1] ridge, const double[:, ::1] values,
    const double[::1] positives, const double[::1] totals
)

@cython.locals(d=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, lost=double, exponent=double, small=double)
cdef double loss_of(
    double[::1] theta, const double[::1] centre, const double[::1] ridge, const double[:, ::1] values,
    const double[::1] positives, const double[::1] totals, double[::1] rates
)

@cython.locals(d=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, root=double, total=double)
cdef void solve(double[:, ::1] matrix, double[::1] right, double[::1] out)

@cython.locals(
    largest=double, h=Py_ssize_t, start=Py_ssize_t, each=Py_ssize_t, row=Py_ssize_t, j=Py_ssize_t, i=Py_ssize_t,
    same=bint, bends=bint, slope=double, intercept=double, exponent=double,
)
cpdef evaluate(
    const double[:, :, :] theta, const double[:, ::1] before, const double[::1] knots,
    const double[::1] logits, const long long[::1] ends, double[:, :] out
)

@cython.locals(
    parts=double, apart=double, last=Py_ssize_t, total=double, part=double, place=double, i=Py_ssize_t,
    passed=double, now=double, here=double,
)
cpdef Py_ssize_t group(const double[::1] logits, const double[:, ::1] counts, double[::1] means, double[:, ::1] sums)
