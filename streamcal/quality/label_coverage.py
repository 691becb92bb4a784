"""Which scores labels reach: predictions and those of them that got a label, by score and by time.

What is kept is bounded, and depends on the multiset of predictions and labels alone: a sketch of scores for
each pane of the time of prediction, so that predictions that are too young for a label can be left out. Panes
begin at multiples of their width, which is the least power of two (seconds) at which `PANES` span all times.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from streamcal.base.values import Floats
from streamcal.maps import binning
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

PANES: Final = 8
"""Number of panes that there may be, from the first to the last."""

_CELLS: Final = 256  # of a pane at most: two kilobytes of every commit
_BINS: Final = 40  # quantiles of the scores, at most
_EXPECTED: Final = 50  # labels of a bin, if labels came alike for all scores; half of the usual number
_NEARLY_NONE: Final = 0.1  # of these
_WIDEST: Final = 1 << 40  # seconds


class UncoveredScores(msgspec.Struct, frozen=True):
    """A range of scores that labels hardly reach: quantile bins side by side."""

    low: float
    """The smallest score that belongs to it."""
    high: float
    """The smallest score above it; 1 at the end."""
    predictions: int
    labels: int
    """Number of these predictions with a label."""


class LabelCoverage(msgspec.Struct):
    """Which scores labels reach; its fields are its state.

    Examples
    --------
    >>> coverage = LabelCoverage()
    >>> scores, times = np.arange(2048) / 2048, np.arange(2048.0)
    >>> coverage.add(scores, times)
    >>> coverage.add(scores[1024:], times[1024:], labelled=True)
    >>> coverage.uncovered(before=4096.0)
    (0.5, [UncoveredScores(low=0.0, high=0.5, predictions=1024, labels=0)])
    """

    width: Annotated[int, msgspec.Meta(ge=1, le=_WIDEST)] = 1
    """Width of a pane in seconds, a power of two."""
    panes: dict[int, ScoreSketch] = {}
    """Sketch of each pane, by its number: seconds since the epoch over the width."""

    def add(self, scores: Floats, times: Floats, *, labelled: bool = False) -> None:
        """Add predictions: their scores in [0, 1], and their event times, NaN where unknown; float64[n].

        Those that got their label are added once more, with ``labelled``.
        """
        known = np.isfinite(times)
        scores, seconds = scores[known], np.floor(times[known])
        if not len(seconds):
            return
        ends = [math.floor(float(end)) for end in (seconds.min(), seconds.max())]
        while _span([*self.panes, *(end // self.width for end in ends)]) > PANES:
            self._widen()
        numbers = np.floor(seconds / self.width)
        for pane in range(ends[0] // self.width, ends[1] // self.width + 1):
            inside = numbers == pane
            if inside.any():
                sketch = self.panes.setdefault(pane, ScoreSketch(_CELLS))
                sketch.add_checked(scores[inside], np.full(int(inside.sum()), labelled, np.int8))
        self.panes = dict(sorted(self.panes.items()))

    def uncovered(self, before: float) -> tuple[float, list[UncoveredScores]]:
        """Return which share of the predictions got a label, and the ranges of scores that hardly have any.

        Only panes that end by a time, seconds since the epoch, are looked at. Of at most 40 quantile bins of
        their scores, one is not reached if it got at most a tenth of the labels that it would have got if
        labels came alike for all scores, and at least 50 were to be expected. If they do come alike, and
        independently, their number is hypergeometric given that of all, and so small with a probability of at
        most exp(−50 (0.9 + 0.1 ln 0.1)) < 3 · 10⁻¹⁵, of one bin at one look (Chernoff, Hoeffding).
        """
        old = ScoreSketch(_CELLS)
        for pane, sketch in self.panes.items():
            if (pane + 1) * self.width <= before:
                old.merge(sketch)
        predictions, labels = old.counts
        if not labels.any():
            return 0.0, []
        share = min(1.0, float(labels.sum() / predictions.sum()))
        bins = min(_BINS, int(labels.sum()) // (2 * _EXPECTED))
        if bins < 2:
            return share, []
        splits = binning.uniform_mass(predictions, bins)
        mass, met = binning.bin_sums(predictions, splits), binning.bin_sums(labels, splits)
        expected = mass * share
        missed = (expected >= _EXPECTED) & (met <= _NEARLY_NONE * expected)
        edges = np.append(grid.left_edges(old.cells[splits[:-1]], old.level), 1.0)
        edges[0] = 0.0
        turns = np.flatnonzero(np.diff(missed, prepend=False, append=False))
        return share, [
            UncoveredScores(
                float(edges[start]),
                float(edges[end]),
                int(mass[start:end].sum()),
                int(met[start:end].sum()),
            )
            for start, end in turns.reshape(-1, 2).tolist()
        ]

    def _widen(self) -> None:
        """Let panes become twice as wide."""
        panes, self.panes = self.panes, {}
        self.width *= 2
        for pane, sketch in panes.items():
            self.panes.setdefault(pane // 2, ScoreSketch(_CELLS)).merge(sketch)


def _span(panes: Any) -> int:
    return max(panes) - min(panes) + 1 if panes else 0
