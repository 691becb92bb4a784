"""What comes out of the engine: answers, map versions, alarms and rejected events."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streamcal.certificates.ledger import DriftAlarm
from streamcal.certificates.record import Certificate
from streamcal.join.outcomes import Rejected
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.mixture import Mixing

__all__ = ["DriftAlarm", "Emission", "MapPublished", "Mixing", "Recalibrated", "Rejected"]


class Recalibrated(msgspec.Struct, frozen=True, gc=False):
    """The answer to a prediction: the probability for its score."""

    id: str | None
    score: float
    """The model's score, in [0, 1]."""
    probability: float
    """The recalibrated probability of class 1, in [0, 1]."""
    map_version: int
    weights: tuple[float, float]
    """The weights (w₀, w₁) of the shift correction at that moment. With the map of this version, they
    reproduce the probability."""
    key: str | None = None
    """That of the prediction."""
    time: float | None = None
    """Event time of the prediction, seconds since the epoch, if it had one."""


class MapPublished(msgspec.Struct, frozen=True):
    """A new map version is served from now on."""

    map: RecalibrationMap
    certificate: Certificate | None = None
    """What is certified about the map; None for the identity, and where none was worked out."""
    key: str | None = None
    """The key of the engine, if events have keys."""
    mixture: Mixing | None = None
    """How the map is mixed, in mode ``auto``."""


Emission: TypeAlias = Recalibrated | MapPublished | DriftAlarm | Rejected
