"""Delays of labels by class: how complete each class is at an age, and whether one comes later.

Predictions are counted in *cohorts* of `COHORT`, in their order. Cohorts that are old for their width are
merged, so their number grows with the logarithm of the stream. Ages and delays are measured from the end of
the cohort: in seconds where predictions have event times, else in predictions.

A late label is truncated on the right: of a cohort of age a, only delays up to a are seen. The reverse-time
product limit (Lagakos, Barraj and De Gruttola 1988) estimates the distribution F_y of the delay of each class
nevertheless. Whether F₁ and F₀ differ is told by the log-rank statistic, stratified by cohort and by octave
of the odds of the score, so that delays may depend on both. Older labels are discounted.

Compiled where there is a C compiler; `delay_laws_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from streamcal.release.release_state import ReleaseState
from streamcal.sketch.decoding import MOST, require, within

__all__ = ["BANDS", "BINS", "COHORT", "EDGES", "DelayLaws"]

COHORT: Final = 64
"""Predictions of a cohort that is not merged yet."""
BINS: Final = 128
"""Bins of delays, four an octave: from 1/64 second or prediction to two years in seconds."""
BANDS: Final = 24
"""Bands of scores: octaves of the odds, from 2⁻¹² to 2¹²."""

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
_MARKS: Final = 3  # greatest mark of a cohort

# As C has them.
_COHORT, _BINS, _BANDS, _EDGES = COHORT, BINS, BANDS, EDGES
_NOWHERE, _NO_TIME, _NEVER = -1, float("nan"), float("inf")


class DelayLaws:
    """Cohorts of predictions with their labels, and the laws of the delays; attributes are the state."""

    def __init__(self) -> None:
        self.n = 0
        """Number of predictions."""
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
        self._sums: Any = np.zeros((0, 0))
        self._laws: Any = np.ones((2, 1))
        self._histogram: Any = np.zeros(0)
        self._limit = 0
        self._allot(0)

    def _allot(self, limit: int) -> None:
        """Make memory for so many cohorts."""
        shapes = (
            (np.int64, ()),  # number of the first prediction
            (np.int64, ()),  # number of predictions
            (np.float64, ()),  # time
            (np.int64, (2,)),  # labels told of each class
            (np.int64, (2,)),  # labels released of each class
            (np.int32, ()),  # bin whose end the cohort comes to next
            (np.int32, (3,)),  # first and …
            (np.int32, (3,)),  # … last held label of each class, and score of a prediction without one
            (np.int32, (2,)),  # number of such scores, and mark: see `label_release_c`
            (np.float64, (3,)),  # sums of what is expected of predictions, of its square, and of labels
            (np.int32, (_BANDS, 2)),  # labels up to the bin before
            (np.int32, (_BANDS, 2)),  # labels of that bin
        )
        before = getattr(self, "_columns", None)
        self._columns: list[Any] = [np.zeros((limit, *shape), kind) for kind, shape in shapes]
        if before is not None:
            for column, old in zip(self._columns, before, strict=True):
                column[: self.k] = old[: self.k]
        self._limit = limit
        self._hold()

    def _hold(self) -> None:
        """Name the columns."""
        columns = self._columns
        self._start, self._size, self._time, self.told, self.released, self._next = columns[:6]
        self.head, self.tail, self.waiting, self.expected, self._risk, self._open = columns[6:]

    def remaining(self) -> int:
        """Return the number of predictions until a cohort ends."""
        return _COHORT - (self.n - self._start[self.k - 1]) if self.k else _COHORT

    def begin(self) -> None:
        """Make a cohort for the next predictions."""
        if self.k == self._limit:
            self._allot(max(2, self._limit + (self._limit >> 1)))
        i = self.k
        self._start[i], self._size[i], self._time[i], self._next[i] = self.n, 0, 0.0, self._first
        for y in range(2):
            self.told[i, y] = self.released[i, y] = 0
            self.waiting[i, y] = 0
        for y in range(3):
            self.head[i, y] = self.tail[i, y] = _NOWHERE
            self.expected[i, y] = 0.0
        for band in range(_BANDS):
            for y in range(2):
                self._risk[i, band, y] = self._open[i, band, y] = 0
        self.k += 1

    def predict(self, time: float) -> bool:
        """Count a prediction, with its event time or NaN; return whether it is the last of its cohort."""
        if self.n == 0:
            self.by_time = time == time
            self.origin = time if time == time else 0.0
        if self.k == 0:
            self.begin()
        self.n += 1
        if self.by_time:
            self._earlier, self._before, self._latest = self._before, self._latest, time
        return bool(self.n - self._start[self.k - 1] == _COHORT)

    def predict_many(self, count: int) -> bool:
        """Count predictions without event times, at most `remaining`; return the same as `predict`."""
        ends = self.predict(_NO_TIME)
        if count > 1:
            self.n += count - 1
            self._earlier = self._before = _NO_TIME
            ends = self.n - self._start[self.k - 1] == _COHORT
        return bool(ends)

    def close(self) -> None:
        """End a cohort, and let the others come of age."""
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
        self._time[i], self._size[i] = time, _COHORT
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
            if alike and (age > old or self.waiting[i, 1] == self.waiting[j, 1]):
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
        self._size[j] += self._size[i]
        self._time[j] = self._time[i]
        for y in range(2):
            self.told[j, y] += self.told[i, y]
            self.released[j, y] += self.released[i, y]
        for y in range(3):
            self.expected[j, y] += self.expected[i, y]
        for band in range(self._low, self._high + 1):
            for y in range(2):
                self._risk[j, band, y] += self._risk[i, band, y]
                self._open[j, band, y] += self._open[i, band, y]

    def _move(self, j: int, i: int) -> None:
        """Put a cohort in an earlier place."""
        if i == j:
            return
        self._start[j], self._size[j] = self._start[i], self._size[i]
        self._time[j], self._next[j] = self._time[i], self._next[i]
        for y in range(2):
            self.told[j, y], self.released[j, y] = self.told[i, y], self.released[i, y]
            self.waiting[j, y] = self.waiting[i, y]
        for y in range(3):
            self.head[j, y], self.tail[j, y] = self.head[i, y], self.tail[i, y]
            self.expected[j, y] = self.expected[i, y]
        for band in range(_BANDS):
            for y in range(2):
                self._risk[j, band, y] = self._risk[i, band, y]
                self._open[j, band, y] = self._open[i, band, y]

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
        total, sum_ = 0.0, 0.0
        if not len(self._histogram):
            return 0.0
        for label in range(first, last + 1):
            for j in range(_BINS):
                total += self._histogram[label * _BINS + j]
        if total == 0.0:
            return 0.0
        for j in range(_BINS):
            for label in range(first, last + 1):
                sum_ += self._histogram[label * _BINS + j]
            if sum_ >= share * total:
                return float(_EDGES[j])
        return float(_EDGES[_BINS - 1])

    # State

    def _laws_state(self) -> dict[str, Any]:
        """Return the fields of `ReleaseState` that are of cohorts and laws."""
        k = int(self.k)
        columns = [np.asarray(column)[:k] for column in self._columns]
        start, size, time, told, released, following, _, _, waiting, expected, risk, open_ = columns
        bins, marks = following.astype(np.int64), waiting[:, 1].astype(np.int64)
        numbers = (
            self.now,
            self.origin,
            self.spacing,
            self.z,
            self.power,
            self.never,
            self.p,
            self.full,
            self.most,
        )
        return {
            "n": int(self.n),
            "numbers": [*map(float, numbers)],
            "flags": [bool(self.by_time), bool(self.on), bool(self.known)],
            "bins": [int(self.late), int(self._first), int(self._low), int(self._high)],
            "sums": np.asarray(self._sums).ravel().copy(),
            "laws": np.asarray(self._laws).ravel().copy(),
            "histogram": np.asarray(self._histogram).copy(),
            "counts": np.concatenate([start, size, told.ravel(), released.ravel(), bins, marks]),
            "reals": np.concatenate([time, expected.ravel(), [self._earlier, self._before, self._latest]]),
            "cells": np.concatenate([risk.ravel(), open_.ravel()]),
        }

    def _restore_laws(self, state: ReleaseState) -> None:
        """Restore cohorts and laws."""
        k, rest = divmod(len(state.counts), 8)
        require(rest == 0 and len(state.held) == 3 * k + 1, f"{len(state.counts)} counts of cohorts")
        counts = within(state.counts, 0, MOST, "counts of cohorts")
        require(np.isfinite(state.numbers).all(), "numbers of the release are not finite")
        self.n = state.n
        self.now, self.origin, self.spacing, self.z, *others = state.numbers
        self.power, self.never, self.p, self.full, self.most = others
        self.by_time, self.on, self.known = state.flags
        self.late, self._first, self._low, self._high = state.bins
        none = self._low, self._high
        require(
            self.late in (0, 1)
            and 0 <= self._first < BINS
            and (0 <= self._low <= self._high < BANDS or none == (BANDS, -1)),
            f"bins {state.bins}",
        )
        rows = _ROWS if len(state.histogram) else 0
        lengths = len(state.sums), len(state.laws), len(state.histogram)
        require(lengths == ((_ROWS * BINS, 2 * BINS, 2 * BINS) if rows else (0, 2, 0)), "sums of the delays")
        require(rows or not self.known, "laws without sums")
        self._sums = within(state.sums, -1e300, 1e300, "sums").reshape(rows, BINS)
        self._laws = within(state.laws, 0.0, 1.0, "laws").reshape(2, -1)
        self._histogram = within(state.histogram, 0.0, MOST, "delays")
        self.k = 0
        self._allot(k)
        self.k = k
        columns = [np.asarray(column) for column in self._columns]
        start, size, time, told, released, following, _, _, waiting, expected, risk, open_ = columns
        start[:], size[:] = counts[:k], counts[k : 2 * k]
        told[:], released[:] = counts[2 * k : 4 * k].reshape(k, 2), counts[4 * k : 6 * k].reshape(k, 2)
        following[:] = within(counts[6 * k : 7 * k], 0, BINS - 1, "bins of cohorts")
        waiting[:, 1] = within(counts[7 * k :], 0, _MARKS, "marks of cohorts")
        require((released <= told).all(), "more labels of a cohort are released than told")
        require((np.diff(start) > 0).all() and (k > 0) == (self.n > 0), "cohorts out of order")
        require((start[1:] == (start + size)[:-1]).all(), "cohorts with gaps")
        require(k == 0 or 0 <= self.n - start[k - 1] < _COHORT, "cohorts of other predictions")
        require(len(state.reals) == 4 * k + 3 and len(state.cells) == 4 * BANDS * k, "sums of cohorts")
        time[:], expected[:] = state.reals[:k], state.reals[k : 4 * k].reshape(k, 3)
        require(np.isfinite(state.reals[: 4 * k]).all(), "times of cohorts are not finite")
        self._earlier, self._before, self._latest = state.reals[4 * k :].tolist()
        risk[:], open_[:] = within(state.cells, 0, 1 << 30, "labels of cohorts").reshape(2, k, BANDS, 2)


def _median(first: float, second: float, third: float) -> float:
    """Return the median of three times; of fewer that are not NaN, the least."""
    if first == first and second == second and third == third:
        return max(min(first, second), min(max(first, second), third))
    least = _NO_TIME
    for time in (first, second, third):
        if time == time and not least <= time:
            least = time
    return least
