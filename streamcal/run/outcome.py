"""What a pipeline gives: the rows of a micro-batch, and its state."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from streamcal.engine.emissions import DriftAlarm, Recalibrated
from streamcal.join.join import JoinState
from streamcal.run.quality import QualityState
from streamcal.run.rows import MapRow, RejectRow
from streamcal.run.tally import Tally

__all__ = ["Outcome", "PipelineState"]


class Outcome(msgspec.Struct):
    """What a micro-batch gave: rows for the sinks."""

    answers: Sequence[Recalibrated]
    rejects: list[RejectRow]
    maps: list[MapRow]
    alarms: list[DriftAlarm] = []
    doubtful: bool = False
    """Whether `Pipeline.end` may refuse this batch, if it is the last."""


class PipelineState(msgspec.Struct):
    """All but engines and tables."""

    join: JoinState
    tally: Tally
    unpublished: list[str | None] = []
    """Keys for which calibration has formed a map that was not published yet."""
    reasons: dict[str, int] = {}
    """How many events were rejected, by the kind of the reason."""
    quality: QualityState | None = None
    positive: str = "1"
    """The class that counts as 1."""
