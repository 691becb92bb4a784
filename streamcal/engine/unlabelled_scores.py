"""UnlabelledScores: the target's scores as they were observed, without their labels.

Scores wait in one buffer until the sketch, and the estimate of the prior where it reads scores, have read
them. The first `FEW` stay there as they are: of many keys most have no more. Memory: that of the sketch, and
at most `BUFFERED` scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from streamcal.base.values import NO_FLOATS, Floats
from streamcal.sketch import checks, counts_c
from streamcal.sketch.decoding import require
from streamcal.sketch.score_sketch import ScoreSketch

BUFFERED: Final = 4096
"""Number of scores that may wait before they are sorted into the sketch."""

DOUBLING: Final = -1
"""Size of the blocks of a reader that reads all scores whenever their number has doubled."""

FEW: Final = 64
"""Number of scores up to which there is no sketch, if nothing else reads them."""


class UnlabelledScores(counts_c.ScoreBuffer):
    """An unlabelled sketch with a buffer in front.

    Parameters
    ----------
    block
        number of scores that a second reader takes at a time, see `drain`; 0: there is no such reader.
    sketch, unread
        the state to start from: that of another. ValueError if it is none.
    """

    __slots__ = ("_block", "_read", "_sketch", "_sketched")

    def __init__(self, block: int = 0, sketch: ScoreSketch | None = None, unread: Floats = NO_FLOATS) -> None:
        super().__init__(block or BUFFERED)
        self._sketch, self._block = sketch, block
        if len(unread):
            self._put(checks.as_scores(unread))
        self.n = self._held
        self._read = self._sketched = 0  # how many the second reader has taken, and how many the sketch has
        if sketch is not None:
            self.n, self._sketched = sketch.n, self._held
        require(sketch is not None or len(unread) <= (0 if block else FEW), "scores without their sketch")
        self._set_remaining()

    @property
    def sketch(self) -> ScoreSketch:
        """Sketch of all scores observed; do not change it."""
        self.sort()
        return self._sketch or self.snapshot()()

    def snapshot(self) -> Callable[[], ScoreSketch]:
        """Return a function that returns the `sketch` as it is now; it sorts what waits."""
        sketch = (self._sketch or ScoreSketch(labelled=False)).copy()
        waiting = self._since(self._sketched)

        def sorted_in() -> ScoreSketch:
            own = sketch.copy()
            own.add_checked(waiting, None)
            return own

        return sorted_in

    def add(self, scores: Floats) -> None:
        """Take any number of checked scores, float64[k], where there is no second reader."""
        self._sorted().add_checked(scores, None)
        self.n += len(scores)

    def add_sketch(self, sketch: ScoreSketch) -> None:
        """Take scores that were counted elsewhere, where there is no second reader."""
        self._sorted().merge(sketch)
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
    def state(self) -> tuple[ScoreSketch | None, Floats]:
        """The sketch, and the scores that the second reader has not taken; few scores without a sketch."""
        self.sort()
        return self._sketch, np.asarray(self._since(self._read if self._block else 0))

    def sort(self) -> None:
        """Sort the buffered scores into the sketch, unless they are few; forget those that all have read."""
        if self._sketch is not None or self.n > FEW or (self._block and self.n):
            self._sorted()

    def _sorted(self) -> ScoreSketch:
        """Return the sketch, with all scores in it."""
        sketch = self._sketch = self._sketch or ScoreSketch(labelled=False)
        if self._sketched < self._held:
            sketch.add_checked(self._since(self._sketched), None)
        self._drop(self._read if self._block else self._held)
        self._sketched = self._held
        if not self._block:
            self._set_remaining()
        self._read = 0
        return sketch

    def _set_remaining(self) -> None:
        self.remaining = self._block - self.n % self._block if self._block > 0 else BUFFERED - self._held
        if self._block == DOUBLING:
            self.remaining = min(self.remaining, (1 << self.n.bit_length()) - self.n)
