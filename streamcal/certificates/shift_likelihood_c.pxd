# The types with which shift_likelihood_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

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

@cython.locals(small=double)
cdef double _expit(double exponent) noexcept
