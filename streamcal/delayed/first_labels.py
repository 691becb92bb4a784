"""Test whether the first labels of a stream are a fair sample to learn from.

If labels of one class come sooner than those of the other, the first labels are nearly all of that class, and
say nothing of the rates. Labels of one class alone say nothing either, if the other is rare. Until the labels
are fair, the maps of the source are served, or the score if there is no source.

What is to be expected of a prediction is its probability by the source's map, or its score. A class came late
if three things hold. It is much rarer among the labels than expected. Labels have overtaken so many
predictions that these could be the missing ones. And the predictions without a label do not look like those
with one: if expectations p are right, those of the two classes differ by Var(p) / (m(1 − m)) in the mean, m
being the mean of all.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from streamcal.sketch.decoding import Count, Finite, Part

_HELD: Final = 16_000  # labels after which a class that is rare among them is simply rare
_SHORT: Final = 0.5  # of the labels of a class that are expected: fewer are too few
_EXPECTED: Final = 20.0  # labels of a class that must be expected before what came of it tells anything
_DOUBT: Final = 2.0  # standard deviations of that number by which chance may have brought more
_OVERTAKEN: Final = 0.25  # predictions without a label, as a part of the missing ones, that could be these
_SOME: Final = 3  # predictions without a label that may be all of a class of which none has come
_ALIKE: Final = 0.5  # of the difference between the two classes: less of it, and labels are missing at random
_ERRORS: Final = 3.0  # standard errors for which the difference is taken for larger than it looks


class Observed(NamedTuple):
    """Target scores observed so far, with and without a label, and what is expected of them."""

    number: int
    sum: float = 0.0
    """Sum of the probabilities that are expected."""
    squares: float = 0.0
    """Sum of their squares."""


class FirstLabels(Part):
    """Counts that decide whether the first labels are fair; the fields are the state."""

    one_class_late: bool = False
    """Whether a class came late: the labels so far are no sample."""
    newest: int = -1
    """Scores observed before the latest prediction that has a label; −1: labels come at once."""
    before: Count = 0
    """Labels of predictions before that one."""
    expected: Finite = 0.0
    """Number of positives that is expected of all labels."""
    labels: Count = 0
    positives: Count = 0

    def add(self, expected: float, label: int, index: int) -> None:
        """Add a label, what was expected of it, and the number of its prediction; below 0: at once."""
        if index > self.newest:
            self.newest, self.before = int(index), self.labels
        elif index < self.newest:
            self.before += 1
        self.expected += float(expected)
        self.labels += 1
        self.positives += int(label)

    def judge(self, observed: Observed) -> bool:
        """Test whether the labels are fair by now, and return the result."""
        rare, short = self._doubts()
        both = 0 < self.positives < self.labels  # those of one class alone are no sample
        at_random = self.labels >= _HELD or (short and not rare and both and self.at_random(observed))
        self.one_class_late = bool((self.one_class_late or (short and not rare)) and not at_random)
        return bool(at_random or not (rare or short))

    @property
    def told(self) -> bool:
        """Whether both classes have come, or labels of either are expected that have not."""
        expected = min(self.expected, self.labels - self.expected)
        return 0 < self.positives < self.labels or expected >= _EXPECTED

    @property
    def enough(self) -> bool:
        """Whether there are enough labels of each class."""
        return not any(self._doubts())

    def _doubts(self) -> tuple[bool, bool]:
        """Return whether too few labels of a class are expected to tell, and whether too few have come."""
        n, expected, told = self.labels, self.expected, self.positives
        if told > expected:  # then it is the other class that may be short
            expected, told = n - expected, n - told
        # Before the second batch of predictions has labels, nothing tells how many were overtaken.
        overtaken = self.newest == 0 or self.newest - self.before > _OVERTAKEN * (expected - told)
        rare = expected < _EXPECTED and (told == 0 or overtaken)
        short = overtaken and told < _SHORT * expected + _DOUBT * math.sqrt(max(expected, 0.0))
        # However many are expected, those that were overtaken may be all there are.
        short |= told == 0 and self.newest - self.before >= _SOME
        return rare, short

    def at_random(self, observed: Observed, *, either: bool = False) -> bool:
        """Return whether scores without a label look no more like those of the class that is short.

        ``either``: of either class.
        """
        number, without = observed.number, observed.number - self.labels
        if without <= 0 or not self.labels:
            return True
        mean = observed.sum / number
        spread = mean * (1.0 - mean)
        apart = (observed.squares / number - mean**2) / spread if spread > 0.0 else 0.0
        lean = (observed.sum - self.expected) / without - self.expected / self.labels
        if either:
            lean = abs(lean)
        elif self.positives > self.expected:  # negatives are short
            lean = -lean
        error = math.sqrt(max(spread, 0.0) * (1.0 / self.labels + 1.0 / without))
        return lean + _ERRORS * error < _ALIKE * apart
