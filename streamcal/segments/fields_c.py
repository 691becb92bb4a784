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

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from streamcal.segments.corrections_c import READ, Corrections, CorrectionsState, Name, Term, expit
from streamcal.sketch.decoding import Count, Finite, require

__all__ = ["Fields", "FieldsState"]

# As C has them.
_COMMON = 1.0 - 1.0 / 500.0
_COMMON_PRECISION = 25.0
_CENTRED = 1000  # labels whose mean logit is the centre
_FARTHEST = 4.0  # from the centre, where slopes end
_READ = READ
_NEW = tuple.__new__  # without a call of Python


class FieldsState(msgspec.Struct):
    """State of all fields."""

    fields: list[CorrectionsState]
    centre: Finite
    centred: Count
    score: Finite
    information: Finite


class Fields:
    """Corrections of ``count`` fields."""

    def __init__(self, count: int) -> None:
        self.fields = [Corrections() for _ in range(count)]
        self._centre, self._centred = 0.0, 0
        self._score = self._information = 0.0  # of the common deviation
        self._places: Any = np.zeros(count, np.int64).data
        self._read: Any = np.zeros(_READ * count).data

    @property
    def centre(self) -> float:
        """Logit at which slopes add nothing."""
        return self._centre

    @property
    def farthest(self) -> float:
        """Distance of the logit from the centre, beyond which slopes add no more."""
        return _FARTHEST

    def forecast(self, logit: float, names: Sequence[Name], own: Sequence[float]) -> list[Term]:
        """Return the forecast of each field.

        Parameters
        ----------
        logit
            Logit of the pooled probability.
        names, own
            Value of each field, and δ of its own engine (NaN: none).
        """
        x, read, terms = self._x(logit), self._read, []
        for i in range(len(self.fields)):
            field = self.fields[i]
            delta = own[i]
            field.read(field.find(names[i]), x, delta, read, 0)
            terms.append(_NEW(Term, (read[0], read[1], read[2], delta)))
        return terms

    def learn(self, logit: float, label: int, names: Sequence[Name], then: Sequence[Term]) -> None:
        """Learn one label.

        Parameters
        ----------
        logit
            Logit of the pooled probability, as of the prediction.
        label
            0 or 1.
        names
            Value of each field.
        then
            Forecast of each field, as of the prediction.
        """
        if self._centred < _CENTRED:
            self._centred += 1
            self._centre += (logit - self._centre) / self._centred
        x, read, count = self._x(logit), self._read, len(self.fields)
        before, added, noise = logit, 0.0, 0.0
        for i in range(count):
            field, term = self.fields[i], then[i]
            self._places[i] = field.place(names[i])
            field.read(self._places[i], x, term[3], read, _READ * i)
            added += read[_READ * i]
            noise += read[_READ * i + 3]
            before += term[0]
        common = self._score / (self._information + _COMMON_PRECISION)
        now = logit + common + added
        p = expit(now)
        curvature = p * (1.0 - p)
        self._information = _COMMON * self._information + curvature
        self._score = _COMMON * self._score + curvature * common + label - p
        for i in range(count):
            field, term = self.fields[i], then[i]
            others, their_noise = now - read[_READ * i], noise - read[_READ * i + 3]
            field.learn(
                self._places[i], x, label, read, _READ * i, others, their_noise, term, before - term[0]
            )

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
