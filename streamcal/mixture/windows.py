"""The windows of labels, and the maps fitted to each and to all labels.

Memory: the newest 16,000 labels take 4 bytes each, and the counts of all 16 bytes for each of 512 cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from streamcal.maps import binning
from streamcal.maps.logistic import HINGE, IDENTITY_ROW
from streamcal.maps.platt import cell_logits, narrowed, wide_cell_logits
from streamcal.mixture.fits import fit_isotonic, fit_line, fit_map
from streamcal.mixture.forecasts_c import Line
from streamcal.mixture.names import WINDOWS
from streamcal.mixture.own import Candidate, fit_own
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.recent_labels import RecentLabels, RecentLabelsState
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Cells, Counts, Floats, Labels

__all__ = ["Fits", "Windows", "WindowsState", "quantile_edges"]

_MAX_CELLS: Final = 512
_RECENT: Final = 4000  # labels whose quantiles the partition of the table follows
_WAITING: Final = 8192  # labels that may wait before they are sorted into the sketch of all
_QUANTILES: Final = 128
_PARTS: Final = 4  # a window's maps are fitted again after this part of its labels


class Fits(NamedTuple):
    """Latest maps of all windows; its parts are never changed in place."""

    isotonic: tuple[Line, ...]
    """Isotonic map of each window, then that of each own candidate; none before the first fit."""
    hinges: Floats
    """Parameters θ of the hinge map of each window, and of all labels, float64[W + 1, 7]."""
    curve: Line | None
    """Curve of all labels, which need not ascend; None before the first fit."""


NO_FITS: Final = Fits((), np.tile(IDENTITY_ROW, (len(WINDOWS) + 1, 1)), None)
"""Maps before the first labels."""


_ALL: Final = len(WINDOWS)  # place of the maps of all labels in the order of fits
_NOTHING: Final = Line(np.zeros(1), np.zeros(1))


class WindowsState(msgspec.Struct):
    """State of `Windows` without the maps."""

    n: Count
    positives: Count
    newest: RecentLabelsState
    all: ScoreSketch
    fitted_at: list[int]


class Windows:
    """The labels of all windows, and the latest maps of each.

    The maps of a window are fitted again after a quarter of its labels, and those of all labels after an
    eighth.

    Parameters
    ----------
    own
        candidates of the user's own.
    """

    __slots__ = ("_all", "_due", "_fitted_at", "_newest", "_own", "fits", "n", "positives")

    def __init__(self, own: Sequence[Candidate] = ()) -> None:
        self._own = own
        self.n = 0
        """Number of labels."""
        self.positives = 0
        """Number of labels 1."""
        self._newest = RecentLabels(WINDOWS[-1])
        self._all = ScoreSketch(_MAX_CELLS)  # the newest labels may wait
        self._fitted_at = [0] * (_ALL + 1 + len(own))  # the label count at which each was fitted
        self._due = 0  # the label count at which the next maps are
        self.fits = NO_FITS
        """Latest maps."""

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
        n, fitted_at = self.n, self._fitted_at
        if n < self._due:
            return False
        lines = list(self.fits.isotonic) or [_NOTHING] * (len(WINDOWS) + len(self._own))
        hinges = self.fits.hinges.copy()
        for window, length in enumerate(WINDOWS):
            if n < _due_at(fitted_at[window], length):
                continue
            if window and n <= WINDOWS[window - 1]:  # neither is full: both hold all labels
                lines[window], hinges[window] = lines[window - 1], hinges[window - 1]
            else:
                cells, counted = self._newest.weighed(length)
                logits = wide_cell_logits(cells, grid.MIN_LEVEL)
                lines[window] = fit_isotonic(logits, *counted)
                hinges[window] = fit_map(HINGE, narrowed(logits), counted, hinges[window])
            fitted_at[window] = n
        is_due, curve = n >= _due_at(fitted_at[_ALL], None), self.fits.curve
        if is_due:
            self._sort()
            cells, level, counted = self._all.cells, self._all.level, self._all.weighed
            curve = fit_line(cells, level, *counted, monotone=False)[0]
            hinges[-1] = fit_map(HINGE, cell_logits(cells, level), counted, hinges[-1])
            fitted_at[_ALL] = n
        for place, each in enumerate(self._own):
            if n >= _due_at(fitted_at[_ALL + 1 + place], each.memory):
                cells, counted = self._newest.weighed(each.memory)
                lines[_ALL + place] = fit_own(each, cell_logits(cells, grid.MIN_LEVEL), counted)
                fitted_at[_ALL + 1 + place] = n
        self.fits = Fits(tuple(lines), hinges, curve)
        self._due = min(map(_due_at, fitted_at, (*WINDOWS, None, *(each.memory for each in self._own))))
        return is_due

    def recent_edges(self) -> Cells:
        """Return the `quantile_edges` of the scores of the last 4,000 labels; there must be labels."""
        cells, counts = self._newest.counts(_RECENT)
        return quantile_edges(cells, grid.MIN_LEVEL, counts.sum(axis=0))

    def to_state(self) -> WindowsState:
        """Return the state without the maps."""
        return WindowsState(self.n, self.positives, self._newest.to_state(), self._all, list(self._fitted_at))

    def restore(self, state: WindowsState, fits: Fits) -> None:
        """Set the state; raise ValueError if the maps are of other labels."""
        n, fitted_at, windows = state.n, state.fitted_at, f"windows of {state.n} labels"
        self._newest.restore(state.newest)
        self._all = state.all.checked_as(self._all)
        require(0 <= n - self._all.n < _WAITING, f"a sketch of {self._all.n} labels for {windows}")
        require(len(self._newest) == min(n, WINDOWS[-1]), f"{len(self._newest)} newest labels for {windows}")
        require(state.positives <= n, f"{state.positives} positives in {windows}")
        fitting = len(fitted_at) == len(self._fitted_at) and all(-n <= at <= n for at in fitted_at)
        require(fitting, f"{windows} were fitted at {fitted_at}")
        known = (fits.curve is None) == (not fits.isotonic) and (n or not fits.isotonic)
        require(known, f"{len(fits.isotonic)} maps of {windows}")
        self.n, self.positives = n, state.positives
        self._fitted_at, self.fits, self._due = list(fitted_at), fits, 0

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
