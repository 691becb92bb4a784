"""Streaming recalibration of probabilistic classifiers, with certified risk bounds.

`Recalibrator` turns the scores of a binary classifier into probabilities while labels arrive and class
balance moves: "Minimum-Risk Recalibration of Classifiers" (Sun, Song, Hero) for event streams.
"""

from streamcal.certificate import Certificate
from streamcal.config import JoinConfig, RecalibratorConfig
from streamcal.engine import Recalibrator
from streamcal.errors import DamagedStateError, StreamcalError
from streamcal.labels import DomainSummary
from streamcal.maps import RecalibrationMap
from streamcal.sketch import ScoreSketch
from streamcal.types import (
    DriftAlarm,
    LabelEvent,
    LabelledEvent,
    MapPublished,
    PredictionEvent,
    Recalibrated,
    Rejected,
)

__all__ = [
    "Certificate",
    "DamagedStateError",
    "DomainSummary",
    "DriftAlarm",
    "JoinConfig",
    "LabelEvent",
    "LabelledEvent",
    "MapPublished",
    "PredictionEvent",
    "Recalibrated",
    "RecalibrationMap",
    "Recalibrator",
    "RecalibratorConfig",
    "Rejected",
    "ScoreSketch",
    "StreamcalError",
]
