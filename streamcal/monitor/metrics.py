"""Metrics of a run, for Prometheus to scrape.

The run's figures are copied after each micro-batch, and a scrape returns that copy. So a scrape never sees
half a batch, and an event costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from streamcal.engine.emissions import Mixing
from streamcal.events import DOMAINS
from streamcal.join.outcomes import JoinCounts
from streamcal.monitor.rows import FIGURES
from streamcal.monitor.status import Served, Status
from streamcal.release.label_delays import LabelDelays
from streamcal.run.outcome import Outcome
from streamcal.run.ports import Source

__all__ = ["RunMetrics"]

_DAY: Final = 86_400.0
_DELAYS: Final = (1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY)
_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_KINDS: Final = ("risk", "calibration_risk", "sharpness_risk", "target_risk")
_OUTCOMES: Final = JoinCounts.__struct_fields__[2:]  # without predictions and labels


class _Risks(msgspec.Struct):
    """Fields of a certificate that are exported."""

    risk: float | None = None
    calibration_risk: float | None = None
    sharpness_risk: float | None = None
    target_risk: float | None = None
    cohorts: str | None = None
    pending: int = 0


class _Histogram:
    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = np.zeros(len(bounds) + 1, np.int64)
        self._sum = 0.0

    def add(self, values: Sequence[float]) -> None:
        bins = np.searchsorted(self._bounds, values)
        self._counts += np.bincount(bins, minlength=len(self._counts))
        self._sum += float(np.sum(values))

    def metric(self, name: str, text: str) -> Metric:
        total, buckets = 0, []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self._counts.tolist(), strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(name, text, buckets=buckets, sum_value=self._sum)


class RunMetrics(Collector):
    """The metrics of one run, all named ``streamcal_…``; see docs/operations.md.

    Parameters
    ----------
    sources
        the sources of the run, whose lag is exported.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._delays = _Histogram(_DELAYS)
        self._batches = _Histogram(_SECONDS)
        self._alarms = 0
        self._changes = 0
        self._risks: dict[str, _Risks] = {}
        self._shown: list[Metric] = []

    def batch(self, seconds: float, outcome: Outcome) -> None:
        """Record a micro-batch: its duration in seconds, 0 of what is none, and its outcome."""
        if seconds:
            self._batches.add([seconds])
        self._delays.add(outcome.delays)
        self._alarms += len(outcome.alarms)
        for row in outcome.maps:
            mixing = msgspec.json.decode(row.mixture, type=Mixing | None)
            self._changes += mixing is not None and mixing.reason is not None
            risks = msgspec.json.decode(row.certificate, type=_Risks | None)
            if risks is not None:  # else those of the version before are the newest
                self._risks[row.key or ""] = risks

    def update(self, status: Status) -> None:
        """Take the figures of the run; its claims are not needed."""
        self._shown = list(self._read(status))

    def collect(self) -> Iterable[Metric]:
        """Return the figures as of the last `update`."""
        return self._shown

    def _read(self, status: Status) -> Iterable[Metric]:
        counts, delay = status.join, status.delay
        for name, text, count in (
            ("streamcal_events", "Events read, bad ones among them.", status.events),
            ("streamcal_rejects", "Events that changed nothing.", status.rejected),
            ("streamcal_predictions", "Predictions answered.", counts.predictions),
            ("streamcal_labels", "Labels read.", counts.labels),
            ("streamcal_drift_alarms", "Assumptions refuted.", self._alarms),
            (
                "streamcal_leader_changes",
                "Changes of the leading candidate, mode auto.",
                self._changes,
            ),
        ):
            yield CounterMetricFamily(name, text, count)
        outcomes = CounterMetricFamily(
            "streamcal_join_outcomes", "Outcomes of predictions and labels.", labels=["outcome"]
        )
        for outcome in _OUTCOMES:
            outcomes.add_metric([outcome], getattr(counts, outcome))
        yield outcomes
        yield self._delays.metric(
            "streamcal_label_delay_seconds", "Event time from a prediction to its label, of joined ones."
        )
        yield self._batches.metric("streamcal_batch_seconds", "Time to process and commit a micro-batch.")
        for name, text, value in (
            ("streamcal_pending", "Predictions waiting for their label.", status.pending),
            ("streamcal_out_ratio", "Share of the predictions that wait for their label.", delay.out),
            ("streamcal_oldest_pending_seconds", "How long the oldest of them has waited.", delay.oldest),
            ("streamcal_keys", "Keys with an engine.", status.keys),
        ):
            yield _gauge(name, text, [], [([], value)])
        yield _gauge(
            "streamcal_label_delay_quantile_seconds",
            "Delay that such a share of the joined labels did not exceed.",
            ["quantile"],
            [(["0.5"], delay.median), (["0.9"], delay.most)],
        )
        yield _gauge(
            "streamcal_source_lag",
            "What is there to be read: records of a topic, bytes of a file.",
            ["source", "partition"],
            [([source.name, part], lag) for source in self._sources for part, lag in source.lag().items()],
        )
        for figure in FIGURES:
            both = [([when], getattr(figures, figure.field)) for when, figures in status.quality.items()]
            yield _gauge(f"streamcal_{figure.metric}", figure.help, ["recalibration"], both)
        verdict, kinds = status.verdict, ("low", "high")
        if verdict.state != "worse than the score":
            ends = [([kind], getattr(verdict, kind)) for kind in kinds]
            yield _gauge("streamcal_verdict_gap", "Interval of the verdict's gap.", ["end"], ends)
        yield _gauge(
            "streamcal_deviates", "1 if the verdict is that forecasts deviate.", [], [([], verdict.deviates)]
        )
        yield from self._read_engines(status.engines)

    def _read_engines(self, engines: Sequence[Served]) -> Iterable[Metric]:
        named = [(engine.key or "", engine) for engine in engines]
        versions = [([name], each.version) for name, each in named]
        bins = [([name], each.bins or 0) for name, each in named]
        priors = [
            ([name, domain], getattr(each, f"{domain}_prior")) for name, each in named for domain in DOMAINS
        ]
        certified = [(name, self._risks[name]) for name, _ in named if name in self._risks]
        risks = [([name, kind], getattr(each, kind)) for name, each in certified for kind in _KINDS]
        log_e = [([name], each.log_e_value) for name, each in named]
        weights: defaultdict[tuple[str, str], float] = defaultdict(float)
        for name, each in named:
            for candidate, weight in each.weights.items():
                weights[name, candidate.split("/")[0]] += weight
        mixed = [*weights.items()]
        gauges: list[tuple[str, str, list[str], list[Any]]] = [
            ("streamcal_map_version", "Map version served.", ["key"], versions),
            ("streamcal_map_bins", "Bins of the map; 0: identity.", ["key"], bins),
            ("streamcal_prior", "Running probability of class 1.", ["key", "domain"], priors),
            ("streamcal_certified_risk", "Certified upper bound on the map's risk.", ["key", "kind"], risks),
            ("streamcal_label_shift_log_e_value", "Log of the e-value against label shift.", ["key"], log_e),
            ("streamcal_mixture_weight", "Weight of a mode's candidates, mode auto.", ["key", "mode"], mixed),
        ]
        pending = [([name], each.pending) for name, each in certified if each.cohorts == "matured"]
        if pending:
            text = "Missing labels that the certificate counts as the worse of 0 and 1."
            gauges.append(("streamcal_certified_pending", text, ["key"], pending))
        for gauge in gauges:
            yield _gauge(*gauge)
        yield from _of_held([(name, each.held) for name, each in named if each.held is not None])


