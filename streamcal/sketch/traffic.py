"""Traffic: the scores of the target as they were observed, without their labels, with a buffer in front."""

from __future__ import annotations

from array import array
from typing import Self

import numpy as np

from streamcal.errors import DamagedStateError
from streamcal.sketch.label_log import BLOCK, Scores
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["Traffic"]


class Traffic:
    """An unlabelled sketch with a buffer in front.

    Parameters
    ----------
    max_cells
        that of the sketch.
    """

    __slots__ = ("_buffer", "_sketch", "n")

    def __init__(self, max_cells: int) -> None:
        self._sketch = ScoreSketch(max_cells, labelled=False)
        self._buffer = array("d")
        self.n = 0
        """How many scores were observed."""

    @property
    def sketch(self) -> ScoreSketch:
        """All of them; not to be changed."""
        self._flush()
        return self._sketch

    def append(self, score: float) -> None:
        """Take one checked score."""
        self._buffer.append(score)
        self.n += 1
        if len(self._buffer) >= BLOCK:
            self._flush()

    def extend(self, scores: Scores) -> None:
        """Take checked scores, float64[n]."""
        self.n += len(scores)
        if len(self._buffer) + len(scores) <= BLOCK:
            self._buffer.frombytes(scores.tobytes())
        else:
            self._flush()
            self._sketch._add(scores, None)

    def merge(self, other: Self) -> None:
        """Add what the other observed."""
        self._flush()
        self._sketch.merge(other.sketch)
        self.n += other.n

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return self.sketch.to_bytes()

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        sketch = ScoreSketch.from_bytes(data)
        if sketch.labelled or sketch.max_cells != self._sketch.max_cells:
            raise DamagedStateError("not the state of the traffic: its sketch is not that of its options")
        self._sketch, self.n = sketch, sketch.n
        return self

    def _flush(self) -> None:
        if self._buffer:
            self._sketch._add(np.frombuffer(self._buffer), None)
            self._buffer = array("d")
