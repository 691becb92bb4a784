"""Join, engines and counts of one run, one micro-batch at a time; no input or output.

One engine a ``key``; one join for all, since a label names only its prediction's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import msgspec

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.emissions import DriftAlarm, Emission, MapPublished, Recalibrated, Rejected
from streamcal.engine.recalibrator import Recalibrator
from streamcal.errors import DamagedStateError
from streamcal.events import Domain, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.join.join import Join, JoinConfig, JoinCounts, Joined, JoinState
from streamcal.join.tables import Tables
from streamcal.run.codec import Malformed
from streamcal.run.config import KeysConfig
from streamcal.run.engines import KeyedEngines
from streamcal.run.order import MicroBatch
from streamcal.run.rows import MapRow, RejectRow

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
    refused: int = 0
    """Those of the rejected events whose key was one too many."""

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
    unpublished: list[str | None] = []
    """Keys for which calibration has formed a map that was not published yet."""


class _Scored:
    """An engine whose forecasts are scored before it learns from their labels."""

    __slots__ = ("_certify", "_key", "_observer", "_tally", "answer", "engine")

    def __init__(
        self,
        key: str | None,
        engine: Recalibrator,
        tally: Tally,
        observer: Callable[[Joined], None] | None,
        certify: Callable[[str | None], bool],
        begun: list[MapPublished] | None,
    ) -> None:
        self._key = key
        self.engine = engine
        self.answer: Callable[[PredictionEvent | LabelledEvent], Recalibrated] = (
            engine.answer if begun is None else partial(_answer, engine, key, begun)
        )
        self._observer = observer
        self._tally = tally
        self._certify = certify

    @property
    def seen(self) -> int:
        return self.engine.seen

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        tally, label = self._tally, joined.label
        tally.joined += 1
        tally.squares_before += (joined.score - label) ** 2
        tally.squares_after += (joined.probability - label) ** 2
        if self._observer is not None:
            self._observer(joined)
        emissions = self.engine.learn(joined, certify=self._certify(self._key))
        if emissions and self._key is not None:
            return tuple(
                msgspec.structs.replace(each, key=self._key)
                if isinstance(each, MapPublished | DriftAlarm)
                else each
                for each in emissions
            )
        return emissions


def _answer(
    engine: Recalibrator,
    key: str | None,
    begun: list[MapPublished],
    event: PredictionEvent | LabelledEvent,
) -> Recalibrated:
    """Answer a prediction, and take note of the maps that this has begun."""
    answer = engine.answer(event)
    begun += [msgspec.structs.replace(each, key=key) for each in engine.take_unpublished()]
    return answer


class _Engines(Mapping[str | None, Recalibrator]):
    """The engine of every key, to look at; one that is parked is made when it is asked for, and not kept."""

    def __init__(self, engines: KeyedEngines[_Scored]) -> None:
        self._engines = engines

    def __getitem__(self, key: str | None) -> Recalibrator:
        return self._engines.peek(key)

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._engines)

    def __len__(self) -> int:
        return len(self._engines)


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
    keys
        how many there may be, and how many engines stay in memory.
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        join: JoinConfig | None = None,
        observer: Callable[[Joined], None] | None = None,
        tables: Tables | None = None,
        keys: KeysConfig | None = None,
    ) -> None:
        self._config = config or RecalibratorConfig()
        self._observer = observer
        self._tables = tables
        self._join = Join(join, tables)
        self._keys = keys or KeysConfig()
        self._engines: KeyedEngines[_Scored] = KeyedEngines(self._keys, self._make)
        self._unpublished: dict[str | None, None] = {}
        self._begun: list[MapPublished] = []
        self._stored = False
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
    def engines(self) -> Mapping[str | None, Recalibrator]:
        """The engine of every key seen, to look at: in the order of their first event."""
        return _Engines(self._engines)

    @property
    def engines_in_memory(self) -> int:
        """How many of them are in memory."""
        return self._engines.in_memory

    def first_engines(self, count: int) -> dict[str | None, Recalibrator]:
        """Return the engines of the first so many keys: what can be shown where there are many."""
        return {key: self._engines.peek(key) for key in islice(self._engines, count)}

    # Events

    def calibrate(self, batch: MicroBatch) -> Outcome:
        """Learn labelled events of the source of calibration."""
        outcome = Outcome([], [], [])
        self._begin(batch)
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
            if not self._engines.admits(event.key):
                outcome.rejects.append(self._refuse(batch.origin(index), event.key))
                continue
            run[2].append(event.score)
            run[3].append(event.label)
        self._learn(*run)
        return outcome

    def calibrated(self) -> list[MapRow]:
        """End the calibration: return the maps that it has formed."""
        rows = []
        for key in self._unpublished:
            engine = self._engines.of(key).engine  # it may raise an alarm: it is changed
            certificate = engine.certificate if self._certifies(key) else None
            rows.append(self._map_row(MapPublished(engine.map, certificate, key, engine.mixing)))
        self._unpublished = {}
        return rows

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of the deployment: answer predictions, join labels, learn."""
        answers: list[Recalibrated] = []
        rejects: list[RejectRow] = []
        maps: list[MapRow] = []
        alarms: list[DriftAlarm] = []
        events = batch.events
        self._begin(batch)
        self._join.prefetch([id_ for event in events if (id_ := event.id) is not None])
        expired = self._join.advance(batch.watermark)
        rejects += [self._reject(each.event.origin, each.reason) for each in expired]
        step, learner_of = self._join.step, self._engines.of
        used, admits, begun = self._engines.used, self._engines.admits, self._begun
        index = 0

        def origin_of() -> Origin:
            return batch.origin(index)

        for index, event in enumerate(events):  # noqa: B007  # origin_of reads it
            if isinstance(event, Malformed):
                rejects.append(self._reject(origin_of(), event.reason))
                continue
            if not isinstance(event, LabelEvent) and event.key not in used and not admits(event.key):
                rejects.append(self._refuse(origin_of(), event.key))
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
            if begun:
                maps += map(self._map_row, begun)
                begun.clear()
        return Outcome(answers, rejects, maps, alarms)

    def close(self) -> list[RejectRow]:
        """End the stream: return a reject for every label that still waits for its prediction."""
        return [self._reject(each.event.origin, each.reason) for each in self._join.close()]

    # State

    def snapshot(self) -> tuple[bytes, dict[str | None, bytes]]:
        """Return the state but for the tables: its own, and that of engines changed since the last call."""
        own = msgspec.json.encode(PipelineState(self._join.state, self.tally, list(self._unpublished)))
        return own, self._engines.snapshot()

    def restore(self, own: bytes, engines: Mapping[str | None, bytes]) -> None:
        """Go on from what snapshots gave, with the tables of the same moment.

        Parameters
        ----------
        own
            the state beside engines and tables; empty at the very beginning.
        engines
            their states by key, each asked for when it is needed; for as long as this pipeline is used, it
            has to show what was committed last.

        Raises
        ------
        DamagedStateError
            if the bytes are no such state.
        ValueError
            if an engine was made with options other than this pipeline's; it names them.
        """
        if own:
            try:
                state = msgspec.json.decode(own, type=PipelineState)
            except msgspec.DecodeError as error:
                raise DamagedStateError(f"not the state of a run: {error}") from None
            self._join = Join(self._join.config, self._tables, state.join)
            self.tally = state.tally
            self._unpublished = dict.fromkeys(state.unpublished)
        self._engines.restore(engines)
        self._stored = True
        for key in islice(self._engines, 1):  # all have the same options
            self._engines.peek(key)

    # Inside

    def _begin(self, batch: MicroBatch) -> None:
        self.tally.events += len(batch.events)
        if not self._stored:
            self._engines.rest()

    def _make(self, key: str | None, data: bytes | None) -> _Scored:
        if data is None:
            engine = Recalibrator(self._config)
        else:
            engine = Recalibrator.from_bytes(data)
            _check_options(engine.config, self._config, key)
        begun = None if self._config.prior == "labels" else self._begun
        return _Scored(key, engine, self.tally, self._observer, self._certifies, begun)

    def _certifies(self, key: str | None) -> bool:
        return key is None or len(self._engines) <= self._keys.certified

    def _learn(self, key: str | None, domain: Domain, scores: Sequence[float], labels: Sequence[int]) -> None:
        if scores:
            engine = self._engines.of(key).engine
            version = engine.version
            engine.learn_many(scores, labels, domain)
            self.tally.source_labels += len(scores)
            if engine.version != version:
                self._unpublished[key] = None

    def _map_row(self, emission: MapPublished) -> MapRow:
        certificate = emission.certificate
        return MapRow(
            emission.map.version,
            emission.key,
            self._join.clock,
            msgspec.Raw(emission.map.model_dump_json().encode()),
            msgspec.Raw(b"null" if certificate is None else certificate.model_dump_json().encode()),
            msgspec.Raw(msgspec.json.encode(emission.mixture)),
        )

    def _refuse(self, origin: Origin, key: str | None) -> RejectRow:
        self.tally.refused += 1
        which = "events without a key" if key is None else f"key {key!r}"
        return self._reject(
            origin, f"too many keys: {which} would be one more than the limit of {self._keys.limit}"
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