def _of_held(named: Sequence[tuple[str, LabelDelays]]) -> Iterable[Metric]:
    """Return the metrics of labels held, by key; none where no engine holds any."""
    if not named:
        return
    timed = [(name, held) for name, held in named if held.by_time]
    yield _gauge(
        "streamcal_labels_held", "Labels held.", ["key"], [([name], held.held) for name, held in named]
    )
    yield _gauge(
        "streamcal_oldest_held_seconds",
        "Age of the oldest prediction whose label is held.",
        ["key"],
        [([name], held.oldest) for name, held in timed],
    )
    for metric, text, values in (
        (
            "streamcal_late_class",
            "1 of the class whose labels come later.",
            [(name, [float(label == held.late) for label in (0, 1)]) for name, held in named],
        ),
        (
            "streamcal_missing_class",
            "1 of the class of which no label has come.",
            [(name, [float(label == held.missing) for label in (0, 1)]) for name, held in named],
        ),
        (
            "streamcal_class_completeness_ratio",
            "Share of the labels that have come, of predictions whose labels are held.",
            [(name, held.complete or ()) for name, held in named],
        ),
        (
            "streamcal_class_delay_seconds",
            "Age at which 90% of the labels have come.",
            [(name, held.within or ()) for name, held in timed],
        ),
    ):
        by_class = [([name, str(label)], value) for name, each in values for label, value in enumerate(each)]
        yield _gauge(metric, text, ["key", "class"], by_class)
    for metric, text, field in (
        ("streamcal_labels_by_exclusion", "Predictions learned without a label.", "excluded"),
        ("streamcal_mistaken_labels_by_exclusion", "Those whose label was another.", "mistaken"),
    ):
        family = CounterMetricFamily(metric, text, labels=["key"])
        for name, held in named:
            family.add_metric([name], getattr(held, field))
        yield family


def _gauge(
    name: str, text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float | None]]
) -> Metric:
    """Return a gauge with a value for each set of labels; none where the value is None."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for place, value in values:
        if value is not None:
            family.add_metric(place, value)
    return family
