"""Results of a pipeline: the rows of a micro-batch, what it counted, and its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from streamcal.engine.config import EngineOptions
from streamcal.engine.engine import Engine
from streamcal.events.codes import Code
from streamcal.events.input_checks import InputChecks
from streamcal.join.outcomes import JoinState
from streamcal.quality.decision_sums import DecisionSums
from streamcal.quality.figures import Quality, Raised
from streamcal.run.order import TimesRead
from streamcal.run.rows import AlarmRow, Answers, RejectRow, Version
from streamcal.sampling import Sampler
from streamcal.sketch.decoding import Count


class PriorSnapshot(NamedTuple):
    """The running priors of a key at one moment."""

    labels: int
    """Target labels so far."""
    time: float | None
    """The latest event time."""
    source: float | None
    target: float | None

    @classmethod
    def of(cls, engine: Engine, clock: float | None) -> Self:
        """Return the priors of an engine now."""
        target = engine.target
        return cls(target.labels, clock, engine.source.prior, target.prior)


class Outcome(msgspec.Struct):
    """Rows that a micro-batch gave, for the sinks, and the map versions that began."""

    answers: Answers
    rejects: list[RejectRow]
    versions: list[Version]
    alarms: list[AlarmRow] = []
    doubtful: bool = False
    """Whether `Pipeline.end` may refuse this batch, if it is the last."""
    priors: list[PriorSnapshot] = []
    """Priors as each of the versions began."""
    delays: Sequence[float] = ()
    """Seconds of event time from a prediction to its label, of the joined labels of which it is known."""


class FarAhead(msgspec.Struct, frozen=True):
    """An event whose time was so far ahead of the others that the clock did not believe it."""

    id: str | None
    time: float
    """Its time, in seconds."""
    clock: float
    """Event time that the stream had reached, in seconds."""
    source: str
    line: int


class Lost(msgspec.Struct):
    """Records of a partition that were deleted before they were read."""

    records: Count = 0
    """Number of offsets, some of which may have held no record."""
    unknown: Count = 0
    """Number of losses of unknown size."""


class RunCounts(msgspec.Struct):
    """Counts of a run."""

    events: Count = 0
    """Events read, of all sources, bad ones among them."""
    source_labels: Count = 0
    """Labelled events learned from the source of calibration."""
    rejected: Count = 0
    """Events that changed nothing: bad input, duplicates, labels without a prediction in time."""
    refused: Count = 0
    """Rejected events whose key was one too many."""
    times: TimesRead = msgspec.field(default_factory=TimesRead)
    """Counts of event times by how they were taken."""
    calibration: InputChecks = msgspec.field(default_factory=InputChecks)
    """Meaning of labels and scores in the source of calibration."""
    deployment: InputChecks = msgspec.field(default_factory=InputChecks)
    """Meaning of labels and scores in the deployment."""
    lost: dict[str, Lost] = {}
    """Records lost, by topic and partition: ``topic/0``."""
    far_ahead: FarAhead | None = None
    """The latest event whose time was not believed."""

    def count(self, events: Sequence[object], read: TimesRead) -> None:
        """Count events that were read, and how their times were taken."""
        self.events += len(events)
        self.times.converted += read.converted
        self.times.mistimed += read.mistimed
        self.times.backwards += read.backwards
        self.times.untimed += read.untimed


class PipelineState(msgspec.Struct):
    """All but engines and entries."""

    options: EngineOptions
    """Options of its engines."""
    join: JoinState
    tally: RunCounts
    unpublished: list[str | None] = []
    """Keys for which calibration has formed a map that was not published yet."""
    reasons: dict[Code, Count] = {}
    """Number of rejected events by code."""
    quality: Quality = msgspec.field(default_factory=Quality)
    positive: str = "1"
    """The class that counts as 1."""
    sampler: Sampler | None = None
    """Sampler of predictions to be labelled; None: there is none."""
    raised: list[Raised] = []
    """Alarms of the watch over forecasts that no micro-batch has emitted yet."""
    decisions: DecisionSums | None = None
    """Decisions and their costs; None: nothing is decided."""
