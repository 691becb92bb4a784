# The types with which forecasts_c.py is compiled; see docs/architecture.md.
cimport cython
cimport libc.math as math

cdef const double[::1] _FACTORS
cdef long long _AT_ONCE
cdef double _LARGEST, _LEAST, _MOST, _LEAST_LOGIT, _MOST_LOGIT


@cython.final
cdef class Line:
    cdef readonly object logits, values
    cdef readonly bint log_odds
    cdef const double[::1] _knots, _heights
    cdef double[::1] _slopes

    @cython.locals(i=Py_ssize_t, run=double)
    cdef void _draw(self) noexcept
    @cython.locals(i=Py_ssize_t, out="double[::1]")
    cpdef at(self, const double[::1] logits)
    cdef double one(self, double logit) noexcept
    @cython.locals(last=Py_ssize_t, low=Py_ssize_t, size=Py_ssize_t, half=Py_ssize_t)
    cdef double value(self, double logit) noexcept


@cython.final
cdef class Snapshot:
    cdef readonly long long observed
    cdef readonly object weights, odds, slopes
    cdef readonly double centre
    cdef readonly tuple lines, limits
    cdef readonly bint knows, by_scores
    cdef const double[:, ::1] _parts
    cdef const double[::1] _odds, _slopes
    cdef double _least, _most

    @cython.locals(k=Py_ssize_t, line=Line, before=Line)
    cdef void put(self, double score, double logit, double[::1] out) noexcept
    @cython.locals(k=Py_ssize_t, value=double, weight=double, served=double, log_odds=double, j=Py_ssize_t)
    cdef double mixed(self, double score, double logit, double[::1] row) noexcept
    @cython.locals(factor=double)
    cdef double drawn(self, double value, double log_odds, Py_ssize_t j) noexcept


@cython.final
cdef class MixedSteps:
    cdef Snapshot _snapshot
    cdef const double[::1] _edges, _middles, _logits
    cdef double[::1] _values, _row

    cpdef double one(self, double score) except? -1.0
    @cython.locals(place=Py_ssize_t)
    cpdef values(self)
    @cython.locals(value=double)
    cdef double _value(self, Py_ssize_t place) noexcept


@cython.locals(low=Py_ssize_t, size=Py_ssize_t, half=Py_ssize_t)
cdef Py_ssize_t interval_of(const double[:] edges, double score) noexcept

cdef double expit(double exponent) noexcept

@cython.locals(positive=double)
cdef double shifted(double odds, double probability) noexcept

@cython.locals(row="double[::1]", i=Py_ssize_t, k=Py_ssize_t)
cpdef forecast(Snapshot snapshot, const double[::1] scores, const double[::1] logits, double[:, ::1] out)

@cython.locals(
    kinds=Py_ssize_t, candidates=Py_ssize_t, row="double[::1]", edges="const double[:]", middles="const double[:]",
    places="const double[:]", i=Py_ssize_t, score=double, weight=double, inside=double, x=double,
    place=Py_ssize_t, k=Py_ssize_t, then=Snapshot, tracker=Py_ssize_t, mixed=double, least=double, most=double,
    j=Py_ssize_t, loss=double, log_odds=double, n=Py_ssize_t, kind=Py_ssize_t, is_late=bint,
    logits="double[::1]", losses="double[:, :, ::1]", tracked="double[:, ::1]", sloped="double[:, ::1]",
)
cpdef tuple lose(
    Snapshot arrival, list served, const long long[::1] which, tuple cells, const double[:] scores,
    const signed char[:] labels, tuple limits, const double[::1] counted
)

@cython.locals(inside=double)
cdef double loss_of(double forecast, int label, double least, double most) noexcept


@cython.locals(newest="long long", number="long long", at_once=bint, fresh=Py_ssize_t, i=Py_ssize_t)
cpdef tuple look(const long long[::1] prediction_index, long long observed, bint is_later)

@cython.locals(
    count=Py_ssize_t, first=Py_ssize_t, least=Py_ssize_t, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t,
    place=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, moments="long long[::1]",
)
cpdef Py_ssize_t put_served(list entries, const long long[::1] prediction_index, long long[::1] index)

@cython.locals(count=Py_ssize_t, i=Py_ssize_t, now="long long", step="long long", age="long long", apart="long long")
cpdef list thinned(list entries, long long oldest, long long young)

cdef Snapshot snapshot_of(tuple entry)

@cython.locals(
    s=Py_ssize_t, n=Py_ssize_t, i=Py_ssize_t, j=Py_ssize_t, moved="double[::1]", total=double, least=double,
    kept=double,
)
cpdef moved_slopes(
    const double[::1] weights, const double[:, ::1] losses, const double[::1] first, double rate, double share
)

@cython.locals(i=Py_ssize_t, k=Py_ssize_t)
cpdef add_up(const double[:, :, ::1] losses, double[::1] sums)

@cython.locals(
    n=Py_ssize_t, block=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t, k=Py_ssize_t,
    least=double, low=double, high=double, discount=double, a=double, b=double, aa=double, ab=double, bb=double,
    slope_a=double, slope_b=double, x=double, t=double, first=double, second=double, determinant=double,
    step_a=double, step_b=double, farthest=double, length=double,
)
cpdef learn_labels(
    double[:, ::1] fits, const double[::1] discounts, const double[::1] logits,
    const signed char[::1] labels, const double[::1] shares
)

@cython.locals(
    block=Py_ssize_t, rate=double, early=double, share=double, lead_rate=double, first_trust=double,
    kept_a_label=double, coin=double, least_loss=double, least_trust=double, candidates=Py_ssize_t,
    n=Py_ssize_t, kinds=Py_ssize_t, lost="double[::1]", each="double[:, ::1]", start=Py_ssize_t, end=Py_ssize_t, known=double,
    i=Py_ssize_t, k=Py_ssize_t, product=double, least_mean=double, returned=double, kept=double,
    tracker=Py_ssize_t, kind=Py_ssize_t, mean=double, total=double, own=double, least=double, loss=double,
    eta=double, moved=double, back=double, ahead=double, trusted=double,
)
cpdef double move(
    double[:, ::1] served, double[::1] sums, double lead, const double[:, :, :] losses,
    const double[:, :] tracked, const double[::1] counted, const double[::1] first,
    const cython.uchar[::1] asleep, double earlier, rates
)

@cython.locals(most=double)
cpdef double trust(double lead)
