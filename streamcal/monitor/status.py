"""Status of a run as one plain record, which the live page and the report show.

All of it is bounded, however long the run and however many its keys. It holds no event: of a reject it has
the place and the kind of the reason, for the raw text may be personal. `streamcal.monitor.run_history` makes
it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from streamcal.join.outcomes import JoinCounts
from streamcal.quality.delays import Delay

__all__ = [
    "INTERVAL",
    "Alarm",
    "Bins",
    "Certified",
    "CurveColumns",
    "Priors",
    "Rating",
    "RejectPlace",
    "Served",
    "Status",
    "Versions",
    "View",
    "Windows",
]

INTERVAL: Final = 0.95
"""Coverage of the interval of one bin at one moment; no certificate."""


class Bins(msgspec.Struct):
    """A reliability diagram: a value for each bin, in the order of the forecasts."""

    labels: list[int]
    forecast: list[float]
    """Mean forecast."""
    rate: list[float]
    """Rate of label 1."""
    low: list[float]
    """The interval of that rate (Clopper and Pearson), each bin alone: see `INTERVAL`."""
    high: list[float]


class Rating(msgspec.Struct):
    """Quality of the forecasts of one side, over all labels; None without labels."""

    brier: float | None
    log_loss: float | None
    ece: float | None
    """Expected calibration error over the bins."""
    gap: float | None
    """Mean forecast − mean label."""
    bins: Bins


class CurveColumns(msgspec.Struct):
    """Quality of the forecasts of one side, window by window: `streamcal.quality.history.Curve`."""

    forecast: list[float]
    brier: list[float]
    log_loss: list[float]
    ece: list[float]


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
    before: CurveColumns
    after: CurveColumns


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


class Certified(msgspec.Struct):
    """Claims of the certificate of the served map."""

    version: int
    domain: str
    delta: float
    risk: str
    """In words: a figure, or why there is none."""
    target_risk: str
    pending: int
    refuted: list[str]
    assumptions: list[str]


class Served(msgspec.Struct):
    """The engine of a key now."""

    version: int
    bins: int | None
    """Number of bins; None: identity."""
    source_labels: int
    source_prior: float | None
    target_labels: int
    target_prior: float | None
    leader: str | None
    """Mode ``auto``: the candidate with the largest weight."""
    log_e_value: float | None
    """Against label shift."""
    certified: Certified | None


class View(msgspec.Struct):
    """Figures of all events, or of those with one key."""

    key: str | None
    """Key of the events; None: all events."""
    labels: int
    """Joined ones."""
    positives: int
    before: Rating
    after: Rating
    windows: Windows
    served: Served | None
    """Served map; None in the view of all events, if they have keys."""
    versions: Versions
    priors: Priors


class RejectPlace(msgspec.Struct):
    """Where a rejected event was, and the kind of the reason."""

    source: str
    line: int
    reason: str


class Alarm(msgspec.Struct):
    """An assumption that is refuted, and what to do."""

    key: str | None
    assumption: str
    reason: str
    target_labels: int
    advice: str


class Status(msgspec.Struct):
    """Status of a run."""

    format: int
    clock: float | None
    """The latest event time."""
    events: int
    source_labels: int
    rejected: int
    reasons: dict[str, int]
    """Number of rejected events, by the kind of the reason."""
    rejects: list[RejectPlace]
    """The latest, newest first."""
    join: JoinCounts
    pending: int
    delay: Delay
    keys: int
    views: list[View]
    """All events; then those of the first keys, if there are keys."""
    alarms: list[Alarm]
    warnings: list[str]
    options: dict[str, Any]
