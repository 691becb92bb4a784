"""UnlabelledScores: the target's scores as they were observed, without their labels.

Scores wait in one buffer until the sketch, and the estimate of the prior where it reads scores, have read
them. Memory: that of the sketch, and at most `BUFFERED` scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from streamcal.sketch import checks, counts_c
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.values import Floats

__all__ = ["BUFFERED", "UnlabelledScores"]

BUFFERED: Final = 4096
"""Number of scores that may wait before they are sorted into the sketch."""


_NO_SCORES: Final = np.empty(0)


class UnlabelledScores(counts_c.ScoreBuffer):
    """An unlabelled sketch with a buffer in front.

    Parameters
    ----------
    block
        number of scores that a second reader takes at a time, see `drain`; 0: there is no such reader.
    sketch, unread
        the state to start from: `sketch` and `unread` of another. ValueError if it is none.
    """

    __slots__ = ("_block", "_read", "_sketch", "_sketched")

    def __init__(
        self, block: int = 0, sketch: ScoreSketch | None = None, unread: Floats = _NO_SCORES
    ) -> None:
        super().__init__(block or BUFFERED)
        self._sketch = ScoreSketch(labelled=False) if sketch is None else sketch
        self._put(checks.as_scores(unread))
        self.n, self._block = self._sketch.n, block
        self._read = 0  # how many of the buffered scores the second reader has taken
        self._sketched = self._held  # how many of them are in the sketch
        self._set_remaining()

    @property
    def sketch(self) -> ScoreSketch:
        """Sketch of all scores observed; do not change it."""
        self.sort()
        return self._sketch

    def snapshot(self) -> Callable[[], ScoreSketch]:
        """Return a function that returns the `sketch` as it is now; it sorts what waits."""
        sketch, waiting = self._sketch.copy(), self._since(self._sketched)

        def sorted_in() -> ScoreSketch:
            own = sketch.copy()
            own.add_checked(waiting, None)
            return own

        return sorted_in

    def add(self, scores: Floats) -> None:
        """Take any number of checked scores, float64[k], where there is no second reader."""
        self.sort()
        self._sketch.add_checked(scores, None)
        self.n += len(scores)

    def add_sketch(self, sketch: ScoreSketch) -> None:
        """Take scores that were counted elsewhere, where there is no second reader."""
        self.sort()
        self._sketch.merge(sketch)
        self.n += sketch.n

    def drain(self) -> Floats | None:
        """Let readers take the scores that wait; return the block for the second reader, None without one."""
        block = None
        if self._block:
            block = self._since(self._read)
            self._read = self._held
        if not self._block or self._held >= BUFFERED:
            self.sort()
        self._set_remaining()
        return block

    @property
    def unread(self) -> Floats:
        """Scores that the second reader has not taken; all are in the sketch."""
        self.sort()
        return np.asarray(self._since(self._read if self._block else self._held))

    def sort(self) -> None:
        """Sort the buffered scores into the sketch, and forget those that the second reader has read, too."""
        if self._sketched < self._held:
            self._sketch.add_checked(self._since(self._sketched), None)
        self._drop(self._read if self._block else self._held)
        self._sketched = self._held
        if not self._block:
            self._set_remaining()
        self._read = 0

    def _set_remaining(self) -> None:
        self.remaining = self._block - self.n % self._block if self._block else BUFFERED - self._held
