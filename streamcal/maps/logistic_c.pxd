# The types with which logistic_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math
from streamcal.sketch.keys_c cimport middle_of

@cython.locals(least=double, most=double, i=Py_ssize_t, score=double)
cpdef cell_logits(const long long[::1] cells, int level, double[::1] out)

@cython.locals(
    most_steps=Py_ssize_t, most_halvings=Py_ssize_t, d=Py_ssize_t, m=Py_ssize_t, h=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t,
    tolerance=double, sufficient=double, loss=double, decrease=double, scale=double, after=double,
    curvature="double[:, ::1]", vectors="double[:, ::1]", rates="double[:, ::1]", lines="double[:, ::1]",
    sums="double[:, ::1]", places="long long[::1]", place="long long", slope="double[::1]", step="double[::1]",
    trial="double[::1]", now="double[::1]", new="double[::1]",
)
cpdef minimise(
    double[::1] fitted, const double[::1] centre, const double[::1] ridge, const double[::1] knots,
    const double[::1] logits, const double[::1] positives, const double[::1] totals
)

@cython.locals(i=Py_ssize_t, j=Py_ssize_t, lost=double, slope=double, intercept=double, exponent=double, small=double)
cdef double loss_of(
    double[::1] theta, const double[::1] centre, const double[::1] ridge, const double[::1] knots,
    const double[::1] logits, const long long[::1] places, const double[::1] positives, const double[::1] totals,
    double[:, ::1] lines, double[::1] rates
) noexcept

@cython.locals(last=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, x=double, place=Py_ssize_t, first=double, second=double)
cdef void add_derivatives(
    const double[::1] logits, const long long[::1] places, const double[::1] positives, const double[::1] totals,
    const double[::1] rates, double[:, ::1] sums
) noexcept

@cython.locals(d=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, above=Py_ssize_t, bend=double, other=double)
cdef void put_derivatives(
    const double[::1] theta, const double[::1] centre, const double[::1] ridge, const double[::1] knots,
    const double[:, ::1] sums, double[::1] slope, double[:, ::1] curvature
) noexcept

@cython.locals(d=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, root=double, total=double)
cdef void solve(double[:, ::1] matrix, double[::1] right, double[::1] out) noexcept

@cython.locals(
    parts=double, apart=double, last=Py_ssize_t, total=double, part=double, place=double, i=Py_ssize_t,
    passed=double, now=double, here=double,
)
cpdef Py_ssize_t group(const double[::1] logits, const double[:, ::1] counts, double[::1] means, double[:, ::1] sums)
