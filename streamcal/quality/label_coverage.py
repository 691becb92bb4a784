"""Which scores labels reach: predictions and those of them that got a label, by score and by time.

What is kept is bounded, and depends on the multiset of predictions and labels alone: a sketch of scores for
each pane of the time of prediction, so that predictions that are too young for a label can be left out. Panes
begin at multiples of their width, which is the least power of two (seconds) at which `PANES` span all times.
"""

from __future__ import annotations

import math
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.maps import binning
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Floats

__all__ = ["PANES", "CoverageState", "LabelCoverage", "UncoveredScores"]

PANES: Final = 8
"""Number of panes that there may be, from the first to the last."""

_CELLS: Final = 256  # of a pane at most: two kilobytes of every commit
_WAITING: Final = 65_536  # so many may wait until they are sorted into panes, all at once
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


class CoverageState(msgspec.Struct):
    """All of a `LabelCoverage`."""

    width: Count = 1
    panes: dict[int, ScoreSketch] = {}
    """By the number of the pane: its sketch."""


class LabelCoverage:
    """Which scores labels reach.

    Examples
    --------
    >>> coverage = LabelCoverage()
    >>> scores, times = np.arange(2048) / 2048, np.arange(2048.0)
    >>> coverage.add_predictions(scores, times)
    >>> coverage.add_labels(scores[1024:], times[1024:])
    >>> coverage.uncovered(before=4096.0)
    (0.5, [UncoveredScores(low=0.0, high=0.5, predictions=1024, labels=0)])
    """

    def __init__(self) -> None:
        self._width = 1
        self._panes: dict[int, ScoreSketch] = {}
        self._waiting: list[
            tuple[Floats, Floats, int]
        ] = []  # scores, whole seconds, and 1 if they are labels
        self._count = 0  # how many wait

    def add_predictions(self, scores: Floats, times: Floats) -> None:
        """Add predictions: their scores in [0, 1], and their event times, NaN where unknown; float64[n]."""
        self._add(scores, times, 0)

    def add_labels(self, scores: Floats, predicted_at: Floats) -> None:
        """Add predictions that got their label, each of which was or will be added as a prediction too."""
        self._add(scores, predicted_at, 1)

    def uncovered(self, before: float) -> tuple[float, list[UncoveredScores]]:
        """Return which share of the predictions got a label, and the ranges of scores that hardly have any.

        Only panes that end by a time, seconds since the epoch, are looked at. Of at most 40 quantile bins of
        their scores, one is not reached if it got at most a tenth of the labels that it would have got if
        labels came alike for all scores, and at least 50 were to be expected. If they do come alike, and
        independently, their number is hypergeometric given that of all, and so small with a probability of at
        most exp(−50 (0.9 + 0.1 ln 0.1)) < 3 · 10⁻¹⁵, of one bin at one look (Chernoff, Hoeffding).
        """
        self._flush()
        old = ScoreSketch(_CELLS)
        for pane, sketch in self._panes.items():
            if (pane + 1) * self._width <= before:
                old.merge(sketch)
        held = old.counts[0] > 0  # elsewhere, an older store did not count the predictions of these labels
        predictions, labels = old.counts[:, held]
        if not len(predictions) or not labels.any():
            return 0.0, []
        share = min(1.0, float(labels.sum() / predictions.sum()))
        bins = min(_BINS, int(labels.sum()) // (2 * _EXPECTED))
        if bins < 2:
            return share, []
        splits = binning.uniform_mass(predictions, bins)
        mass, met = binning.bin_sums(predictions, splits), binning.bin_sums(labels, splits)
        expected = mass * share
        missed = (expected >= _EXPECTED) & (met <= _NEARLY_NONE * expected)
        edges = np.append(grid.left_edges(old.cells[held][splits[:-1]], old.level), 1.0)
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

    @property
    def state(self) -> CoverageState:
        """All of it, to be stored."""
        self._flush()
        return CoverageState(self._width, dict(sorted(self._panes.items())))

    @classmethod
    def restore(cls, state: CoverageState) -> Self:
        """Go on from a state; raise ValueError if it is none."""
        made, like = cls(), ScoreSketch(_CELLS)
        made._width = state.width
        made._panes = {pane: sketch.checked_as(like) for pane, sketch in state.panes.items()}
        right = state.width and state.width & (state.width - 1) == 0 and state.width <= _WIDEST
        right = right and _span(made._panes) <= PANES
        require(right, f"no panes of predictions are {state.width} seconds wide: {[*state.panes]}")
        return made

    def _add(self, scores: Floats, times: Floats, row: int) -> None:
        known = np.isfinite(times)
        self._waiting.append((scores[known], np.floor(times[known]), row))
        self._count += len(scores)
        if self._count >= _WAITING:
            self._flush()

    def _flush(self) -> None:
        """Sort what waits into panes."""
        waiting, self._waiting, self._count = self._waiting, [], 0
        seconds = np.concatenate([each[1] for each in waiting]) if waiting else np.empty(0)
        if not len(seconds):
            return
        scores = np.concatenate([each[0] for each in waiting])
        rows = np.repeat(np.array([each[2] for each in waiting], np.int8), [len(each[0]) for each in waiting])
        ends = [math.floor(float(end)) for end in (seconds.min(), seconds.max())]
        while _span([*self._panes, *(end // self._width for end in ends)]) > PANES:
            self._widen()
        panes = np.floor(seconds / self._width)
        for pane in range(ends[0] // self._width, ends[1] // self._width + 1):
            inside = panes == pane
            if inside.any():
                sketch = self._panes.setdefault(pane, ScoreSketch(_CELLS))
                sketch.add_checked(scores[inside], rows[inside])

    def _widen(self) -> None:
        """Let panes become twice as wide."""
        panes, self._panes = self._panes, {}
        self._width *= 2
        for pane, sketch in panes.items():
            if pane // 2 in self._panes:
                self._panes[pane // 2].merge(sketch)
            else:
                self._panes[pane // 2] = sketch


def _span(panes: Any) -> int:
    return max(panes) - min(panes) + 1 if panes else 0
