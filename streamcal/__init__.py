"""Streaming recalibration of probabilistic classifiers, with certified risk bounds.

`Recalibrator` turns the scores of a binary classifier into probabilities while labels arrive and class
balance moves: "Minimum-Risk Recalibration of Classifiers" (Sun, Song, Hero) for event streams.
"""

from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.emissions import DriftAlarm, MapPublished, Recalibrated, Rejected
from streamcal.engine.recalibrator import DomainSummary, Recalibrator
from streamcal.errors import DamagedStateError, StreamcalError
from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.join.join import JoinConfig
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.score_sketch import ScoreSketch

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
