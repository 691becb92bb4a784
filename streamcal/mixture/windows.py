"""The windows of labels, and the maps fitted to each and to all labels.

Memory: the newest 16,000 labels take 4 bytes each, and the counts of all 16 bytes for each of 512 cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from streamcal.maps import binning
from streamcal.mixture.candidates import CANDIDATES, WINDOWS, Candidate
from streamcal.mixture.fits import Labelled
from streamcal.mixture.forecasts_c import Line
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.recent_labels import RecentLabels, RecentLabelsState
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["Windows", "WindowsState", "quantile_edges"]

_MAX_CELLS: Final = 512
_RECENT: Final = 4000  # labels whose quantiles the partition of the table follows
_WAITING: Final = 8192  # labels that may wait before they are sorted into the sketch of all
_QUANTILES: Final = 128
_PARTS: Final = 4  # a window's maps are fitted again after this part of its labels


class WindowsState(msgspec.Struct):
    """State of `Windows`."""

    n: Count
    positives: Count
    newest: RecentLabelsState
    all: ScoreSketch
    fitted_at: list[int]
    lines: list[Line | None]


class Windows:
    """The labels of all windows, and the latest maps of each.

    The maps of a window are fitted again after a quarter of its labels, and those of all labels after an
    eighth.

    Parameters
    ----------
    candidates
        rows of the table, of which those of ``labels`` are fitted.
    """

    __slots__ = ("_all", "_due", "_fitted", "_fitted_at", "_newest", "lines", "n", "positives")

    def __init__(self, candidates: Sequence[Candidate] = CANDIDATES) -> None:
        self._fitted = [(row.memory, row.fit) for row in candidates if row.fit is not None]
        self.n = 0
        """Number of labels."""
        self.positives = 0
        """Number of labels 1."""
        self._newest = RecentLabels(WINDOWS[-1])
        self._all = ScoreSketch(_MAX_CELLS)  # the newest labels may wait
        self._fitted_at = [0] * len(self._fitted)  # the label count at which each was fitted
        self._due = [0] * len(self._fitted)  # and that at which it is due again
        self.lines: tuple[Line | None, ...] = (None,) * len(self._fitted)
        """Latest map of each candidate of ``labels``; None before the first fit."""

    def add(self, scores: Floats, labels: Labels, units: Counts | None = None) -> None:
        """Add labels, int8[n], with their scores, float64[n], as the latest.

        ``units`` are their weights in units of 1/256, int64[n]; None: all are 1.
        """
        self._newest.add(scores, labels, units)
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))
        if self.n - self._all.n >= _WAITING:
            self._sort()

    def newest(self) -> tuple[Floats, Labels, Counts | None]:
        """Return the labels of the longest window, the latest last, as `RecentLabels.latest` does."""
        return self._newest.latest(min(self.n, WINDOWS[-1]))

    def fit(self) -> bool:
        """Fit the maps that are due, to at least one label; return whether maps of all labels were fitted."""
        n, lines, of_all = self.n, list(self.lines), False
        if n < min(self._due):
            return False
        samples: dict[int | None, Labelled] = {}
        fitted: dict[object, Line] = {}  # windows that are not full hold the same labels
        for place, (memory, fit) in enumerate(self._fitted):
            if n < self._due[place]:
                continue
            length = None if memory is None else min(n, memory)
            if length not in samples:
                samples[length] = self._sample(length)
            if (fit, length) not in fitted:
                fitted[fit, length] = fit(samples[length], lines[place])
            lines[place], self._fitted_at[place] = fitted[fit, length], n
            self._due[place] = _due_at(n, memory)
            of_all |= memory is None
        self.lines = tuple(lines)
        return of_all

    def recent_edges(self) -> Cells:
        """Return the `quantile_edges` of the scores of the last 4,000 labels; there must be labels."""
        cells, counts = self._newest.counts(_RECENT)
        return quantile_edges(cells, grid.MIN_LEVEL, counts.sum(axis=0))

    def to_state(self) -> WindowsState:
        """Return the state."""
        newest = self._newest.to_state()
        return WindowsState(self.n, self.positives, newest, self._all, self._fitted_at, [*self.lines])

    def restore(self, state: WindowsState) -> None:
        """Set the state; raise ValueError if the maps are of other labels."""
        n, fitted_at, lines, windows = state.n, state.fitted_at, state.lines, f"windows of {state.n} labels"
        self._newest.restore(state.newest)
        self._all = state.all.checked_as(self._all)
        require(0 <= n - self._all.n < _WAITING, f"a sketch of {self._all.n} labels for {windows}")
        require(len(self._newest) == min(n, WINDOWS[-1]), f"{len(self._newest)} newest labels for {windows}")
        require(state.positives <= n, f"{state.positives} positives in {windows}")
        fitting = len(fitted_at) == len(self._fitted_at) and all(-n <= at <= n for at in fitted_at)
        require(fitting, f"{windows} were fitted at {fitted_at}")
        known = lines.count(None) in ((0, len(lines)) if n else (len(lines),))
        require(known and len(lines) == len(self.lines), f"{len(lines)} maps of {windows}")
        self.n, self.positives = n, state.positives
        self._fitted_at, self.lines = list(fitted_at), tuple(lines)
        self._due = [*map(_due_at, fitted_at, (memory for memory, _ in self._fitted))]

    def _sample(self, length: int | None) -> Labelled:
        """Return the latest labels, so many of them; None: all."""
        if length is not None:
            cells, counted = self._newest.weighed(length)
            return Labelled.of(cells, grid.MIN_LEVEL, counted)
        self._sort()
        return Labelled.of(self._all.cells, self._all.level, self._all.weighed)

    def _sort(self) -> None:
        """Sort the buffered labels into the sketch: it takes as long for hundreds as for one."""
        self._all.add_checked(*self._newest.latest(self.n - self._all.n))


def _due_at(fitted_at: int, length: int | None) -> int:
    """Return the label count at which the maps of a window are due again; None: maps of all labels.

    The maps were last fitted to ``fitted_at`` labels.
    """
    parts = 2 * _PARTS if length is None else _PARTS
    due = parts * (fitted_at - 1) // (parts - 1) + 1  # the least n for which n − n // parts is that many
    if length is not None:
        due = min(due, fitted_at + length // _PARTS)
    return max(due, fitted_at + 1)


def quantile_edges(cells: Cells, level: int, totals: Counts) -> Cells:
    """Return the edges between at most 128 intervals of near-equal mass, in cells of the finest grid.

    Parameters
    ----------
    cells, level
        The grid, int32[m].
    totals
        Labels per cell, int64[m].
    """
    occupied = np.flatnonzero(totals)
    splits = binning.uniform_mass(totals[occupied], _QUANTILES)
    ends = cells[occupied[splits[1:-1] - 1]] + np.int32(1)
    return ends << np.int32(level - grid.MIN_LEVEL)
