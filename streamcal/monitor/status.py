"""Status of a run as one plain record: table, summary, remarks, metrics, live page and report are made of it.

All of it is bounded, however long the run and however many its keys. It holds no event: of a reject it has
the place and the code, for the raw text may be personal. `streamcal.monitor.build` makes it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from streamcal.delayed.label_delays import LabelDelays
from streamcal.events.codes import Code
from streamcal.join.outcomes import JoinCounts
from streamcal.quality.class_sums import ClassFigures
from streamcal.quality.decision_figures import DecisionFigures
from streamcal.quality.delays import Delay
from streamcal.quality.figures import Figures
from streamcal.quality.label_coverage import UncoveredScores
from streamcal.quality.verdict import Verdict
from streamcal.run.order import TimesRead
from streamcal.run.outcome import FarAhead, Lost
from streamcal.run.rows import AlarmRow

SHOWN_KEYS: Final = 20
"""Number of keys, the first ones, whose engines are part of a record."""

SHOWN_GROUPS: Final = 1000
"""Number of segments and keys, the worst ones, whose figures are part of a record."""


class Bins(msgspec.Struct):
    """A reliability diagram: a value for each bin, in the order of the forecasts."""

    labels: list[int]
    forecast: list[float]
    """Mean forecast."""
    rate: list[float]
    """Rate of label 1."""
    low: list[float]
    """The interval of that rate (Clopper and Pearson), each bin alone."""
    high: list[float]


class Rating(msgspec.Struct):
    """Quality of the forecasts of one side, over all labels."""

    figures: Figures
    """Figures; of one key, those that its history has."""
    bins: Bins


class Windows(msgspec.Struct):
    """Windows of consecutive labels; a value for each."""

    width: int
    """Labels in each."""
    labels: list[int]
    """Joined labels up to its end."""
    time: list[float | None]
    """Event time at its end, seconds since the epoch."""
    rate: list[float]
    """Rate of label 1: the prior that was observed."""
    before: dict[str, list[float]]
    """Quality of the scores: ``forecast``, ``brier`` and ``ece``, see `streamcal.quality.history.Curve`."""
    after: dict[str, list[float]]


class Confidence(msgspec.Struct):
    """Confidence sequences over all labels so far, at some moments; a value for each."""

    labels: list[int]
    """Joined labels up to it."""
    time: list[float | None]
    """Event time of the latest prediction, seconds since the epoch."""
    gap_low: list[float]
    gap_high: list[float]
    """Ends of the interval of mean forecast − mean label."""
    gain_low: list[float]
    gain_high: list[float]
    """Ends of the interval of the Brier score before − that after."""


class Bands(msgspec.Struct):
    """Gaps in bands of forecasts with enough labels, over those of the verdict; a value for each."""

    forecast: list[float]
    """Mean forecast."""
    labels: list[int]
    gap: list[float]
    """Mean forecast − mean label."""
    low: list[float]
    """Interval of the gap; all intervals at all times hold together."""
    high: list[float]


class Versions(msgspec.Struct):
    """Map versions, thinned to a bounded number; a value for each."""

    version: list[int]
    time: list[float | None]
    risk: list[float | None]
    """Certified upper bound on the risk of h; None where nothing is claimed."""
    target_risk: list[float | None]
    """Certified upper bound on the risk of the served map in the target."""
    weights: dict[str, list[float]]
    """Mode ``auto``: of each candidate."""


class Priors(msgspec.Struct):
    """The running priors as map versions began and as records were made, thinned; a value for each."""

    labels: list[int]
    """Target labels so far."""
    time: list[float | None]
    source: list[float | None]
    target: list[float | None]


class Bound(msgspec.Struct):
    """A certified upper bound on a risk."""

    of: str
    """Risk that is bounded, in words."""
    words: str
    """Figure, or the reason why there is none."""
    value: float | None
    """Figure as a number; missing where nothing is claimed."""


class Certified(msgspec.Struct):
    """Claims of the certificate of the served map."""

    version: int
    domain: str
    delta: float
    bounds: list[Bound]
    """Certified upper bounds: of h; if it was certified by labels of the source, then in the target."""
    cohorts: str | None
    """``matured`` if the target's part rests on matured cohorts."""
    pending: int
    refuted: list[str]
    assumptions: list[str]


class Served(msgspec.Struct):
    """The engine of a key now."""

    key: str | None
    mode: str
    version: int
    bins: int | None
    """Number of bins; None: identity."""
    source_labels: int
    source_prior: float | None
    target_labels: int
    target_prior: float | None
    lacks_source: bool
    """Whether scores are served unchanged for want of labels of the source."""
    leader: str | None
    """Mode ``auto``: the candidate with the largest weight."""
    weights: dict[str, float]
    """Mode ``auto``: weight of each candidate."""
    log_e_value: float | None
    """Against label shift."""
    certified: Certified | None
    no_claim: str | None
    """Reason for which there is no certificate, in words."""
    held: LabelDelays | None
    """Labels held; None: no class comes later, and every label is learned when it comes."""
    apart: tuple[float, float, float] | None
    """Age at which the shares of the labels that have come differ most, with those of class 0 and 1."""


