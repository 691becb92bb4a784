"""Join, engines and counts of one run, one micro-batch at a time; no input or output.

One engine a ``key``; one join for all, since a label names only its prediction's id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from streamcal.codec import Malformed
from streamcal.config import JoinConfig, RecalibratorConfig
from streamcal.engine import Recalibrator
from streamcal.errors import DamagedStateError
from streamcal.join import Join, JoinCounts, Joined, JoinState
from streamcal.merge import MicroBatch
from streamcal.rows import MapRow, RejectRow
from streamcal.tables import Tables
from streamcal.types import (
    Domain,
    DriftAlarm,
    Emission,
    LabelledEvent,
    MapPublished,
    Origin,
    PredictionEvent,
    Recalibrated,
    Rejected,
)

__all__ = ["Outcome", "Pipeline", "PipelineState", "Tally"]


class Tally(msgspec.Struct):
    """What a run counted."""

    events: int = 0
    """Events read, of all sources, bad ones among them."""
    source_labels: int = 0
    """Labelled events learned from the source of calibration."""
    rejected: int = 0
    """Events that changed nothing: bad input, duplicates, labels without a prediction in time."""
    squares_before: float = 0.0
    """Sum of (score − label)² over the joined labels."""
    squares_after: float = 0.0
    """Sum of (probability − label)² over the joined labels, each with the probability of its time."""
    joined: int = 0
    """How many labels those sums are over."""

    @property
    def brier_before(self) -> float | None:
        """Brier score of the scores; None without joined labels."""
        return self.squares_before / self.joined if self.joined else None

    @property
    def brier_after(self) -> float | None:
        """Brier score of the recalibrated probabilities; None without joined labels."""
        return self.squares_after / self.joined if self.joined else None


class Outcome(msgspec.Struct):
    """What a micro-batch gave: rows for the sinks."""

    answers: list[Recalibrated]
    rejects: list[RejectRow]
    maps: list[MapRow]
    alarms: list[DriftAlarm] = []


class PipelineState(msgspec.Struct):
    """All but engines and tables."""

    join: JoinState
    tally: Tally
    published: list[tuple[str | None, int]]
    """By key: the map version that was published last."""


class _Scored:
    """An engine whose forecasts are scored before it learns from their labels."""

    __slots__ = ("_key", "_observer", "_tally", "changed", "engine", "published")

    def __init__(
        self,
        key: str | None,
        engine: Recalibrator,
        tally: Tally,
        observer: Callable[[Joined], None] | None,
    ) -> None:
        self._key = key
        self.engine = engine
        self.changed = False  # since its last snapshot
        self.published = 0
        self._observer = observer
        self._tally = tally

    def answer(self, event: PredictionEvent | LabelledEvent) -> Recalibrated:
        self.changed = True
        return self.engine.answer(event)

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        self.changed = True
        tally, label = self._tally, joined.label
        tally.joined += 1
        tally.squares_before += (joined.score - label) ** 2
        tally.squares_after += (joined.probability - label) ** 2
        if self._observer is not None:
            self._observer(joined)
        emissions = self.engine.learn(joined)
        if emissions and self._key is not None:
            return tuple(
                msgspec.structs.replace(each, key=self._key)
                if isinstance(each, MapPublished | DriftAlarm)
                else each
                for each in emissions
            )
        return emissions


class _Learners(dict[str | None, _Scored]):
    """By key; made when first asked for."""

    def __init__(self, make: Callable[[str | None], _Scored]) -> None:
        self._make = make

    def __missing__(self, key: str | None) -> _Scored:
        learner = self[key] = self._make(key)
        return learner


class Pipeline:
    """Join, engines and counts of one run.

    Parameters
    ----------
    config, join
        options of the engines and of the join.
    observer
        called with every joined label before it is learned.
    tables
        of the join; in memory if not given.
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        join: JoinConfig | None = None,
        observer: Callable[[Joined], None] | None = None,
        tables: Tables | None = None,
    ) -> None:
        self._config = config or RecalibratorConfig()
        self._observer = observer
        self._tables = tables
        self._join = Join(join, tables)
        self._learners = _Learners(self._new)
        self.tally = Tally()

    @property
    def counts(self) -> JoinCounts:
        """The outcomes of the join so far."""
        return self._join.counts

    @property
    def pending(self) -> int:
        """How many predictions wait for their label."""
        return self._join.pending

    @property
    def clock(self) -> float | None:
        """The latest event time seen; None before the first."""
        return self._join.clock

    @property
    def engines(self) -> dict[str | None, Recalibrator]:
        """The engine of every key seen."""
        return {key: learner.engine for key, learner in self._learners.items()}

    # Events

    def calibrate(self, batch: MicroBatch) -> Outcome:
        """Learn labelled events of the source of calibration."""
        outcome = Outcome([], [], [])
        self.tally.events += len(batch.events)
        run: tuple[str | None, Domain, list[float], list[int]] = (None, "source", [], [])
        for index, event in enumerate(batch.events):
            if not isinstance(event, LabelledEvent):
                reason = (
                    event.reason
                    if isinstance(event, Malformed)
                    else "an event of the source of calibration needs score and label"
                )
                outcome.rejects.append(self._reject(batch.origin(index), reason))
                continue
            if (event.key, event.domain) != run[:2]:
                self._learn(*run)
                run = (event.key, event.domain, [], [])
            run[2].append(event.score)
            run[3].append(event.label)
        self._learn(*run)
        return outcome

    def calibrated(self) -> list[MapRow]:
        """End the calibration: return the maps that it has formed."""
        return [
            self._map_row(MapPublished(learner.engine.map, learner.engine.certificate, key))
            for key, learner in self._learners.items()
            if learner.engine.version > learner.published
        ]

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of the deployment: answer predictions, join labels, learn."""
        answers: list[Recalibrated] = []
        rejects: list[RejectRow] = []
        maps: list[MapRow] = []
        alarms: list[DriftAlarm] = []
        events = batch.events
        self.tally.events += len(events)
        self._join.prefetch([id_ for event in events if (id_ := event.id) is not None])
        step, learner_of = self._join.step, self._learners.__getitem__
        index = 0

        def origin_of() -> Origin:
            return batch.origin(index)

        for index, event in enumerate(events):  # noqa: B007  # origin_of reads it
            if isinstance(event, Malformed):
                rejects.append(self._reject(origin_of(), event.reason))
                continue
            for emission in step(event, learner_of, origin_of):
                if type(emission) is Recalibrated:
                    answers.append(emission)
                elif isinstance(emission, Rejected):
                    rejects.append(self._reject(emission.event.origin, emission.reason))
                elif isinstance(emission, MapPublished):
                    maps.append(self._map_row(emission))
                elif isinstance(emission, DriftAlarm):
                    alarms.append(emission)
        return Outcome(answers, rejects, maps, alarms)

    def close(self) -> list[RejectRow]:
        """End the stream: return a reject for every label that still waits for its prediction."""
        return [self._reject(each.event.origin, each.reason) for each in self._join.close()]

    # State

    def snapshot(self) -> tuple[bytes, dict[str | None, bytes]]:
        """Return the state but for the tables: its own, and that of engines changed since the last call."""
        published = [(key, each.published) for key, each in self._learners.items() if each.published]
        own = msgspec.json.encode(PipelineState(self._join.state, self.tally, published))
        engines = {key: each.engine.to_bytes() for key, each in self._learners.items() if each.changed}
        for key in engines:
            self._learners[key].changed = False
        return own, engines

    def restore(self, own: bytes, engines: Mapping[str | None, bytes]) -> None:
        """Go on from what snapshots gave, with the tables of the same moment.

        Raises
        ------
        DamagedStateError
            if the bytes are no such state.
        ValueError
            if an engine was made with options other than this pipeline's; it names them.
        """
        try:
            state = msgspec.json.decode(own, type=PipelineState)
        except msgspec.DecodeError as error:
            raise DamagedStateError(f"not the state of a run: {error}") from None
        self._join = Join(self._join.config, self._tables, state.join)
        self.tally = state.tally
        published = dict(state.published)
        self._learners.clear()
        for key, data in engines.items():
            engine = Recalibrator.from_bytes(data)
            _check_options(engine.config, self._config, key)
            learner = _Scored(key, engine, self.tally, self._observer)
            learner.published = published.get(key, 0)
            self._learners[key] = learner

    # Inside

    def _new(self, key: str | None) -> _Scored:
        return _Scored(key, Recalibrator(self._config), self.tally, self._observer)

    def _learn(self, key: str | None, domain: Domain, scores: Sequence[float], labels: Sequence[int]) -> None:
        if scores:
            learner = self._learners[key]
            learner.changed = True
            learner.engine.learn_many(scores, labels, domain)
            self.tally.source_labels += len(scores)

    def _map_row(self, emission: MapPublished) -> MapRow:
        self._learners[emission.key].published = emission.map.version
        certificate = emission.certificate
        return MapRow(
            emission.map.version,
            emission.key,
            self._join.clock,
            msgspec.Raw(emission.map.model_dump_json().encode()),
            msgspec.Raw(b"null" if certificate is None else certificate.model_dump_json().encode()),
        )

    def _reject(self, origin: Origin | None, reason: str) -> RejectRow:
        self.tally.rejected += 1
        if origin is None:
            return RejectRow("", 0, reason, "")
        raw = origin.raw.decode("utf-8", "backslashreplace")
        return RejectRow(origin.source, origin.line, reason, raw)


def _check_options(stored: RecalibratorConfig, wanted: RecalibratorConfig, key: str | None) -> None:
    before, now = stored.model_dump(), wanted.model_dump()
    unlike = [f"{name} ({before[name]!r}, now {now[name]!r})" for name in now if before[name] != now[name]]
    if unlike:
        which = "" if key is None else f" of key {key!r}"
        raise ValueError(f"the stored engine{which} was made with other options: {', '.join(unlike)}")
