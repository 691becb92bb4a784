"""Events that go into the engine: predictions, labels, or both in one. Plain records without imports."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

__all__ = [
    "DOMAINS",
    "RAW_BYTES",
    "Domain",
    "Event",
    "Kept",
    "KeptValue",
    "LabelEvent",
    "LabelledEvent",
    "Origin",
    "PredictionEvent",
    "Weight",
]

Domain = Literal["source", "target"]
"""``source``: the calibration domain P; ``target``: the deployment domain Q."""

DOMAINS: Final[tuple[Domain, ...]] = ("source", "target")
"""Both domains."""


RAW_BYTES: Final = 4096
"""Bytes of the text of an event that are kept where it is rejected, or waits."""

KeptValue: TypeAlias = str | int | float | bool | None
"""A value that passes through."""

Kept: TypeAlias = tuple[KeptValue, ...]
"""Values that pass from an event to its answer, in the order of the run's option ``keep``."""


Weight: TypeAlias = Annotated[float, msgspec.Meta(ge=1e-9, le=10_000)]
"""Range of the weight of a label (`streamcal.sketch.weighing`); checked again in bytes of a state."""


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an event was read."""

    source: str
    """The file or topic."""
    line: int
    """Line of the file, from 1."""
    raw: bytes
    """The text of the event as it was read; of a longer one the first 4096 bytes, whatever was given."""

    def __post_init__(self) -> None:
        if len(self.raw) > RAW_BYTES:
            end = RAW_BYTES
            while end > RAW_BYTES - 4 and self.raw[end] & 0xC0 == 0x80:
                end -= 1  # not within a character
            msgspec.structs.force_setattr(self, "raw", self.raw[:end])


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
    kept: Kept = ()
    """Values that pass through to the answer."""
    weight: float | None = None
    """For how many predictions the label stands, from 1e-9 to 10,000: one over the chance that it is seen.
    None: that of the label, or 1."""


class LabelEvent(msgspec.Struct, frozen=True, gc=False):
    """The true label of the prediction with this id."""

    id: str
    label: Annotated[int, msgspec.Meta(ge=0, lt=1000)]  # checked where a label that waits is decoded
    """0 or 1; in a run of many classes the place of the class."""
    time: float | None = None
    """Event time, seconds since the epoch (UTC)."""
    origin: Origin | None = None
    weight: Weight | None = None
    """As in `PredictionEvent`, and counts in place of that; None: that of the prediction, or 1."""


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
    kept: Kept = ()
    """Values that pass through to the answer."""
    weight: float | None = None
    """As in `PredictionEvent`; None: 1."""


Event: TypeAlias = PredictionEvent | LabelEvent | LabelledEvent
