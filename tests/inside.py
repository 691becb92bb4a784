"""What no public method tells of an engine, and tests compare: looked up here alone."""

from __future__ import annotations

from streamcal import Recalibrator, ScoreSketch
from streamcal.engine.engine import Engine
from streamcal.events import Domain

__all__ = ["labels_of"]


def labels_of(engine: Recalibrator | Engine, domain: Domain) -> ScoreSketch:
    """Return the sketch of all labels of a domain, or of its window."""
    inside = engine._engine if isinstance(engine, Recalibrator) else engine
    inside._versions.flush(domain)
    return (inside._target if domain == "target" else inside._source).log.sketch
