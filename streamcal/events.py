"""What goes into the engine: predictions, labels, or both in one. Plain records without imports."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

__all__ = ["DOMAINS", "Domain", "Event", "LabelEvent", "LabelledEvent", "Origin", "PredictionEvent"]

Domain = Literal["source", "target"]
"""``source``: the calibration domain P; ``target``: the deployment domain Q."""

DOMAINS: Final[tuple[Domain, ...]] = ("source", "target")
"""Both of them."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an event was read."""

    source: str
    """The file or topic."""
    line: int
    """Line of the file, from 1."""
    raw: bytes
    """The text of the event as it was read."""


class PredictionEvent(msgspec.Struct, frozen=True, gc=False):
    """A score of the model. Its label may follow as a `LabelEvent` with the same id."""

    id: str
    score: float
    """The model's score, in [0, 1]."""
    time: float | None = None
    """Event time, seconds since the epoch (UTC)."""
    key: str | None = None
    """Which model or segment the event belongs to."""
    domain: Domain = "target"
    origin: Origin | None = None


class LabelEvent(msgspec.Struct, frozen=True, gc=False):
    """The true label of the prediction with this id."""

    id: str
    label: Annotated[int, msgspec.Meta(ge=0, le=1)]  # checked where a label that waits is decoded
    """0 or 1."""
    time: float | None = None
    """Event time, seconds since the epoch (UTC)."""
    origin: Origin | None = None


class LabelledEvent(msgspec.Struct, frozen=True, gc=False):
    """A score together with its label."""

    score: float
    """The model's score, in [0, 1]."""
    label: int
    """0 or 1."""
    id: str | None = None
    time: float | None = None
    """Event time, seconds since the epoch (UTC)."""
    key: str | None = None
    """Which model or segment the event belongs to."""
    domain: Domain = "target"
    origin: Origin | None = None


Event: TypeAlias = PredictionEvent | LabelEvent | LabelledEvent
