"""Join, engines and counts of one run, one micro-batch at a time; no input or output.

One engine a ``key``; one join for all, since a label names only its prediction's id.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from operator import length_hint
from typing import Final

import msgspec
import numpy as np

from streamcal.engine.batching_c import BlockSteps, Taken
from streamcal.engine.checked_c import lacks_time, refuses_weight
from streamcal.engine.config import RecalibratorConfig, with_join
from streamcal.engine.emissions import DriftAlarm, Emission, MapPublished, Recalibrated, Rejected
from streamcal.engine.engine import Engine
from streamcal.engine.stepping_c import pass_on, step
from streamcal.errors import DamagedStateError
from streamcal.events import DOMAINS, Domain, Event, LabelEvent, LabelledEvent, Origin
from streamcal.events.blocks import NO_LABEL, Block
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed
from streamcal.events.input_checks import InputChecks
from streamcal.join.join_c import Join, JoinConfig
from streamcal.join.outcomes import JoinCounts, Joined
from streamcal.join.tables import Tables
from streamcal.quality.delays import Delay
from streamcal.quality.figures import Quality, Unrated
from streamcal.run.config import KeysConfig
from streamcal.run.engines import KeyedEngines, check_options
from streamcal.run.order import MicroBatch
from streamcal.run.outcome import Moment, Outcome, PipelineState, Tally, count_reasons
from streamcal.run.rows import (
    AlarmRow,
    AnswerColumns,
    Answers,
    RejectRow,
    alarm_row,
    answer_rows,
    map_row,
    reject_row,
)
from streamcal.sketch import checks, weighing
from streamcal.sketch.decoding import decoded, encoded, restoring
from streamcal.values import Floats, Labels, class_name

__all__ = ["Outcome", "Pipeline", "PipelineState"]

_UNRATED: Final = 4096  # joined labels that may wait until they are rated, all at once; so may predictions
_FEW: Final = 16  # fewer events take longer many at a time than they would one by one …
_MOST: Final = 1024  # … as which so many may then be taken
_NO_TIME: Final = float("nan")


class Pipeline:
    """Join, engines and counts of one run.

    Parameters
    ----------
    config, join
        options of the engines and of the join.
    observer
        called with every joined label, once it is learned: events are then taken one by one.
    tables
        of the join; in memory if not given.
    keys
        how many there may be, and how many engines stay in memory.
    columns
        which label is positive, and what rows of answers keep of events.
    tells_maps
        whether anyone reads `Outcome.maps`. If not, versions get neither a row nor a certificate, which
        takes longer than all else of a version; their maps are the same. What their certificates
        would have refuted is told by `close`.
    keeps_answers
        whether the join keeps each answer with its prediction, so that it can be given again.
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        join: JoinConfig | None = None,
        observer: Callable[[Joined], None] | None = None,
        tables: Tables | None = None,
        keys: KeysConfig | None = None,
        columns: Columns | None = None,
        *,
        tells_maps: bool = True,
        keeps_answers: bool = False,
    ) -> None:
        self._tells_maps = tells_maps
        join = join or JoinConfig()
        self._config = with_join(config or RecalibratorConfig(), join)
        self._timed = any(map(self._config.needs_time, DOMAINS))
        self._observer = observer
        self._tables = tables
        self._join = Join(join, tables)
        self._join.rows.keeps_answers = self._keeps_answers = keeps_answers
        self._keys = keys or KeysConfig()
        self._engines: KeyedEngines = KeyedEngines(self._keys, self._make)
        self._unpublished: dict[str | None, None] = {}
        self._taking: BlockSteps | None = None
        self._stored = False
        self._taken: tuple[int, Iterator[object]] = (0, iter(()))  # events, and those of the last batch
        self._unrated = Unrated.none()
        self._uncounted = array("d"), array("d")  # predictions: their scores, and their times or NaN
        self._quality = Quality()
        columns = columns or Columns()
        self._positive = columns.positive
        self._row_of = answer_rows(columns.keep) if columns.keep else None
        self.tally = Tally()
        self.reasons: dict[str, int] = {}
        """Number of events rejected, by the kind of the reason (`streamcal.run.outcome`)."""

    @property
    def counts(self) -> JoinCounts:
        """The outcomes of the join so far."""
        return self._join.counts

    @property
    def label_delay_limit(self) -> float | None:
        """Seconds after which a prediction without a label counts as 0; None: it never does."""
        return self._config.delay_limit_seconds

    @property
    def corrects(self) -> bool:
        """Whether a label that differs from the one that was learned takes its place."""
        return self._join.config.corrections

    @property
    def pending(self) -> int:
        """Number of predictions that wait for their label."""
        return self._join.pending

    @property
    def delay(self) -> Delay:
        """Delays of the labels, and the number that may yet come."""
        return self.quality.delays.figures(self.counts.predictions, self.pending, self._join.longest_wait)

    @property
    def clock(self) -> float | None:
        """The latest event time seen; None before the first."""
        return self._join.clock

    @property
    def max_jump(self) -> float:
        """By how many seconds an event time may be past those before it."""
        return self._join.max_jump

    @property
    def engines(self) -> Mapping[str | None, Engine]:
        """The engine of every key seen, to look at: in the order of their first event."""
        return self._engines

    @property
    def engines_in_memory(self) -> int:
        """Number of engines in memory."""
        return self._engines.in_memory

    @property
    def quality(self) -> Quality:
        """Quality of the forecasts by joined labels; of an old store, by those since it was kept."""
        self._rate()
        return self._quality

    @property
    def processed(self) -> int:
        """Number of events processed since it was made; any thread may ask, at any time."""
        taken, batch = self._taken
        return taken - length_hint(batch)

    def first_engines(self, count: int) -> dict[str | None, Engine]:
        """Return the engines of the first so many keys: what can be shown where there are many."""
        return {key: self._engines[key] for key in islice(self._engines, count)}

    # Events

    def calibrate(self, batch: MicroBatch) -> Outcome:
        """Learn labelled events of the source of calibration.

        Raises
        ------
        MeaningError
            if labels or scores do not mean what they would be taken for: nothing of the batch may be
            committed.
        """
        outcome = Outcome([], [], [])
        run: tuple[str | None, Domain, list[float], list[int], list[float | None], list[float | None]]
        run = (None, "source", [], [], [], [])
        timed, meanings = self._timed, self.tally.calibration
        events = self.understood(batch, meanings)
        if isinstance(events, Block) and self._learns_whole(events):
            self._begin(batch, events)
            self._taken = self._taken[0], iter(())
            self._learn(outcome, None, events.domain, events.scores, events.labels, (), ())
            meanings.events += len(events)
            outcome.doubtful = bool(meanings.labels or meanings.percents)
            return outcome
        for index, event in enumerate(self._begin(batch, events)):
            if not isinstance(event, LabelledEvent):
                if isinstance(event, Malformed):
                    meanings.refused(event, index, batch.origin)
                reason = (
                    event.reason
                    if isinstance(event, Malformed)
                    else "an event of the source of calibration needs score and label"
                )
                outcome.rejects.append(self._reject(batch.origin(index), reason))
                continue
            if (event.key, event.domain) != run[:2]:
                self._learn(outcome, *run)
                run = (event.key, event.domain, [], [], [], [])
            if timed and (lacks := lacks_time(event, self._config)) is not None:
                outcome.rejects.append(self._reject(batch.origin(index), lacks))
                continue
            if event.weight is not None and (refused := refuses_weight(event, self._config)) is not None:
                outcome.rejects.append(self._reject(batch.origin(index), refused))
                continue
            if not self._engines.admits(event.key):
                outcome.rejects.append(self._refuse(batch.origin(index), event.key))
                continue
            run[2].append(event.score)
            run[3].append(event.label)
            run[4].append(event.time)
            run[5].append(event.weight)
        self._learn(outcome, *run)
        self._note(outcome.rejects)
        meanings.events += len(events)
        outcome.doubtful = bool(meanings.labels or meanings.percents)
        return outcome

    def calibrated(self) -> Outcome:
        """End the calibration: return the maps that it has formed, and the alarms of their certificates."""
        outcome = Outcome([], [], [])
        for key in self._unpublished if self._tells_maps else ():
            engine = self._engines.of(key)
            alarms = len(engine.alarms)
            certificate = engine.certify() if self._certifies(key) else None
            published = MapPublished(engine.map, certificate, key, engine.mixing)
            outcome.maps.append(map_row(published, self._join.clock))
            self._raise(outcome, key, engine, alarms)
        self._unpublished = {}
        return outcome

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of the deployment: answer predictions, join labels, learn. Raises as `calibrate`."""
        meanings = self.tally.deployment
        events = self.understood(batch, meanings)
        plain = self._join.takes_blocks and not self._timed and self._observer is None
        in_columns = plain and isinstance(events, Block)
        if self._tables is not None:
            self._prefetch(events)
        rated = len(self._unrated.labels)
        taking = self._begin(batch, events)
        outcome = Outcome([], [], [])
        left = self._join.advance(batch.watermark)
        for each in pass_on(left, self._engines.of) if left else ():
            self._tell(each, outcome)
        if isinstance(events, Block) and in_columns:
            outcome.answers = answers = Answers()
            self._take_block(batch, events, outcome, answers)
        else:
            outcome.answers = rows = list[Recalibrated]()
            self._step(batch, enumerate(taking), outcome, rows)
        if outcome.rejects:
            self._note(outcome.rejects)
        if len(self._unrated.labels) > rated:
            delays = np.array(self._unrated.delays[rated:])
            outcome.delays = array("d", delays[~np.isnan(delays)].tobytes())
        if len(self._unrated.labels) >= _UNRATED or len(self._uncounted[0]) >= _UNRATED:
            self._rate()
        meanings.events += len(events)
        outcome.doubtful = bool(meanings.labels or meanings.percents)
        return outcome

    def _step(
        self,
        batch: MicroBatch,
        events: Iterable[tuple[int, Event | Malformed]],
        outcome: Outcome,
        answers: list[Recalibrated],
    ) -> None:
        """Take events of a batch, with their indices, one at a time; add their answers to a list."""
        rejects, meanings = outcome.rejects, self.tally.deployment
        join, engine_of, row_of = self._join, self._engines.of, self._row_of
        known, admits = self._engines.known, self._engines.admits
        timed, may_refuse, unrated = self._timed, not join.takes_blocks, self._unrated
        first, index = len(answers), 0

        def origin_of() -> Origin:
            return batch.origin(index)

        for index, event in events:  # origin_of reads it
            if isinstance(event, Malformed):
                meanings.refused(event, index, batch.origin)
                rejects.append(self._reject(origin_of(), event.reason))
                continue
            if not isinstance(event, LabelEvent) and event.key not in known and not admits(event.key):
                rejects.append(self._refuse(origin_of(), event.key))
                continue
            if timed and (lacks := lacks_time(event, self._config)) is not None:
                rejects.append(self._reject(origin_of(), lacks))
                continue
            if may_refuse and (refused := join.refuses(event)) is not None:
                rejects.append(self._reject(origin_of(), refused))
                continue
            if event.weight is not None and (refused := refuses_weight(event, self._config)) is not None:
                rejects.append(self._reject(origin_of(), refused))
                continue
            for each in step(event, join, engine_of, origin_of):
                if type(each) is Recalibrated:
                    # The answer is that to this event; a label alone has none.
                    answers.append(each if row_of is None else row_of(each, event.kept))  # type: ignore[union-attr]
                elif isinstance(each, Joined):
                    _append(unrated, each)
                    if self._observer is not None:
                        self._observer(each)
                else:
                    self._tell(each, outcome)
        scores, times = self._uncounted
        given = answers[first:]
        scores.extend([each.score for each in given])
        times.extend([_NO_TIME if each.time is None else each.time for each in given])

    def _tell(self, emission: Emission | Joined, outcome: Outcome) -> None:
        """Take what join and engine said beside answers into an outcome."""
        if isinstance(emission, Joined):
            _append(self._unrated, emission)
            if self._observer is not None:
                self._observer(emission)
        elif isinstance(emission, Rejected):
            outcome.rejects.append(self._reject(emission.event.origin, emission.reason))
        elif isinstance(emission, MapPublished) and self._tells_maps:
            outcome.maps.append(map_row(emission, self._join.clock))
            outcome.moments.append(Moment.of(self._engines.of(emission.key), self._join.clock))
        elif isinstance(emission, DriftAlarm):
            outcome.alarms.append(self._alarm_row(emission))

    def _take_block(self, batch: MicroBatch, block: Block, outcome: Outcome, answers: Answers) -> None:
        """Take events as `_step` does, many at a time where most are of the common case."""
        before, at, steps = self._taken[0] - len(block), 0, 0
        taking = self._taking = self._taking or BlockSteps(self._join, self._engines.of, self._engines.known)
        taking.begin(block)
        while at < len(block):
            self._taken = before + at, iter(())
            taken = taking.take(at)
            self._tell_taken(taken, block, outcome, answers)
            few, at = taken.end - at < _FEW, taken.end
            if taken.expires:
                for each in pass_on(self._join.expire(), self._engines.of):
                    self._tell(each, outcome)
            steps = min(2 * max(steps, _FEW), _MOST) if few else int(taken.is_event)
            end = min(at + steps, len(block))
            if at < end:
                events = ((index, block[index]) for index in range(at, end))
                self._step(batch, events, outcome, answers.single)
                at = end
        self._taken = before + len(block), iter(())

    def _prefetch(self, events: Sequence[Event | Malformed]) -> None:
        ids = events.ids if isinstance(events, Block) else [event.id for event in events]
        self._join.prefetch([id_ for id_ in ids if id_ is not None])

    def _tell_taken(self, taken: Taken, block: Block, outcome: Outcome, rows: Answers) -> None:
        """Take what came of some events of a block into an outcome."""
        at, ends = taken.at, taken.ends
        if len(at):
            scores, times = block.scores[at], block.times[at]
            keys = None if block.keys is None else [block.keys[index] for index in at.tolist()]
            ids = block.ids if len(at) == len(block) else block.ids.take(at)
            columns = AnswerColumns(
                ids, scores, taken.probabilities, keys, times, taken.versions, taken.weights, taken.which
            )
            if self._row_of is None:
                rows.add(columns)
            else:
                kept = block.kept or [()] * len(block)
                rows.single.extend(map(self._row_of, columns.rows(), [kept[index] for index in at.tolist()]))
            self._uncounted[0].frombytes(scores.tobytes())
            self._uncounted[1].frombytes(times.tobytes())
        if len(ends):
            unrated, times = self._unrated, block.times[ends]
            unrated.scores.frombytes(taken.scores.tobytes())
            unrated.probabilities.frombytes(taken.forecasts.tobytes())
            unrated.labels.frombytes(block.labels[ends].tobytes())
            unrated.keys.extend(taken.keys)
            unrated.delays.frombytes((times - taken.predicted_at).tobytes())
            unrated.predicted_at.frombytes(taken.predicted_at.tobytes())
            unrated.times.frombytes(times.tobytes())
        for emission in taken.emissions:
            self._tell(emission, outcome)

    def end(self) -> None:
        """Say that the inputs have come to their end, before what was taken last is committed.

        Raises
        ------
        MeaningError
            if it shows now that labels or scores do not mean what they were taken for.
        """
        self.tally.calibration.end(self._positive)
        self.tally.deployment.end(self._positive)

    def close(self) -> Outcome:
        """End the stream: return a reject for every label that still waits for its prediction.

        And the alarms that the certificates of versions would have raised, if nobody read them.
        """
        rejects = [self._reject(each.event.origin, each.reason) for each in self._join.close()]
        self._note(rejects)
        outcome = Outcome([], rejects, [])
        if not self._tells_maps and len(self._engines) <= self._keys.certified:
            for key in list(self._engines):
                engine = self._engines.of(key)
                alarms = len(engine.alarms)
                engine.certify()
                self._raise(outcome, key, engine, alarms)
        return outcome

    def understood(self, batch: MicroBatch, meanings: InputChecks) -> Sequence[Event | Malformed]:
        """Return the events of a batch, with their labels decided; a subclass may read them in its own way.

        Raises
        ------
        MeaningError
            if labels or scores do not mean what they were taken for. Nothing has changed then.
        """
        events = batch.events
        if self._positive is not None:
            events = meanings.decide(events, self._positive)
        if not meanings.settled:
            meanings.take(events, batch.origin, self._positive)
        return events

    # State

    def snapshot(self) -> tuple[bytes, dict[str | None, bytes]]:
        """Return the state but for the tables: its own, and that of engines changed since the last call."""
        own = PipelineState(
            self._join.state,
            self.tally,
            list(self._unpublished),
            self.reasons,
            self.quality.state,
            self._positive_class,
        )
        return encoded(own, json=True), self._engines.snapshot()

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
            state = decoded(own, PipelineState, "a run", json=True)
            learned = state.join.counts.labels + state.tally.source_labels
            if learned and state.positive != self._positive_class:
                raise ValueError(
                    f"the labels so far were learned with {state.positive!r} as the positive one, now it is"
                    f" {self._positive_class!r}"
                )
            self._join = Join(self._join.config, self._tables, state.join)
            self._join.rows.keeps_answers = self._keeps_answers
            self._taking = None
            self.tally = state.tally
            self.reasons = state.reasons
            self._unpublished = dict.fromkeys(state.unpublished)
            if state.quality is not None:
                with restoring("not the state of a run"):
                    self._quality = Quality.restore(state.quality)
        self._engines.restore(engines)
        if not self._unpublished.keys() <= self._engines.known.keys():
            raise DamagedStateError(
                "not the state of a run: it has maps to publish of keys without an engine"
            )
        self._stored = True
        for key in islice(self._engines, 1):  # all have the same options
            self._engines[key]

    # Inside

    @property
    def _positive_class(self) -> str:
        return "1" if self._positive is None else class_name(self._positive)

    def _begin(self, batch: MicroBatch, events: Sequence[Event | Malformed]) -> Iterator[Event | Malformed]:
        """Count the events of a batch, and return them; how far they were taken is what `processed` tells."""
        self.tally.events += len(batch.events)
        times, read = self.tally.times, batch.times_read
        times.converted += read.converted
        times.mistimed += read.mistimed
        times.backwards += read.backwards
        if not self._stored:
            self._engines.rest()
        taking = iter(events)
        self._taken = (self._taken[0] + len(events), taking)
        return taking

    def _make(self, key: str | None, data: bytes | None) -> Engine:
        certifies = partial(self._certifies, key)
        if data is None:
            return Engine(self._config, key, certifies)
        engine = Engine.from_bytes(data, key, certifies)
        check_options(engine.config, self._config, key)
        return engine

    def _rate(self) -> None:
        """Rate the forecasts whose labels have come, and count the predictions that have."""
        self._quality.reach.add_predictions(*map(np.array, self._uncounted))
        self._uncounted = array("d"), array("d")
        self._quality.add(self._unrated)
        self._unrated = Unrated.none()

    def _note(self, rejects: Sequence[RejectRow]) -> None:
        count_reasons(self.reasons, (row.reason for row in rejects))

    def _certifies(self, key: str | None) -> bool:
        return self._tells_maps and (key is None or len(self._engines) <= self._keys.certified)

    def _learns_whole(self, block: Block) -> bool:
        """Whether a block of the source of calibration is one run of labelled events, none to be rejected."""
        alone = np.isnan(block.scores).any() or (block.labels == NO_LABEL).any()
        return not (alone or block.others or block.keys or self._timed) and self._engines.admits(None)

    def _learn(
        self,
        outcome: Outcome,
        key: str | None,
        domain: Domain,
        scores: Sequence[float] | Floats,
        labels: Sequence[int] | Labels,
        times: Sequence[float | None],
        weights: Sequence[float | None],
    ) -> None:
        if len(scores):
            engine = self._engines.of(key)
            version, alarms = engine.version, len(engine.alarms)
            moments = np.array(times, np.float64) if self._config.needs_time(domain) else None
            units = None
            if any(weights):  # None where there is none, and none is 0
                units = weighing.as_units([weight or 1.0 for weight in weights], len(scores))
            engine.learn_many(
                checks.as_scores(scores), checks.as_labels(labels), domain, moments, None, units
            )
            self.tally.source_labels += len(scores)
            self._raise(outcome, key, engine, alarms)
            if engine.version != version:
                self._unpublished[key] = None

    def _alarm_row(self, alarm: DriftAlarm) -> AlarmRow:
        return alarm_row(alarm, self._engines.of(alarm.key).alarms, self._join.clock)

    def _raise(self, outcome: Outcome, key: str | None, engine: Engine, before: int) -> None:
        """Add the alarms of an engine to an outcome, but for the first so many."""
        for alarm in engine.alarms[before:]:
            outcome.alarms.append(self._alarm_row(msgspec.structs.replace(alarm, key=key)))

    def _refuse(self, origin: Origin, key: str | None) -> RejectRow:
        self.tally.refused += 1
        which = "events without a key" if key is None else f"key {key!r}"
        return self._reject(
            origin, f"too many keys: {which} would be one more than the limit of {self._keys.limit}"
        )

    def _reject(self, origin: Origin | None, reason: str) -> RejectRow:
        self.tally.rejected += 1
        return reject_row(origin, reason)


def _append(unrated: Unrated, joined: Joined) -> None:
    """Add a joined label to those that are to be rated."""
    scores, probabilities, labels, keys, delays, asked_at, times, weights = unrated
    if joined.weight != 1.0:
        weights[len(labels)] = joined.weight
    predicted_at, labelled_at, time = joined.predicted_at, joined.labelled_at, joined.matured_at
    scores.append(joined.score)
    probabilities.append(joined.probability)
    labels.append(joined.label)
    keys.append(joined.key)
    asked_at.append(_NO_TIME if predicted_at is None else predicted_at)
    if labelled_at is None:
        delays.append(_NO_TIME)
        times.append(_NO_TIME if time is None else time)
    else:
        delays.append(_NO_TIME if predicted_at is None else labelled_at - predicted_at)
        times.append(labelled_at if time is None else time)
