"""History of a run, from which its status record is made.

A record is made between two micro-batches. What is kept is bounded, however long the run and however many
its keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
import numpy as np

from streamcal.certificates.record import NO_CLAIM
from streamcal.engine.emissions import DriftAlarm, Mixing
from streamcal.engine.engine import Engine
from streamcal.run.alarms import advised
from streamcal.run.history import Curve, History, Totals
from streamcal.run.outcome import Moment, Outcome, kind_of
from streamcal.run.pipeline import Pipeline
from streamcal.run.quality import ECE_BINS, Figures, ForecastQuality
from streamcal.run.rows import AlarmRow, MapRow, RejectRow
from streamcal.run.status import (
    INTERVAL,
    Alarm,
    Bins,
    Certified,
    CurveColumns,
    Priors,
    Rating,
    RejectPlace,
    Served,
    Status,
    Versions,
    View,
    Windows,
)
from streamcal.values import Floats

__all__ = ["LATEST_REJECTS", "RunHistory"]

LATEST_REJECTS: Final = 20
"""Number of the latest rejects that are shown one by one."""

_MOST_POINTS: Final = 128
_MOST_ALARMS: Final = 50
_MOST_KEYS: Final = 128  # whose history is kept: far more than are shown

T = TypeVar("T")


class _Thinned(Generic[T]):
    """Values in their order: all at first, then ever fewer of those behind, and always the latest."""

    def __init__(self) -> None:
        self._kept: list[T] = []
        self._stride, self._count = 1, 0
        self.latest: T | None = None

    def add(self, value: T) -> None:
        """Add one."""
        if self._count % self._stride == 0:
            if len(self._kept) == _MOST_POINTS:
                self._kept = self._kept[::2]
                self._stride *= 2
            if self._count % self._stride == 0:
                self._kept.append(value)
        self.latest = value
        self._count += 1

    @property
    def values(self) -> list[T]:
        """Values that are kept, and the latest."""
        if self.latest is None or (self._kept and self._kept[-1] is self.latest):
            return self._kept
        return [*self._kept, self.latest]


class _Risks(msgspec.Struct):
    risk: float
    target_risk: float | None


class RunHistory:
    """History of a run that nothing else keeps: map versions, priors and the latest rejects."""

    def __init__(self) -> None:
        self._maps: dict[str | None, _Thinned[MapRow]] = {}
        self._moments: dict[str | None, _Thinned[Moment]] = {}
        self._alarms: deque[AlarmRow] = deque(maxlen=_MOST_ALARMS)
        self.rejects: deque[RejectRow] = deque(maxlen=LATEST_REJECTS)
        """The latest, with the raw text: newest last."""

    def take(self, outcome: Outcome) -> None:
        """Take note of what a micro-batch gave."""
        self.take_maps(outcome.maps)
        for row, moment in zip(outcome.maps, outcome.moments, strict=False):  # of a calibration: none
            self._take_moment(row.key, moment)
        self._alarms.extend(outcome.alarms)
        self.rejects.extend(outcome.rejects[-LATEST_REJECTS:])

    def take_maps(self, rows: Iterable[MapRow]) -> None:
        """Take note of map versions, such as those of a store, in their order."""
        for row in rows:
            maps = self._maps.get(row.key)
            if maps is None:
                if len(self._maps) > _MOST_KEYS:
                    continue
                maps = self._maps[row.key] = _Thinned()
            if bytes(row.certificate) == b"null" and maps.latest is not None:  # the newest certificate stands
                row = msgspec.structs.replace(row, certificate=maps.latest.certificate)
            maps.add(row)

    def status(
        self,
        pipeline: Pipeline,
        warnings: Sequence[str] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Status:
        """Return how a run stands, and take note of its priors.

        Parameters
        ----------
        pipeline
            that of the run, between two micro-batches.
        warnings
            such as those of `streamcal.run.closing`.
        options
            those of the run, without secrets; shown as they are.
        """
        quality = pipeline.quality
        keys: list[str | None] = [*quality.by_key] or [*pipeline.first_engines(1)]
        engines = {key: pipeline.engines[key] for key in keys}
        alone = engines if len(pipeline.engines) == 1 else {}
        views = [self._all(pipeline, next(iter(alone.items()), None))]
        if quality.by_key and not alone:
            views += [
                self._of_key(pipeline, key, quality.by_key[str(key)], engine)
                for key, engine in engines.items()
            ]
        return Status(
            format=1,
            clock=pipeline.clock,
            events=pipeline.tally.events,
            source_labels=pipeline.tally.source_labels,
            rejected=pipeline.tally.rejected,
            reasons=dict(sorted(pipeline.reasons.items(), key=lambda item: -item[1])),
            rejects=[
                RejectPlace(row.source, row.line, kind_of(row.reason)) for row in reversed(self.rejects)
            ],
            join=pipeline.counts,
            pending=pipeline.pending,
            delay=pipeline.delay,
            keys=len(pipeline.engines),
            views=views,
            alarms=self._raised(engines),
            warnings=list(warnings),
            options=dict(options or {}),
        )

    def _all(self, pipeline: Pipeline, alone: tuple[str | None, Engine] | None) -> View:
        quality = pipeline.quality
        key, engine = alone or (None, None)
        maps, priors = self._served(pipeline, key, engine)
        return View(
            None,
            quality.after.labels,
            quality.after.positives,
            _rated(quality.before),
            _rated(quality.after),
            _windows(quality.history),
            None if engine is None else _engine(engine),
            _versions(maps),
            priors,
        )

    def _of_key(self, pipeline: Pipeline, key: str | None, history: History, engine: Engine) -> View:
        maps, priors = self._served(pipeline, key, engine)
        before, after = history.totals
        return View(
            key,
            history.labels,
            round(after.positives.sum()),
            _rated_by_totals(before),
            _rated_by_totals(after),
            _windows(history),
            _engine(engine),
            _versions(maps),
            priors,
        )

    def _served(
        self, pipeline: Pipeline, key: str | None, engine: Engine | None
    ) -> tuple[list[MapRow], Priors]:
        """Return the map versions of an engine, and its priors up to now."""
        if engine is None:
            return [], Priors([], [], [], [])
        self._moments.setdefault(key, _Thinned())  # a shown key always keeps its history
        self._take_moment(key, Moment.of(engine, pipeline.clock))
        maps, moments = self._maps.get(key), self._moments[key].values
        columns: list[list[Any]] = [list(column) for column in zip(*moments, strict=True)]
        return [] if maps is None else maps.values, Priors(*columns)

    def _take_moment(self, key: str | None, moment: Moment) -> None:
        moments = self._moments.get(key)
        if moments is None:
            if len(self._moments) > _MOST_KEYS:
                return
            moments = self._moments[key] = _Thinned()
        if moments.values[-1:] != [moment]:
            moments.add(moment)

    def _raised(self, engines: Mapping[str | None, Engine]) -> list[Alarm]:
        """Return the alarms, the newest last: those of the engines shown, and of others in this process."""
        raised: list[DriftAlarm | AlarmRow] = [
            msgspec.structs.replace(alarm, key=key)
            for key, engine in engines.items()
            for alarm in engine.alarms
        ]
        raised += [alarm for alarm in self._alarms if alarm.key not in engines]
        return [advised(alarm) for alarm in raised[-_MOST_ALARMS:]]


def _rated(quality: ForecastQuality) -> Rating:
    figures: Figures = quality.figures
    bins = quality.bins(ECE_BINS) if quality.labels else np.zeros((3, 0))
    return Rating(figures.brier, figures.log_loss, figures.ece, figures.gap, _bins(*bins))


def _rated_by_totals(side: Totals) -> Rating:
    bins = _bins(side.labels, side.forecasts, side.positives)
    return Rating(side.brier, side.log_loss, side.ece, side.gap, bins)


def _bins(labels: Floats, forecasts: Floats, positives: Floats) -> Bins:
    from scipy.special import betaincinv  # takes a fifth of the time in which the command starts

    negatives, tail = labels - positives, (1.0 - INTERVAL) / 2.0
    low = betaincinv(np.maximum(positives, 1.0), negatives + 1.0, tail)
    high = betaincinv(positives + 1.0, np.maximum(negatives, 1.0), 1.0 - tail)
    return Bins(
        labels.astype(int).tolist(),
        (forecasts / labels).tolist(),
        (positives / labels).tolist(),
        np.where(positives > 0.0, low, 0.0).tolist(),
        np.where(negatives > 0.0, high, 1.0).tolist(),
    )


def _windows(history: History) -> Windows:
    def columns(curve: Curve) -> CurveColumns:
        return CurveColumns(*(values.tolist() for values in curve))

    before, after = history.curves
    times = [None if time != time else time for time in history.times.tolist()]
    return Windows(
        history.width,
        history.ends.tolist(),
        times,
        history.rates.tolist(),
        columns(before),
        columns(after),
    )


def _versions(rows: Sequence[MapRow]) -> Versions:
    found = [
        (
            row.version,
            row.time,
            msgspec.json.decode(row.certificate, type=_Risks | None),
            msgspec.json.decode(row.mixture, type=Mixing | None),
        )
        for row in rows
    ]
    names = dict.fromkeys(name for *_, mixing in found if mixing is not None for name in mixing.weights)
    return Versions(
        [version for version, *_ in found],
        [time for _, time, *_ in found],
        [None if risks is None else _claimed(risks.risk) for *_, risks, _ in found],
        [None if risks is None else _claimed(risks.target_risk) for *_, risks, _ in found],
        {
            name: [0.0 if mixing is None else mixing.weights.get(name, 0.0) for *_, mixing in found]
            for name in names
        },
    )


def _claimed(bound: float | None) -> float | None:
    return bound if bound is not None and bound < NO_CLAIM else None


def _engine(engine: Engine) -> Served:
    certificate = engine.certificate
    source, target = engine.source, engine.target
    return Served(
        engine.version,
        engine.map.bins,
        source.labels,
        source.prior,
        target.labels,
        target.prior,
        None if engine.mixing is None else engine.mixing.leader,
        engine.log_e_value,
        None
        if certificate is None
        else Certified(
            certificate.version,
            certificate.domain,
            certificate.delta,
            certificate.in_words("risk"),
            certificate.in_words("target_risk"),
            certificate.pending,
            list(certificate.refuted),
            list(certificate.assumptions),
        ),
    )
