"""PaneWindow: the labelled scores of a sliding window, as panes of sketches.

The window is cut into `PANES` panes; the one that is being filled comes on top, so that it reaches back
between its length and one pane more. Its sketch is merged from the panes rather than kept by subtraction:
a sketch that has been coarsened once could never become finer again, and so would not be that of a sketch
which was only given what the window holds.

Memory: a closed pane is kept as bytes, 6 to 8 a cell.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["PANES", "PaneWindow"]

PANES: Final = 16
"""How many panes the window is cut into."""

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


class _Pane(msgspec.Struct):
    index: int
    n: int
    positives: int
    cells: bytes


class _State(msgspec.Struct):
    n: int
    closed: list[_Pane]
    current: _Pane


class PaneWindow:
    """The latest labelled scores, by number or by event time; exact in what it holds.

    Parameters
    ----------
    length
        of the window: a number of labels, or a stretch of event time.
    max_cells
        that of its sketches.
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
        """How many labels a pane holds; None if panes are of event time."""
        return self._labels or None

    @property
    def n(self) -> int:
        """How many labels the window holds."""
        return self._current.n + sum(pane.n for pane in self._closed)

    @property
    def positives(self) -> int:
        """How many of them are 1."""
        return self._current.n_positives + sum(pane.positives for pane in self._closed)

    @property
    def sketch(self) -> ScoreSketch:
        """What the window holds: equal to a sketch that was only given that. Not to be changed."""
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
        """How many labels it was given; after `merge`, raised to where a pane begins."""
        return self._n

    @property
    def newest(self) -> int:
        """The pane that is being filled."""
        return self._index

    def pane_of(self, time: float | None, waiting: int) -> int:
        """Return the pane of the label that comes after ``waiting`` others.

        Parameters
        ----------
        time
            its event time in seconds; of no account where panes are of labels.
        waiting
            labels before it that were not added yet.

        Raises
        ------
        ValueError
            if panes are of event time, and the label has none.
        """
        if self._labels:
            return (self._n + waiting) // self._labels
        if time is None or not math.isfinite(time):
            raise ValueError(
                f"a window in event time needs the time of every label, in seconds, got {time!r}"
            )
        return math.floor(time / self._span)

    def add(self, scores: Scores, labels: Labels, pane: int) -> None:
        """Add checked labels of one pane: float64[n], int8[n]; what lies before the window is left out."""
        if pane > self._index or not self._n:
            self._slide(pane)
        self._n += len(labels)
        if pane == self._index:
            self._current._add(scores, labels)
        elif pane >= self._index - PANES:
            self._add_late(scores, labels, pane)

    def merge(self, other: Self) -> None:
        """Add what the other holds: by event time, or as later labels."""
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
            # The next label opens a pane: those of the other are as full as they are.
            self._n = (self._index + 1) * self._labels

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        *closed, current = self._panes()
        return msgspec.msgpack.encode(_State(self._n, closed, current))

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.msgpack.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise DamagedStateError(f"not the state of a window: {error}") from None
        indices = [pane.index for pane in state.closed] + [state.current.index]
        if indices != sorted(set(indices)) or indices[0] < indices[-1] - PANES or state.n < 0:
            raise DamagedStateError("not the state of a window: its panes are out of order")
        for pane in [*state.closed, state.current]:
            sketch = ScoreSketch.from_bytes(pane.cells)
            if (sketch.n, sketch.n_positives, sketch.max_cells, sketch.labelled) != (
                pane.n,
                pane.positives,
                self._max_cells,
                True,
            ):
                raise DamagedStateError("not the state of a window: a pane is not what it says")
        self._n, self._closed, self._index = state.n, state.closed, state.current.index
        self._current = ScoreSketch.from_bytes(state.current.cells)
        self._merged = None
        return self

    def _panes(self) -> Iterator[_Pane]:
        yield from self._closed
        yield _pane(self._index, self._current)

    def _slide(self, index: int) -> None:
        """Close the current pane, open that of ``index``, and drop what is before the window."""
        if self._current.n:
            self._closed.append(_pane(self._index, self._current))
        self._index = index
        self._closed = [pane for pane in self._closed if pane.index >= index - PANES]
        self._current = ScoreSketch(self._max_cells)
        self._merged = None

    def _add_late(self, scores: Scores, labels: Labels, index: int) -> None:
        sketch = ScoreSketch(self._max_cells)
        sketch._add(scores, labels)
        self._merge_late(sketch, index)

    def _merge_late(self, sketch: ScoreSketch, index: int) -> None:
        for place, pane in enumerate(self._closed):
            if pane.index == index:
                sketch.merge(ScoreSketch.from_bytes(pane.cells))
                self._closed[place] = _pane(index, sketch)
                break
        else:
            self._closed.append(_pane(index, sketch))
            self._closed.sort(key=lambda pane: pane.index)
        self._merged = None


def _pane(index: int, sketch: ScoreSketch) -> _Pane:
    return _Pane(index, sketch.n, sketch.n_positives, sketch.to_bytes())
