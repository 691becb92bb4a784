"""Building of the status record of a run, the one place where it is made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from streamcal.base.values import Floats, shown
from streamcal.certificates.record import Certificate, RiskField
from streamcal.delayed.label_delays import most_apart
from streamcal.engine.engine import Engine
from streamcal.engine.schedule import FIRST_LABELS
from streamcal.events.faces import COMMAND, HTTP, Face
from streamcal.monitor.remarks import remarks
from streamcal.monitor.run_history import RunHistory, claimed
from streamcal.monitor.status import (
    SHOWN_GROUPS,
    SHOWN_KEYS,
    Bands,
    Bins,
    Bound,
    Certified,
    Confidence,
    DelayQuantile,
    GroupColumns,
    Priors,
    Rating,
    RejectPlace,
    Served,
    Status,
    Versions,
    View,
    Windows,
)
from streamcal.quality.decision_figures import DecisionFigures
from streamcal.quality.figures import ECE_BINS, Figures, ForecastQuality, Quality
from streamcal.quality.groups import by_propensity, ranked
from streamcal.quality.history import History, Totals
from streamcal.quality.intervals import rate_intervals
from streamcal.quality.label_sums import LabelSums
from streamcal.quality.verdict import FEWEST, Verdict, worst_first
from streamcal.quality.watch import ForecastWatch
from streamcal.run.outcome import PriorSnapshot
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import REQUESTS, FileSource, Source

_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_DAY: Final = 86_400.0
_OLD: Final = 0.99  # share of the labels that came sooner than a prediction is old


def build_status(
    pipeline: Pipeline,
    sources: Sequence[Source] | None = (),
    *,
    history: RunHistory | None = None,
    options: Mapping[str, Any] | None = None,
    claims: bool = True,
    face: Face | None = None,
    keys: Sequence[str] = (),
) -> Status:
    """Return the status of a run, between two micro-batches or at its end.

    Parameters
    ----------
    pipeline
        of the run. With a store, its figures are those of all runs on it.
    sources
        of the run; None: of a store, whose inputs are not known.
    history
        of the run; it takes note of the priors. None: the record has no views, rejects and alarms, which take
        a tenth of a second at first.
    options
        of the run, without secrets; shown as they are.
    claims
        whether to work out certificates, each of which takes as long as thousands of events.
    face
        in whose words remarks say what to do; None: those of HTTP with its source, else of the command.
    keys
        whose engines to show; if empty, the first `SHOWN_KEYS`.
    """
    quality, tally, join = pipeline.quality, pipeline.tally, pipeline.join
    clock, sums = join.time, quality.classes
    delays = quality.delays
    old = clock - delays.quantile(_OLD) if clock is not None and delays.labels else -np.inf
    labelled, unlabelled = quality.coverage.uncovered(old)
    unknown: Counter[str] = Counter()
    for source in sources or ():
        unknown.update(source.unknown_fields)
    first = {key: pipeline.engines[key] for key in keys} or pipeline.first_engines(SHOWN_KEYS)
    viewed: dict[str | None, Engine] = {}
    if history is not None:
        viewed = {key: first.get(key) or pipeline.engines[key] for key in quality.by_key or [*first][:1]}
    served = {key: served_engine(key, engine, claims=claims) for key, engine in (first | viewed).items()}
    judged = verdicts(pipeline)
    status = Status(
        format=1,
        verdict=judged[None],
        clock=clock,
        events=tally.events,
        source_labels=tally.source_labels,
        source_classes=tally.calibration.classes,
        rejected=tally.rejected,
        reasons=dict(sorted(pipeline.reasons.items(), key=lambda item: -item[1])),
        rejects=[
            RejectPlace(row.source, row.line, row.code)
            for row in reversed([] if history is None else history.rejects)
        ],
        times=tally.times,
        doubted=join.clock.wrong,
        far_ahead=tally.far_ahead,
        lost=tally.lost,
        unknown_fields=None if sources is None else dict(+unknown),
        missing_segments=[field for field, groups in quality.segments.items() if groups.names == [None]],
        unfinished=[
            each.unfinished for each in sources or () if isinstance(each, FileSource) and each.unfinished
        ],
        join=join.counts,
        label_delay_limit=pipeline.label_delay_limit,
        samples=quality.samples,
        pending=join.pending,
        delay=pipeline.delay,
        delays=[DelayQuantile(share, delays.quantile(share)) for share in _SHARES if delays.labels],
        labelled=labelled,
        unlabelled=unlabelled,
        labels=quality.after.labels,
        positives=quality.after.positives,
        decided=set(quality.before.sketch.atoms.tolist()) <= {0.0, 1.0},
        before=quality.before.figures,
        after=quality.after.figures,
        keys=len(pipeline.engines),
        engines=[served[key] for key in first],
        views=[] if history is None else _views(pipeline, history, viewed, served, judged),
        groups=group_columns(quality),
        alarms=[] if history is None else history.alarms(viewed),
        remarks=[],
        options=dict(options or {}),
        decision=_decided(pipeline, judged[None]),
        classes={} if sums is None else {"before": sums.figures(0), "after": sums.figures(1)},
    )
    over_http = any(source.name == REQUESTS for source in sources or ())
    status.remarks = remarks(status, face or (HTTP if over_http else COMMAND))
    _mark_over(status)
    return status


def _decided(pipeline: Pipeline, verdict: Verdict) -> DecisionFigures | None:
    """Return the figures of the decisions of a run, if there are any, under the verdict on its forecasts."""
    quality, join = pipeline.quality, pipeline.join
    until = -np.inf if quality.watch.clock is None else quality.watch.clock
    days = 0.0 if join.start is None or join.time is None else (join.time - join.start) / _DAY
    if pipeline.decisions is None:
        return None
    calibrated = verdict.state == "well calibrated"
    return pipeline.decisions.figures(quality.arrival(None), until, days, calibrated, quality.bias)


def _views(
    pipeline: Pipeline,
    history: RunHistory,
    engines: Mapping[str | None, Engine],
    served: Mapping[str | None, Served],
    judged: Mapping[str | None, Verdict],
) -> list[View]:
    """Return the view of all events, with the engine if there is only one, and that of each shown key."""
    quality, clock = pipeline.quality, pipeline.join.time

    def view(key: str | None, past: History, watch: ForecastWatch, *of: str | None) -> View:
        """Return the view of a key, ``of`` an engine if there is one."""
        labels, positives = quality.after.labels, quality.after.positives
        ratings = _rating_of(quality.before), _rating_of(quality.after)
        if key is not None:
            labels, positives = past.labels, round(past.sides[1].positives.sum())
            ratings = _of_key(past.sides[0]), _of_key(past.sides[1])
        versions, priors = Versions([], [], [], [], {}), Priors([], [], [], [])
        for engine in of:
            versions = history.versions(engine)
            priors = history.priors(engine, PriorSnapshot.of(engines[engine], clock))
        verdict, shown = judged[key], served[of[0]] if of else None
        sequences = _sequences(watch, quality.sums(key), verdict)
        windows = _windows(past)
        return View(key, labels, positives, verdict, *ratings, windows, *sequences, shown, versions, priors)

    if len(pipeline.engines) == 1:
        return [view(None, quality.history, quality.watch, *engines)]
    keyed = [view(key, past, quality.watches[key], key) for key, past in quality.by_key.items()]
    return [view(None, quality.history, quality.watch), *keyed]


def _rating_of(quality: ForecastQuality) -> Rating:
    bins = quality.bins(ECE_BINS) if quality.labels else np.zeros((3, 0))
    return _rating(quality.figures, *bins)


def _of_key(totals: Totals) -> Rating:
    figures = Figures(brier=totals.brier, ece=totals.ece, gap=totals.gap)
    return _rating(figures, totals.labels, totals.forecasts, totals.positives)


def _rating(figures: Figures, labels: Floats, forecasts: Floats, positives: Floats) -> Rating:
    """Return figures with a reliability diagram, given labels, sum of forecasts and positives of each bin."""
    low, high = rate_intervals(labels, positives)
    rates, means = positives / labels, forecasts / labels
    bins = Bins(labels.astype(int).tolist(), means.tolist(), rates.tolist(), low.tolist(), high.tolist())
    return Rating(figures, bins)


def _sequences(watch: ForecastWatch, sums: LabelSums, verdict: Verdict) -> tuple[Confidence, Bands]:
    columns = zip(*map(msgspec.structs.astuple, watch.past), strict=True)
    past = Confidence(*map(list, columns)) if watch.past else Confidence([], [], [], [], [], [])
    since = verdict.since_label or 0
    if not sums.labels:
        return past, Bands([], [], [], [], [])
    # The verdict on all keys may be that on one of them, whose labels are others.
    start = list(sums.starts).index(since) if since + verdict.labels == sums.labels else 0
    gaps = sums.gaps("after")
    some = np.flatnonzero(gaps.labels[start, 1:] >= FEWEST) + 1
    labels, gap, low, high, forecast = (each[start, some].tolist() for each in gaps[:5])
    return past, Bands(forecast, [*map(round, labels)], gap, low, high)


def _mark_over(status: Status) -> None:
    """Mark the alarms that are over."""
    views = {view.key: view for view in status.views}
    latest = {alarm.key: alarm for alarm in status.alarms if alarm.code == "forecasts"}
    for alarm in status.alarms:
        view = views.get(alarm.key, status.views[0])
        if alarm.code == "lost_records":
            continue  # they do not come back
        if alarm.code == "forecasts":
            alarm.over = not view.verdict.deviates or alarm is not latest[alarm.key]
            continue
        # What is certified now does not need the assumption, or assumes it of other labels.
        served = view.served or status.views[0].served
        certified = None if served is None else served.certified
        alarm.over = certified is not None and alarm.assumption not in certified.refuted


def verdicts(pipeline: Pipeline) -> dict[str | None, Verdict]:
    """Return the verdict on all forecasts, by key None, and on those of each key that is rated."""
    quality = pipeline.quality
    by_key: dict[str | None, Verdict] = {key: quality.verdict(key) for key in quality.by_key}
    of_all, worst = quality.verdict(), worst_first(by_key)
    if worst and len(by_key) > 1:
        sentence = of_all.sentence
        if not of_all.deviates:
            of_all = by_key[worst[0]]
            sentence = f"Key {shown(worst[0])}: {of_all.sentence[0].lower()}{of_all.sentence[1:]}"
        named = ", ".join(map(shown, worst))
        sentence += f" {len(worst)} of {len(by_key)} keys deviate, the surest first: {named}."
        of_all = msgspec.structs.replace(of_all, sentence=sentence)
    return {None: of_all, **by_key}


def group_columns(quality: Quality) -> GroupColumns:
    """Return the figures of segments, and of keys if there are several, the worst first."""
    parts = {} if quality.weighted else dict(quality.segments)
    if len(quality.groups) > 1 and not quality.weighted:
        parts = {"key": quality.groups, **parts}
    named, figures = by_propensity(quality.key_sums) if quality.samples else ranked(parts)
    if not named:
        return GroupColumns()
    fields, names = zip(*named[:SHOWN_GROUPS], strict=True)
    labels, forecast, rate, _, *others, deviates = (column[:SHOWN_GROUPS] for column in figures)
    rounded = [np.round(column, 6).tolist() for column in (forecast, rate, *others)]
    columns: list[Any] = [[*fields], [*names], labels.astype(int).tolist(), *rounded, deviates.tolist()]
    return GroupColumns(*columns)


def _windows(history: History) -> Windows:
    before, after = (
        {name: values.tolist() for name, values in curve._asdict().items()} for curve in history.curves
    )
    times = [None if time != time else time for time in history.times.tolist()]
    return Windows(history.width, history.ends.tolist(), times, history.rates.tolist(), before, after)


def served_engine(key: str | None, engine: Engine, *, claims: bool = True) -> Served:
    """Return what an engine serves now; ``claims``: with its certificate."""
    certificate = engine.certificate if claims else None
    source, target, mixing, delays = engine.source, engine.target, engine.mixing, engine.label_delays
    held = delays is not None and (
        delays.late is not None or delays.outage is not None or bool(delays.held + delays.excluded)
    )
    return Served(
        key=key,
        mode=engine.config.mode,
        version=engine.version,
        bins=engine.map.bins,
        source_labels=source.labels,
        source_prior=source.prior,
        target_labels=target.labels,
        target_prior=target.prior,
        lacks_source=engine.lacks_source,
        leader=None if mixing is None else mixing.leader,
        weights={} if mixing is None else mixing.weights,
        log_e_value=engine.log_e_value,
        certified=None if certificate is None else _certified(certificate),
        no_claim=None if certificate is not None or not claims else _no_claim(engine),
        held=delays if held else None,
        apart=most_apart(engine.release) if held and engine.release is not None else None,
    )


def _certified(certificate: Certificate) -> Certified:
    names: dict[RiskField, str] = {"risk": f"of h, {certificate.domain}"}
    if certificate.domain == "source" and certificate.target_risk is not None:
        names["target_risk"] = "in the target"
    bounds = [
        Bound(of, certificate.in_words(field, ".5f"), claimed(getattr(certificate, field)))
        for field, of in names.items()
    ]
    return Certified(
        certificate.version,
        certificate.domain,
        certificate.delta,
        bounds,
        certificate.cohorts,
        certificate.pending,
        list(certificate.refuted),
        list(certificate.assumptions),
    )


def _no_claim(engine: Engine) -> str:
    """Return the reason for which an engine has no certificate."""
    domains = {"target": [engine.target], "auto": [engine.source, engine.target]}
    labels = max(domain.labels for domain in domains.get(engine.config.mode, [engine.source]))
    return f"no claim yet: {labels:,} labels so far, the first map comes with {FIRST_LABELS}"
