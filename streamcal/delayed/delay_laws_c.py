"""Delays of labels by class: how complete each class is at an age, and whether one comes later.

Predictions are counted in *cohorts* of `COHORT`, in their order. Cohorts that are old for their width are
merged, so their number grows with the logarithm of the stream. Ages and delays are measured from the end of
the cohort: in seconds where predictions have event times, else in predictions.

A late label is truncated on the right: of a cohort of age a, only delays up to a are seen. The reverse-time
product limit (Lagakos, Barraj and De Gruttola 1988) estimates the distribution F_y of the delay of each class
nevertheless. Whether F₁ and F₀ differ is told by the log-rank statistic, stratified by cohort and by octave
of the odds of the score, so that delays may depend on both. Older labels are discounted.

Completeness is the share of the labels of a class in a cohort that have been told. What is pending in a
cohort is divided between the classes by the laws of their delays and the rate of the cohort and its
neighbours. A cohort whose labels contradict the laws is marked: it is bulk, or an outage. So is a cohort
where one class is all but complete: what is pending is of the other.

Compiled where there is a C compiler; `delay_laws_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from streamcal.base.values import Floats
from streamcal.delayed.release_state import BANDS, ReleaseState
from streamcal.sketch.decoding import require, within

COHORT: Final = 64
"""Predictions of a cohort that is not merged yet."""
BINS: Final = 128
"""Bins of delays, four an octave: from 1/64 second or prediction to two years in seconds."""
COMPLETE: Final = 0.98
"""Share of its labels from which a class counts as complete."""

_ZERO: Final = 24  # bin that ends at delay 1
EDGES: Final = 2.0 ** ((np.arange(BINS) - _ZERO) / 4.0)
"""Delay at which each bin ends, float64[128]."""
_MEMORY: Final = 2000.0  # labels of a class that a bin remembers
_SHARES: Final = 8000.0  # predictions, for the shares that are pending
_LEAST: Final = 32.0  # labels of each class from which a bin counts
_TAIL: Final = 16.0  # times the last step of a law, at most, that are expected behind it
_ON: Final = 5.0  # standard deviations by which the classes must differ, …
_OFF: Final = 3.0  # … and below which they no longer do
_WIDE: Final = 16.0  # a merged cohort is at most this part of its age wide
_MOST: Final = 0.98  # of the labels of both classes have come, where a cohort is old
_EVERY: Final = 32  # cohorts after which neighbours are merged
_VARIANCE: Final = 5.0  # of a log-rank statistic that counts
_THREE_QUARTERS: Final = 4.0 * math.log2(0.75)

# Sums by bin: labels of each class that came in it, and up to it; score and variance of the log-rank
# statistic; predictions pending and all, and labels of each class, at its end.
_N, _R, _U, _V, _M, _A, _S = 0, 2, 4, 5, 6, 7, 8
_ROWS: Final = 10
_ROUNDS: Final = 4  # of EM
_PSEUDO: Final = 8.0  # labels at the rate of all, for the rate of a cohort
_SMOOTH: Final = 0.1  # label at the law, for the completeness
_ENOUGH: Final = 16.0  # labels of a class to be expected, or neighbours count, too
_LOCAL: Final = 2  # neighbours on either side that count for the rate of a cohort
_BEFORE: Final = 8  # cohorts before the first that is asked for, which may count as neighbours
_REACH: Final = 0.25  # of the age of a cohort that a neighbour may be away
_MATURE: Final = 0.9  # completeness of cohorts that tell the latest rate
_RECENT: Final = 2000.0  # labels that tell it
_FACTOR: Final = 2.0  # by which a rate may be off before a cohort contradicts the laws, …
_TELLING: Final = 64.0  # labels of a class that are due, from which they tell a rate
_ERRORS: Final = 4.0  # … and standard errors
_NEAR: Final = 4  # neighbours on either side that count where labels are found by exclusion
_HARDLY: Final = 0.01  # of the rarer class: labels of the other class that may be pending
_DIFFERENT: Final = 0.1  # by which the pending may differ from what is expected
_SURE: Final = 0.95  # completeness at the greatest age from which labels are found by exclusion
_PENDING: Final = 0.05  # of the rarer class of a cohort: as long as more is pending, it is held

# As C has them.
_COMPLETE = COMPLETE
_COHORT, _BINS, _BANDS, _EDGES = COHORT, BINS, BANDS, EDGES
_NO_TIME, _NEVER = float("nan"), float("inf")


COHORT_FIELDS: Final = np.dtype(
    [
        ("start", "i8"),  # number of the first prediction
        ("size", "i8"),  # number of predictions that are to get a label
        ("told", "i8", 2),  # labels told of each class
        ("released", "i8", 2),  # labels released of each class
        ("time", "f8"),
        ("expected", "f8", 3),  # sums of what is expected of predictions, of its square, and of labels
        ("next", "i4"),  # bin whose end the cohort comes to next
        ("mark", "i4"),  # see `label_release_c`
        ("risk", "i4", (BANDS, 2)),  # labels up to the bin before
        ("open", "i4", (BANDS, 2)),  # labels of that bin
    ]
)
"""Counts of a cohort, as a record of an array."""

STORED_FIELDS: Final = COHORT_FIELDS.newbyteorder("<")
"""The same, as it is in a state."""

_BLANK: Final = np.zeros((), COHORT_FIELDS)
_NO_COHORTS: Final = np.zeros(0, COHORT_FIELDS)
# Those of all before their first cohort ends.
_NO_SUMS, _NO_LAWS, _NO_HISTOGRAM = np.zeros((0, 0)), np.ones((2, 1)), np.zeros(0)


class DelayLaws:
    """Cohorts of predictions with their labels, and the laws of the delays; attributes are the state."""

    def __init__(self) -> None:
        self.n = 0
        """Number of predictions."""
        self.drawn = False
        """Whether only some are to get a label: those of `ask`, which are then all that a cohort has."""
        self.k = 0
        """Number of cohorts; predictions of the last are still coming."""
        self.now = 0.0
        """Latest time of a cohort: event time, or number of predictions."""
        self.by_time = False
        """Whether predictions have event times."""
        self.origin = 0.0
        """Time of the first prediction."""
        self.spacing = 0.0
        """Time between the ends of the latest cohorts."""
        self.on = False
        """Whether one class comes later than the other."""
        self.z = 0.0
        """Largest log-rank statistic, at least 0."""
        self.late = 0
        """Class that comes later, by that statistic."""
        self.power = 0.0
        """Variance of the statistic over all delays, not standardised."""
        self.known = False
        """Whether the laws are known."""
        self.never = 0.0
        """Share of predictions that never get a label."""
        self.p = 0.5
        """Share of positives among labels, at the greatest age that is known."""
        self.full = 1.0
        """Completeness of the less complete class at that age."""
        self.most = 0.0
        """Greatest age at which the laws are known."""
        self._first, self._low, self._high = 0, _BANDS, -1
        self._earlier = self._before = self._latest = _NO_TIME  # event times of the latest predictions
        self._sums: Any = _NO_SUMS
        self._laws: Any = _NO_LAWS
        self._histogram: Any = _NO_HISTOGRAM
        self.cohorts: Any = _NO_COHORTS  # before the first label, or the end of the first cohort

    def _hold(self, cohorts: Any) -> None:
        """Take these cohorts, and those for which there is memory behind them."""
        self.cohorts = cohorts
        self._start, self._size, self._time = cohorts["start"], cohorts["size"], cohorts["time"]
        self.told, self.released, self.expected = cohorts["told"], cohorts["released"], cohorts["expected"]
        self._next, self.mark = cohorts["next"], cohorts["mark"]
        self._risk, self._open = cohorts["risk"], cohorts["open"]

    def remaining(self) -> int:
        """Return the number of predictions until a cohort ends."""
        return _COHORT - (self.n - self._start[self.k - 1] if self.k else self.n)

    def begin(self) -> None:
        """Make a cohort for the next predictions."""
        i = self.k
        if i == len(self.cohorts):
            self._hold(np.concatenate((self.cohorts, np.zeros(2 + i // 2, COHORT_FIELDS))))
        self.cohorts[i] = _BLANK
        self._start[i], self._next[i] = (self.n if i else 0), self._first
        self.k += 1

    def predict(self, time: float) -> bool:
        """Count a prediction, with its event time or NaN; return whether it is the last of its cohort."""
        if self.n == 0:
            self.by_time = time == time
            self.origin = time if time == time else 0.0
        self.n += 1
        if self.by_time:
            self._earlier, self._before, self._latest = self._before, self._latest, time
        return self.remaining() == 0

    def ask(self) -> None:
        """Note that the latest prediction is to get a label, where only those are that are `drawn`."""
        if self.k == 0:
            self.begin()
        self._size[self.k - 1] += 1

    def asked(self) -> int:
        """Return the number of predictions that are to get a label."""
        return int(self.cohorts["size"][: self.k].sum()) if self.drawn else self.n

    def rank(self, index: int, i: int) -> int:
        """Return about how many of these come before a prediction of cohort i."""
        if not self.drawn:
            return index
        before = self.cohorts["size"][:i].sum()
        span = (self._start[i + 1] if i + 1 < self.k else self.n) - self._start[i]
        return int(before + max(0, index - self._start[i]) * self._size[i] // max(1, span))

    def predict_many(self, count: int) -> bool:
        """Count predictions without event times, at most `remaining`; return the same as `predict`."""
        ends = self.predict(_NO_TIME)
        if count > 1:
            self.n += count - 1
            self._earlier = self._before = _NO_TIME
            ends = self.remaining() == 0
        return bool(ends)

    def close(self) -> None:
        """End a cohort, and let the others come of age."""
        if self.k == 0:
            self.begin()
        i = self.k - 1
        closed_any = len(self._sums) > 0
        if not closed_any:
            self._sums, self._laws = np.zeros((_ROWS, _BINS)), np.ones((2, _BINS))
            self._histogram = np.zeros(2 * _BINS)
        before = self.now
        time = float(self.n)
        if self.by_time:  # one wrong clock is not believed
            time = _median(self._earlier, self._before, self._latest)
            time = time if time == time else (self.now if closed_any else self.origin)
        if not closed_any:
            self.origin = self.now = before = min(self.origin, time)
        self.now = max(self.now, time)
        self._time[i] = time
        if not self.drawn:
            self._size[i] = _COHORT
        if self.now > before and (closed_any or not self.by_time):
            self.spacing = self.now - before
            self._first = max(0, min(_BINS - 1, self.bin_of(0.25 * (self.now - before)) - 1))
        for j in range(self.k):
            self._age(j, self.now - self._time[j])
        if self.k % _EVERY == 0:
            self._merge()
        self.fit()
        self.begin()

    def bin_of(self, delay: float) -> int:
        """Return the number of the first bin that ends at a delay or later."""
        if delay <= _EDGES[0]:
            return 0
        last = int(math.ceil(4.0 * math.log2(delay) - 1e-9))  # noqa: RUF046  # in C a double
        return min(_BINS - 1, last + _ZERO)

    def find(self, index: int) -> int:
        """Return the cohort of a prediction, or the next that lacks labels, if it has all."""
        low = self.place(index)
        while low + 1 < self.k and self.told[low, 0] + self.told[low, 1] >= self._size[low]:
            low += 1
        return low

    def place(self, index: int) -> int:
        """Return the cohort of a prediction."""
        low, high = 0, self.k
        while high - low > 1:
            middle = (low + high) >> 1
            if self._start[middle] <= index:
                low = middle
            else:
                high = middle
        return low

    def label(self, i: int, score: float, label: int, time: float) -> None:
        """Count a label of a prediction of cohort i that comes at this time, at least `now`."""
        if self.k == 0:
            self.begin()
        band = 0 if score < 0.5 else _BANDS - 1
        if 0.0 < score < 1.0:
            octave = int(math.floor(math.log2(score / (1.0 - score))))  # noqa: RUF046  # in C a double
            band = max(0, min(_BANDS - 1, octave + _BANDS // 2))
        self._low, self._high = min(self._low, band), max(self._high, band)
        if i < self.k - 1:
            delay = time - self._time[i]
            while self._next[i] < _BINS - 1 and _EDGES[self._next[i]] < delay:
                self._cross(i)
        self._open[i, band, label] += 1
        self.told[i, label] += 1
        if len(self._histogram):
            self._histogram[(_BINS if label else 0) + self._next[i]] += 1.0

    def _age(self, i: int, age: float) -> None:
        """Let a cohort come to the ends of bins up to this age."""
        while self._next[i] < _BINS - 1 and age >= _EDGES[self._next[i]]:
            self._cross(i)

    def _cross(self, i: int) -> None:
        """Count the labels of a cohort as of the end of its present bin."""
        j = self._next[i]
        n0 = n1 = r0 = r1 = 0.0
        u = v = 0.0
        for band in range(self._low, self._high + 1):
            a0, a1 = self._open[i, band, 0], self._open[i, band, 1]
            self._risk[i, band, 0] += a0
            self._risk[i, band, 1] += a1
            b0, b1 = self._risk[i, band, 0], self._risk[i, band, 1]
            n0 += a0
            n1 += a1
            r0 += b0
            r1 += b1
            come, all_ = a0 + a1, b0 + b1
            if come > 0 and b0 > 0 and b1 > 0:
                self._open[i, band, 0] = self._open[i, band, 1] = 0
                share = float(b1) / all_
                u += a1 - share * come
                v += share * (1.0 - share) * come * (all_ - come) / (all_ - 1.0)
            elif come > 0:
                self._open[i, band, 0] = self._open[i, band, 1] = 0
        size = float(self._size[i])
        sums = self._sums
        kept0, kept1 = max(0.0, 1.0 - r0 / _MEMORY), max(0.0, 1.0 - r1 / _MEMORY)
        sums[_N, j] = sums[_N, j] * kept0 + n0
        sums[_N + 1, j] = sums[_N + 1, j] * kept1 + n1
        sums[_R, j] = sums[_R, j] * kept0 + r0
        sums[_R + 1, j] = sums[_R + 1, j] * kept1 + r1
        kept = max(kept0, kept1)
        sums[_U, j] = sums[_U, j] * kept + u
        sums[_V, j] = sums[_V, j] * kept + v
        kept = max(0.0, 1.0 - size / _SHARES)
        sums[_M, j] = sums[_M, j] * kept + max(0.0, size - r0 - r1)
        sums[_A, j] = sums[_A, j] * kept + size
        sums[_S, j] = sums[_S, j] * kept + r0
        sums[_S + 1, j] = sums[_S + 1, j] * kept + r1
        self._next[i] = j + 1

    def _merge(self) -> None:
        """Merge neighbours that are old for their width, and at the same bin."""
        old = self._old()
        j = 0
        for i in range(1, self.k - 1):
            before = self._time[j - 1] if j else self.origin
            width, age = self._time[i] - before, self.now - self._time[i]
            alike = self._next[i] == self._next[j] and width * _WIDE <= age
            if alike and (age > old or self.mark[i] == self.mark[j]):
                self._join(j, i)
            else:
                j += 1
                self._move(j, i)
        self._move(j + 1, self.k - 1)
        self.k = j + 2

    def _old(self) -> float:
        """Return an age at which hardly any label is still to come, so that marks no longer matter."""
        for j in range(_BINS):
            if self.known and min(self._laws[0, j], self._laws[1, j]) >= _MOST:
                return 2.0 * float(_EDGES[j])
        return 0.5 * self.most if self.known else _NEVER

    def _join(self, j: int, i: int) -> None:
        """Add a cohort to the one before it."""
        for name in ("size", "told", "released", "expected", "risk", "open"):
            self.cohorts[name][j] += self.cohorts[name][i]
        self._time[j] = self._time[i]

    def _move(self, j: int, i: int) -> None:
        """Put a cohort in an earlier place."""
        self.cohorts[j] = self.cohorts[i]

    def fit(self) -> None:
        """Estimate the laws, and test whether they differ."""
        sums, laws = self._sums, self._laws
        u = v = self.z = 0.0
        last = -1
        for j in range(_BINS - 1, -1, -1):
            if sums[_A, j] == 0.0:
                continue
            u += sums[_U, j]
            v += sums[_V, j]
            z = abs(u) / math.sqrt(v) if v > _VARIANCE else 0.0
            if z > self.z:
                self.z, self.late = z, int(u > 0.0)
            z = abs(sums[_U, j]) / math.sqrt(max(sums[_V, j], _VARIANCE))
            if z > self.z:
                self.z, self.late = z, int(sums[_U, j] > 0.0)
            if last < 0 and sums[_A, j] >= 4.0 * _COHORT and min(sums[_R, j], sums[_R + 1, j]) >= _LEAST:
                last = j
        self.power = v
        self.known = last > 0
        if not self.known:
            self.on = False
            return
        for y in range(2):
            share = 1.0
            for j in range(_BINS - 1, -1, -1):
                laws[y, j] = share
                if 0 < j <= last and sums[_R + y, j] > 0.0:
                    share *= min(1.0, max(0.0, 1.0 - sums[_N + y, j] / sums[_R + y, j]))
        self._extend(last)
        self.on = self.z > (_OFF if self.on else _ON)

    def _extend(self, last: int) -> None:
        """Let the laws go on behind the greatest age, by an exponential from its last two steps."""
        sums, laws = self._sums, self._laws
        pending = sums[_M, last] / sums[_A, last]
        rest0 = self._rest(0, last)
        rest1 = self._rest(1, last)
        rest = rest0 + rest1
        part = min(1.0, pending / rest) if rest > 0.0 else 1.0
        told0, told1 = sums[_S, last] / sums[_A, last], sums[_S + 1, last] / sums[_A, last]
        rest0, rest1 = rest0 * part, rest1 * part
        full0, full1 = told0 / max(told0 + rest0, 1e-12), told1 / max(told1 + rest1, 1e-12)
        for j in range(_BINS):
            laws[0, j] *= full0
            laws[1, j] *= full1
        self.never = max(0.0, pending - rest0 - rest1)
        self.p = (told1 + rest1) / max(told0 + told1 + rest0 + rest1, 1e-12)
        self.full = min(full0, full1)
        self.most = _EDGES[last]

    def _rest(self, y: int, last: int) -> float:
        """Return the labels of a class that are to come behind the greatest age, by predictions."""
        sums = self._sums
        first, second = self._law(y, last - 4.0), self._law(y, last + _THREE_QUARTERS)
        before = (second - first) * sums[_R + y, last]
        latest = (1.0 - second) * sums[_R + y, last]
        falls = (latest + 1.0) / (before + 1.0)
        more = min(falls / (1.0 - falls), _TAIL) if falls < 1.0 else _TAIL
        told: float = sums[_S + y, last] / sums[_A, last]
        return told * (1.0 - second) * more

    def _law(self, y: int, place: float) -> float:
        """Return a law between bins."""
        if place <= 0.0:
            return float(self._laws[y, 0])
        if place >= _BINS - 1:
            return float(self._laws[y, _BINS - 1])
        j = int(place)
        part = place - j
        return float(self._laws[y, j] * (1.0 - part) + self._laws[y, j + 1] * part)

    def law(self, y: int, age: float) -> float:
        """Return F_y, the share of the labels of class y that come up to an age."""
        if age <= _EDGES[0]:
            return float(self._laws[y, 0])
        return self._law(y, 4.0 * math.log2(age) + _ZERO)

    def usual(self, share: float, first: int = 0, last: int = 1) -> float:
        """Return a delay that this share of the labels of some classes so far have not exceeded."""
        if not len(self._histogram):
            return 0.0
        counts = np.asarray(self._histogram).reshape(2, BINS)[first : last + 1].sum(axis=0).cumsum()
        return float(EDGES[counts.searchsorted(share * counts[-1])]) if counts[-1] else 0.0

    # State

    def _restore_laws(self, state: ReleaseState) -> None:
        """Restore cohorts and laws; scalars must be restored before."""
        none = self._low, self._high
        range_ = 0 <= self._low <= self._high < BANDS or none == (BANDS, -1)
        require(0 <= self._first < BINS and range_, f"bins {(self._first, *none)}")
        known = len(state.histogram) > 0
        require(known or not self.known, "laws without sums")
        self._sums = state.sums.reshape(_ROWS if known else 0, BINS)
        self._laws = state.laws.reshape(2, BINS if known else 1)
        self._histogram = state.histogram.reshape(2 * BINS if known else 0)
        self._hold(np.frombuffer(state.cohorts or b"", STORED_FIELDS).astype(COHORT_FIELDS))
        self.k = len(self.cohorts)
        within(self.cohorts["next"], 0, BINS - 1, "bins of cohorts")


def _median(first: float, second: float, third: float) -> float:
    """Return the median of three times; of fewer that are not NaN, the least."""
    if first == first and second == second and third == third:
        return max(min(first, second), min(max(first, second), third))
    least = _NO_TIME
    for time in (first, second, third):
        if time == time and not least <= time:
            least = time
    return least


def completeness(laws: DelayLaws, start: int, out: Floats) -> float:
    """Put the completeness of each cohort from ``start`` on that has ended into ``out``, float64[4, k − 1].

    The rows are those of label 0, of label 1, 1.0 where a cohort contradicts the laws, else 0.0, and where
    one class is all but complete, 1.0 plus the other; else 0.0.

    Returns
    -------
    The least age from which both laws count as complete; infinity if there is none.
    """
    k = laws.k - 1
    start = max(0, start - _BEFORE)
    now, p, never = laws.now, laws.p, laws.never
    # Ages, laws, pending labels that will be told, labels by class with these, and rate.
    ages, law0, law1, pending, all0, all1 = np.empty((6, k))
    lows, highs = np.empty((2, 2, k))  # rates that the labels of each class may have
    least = 0.25 * (now - laws._time[k - 2]) if k > 1 else 0.0
    complete = _NEVER
    mature0 = mature1 = 0.0  # of the latest predictions whose labels are all but complete
    for i in range(k - 1, -1, -1):
        age = max(now - laws._time[i], least)
        ages[i], law0[i], law1[i] = age, laws.law(0, age), laws.law(1, age)
        if min(law0[i], law1[i]) >= _MATURE and mature0 + mature1 < _RECENT:
            mature0 += laws.told[i, 0] / law0[i]
            mature1 += laws.told[i, 1] / law1[i]
        if i < start and complete < _NEVER and mature0 + mature1 >= _RECENT:
            break
        missing = (1.0 - never) * (p * (1.0 - law1[i]) + (1.0 - p) * (1.0 - law0[i]))
        unlabelled = max(0.0, float(laws._size[i] - laws.told[i, 0] - laws.told[i, 1]))
        pending[i] = unlabelled * missing / max(missing + never, 1e-9)
        if min(law0[i], law1[i]) >= _COMPLETE:
            complete = min(complete, age)
    recent = (mature1 + _PSEUDO * p) / (mature0 + mature1 + _PSEUDO)
    for i in range(start, k):
        told0, told1, wait, due0, due1 = 0.0, 0.0, 0.0, 0.0, 0.0
        for j in range(max(start, i - _LOCAL), min(k, i + _LOCAL + 1)):
            if abs(laws._time[j] - laws._time[i]) <= _REACH * ages[i]:
                told0 += laws.told[j, 0]
                told1 += laws.told[j, 1]
                wait += pending[j]
                due0 += (1.0 - never) * laws._size[j] * law0[j]
                due1 += (1.0 - never) * laws._size[j] * law1[j]
        rate = p
        share = p
        for step in range(_ROUNDS + 1):
            late1, late0 = rate * (1.0 - law1[i]), (1.0 - rate) * (1.0 - law0[i])
            share = late1 / (late1 + late0) if late1 + late0 > 1e-9 else rate
            if step < _ROUNDS:
                rate = (told1 + wait * share + _PSEUDO * p) / (told0 + told1 + wait + _PSEUDO)
        out[3, i] = 0.0
        if laws.full >= _SURE and now - laws._time[i] >= least:
            out[3, i] = _rest(laws, k, i, law0[i], law1[i], _REACH * ages[i], recent)
        all0[i] = laws.told[i, 0] + pending[i] * (1.0 - share)
        all1[i] = laws.told[i, 1] + pending[i] * share
        # Rates that are possible: those of late, and for a class what the labels of the other say.
        low, high = min(p, recent), max(p, recent)
        lows[1, i], highs[1, i] = low, high
        lows[0, i], highs[0, i] = low, high
        if due0 >= _TELLING:
            lows[1, i] = max(0.0, min(low, 1.0 - told0 / due0))
            highs[1, i] = max(high, 1.0 - told0 / due0)
        if due1 >= _TELLING:
            lows[0, i] = min(low, told1 / due1)
            highs[0, i] = min(1.0, max(high, told1 / due1))
        low, high = min(lows[0, i], lows[1, i]), max(highs[0, i], highs[1, i])
        out[2, i] = float(_mixed(told0, told1, law0[i], law1[i], low, high))
    for i in range(start, k):
        for y in range(2):
            part = law1[i] if y else law0[i]
            first = last = i
            told = float(laws.told[i, y])
            total = all1[i] if y else all0[i]
            size = float(laws._size[i])
            expected = size * part
            while total < _ENOUGH:
                down = first > start and laws._time[i] - laws._time[first - 1] <= _REACH * ages[i]
                up = last < k - 1 and laws._time[last + 1] - laws._time[i] <= _REACH * ages[i]
                if not (down or up):
                    break
                if down:
                    first -= 1
                    told += laws.told[first, y]
                    total += all1[first] if y else all0[first]
                    expected += laws._size[first] * (law1[first] if y else law0[first])
                if up:
                    last += 1
                    told += laws.told[last, y]
                    total += all1[last] if y else all0[last]
                    expected += laws._size[last] * (law1[last] if y else law0[last])
            out[y, i] = (told + _SMOOTH * part) / (total + _SMOOTH)
            expected *= 1.0 - never
            low, high = lows[y, i], highs[y, i]
            least, most = (low, high) if y else (1.0 - high, 1.0 - low)
            most = min(1.0, _FACTOR * most) * expected
            least = max(least / _FACTOR, 1.0 - _FACTOR * (1.0 - least)) * expected
            below = least - _ERRORS * math.sqrt(least * (1.0 - part) + 1.0)
            if told > most + _ERRORS * math.sqrt(most + 1.0) or told < below:
                out[2, i] = 1.0
        unlabelled = float(laws._size[i] - laws.told[i, 0] - laws.told[i, 1])
        if out[2, i] > 0.0:
            out[3, i] = 0.0
        if unlabelled <= _PENDING * laws._size[i] * min(p, 1.0 - p):
            out[2, i] = 0.0
    return complete


def _mixed(told0: float, told1: float, law0: float, law1: float, low: float, high: float) -> bool:
    """Return whether the classes of what is told contradict the laws, however much is never told."""
    told = told0 + told1
    ratio = max(law1, 1e-6) / max(law0, 1e-6)
    high = _FACTOR * high / max(1.0 - high, 1e-9) * ratio
    low = low / max(1.0 - low, 1e-9) * ratio / _FACTOR
    high, low = high / (1.0 + high), low / (1.0 + low)
    return bool(
        told1 > told * high + _ERRORS * math.sqrt(told * high * (1.0 - high) + 1.0)
        or told1 < told * low - _ERRORS * math.sqrt(told * low * (1.0 - low) + 1.0)
    )


def _rest(laws: DelayLaws, k: int, i: int, law0: float, law1: float, reach: float, prior: float) -> float:
    """Return 1.0 plus the class of what is pending in a cohort, or 0.0 if some are of the other."""
    told0, told1, wait = 0.0, 0.0, 0.0
    for j in range(max(0, i - _NEAR), min(k, i + _NEAR + 1)):
        if abs(laws._time[j] - laws._time[i]) <= reach:
            told0 += laws.told[j, 0]
            told1 += laws.told[j, 1]
            wait += max(0.0, float(laws._size[j] - laws.told[j, 0] - laws.told[j, 1]))
    # Not at the rate of this cohort: of several, those with more labels of a class would be learned first.
    never = laws.never
    late1 = (1.0 - never) * prior * (1.0 - law1)
    late0 = (1.0 - never) * (1.0 - prior) * (1.0 - law0)
    all_ = late1 + late0 + never
    label = 1 if late1 > late0 else 0
    other = (1.0 - prior) * (1.0 - law0) if label else prior * (1.0 - law1)
    allowed = _HARDLY * min(prior, 1.0 - prior)
    total = told0 + told1 + wait
    expected = total * all_
    off = abs(wait - expected)
    if other > allowed or never > allowed:
        return 0.0
    if off > _ERRORS * math.sqrt(expected * (1.0 - min(all_, 1.0)) + 1.0) + _DIFFERENT * expected:
        return 0.0
    return 1.0 + label
