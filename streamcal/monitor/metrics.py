"""Metrics of a run, for Prometheus to scrape.

The run's figures are copied after each micro-batch, and a scrape returns that copy. So a scrape never sees
half a batch, and an event costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from streamcal.engine.emissions import Mixing
from streamcal.monitor.endpoint import Endpoint
from streamcal.monitor.status import Served, Status
from streamcal.quality.delays import Delay
from streamcal.quality.figures import WINDOW, Figures
from streamcal.run.outcome import Outcome
from streamcal.run.ports import Source

__all__ = ["RunMetrics"]

_DAY: Final = 86_400.0
_DELAYS: Final = (1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, _DAY, 3 * _DAY, 7 * _DAY, 14 * _DAY, 30 * _DAY)
_SECONDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_KINDS: Final = ("risk", "calibration_risk", "sharpness_risk", "target_risk")
_OUTCOMES: Final = (
    "joined",
    "early",
    "late",
    "duplicate",
    "corrected",
    "expired",
    "unmatched",
    "implied",
    "contradicted",
)


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
        self._leader_changes = 0
        self._risks: dict[str, _Risks] = {}
        self._shown: list[Metric] = []

    def serve(self, host: str, port: int) -> Endpoint:
        """Answer scrapes at ``http://host:port/metrics``; port 0 takes a free one.

        Raises
        ------
        OSError
            if it cannot listen there.
        """
        registry = CollectorRegistry()
        registry.register(self)

        def answer(accept: str) -> tuple[bytes, str]:
            encode, kind = choose_encoder(accept)
            return encode(registry), kind

        return Endpoint(host, port, answer)

    def batch(self, seconds: float, outcome: Outcome) -> None:
        """Record a micro-batch: its duration in seconds, 0 of what is none, and its outcome."""
        if seconds:
            self._batches.add([seconds])
        self._delays.add(outcome.delays)
        self._alarms += len(outcome.alarms)
        for row in outcome.maps:
            mixing = msgspec.json.decode(row.mixture, type=Mixing | None)
            self._leader_changes += mixing is not None and mixing.reason is not None
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
        counts = status.join
        yield CounterMetricFamily("streamcal_events", "Events read, bad ones among them.", status.events)
        yield CounterMetricFamily("streamcal_rejects", "Events that changed nothing.", status.rejected)
        yield CounterMetricFamily("streamcal_predictions", "Predictions answered.", counts.predictions)
        yield CounterMetricFamily("streamcal_labels", "Labels read.", counts.labels)
        outcomes = CounterMetricFamily(
            "streamcal_join_outcomes", "Outcomes of predictions and labels.", labels=["outcome"]
        )
        for outcome in _OUTCOMES:
            outcomes.add_metric([outcome], getattr(counts, outcome))
        yield outcomes
        yield GaugeMetricFamily("streamcal_pending", "Predictions waiting for their label.", status.pending)
        yield self._delays.metric(
            "streamcal_label_delay_seconds", "Event time from a prediction to its label, of joined ones."
        )
        yield from self._read_delay(status.delay)
        yield self._batches.metric("streamcal_batch_seconds", "Time to process and commit a micro-batch.")
        yield CounterMetricFamily("streamcal_drift_alarms", "Assumptions refuted.", self._alarms)
        yield CounterMetricFamily(
            "streamcal_leader_changes", "Changes of the leading candidate, mode auto.", self._leader_changes
        )
        lags = GaugeMetricFamily(
            "streamcal_source_lag",
            "What is there to be read: records of a topic, bytes of a file.",
            labels=["source", "partition"],
        )
        for source in self._sources:
            for partition, lag in source.lag().items():
                lags.add_metric([source.name, partition], lag)
        yield lags
        yield from self._read_quality(status.quality)
        yield GaugeMetricFamily("streamcal_keys", "Keys with an engine.", status.keys)
        yield from self._read_engines(status.engines)

    def _read_delay(self, delay: Delay) -> Iterable[Metric]:
        quantiles = GaugeMetricFamily(
            "streamcal_label_delay_quantile_seconds",
            "Delay that such a share of the joined labels did not exceed.",
            labels=["quantile"],
        )
        for quantile, seconds in (("0.5", delay.median), ("0.9", delay.most)):
            if seconds is not None:
                quantiles.add_metric([quantile], seconds)
        yield quantiles
        for name, text, value in (
            ("streamcal_out_ratio", "Share of the predictions that wait for their label.", delay.out),
            ("streamcal_oldest_pending_seconds", "How long the oldest of them has waited.", delay.oldest),
        ):
            family = GaugeMetricFamily(name, text)
            if value is not None:
                family.add_metric([], value)
            yield family

    def _read_quality(self, both: Mapping[str, Figures]) -> Iterable[Metric]:
        for field, name, text in (
            ("brier", "streamcal_brier_score", "Brier score by the joined labels."),
            ("log_loss", "streamcal_log_loss", "Log loss by the joined labels."),
            ("ece", "streamcal_calibration_error", "Expected calibration error, bins of equal mass."),
            ("gap", "streamcal_gap", "Mean forecast less mean label."),
            ("latest_gap", "streamcal_latest_gap", f"Gap of the latest full window of {WINDOW:,} labels."),
            ("worst_gap", "streamcal_worst_gap", f"Largest gap of a window of {WINDOW:,} labels."),
        ):
            family = GaugeMetricFamily(name, text, labels=["recalibration"])
            for when, figures in both.items():
                value = getattr(figures, field)
                if value is not None:
                    family.add_metric([when], value)
            yield family

    def _read_engines(self, engines: Sequence[Served]) -> Iterable[Metric]:
        versions = GaugeMetricFamily("streamcal_map_version", "Map version served.", labels=["key"])
        bins = GaugeMetricFamily("streamcal_map_bins", "Bins of the map; 0: identity.", labels=["key"])
        priors = GaugeMetricFamily(
            "streamcal_prior", "Running probability of class 1.", labels=["key", "domain"]
        )
        evidence = GaugeMetricFamily(
            "streamcal_label_shift_log_e_value", "Log of the e-value against label shift.", labels=["key"]
        )
        risks = GaugeMetricFamily(
            "streamcal_certified_risk", "Certified upper bound on the map's risk.", labels=["key", "kind"]
        )
        pending = GaugeMetricFamily(
            "streamcal_certified_pending",
            "Labels of matured cohorts that the certificate counts at their worst.",
            labels=["key"],
        )
        mixed = GaugeMetricFamily(
            "streamcal_mixture_weight", "Weight of a mode's candidates, mode auto.", labels=["key", "mode"]
        )
        for engine in engines:
            name = engine.key or ""
            versions.add_metric([name], engine.version)
            bins.add_metric([name], engine.bins or 0)
            for domain, prior in (("source", engine.source_prior), ("target", engine.target_prior)):
                if prior is not None:
                    priors.add_metric([name, domain], prior)
            certified = self._risks.get(name, _Risks())
            for kind in _KINDS:
                value = getattr(certified, kind)
                if value is not None:
                    risks.add_metric([name, kind], value)
            if certified.cohorts == "matured":
                pending.add_metric([name], certified.pending)
            weights: dict[str, float] = {}
            for candidate, weight in engine.weights.items():
                mode = candidate.split("/")[0]
                weights[mode] = weights.get(mode, 0.0) + weight
            for mode, weight in weights.items():
                mixed.add_metric([name, mode], weight)
            if engine.log_e_value is not None:
                evidence.add_metric([name], engine.log_e_value)
        yield from (versions, bins, priors, risks, evidence, mixed)
        if pending.samples:  # of label_delay_limit only
            yield pending
