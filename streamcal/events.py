"""What goes into the engine: predictions, labels, or both in one. Plain records without imports."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["Domain", "Event", "LabelEvent", "LabelledEvent", "Origin", "PredictionEvent"]

Domain = Literal["source", "target"]
"""``source``: the calibration domain P; ``target``: the deployment domain Q."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an event came from."""

    source: str
    """File or topic."""
    line: int
    """Line of the file, from 1."""
    raw: bytes
    """The text as it was read."""


class PredictionEvent(msgspec.Struct, frozen=True, gc=False):
    """A score that the model emitted; its label may come later."""

    id: str
    score: float
    time: float | None = None
    """Event time, seconds since the epoch (UTC)."""
    key: str | None = None
    """Separates models or segments."""
    domain: Domain = "target"
    origin: Origin | None = None


class LabelEvent(msgspec.Struct, frozen=True, gc=False):
    """The true label, 0 or 1, of an earlier prediction."""

    id: str
    label: int
    time: float | None = None
    origin: Origin | None = None


class LabelledEvent(msgspec.Struct, frozen=True, gc=False):
    """A score together with its label."""

    score: float
    label: int
    id: str | None = None
    time: float | None = None
    key: str | None = None
    domain: Domain = "target"
    origin: Origin | None = None


Event: TypeAlias = PredictionEvent | LabelEvent | LabelledEvent
