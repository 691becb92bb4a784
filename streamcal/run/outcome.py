"""What a pipeline gives: the rows of a micro-batch, and its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.engine.engine import Engine
from streamcal.join.join_c import JoinState
from streamcal.run.quality import QualityState
from streamcal.run.rows import AlarmRow, MapRow, RejectRow
from streamcal.run.tally import Tally

__all__ = ["Moment", "Outcome", "PipelineState"]


class Moment(NamedTuple):
    """The running priors of a key at one moment."""

    labels: int
    """Target labels so far."""
    time: float | None
    """The latest event time."""
    source: float | None
    target: float | None

    @classmethod
    def of(cls, engine: Engine, clock: float | None) -> Self:
        """Return those of an engine now."""
        target = engine.target
        return cls(target.labels, clock, engine.source.prior, target.prior)


class Outcome(msgspec.Struct):
    """What a micro-batch gave: rows for the sinks."""

    answers: Sequence[Recalibrated]
    rejects: list[RejectRow]
    maps: list[MapRow]
    alarms: list[AlarmRow] = []
    doubtful: bool = False
    """Whether `Pipeline.end` may refuse this batch, if it is the last."""
    moments: list[Moment] = []
    """The priors as each of the maps began."""
    delays: Sequence[float] = ()
    """Seconds of event time from a prediction to its label, of the joined labels of which it is known."""


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
