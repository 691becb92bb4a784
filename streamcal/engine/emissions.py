"""What comes out of the engine: answers, map versions, alarms and rejects."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streamcal.certificates.ledger import DriftAlarm
from streamcal.certificates.record import Certificate
from streamcal.join.join import Rejected
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.mixture import Mixing

__all__ = ["DriftAlarm", "Emission", "MapPublished", "Mixing", "Recalibrated", "Rejected"]


class Recalibrated(msgspec.Struct, frozen=True, gc=False):
    """The answer to a prediction: its score as a probability."""

    id: str | None
    score: float
    probability: float
    map_version: int
    weights: tuple[float, float]
    """(w₀, w₁) of the shift correction at that moment: together with the map of this version they give
    the probability."""


class MapPublished(msgspec.Struct, frozen=True):
    """A new map version is served from now on."""

    map: RecalibrationMap
    certificate: Certificate | None = None
    """What may be claimed of it; None for the identity."""
    key: str | None = None
    mixture: Mixing | None = None
    """How it was mixed, in mode ``auto``."""


Emission: TypeAlias = Recalibrated | MapPublished | DriftAlarm | Rejected
