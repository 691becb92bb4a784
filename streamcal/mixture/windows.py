"""The windows of labels, and the maps fitted to each and to all labels.

Memory: the newest 16,000 labels take 4 bytes each, and the counts of all 16 bytes for each of 512 cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Cells, Counts, Floats, Labels
from streamcal.maps import binning
from streamcal.mixture.candidates import CANDIDATES, WINDOWS, Candidate
from streamcal.mixture.fits import Labelled
from streamcal.mixture.forecasts_c import Line
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, Part
from streamcal.sketch.recent_labels import RecentLabels
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import Weighed

_MAX_CELLS: Final = 512
_RECENT: Final = 4000  # labels whose quantiles the partition of the table follows
_WAITING: Final = 8192  # labels that may wait before they are sorted into the sketch of all
_QUANTILES: Final = 128
_PARTS: Final = 4  # a window's maps are fitted again after this part of its labels


class Windows(Part, dict=True):
    """The labels of all windows, and the latest maps of each; its fields are its state.

    The maps of a window are fitted again after a quarter of its labels, and those of all labels after an
    eighth.
    """

    fitted_at: list[int]
    """Label count at which each map was fitted."""
    lines: tuple[Line | None, ...]
    """Latest map of each candidate of ``labels``; None before the first fit."""
    n: Count = 0
    """Number of labels."""
    positives: Count = 0
    """Number of labels 1."""
    newest: RecentLabels = msgspec.field(default_factory=lambda: RecentLabels(WINDOWS[-1]))
    all: ScoreSketch = msgspec.field(default_factory=lambda: ScoreSketch(_MAX_CELLS))
    """All labels, but for newest ones that wait."""

    @classmethod
    def begun(cls, candidates: Sequence[Candidate] = CANDIDATES) -> Self:
        """Return empty windows for the rows of the table, of which those of ``labels`` are fitted."""
        fitted = sum(row.fit is not None for row in candidates)
        return cls([0] * fitted, (None,) * fitted)

    def __post_init__(self) -> None:
        self._due: list[int] = []  # label counts at which each map is due
        self._sorted = self.all.n

    def add(self, scores: Floats, labels: Labels, weights: Floats | None = None) -> None:
        """Add labels, int8[n], with their scores, float64[n], as the latest.

        ``weights`` are theirs, float64[n]; None: all are 1.
        """
        self.newest.add(scores, labels, weights)
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))
        if self.n - self._sorted >= _WAITING:
            self._sort()

    def fit(self, candidates: Sequence[Candidate] = CANDIDATES) -> bool:
        """Fit the maps that are due, to at least one label; return whether maps of all labels were fitted.

        Beyond the first window, those of all labels and those of the windows take turns: no step fits both.
        """
        n = self.n
        if self._due and n < min(self._due):
            return False
        lines, fitted_at = list(self.lines), list(self.fitted_at)
        rows = [row for row in candidates if row.fit is not None]
        if not self._due:
            self._due = [_due_at(at, row.memory) for at, row in zip(fitted_at, rows, strict=True)]
        due = [place for place, at in enumerate(self._due) if n >= at]
        turns: tuple[list[int], list[int]] = ([], [])  # of the windows, of all
        for place in due:
            turns[rows[place].memory is None].append(place)
        if all(turns) and n > WINDOWS[0]:
            latest = [max(fitted_at[place] for place in turn) for turn in turns]
            due = turns[latest[1] <= latest[0]]
        samples: dict[int | None, Labelled] = {}
        fitted: dict[object, Line] = {}  # windows that are not full hold the same labels
        for place in due:
            fit, memory = rows[place].fit, rows[place].memory
            length = None if memory is None else min(n, memory)
            if length not in samples:
                samples[length] = self._sample(length)
            if (fit, length) not in fitted:
                fitted[fit, length] = fit(samples[length], lines[place])  # type: ignore[misc]
            lines[place], fitted_at[place], self._due[place] = fitted[fit, length], n, _due_at(n, memory)
        self.lines, self.fitted_at = tuple(lines), fitted_at
        return None in samples

    def latest(self, memory: float) -> tuple[Cells, int, Weighed]:
        """Return the labels of the shortest window that is as long as a memory, by cells of a level."""
        length = min((size for size in WINDOWS if size >= memory), default=self.n)
        if min(length, self.n) > WINDOWS[-1]:
            return self.all.cells, self.all.level, self.all.weighed
        cells, weighed = self.newest.weighed(min(length, self.n))
        return cells, grid.MIN_LEVEL, weighed

    def recent_edges(self) -> Cells:
        """Return the `quantile_edges` of the scores of the last 4,000 labels; there must be labels."""
        cells, counts = self.newest.counts(_RECENT)
        return quantile_edges(cells, grid.MIN_LEVEL, (counts[0] + counts[1]).astype(np.int64))

    def _sample(self, length: int | None) -> Labelled:
        """Return the latest labels, so many of them; None: all."""
        if length is None and self.n > _MAX_CELLS:
            self._sort()
            return Labelled(self.all.cells, self.all.level, self.all.weighed)
        cells, counted = self.newest.weighed(length or self.n)
        if length is None and self.newest.weights is None:  # a curve rounds the ranks of counts down
            counted = counted._replace(masses=counted.masses.astype(np.int64))
        return Labelled(cells, grid.MIN_LEVEL, counted)

    def _sort(self) -> None:
        """Sort the buffered labels into the sketch: it takes as long for hundreds as for one."""
        self.all.add_checked(*self.newest.latest(self.n - self._sorted))
        self._sorted = self.n


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
        Labels per cell, int64[m], each positive.
    """
    splits = binning.uniform_mass(totals, _QUANTILES)
    ends = cells[splits[1:-1] - 1] + np.int32(1)
    return ends << np.int32(level - grid.MIN_LEVEL)
