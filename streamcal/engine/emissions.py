"""Emissions of the engine: answers, map versions, alarms and rejected events."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from streamcal.certificates.record import Certificate, DriftAlarm
from streamcal.join.outcomes import Rejected
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.mixture import Mixing

__all__ = ["DriftAlarm", "Emission", "MapPublished", "Mixing", "Recalibrated", "Rejected"]


class Recalibrated(msgspec.Struct, frozen=True, gc=False):
    """The answer to a prediction: the probability for its score."""

    id: str | None
    score: float
    """Score of the model, in [0, 1]."""
    probability: float
    """Recalibrated probability of class 1, in [0, 1]."""
    map_version: int
    weights: tuple[float, float]
    """Weights (w₀, w₁) of the shift correction at that moment. With the map of this version, they reproduce
    the probability, but for the corrections of segments."""
    key: str | None = None
    """Key of the prediction, None if it has none."""
    time: float | None = None
    """Event time of the prediction, in seconds since the epoch; None if it has none."""


class MapPublished(msgspec.Struct, frozen=True):
    """A new map version is served from now on."""

    map: RecalibrationMap
    certificate: Certificate | None = None
    """Certificate of the map; None for the identity, and if none was computed."""
    key: str | None = None
    """Key of the engine, if events have keys."""
    mixture: Mixing | None = None
    """Weights of the candidates in mode ``auto``; None in the other modes."""


Emission: TypeAlias = Recalibrated | MapPublished | DriftAlarm | Rejected
