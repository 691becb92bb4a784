"""Several fields whose corrections add up on the logit, fitted in turn: backfitting online.

Each label updates every field once, with the sum of the others as offset. That sum is the present one: with
labels that are late, the sum as of the prediction would let all fields learn the same deviation until the
first label that shows it, and overshoot together. The pooled probability is that of the prediction.

**Common deviation.** If labels are late, pooled probabilities are off for all segments alike while the pooled
engine catches up. A correction that took this up would add it a second time later. So a common offset,
remembered over 500 labels, is fitted in turn like a field, and is never served.

Compiled where there is a C compiler; `fields_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from streamcal.segments.corrections_c import (
    READ,
    Corrections,
    CorrectionsState,
    Name,
    expit,
    logit_of,
    taken_back,
)
from streamcal.sketch.decoding import Count, Finite, require

__all__ = ["CENTRED", "MOST_COMMON", "TERMS", "Fields", "FieldsState"]

CENTRED: Final = 1000
"""Labels whose mean logit is the centre."""
TERMS: Final = 5
"""Numbers of a field in a forecast: what it adds to the logit, δ of slow, fast and own, if it has one, and
how many labels its value has."""
MOST_COMMON: Final = 125.0
"""Information about the common offset that 500 labels can have."""

# As C has them.
_COMMON = 1.0 - 1.0 / 500.0
_COMMON_PRECISION = 25.0
_CENTRED = CENTRED
_FARTHEST = 4.0  # from the centre, where slopes end
_READ = READ
_TERMS = TERMS
_NONE = float("nan")


class FieldsState(msgspec.Struct):
    """State of all fields."""

    fields: list[CorrectionsState]
    centre: Finite
    centred: Count
    score: Finite
    information: Finite


class Fields:
    """Corrections of ``count`` fields; ``read_row`` gives those of a store, by field and name."""

    def __init__(self, count: int, read_row: Callable[[int, Name], bytes | None] | None = None) -> None:
        readers = [None if read_row is None else partial(read_row, field) for field in range(count)]
        self.fields = [Corrections(reader) for reader in readers]
        self._centre, self._centred = 0.0, 0
        self._score = self._information = 0.0  # of the common deviation
        self._places: Any = np.zeros(count, np.int64).data
        self._read: Any = np.zeros(_READ * count).data
        self._then: Any = np.zeros(_TERMS * count).data
        self.served = 0.0
        """Probability of the last forecast."""
        self.labels = 0.0
        """Number of labels of the first field's value, as of the last forecast or with the last label."""

    @property
    def centre(self) -> float:
        """Logit at which slopes add nothing."""
        return self._centre

    @property
    def farthest(self) -> float:
        """Distance of the logit from the centre, beyond which slopes add no more."""
        return _FARTHEST

    def added(self, logit: float, names: Sequence[Name]) -> list[float]:
        """Return what each field adds to the logit of a pooled probability, without own engines."""
        x, read, out = self._x(logit), self._read, []
        for i in range(len(self.fields)):
            field = self.fields[i]
            field.read(field.find(names[i]), x, _NONE, read, 0)
            out.append(read[0])
        return out

    def forecast(self, pooled: float, names: Sequence[Name], own: Sequence[float] | None) -> tuple[Any, ...]:
        """Return values of the fields and their forecast: what `learn` is to be given with the label.

        Parameters
        ----------
        pooled
            Pooled probability.
        names, own
            Value of each field, and δ of its own engine (NaN: none); None: no field has one.
        """
        logit, read, added = logit_of(pooled), self._read, 0.0
        x, out = self._x(logit), [*names, pooled]
        for i in range(len(self.fields)):
            field = self.fields[i]
            delta = _NONE if own is None else own[i]
            field.read(field.find(names[i]), x, delta, read, 0)
            added += read[0]
            out.append(read[0])
            out.append(read[1])
            out.append(read[2])
            out.append(None if delta != delta else delta)
            out.append(read[8])
            if i == 0:
                self.labels = read[8]
        self.served = expit(logit + added) if added else pooled
        return tuple(out)

    def learn(self, label: int, given: tuple[Any, ...]) -> None:
        """Learn a label, 0 or 1, of what `forecast` has given."""
        logit = self._take(given)
        if self._centred < _CENTRED:
            self._centred += 1
            self._centre += (logit - self._centre) / self._centred
        x, read, count = self._x(logit), self._read, len(self.fields)
        for i in range(count):
            field = self.fields[i]
            self._places[i] = field.place(given[i])
        before, now, noise = self._sums(logit, x)
        common = self._score / (self._information + _COMMON_PRECISION)
        p = expit(now)
        curvature = p * (1.0 - p)
        self._information = _COMMON * self._information + curvature
        self._score = _COMMON * self._score + curvature * common + label - p
        for i in range(count):
            field, at = self.fields[i], _TERMS * i
            others, their_noise = now - read[_READ * i], noise - read[_READ * i + 3]
            without = before - self._then[at]
            field.learn(
                self._places[i], x, label, read, _READ * i, others, their_noise, self._then, at, without
            )
        field = self.fields[0]
        self.labels = field.labels_at(self._places[0])

    def relabel(self, label: int, given: tuple[Any, ...]) -> None:
        """Replace a label that was learned before by ``label``; parameters as in `learn`.

        Each field takes a share of the change by its variance: with the whole, all would make up for it.
        """
        logit = self._take(given)
        x, read, count = self._x(logit), self._read, len(self.fields)
        for i in range(count):
            field = self.fields[i]
            self._places[i] = field.find(given[i])
        _, now, noise = self._sums(logit, x)
        change = 2.0 * label - 1.0
        self._score = taken_back(self._score, change)
        for i in range(count):
            field, variance = self.fields[i], read[_READ * i + 3]
            if self._places[i]:
                share, others = change * variance / noise, now - read[_READ * i]
                their_noise, at = noise - variance, _TERMS * i
                field.relabel(self._places[i], x, share, read, _READ * i, their_noise, others, self._then, at)

    def _take(self, given: tuple[Any, ...]) -> float:
        """Take the forecast of each field as of the prediction; return the logit of the pooled one."""
        count = len(self.fields)
        for k in range(_TERMS * count):
            number = given[count + 1 + k]
            self._then[k] = _NONE if number is None else number
        return logit_of(given[count])

    def _sums(self, logit: float, x: float) -> tuple[float, float, float]:
        """Read each field at its place; return the logits as of the prediction and now, and the variance."""
        read = self._read
        before, added, noise = logit, 0.0, 0.0
        for i in range(len(self.fields)):
            field = self.fields[i]
            field.read(self._places[i], x, self._then[_TERMS * i + 3], read, _READ * i)
            added += read[_READ * i]
            noise += read[_READ * i + 3]
            before += self._then[_TERMS * i]
        common = self._score / (self._information + _COMMON_PRECISION)
        return before, logit + common + added, noise

    def _x(self, logit: float) -> float:
        """Return the logit less the centre, within the range of slopes."""
        return max(-_FARTHEST, min(_FARTHEST, logit - self._centre))

    # State

    def to_state(self) -> FieldsState:
        """Return the state."""
        fields = [field.to_state() for field in self.fields]
        return FieldsState(fields, self._centre, self._centred, self._score, self._information)

    def restore(self, state: FieldsState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        require(len(state.fields) == len(self.fields), f"{len(state.fields)} fields of segments")
        require(abs(state.centre) <= 100.0, f"centre {state.centre}")
        require(state.centred <= _CENTRED, f"{state.centred} labels in the centre")
        require(0.0 <= state.information <= 1e3, f"information {state.information}")
        require(abs(state.score) <= 1e5, f"score {state.score}")
        for field, each in zip(self.fields, state.fields, strict=True):
            field.restore(each)
        self._centre, self._centred = state.centre, state.centred
        self._score, self._information = state.score, state.information
