# The types with which fits_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math
from streamcal.sketch.counts_c cimport key_of, middle_of

cdef Py_ssize_t _POSITIVES, _TOTALS, _SQUARES, _LOGITS
cdef double _APART, _NOWHERE, _ONE_LABEL
cdef Py_ssize_t _REACH
cdef const double[::1] _KERNEL

@cython.locals(last=Py_ssize_t, i=Py_ssize_t, mean=double, size=double, start=Py_ssize_t, total=double)
cpdef Py_ssize_t pool(double[::1] means, double[::1] sizes, long long[::1] starts, Py_ssize_t m)


@cython.locals(
    m=Py_ssize_t, i=Py_ssize_t, blocks=Py_ssize_t, positives=double, total=double, one=double,
    rates="double[::1]", weights="double[::1]", firsts="long long[::1]", line="double[:, ::1]",
)
cpdef isotonic_line(
    const long long[::1] cells, int level, const double[:, ::1] masses, const double[::1] squares
)


@cython.locals(weight=double, others=double, misses=double)
cpdef double loss_left_out(double positives, double totals, double squares) noexcept
@cython.locals(
    last=Py_ssize_t, count=Py_ssize_t, above=Py_ssize_t, split=Py_ssize_t, edge=Py_ssize_t, n=double,
    rank=double, parts=double, below=double,
)
cpdef Py_ssize_t put_splits(const double[::1] ends, Py_ssize_t bins, bint whole, long long[::1] splits)
@cython.locals(
    j=Py_ssize_t, b=Py_ssize_t, bins=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, lost=double,
    summed="double[:, ::1]", splits="long long[::1]",
)
cpdef put_losses_left_out(
    const double[:, ::1] cells, bint whole, const long long[::1] numbers, double[::1] out
)


@cython.final
cdef class Curves:
    cdef const double[:, ::1] _cells
    cdef double[:, ::1] _numbers, _bins, _blocks, _scratch, _values
    cdef double[::1] _moved, _mass
    cdef long long[::1] _splits, _apart, _ends, _block
    cdef long long[:, ::1] _places, _starts
    cdef Py_ssize_t _drawn, _lined, _knots
    cdef bint _whole, _monotone

    @cython.locals(
        cells="const double[:, ::1]", mass="double[::1]", kinds=Py_ssize_t, n=Py_ssize_t, kind=Py_ssize_t,
        j=Py_ssize_t, k=Py_ssize_t, i=Py_ssize_t, chosen=Py_ssize_t, losses="double[:, ::1]",
        values="double[:, :, ::1]", grouped="double[:, ::1]", mean=double, error=double, here=double, there=double,
        best="Py_ssize_t[3]", smooth="double[3]",
    )
    cpdef tuple choose(self, const long long[::1] numbers, Py_ssize_t groups)
    @cython.locals(
        splits="long long[::1]", bins=Py_ssize_t, apart=Py_ssize_t, before=double, b=Py_ssize_t, k=Py_ssize_t,
        rate=double,
    )
    cpdef draw(self, Py_ssize_t number)
    @cython.locals(
        b=Py_ssize_t, i=Py_ssize_t, positives=double, totals=double, squares=double, logits=double,
    )
    cdef void _sum(
        self, const double[:, ::1] cells, const long long[::1] splits, Py_ssize_t count, double[:, ::1] out
    ) noexcept
    @cython.locals(
        count=Py_ssize_t, blocks="double[:, ::1]", b=Py_ssize_t, k=Py_ssize_t, rate=double, totals=double,
        doubt=double, above=double, below=double,
    )
    cdef Py_ssize_t _pool(self, Py_ssize_t bins, const long long[::1] splits, Py_ssize_t of) except -1
    @cython.locals(steps=Py_ssize_t, j=Py_ssize_t)
    cdef void _judge(self, const long long[::1] numbers, double[:, ::1] losses, double[:, :, ::1] forecasts)
    @cython.locals(
        lost=double, k=Py_ssize_t, i=Py_ssize_t, positives=double, totals=double, squares=double,
    )
    cdef double _judge_steps(self, double[::1] forecasts) noexcept
    @cython.locals(
        knots="double[::1]", last=Py_ssize_t, lost=double, own=Py_ssize_t, passed=Py_ssize_t,
        i=Py_ssize_t, x=double, left=Py_ssize_t, right=Py_ssize_t, width=double, part=double, below=Py_ssize_t,
        above=Py_ssize_t, log_odds=double, forecast=double, positives=double, noise=double, misses=double,
        weight=double, before=double, cells="const double[:, ::1]", starts="long long[:, ::1]",
        values="double[:, ::1]", block="long long[::1]",
    )
    cdef double _judge_line(self, bint is_line, double[::1] forecasts) noexcept
    @cython.locals(
        knots=Py_ssize_t, kept=Py_ssize_t, k=Py_ssize_t, places="double[::1]", line="double[:, ::1]", is_end=bint,
    )
    cpdef tuple line(self, int curve)


