# The types with which likelihoods_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

@cython.locals(
    size=Py_ssize_t, m=Py_ssize_t, c=Py_ssize_t, k=Py_ssize_t, first=Py_ssize_t, last=Py_ssize_t,
    before="double[:, ::1]", own="double[::1]", after="double[::1]", best=double, enough=double, short=double,
)
cpdef bint plausible(
    const double[::1] points, const double[::1] hit, const double[::1] miss, const double[:, ::1] cells,
    double slack, double[::1] lowest, double[::1] highest
)

@cython.locals(node=Py_ssize_t, c=Py_ssize_t, k=Py_ssize_t)
cpdef deviances(
    const long long[::1] first, const long long[::1] last, const double[::1] hit, const double[::1] miss,
    const double[:, ::1] cells, double[::1] out
)

@cython.locals(
    tilts=Py_ssize_t, node=Py_ssize_t, c=Py_ssize_t, k=Py_ssize_t, t=Py_ssize_t, heavy=double, light=double,
    upper=double, lower=double, rise=double, fall=double, up=double, down=double, share=double, interval=double,
    over=double, under=double, own=double,
)
cpdef gains(
    const long long[::1] first, const long long[::1] last, const double[:, ::1] by_point,
    const double[:, ::1] by_cell, const double[:, ::1] by_tilt, Py_ssize_t top, Py_ssize_t bottom,
    double[:, ::1] out
)

@cython.locals(
    tilts=Py_ssize_t, many=Py_ssize_t, node=Py_ssize_t, lane=Py_ssize_t, c=Py_ssize_t, k=Py_ssize_t,
    t=Py_ssize_t, j=Py_ssize_t, best=double,
)
cpdef best_paths(
    const long long[::1] first, const long long[::1] last, const double[::1] deviance,
    const double[:, ::1] risk, const double[::1] multipliers, double[:, ::1] reached
)


@cython.locals(b=Py_ssize_t, whole=double, rate=double)
cpdef double entropy(const double[::1] hits, const double[::1] totals)

@cython.locals(
    bins=Py_ssize_t, b=Py_ssize_t, _=Py_ssize_t, shift=double, all_hits=double, rate=double, slope=double,
    reduced=double, p=double, q=double, both=double, step=double, farthest=double, own=double, lack=double,
    room=double, moved=double, known=double, most=double, low=double, high=double, logits="double[::1]",
    slopes="double[::1]", source_curves="double[::1]", curves="double[::1]",
)
cpdef double largest_likelihood(
    const double[::1] source_hits, const double[::1] source_totals, const double[::1] hits,
    const double[::1] totals
)

@cython.locals(
    bins=Py_ssize_t, i=Py_ssize_t, b=Py_ssize_t, zeros=double, ones=double, by_bins=double, of_bins=double,
    low=double, high=double, alone=double, half=double, last=double, out="double[:, ::1]",
)
cpdef log_likelihoods(const long long[:, :, ::1] counts, bint learned)

cdef double _log_power(double n, double start, double at_start, bint learned) noexcept

@cython.locals(below=double, square=double, series=double)
cdef double _log_gamma(double x) noexcept

@cython.locals(small=double)
cdef double _expit(double exponent) noexcept
