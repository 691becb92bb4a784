"""Labels that are held, by cohort and class, and scores of predictions without a label.

Each cohort has a list of the labels of each class, in the order in which they came, and one of scores. At
most `MOST_HELD` labels are held: then every second one is left out, and the other stands for both.

Compiled where there is a C compiler; `held_labels_c.pxd` has the types.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from streamcal.join.entries import Memo
from streamcal.release.delay_laws_c import DelayLaws
from streamcal.release.release_state import ReleaseState
from streamcal.sketch import checks
from streamcal.sketch.buffers_c import AT_ONCE
from streamcal.sketch.decoding import MOST, require, within
from streamcal.sketch.weighing import ONE
from streamcal.values import Counts, Floats, Labels

__all__ = ["CONFIRMED", "FOUND", "HELD", "MOST_HELD", "SCORE", "UNITS", "HeldLabels", "Released", "chance"]

MOST_HELD: Final = 16_384
"""Number of labels held, from which they are thinned."""

_NOTES: Final = 64  # scores noted of a cohort that is merged, …
_FEW: Final = 12  # … or so many, …
_MANY: Final = 4096  # … while more than this are noted of all
UNITS: Final = 1 << 30
"""Greatest weight that a label may stand for, in units of 1/256."""
HELD, FOUND, CONFIRMED = 0, 1, 2
"""Rows of `HeldLabels.more`."""
SCORE: Final = 2
"""List of a cohort that has scores without a label, beside those of labels 0 and 1."""

# As C has them.
_MOST_HELD, _UNITS, _SCORE = MOST_HELD, UNITS, SCORE
_NOWHERE, _NO_TIME, _ONE = -1, float("nan"), ONE
_HELD, _FOUND, _CONFIRMED = HELD, FOUND, CONFIRMED


class Released(NamedTuple):
    """Labels to be learned, in the order of their predictions."""

    scores: Floats
    labels: Labels
    prediction_index: Counts
    units: Counts
    times: Floats
    """Event times of the labels, float64[k]; NaN where there is none."""
    memos: list[Memo | None]


class HeldLabels(DelayLaws):
    """Labels held.

    Parameters
    ----------
    weighs
        Whether labels may have weights other than 1: otherwise more than `MOST_HELD` are held.
    """

    def __init__(self, *, weighs: bool = True) -> None:
        super().__init__()
        self._weighs = weighs
        self.held = 0
        """Number of labels held."""
        self.more: Counts = np.zeros((3, 2), np.int64)
        """By class: labels held; labels by exclusion, as learned; and labels that came and confirmed them."""
        self.ready: list[int] = []  # places of labels to be learned
        self._loose: list[int] = []  # places of held labels that came together with their prediction
        self.memos: dict[int, Memo] = {}
        self.noted = 0
        """Number of scores noted."""
        self._free = _NOWHERE
        self._room = 0
        self._give(0)

    def beyond(self, label: int) -> int:
        """Return the number of labels of a class that have come, less those that were learned.

        It may be below 0, by the labels that were found by exclusion.
        """
        return int(self.more[_HELD, label] - self.more[_FOUND, label] + self.more[_CONFIRMED, label])

    def _give(self, room: int) -> None:
        """Make memory for so many held labels."""
        kinds = np.float64, np.int8, np.int64, np.int32, np.int32, np.float64, np.int32
        before = getattr(self, "_store", None)
        self._store: list[Any] = [np.zeros(room, kind) for kind in kinds]
        if before is not None:
            for column, old in zip(self._store, before, strict=True):
                column[: self._room] = old
        store = self._store
        self._scores, self._labels, self._index, self._units, self._stands, self._at, self._follow = store
        for i in range(room - 1, self._room - 1, -1):
            self._follow[i], self._free = self._free, i
        self._room = room

    def _push(
        self,
        cohort: int,
        score: float,
        label: int,
        index: int,
        units: int,
        time: float,
        memo: Memo | None,
    ) -> None:
        """Hold a label."""
        if self.held >= _MOST_HELD and self._weighs:
            self._thin()
        self.held += 1
        self.more[_HELD, label] += 1
        if cohort >= 0:
            i = self._place(cohort, label, score, index, units, time)
        else:
            i = self._put(score, label, index, units, time)
            self._loose.append(i)
        if memo is not None:
            self.memos[i] = memo

    def _place(self, cohort: int, label: int, score: float, index: int, units: int, time: float) -> int:
        """Put a score behind the others of its label, 2: none yet, and cohort; return its place."""
        i = self._put(score, label, index, units, time)
        self._append(cohort, label, i)
        return i

    def _put(self, score: float, label: int, index: int, units: int, time: float) -> int:
        """Take memory for a score; return its place."""
        if self._free == _NOWHERE:
            self._give(max(16, 2 * self._room))
        i = self._free
        self._free = self._follow[i]
        self._scores[i], self._labels[i], self._index[i], self._at[i] = score, label, index, time
        self._units[i], self._stands[i], self._follow[i] = units, 1, _NOWHERE
        return i

    def _append(self, cohort: int, label: int, i: int) -> None:
        """Put a place behind the others of its label and cohort."""
        if self.tail[cohort, label] == _NOWHERE:
            self.head[cohort, label] = self.tail[cohort, label] = i
        else:
            self._follow[self.tail[cohort, label]] = i
            self.tail[cohort, label] = i

    def _pop(self, cohort: int, label: int) -> None:
        """Release the first held label of a class of a cohort."""
        i = self.head[cohort, label]
        self.head[cohort, label] = self._follow[i]
        if self._follow[i] == _NOWHERE:
            self.tail[cohort, label] = _NOWHERE
        self.released[cohort, label] += self._stands[i]
        self.more[_HELD, label] -= self._stands[i]
        self.ready.append(i)
        self.held -= 1

    def _unnote(self, cohort: int, score: float, index: int) -> None:
        """Forget the score of a prediction that has got a label, if it is noted."""
        before, i = _NOWHERE, self.head[cohort, _SCORE]
        while i != _NOWHERE:
            after = self._follow[i]
            if self._scores[i] == score and self._index[i] >= index:
                if before == _NOWHERE:
                    self.head[cohort, _SCORE] = after
                else:
                    self._follow[before] = after
                if after == _NOWHERE:
                    self.tail[cohort, _SCORE] = before
                self._follow[i], self._free = self._free, i
                self.waiting[cohort, 0] -= 1
                self.noted -= 1
                return
            before, i = i, after

    def _forget_scores(self, cohort: int) -> None:
        """Forget the scores of a cohort without a label."""
        while self.head[cohort, _SCORE] != _NOWHERE:
            i = self.head[cohort, _SCORE]
            self.head[cohort, _SCORE] = self._follow[i]
            self._follow[i], self._free = self._free, i
        self.tail[cohort, _SCORE] = _NOWHERE
        self.noted -= self.waiting[cohort, 0]
        self.waiting[cohort, 0] = 0

    def _thin(self) -> None:
        """Leave out every second label of each class of each cohort; let the other stand for both."""
        for cohort in range(self.k):
            for label in range(2):
                self.held -= self._thinned(cohort, label)

    def _thinned(self, cohort: int, label: int) -> int:
        """Thin what a cohort has of a label; return how many were left out."""
        count, i = 0, self.head[cohort, label]
        while i != _NOWHERE:
            j = self._follow[i]
            if j != _NOWHERE and self._units[i] + self._units[j] <= _UNITS:
                stands = self._stands[i] + self._stands[j]
                if self._hash(i) * stands >= self._stands[i]:
                    self._scores[i], self._index[i], self._at[i] = (
                        self._scores[j],
                        self._index[j],
                        self._at[j],
                    )
                    if j in self.memos:
                        self.memos[i] = self.memos[j]
                self._units[i] += self._units[j]
                self._stands[i] += self._stands[j]
                self._follow[i] = self._follow[j]
                if self.tail[cohort, label] == j:
                    self.tail[cohort, label] = i
                self.memos.pop(j, None)
                self._follow[j], self._free = self._free, j
                count += 1
            i = self._follow[i]
        return count

    def _hash(self, i: int) -> float:
        """Return a number in [0, 1) that belongs to a held label."""
        index = int(self._index[i])
        return chance(index * 31 + int(self._scores[i] * 4294967296.0))

    def _join(self, j: int, i: int) -> None:
        """Add a cohort to the one before it, with the labels held."""
        DelayLaws._join(self, j, i)
        if self.waiting[j, 1] != self.waiting[i, 1]:
            self._forget_scores(j)
            self._forget_scores(i)
            self.waiting[j, 1] = 0
        self.waiting[j, 0] += self.waiting[i, 0]
        for label in range(3):
            if self.head[i, label] == _NOWHERE:
                continue
            if self.head[j, label] == _NOWHERE:
                self.head[j, label] = self.head[i, label]
            else:
                self._follow[self.tail[j, label]] = self.head[i, label]
            self.tail[j, label] = self.tail[i, label]
        thinned, most = 1, _NOTES if self.noted <= _MANY else _FEW
        while self.waiting[j, 0] > most and thinned:
            thinned = self._thinned(j, _SCORE)
            self.waiting[j, 0] -= thinned
            self.noted -= thinned

    def released_labels(self) -> Released:
        """Return the labels that are ready, and forget them."""
        places = np.array(self.ready, np.int64)
        index, scores = np.asarray(self._index)[places], np.asarray(self._scores)[places]
        # Labels of one batch of predictions may have one index: then by chance, not one class first.
        mixed = np.where(index >= 0, (scores * 4294967296.0).astype(np.int64) * 2654435761 & 0xFFFFFFFF, 0)
        order = np.lexsort((mixed, np.maximum(index, AT_ONCE)))
        sorted_ = places[order]
        given = Released(
            scores[order],
            np.asarray(self._labels)[sorted_],
            index[order],
            np.asarray(self._units)[sorted_].astype(np.int64),
            np.asarray(self._at)[sorted_],
            [self.memos.pop(i, None) for i in sorted_.tolist()] if self.memos else [None] * len(places),
        )
        for i in self.ready:
            self._follow[i], self._free = self._free, i
        self.ready = []
        return given

    # State

    def _held_state(self) -> dict[str, Any]:
        """Return the fields of `ReleaseState` that are of the labels held."""
        places, sizes = list[int](), list[int]()
        for cohort in range(self.k):
            for label in range(3):
                before, i = len(places), self.head[cohort, label]
                while i != _NOWHERE:
                    places.append(i)
                    i = self._follow[i]
                sizes.append(len(places) - before)
        sizes.append(len(self._loose))
        places += self._loose
        scores, labels, index, units, stands, at = (np.asarray(column)[places] for column in self._store[:6])
        return {
            "more": np.asarray(self.more).ravel().copy(),
            "held": np.array(sizes, np.int64),
            "scores": scores,
            "labels": labels,
            "index": index,
            "units": units,
            "stands": stands,
            "times": at,
            "memos": {place: self.memos[i] for place, i in enumerate(places) if i in self.memos},
        }

    def _restore_held(self, state: ReleaseState) -> None:
        """Restore the labels held, and the scores noted, after the laws."""
        k, head, tail = int(self.k), np.asarray(self.head), np.asarray(self.tail)
        self.more = within(state.more, 0, MOST, "labels by class", 6).reshape(3, 2).copy()
        sizes = within(state.held, 0, MOST, "held labels")
        rows, loose = sizes[: 3 * k].reshape(k, 3), int(sizes[3 * k])
        number = int(sizes.sum())
        columns = state.scores, state.labels, state.index, state.units, state.stands, state.times
        require(all(len(column) == number for column in columns), f"columns of {number} held labels")
        checks.as_scores(state.scores)
        within(state.labels, 0, 2, "held labels")
        within(state.index, -2, self.n, "predictions of held labels")
        within(state.units, 1, _UNITS, "weights of held labels")
        within(state.stands, 1, _UNITS, "numbers of held labels")
        ends = np.cumsum(rows).reshape(k, 3)
        stands = np.concatenate(([0], np.cumsum(state.stands, dtype=np.int64)))
        held = (stands[ends] - stands[ends - rows])[:, :2]
        require(
            (held == np.asarray(self.told) - np.asarray(self.released)).all(), "other held labels than told"
        )
        require(not np.isposinf(state.times).any(), "times of held labels")
        require(all(0 <= place < number for place in state.memos), "what is kept with held labels")
        self.held, self.ready, self._free, self._room = int(rows[:, :2].sum()) + loose, [], _NOWHERE, 0
        np.asarray(self.waiting)[:, 0] = rows[:, 2]
        self.noted = int(rows[:, 2].sum())
        del self._store
        self._give(number)
        for column, values in zip(self._store, columns, strict=False):
            column[:number] = values
        self._free = _NOWHERE
        self.memos = dict(state.memos)
        head[:], tail[:] = _NOWHERE, _NOWHERE
        follow, place = np.asarray(self._follow), 0
        follow[:number] = np.arange(1, number + 1)
        for which, count in enumerate(rows.ravel().tolist()):
            end = place + count
            if count:
                cohort, label = divmod(which, 3)
                head[cohort, label], tail[cohort, label] = place, end - 1
                follow[end - 1] = _NOWHERE
                require((state.labels[place:end] == label).all(), "held labels of another class")
            place = end
        checks.as_labels(state.labels[place:])
        self._loose = list(range(place, number))


def chance(number: int) -> float:
    """Return a number in [0, 1) that looks random."""
    return ((number * 2654435761) & 0xFFFFFFFF) / 4294967296.0
