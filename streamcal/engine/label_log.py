"""LabelLog: the labelled scores of one domain, all of them or those of a sliding window.

Under a window, labels are kept in panes of sketches. The window consists of `PANES` closed panes and the
pane that is being filled, so it reaches back by its length and up to one pane more. Its sketch is merged from
the panes rather than updated by subtraction: subtraction cannot undo a coarsening, so the result would differ
from a sketch of the labels in the window alone. Without a window there is one pane, which is never closed.

Memory: a closed pane is stored as bytes, 10 to 13 for each cell.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Annotated, Final, Self

import msgspec
import numpy as np

from streamcal.sketch.decoding import Count, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import NONE, Mass
from streamcal.values import Counts, Floats, Labels

__all__ = ["PANES", "LabelLog", "LogState"]

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
    """The state of the panes of a window."""

    closed: list[_Pane]
    current: _Pane


class LogState(msgspec.Struct):
    """The state of a `LabelLog`."""

    n: Count
    positives: Count
    window: WindowState | None
    all: ScoreSketch | None


class LabelLog:
    """A sketch of labelled scores, or panes of sketches where a window forgets the older ones.

    Parameters
    ----------
    window
        length of the sliding window: a number of labels, or a duration of event time; None: everything is
        remembered.
    """

    def __init__(self, window: int | timedelta | None = None) -> None:
        self.pane_size: int | None = -(-window // PANES) if isinstance(window, int) else None
        """Number of labels that fill a pane; None without a window of labels."""
        self._pane_seconds = window.total_seconds() / PANES if isinstance(window, timedelta) else None
        self.n = 0
        """Number of labels added, including those that the window has dropped."""
        self.positives = 0
        """Number of labels 1 added."""
        self.pane = 0
        """Index of the pane that is being filled."""
        self._closed: list[_Pane] = []
        self._current = ScoreSketch()
        self._merged: ScoreSketch | None = None  # of the closed panes

    @property
    def windowed(self) -> bool:
        """Whether a sliding window forgets older labels."""
        return self.pane_size is not None or self._pane_seconds is not None

    @property
    def sketch(self) -> ScoreSketch:
        """Sketch of the remembered labels, equal to a new sketch of these alone. Do not modify it."""
        if not self._closed:
            return self._current
        if self._merged is None:
            self._merged = ScoreSketch()
            for pane in self._closed:
                self._merged.merge(ScoreSketch.from_bytes(pane.cells))
        merged = self._merged.at_level(self._merged.level)
        merged.merge(self._current)
        return merged

    @property
    def remembered(self) -> tuple[int, int]:
        """(positives, labels) that are remembered."""
        positives = sum(pane.positives for pane in self._closed) + self._current.n_positives
        return positives, sum(pane.n for pane in self._closed) + self._current.n

    @property
    def mass(self) -> Mass:
        """Weight of the remembered labels beyond one each."""
        mass = self._current.mass
        for pane in self._closed:
            mass = mass.plus(pane.mass)
        return mass

    def pane_of(self, time: float | None, waiting: int) -> int:
        """Return the index of the pane that the next label belongs to; 0 without a window.

        Parameters
        ----------
        time
            event time of the label, in seconds; ignored unless panes are durations.
        waiting
            number of earlier labels that have not been added yet.

        Raises
        ------
        ValueError
            if panes are durations and the label has no finite event time.
        """
        if self.pane_size is not None:
            return (self.n + waiting) // self.pane_size
        if self._pane_seconds is None:
            return 0
        if time is None or not math.isfinite(time):
            raise ValueError(
                f"a window in event time needs the time of every label, in seconds, got {time!r}"
            )
        return math.floor(time / self._pane_seconds)

    def slide_to(self, pane: int) -> bool:
        """Slide on to a pane, unless it is an older one; drop what lies before the window.

        Returns
        -------
        Whether the window slides by event time, and has labels.
        """
        newer = pane > self.pane
        slides = newer and self._pane_seconds is not None and self.remembered[1] > 0
        if newer or not self.n:
            if self._current.n:
                self._closed.append(_pane(self.pane, self._current))
            self.pane = pane
            self._closed = [each for each in self._closed if each.index >= pane - PANES]
            self._current, self._merged = ScoreSketch(), None
        return slides

    def add(self, scores: Floats, labels: Labels, pane: int = 0, units: Counts | None = None) -> None:
        """Add checked labels of one pane, float64[k] and int8[k]; a pane that is too old is dropped.

        ``units`` are those of their weights, int64[k]; None: all are 1.
        """
        if not len(labels):
            return
        self.slide_to(pane)
        if pane == self.pane:
            self._current.add_checked(scores, labels, units)
        elif pane >= self.pane - PANES:
            sketch = ScoreSketch()
            sketch.add_checked(scores, labels, units)
            self._merge_late(sketch, pane)
        self._count(len(labels), int(np.count_nonzero(labels)))

    def add_sketch(self, sketch: ScoreSketch) -> None:
        """Add labels that were counted elsewhere; not under a window."""
        self._current.merge(sketch)
        self._count(sketch.n, sketch.n_positives)

    def to_state(self) -> LogState:
        """Return the state."""
        if not self.windowed:
            return LogState(self.n, self.positives, None, self._current)
        window = WindowState(self._closed, _pane(self.pane, self._current))
        return LogState(self.n, self.positives, window, None)

    def restore(self, state: LogState) -> Self:
        """Replace the state by another.

        A log whose window was configured may hold none: the labels gathered after an alarm are all kept.
        """
        if state.window is not None and self.windowed:
            self._restore(state.window, state.n)
        else:
            require(state.all, "the window of a label log does not fit the options")
            self.pane_size = self._pane_seconds = None
            self._current = state.all.checked_as(self._current)  # type: ignore[union-attr]
        positives, n = self.remembered
        require(
            positives <= state.positives and n - positives <= state.n - state.positives,
            f"a label log holds {positives} positives of {n} labels, but counts {state.positives} of"
            f" {state.n}",
        )
        self.n, self.positives = state.n, state.positives
        return self

    def _restore(self, state: WindowState, n: int) -> None:
        """Replace the panes by those of a state after so many labels."""
        panes = [*state.closed, state.current]
        indices = [pane.index for pane in panes]
        require(
            indices == sorted(set(indices)) and indices[0] >= indices[-1] - PANES,
            "the panes of a sliding window are out of order",
        )
        size, held = self.pane_size, sum(pane.n for pane in panes)
        require(
            size is None or (0 <= size * indices[-1] <= n and held <= n),
            f"the panes of a sliding window are not of {n} labels",
        )
        for pane in panes:
            sketch = ScoreSketch.from_bytes(pane.cells).checked_as(self._current)
            same = _pane(pane.index, sketch) == pane
            require(same, "a pane of a sliding window contradicts its sketch")
        self._closed, self.pane = state.closed, state.current.index
        self._current, self._merged = sketch, None  # of the last pane

    def _count(self, labels: int, positives: int) -> None:
        self.n += labels
        self.positives += positives

    def _merge_late(self, sketch: ScoreSketch, index: int) -> None:
        """Merge labels into a closed pane, which may be empty so far."""
        for pane in self._closed:
            if pane.index == index:
                sketch.merge(ScoreSketch.from_bytes(pane.cells))
        self._closed = [*(pane for pane in self._closed if pane.index != index), _pane(index, sketch)]
        self._closed.sort(key=lambda pane: pane.index)
        self._merged = None


def _pane(index: int, sketch: ScoreSketch) -> _Pane:
    return _Pane(index, sketch.n, sketch.n_positives, sketch.to_bytes(), sketch.mass)
