"""Streaming recalibration of probabilistic classifiers, with certified risk bounds.

`Recalibrator` turns the scores of a binary classifier into probabilities while labels arrive and the class
balance moves. It brings "Minimum-Risk Recalibration of Classifiers" (Sun, Song, Hero) to event streams.

The names exported here are the public API, together with the modules `streamcal.onnx`, `streamcal.river`,
`streamcal.sklearn`, `streamcal.testing` and `streamcal.run.ports`. Everything else is internal and may change
at any time.
"""

from streamcal.base import only_one as _only_one  # noqa: F401  # first: what is next may be another project's

# isort: split
from typing import TYPE_CHECKING

from streamcal.base.errors import DamagedStateError, OutputError, StoreError, StreamcalError
from streamcal.certificates.record import Certificate, PaperBound
from streamcal.engine.calls import Answer, Answers, Intervals
from streamcal.engine.config import Mode, PriorKind, RecalibratorConfig, RecalibratorOptions
from streamcal.engine.emissions import DriftAlarm, Emission, MapPublished, Mixing, Recalibrated, Rejected
from streamcal.engine.engine import DomainSummary
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.engine.recalibrator import Recalibrator
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.join.config import JoinConfig
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.forecasts_c import compiled
from streamcal.quality.decisions import Costs, decide
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = [
    "Answer",
    "Answers",
    "Certificate",
    "ClassEvaluation",
    "Costs",
    "DamagedStateError",
    "DecisionCurve",
    "Domain",
    "DomainSummary",
    "DriftAlarm",
    "Emission",
    "Evaluation",
    "Event",
    "Intervals",
    "JoinConfig",
    "LabelEvent",
    "LabelledEvent",
    "MapPublished",
    "Mixing",
    "Mode",
    "MulticlassMap",
    "Origin",
    "OutputError",
    "PaperBound",
    "PredictionEvent",
    "PriorKind",
    "Recalibrated",
    "RecalibrationMap",
    "Recalibrator",
    "RecalibratorConfig",
    "RecalibratorOptions",
    "Rejected",
    "ScoreSketch",
    "StoreError",
    "StreamcalError",
    "__version__",
    "backtest",
    "compiled",
    "decide",
    "decision_curve",
    "evaluate",
    "evaluate_classes",
]

if TYPE_CHECKING:
    from streamcal.engine.multiclass.evaluation import ClassEvaluation, evaluate_classes
    from streamcal.frames import backtest
    from streamcal.quality.decision_curve import DecisionCurve, decision_curve
    from streamcal.quality.evaluate import Evaluation, evaluate

    __version__: str
    """The version of the installed package."""
else:  # hidden from type checkers, which would otherwise accept any name
    from importlib import import_module

    _LAZY = {
        "ClassEvaluation": "engine.multiclass.evaluation",
        "DecisionCurve": "quality.decision_curve",
        "Evaluation": "quality.evaluate",
        "backtest": "frames",
        "decision_curve": "quality.decision_curve",
        "evaluate": "quality.evaluate",
        "evaluate_classes": "engine.multiclass.evaluation",
    }

    def __dir__() -> list[str]:
        return __all__

    def __getattr__(name: str) -> object:
        """Return what takes milliseconds to import, when it is asked for, and the installed version."""
        if name in _LAZY:
            return getattr(import_module(f"streamcal.{_LAZY[name]}"), name)
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("streamcal-engine")
