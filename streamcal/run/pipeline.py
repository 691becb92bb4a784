"""Join, engines and counts of one run, one micro-batch at a time; no input or output.

One engine a ``key``; one join for all, since a label names only its prediction's id.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from streamcal.engine.batching_c import BlockSteps, Taken
from streamcal.engine.checked_c import lacks_time, refuses_weight
from streamcal.engine.config import RecalibratorConfig, with_join
from streamcal.engine.emissions import DriftAlarm, Emission, MapPublished, Recalibrated, Rejected
from streamcal.engine.engine import Engine
from streamcal.engine.stepping_c import emit, step
from streamcal.errors import DamagedStateError
from streamcal.events import DOMAINS, Domain, Event, LabelEvent, LabelledEvent, Origin
from streamcal.events.blocks import NO_LABEL, Block
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed
from streamcal.events.input_checks import InputChecks
from streamcal.join.join_c import Join, JoinConfig
from streamcal.join.outcomes import Joined
from streamcal.join.tables import Tables
from streamcal.multiclass.classes_engine import ClassesEngine
from streamcal.quality.class_sums import ClassSums
from streamcal.quality.delays import Delay
from streamcal.quality.figures import Quality, Raised, Unrated
from streamcal.quality.groups import Groups
from streamcal.run.config import KeysConfig, SegmentsConfig
from streamcal.run.engines import KeyedEngines, check_options
from streamcal.run.order import MicroBatch
from streamcal.run.outcome import Outcome, PipelineState, PriorSnapshot, Tally, count_reasons
from streamcal.run.rows import (
    Answers,
    RejectRow,
    alarm_row,
    answer_columns,
    answer_rows,
    forecast_alarm_row,
    map_row,
    reject_row,
)
from streamcal.segments.segmented_engine import SegmentedEngine
from streamcal.segments.stored_rows import Row, SegmentId, StoredRows
from streamcal.sketch import checks, weighing
from streamcal.sketch.decoding import decoded, encoded, restoring
from streamcal.values import Counts, Floats, Labels, class_name

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
    segments
        fields that make segments, which ``columns`` has to carry.
    publishes_maps
        whether anyone reads `Outcome.maps`. If not, versions get neither a row nor a certificate, which
        takes longer than all else of a version; their maps are the same. What their certificates
        would have refuted is told by `close`.
    keeps_answers
        whether the join keeps each answer with its prediction, so that it can be given again.
    checks_deployment
        whether labels or scores of the deployment that seem to have another meaning end the run; if not, each
        is only rejected. Those of the source of calibration always do.
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        join: JoinConfig | None = None,
        observer: Callable[[Joined], None] | None = None,
        tables: Tables | None = None,
        keys: KeysConfig | None = None,
        columns: Columns | None = None,
        segments: SegmentsConfig | None = None,
        *,
        publishes_maps: bool = True,
        keeps_answers: bool = False,
        checks_deployment: bool = True,
    ) -> None:
        columns = columns or Columns()
        # What is served of many classes is no map of one score.
        self._checks_deployment, self._publishes_maps = (
            checks_deployment,
            publishes_maps and not columns.classes,
        )
        join = join or JoinConfig()
        self._config = with_join(config or RecalibratorConfig(), join)
        self.label_delay_limit = self._config.delay_limit_seconds
        """Seconds after which a prediction without a label counts as 0; None: it never does."""
        self._timed = any(map(self._config.needs_time, DOMAINS))
        self._observer = observer
        self._tables = tables
        self.classes = columns.classes
        """Names of many classes; empty: there are two."""
        self._keeps_answers = keeps_answers
        self.join: Join = self._join(Join(join, tables))
        """Predictions that wait for their label; replaced by `restore`."""
        self._keys = keys or KeysConfig()
        self.engines: KeyedEngines = KeyedEngines(self._keys, self._make)
        """Engine of every key, in the order of their first event."""
        self._unpublished: dict[str | None, None] = {}
        self._taking: BlockSteps | None = None
        self._stored = False
        self.processed = 0
        """Number of events processed since it was made; any thread may ask, at any time."""
        self._unrated = Unrated()
        self.segments = segments or SegmentsConfig()
        """Fields that make segments, if there are any."""
        fields = ["class"] if columns.classes else self.segments.fields
        groups = {field: Groups() for field in fields}
        sums = ClassSums.of(columns.classes) if columns.classes else None
        self._quality = Quality(matures=self.label_delay_limit is not None, segments=groups, classes=sums)
        self._raised = list[Raised]()
        self.positive = columns.positive
        """Label of class 1; None: labels are 0 and 1."""
        self._positive_class = "1" if self.positive is None else class_name(self.positive)
        self._row_of = answer_rows(columns.keep, columns.classes) if columns.keep or columns.classes else None
        self._first_score = len(columns.keep)  # among what an event keeps
        self._rows: StoredRows | None = None  # of segments, where there is a store
        self._places = [columns.carried.index(name) for name in self.segments.fields]
        self.tally = Tally()
        self.reasons: dict[str, int] = {}
        """Number of events rejected, by the kind of the reason (`streamcal.run.outcome`)."""

    @property
    def delay(self) -> Delay:
        """Delays of the labels, and the number that may yet come."""
        join = self.join
        return self.quality.delays.figures(join.counts.predictions, join.pending, join.longest_wait)

    @property
    def quality(self) -> Quality:
        """Quality of the forecasts by joined labels; of an old store, by those since it was kept."""
        self._rate()
        return self._quality

    def first_engines(self, count: int) -> dict[str | None, Engine]:
        """Return the engines of the first so many keys: what can be shown where there are many."""
        return {key: self.engines[key] for key in islice(self.engines, count)}

    # Events

    def calibrate(self, batch: MicroBatch) -> Outcome:
        """Learn labelled events of the source of calibration.

        Raises
        ------
        MeaningError
            if labels or scores do not mean what they would be taken for: nothing of the batch may be
            committed.
        """
        outcome, input_checks = Outcome([], [], []), self.tally.calibration
        events = self._begin(batch, input_checks)
        if isinstance(events, Block) and self._learns_whole(events):
            self.processed += len(events)
            self._learn(outcome, None, events.domain, events.scores, events.labels, events.times)
        else:
            self._calibrate_each(batch, events, outcome)
        return self._ended(outcome, input_checks, events)

    def _calibrate_each(
        self, batch: MicroBatch, events: Sequence[Event | Malformed], outcome: Outcome
    ) -> None:
        """Learn labelled events in runs of one key and domain."""
        config, run = self._config, list[LabelledEvent]()
        for index, event in enumerate(events):
            self.processed += 1
            reason: str | None = "an event of the source of calibration needs score and label"
            if isinstance(event, Malformed):
                self.tally.calibration.refused(event, index, batch.origin)
                reason = event.reason
            elif isinstance(event, LabelledEvent):
                if run and (event.key, event.domain) != (run[0].key, run[0].domain):
                    self._learn_run(outcome, run)
                    run = []
                reason = lacks_time(event, config) if self._timed else None
                if reason is None and event.weight is not None:
                    reason = refuses_weight(event, config)
                if reason is None and not self.engines.admits(event.key):
                    reason = self._too_many_keys(event.key)
                if reason is None:
                    run.append(event)
            if reason is not None:
                outcome.rejects.append(self._reject(batch.origin(index), reason))
        self._learn_run(outcome, run)

    def calibrated(self) -> Outcome:
        """End the calibration: return the maps that it has formed, and the alarms of their certificates."""
        outcome = Outcome([], [], [])
        for key in self._unpublished if self._publishes_maps else ():
            engine = self.engines.of(key)
            alarms = len(engine.alarms)
            certificate = engine.certify() if self._certifies(key) else None
            published = MapPublished(engine.served.map, certificate, key, engine.mixing)
            outcome.maps.append(map_row(published, self.join.clock))
            self._raise(outcome, key, engine, alarms)
        self._unpublished = {}
        return outcome

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of the deployment: answer predictions, join labels, learn. Raises as `calibrate`."""
        input_checks = self.tally.deployment
        events = self._begin(batch, input_checks, ends=self._checks_deployment)
        plain = self.join.takes_blocks and not self._timed and self._observer is None
        in_columns = plain and isinstance(events, Block)
        if self._tables is not None:
            ids = events.ids if isinstance(events, Block) else [event.id for event in events]
            self.join.prefetch([id_ for id_ in ids if id_ is not None])
        rated = len(self._unrated.labels)
        outcome = Outcome([], [], [])
        left = self.join.advance(batch.watermark)
        for each in emit(left, self.engines.of) if left else ():
            self._emit(each, outcome)
        if isinstance(events, Block) and in_columns:
            outcome.answers = answers = Answers()
            self._take_block(batch, events, outcome, answers)
        else:
            outcome.answers = rows = list[Recalibrated]()
            self._step(batch, enumerate(events), outcome, rows)
        if len(self._unrated.labels) > rated:
            delays = np.array(self._unrated.delays[rated:])
            outcome.delays = array("d", delays[~np.isnan(delays)].tobytes())
        if len(self._unrated.labels) >= self._quality.watch.until_look:
            self._rate()
            self._emit_raised(outcome)
        elif max(len(self._unrated.labels), len(self._unrated.predictions)) >= _UNRATED:
            self._rate()
        return self._ended(outcome, input_checks, events)

    def _step(
        self,
        batch: MicroBatch,
        events: Iterable[tuple[int, Event | Malformed]],
        outcome: Outcome,
        answers: list[Recalibrated],
    ) -> None:
        """Take events of a batch, with their indices, one at a time; add their answers to a list."""
        rejects, input_checks = outcome.rejects, self.tally.deployment
        config, join, engine_of, row_of = self._config, self.join, self.engines.of, self._row_of
        known, admits = self.engines.known, self.engines.admits
        timed, may_refuse, checks = self._timed, not join.takes_blocks, self._checks_deployment
        first, index = len(answers), 0

        def origin_of() -> Origin:
            return batch.origin(index)

        for index, event in events:  # origin_of reads it
            self.processed += 1
            if isinstance(event, Malformed):
                if checks:
                    input_checks.refused(event, index, batch.origin)
                rejects.append(self._reject(origin_of(), event.reason))
                continue
            if not isinstance(event, LabelEvent) and event.key not in known and not admits(event.key):
                rejects.append(self._reject(origin_of(), self._too_many_keys(event.key)))
                continue
            reason = (
                (lacks_time(event, config) if timed else None)
                or (join.refuses(event) if may_refuse else None)
                or (None if event.weight is None else refuses_weight(event, config))
            )
            if reason is not None:
                rejects.append(self._reject(origin_of(), reason))
                continue
            for each in step(event, join, engine_of, origin_of):
                if isinstance(each, Recalibrated):
                    # The answer is that to this event; a label alone has none.
                    answers.append(each if row_of is None else row_of(each, event.kept))  # type: ignore[union-attr]
                else:
                    self._emit(each, outcome)
        given = answers[first:]
        unrated = self._unrated
        unrated.predictions.extend([each.score for each in given])
        unrated.prediction_times.extend([_NO_TIME if each.time is None else each.time for each in given])

    def _emit(self, emission: Emission | Joined, outcome: Outcome) -> None:
        """Take what join and engine said beside answers into an outcome."""
        if isinstance(emission, Joined):
            self._unrated.add(emission)
            if self._observer is not None:
                self._observer(emission)
        elif isinstance(emission, Rejected):
            outcome.rejects.append(self._reject(emission.event.origin, emission.reason))
        elif isinstance(emission, MapPublished) and self._publishes_maps:
            outcome.maps.append(map_row(emission, self.join.clock))
            outcome.priors.append(PriorSnapshot.of(self.engines.of(emission.key), self.join.clock))
        elif isinstance(emission, DriftAlarm):
            alarms = self.engines.of(emission.key).alarms
            outcome.alarms.append(alarm_row(emission, alarms, self.join.clock))

    def _take_block(self, batch: MicroBatch, block: Block, outcome: Outcome, answers: Answers) -> None:
        """Take events as `_step` does, many at a time where most are of the common case."""
        at = steps = 0
        taking = self._taking = self._taking or BlockSteps(self.join, self.engines.of, self.engines.known)
        taking.begin(block)
        while at < len(block):
            taken = taking.take(at)
            self.processed += taken.end - at
            self._emit_block(taken, block, outcome, answers)
            few, at = taken.end - at < _FEW, taken.end
            if taken.expires:
                for each in emit(self.join.expire(), self.engines.of):
                    self._emit(each, outcome)
            steps = min(2 * max(steps, _FEW), _MOST) if few else int(taken.is_event)
            end = min(at + steps, len(block))
            if at < end:
                events = ((index, block[index]) for index in range(at, end))
                self._step(batch, events, outcome, answers.single)
                at = end

    def _emit_block(self, taken: Taken, block: Block, outcome: Outcome, rows: Answers) -> None:
        """Take what came of some events of a block into an outcome."""
        at, ends = taken.at, taken.ends
        if len(at):
            columns = answer_columns(block, taken)
            if self._row_of is None:
                rows.add(columns)
            else:
                kept = block.kept or [()] * len(block)
                rows.single.extend(map(self._row_of, columns.rows(), [kept[index] for index in at.tolist()]))
            self._unrated.add_predictions(columns.scores, columns.times)
        if len(ends):
            labels, times = block.labels[ends], block.times[ends]
            self._unrated.extend(taken.scores, taken.forecasts, labels, taken.keys, taken.predicted_at, times)
            self._unrated.segments += taken.carried
        for emission in taken.emissions:
            self._emit(emission, outcome)

    def end(self) -> None:
        """Say that the inputs have ended, before the last batch is committed. Raises as `calibrate`."""
        self.tally.calibration.end(self.classes or self.positive)
        self.tally.deployment.end(self.classes or self.positive)

    def close(self) -> Outcome:
        """End the stream: reject labels that still wait; raise alarms of certificates that nobody read."""
        rejects = [self._reject(each.event.origin, each.reason) for each in self.join.close()]
        count_reasons(self.reasons, (row.reason for row in rejects))
        outcome = Outcome([], rejects, [])
        self._rate()
        self._emit_raised(outcome)
        if not self._publishes_maps and len(self.engines) <= self._keys.certified:
            for key in list(self.engines):
                engine = self.engines.of(key)
                alarms = len(engine.alarms)
                engine.certify()
                self._raise(outcome, key, engine, alarms)
        return outcome

    # State

    def snapshot(self) -> tuple[bytes, dict[str | None, bytes]]:
        """Return the state but for the tables: its own, and that of engines changed since the last call.

        With a store, `changed_segments` then gives what these have of segments.
        """
        if self._rows is not None:
            self._rows.share(len(self.segments.fields) * self.engines.in_memory)
        own = PipelineState(
            self.join.state,
            self.tally,
            list(self._unpublished),
            self.reasons,
            self.quality.state,
            self._positive_class,
            self._raised,
            list(self.segments.fields),
            self.segments.own_engines,
            list(self.classes) or msgspec.UNSET,
        )
        return encoded(own, json=True), self.engines.snapshot()

    def changed_segments(self) -> dict[SegmentId, Row]:
        """Return the corrections of segments that have changed, to be committed with a snapshot."""
        return {} if self._rows is None else self._rows.changes()

    def restore(
        self, own: bytes, engines: Mapping[str | None, bytes], segments: Mapping[SegmentId, Row] | None = None
    ) -> None:
        """Go on from what snapshots gave, with the tables of the same moment.

        Parameters
        ----------
        own
            the state beside engines and tables; empty at the very beginning.
        engines
            their states by key, each asked for when it is needed; for as long as this pipeline is used, it
            has to show what was committed last.
        segments
            corrections of segments, in the same way; None: they are in the states of engines.

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
            if [*self.classes] != (state.classes or []):
                raise ValueError(
                    f"the store was begun with classes = {list(state.classes or [])}, now they are"
                    f" {list(self.classes)}: give the former, or begin with a new store"
                )
            before = SegmentsConfig(fields=tuple(state.segments), own_engines=state.own_engines)
            if before != self.segments:
                raise ValueError(
                    f"[segments] was {before.model_dump_json()}, now it is {self.segments.model_dump_json()}:"
                    " give the former, or begin with a new store"
                )
            self.join = self._join(Join(self.join.config, self._tables, state.join))
            self._taking = None
            self.tally = state.tally
            self.reasons = state.reasons
            self._unpublished = dict.fromkeys(state.unpublished)
            if state.quality is not None:
                with restoring("not the state of a run"):
                    self._quality = Quality.restore(state.quality)
                    self._quality.matures = self.label_delay_limit is not None
                self._raised = state.raised
        self._rows = None if segments is None else StoredRows(segments)
        self.engines.restore(engines)
        if not self._unpublished.keys() <= self.engines.known.keys():
            raise DamagedStateError(
                "not the state of a run: it has maps to publish of keys without an engine"
            )
        self._stored = True
        for key in islice(self.engines, 1):  # all have the same options
            self.engines[key]

    def as_written(self, key: str | None, state: bytes) -> bytes:
        """Return an engine's state as it is written here: another machine's zlib may compress otherwise."""
        return self._make(key, state).to_bytes()

    # Inside

    def _begin(
        self, batch: MicroBatch, input_checks: InputChecks, *, ends: bool = True
    ) -> Sequence[Event | Malformed]:
        """Count the events of a batch, and return them with their labels decided.

        Raises
        ------
        MeaningError
            if labels do not mean what they were taken for, and that ``ends`` the run. Nothing has been
            learned then.
        """
        events = batch.events
        if self.positive is not None:
            events = input_checks.decide(events, self.positive)
        if ends and not input_checks.settled:
            input_checks.take(events, batch.origin, self.classes or self.positive)
        self.tally.count(events, batch.times_read)
        if not self._stored:
            self.engines.rest()
        return events

    def _join(self, join: Join) -> Join:
        """Return a join that keeps what this pipeline needs."""
        rows, classes = join.rows, len(self.classes)
        rows.keeps_answers, rows.classes, rows.answer_size = self._keeps_answers, max(classes, 2), 2 * classes
        return join

    def _make(self, key: str | None, data: bytes | None) -> Engine:
        certifies = partial(self._certifies, key)
        engine: Engine
        if self.segments.fields:
            engine = SegmentedEngine.make(
                self._config, key, certifies, self.segments, self._places, data, self._rows
            )
        elif self.classes:
            engine = ClassesEngine.make(self._config, key, certifies, self.classes, self._first_score, data)
        elif data is None:
            return Engine(self._config, key, certifies)
        else:
            engine = Engine.from_bytes(data, key, certifies)
        check_options(engine.config, self._config, key)
        return engine

    def _rate(self) -> None:
        """Rate the forecasts whose labels have come, and count the predictions."""
        self._raised += self._quality.add(self._unrated)
        self._unrated = Unrated()

    def _emit_raised(self, outcome: Outcome) -> None:
        """Add the alarms of the watch over forecasts to an outcome.

        That is done where a look is due, so that it depends on the micro-batches alone, not on when they were
        stored.
        """
        outcome.alarms += [forecast_alarm_row(each, self.join.clock) for each in self._raised]
        self._raised = []

    def _ended(self, outcome: Outcome, input_checks: InputChecks, events: Sequence[object]) -> Outcome:
        """Count what a batch gave, and return it."""
        count_reasons(self.reasons, (row.reason for row in outcome.rejects))
        input_checks.events += len(events)
        outcome.doubtful = bool(input_checks.labels or input_checks.percents)
        return outcome

    def _certifies(self, key: str | None) -> bool:
        return self._publishes_maps and (key is None or len(self.engines) <= self._keys.certified)

    def _learns_whole(self, block: Block) -> bool:
        """Whether a block of the source of calibration is one run of labelled events, none to be rejected."""
        alone = np.isnan(block.scores).any() or (block.labels == NO_LABEL).any()
        return not (alone or block.others or block.keys or self._timed) and self.engines.admits(None)

    def _learn_run(self, outcome: Outcome, run: Sequence[LabelledEvent]) -> None:
        """Learn labelled events of one key and domain."""
        if run:
            key, domain = run[0].key, run[0].domain
            units = None
            if any(event.weight for event in run):  # None where there is none, and none is 0
                units = weighing.as_units([event.weight or 1.0 for event in run], len(run))
            times = np.array([event.time for event in run], np.float64)
            scores, labels = [event.score for event in run], [event.label for event in run]
            engine = self.engines.of(key)
            if isinstance(engine, ClassesEngine):
                weights = None if units is None else units / weighing.ONE
                labels = engine.learn_classes([each.kept for each in run], labels, domain, times, weights)
            self._learn(outcome, key, domain, scores, labels, times, units)

    def _learn(
        self,
        outcome: Outcome,
        key: str | None,
        domain: Domain,
        scores: Sequence[float] | Floats,
        labels: Sequence[int] | Labels,
        times: Floats,
        units: Counts | None = None,
    ) -> None:
        engine = self.engines.of(key)
        version, alarms = engine.served.version, len(engine.alarms)
        given = times if self._config.needs_time(domain) else None
        engine.learn_many(checks.as_scores(scores), checks.as_labels(labels), domain, given, None, units)
        self.tally.source_labels += len(scores)
        self._raise(outcome, key, engine, alarms)
        if engine.served.version != version:
            self._unpublished[key] = None

    def _raise(self, outcome: Outcome, key: str | None, engine: Engine, before: int) -> None:
        """Add the alarms of an engine to an outcome, but for the first so many."""
        for alarm in engine.alarms[before:]:
            named = msgspec.structs.replace(alarm, key=key)
            outcome.alarms.append(alarm_row(named, engine.alarms, self.join.clock))

    def _too_many_keys(self, key: str | None) -> str:
        """Count an event whose key is one too many; return the reason to reject it."""
        self.tally.refused += 1
        which = "events without a key" if key is None else f"key {key!r}"
        return f"too many keys: {which} would be one more than the limit of {self._keys.limit}"

    def _reject(self, origin: Origin | None, reason: str) -> RejectRow:
        self.tally.rejected += 1
        return reject_row(origin, reason)
