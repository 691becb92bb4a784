"""Sums over predictions of which only some are labelled, by chance, and the intervals that they give.

Whether a label is seen was drawn with a known probability π, its propensity, when the prediction was made. A
label that is seen counts 1/π times. So the intervals bound the mean over all predictions, labelled or not:
docs/proofs/verdict.md, lemma 6. Where draws depend on forecasts and the past alone, labels that count once
bound the mean over the labelled predictions: lemma 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
import numpy as np

from streamcal.base.values import BANDS, Counts, Floats
from streamcal.quality.label_sums import EDGES, LabelSums, gain_table
from streamcal.quality.panes import PANES, Panes

_Parts: TypeAlias = list[tuple[Counts | int, Floats]]  # columns, and what is added to them

_M: Final = len(BANDS) + 1
_ENDS: Final = np.array([0.0, *BANDS, 1.0])
_GRAIN: Final = 2.0**-28  # of what is summed, so that sums do not depend on their order
_MARGIN: Final = 0.95  # largest part that a label may take of a process
_LOWEST: Final = -11  # classes of weighted losses end at powers of two, the first at this one …
_LOSSES: Final = 26  # … and so many in all
_PART: Final = 10  # sums of a band, in a range of weights
_RANGE: Final = _PART * _M  # sums of a range of weights
_BY_SCORE: Final = 4  # after the numbers of predictions and labels, labels promised, and squares of weights
_GAINS: Final = _BY_SCORE + 2 * _M
_FIXED: Final = _GAINS + 6 * _LOSSES + 1
_ABSENT: Final = 0.9  # of the promised labels: surely fewer refute the propensities; so do more than all
_NEED: Final = 3.0  # logarithm of the evidence for that: 20


class SampledPanes(Panes):
    """Sums over predictions, and over the labels of some, in panes of event time; its fields are its state.

    Examples
    --------
    >>> panes, forecasts, times = SampledPanes(), np.full((2, 1000), 0.5), np.arange(1000.0)
    >>> panes.predict(forecasts, np.full(1000, 10.0), times)
    >>> panes.label(forecasts[:, ::10], np.ones(100), np.full(100, 10.0), times[::10])
    >>> found = panes.matured(600.0)
    >>> found.predictions, found.labels, float(found.gaps("after").mean[0, 0])
    (576, 58, -0.5)
    """

    ranges: list[Annotated[int, msgspec.Meta(ge=0, le=14)]] = msgspec.field(default_factory=list)
    """Binary logarithms of the ends of the ranges of weights, in the order in which they came."""
    draws: bool = False
    """Whether π depends on forecasts and the past alone, so that labels that are seen have the law of all."""
    once: Panes = msgspec.field(default_factory=Panes)
    """Sums over the labels that are seen, each counted once; empty unless so."""

    @property
    def _columns(self) -> int:
        return _FIXED + _RANGE * len(self.ranges)

    def predict(self, forecasts: Floats, weights: Floats, times: Floats) -> None:
        """Add predictions, whether they will be labelled or not.

        Parameters
        ----------
        forecasts
            scores, and the probabilities that were served: float64[2, n] in [0, 1].
        weights
            one over the probability that the label is seen, float64[n] from 1 to 10,000.
        times
            event times in seconds; NaN, none: left out. float64[n].
        """
        (x, p), ones = forecasts, np.ones(len(weights))
        self._begin(times)
        at = self._column_of(p, weights)
        parts: _Parts = [(0, ones), (2, 1.0 / weights), (at, ones), (at + 1, p)]
        for side, losses in enumerate(_losses(x, p)):
            parts.append((_loss_column(side, losses, weights) + 2, losses))
        self._sum(times, parts)

    def label(self, forecasts: Floats, labels: Floats, weights: Floats, times: Floats) -> None:
        """Add labels, 0 or 1: float64[n], of predictions that were added; all else as in `predict`."""
        x, p = forecasts
        is_one, ones = labels == 1.0, np.ones(len(p))
        at = self._column_of(p, weights) + 2 + 4 * is_one
        half = np.where(is_one, *_halves(x, p)[::-1]) * weights
        by_score = _BY_SCORE + 2 * np.searchsorted(EDGES, x, side="right") + is_one
        parts: _Parts = [(1, ones), (3, weights**2), (by_score, weights)]
        parts += [(_FIXED - 1, weights * (x - labels) ** 2)]
        parts += [(at, ones), (at + 1, weights), (at + 2, p), (at + 3, weights * p)]
        for side, losses in enumerate(_losses(x, p)):
            column = _loss_column(side, losses, weights)
            parts += [(column, half), (column + 1, np.ceil(half**2 / _GRAIN) * _GRAIN)]
        self._sum(times, parts)
        if self.draws:
            self.once.add(forecasts, labels, times)

    def matured(self, until: float) -> SampledSums:
        """Return the sums of the panes that end by an event time, each of which is a start."""
        sums, times, shares = self.ended(until)
        labels = sums[:, 1].astype(np.int64)
        before = (labels[:1] - labels).tolist()
        once = self.once.matured(until) if self.draws else None
        return SampledSums(int(labels[:1].sum()), before, times, sums, shares, tuple(self.ranges), once)

    def _column_of(self, forecasts: Floats, weights: Floats) -> Counts:
        """Return the first column of each forecast's band in the range of its weight."""
        bands = np.searchsorted(EDGES, forecasts, side="right")
        return np.asarray(_FIXED + _RANGE * self._places(weights)[1] + _PART * bands)

    def _places(self, weights: Floats) -> tuple[Floats, Counts]:
        """Return the end of the range of each weight, and its place; a new range gets one."""
        exponents = np.ceil(np.log2(np.maximum(weights, 1.0))).astype(np.int64)
        new = [each for each in dict.fromkeys(exponents.tolist()) if each not in self.ranges]
        self.ranges = [*self.ranges, *new]
        self.sums = np.pad(self.sums, ((0, 0), (0, self._columns - self.sums.shape[1])))
        places = np.zeros(15, np.int64)
        places[self.ranges] = np.arange(len(self.ranges))
        return np.exp2(exponents), places[exponents]

    def _begin(self, times: Floats) -> None:
        """Let the panes begin with the first prediction that has an event time."""
        if self.origin is None and np.isfinite(times).any():
            self.origin = float(np.floor(times[np.isfinite(times)][0]))

    def _sum(self, times: Floats, parts: _Parts) -> None:
        """Add values to columns of the panes of these event times.

        Predictions before the first are left out, as their labels are: some may not have been added.
        """
        known = times >= (np.inf if self.origin is None else self.origin)
        if not known.any():
            return
        seconds = self._seconds(np.floor(times[known]))
        while int(seconds.max()) >= PANES * self.width:
            self._widen()
        found, at = np.unique(seconds // self.width, return_inverse=True)
        rows = self._rows(found)[at]
        for columns, values in parts:
            where = np.broadcast_to(columns, known.shape)[known]
            np.add.at(self.sums, (rows, where), np.rint(values[known] / _GRAIN) * _GRAIN)


@dataclass(frozen=True, eq=False)
class SampledSums(LabelSums):
    """Sums over the predictions since each of some starts; `labels` and `starts` count labels."""

    ranges: tuple[int, ...]
    """Ranges of weights, as `SampledPanes` has them."""
    once: LabelSums | None = None
    """Sums over the same labels, each counted once; None: labels that are seen may be others than all."""

    gap_stakes: ClassVar[Floats] = 0.9 * np.exp2(np.arange(-17.0, 4.0))
    gain_stakes: ClassVar[Floats] = np.exp2(np.arange(-14.0, 13.0))

    @property
    def unit(self) -> str:
        """Name of what means are over."""
        return "predictions"

    @property
    def predictions(self) -> int:
        """Number of predictions, labelled or not."""
        return int(self.sums[:1, 0].sum())

    @property
    def promised(self) -> float:
        """Number of labels that the propensities promise: their sum."""
        return float(self.sums[:1, 2].sum())

    @property
    def refutes_propensities(self) -> bool:
        """Whether surely fewer than 0.9 of the promised labels came, or surely more than promised.

        Where labels are seen with probability π, exp(λ seen − (e^λ − 1) π) has a mean of at most 1.
        """
        stakes = np.exp2(-np.arange(12.0))
        more = stakes * self.labels - np.expm1(stakes) * self.promised
        fewer = -stakes * self.labels - np.expm1(-stakes) * _ABSENT * self.promised
        return bool(max(more.max(), fewer.max()) - np.log(len(stakes)) >= _NEED)

    def may_be_refuted(self) -> bool:
        """See `LabelSums`."""
        return super().may_be_refuted() or (self.once is not None and self.once.may_be_refuted())

    def counts(self) -> Floats:
        """Return the labels since each start, by band of the scores and class: float64[starts, bands, 2].

        Weighted ones are scaled to the effective number of all.
        """
        weights = self.sums[:, _BY_SCORE:_GAINS].reshape(-1, _M, 2)
        return np.asarray(weights * (weights[:1].sum() / max(float(self.sums[:1, 3].sum()), 1.0)))

    def _gap_processes(self, side: Literal["before", "after"], starts: slice) -> tuple[Floats, Floats]:
        """See `LabelSums`; labels 1 are the sum of all forecasts, and of what weighted labels add to it."""
        if side == "before":
            raise ValueError("sums by propensity are of the served probabilities only")
        parts = self.sums[starts, _FIXED:].reshape(-1, len(self.ranges), _M, _PART)
        processes = np.einsum("srbc,rbck->sbk", parts, _table(self.ranges))
        parts = parts.sum(axis=1)
        parts = np.concatenate([parts.sum(axis=1, keepdims=True), parts], axis=1)
        number, forecasts, _, _, _, of_zeros, _, weights, _, of_ones = np.moveaxis(parts, -1, 0)
        ones = np.clip(forecasts + weights - of_ones - of_zeros, 0.0, number)
        sums = np.stack([number - ones, forecasts, ones, np.zeros_like(ones)], axis=-1)
        return sums, np.concatenate([processes.sum(axis=1, keepdims=True), processes], axis=1)

    def _gain_processes(self, starts: slice) -> tuple[Floats, Floats, Floats, Floats]:
        sums = self.sums[starts]
        halves = sums[:, _GAINS : _FIXED - 1].reshape(-1, 2, 3 * _LOSSES)
        processes = np.concatenate([halves[:, side] @ _GAIN_TABLES[side] for side in (0, 1)], axis=-1)
        return sums[:, 0], halves[:, 0, ::3].sum(axis=1), sums[:, _FIXED - 1], processes


def _halves(x: Floats, p: Floats) -> tuple[Floats, Floats]:
    """Return half the gain of p over x at a label 0 and at a label 1."""
    return (x**2 - p**2) / 2.0, ((x - 1.0) ** 2 - (p - 1.0) ** 2) / 2.0


def _losses(x: Floats, p: Floats) -> tuple[Floats, Floats]:
    """Return the most that half the gain may lie below 0, and above it."""
    zero, one = _halves(x, p)
    return np.maximum(-np.minimum(zero, one), 0.0), np.maximum(np.maximum(zero, one), 0.0)


def _loss_column(side: int, losses: Floats, weights: Floats) -> Counts:
    """Return the first column of the class of each weighted loss, of gains (side 0) or of their opposites."""
    exponents = np.ceil(np.log2(np.maximum(losses * weights, 2.0**_LOWEST)))
    return np.asarray(_GAINS + 3 * (_LOSSES * side + exponents.astype(np.int64) - _LOWEST))


@lru_cache(maxsize=64)
def _table(ranges: tuple[int, ...]) -> Floats:
    """Return what each sum adds to the logarithm of each process: float64[ranges, bands, sums, 2 stakes].

    A prediction without a label multiplies the process by 1 − v, and a label y of weight w by 1 − v + w (v +
    λ (y − p)). The logarithm is concave in w and in p, so at least the values at the four corners of range
    and band, interpolated. Of a range and stake, v ≥ 0 is the least for which no factor comes near 0. If that
    would be 1 or more, each prediction multiplies by exp(−λ) to the most that y − p can lose.
    """
    stakes = SampledSums.gap_stakes
    tables = []
    for sign in (1.0, -1.0):
        table = np.zeros((len(ranges), _M, _PART, len(stakes)))
        for place, exponent in enumerate(ranges):
            first, last = 2.0 ** (exponent - 1), 2.0**exponent
            begin, end = _ENDS[:-1, None], _ENDS[1:, None]
            most = stakes * (end if sign > 0.0 else 1.0 - begin)
            safe = most < _MARGIN
            used, most = np.where(safe, sign * stakes, 0.0), np.where(safe, most, 0.0)
            forgone = np.maximum(most - _MARGIN / last, 0.0) / max(1.0 - 1.0 / last, 0.5)
            unseen = np.log1p(-forgone)
            for label in (0, 1):
                corners = [
                    [np.log1p(w * (forgone + used * (label - p)) - forgone) for p in (begin, end)]
                    for w in (first, last)
                ]
                ((low, right), (up, top)), wide, high = corners, last - first, end - begin
                both = (low - right - up + top) / (wide * high)
                by_weight, by_forecast = (up - low) / wide, (right - low) / high
                column = 2 + 4 * label
                at_0 = low - first * by_weight - begin * by_forecast + both * first * begin
                table[place, :, column] = at_0 - unseen
                table[place, :, column + 1] = by_weight - both * begin
                table[place, :, column + 2] = by_forecast - both * first
                table[place, :, column + 3] = both
            table[place, :, 0] = np.where(safe, unseen, 0.0 if sign > 0.0 else -stakes)
            table[place, :, 1] = np.where(safe, 0.0, -sign * stakes)
        tables.append(table)
    return np.concatenate(tables, axis=-1)


_GAIN_TABLES: Final = tuple(
    gain_table(np.exp2(np.arange(_LOWEST, _LOWEST + _LOSSES)), SampledSums.gain_stakes, sign)
    for sign in (1, -1)
)
