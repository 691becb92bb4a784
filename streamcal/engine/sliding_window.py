"""SlidingWindow: the labelled scores of a sliding window, as panes of sketches.

The window consists of `PANES` closed panes and the pane that is being filled, so it reaches back by its
length and up to one pane more. Its sketch is merged from the panes rather than updated by subtraction:
subtraction cannot undo a coarsening, so the result would differ from a sketch of the labels in the window
alone.

Memory: a closed pane is stored as bytes, 10 to 13 for each cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final, Self

import msgspec

from streamcal.sketch.decoding import Count, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import NONE, Mass
from streamcal.values import Counts, Floats, Labels

__all__ = ["PANES", "SlidingWindow", "WindowState"]

PANES: Final = 16
"""Number of panes that the length of a window is divided into."""


_LAST: Final = 1 << 62  # no pane has an index beyond it: of the shortest, as many pass in ten thousand years


class _Pane(msgspec.Struct, omit_defaults=True):
    index: Annotated[int, msgspec.Meta(gt=-_LAST, lt=_LAST)]
    n: Count
    positives: Count
    cells: bytes
    mass: Mass = NONE


class WindowState(msgspec.Struct):
    """The state of a `SlidingWindow`."""

    n: Count
    closed: list[_Pane]
    current: _Pane


class SlidingWindow:
    """The latest labelled scores, by number or by event time, with exact counts.

    Parameters
    ----------
    length
        a number of labels, or a duration in event time.
    max_cells
        largest number of cells of each sketch.
    """

    __slots__ = ("_closed", "_current", "_index", "_labels", "_max_cells", "_merged", "_n", "_span")

    def __init__(self, length: int | timedelta, max_cells: int) -> None:
        self._labels = -(-length // PANES) if isinstance(length, int) else 0
        self._span = 0.0 if isinstance(length, int) else length.total_seconds() / PANES
        self._max_cells = max_cells
        self._n = 0
        self._closed: list[_Pane] = []
        self._current = ScoreSketch(max_cells)
        self._index = 0
        self._merged: ScoreSketch | None = None

    @property
    def stride(self) -> int | None:
        """Number of labels that fill a pane; None if panes are durations."""
        return self._labels or None

    @property
    def n(self) -> int:
        """Number of labels in the window."""
        return self._current.n + sum(pane.n for pane in self._closed)

    @property
    def positives(self) -> int:
        """Number of labels 1 in the window."""
        return self._current.n_positives + sum(pane.positives for pane in self._closed)

    @property
    def mass(self) -> Mass:
        """Weight of the labels in the window beyond one each."""
        mass = self._current.mass
        for pane in self._closed:
            mass = mass.plus(pane.mass)
        return mass

    @property
    def sketch(self) -> ScoreSketch:
        """The sketch of the labels in the window, equal to a new sketch of these alone. Do not modify it."""
        if not self._closed:
            return self._current
        if self._merged is None:
            self._merged = ScoreSketch(self._max_cells)
            for pane in self._closed:
                self._merged.merge(ScoreSketch.from_bytes(pane.cells))
        merged = self._merged.at_level(self._merged.level)
        merged.merge(self._current)
        return merged

    @property
    def total(self) -> int:
        """Number of labels added so far. `merge` raises it to the beginning of a pane."""
        return self._n

    @property
    def newest(self) -> int:
        """The index of the pane that is being filled."""
        return self._index

    def pane_of(self, time: float | None, waiting: int) -> int:
        """Return the index of the pane that the next label belongs to.

        Parameters
        ----------
        time
            event time of the label, in seconds; ignored if panes hold a number of labels.
        waiting
            number of earlier labels that have not been added yet.

        Raises
        ------
        ValueError
            if panes are durations and the label has no finite event time.
        """
        if self._labels:
            return (self._n + waiting) // self._labels
        if time is None or not math.isfinite(time):
            raise ValueError(
                f"a window in event time needs the time of every label, in seconds, got {time!r}"
            )
        return math.floor(time / self._span)

    def slide_to(self, pane: int) -> None:
        """Slide on to a pane, unless it is an older one; drop what lies before the window."""
        if pane > self._index or not self._n:
            self._slide(pane)

    def add(self, scores: Floats, labels: Labels, pane: int, units: Counts | None = None) -> None:
        """Add checked scores, float64[n], and labels, int8[n], of one pane; drop it if it is too old.

        ``units`` are the labels' weights in units of 1/256, int64[n]; None: all weights are 1.
        """
        self.slide_to(pane)
        self._n += len(labels)
        if pane == self._index:
            self._current.add_checked(scores, labels, units)
        elif pane >= self._index - PANES:
            self._add_late(scores, labels, pane, units)

    def relabel(self, score: float, label: int, time: float | None) -> bool:
        """Replace the label of a score that was added with this event time by another, 0 or 1.

        Returns
        -------
        Whether there was one: not if its pane has gone, nor if panes hold a number of labels.
        """
        if self._labels or time is None:
            return False
        index = self.pane_of(time, 0)
        if index == self._index:
            return self._current.relabel(score, label)
        for i, pane in enumerate(self._closed):
            if pane.index == index:
                sketch = ScoreSketch.from_bytes(pane.cells)
                held = sketch.relabel(score, label)
                self._closed[i], self._merged = _pane(index, sketch), None
                return held
        return False

    def merge(self, other: Self) -> None:
        """Add the contents of the other window: by event time, or else as later labels."""
        shift = 0 if self._span else self._index + 1
        for pane in list(other._panes()):
            sketch = ScoreSketch.from_bytes(pane.cells)
            index = pane.index + shift
            if index > self._index:
                self._slide(index)
            if index == self._index:
                self._current.merge(sketch)
            elif index >= self._index - PANES:
                self._merge_late(sketch, index)
        if self._labels:
            # The next label opens a new pane, because the last one of the other window is not filled further.
            self._n = (self._index + 1) * self._labels

    def to_state(self) -> WindowState:
        """Return the state."""
        *closed, current = self._panes()
        return WindowState(self._n, closed, current)

    def restore(self, state: WindowState) -> Self:
        """Replace the contents by a state."""
        panes = [*state.closed, state.current]
        indices = [pane.index for pane in panes]
        require(
            indices == sorted(set(indices)) and indices[0] >= indices[-1] - PANES,
            "the panes of a sliding window are out of order",
        )
        held = sum(pane.n for pane in panes)
        require(
            not self._labels or (0 <= self._labels * indices[-1] <= state.n and held <= state.n),
            f"the panes of a sliding window are not of {state.n} labels",
        )
        for pane in panes:
            sketch = ScoreSketch.from_bytes(pane.cells).checked_as(self._current)
            same = _pane(pane.index, sketch) == pane
            require(same, "a pane of a sliding window contradicts its sketch")
        self._n, self._closed, self._index = state.n, state.closed, state.current.index
        self._current = sketch  # of the last pane
        self._merged = None
        return self

    def _panes(self) -> Iterator[_Pane]:
        yield from self._closed
        yield _pane(self._index, self._current)

    def _slide(self, index: int) -> None:
        """Close the current pane, open pane ``index``, and drop the panes before the window."""
        if self._current.n:
            self._closed.append(_pane(self._index, self._current))
        self._index = index
        self._closed = [pane for pane in self._closed if pane.index >= index - PANES]
        self._current = ScoreSketch(self._max_cells)
        self._merged = None

    def _add_late(self, scores: Floats, labels: Labels, index: int, units: Counts | None) -> None:
        sketch = ScoreSketch(self._max_cells)
        sketch.add_checked(scores, labels, units)
        self._merge_late(sketch, index)

    def _merge_late(self, sketch: ScoreSketch, index: int) -> None:
        for i, pane in enumerate(self._closed):
            if pane.index == index:
                sketch.merge(ScoreSketch.from_bytes(pane.cells))
                self._closed[i] = _pane(index, sketch)
                break
        else:
            self._closed.append(_pane(index, sketch))
            self._closed.sort(key=lambda pane: pane.index)
        self._merged = None


def _pane(index: int, sketch: ScoreSketch) -> _Pane:
    return _Pane(index, sketch.n, sketch.n_positives, sketch.to_bytes(), sketch.mass)
