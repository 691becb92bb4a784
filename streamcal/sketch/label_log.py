"""LabelLog: the labelled scores of one domain: a sketch, or panes of sketches, with a buffer in front."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from datetime import timedelta
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.sliding_window import SlidingWindow

__all__ = ["BLOCK", "LabelLog"]

BLOCK: Final = 8192
"""How many single values are gathered before they are sorted into a sketch."""

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


class _State(msgspec.Struct):
    n: int
    positives: int
    versions: int
    due: int
    cells: bytes


class LabelLog:
    """Labelled scores with a buffer in front; counts are always up to date.

    Parameters
    ----------
    max_cells
        that of its sketches.
    window
        what it remembers, see `SlidingWindow`; None: everything.
    """

    __slots__ = (
        "_all",
        "_buffered",
        "_held",
        "_pane",
        "_window",
        "due",
        "labels",
        "n",
        "positives",
        "scores",
        "versions",
    )

    def __init__(self, max_cells: int, window: int | timedelta | None = None) -> None:
        self._all = ScoreSketch(max_cells)
        self._window = None if window is None else SlidingWindow(window, max_cells)
        self.n = 0
        """Labels so far, those that the window has left behind among them."""
        self.positives = 0
        """Those of them that are 1."""
        self.versions = 0
        """How many map versions have begun at its counts."""
        self.due = 0
        """The count at which the next one begins."""
        self.scores = array("d")
        self.labels = bytearray()
        self._buffered = 0  # positives in the buffer
        self._pane = 0  # of the buffer
        self._held = (0, 0)  # (positives, labels) that the window holds

    @property
    def sketch(self) -> ScoreSketch:
        """What it remembers, but for the buffer; not to be changed."""
        return self._all if self._window is None else self._window.sketch

    @property
    def stride(self) -> int | None:
        """How many labels the window slides by; None without a window of labels."""
        return None if self._window is None else self._window.stride

    @property
    def prior_counts(self) -> tuple[int, int]:
        """(positives, labels) that it remembers."""
        if self._window is not None:
            positives, n = self._held
            return positives + self._buffered, n + len(self.labels)
        return self.positives, self.n

    def append(self, score: float, label: int, time: float | None) -> None:
        """Take one checked score with its label.

        Raises
        ------
        ValueError
            if the window is of event time and there is none; nothing is taken then.
        """
        if self._window is not None:
            self._turn(self._window, time)
        self.scores.append(score)
        self.labels.append(label)
        self.n += 1
        if label:
            self.positives += 1
            self._buffered += 1
        if len(self.labels) >= BLOCK:
            self.flush()

    def extend(self, scores: Scores, labels: Labels, times: Scores | None) -> None:
        """Take checked scores with their labels: float64[n], int8[n].

        Raises
        ------
        ValueError
            as `append`.
        """
        for start, end in self._stretches(len(labels), times):
            if self._window is not None:
                self._turn(self._window, None if times is None else float(times[start]))
            self._extend(scores[start:end], labels[start:end])

    def merge(self, other: LabelLog) -> None:
        """Add what the other holds, as later labels if not by event time; both must be flushed."""
        self.n += other.n
        self.positives += other.positives
        self.versions = max(self.versions, other.versions)
        if self._window is not None and other._window is not None:
            self._window.merge(other._window)
            self._held = self._window.positives, self._window.n
        else:
            self._all.merge(other._all)

    def flush(self) -> None:
        """Sort the buffer into the sketch."""
        if self.labels:
            self._put(np.frombuffer(self.scores), np.frombuffer(self.labels, np.int8))
            self.scores, self.labels, self._buffered = array("d"), bytearray(), 0

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        self.flush()
        cells = self._all.to_bytes() if self._window is None else self._window.to_bytes()
        return msgspec.msgpack.encode(_State(self.n, self.positives, self.versions, self.due, cells))

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
            raise DamagedStateError(f"not the state of a label log: {error}") from None
        if self._window is None:
            cells = ScoreSketch.from_bytes(state.cells)
            if not cells.labelled or cells.max_cells != self._all.max_cells:
                raise DamagedStateError("not the state of a label log: its sketch is not that of its options")
            self._all = cells
        else:
            self._window.restore(state.cells)
            self._held = self._window.positives, self._window.n
        self.n, self.positives = state.n, state.positives
        self.versions, self.due = state.versions, state.due
        return self

    def _turn(self, window: SlidingWindow, time: float | None) -> None:
        """Make ready for a label of this time: the buffer is of one pane."""
        pane = window.pane_of(time, len(self.labels))
        if pane != self._pane:
            self.flush()
            if window.stride is None and window.n and pane > window.newest:
                self.due = min(self.due, self.n + 1)  # the window slides with this label
            self._pane = pane

    def _stretches(self, n: int, times: Scores | None) -> Iterator[tuple[int, int]]:
        """Cut n labels into runs of one pane."""
        window = self._window
        cuts: list[int]
        if not n:
            return iter(())
        if window is None:
            cuts = []
        elif window.stride is None:
            panes = [window.pane_of(time, 0) for time in ([None] * n if times is None else times.tolist())]
            cuts = [i for i in range(1, n) if panes[i] != panes[i - 1]]
        else:
            room = window.stride - (window.total + len(self.labels)) % window.stride
            cuts = list(range(room, n, window.stride))
        return zip([0, *cuts], [*cuts, n], strict=True)

    def _extend(self, scores: Scores, labels: Labels) -> None:
        positives = int(np.count_nonzero(labels))
        if len(self.labels) + len(labels) <= BLOCK:
            self.scores.frombytes(scores.tobytes())
            self.labels += labels.tobytes()
            self._buffered += positives
        else:
            self.flush()
            self._put(scores, labels)
        self.n += len(labels)
        self.positives += positives

    def _put(self, scores: Scores, labels: Labels) -> None:
        if self._window is None:
            self._all._add(scores, labels)
        else:
            self._window.add(scores, labels, self._pane)
            self._held = self._window.positives, self._window.n
