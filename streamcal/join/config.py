"""The options of the join."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from streamcal.base.times import as_timedelta


def _seconds(value: object) -> object:
    """Return a duration, or a text that is one, in seconds; return anything else as it is."""
    if isinstance(value, str):
        with suppress(ValueError):
            return float(value)
        try:
            value = as_timedelta(value)
        except ValueError as error:
            raise ValueError(f"{error}, or a number of seconds") from None
    return value.total_seconds() if isinstance(value, timedelta) else value


Seconds: TypeAlias = Annotated[
    float, Field(gt=0.0, allow_inf_nan=False, strict=False), BeforeValidator(_seconds)
]


class JoinConfig(BaseModel):
    """Options of the join of predictions and labels."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings"
    )

    label_ttl: Seconds = 30 * 86_400.0
    """Seconds of event time, or a duration such as ``"30d"``, after which a prediction stops waiting for its
    label, and a label for its prediction. Events without a time do not expire by time."""

    missing_labels: Literal["drop", "negative"] = "drop"
    """Treatment of a prediction whose label does not come. ``"drop"``: it teaches nothing, and is dropped
    ``label_ttl`` after its time. ``"negative"``: it teaches label 0, ``label_delay_limit`` after its time; a
    label that does come teaches at that time."""

    label_delay_limit: Annotated[Seconds, Field(ge=1.0, le=1e10)] | None = None
    """Seconds of event time (at least 1), or a duration, after which the label of a prediction is final; a
    later label counts as late. Required with ``missing_labels="negative"``, refused otherwise. An id is
    remembered for ``label_ttl`` after that."""

    max_pending: Annotated[int, Field(ge=1)] = 1_000_000
    """Largest number of predictions, of early labels, and of ids that have ended (kept to detect duplicates)
    to remember. Beyond it the oldest are forgotten first, and count as expired."""

    max_jump: Annotated[float, Field(gt=0.0, strict=False)] | None = 30 * 86_400.0
    """Largest jump ahead in seconds of an event's time over the times before it, see
    `streamcal.events.guard`; an event farther ahead is rejected. None or inf: no limit."""

    @model_validator(mode="after")
    def _matures(self) -> Self:
        if (self.missing_labels == "negative") != (self.label_delay_limit is not None):
            raise ValueError(
                'missing_labels = "negative" and label_delay_limit go together: set both, such as'
                ' missing_labels = "negative" and label_delay_limit = "30d", or neither'
            )
        return self
