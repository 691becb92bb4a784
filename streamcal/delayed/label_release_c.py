"""Release of labels: when a label that has come is learned.

While no class comes later than the other, each label is learned when it comes. While one does, labels are
held by cohort. The less complete class of a cohort is released as it is told; of the other class, so many
that both are equally complete. A cohort that contradicts the laws of the delays is held until hardly
anything of it is pending. At the start, labels are held until the first are a fair sample (`first_labels`).

Once one class is all but complete in a cohort, its predictions without a label are of the other, and learned
so: labels *by exclusion*. The label that comes later is learned only if it is another.

Each cohort has a list of the labels of each class that are held, in the order in which they came, and one of
scores of predictions without a label. At most `MOST_HELD` labels are held: then every second one is left out,
and the other stands for both.

Compiled where there is a C compiler; `label_release_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any, Final, Self

import numpy as np

from streamcal.base.values import Floats
from streamcal.delayed.delay_laws_c import COHORT, COMPLETE, STORED_FIELDS, DelayLaws, completeness
from streamcal.delayed.first_labels import FirstLabels, Observed
from streamcal.delayed.release_state import SCALARS, HeldRow, Released, ReleaseState
from streamcal.sketch import checks
from streamcal.sketch.counts_c import AT_ONCE
from streamcal.sketch.decoding import require

MOST_HELD: Final = 16_384
"""Number of labels held, from which they are thinned."""

_NOTES: Final = 64  # scores noted of a cohort that is merged, …
_FEW: Final = 12  # … or so many, …
_MANY_NOTES: Final = 4096  # … while more than this are noted of all
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
_COMPLETE, _COHORT = COMPLETE, COHORT
_NOTED, _EXCLUDED = 1, 2  # marks of cohorts: scores are noted; learned by exclusion as label 0, or plus 1
_MOST_HELD = MOST_HELD
_ALL = 1 << 62  # labels
_SCORE = 2  # list of a cohort that has scores without a label, beside those of labels 0 and 1
_NOWHERE, _NO_TIME, _NEVER = -1, float("nan"), float("-inf")
_HELD, _FOUND, _CONFIRMED = 0, 1, 2  # rows of `LabelRelease.more`


class Held:
    """A label that waits to be learned, or the score of a prediction that waits for its label: `HeldRow`."""

    def __init__(
        self, score: float, label: int, index: int, weight: float, time: float, memo: Any, stands: int
    ) -> None:
        self.score, self.label, self.index, self.weight = score, label, index, weight
        self.time, self.memo, self.stands = time, memo, stands

    def row(self) -> HeldRow:
        """Return the fields, as a state has them."""
        return HeldRow(self.score, self.label, self.index, self.weight, self.time, self.memo, self.stands)


class LabelRelease(DelayLaws):
    """Labels in front of an engine.

    If labels may not have weights other than 1 (``weighs``), none are found by exclusion, and more than
    `MOST_HELD` are held.
    """

    def __init__(self, *, weighs: bool = True) -> None:
        super().__init__()
        self._weighs = self.excludes = weighs
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
        self._moment = self._came = _NO_TIME  # latest event time of a label, and that of the last
        self.held = 0
        """Number of labels held."""
        self.more: Any = np.zeros((3, 2), np.int64)
        """By class: labels held; labels by exclusion, as learned; and labels that came and confirmed them."""
        self.ready: list[Held] = []
        """Labels to be learned."""
        self.loose: list[Held] = []
        """Held labels that came together with their prediction."""
        self.lists: list[list[list[Held]]] = []
        """By cohort: held labels 0, held labels 1, and scores of predictions without a label."""
        self.noted = 0
        """Number of scores noted in cohorts."""
        self._young: list[float] = []  # scores to be noted in the first cohort, once there is one

    def beyond(self, label: int) -> int:
        """Return the labels of a class that came, less those learned; below 0 by labels by exclusion."""
        return int(self.more[_HELD, label] - self.more[_FOUND, label] + self.more[_CONFIRMED, label])

    def _push(self, cohort: int, held: Held) -> None:
        """Hold a label."""
        if self.held >= _MOST_HELD and self._weighs:
            self._thin()
        self.held += 1
        self.more[_HELD, held.label] += 1
        waiting: list[Held] = self.lists[cohort][held.label] if cohort >= 0 else self.loose
        waiting.append(held)

    def _pop(self, cohort: int, label: int, most: int) -> None:
        """Release the first held labels of a class of a cohort, until so many are released."""
        waiting, count = self.lists[cohort][label], 0
        for held in waiting:
            if self.released[cohort, label] + held.stands > most:
                break
            self.released[cohort, label] += held.stands
            self.more[_HELD, label] -= held.stands
            count += 1
        if count:  # few cohorts have any to be released
            self.ready += waiting[:count]
            del waiting[:count]
            self.held -= count

    def _unnote(self, cohort: int, score: float, index: int) -> None:
        """Forget the score of a prediction that has got a label, if it is noted."""
        notes = self.lists[cohort][_SCORE]
        for place, note in enumerate(notes):
            if note.score == score and note.index >= index:
                del notes[place]
                self.noted -= 1
                return

    def _forget_scores(self, cohort: int) -> None:
        """Forget the scores of a cohort without a label."""
        notes = self.lists[cohort][_SCORE]
        self.noted -= len(notes)
        notes.clear()

    def _thin(self) -> None:
        """Leave out every second label of each class of each cohort; let the other stand for both."""
        for of_cohort in self.lists:
            for waiting in of_cohort[:_SCORE]:
                self.held -= _thinned(waiting)

    def _join(self, j: int, i: int) -> None:
        """Add a cohort to the one before it, with the labels held."""
        DelayLaws._join(self, j, i)
        if self.mark[j] != self.mark[i]:
            self._forget_scores(j)
            self._forget_scores(i)
            self.mark[j] = 0
        for waiting, more in zip(self.lists[j], self.lists[i], strict=True):
            waiting += more
        notes, most = self.lists[j][_SCORE], _NOTES if self.noted <= _MANY_NOTES else _FEW
        while len(notes) > most:
            self.noted -= _thinned(notes)

    def _move(self, j: int, i: int) -> None:
        """Put a cohort in an earlier place."""
        DelayLaws._move(self, j, i)
        self.lists[j] = self.lists[i]

    def released_labels(self) -> Released:
        """Return the labels that are ready, and forget them."""
        index, scores = (
            np.array([getattr(each, name) for each in self.ready]) for name in ("index", "score")
        )
        # Labels of one batch of predictions may have one index: then by chance, not one class first.
        mixed = np.where(index >= 0, (scores * 4294967296.0).astype(np.int64) * 2654435761 & 0xFFFFFFFF, 0)
        order = np.lexsort((mixed, np.maximum(index, AT_ONCE)))
        ready, self.ready = [self.ready[place] for place in order.tolist()], []
        return Released(
            scores[order],
            np.array([held.label for held in ready], np.int8),
            index[order],
            np.array([held.weight for held in ready]),
            np.array([held.time for held in ready]),
            [held.memo for held in ready],
        )

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
        cohorts = self.cohorts[: self.k]
        told, sizes = cohorts["told"], cohorts["size"].copy()
        if self.k and not self.drawn:  # predictions of the last one are still coming
            sizes[-1] = self.n - cohorts["start"][-1]
        some = told[told.sum(axis=1) < COMPLETE * sizes].sum(axis=0)
        return bool((some <= _PARTLY * told.sum(axis=0)).all())

    def complete_until(self) -> int:
        """Return the number of the first prediction whose labels may be incomplete."""
        if self.known:
            for i in range(self.k - 2, -1, -1):
                age = self.now - self._time[i]
                if min(self.law(0, age), self.law(1, age)) >= _COMPLETE:
                    return int(self._start[i + 1])
        return 0

    # Predictions

    def expect(self, probability: float) -> None:
        """Note what is expected of the next prediction, while `unsettled`; `predict` follows."""
        self.sum += probability
        self.squares += probability * probability
        if self.k:
            self.expected[self.k - 1, 0] += probability
            self.expected[self.k - 1, 1] += probability * probability

    def begin(self) -> None:
        """Make a cohort for the next predictions; the first is that of all so far."""
        DelayLaws.begin(self)
        del self.lists[self.k - 1 :]  # of cohorts that were merged
        self.lists.append([[], [], []])
        self.mark[self.k - 1] = _NOTED if self.excludes and self.holds else 0
        if self.k == 1:
            self.expected[0, 0], self.expected[0, 1] = self.sum, self.squares
            n, young, self.n, self._young = self.n, np.array(self._young), 0, []
            self.note_many(young)
            self.n = n

    def note(self, score: float) -> None:
        """Note the score of the next prediction, while it `holds`; `predict` follows."""
        cohort = self.k - 1
        if cohort < 0:
            if self.excludes:
                self._young.append(score)
        elif self.mark[cohort] == _NOTED:
            self.lists[cohort][_SCORE].append(Held(score, _SCORE, self.n, 1.0, _NO_TIME, None, 1))
            self.noted += 1

    def note_many(self, scores: Floats) -> None:
        """Note the scores of the next predictions, while it `holds`; `predict_many` follows."""
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
            self.mark[self.k - 1] = _NOTED if self.excludes else 0
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
        weight: float,
        came: float,
        time: float,
        expected: float,
        memo: Any,
    ) -> bool:
        """Take a label; return whether it is to be learned now. If not, those that are `ready` are.

        Parameters
        ----------
        score, label, index, weight, memo
            As `streamcal.engine.event_rules_c.EventRules.learn_one`; index below 0: the label came at once.
        came, time
            Event time of the label, NaN or -inf if there is none; and time at which it is to be learned.
        expected
            What was expected of the label, while `unsettled`.
        """
        cohort = _NOWHERE
        if self.n > 0 and index >= (self._start[0] if self.k else 0):
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
            self._unnote(cohort, score, index)
            if came == came:
                self._moment = came if self._moment != self._moment else max(self._moment, came)
            mark = self.mark[cohort]
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
        self._push(cohort, Held(score, label, index, weight, time, memo, 1))
        if self.unsettled:
            if cohort >= 0:
                self.expected[cohort, 2] += expected
            self.first.add(expected, label, self.rank(index, cohort) if cohort >= 0 else index)
            if weight != 1.0 and not self.drawn:  # it stands for others: a class may be rare, but not late
                if self.first.told:
                    self._free_all()
            elif self.n < _COHORT or index < 0:
                self._judge_first()
            elif self.first.labels % _COHORT == 0:  # no prediction may follow
                self._settle()
        return False

    # The first labels

    def _judge_first(self) -> None:
        """Release all labels once the first are fair."""
        if self.first.judge(Observed(self.asked(), self.sum, self.squares)) and not self.late_class:
            self._free_all()
        self.late_class |= self.first.one_class_late

    def _settle(self) -> None:
        """Decide at the end of a cohort whether the first labels are fair."""
        if self.on:
            self.unsettled = False
            self._free_loose()
            return
        # Of cohorts older than most delays, what is pending is late.
        cohorts = self.cohorts[: self.k - 1]
        is_old = self.now - cohorts["time"] >= self.usual(_USUAL)
        older, younger = cohorts[is_old], cohorts[~is_old]
        size, (negatives, positives) = int(older["size"].sum()), older["told"].sum(axis=0).tolist()
        told, (sum_, squares, expected) = negatives + positives, older["expected"].sum(axis=0).tolist()
        young_negatives, young_positives = younger["told"].sum(axis=0).tolist()
        young, young_expected = young_negatives + young_positives, float(younger["expected"][:, 2].sum())
        old = FirstLabels(newest=size, before=told, expected=expected, labels=told, positives=positives)
        of_old = Observed(size, sum_, squares)
        old.judge(of_old)
        fair = self.first.judge(Observed(self.asked(), self.sum, self.squares)) and (told > 0 or size == 0)
        self.late_class |= self.first.one_class_late or old.one_class_late
        # … and what has come of younger ones has the classes of the older, if neither class is late.
        scale = (positives + 0.5) / (expected + 0.5)
        likely = min(float(young), scale * young_expected)
        unlike = _unlike(young_positives, likely) or _unlike(young_negatives, young - likely)
        self.late_class |= told > 0 and unlike
        # Where hardly anything is pending, all is told: that is no sign that what is not is so by chance.
        at_random = size - told > _MANY * size and old.at_random(of_old, either=True)
        fair = fair and (at_random or (self.first.enough and not self.late_class))
        # However few of a class come: both have, and what has not come for long will not.
        fewest = min(negatives + young_negatives, positives + young_positives)
        both = fewest >= _FIRST and told >= _MOSTLY * size
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
        self._young = []
        for cohort in range(self.k):
            self._free_of(cohort)
            self._forget_scores(cohort)
            self.mark[cohort] = 0 if self.mark[cohort] == _NOTED else self.mark[cohort]
        self.unsettled = False

    def _free_loose(self) -> None:
        """Release the labels that came together with their prediction."""
        for held in self.loose:
            self.more[_HELD, held.label] -= 1
        self.ready += self.loose
        self.held -= len(self.loose)
        self.loose = []

    def _free_of(self, cohort: int) -> None:
        for label in range(2):
            self._pop(cohort, label, _ALL)

    def _free_first(self) -> None:
        """Release labels of the oldest predictions, as far as hardly any of these are pending."""
        cohorts = self.cohorts[: self.k - 1]
        pending = cohorts["size"] - cohorts["told"].sum(axis=1)
        pending = np.cumsum(np.where(cohorts["released"].any(axis=1), 0, pending))
        rarer = np.cumsum(cohorts["told"] - cohorts["released"], axis=0).min(axis=1)
        enough = np.flatnonzero((rarer >= _FIRST) & (pending <= _HARDLY * rarer))
        for i in range(enough[-1] + 1 if len(enough) else 0):
            self._free_of(i)

    # Equal completeness

    def _equalise(self) -> None:
        """Release labels of each cohort, so that both classes are equally complete."""
        k = self.k - 1
        first = 0
        while first < k and not any(self.lists[first]):
            first += 1
        if first == k:
            return
        shares = np.empty((4, k))
        complete = completeness(self, first, shares)
        for i in range(first, k):
            zeros, ones, notes = self.lists[i]
            if shares[3, i] > 0.0 and self.mark[i] == _NOTED and notes:
                self._exclude(i, int(shares[3, i]) - 1)
            if not (zeros or ones):
                continue
            least = min(shares[0, i], shares[1, i], 1.0)
            odd = shares[2, i] > 0.0
            old = self.now - self._time[i] > (_ODD if odd else _OLD) * complete
            for label in range(2):
                told = self.told[i, label]
                part = 0.0 if odd else min(1.0, least / max(shares[label, i], 1e-12))
                most = told
                if not old and part <= _COMPLETE:
                    by_chance = _chance(self._start[i] // 32 + label)
                    most = int(math.floor(part * told + by_chance))  # noqa: RUF046  # in C a double
                self._pop(i, label, most)

    def _exclude(self, cohort: int, label: int) -> None:
        """Learn what is pending in a cohort as of this label, and all that is held of it."""
        self._free_of(cohort)
        self.mark[cohort] = _EXCLUDED + label
        pending = self._size[cohort] - self.told[cohort, 0] - self.told[cohort, 1]
        notes = self.lists[cohort][_SCORE] if pending > 0 else []
        noted = sum([note.stands for note in notes])
        for note in notes:
            self.more[_FOUND, label] += 1
            weight = float(note.stands) * pending / noted
            self.ready.append(Held(note.score, label, note.index, weight, self._moment, None, 1))
        if noted:
            self.excluded += pending
        self._forget_scores(cohort)

    # State

    def to_state(self) -> ReleaseState:
        """Return the state, without what is as in a new one; no label is `ready`."""
        own = {name: getattr(self, name) for name in SCALARS}
        own = {name: value for name, value in own.items() if value == value and value != SCALARS[name]}
        made = ReleaseState(**own, young=np.array(self._young))  # without NaN, as is usual
        if not (self.k or self.loose):
            return made
        made.sums, made.laws = np.array(self._sums).ravel(), np.array(self._laws).ravel()
        made.histogram, made.more = np.array(self._histogram), np.array(self.more).ravel()
        made.cohorts = self.cohorts[: self.k].astype(STORED_FIELDS).tobytes()
        made.lists = [[[held.row() for held in waiting] for waiting in each] for each in self.lists]
        made.loose = [held.row() for held in self.loose]
        return made

    def restore(self, state: ReleaseState) -> Self:
        """Go on from a state; the release must be new."""
        for name in SCALARS:
            setattr(self, name, getattr(state, name))
        self._young = checks.as_scores(state.young).tolist()
        if state.cohorts is None:
            require(len(self._young) in (0, self.n) and self.n < _COHORT, "predictions without cohorts")
            return self
        self._restore_laws(state)
        self.more = state.more.reshape(3, 2)
        require(len(state.lists) == self.k, f"held labels of {len(state.lists)} cohorts")
        for of_cohort in state.lists:
            for label, waiting in enumerate(of_cohort):
                require(all(held.label == label for held in waiting), "held labels of another class")
            self.held += len(of_cohort[0]) + len(of_cohort[1])
            self.noted += len(of_cohort[_SCORE])
        require(all(held.label < _SCORE for held in state.loose), "held labels of no class")
        self.held += len(state.loose)
        self.lists = [[[Held(*row) for row in rows] for rows in of_cohort] for of_cohort in state.lists]
        self.loose = [Held(*row) for row in state.loose]
        return self


def _thinned(waiting: list[Held]) -> int:
    """Let one of every two labels, or scores, stand for both; return how many were left out."""
    count = len(waiting)
    pairs = zip(waiting[::2], waiting[1::2], strict=False)
    waiting[: count - count % 2] = [_one_of(*pair) for pair in pairs]
    return count // 2


def _one_of(first: Held, second: Held) -> Held:
    """Return one of two labels, drawn by how many each stands for, so that it stands for both."""
    stands, number = first.stands + second.stands, first.index * 31  # a label has a chance of its own
    number += int(first.score * 4294967296.0)
    chosen = second if _chance(number) * stands >= first.stands else first
    chosen.weight, chosen.stands = first.weight + second.weight, stands
    return chosen


def _unlike(count: float, expected: float) -> bool:
    """Return whether a number of labels is much larger than expected."""
    return bool(count > _TIMES * expected + _ERRORS * math.sqrt(_TIMES * expected + 1.0))


def _chance(number: int) -> float:
    """Return a number in [0, 1) that looks random."""
    return ((number * 2654435761) & 0xFFFFFFFF) / 4294967296.0
