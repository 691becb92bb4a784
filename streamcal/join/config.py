"""The options of the join."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["JoinConfig"]


class JoinConfig(BaseModel):
    """Options of the join of predictions and labels."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, ser_json_inf_nan="strings")

    label_ttl: Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=False)] = 30 * 86_400.0
    """Seconds of event time after which a prediction stops waiting for its label, and a label for its
    prediction. Events without a time do not expire by time."""

    max_pending: Annotated[int, Field(ge=1)] = 1_000_000
    """How many predictions, how many early labels, and how many settled ids (kept to tell duplicates)
    are remembered at most; beyond it the oldest go first, counted like those that expire."""

    max_jump: Annotated[float, Field(gt=0.0, strict=False)] | None = 30 * 86_400.0
    """Seconds by which an event's time may be past those before it, see `streamcal.join.guard`; an event
    farther ahead is rejected. None or inf: any time is believed."""
