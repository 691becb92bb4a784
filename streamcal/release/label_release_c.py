"""Release of labels: when a label that has come is learned.

While no class comes later than the other, each label is learned when it comes. While one does, labels are
held by cohort. The less complete class of a cohort is released as it is told; of the other class, so many
that both are equally complete. A cohort that contradicts the laws of the delays is held until hardly
anything of it is pending. At the start, labels are held until the first are a fair sample (`first_labels`).

Once one class is all but complete in a cohort, its predictions without a label are of the other, and learned
so: labels *by exclusion*. The label that comes later is learned only if it is another.

Compiled where there is a C compiler; `label_release_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Final, Self

import numpy as np

from streamcal.join.entries import Memo
from streamcal.release.completeness_c import COMPLETE, completeness
from streamcal.release.delay_laws_c import COHORT
from streamcal.release.first_labels import FirstLabels, Observed
from streamcal.release.held_labels_c import (
    CONFIRMED,
    FOUND,
    HELD,
    MOST_HELD,
    SCORE,
    UNITS,
    HeldLabels,
    chance,
)
from streamcal.release.release_state import ReleaseState
from streamcal.sketch.decoding import MOST, require
from streamcal.sketch.weighing import ONE
from streamcal.values import Floats

__all__ = ["LabelRelease"]

_ODD: Final = 16.0  # times the age of complete cohorts at which one that contradicts the laws is released, …
_OLD: Final = 2.0  # … or any other
_USUAL: Final = 0.9  # of the delays: cohorts that are older should have their labels
_POWER: Final = 10.0  # variance of the log-rank statistic that can tell that no class is late
_MORE_POWER: Final = 50.0  # variance from which certificates believe it
_ALIKE: Final = 3.0  # standard deviations of it that are chance
_AHEAD: Final = 4.0  # times the span of a cohort that a label may be ahead of all before it
_SURE: Final = 5.0  # standard deviations that are no chance
_LONG: Final = 8.0  # times the delay of most labels of either class, after which what has not come will not
_MOSTLY: Final = 0.75  # of the old predictions have a label, where the others do not matter for ever
_TIMES: Final = 3.0  # by which the labels of a class may exceed what is expected, …
_ERRORS: Final = 4.0  # … and standard deviations
_PARTLY: Final = 0.1  # of the labels of a class may be of incomplete cohorts, where labels are a sample
_FIRST: Final = 16  # labels of each class of the oldest predictions that are learned, …
_MANY: Final = 0.2  # of the predictions, that must be pending to tell whether they are so by chance
_HARDLY: Final = 0.02  # … if so many of them are pending, by the labels of the rarer class

# As C has them.
_MOST_HELD, _COMPLETE, _COHORT = MOST_HELD, COMPLETE, COHORT
_NOWHERE, _NO_TIME, _NEVER, _ONE = -1, float("nan"), float("-inf"), ONE
_HELD, _FOUND, _CONFIRMED, _UNITS, _SCORE = HELD, FOUND, CONFIRMED, UNITS, SCORE
_NOTED, _EXCLUDED = 1, 2  # marks of cohorts: scores are noted; learned by exclusion as label 0, or plus 1


class LabelRelease(HeldLabels):
    """Labels in front of an engine.

    Parameters
    ----------
    weighs
        Whether labels may have weights other than 1: otherwise none are found by exclusion.
    """

    def __init__(self, *, weighs: bool = True) -> None:
        super().__init__(weighs=weighs)
        self.excludes = weighs
        """Whether labels are found by exclusion."""
        self.unsettled = True
        """Whether labels are held until the first are a fair sample."""
        self.late_class = False
        """Whether one class was late among the first labels."""
        self.first = FirstLabels()
        self.sum = 0.0
        """Sum of what was expected of the predictions, while `unsettled`."""
        self.squares = 0.0
        """Sum of its squares."""
        self.excluded = 0
        """Number of predictions whose label was found by exclusion."""
        self.mistaken = 0
        """Number of these whose label has come and is another."""
        self._moment = _NO_TIME  # latest event time of a label
        self._came = _NO_TIME  # that of the last

    @property
    def holds(self) -> bool:
        """Whether labels that come may be held."""
        return self.unsettled or self.on

    def sampled(self) -> bool:
        """Return whether the labels that came are as good as a sample.

        They are of cohorts of which hardly any is pending, or a test would have told that one class is late.
        """
        if self.known and self.power > _MORE_POWER and self.z < _ALIKE:
            return True
        told0 = told1 = some0 = some1 = 0
        for i in range(self.k):
            size = self._size[i] if i < self.k - 1 else self.n - self._start[i]
            told0 += self.told[i, 0]
            told1 += self.told[i, 1]
            if self.told[i, 0] + self.told[i, 1] < _COMPLETE * size:
                some0 += self.told[i, 0]
                some1 += self.told[i, 1]
        return bool(some0 <= _PARTLY * told0 and some1 <= _PARTLY * told1)

    def complete_until(self) -> int:
        """Return the number of the first prediction whose labels may be incomplete."""
        if self.known:
            for i in range(self.k - 2, -1, -1):
                age = self.now - self._time[i]
                if min(self.law(0, age), self.law(1, age)) >= _COMPLETE:
                    return int(self._start[i] + self._size[i])
        return 0

    # Predictions

    def expect(self, probability: float) -> None:
        """Note what is expected of the next prediction, while `unsettled`; `predict` follows."""
        self.sum += probability
        self.squares += probability * probability
        if self.k == 0:
            self.begin()
        i = self.k - 1
        self.expected[i, 0] += probability
        self.expected[i, 1] += probability * probability

    def begin(self) -> None:
        """Make a cohort for the next predictions."""
        HeldLabels.begin(self)
        self.waiting[self.k - 1, 1] = _NOTED if self.excludes and self.holds else 0

    def note(self, score: float) -> None:
        """Note the score of the next prediction, while it `holds`; `predict` follows."""
        cohort = self.k - 1
        if self.waiting[cohort, 1] == _NOTED:
            self._place(cohort, _SCORE, score, self.n, _ONE, _NO_TIME)
            self.waiting[cohort, 0] += 1
            self.noted += 1

    def note_many(self, scores: Floats) -> None:
        """Note the scores of the next predictions, while it `holds`; `predict_many` follows."""
        if self.k == 0:
            self.begin()
        n = self.n
        for i in range(len(scores)):
            self.note(scores[i])
            self.n += 1
        self.n = n

    def end(self) -> bool:
        """End a cohort after `predict`; return whether there are labels to be learned."""
        was = self.on
        self.close()
        if not (self.unsettled or self.on) and self.z > _SURE:  # the laws are not known yet
            self.unsettled = self.late_class = True
            self.waiting[self.k - 1, 1] = _NOTED if self.excludes else 0
        if self.unsettled:
            self._settle()
        elif was and not self.on:
            self._free_all()
        if self.on:
            self._equalise()
        if self.unsettled and self.held:
            self._free_first()
        return len(self.ready) > 0

    # Labels

    def take(
        self,
        score: float,
        label: int,
        index: int,
        units: int,
        came: float,
        time: float,
        expected: float,
        memo: Memo | None,
    ) -> bool:
        """Take a label; return whether it is to be learned now. If not, those that are `ready` are.

        Parameters
        ----------
        score, label, index, units
            As `streamcal.engine.event_rules_c.EventRules.learn_one`; index below 0: the label came at once.
        came
            Event time of the label; NaN or -inf if there is none.
        time
            Time at which it is to be learned.
        expected
            What was expected of the label, while `unsettled`.
        memo
            What is to be learned with it.
        """
        cohort = _NOWHERE
        if self.k > 0 and index >= self._start[0]:
            cohort = self.find(index)
            if not came > _NEVER:
                came = _NO_TIME
            arrival = float(self.n)
            if self.by_time:  # one wrong clock is not believed
                latest = max(self.now, self._came) if self._came == self._came else self.now
                likely = min(came, latest + _AHEAD * self.spacing) if came == came else self.now
                arrival = max(self.now, likely)
            self._came = came
            self.label(cohort, score, label, arrival)
            if self.waiting[cohort, 0] > 0:
                self._unnote(cohort, score, index)
            if came == came:
                self._moment = came if self._moment != self._moment else max(self._moment, came)
            mark = self.waiting[cohort, 1]
            if mark > _NOTED:  # learned by exclusion
                self.released[cohort, label] += 1
                if label == mark - _EXCLUDED:
                    self.more[_CONFIRMED, label] += 1
                    return False
                self.mistaken += 1
                return True
            if not (self.on or self.unsettled):
                self.released[cohort, label] += 1
                return True
        elif not self.unsettled:
            return True
        self._push(cohort, score, label, index, units, time, memo)
        if self.unsettled:
            if cohort >= 0:
                self.expected[cohort, 2] += expected
            self.first.add(expected, label, index)
            if (
                units != _ONE
            ):  # weights say for which predictions a label stands: a class may be rare, but not late
                self._free_all()
            elif self.n < _COHORT or index < 0:
                self._judge_first()
            elif self.first.labels % _COHORT == 0:  # no prediction may follow
                self._settle()
        return False

    # The first labels

    def _judge_first(self) -> None:
        """Release all labels once the first are fair."""
        if self.first.judge(Observed(self.n, self.sum, self.squares)) and not self.late_class:
            self._free_all()
        self.late_class |= self.first.one_class_late

    def _settle(self) -> None:
        """Decide at the end of a cohort whether the first labels are fair."""
        if self.on:
            self.unsettled = False
            self._free_loose()
            return
        # Of cohorts older than most delays, what is pending is late.
        usual, size, told, positives = self.usual(_USUAL), 0, 0, 0
        sum_ = squares = expected = 0.0
        young, young_positives, young_expected = 0, 0, 0.0
        totals0, totals1 = 0, 0
        for i in range(self.k - 1):
            totals0 += self.told[i, 0]
            totals1 += self.told[i, 1]
            if self.now - self._time[i] < usual:
                young += self.told[i, 0] + self.told[i, 1]
                young_positives += self.told[i, 1]
                young_expected += self.expected[i, 2]
            else:
                size += self._size[i]
                told += self.told[i, 0] + self.told[i, 1]
                positives += self.told[i, 1]
                sum_ += self.expected[i, 0]
                squares += self.expected[i, 1]
                expected += self.expected[i, 2]
        old = FirstLabels(newest=size, before=told, expected=expected, labels=told, positives=positives)
        of_old = Observed(size, sum_, squares)
        old.judge(of_old)
        fair = self.first.judge(Observed(self.n, self.sum, self.squares)) and (told > 0 or size == 0)
        self.late_class |= self.first.one_class_late or old.one_class_late
        # … and what has come of younger ones has the classes of the older, if neither class is late.
        scale = (positives + 0.5) / (expected + 0.5)
        likely = min(float(young), scale * young_expected)
        unlike = _unlike(young_positives, likely) or _unlike(young - young_positives, young - likely)
        self.late_class |= told > 0 and unlike
        # Where hardly anything is pending, all is told: that is no sign that what is not is so by chance.
        at_random = size - told > _MANY * size and old.at_random(of_old, either=True)
        fair = fair and (at_random or (self.first.enough and not self.late_class))
        # However few of a class come: both have, and what has not come for long will not.
        both = min(totals0, totals1) >= _FIRST and told >= _MOSTLY * size
        longest = max(self.usual(_USUAL, 0, 0), self.usual(_USUAL, 1, 1))
        settled = both and self.z < _ALIKE and self.now - self._time[0] >= _LONG * longest
        if (
            settled
            or (fair and (self.z < _ALIKE or self.held >= _MOST_HELD))
            or (self.known and self.power > _POWER and self.z < _ALIKE)
        ):
            self._free_all()

    def _free_all(self) -> None:
        """Release all labels; the first are settled."""
        self._free_loose()
        for cohort in range(self.k):
            self._free_of(cohort)
            self._forget_scores(cohort)
            self.waiting[cohort, 1] = 0 if self.waiting[cohort, 1] == _NOTED else self.waiting[cohort, 1]
        self.unsettled = False

    def _free_loose(self) -> None:
        """Release the labels that came together with their prediction."""
        for place in self._loose:
            i = place
            self.more[_HELD, self._labels[i]] -= 1
        self.ready += self._loose
        self.held -= len(self._loose)
        self._loose = []

    def _free_of(self, cohort: int) -> None:
        for label in range(2):
            while self.head[cohort, label] != _NOWHERE:
                self._pop(cohort, label)

    def _free_first(self) -> None:
        """Release labels of the oldest predictions, as far as hardly any of these are pending."""
        told0 = told1 = pending = 0
        last = _NOWHERE
        for i in range(self.k - 1):
            told0 += self.told[i, 0] - self.released[i, 0]
            told1 += self.told[i, 1] - self.released[i, 1]
            if self.released[i, 0] + self.released[i, 1] == 0:
                pending += self._size[i] - self.told[i, 0] - self.told[i, 1]
            both = min(told0, told1)
            if both >= _FIRST and pending <= _HARDLY * both:
                last = i
        for i in range(last + 1):
            self._free_of(i)

    # Equal completeness

    def _equalise(self) -> None:
        """Release labels of each cohort, so that both classes are equally complete."""
        k = self.k - 1
        first = 0
        while first < k and self._is_empty(first):
            first += 1
        if first == k:
            return
        share = np.empty((4, k))
        complete = completeness(self, first, share)
        shares = share
        for i in range(first, k):
            if shares[3, i] > 0.0 and self.waiting[i, 1] == _NOTED:
                self._exclude(i, int(shares[3, i]) - 1)
            if self.head[i, 0] == _NOWHERE and self.head[i, 1] == _NOWHERE:
                continue
            least = min(shares[0, i], shares[1, i], 1.0)
            odd = shares[2, i] > 0.0
            old = self.now - self._time[i] > (_ODD if odd else _OLD) * complete
            for label in range(2):
                told = self.told[i, label]
                part = 0.0 if odd else min(1.0, least / max(shares[label, i], 1e-12))
                most = told
                if not old and part <= _COMPLETE:
                    by_chance = chance(self._start[i] // 32 + label)
                    most = int(math.floor(part * told + by_chance))  # noqa: RUF046  # in C a double
                while (
                    self.head[i, label] != _NOWHERE
                    and self.released[i, label] + self._stands[self.head[i, label]] <= most
                ):
                    self._pop(i, label)

    def _is_empty(self, cohort: int) -> bool:
        """Return whether nothing of a cohort is held or noted."""
        held = self.head[cohort, 0] != _NOWHERE or self.head[cohort, 1] != _NOWHERE
        return not held and self.waiting[cohort, 0] == 0

    def _exclude(self, cohort: int, label: int) -> None:
        """Learn what is pending in a cohort as of this label, and all that is held of it."""
        self._free_of(cohort)
        self.waiting[cohort, 1] = _EXCLUDED + label
        pending = self._size[cohort] - self.told[cohort, 0] - self.told[cohort, 1]
        noted, i = 0, self.head[cohort, _SCORE]
        while i != _NOWHERE:
            noted += self._stands[i]
            i = self._follow[i]
        if pending <= 0:
            self._forget_scores(cohort)
            return
        i = self.head[cohort, _SCORE]
        while i != _NOWHERE:
            self._labels[i] = label
            self.more[_FOUND, label] += 1
            units = min(float(_UNITS), 256.0 * self._stands[i] * pending / noted + 0.5)
            self._units[i] = max(1, int(units))
            self._at[i] = self._moment
            self.ready.append(i)
            i = self._follow[i]
        if noted:
            self.excluded += pending
        self.head[cohort, _SCORE] = self.tail[cohort, _SCORE] = _NOWHERE
        self.noted -= self.waiting[cohort, 0]
        self.waiting[cohort, 0] = 0

    # State

    def to_state(self) -> ReleaseState:
        """Return the state; no label is `ready`."""
        timed = self._moment == self._moment
        return ReleaseState(
            **self._laws_state(),
            **self._held_state(),
            settled=[bool(self.unsettled), bool(self.late_class), timed, self._came == self._came],
            found=[int(self.excluded), int(self.mistaken)],
            observed=[
                float(self.sum),
                float(self.squares),
                float(self._moment) if timed else 0.0,
                float(self._came) if self._came == self._came else 0.0,
            ],
            first=self.first,
        )

    def restore(self, state: ReleaseState) -> Self:
        """Replace the state by another."""
        self._restore_laws(state)
        self._restore_held(state)
        self.unsettled, self.late_class, timed, came = state.settled
        self.excluded, self.mistaken = state.found
        self.sum, self.squares, moment, last = state.observed
        self._moment, self._came = moment if timed else _NO_TIME, last if came else _NO_TIME
        self.first = state.first
        self.first.check()
        require(
            0 <= self.mistaken <= self.excluded <= MOST, f"{self.mistaken} of {self.excluded} by exclusion"
        )
        require(np.isfinite(state.observed).all(), "sums of what was expected are not finite")
        require(self.held == 0 or self.holds, "labels are held though no class is late")
        require(not self._loose or self.unsettled, "labels are held that came at once")
        marks = np.asarray(self.waiting)
        require(((marks[:, 0] == 0) | (marks[:, 1] == _NOTED)).all(), "scores of cohorts that note none")
        return self


def _unlike(count: float, expected: float) -> bool:
    """Return whether a number of labels is much larger than expected."""
    return bool(count > _TIMES * expected + _ERRORS * math.sqrt(_TIMES * expected + 1.0))
