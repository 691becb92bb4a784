"""Results of a pipeline: the rows of a micro-batch, what it counted, and its state.

Rejects are counted by the kind of their reason: without the ids and numbers in which the reasons of a kind
differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.engine.engine import Engine
from streamcal.events.input_checks import InputChecks
from streamcal.join.join_c import JoinState
from streamcal.quality.figures import QualityState, Raised
from streamcal.run.order import TimesRead
from streamcal.run.rows import AlarmRow, MapRow, RejectRow
from streamcal.sketch.decoding import Count

__all__ = [
    "MOST_KINDS",
    "OTHER",
    "Outcome",
    "PipelineState",
    "PriorSnapshot",
    "Tally",
    "count_reasons",
    "kind_of",
]

MOST_KINDS: Final = 30
"""Number of kinds that are told apart; later ones count as `OTHER`."""

OTHER: Final = "other reasons"

_LONGEST: Final = 120  # characters of a kind
_VARIES: Final = re.compile(
    r"""(?<!\w)(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)"""  # quoted, as by repr()
    r"|\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z| UTC)?"  # a moment
    r"|(?<![\w.-])[+-]?\d[\d_,.]*(?:[eE][+-]?\d+)?(?![\w])"  # a number
)
_KEPT: Final = frozenset(("0", "1", "0,", "8601"))  # of "0 or 1", "[0, 1]", "ISO 8601": parts of a rule


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
    """Rows that a micro-batch gave, for the sinks."""

    answers: Sequence[Recalibrated]
    rejects: list[RejectRow]
    maps: list[MapRow]
    alarms: list[AlarmRow] = []
    doubtful: bool = False
    """Whether `Pipeline.end` may refuse this batch, if it is the last."""
    priors: list[PriorSnapshot] = []
    """Priors as each of the maps began."""
    delays: Sequence[float] = ()
    """Seconds of event time from a prediction to its label, of the joined labels of which it is known."""


class Tally(msgspec.Struct):
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

    def count(self, events: Sequence[object], read: TimesRead) -> None:
        """Count events that were read, and how their times were taken."""
        self.events += len(events)
        self.times.converted += read.converted
        self.times.mistimed += read.mistimed
        self.times.backwards += read.backwards


class PipelineState(msgspec.Struct):
    """All but engines and tables."""

    join: JoinState
    tally: Tally
    unpublished: list[str | None] = []
    """Keys for which calibration has formed a map that was not published yet."""
    reasons: dict[str, int] = {}
    """Number of rejected events by the kind of the reason."""
    quality: QualityState | None = None
    positive: str = "1"
    """The class that counts as 1."""
    raised: list[Raised] = []
    """Alarms of the watch over forecasts that no micro-batch has emitted yet."""
    segments: list[str] = []
    """Fields that make segments."""
    own_engines: Count = 64
    """Number of segments that may have an engine of their own."""
    classes: list[str] | msgspec.UnsetType = msgspec.UNSET
    """Names of many classes."""


def kind_of(reason: str) -> str:
    """Return a reason without what varies within its kind.

    Examples
    --------
    >>> kind_of("a score must be a number in [0, 1], got 1.5")
    'a score must be a number in [0, 1]'
    >>> kind_of("unmatched label: no prediction with id 'u-2118' has come")
    'unmatched label: no prediction with id … has come'
    """
    rule = reason.partition(", got ")[0]
    kind = _VARIES.sub(lambda found: found[0] if found[0] in _KEPT else "…", rule)
    return kind if len(kind) <= _LONGEST else f"{kind[:_LONGEST]}…"


def count_reasons(counts: dict[str, int], reasons: Iterable[str]) -> None:
    """Count reasons by their kind."""
    for reason in reasons:
        kind = kind_of(reason)
        if kind not in counts and len(counts) >= MOST_KINDS:
            kind = OTHER
        counts[kind] = counts.get(kind, 0) + 1
