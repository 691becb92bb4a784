"""The options of the join."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

__all__ = ["JoinConfig"]

_DURATION = TypeAdapter(timedelta)


def _seconds(value: object) -> object:
    """Return the seconds of a duration, or of text that is one; anything else is for the field to judge."""
    try:
        if isinstance(value, str):
            value = _DURATION.validate_python(value) if "P" in value else float(value)
    except ValueError:
        raise ValueError("must be a number of seconds, or a duration such as 'P30D' or 'PT1H'") from None
    return value.total_seconds() if isinstance(value, timedelta) else value


Seconds: TypeAlias = Annotated[
    float, Field(gt=0.0, allow_inf_nan=False, strict=False), BeforeValidator(_seconds)
]


class JoinConfig(BaseModel):
    """Options of the join of predictions and labels."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings")

    label_ttl: Seconds = 30 * 86_400.0
    """Seconds of event time, or a duration such as ``"P30D"``, after which a prediction stops waiting for its
    label, and a label for its prediction. Events without a time do not expire by time."""

    unlabelled: Literal["drop", "negative"] = "drop"
    """What a prediction teaches whose label does not come. ``"drop"``: nothing, ``label_ttl`` after it.
    ``"negative"``: 0, ``matured_after`` after it; and a label that does come teaches at that time."""

    matured_after: Seconds | None = None
    """Seconds of event time, or a duration, after its prediction from which on a label counts as late: with
    ``unlabelled="negative"``, and only then. An id is remembered for ``label_ttl`` after that."""

    corrections: bool = False
    """Whether a label that differs from the one that was learned takes its place in the counts. If not, it is
    counted and rejected."""

    max_pending: Annotated[int, Field(ge=1)] = 1_000_000
    """How many predictions, how many early labels, and how many settled ids (kept to tell duplicates)
    are remembered at most; beyond it the oldest go first, counted like those that expire."""

    max_jump: Annotated[float, Field(gt=0.0, strict=False)] | None = 30 * 86_400.0
    """Seconds by which an event's time may be past those before it, see `streamcal.join.guard`; an event
    farther ahead is rejected. None or inf: any time is believed."""

    @model_validator(mode="after")
    def _matures(self) -> Self:
        if (self.unlabelled == "negative") != (self.matured_after is not None):
            raise ValueError(
                'unlabelled = "negative" and matured_after go together: set both, such as'
                ' unlabelled = "negative" and matured_after = "P30D", or neither'
            )
        return self
