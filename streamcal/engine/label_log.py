"""LabelLog: the labelled scores of one domain, all of them or those of a sliding window."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

import msgspec
import numpy as np

from streamcal.engine.sliding_window import SlidingWindow, WindowState
from streamcal.sketch.decoding import Count, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import Mass
from streamcal.values import Counts, Floats, Labels

__all__ = ["LabelLog", "LogState"]


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
    max_cells
        largest number of cells of each sketch.
    window
        length of the sliding window: a number of labels, or a duration of event time; None: everything is
        remembered.
    """

    __slots__ = ("_all", "_window", "n", "positives")

    def __init__(self, max_cells: int, window: int | timedelta | None = None) -> None:
        self._all = ScoreSketch(max_cells)
        self._window = None if window is None else SlidingWindow(window, max_cells)
        self.n = 0
        """Number of labels added, including those that the window has dropped."""
        self.positives = 0
        """Number of labels 1 added."""

    @property
    def sketch(self) -> ScoreSketch:
        """Sketch of the remembered labelled scores; do not change it."""
        return self._all if self._window is None else self._window.sketch

    @property
    def window(self) -> SlidingWindow | None:
        """The sliding window; None where everything is remembered."""
        return self._window

    @property
    def stride(self) -> int | None:
        """Number of labels by which the window slides; None without a window of labels."""
        return None if self._window is None else self._window.stride

    @property
    def remembered(self) -> tuple[int, int]:
        """(positives, labels) that are remembered."""
        return (self.positives, self.n) if self._window is None else self._held

    @property
    def mass(self) -> Mass:
        """Weight of the remembered labels beyond one each."""
        return self._all.mass if self._window is None else self._window.mass

    @property
    def _held(self) -> tuple[int, int]:
        """(positives, labels) in its sketches."""
        if self._window is None:
            return self._all.n_positives, self._all.n
        return self._window.positives, self._window.n

    def add(self, scores: Floats, labels: Labels, pane: int = 0, units: Counts | None = None) -> None:
        """Add checked labels, float64[k] and int8[k]; under a window, all of one pane.

        ``units`` are those of their weights, int64[k]; None: all are 1.
        """
        if not len(labels):
            return
        if self._window is None:
            self._all.add_checked(scores, labels, units)
        else:
            self._window.add(scores, labels, pane, units)
        self.n += len(labels)
        self.positives += int(np.count_nonzero(labels))

    def relabel(self, score: float, label: int, time: float | None) -> bool:
        """Put another label, 0 or 1, in the place of one of a score; return whether there was one.

        Under a window, ``time`` is the event time with which it was added.
        """
        window = self._window
        held = self._all.relabel(score, label) if window is None else window.relabel(score, label, time)
        if not held:
            return False
        self.positives += 2 * label - 1
        return True

    def add_sketch(self, sketch: ScoreSketch) -> None:
        """Add labels that were counted elsewhere; not under a window."""
        self._all.merge(sketch)
        self.n += sketch.n
        self.positives += sketch.n_positives

    def merge(self, other: LabelLog) -> None:
        """Add what the other holds: by event time where panes are of event time, else as later labels."""
        self.n += other.n
        self.positives += other.positives
        if self._window is not None and other._window is not None:
            self._window.merge(other._window)
        else:
            self._all.merge(other._all)

    def to_state(self) -> LogState:
        """Return the state."""
        if self._window is None:
            return LogState(self.n, self.positives, None, self._all)
        return LogState(self.n, self.positives, self._window.to_state(), None)

    def restore(self, state: LogState) -> Self:
        """Replace the state by another.

        A log whose window was configured may hold none: the labels gathered after an alarm are all kept.
        """
        if state.window is not None and self._window is not None:
            self._window.restore(state.window)
        elif state.all is not None:
            self._all, self._window = state.all.checked_as(self._all), None
        else:
            raise ValueError("the window of a label log does not fit the options")
        positives, n = self._held
        require(
            positives <= state.positives and n - positives <= state.n - state.positives,
            f"a label log holds {positives} positives of {n} labels, but counts {state.positives} of"
            f" {state.n}",
        )
        self.n, self.positives = state.n, state.positives
        return self
