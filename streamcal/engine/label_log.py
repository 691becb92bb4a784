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
from functools import cached_property
from typing import Annotated, Final, Self, TypeAlias

import msgspec
import numpy as np

from streamcal.base.values import Floats, Labels
from streamcal.sketch.decoding import Count, Part, Positive
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import Mass

PANES: Final = 16
"""Number of panes that the length of a window is divided into."""

_LAST: Final = 1 << 62  # no pane has an index beyond it: of the shortest, as many pass in ten thousand years


_NONE: Final = ScoreSketch()

_Index: TypeAlias = Annotated[int, msgspec.Meta(gt=-_LAST, lt=_LAST)]


class _Pane(Part):
    index: _Index
    cells: bytes
    mass: Mass


class LabelLog(Part, dict=True):
    """A sketch of labelled scores, or panes of sketches where a window forgets the older ones.

    Its fields are its state.
    """

    pane_size: Positive | None = None
    """Number of labels that fill a pane; None without a window of labels."""
    pane_seconds: Annotated[float, msgspec.Meta(gt=0.0)] | None = None
    """Width of a pane in seconds; None without a window of event time."""
    n: Count = 0
    """Number of labels added, including those that the window has dropped."""
    positives: Count = 0
    """Number of labels 1 added."""
    pane: _Index = 0
    """Index of the pane that is being filled."""
    current: ScoreSketch = _NONE
    """Labels of that pane, shared as long as there is none."""
    closed: tuple[_Pane, ...] = ()
    """Panes before it."""

    @cached_property
    def _merged(self) -> ScoreSketch:
        """Sketch of the closed panes."""
        merged = ScoreSketch()
        for pane in self.closed:
            merged.merge(ScoreSketch.from_bytes(pane.cells))
        return merged

    @classmethod
    def begun(cls, window: int | timedelta | None = None) -> Self:
        """Return an empty log.

        Parameters
        ----------
        window
            length of the sliding window: a number of labels, or a duration of event time; None: everything is
            remembered.
        """
        if isinstance(window, timedelta):
            return cls(pane_seconds=window.total_seconds() / PANES)
        return cls(None if window is None else -(-window // PANES))

    @property
    def windowed(self) -> bool:
        """Whether a sliding window forgets older labels."""
        return self.pane_size is not None or self.pane_seconds is not None

    @property
    def sketch(self) -> ScoreSketch:
        """Sketch of the remembered labels, equal to a new sketch of these alone. Do not modify it."""
        if not self.closed:
            return self.current
        merged = self._merged.at_level(self._merged.level)
        merged.merge(self.current)
        return merged

    @property
    def mass(self) -> Mass:
        """Weight of the remembered labels."""
        mass = self.current.mass
        for pane in self.closed:
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
        if self.pane_seconds is None:
            return 0
        if time is None or not math.isfinite(time):
            raise ValueError(
                f"a window in event time needs the time of every label, in seconds, got {time!r}"
            )
        return math.floor(time / self.pane_seconds)

    def slide_to(self, pane: int) -> bool:
        """Slide on to a pane, unless it is an older one; drop what lies before the window.

        Returns
        -------
        Whether the window slides by event time, and has labels.
        """
        newer = pane > self.pane
        slides = newer and self.pane_seconds is not None and self.mass.labels > 0.0
        if newer or not self.n:
            if self.current.n:
                self.closed = (*self.closed, _pane(self.pane, self.current))
            self.pane = pane
            self.closed = tuple(each for each in self.closed if each.index >= pane - PANES)
            self.current = ScoreSketch()
            vars(self).pop("_merged", None)
        return slides

    def add(self, scores: Floats, labels: Labels, pane: int = 0, weights: Floats | None = None) -> None:
        """Add checked labels of one pane, float64[k] and int8[k]; a pane that is too old is dropped.

        ``weights`` are theirs, float64[k]; None: all are 1.
        """
        if not len(labels):
            return
        self.slide_to(pane)
        if pane == self.pane:
            self.current.add_checked(scores, labels, weights)
        elif pane >= self.pane - PANES:
            sketch = ScoreSketch()
            sketch.add_checked(scores, labels, weights)
            self._merge_late(sketch, pane)
        self._count(len(labels), int(np.count_nonzero(labels)))

    def add_sketch(self, sketch: ScoreSketch) -> None:
        """Add labels that were counted elsewhere; not under a window."""
        self.slide_to(self.pane)
        self.current.merge(sketch)
        self._count(sketch.n, sketch.n_positives)

    def _count(self, labels: int, positives: int) -> None:
        self.n += labels
        self.positives += positives

    def _merge_late(self, sketch: ScoreSketch, index: int) -> None:
        """Merge labels into a closed pane, which may be empty so far."""
        for pane in self.closed:
            if pane.index == index:
                sketch.merge(ScoreSketch.from_bytes(pane.cells))
        panes = [*(pane for pane in self.closed if pane.index != index), _pane(index, sketch)]
        self.closed = tuple(sorted(panes, key=lambda pane: pane.index))
        vars(self).pop("_merged", None)


def _pane(index: int, sketch: ScoreSketch) -> _Pane:
    return _Pane(index, sketch.to_bytes(), sketch.mass)
