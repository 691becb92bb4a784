# The types with which softmax_c.py is compiled; see docs/architecture.md.
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
    by_second=double, now=double, then=double, first=double, second=double,
)
cpdef gather(
    const double[:, :, :] made, const long long[::1] codes, const double[:, :] trackers,
    const double[:, :] carried, const double[::1] shares, double[:, :] out
)

@cython.locals(c=Py_ssize_t, i=Py_ssize_t)
cpdef log_losses(const double[:, :] given, const double[:] shares, double least, double[:, ::1] out)

@cython.locals(k=Py_ssize_t, i=Py_ssize_t, left=double)
cpdef count(const long long[:] codes, const double[:] weights, double kept, double[:, :] counts)


cpdef logs(const double[:, :] rows)

@cython.locals(
    classes=Py_ssize_t, slopes=Py_ssize_t, mean=double, step=Py_ssize_t, k=Py_ssize_t, j=Py_ssize_t, total=double,
)
cdef void exponents(const double[:] x, const double[::1] parameters, double[:] out) noexcept

@cython.locals(classes=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t, most=double, total=double)
cpdef scale(const double[:, :] x, const double[::1] parameters, double[:, :] out)

@cython.locals(m=Py_ssize_t, scaling=OnlineSoftmax)
cpdef scale_each(double[:, :, :] made, Py_ssize_t of, Py_ssize_t at, Py_ssize_t first, list scalings)


@cython.final
cdef class OnlineSoftmax:
    cdef readonly double discount
    cdef readonly object parameters
    cdef Py_ssize_t _classes, _slopes, _blocks
    cdef bint _dense
    cdef const double[::1] _theta, _first, _ridge
    cdef double[::1] _known
    cdef double[:, :, ::1] _curvature

    cpdef forecast(self, const double[:, :] x)
    @cython.locals(
        n=Py_ssize_t, kept=double, off="double[:, ::1]", slope="double[::1]", h="double[:, :, ::1]",
        i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, b=Py_ssize_t, m=Py_ssize_t, weight=double,
        theta="const double[::1]",
    )
    cpdef learn(self, const double[:, :] x, const long long[:] codes, const double[:] shares)
    @cython.locals(mean=double, k=Py_ssize_t)
    cdef void _centre(self, const double[:] x) noexcept
    @cython.locals(k=Py_ssize_t, j=Py_ssize_t)
    cdef void _lean(self, const double[:] x, const double[::1] off, double[::1] slope) noexcept
    @cython.locals(
        h="double[:, :, ::1]", known="double[::1]", k=Py_ssize_t, a=Py_ssize_t, b=Py_ssize_t, j=Py_ssize_t,
        m=Py_ssize_t, each=double, part=double,
    )
    cdef void _add(self, const double[:] x, const double[::1] p, double weight) noexcept
    @cython.locals(
        moved="double[::1]", theta="double[::1]", i=Py_ssize_t, k=Py_ssize_t, j=Py_ssize_t, least=double,
        most=double, farthest=double, length=double,
    )
    cdef _move(self, double[::1] slope, const double[:, :] x)
    @cython.locals(
        size=Py_ssize_t, work="double[:, :, ::1]", h="double[:, ::1]", column="double[::1]",
        places="Py_ssize_t[::1]", b=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, m=Py_ssize_t, at=Py_ssize_t,
        share=double,
    )
    cdef _solve(self, double[::1] slope)
