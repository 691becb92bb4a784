"""What no public method tells of an engine, and tests compare: looked up here alone."""

from __future__ import annotations

from streamcal import Recalibrator, ScoreSketch
from streamcal.engine.engine import Engine
from streamcal.engine.segments.corrections_c import Corrections
from streamcal.events import Domain


def memo_of(index: int | None) -> bytes | None:
    """Return the memo of a prediction of two classes, by the number of scores observed before; None: none."""
    return None if index is None else int(index).to_bytes(8, "little")


def memos_of(index: int | None, count: int) -> list[bytes] | None:
    """Return the memos of predictions that were made together."""
    memo = memo_of(index)
    return None if memo is None else [memo] * count


def labels_of(engine: Recalibrator | Engine, domain: Domain) -> ScoreSketch:
    """Return the sketch of all labels of a domain, or of its window."""
    inside = engine._engine if isinstance(engine, Recalibrator) else engine
    inside._versions.flush(domain)
    return (inside._target if domain == "target" else inside._source).log.sketch


def corrections_of(engine: Recalibrator) -> Corrections:
    """Return the corrections of the first field of segments."""
    field: Corrections = engine._engine.segments.corrections.fields[0]  # type: ignore[attr-defined]
    return field