@cython.locals(i=Py_ssize_t)
cpdef cell_logits(const long long[::1] cells, int level, double[::1] out)

@cython.locals(least=double, most=double, score=double)
cdef double cell_logit(long long cell, int level) noexcept

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
    const double[:, ::1] sums, double[::1] slope, double[:, ::1] hessian
) noexcept

@cython.locals(d=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, k=Py_ssize_t, root=double, total=double)
cdef void solve(double[:, ::1] matrix, double[::1] right, double[::1] out) noexcept

@cython.locals(
    parts=double, apart=double, last=Py_ssize_t, total=double, part=double, place=double, i=Py_ssize_t,
    passed=double, now=double, here=double,
)
cpdef Py_ssize_t group(const double[::1] logits, const double[:, ::1] counts, double[::1] means, double[:, ::1] sums)

@cython.locals(
    m=Py_ssize_t, d=Py_ssize_t, i=Py_ssize_t, groups=Py_ssize_t, end=double, least=double, most=double,
    total=double, square=double, scale=double, inside="double[::1]", counted="double[:, ::1]",
)
cpdef regress(
    double[::1] theta, const double[::1] centre, const double[::1] ridge, const double[::1] knots,
    const double[::1] logits, const double[:, ::1] masses, const double[::1] squares
)


cpdef class_prior(double positives, double n)
@cython.locals(p=double, q=double)
cpdef tuple shift_weights(source, target)
@cython.locals(w0=double, w1=double, positive=double, total=double)
cpdef double shift_correction_one(double probability, tuple weights) except? -1.0


@cython.final
cdef class LinearFunction:
    cdef double[::1] _knots
    cdef double[::1] _log_odds
    cdef double[::1] _slopes
    cdef long long[::1] _guide
    cdef double _density, _low, _high
    cdef bint _clips

    @cython.locals(i=Py_ssize_t, slot=Py_ssize_t, place=Py_ssize_t, run=double)
    cdef void _draw(self) noexcept
    @cython.locals(end=double, largest=double, x=double, exponent=double, last=Py_ssize_t, slot=Py_ssize_t, place=Py_ssize_t)
    cpdef double one(self, double score)

    @cython.locals(i=Py_ssize_t)
    cpdef apply(self, const double[::1] scores, double[::1] out)


@cython.final
cdef class StepFunction:
    cdef readonly object values
    cdef double[::1] _edges, _values
    cdef int[::1] _guide
    cdef Py_ssize_t _last
    cdef int _shift
    cdef long long _first, _without

    @cython.locals(left="long long")
    cdef int _count(self, Py_ssize_t scores) except -1
    @cython.locals(last=Py_ssize_t, slot=Py_ssize_t, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t bin_of(self, double score) noexcept
    cpdef double one(self, double score)
    @cython.locals(i=Py_ssize_t)
    cpdef apply(self, const double[::1] scores, const double[::1] values, double[::1] out)