class View(msgspec.Struct):
    """Figures of all events, or of those with one key."""

    key: str | None
    """Key of the events; None: all events."""
    labels: int
    """Joined ones."""
    positives: int
    verdict: Verdict
    before: Rating
    after: Rating
    windows: Windows
    confidence: Confidence
    bands: Bands
    served: Served | None
    """Served map; None in the view of all events, if they have keys."""
    versions: Versions
    priors: Priors


class GroupColumns(msgspec.Struct):
    """Figures of segments or classes, and of keys if there are several, the worst first; a value for each.

    They are from the first label on, see `streamcal.quality.groups`.
    """

    field: list[str] = []
    """Field that makes the segment; ``class`` of each class against the others, ``key`` of keys."""
    name: list[str | None] = []
    """Value of the field; None: it is missing."""
    labels: list[int] = []
    forecast: list[float] = []
    """Mean served probability."""
    rate: list[float] = []
    """Rate of label 1."""
    gap_low: list[float] = []
    gap_high: list[float] = []
    """Confidence sequence of mean served probability − rate, of each alone."""
    brier_before: list[float] = []
    brier_after: list[float] = []
    deviates: list[bool] = []
    """Whether the gap is surely more than a tenth of the rarer class."""


class RejectPlace(msgspec.Struct):
    """Where a rejected event was, and why it was rejected."""

    source: str
    line: int
    code: Code


class RecordedAlarm(AlarmRow):
    """An alarm of a status record."""

    over: bool = False
    """Whether it no longer holds: no certificate needs the assumption, or no forecast deviates."""


RemarkCode: TypeAlias = Literal[
    "backwards",
    "class_stopped",
    "contradicted_labels",
    "early_labels",
    "decided",
    "expired_predictions",
    "far_ahead",
    "first_labels_held",
    "groups_deviate",
    "late_labels",
    "lost_records",
    "milliseconds",
    "missing_segment",
    "no_labels",
    "no_negatives",
    "no_positives",
    "no_source",
    "no_times",
    "nothing_due",
    "nothing_joined",
    "one_class",
    "rejected",
    "small_keys",
    "unfinished",
    "unknown_fields",
    "unlabelled_scores",
    "unmatched_labels",
    "untimed",
]


class Remark(msgspec.Struct):
    """Something worth a word on a run: `streamcal.monitor.remarks`."""

    code: RemarkCode
    fields: dict[str, Any]
    """Values that its words name."""
    words: str
    """Finding, and what to do, in the terms of whoever started the run."""


class DelayQuantile(msgspec.Struct):
    """A share of the labels came within so many seconds of event time."""

    share: float
    seconds: float


class Status(msgspec.Struct):
    """Status of a run."""

    format: int
    verdict: Verdict
    """Verdict on the served forecasts; with keys, on those of all keys."""
    clock: float | None
    """The latest event time."""
    events: int
    source_labels: int
    source_classes: list[int]
    """Classes of the labels of the source so far."""
    rejected: int
    reasons: dict[Code, int]
    """Number of rejected events by code, the most frequent first."""
    rejects: list[RejectPlace]
    """The latest, newest first."""
    times: TimesRead
    """Event times by how they were taken."""
    doubted: int
    """Events whose time was too far ahead for the clock to believe, and that later events contradict."""
    far_ahead: FarAhead | None
    """One of the latest of them."""
    lost: dict[str, Lost]
    """Records that were deleted before they were read, by topic and partition."""
    unknown_fields: dict[str, int] | None
    """Number of times that each unknown field was ignored; None of a store, which does not keep it."""
    missing_segments: list[str]
    """Fields of segments of which no label had a value."""
    unfinished: list[str]
    """Ends of inputs that a later run reads, and what to do."""
    join: JoinCounts
    label_delay_limit: float | None
    """Seconds after which a prediction without a label counts as 0; None: it never does."""
    samples: bool
    """Whether predictions have propensities: labels are to come for some only."""
    pending: int
    delay: Delay
    delays: list[DelayQuantile]
    """Empty where no times are known."""
    labelled: float
    """Share of the predictions that got a label, of those old enough."""
    unlabelled: list[UncoveredScores]
    """Ranges of scores that labels hardly reach."""
    labels: int
    """Labels by which the forecasts are judged."""
    positives: int
    decided: bool
    """Whether all scores of these labels are 0 or 1."""
    before: Figures
    """Quality of the scores."""
    after: Figures
    """Quality of the recalibrated probabilities."""
    keys: int
    engines: list[Served]
    """Engines of the first `SHOWN_KEYS` keys."""
    views: list[View]
    """All events; then those of the first keys, if there are keys. Empty without a `RunHistory`."""
    groups: GroupColumns
    """Segments and keys, `SHOWN_GROUPS` at most."""
    alarms: list[RecordedAlarm]
    remarks: list[Remark]
    options: dict[str, Any]
    decision: DecisionFigures | None = None
    """Decisions, and what they cost; None: nothing is decided."""
    classes: dict[str, ClassFigures] = {}
    """Figures of many classes by ``before`` and ``after``; empty of two. All other figures are then those of
    the decision for the class with the highest score: label 1 means that it is right."""

    @property
    def quality(self) -> dict[str, Figures]:
        """Figures of the scores and of the recalibrated probabilities, by ``before`` and ``after``."""
        return {"before": self.before, "after": self.after}
