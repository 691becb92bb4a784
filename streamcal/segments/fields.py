"""Several fields whose corrections add up on the logit, fitted in turn: backfitting online.

Each label updates every field once, with the sum of the others as offset. That sum is the present one: with
labels that are late, the sum as of the prediction would let all fields learn the same deviation until the
first label that shows it, and overshoot together. The pooled probability is that of the prediction.

**Common deviation.** If labels are late, pooled probabilities are off for all segments alike while the pooled
engine catches up. A correction that took this up would add it a second time later. So a common offset,
remembered over 500 labels, is fitted in turn like a field, and is never served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from streamcal.segments.corrections import Corrections, CorrectionsState, Term, expit
from streamcal.sketch.decoding import Count, Finite, require

__all__ = ["Fields", "FieldsState"]

_COMMON: Final = 1.0 - 1.0 / 500.0
_COMMON_PRECISION: Final = 25.0
_CENTRED: Final = 1000  # labels whose mean logit is the centre
_FARTHEST: Final = 4.0  # from the centre, where slopes end


class FieldsState(msgspec.Struct):
    """State of all fields."""

    fields: list[CorrectionsState]
    centre: Finite
    centred: Count
    score: Finite
    information: Finite


class Fields:
    """Corrections of ``count`` fields."""

    __slots__ = ("_centre", "_centred", "_information", "_score", "fields")

    def __init__(self, count: int) -> None:
        self.fields = [Corrections() for _ in range(count)]
        self._centre, self._centred = 0.0, 0
        self._score = self._information = 0.0  # of the common deviation

    def forecast(self, logit: float, names: Sequence[str | None], own: Sequence[float]) -> list[Term]:
        """Return the forecast of each field.

        Parameters
        ----------
        logit
            Logit of the pooled probability.
        names, own
            Value of each field, and δ of its own engine (NaN: none).
        """
        x = self._x(logit)
        return [
            field.forecast(name, x, each) for field, name, each in zip(self.fields, names, own, strict=True)
        ]

    def learn(self, logit: float, label: int, names: Sequence[str | None], then: Sequence[Term]) -> None:
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
        x = self._x(logit)
        fields = self.fields
        rows = [field.row(name) for field, name in zip(fields, names, strict=True)]
        read = [
            field.read(row, x, term.own) for field, (_, row), term in zip(fields, rows, then, strict=True)
        ]
        common = self._score / (self._information + _COMMON_PRECISION)
        now = logit + common + sum(each.term.added for each in read)
        before = logit + sum(term.added for term in then)
        noise = sum(each.variance for each in read)
        p = expit(now)
        curvature = p * (1.0 - p)
        self._information = _COMMON * self._information + curvature
        self._score = _COMMON * self._score + curvature * common + label - p
        for field, (place, row), each, term in zip(fields, rows, read, then, strict=True):
            field.learn(
                place,
                row,
                each,
                x,
                label,
                now - each.term.added,
                noise - each.variance,
                term,
                before - term.added,
            )

    def _x(self, logit: float) -> float:
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
