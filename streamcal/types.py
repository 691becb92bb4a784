"""Events that go into the engine and emissions that come out of it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streamcal.certificate import Certificate
from streamcal.config import Domain
from streamcal.maps import RecalibrationMap

__all__ = [
    "Domain",
    "DriftAlarm",
    "Emission",
    "Event",
    "LabelEvent",
    "LabelledEvent",
    "MapPublished",
    "Mixing",
    "Origin",
    "PredictionEvent",
    "Recalibrated",
    "Rejected",
]


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


class Recalibrated(msgspec.Struct, frozen=True, gc=False):
    """The answer to a prediction: its score as a probability."""

    id: str | None
    score: float
    probability: float
    map_version: int
    weights: tuple[float, float]
    """(w₀, w₁) of the shift correction at that moment: together with the map of this version they give
    the probability."""


class Mixing(msgspec.Struct, frozen=True):
    """How the map of mode ``auto`` is mixed from its candidates."""

    leader: str
    """The candidate of the largest weight."""
    weights: dict[str, float]
    """Of every candidate; they sum to 1."""
    reason: str | None = None
    """Why the leader is another than in the version before; None if it is not."""


class MapPublished(msgspec.Struct, frozen=True):
    """A new map version is served from now on."""

    map: RecalibrationMap
    certificate: Certificate | None = None
    """What may be claimed of it; None for the identity."""
    key: str | None = None
    mixture: Mixing | None = None
    """How it was mixed, in mode ``auto``."""


class DriftAlarm(msgspec.Struct, frozen=True):
    """An assumption behind the certificates is refuted; it is raised once."""

    assumption: str
    """The assumption, in the words of the certificates."""
    reason: str
    """What refuted it."""
    target_labels: int
    """How many labelled target scores there were by then."""
    key: str | None = None


class Rejected(msgspec.Struct, frozen=True):
    """An event that changed nothing, and why."""

    event: Event
    reason: str


Emission: TypeAlias = Recalibrated | MapPublished | DriftAlarm | Rejected
