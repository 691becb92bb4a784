"""Metrics of a run, for Prometheus to scrape.

The run's figures are copied after each micro-batch, and a scrape returns that copy. So a scrape never sees
half a batch, and an event costs nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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

from streamcal.delayed.label_delays import LabelDelays
from streamcal.engine.emissions import Mixing
from streamcal.events import DOMAINS
from streamcal.join.outcomes import JoinCounts
from streamcal.monitor.rows import FIGURES
from streamcal.monitor.run_history import Risks
from streamcal.monitor.status import Served, Status
from streamcal.quality.decision_figures import DecisionFigures, Estimate
from streamcal.run.outcome import Outcome
from streamcal.run.ports import Source

_DAY: Final = 86_400.0
_DELAYS: Final = (1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY)
_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_KINDS: Final = ("risk", "target_risk")
_OUTCOMES: Final = JoinCounts.__struct_fields__[2:]  # without predictions and labels


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
        self._risks: dict[str, Risks] = {}
        self._shown: list[Metric] = []

    def batch(self, seconds: float, outcome: Outcome) -> None:
        """Record a micro-batch: its duration in seconds, 0 of what is none, and its outcome."""
        if seconds:
            self._batches.add([seconds])
        self._delays.add(outcome.delays)
        self._alarms += len(outcome.alarms)
        for row, *_ in outcome.versions:
            mixing = msgspec.json.decode(row.mixture, type=Mixing | None)
            self._changes += mixing is not None and mixing.reason is not None
            risks = msgspec.json.decode(row.certificate, type=Risks | None)
            if risks is not None:  # else those of the version before are the newest
                self._risks[row.key or ""] = risks

    def update(self, status: Status) -> None:
        """Take the figures of the run; its claims are not needed."""
        self._shown = list(self._read(status))

    def collect(self) -> Iterable[Metric]:
        """Return the figures as of the last `update`."""
        return self._shown

    def _read(self, status: Status) -> Iterable[Metric]:
        counts, delay, verdict = status.join, status.delay, status.verdict
        yield from (
            _counter("events", "Events read, bad ones among them.", status.events),
            _counter("rejects", "Events that changed nothing.", status.rejected),
            _counter("predictions", "Predictions answered.", counts.predictions),
            _counter("labels", "Labels read.", counts.labels),
            _counter("drift_alarms", "Assumptions refuted.", self._alarms),
            _counter("leader_changes", "Changes of the leading candidate, mode auto.", self._changes),
        )
        if status.lost:
            lost = {(name,): each.records for name, each in status.lost.items()}
            yield _counter("lost_records", "Offsets deleted before they were read.", lost, "partition")
        outcomes = {(outcome,): getattr(counts, outcome) for outcome in _OUTCOMES}
        yield _counter("join_outcomes", "Outcomes of predictions and labels.", outcomes, "outcome")
        yield self._delays.metric(
            "streamcal_label_delay_seconds", "Event time from a prediction to its label, of joined ones."
        )
        yield self._batches.metric("streamcal_batch_seconds", "Time to process and commit a micro-batch.")
        shares = {("0.5",): delay.median, ("0.9",): delay.most}
        lags = {(each.name, part): lag for each in self._sources for part, lag in each.lag().items()}
        yield from (
            _gauge("pending", "Predictions waiting for their label.", status.pending),
            _gauge("out_ratio", "Share of the predictions that wait for their label.", delay.out),
            _gauge("oldest_pending_seconds", "How long the oldest of them has waited.", delay.oldest),
            _gauge("keys", "Keys with an engine.", status.keys),
            _gauge(
                "label_delay_quantile_seconds",
                "Delay that such a share of the joined labels did not exceed.",
                shares,
                "share",
            ),
            _gauge(
                "source_lag",
                "What is there to be read: records of a topic, bytes of a file.",
                lags,
                "source",
                "partition",
            ),
            _gauge("deviates", "1 if the verdict is that forecasts deviate.", verdict.deviates),
        )
        for figure in FIGURES:
            both = {(when,): getattr(figures, figure.field) for when, figures in status.quality.items()}
            yield _gauge(figure.metric, figure.help, both, "recalibration")
        if verdict.state != "worse than the score":
            ends = {("low",): verdict.low, ("high",): verdict.high}
            yield _gauge("verdict_gap", "Interval of the verdict's gap.", ends, "end")
        engines = {engine.key or "": engine for engine in status.engines}
        yield from self._of_engines(engines)
        if status.decision is not None:
            yield from _of_decisions(status.decision)
        held = {key: engine.held for key, engine in engines.items() if engine.held is not None}
        if held:
            yield from _of_held(held)

    def _of_engines(self, engines: Mapping[str, Served]) -> Iterable[Metric]:
        """Yield the metrics by key; certified bounds are those of the newest version with a certificate."""
        priors = {(key, of): getattr(each, f"{of}_prior") for key, each in engines.items() for of in DOMAINS}
        certified = {key: self._risks[key] for key in engines if key in self._risks}
        risks = {(key, kind): getattr(each, kind) for key, each in certified.items() for kind in _KINDS}
        log_e = {(key,): each.log_e_value for key, each in engines.items()}
        weights: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for key, engine in engines.items():
            for candidate, weight in engine.weights.items():
                weights[key, candidate.split("/")[0]] += weight
        versions = {(key,): each.version for key, each in engines.items()}
        yield _gauge("map_version", "Map version served.", versions, "key")
        bins = {(key,): each.bins or 0 for key, each in engines.items()}
        yield _gauge("map_bins", "Bins of the map; 0: identity.", bins, "key")
        yield _gauge("prior", "Running probability of class 1.", priors, "key", "domain")
        yield _gauge("certified_risk", "Certified upper bound on the map's risk.", risks, "key", "kind")
        yield _gauge("label_shift_log_e_value", "Log of the e-value against label shift.", log_e, "key")
        yield _gauge("mixture_weight", "Weight of a mode's candidates, mode auto.", weights, "key", "mode")
        pending = {(key,): each.pending for key, each in certified.items() if each.cohorts == "matured"}
        if pending:
            text = "Missing labels that the certificate counts as the worse of 0 and 1."
            yield _gauge("certified_pending", text, pending, "key")


def _of_decisions(found: DecisionFigures) -> Iterable[Metric]:
    """Yield the metrics of decisions; those by labels once there are any."""
    counts = {(name,): count for name, count in found.predictions.items()}
    yield _counter("decisions", "Predictions by decision.", counts, "decision")
    text = "Cost of other decisions − cost of these, by label, or by prediction if labels have propensities."
    yield _gauge("saved_per_label", text, _ends(found.saved), "against", "end")
    text = "Precision of acting; recall of acting or reviewing."
    shares = _ends({"precision": found.precision, "recall": found.recall})
    yield _gauge("decision_share", text, shares, "of", "end")


def _ends(found: Mapping[str, Estimate | None]) -> dict[tuple[str, str], float]:
    return {(of, end): value for of, e in found.items() if e for end, value in e._asdict().items()}


def _of_held(held: Mapping[str, LabelDelays]) -> Iterable[Metric]:
    """Yield the metrics of labels held, by key."""
    timed = {key: each for key, each in held.items() if each.by_time}
    yield _gauge("labels_held", "Labels held.", {(key,): each.held for key, each in held.items()}, "key")
    oldest = {(key,): each.oldest for key, each in timed.items()}
    yield _gauge("oldest_held_seconds", "Age of the oldest prediction whose label is held.", oldest, "key")
    of_class = {
        "late_class": "1 of the class whose labels come later.",
        "missing_class": "1 of the class of which no label has come.",
        "class_completeness_ratio": "Share of the labels that have come, where labels are held.",
        "class_delay_seconds": "Age at which 90% of the labels have come.",
    }
    for name, text in of_class.items():
        values: dict[tuple[str, ...], float | None] = {}
        for key, each in held.items():
            both: dict[str, Sequence[float | None]] = {
                "late_class": [each.late == 0, each.late == 1],
                "missing_class": [each.missing == 0, each.missing == 1],
                "class_completeness_ratio": each.complete or (),
                "class_delay_seconds": each.within or () if each.by_time else (),
            }
            values |= {(key, str(label)): value for label, value in enumerate(both[name])}
        yield _gauge(name, text, values, "key", "class")
    excluded = {(key,): each.excluded for key, each in held.items()}
    yield _counter("labels_by_exclusion", "Predictions learned without a label.", excluded, "key")
    mistaken = {(key,): each.mistaken for key, each in held.items()}
    yield _counter("mistaken_labels_by_exclusion", "Those whose label was another.", mistaken, "key")


_Values = Mapping[Any, float | None] | float | None  # by the values of the labels; or without labels


def _gauge(name: str, text: str, values: _Values, *labels: str) -> Metric:
    """Return a gauge with a value for each set of labels; none where the value is None."""
    return _filled(GaugeMetricFamily(f"streamcal_{name}", text, labels=labels), values)


def _counter(name: str, text: str, values: _Values, *labels: str) -> Metric:
    """Return a counter, likewise."""
    return _filled(CounterMetricFamily(f"streamcal_{name}", text, labels=labels), values)


def _filled(family: Any, values: _Values) -> Metric:
    for place, value in (values if isinstance(values, Mapping) else {(): values}).items():
        if value is not None:
            family.add_metric(place, value)
    found: Metric = family
    return found
