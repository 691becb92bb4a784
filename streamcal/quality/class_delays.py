"""Delays of labels by class, compared among predictions that are alike but for the class.

A delay may depend on the score or the time of day, and rates move while the newest predictions have quick
labels only: in all labels together, one class then seems to come later. So they are compared within strata:
a pane of the time of prediction and a band of forecasts. What is kept is bounded, and depends on the multiset
of labels alone. Panes begin at multiples of their width, which is the least power of two (seconds) at which
`PANES` span all predictions. Of a pane, delays count up to the age of its youngest prediction: so far, all
are seen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from streamcal.quality.sequences import BANDS
from streamcal.sketch.decoding import Count, Finite, require
from streamcal.values import Floats, Labels

__all__ = ["PANES", "ByClass", "ClassDelays"]

PANES: Final = 16
"""Number of panes that there may be, from the first to the last."""

_LIMITS: Final = np.logspace(-3.0, 9.0, 12 * 8 + 1)  # between the bins of delays, seconds: a third apart
_BINS: Final = len(_LIMITS) + 1
_MIDDLES: Final = np.concatenate([[0.0], np.sqrt(_LIMITS[1:] * _LIMITS[:-1]), _LIMITS[-1:]])
_PLACES: Final = (len(BANDS) + 1) * _BINS  # of a pane
_UNIT: Final = float(1 << 24)  # of the sums, which are whole numbers: the order of labels does not matter

_Cell = tuple[Count, Count, Count, Count]


class ByClass(NamedTuple):
    """Labels by delay and class, as if the predictions of both classes were alike: float64[bins] each."""

    z: float
    """Statistic of the stratified test: above 0 where positives take longer."""
    labels: Floats
    positives: Floats

    def told(self, age: float) -> tuple[float, float]:
        """Return the share of the negatives and of the positives told of predictions up to such an age.

        These came evenly over that time.
        """
        missing = np.minimum(_MIDDLES, age) / age
        classes = self.labels - self.positives, self.positives
        negatives, positives = (1.0 - float(each @ missing / each.sum()) for each in classes)
        return negatives, positives


class ClassDelays(msgspec.Struct):
    """Labels by pane, band of forecasts and delay; the fields are the state."""

    width: Count = 1
    """Width of a pane, seconds."""
    latest: Finite | None = None
    """Event time of the latest label."""
    panes: dict[int, dict[int, _Cell]] = msgspec.field(default_factory=dict)
    """By the number of the pane, and that of the band and the delay: labels, positives, and the sums of the
    forecasts p and of p (1 − p)."""

    def check(self) -> None:
        """Raise ValueError if these cannot be sums of any labels."""
        cells = [(key, *cell) for pane in self.panes.values() for key, cell in pane.items()]
        right = self.width > 0 and not self.width & (self.width - 1) and _span(self.panes) <= PANES
        right = right and all(0 <= key < _PLACES for key, *_ in cells)
        right = right and all(positives <= labels > 0 for _, labels, positives, *_ in cells)
        require(right and (self.latest is None) == (not cells), "delays by class are damaged")

    def to_state(self) -> ClassDelays:
        """Return a copy whose bytes do not depend on the order in which labels came."""
        panes = {pane: dict(sorted(cells.items())) for pane, cells in sorted(self.panes.items())}
        return ClassDelays(self.width, self.latest, panes)

    def add(self, delays: Floats, labels: Labels, forecasts: Floats, predicted_at: Floats) -> None:
        """Add labels, int8[n], with their delays, and the forecasts and times of their predictions."""
        if not len(delays):
            return
        latest = float((predicted_at + delays).max())
        self.latest = latest if self.latest is None else max(self.latest, latest)
        seconds = np.floor(predicted_at)
        ends = [int(seconds.min()), int(seconds.max())]
        while _span([*self.panes, *(end // self.width for end in ends)]) > PANES:
            self._widen()
        first = ends[0] // self.width
        places = (np.floor(seconds / self.width).astype(np.int64) - first) * _PLACES
        places += np.searchsorted(BANDS, forecasts, side="right") * _BINS
        places += np.searchsorted(_LIMITS, delays, side="right")
        cells, which = np.unique(places, return_inverse=True)
        units = np.rint(_UNIT * forecasts), np.rint(_UNIT * forecasts * (1.0 - forecasts))
        sums = [np.bincount(which, each) for each in (np.ones(len(labels)), labels, *units)]
        for place, *more in np.array([cells, *sums], np.int64).T.tolist():
            _add(self.panes.setdefault(first + place // _PLACES, {}), place % _PLACES, more)

    @property
    def span(self) -> float:
        """Time from the first predictions to the latest label, seconds."""
        return (self.latest or 0.0) - min(self.panes, default=0) * self.width

    def compared(self, fewest: int) -> ByClass | None:
        """Return the delays by class, among predictions that are alike; None where there are too few labels.

        In each stratum, the score statistic of a logistic regression of the label on the mid-rank of its
        delay, beside the forecast and a constant: so what the forecast knows of the label, and its being off
        there, is no trend. The variance is that of a rank test with the rate of the stratum. z is the sum of
        these over its standard error. Of the rarer class, ``fewest`` labels are needed in the smaller of the
        slower and the faster half, or are to be expected there.
        """
        n, y, p, v = self._strata()
        r, of_all = y - p, (each.sum(axis=1) for each in (n, y, v))
        total, ones, spread = (each[:, None] for each in of_all)
        off = r.sum(axis=1, keepdims=True) / spread
        ranks = (np.cumsum(n, axis=1) - 0.5 * n) / total
        ranks -= (v * ranks).sum(axis=1, keepdims=True) / spread
        of_one = ones * (total - ones) / ((total - 1.0) * spread)
        variance = float((v * ranks**2 * of_one).sum())
        labels, rate = n.sum(axis=0), float(ones.sum() / max(total.sum(), 1.0))
        positives = np.clip(rate * labels + (r - off * v).sum(axis=0), 0.0, labels)
        half = int(np.abs(np.cumsum(labels) - 0.5 * labels.sum()).argmin()) + 1
        smaller = min(slice(half), slice(half, None), key=lambda part: float(labels[part].sum()))
        rarer = positives if rate <= 0.5 else labels - positives
        known = max(labels[smaller].sum() * min(rate, 1.0 - rate), rarer[smaller].sum())
        if variance <= 0.0 or not 0.0 < rate < 1.0 or not half < _BINS or known < fewest:
            return None
        return ByClass(float((ranks * r).sum()) / math.sqrt(variance), labels, positives)

    def _strata(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return labels, positives, Σ p and Σ p (1 − p) of strata of two labels at least: [strata, bins]."""
        sums = np.zeros((len(self.panes), _PLACES, 4))
        seen = np.zeros((len(self.panes), _BINS))
        for index, (pane, cells) in enumerate(sorted(self.panes.items())):
            sums[index, list(cells)] = list(cells.values())
            age = (self.latest or 0.0) - (pane + 1) * self.width
            seen[index, :-1] = age >= _LIMITS
        sums = sums.reshape(len(self.panes), len(BANDS) + 1, _BINS, 4) * seen[:, None, :, None]
        strata = sums.reshape(-1, _BINS, 4)
        n, y, p, v = np.moveaxis(strata[strata[..., 0].sum(axis=1) > 1.0], -1, 0)
        return n, y, p / _UNIT, np.maximum(v / _UNIT, 1e-9 * n)

    def _widen(self) -> None:
        """Let panes become twice as wide."""
        panes, self.panes = self.panes, {}
        self.width *= 2
        for pane, cells in panes.items():
            wider = self.panes.setdefault(pane // 2, {})
            for place, cell in cells.items():
                _add(wider, place, cell)


def _add(cells: dict[int, _Cell], place: int, more: Sequence[int]) -> None:
    labels, positives, forecasts, spread = cells.get(place, (0, 0, 0, 0))
    cells[place] = (labels + more[0], positives + more[1], forecasts + more[2], spread + more[3])


def _span(panes: Collection[int]) -> int:
    return max(panes) - min(panes) + 1 if panes else 0
