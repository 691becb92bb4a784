"""Pipeline: events of one run through join and engines, a micro-batch at a time; no input or output."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np

from streamcal.engine.emissions import DriftAlarm, Emission, MapPublished, Recalibrated, Rejected
from streamcal.engine.engine import Engine
from streamcal.engine.stepping_c import BlockSteps, Taken, emit, refused, step
from streamcal.events import Event, Kept, LabelEvent, LabelledEvent, Origin, PredictionEvent
from streamcal.events.blocks import NO_LABEL, Block
from streamcal.events.codes import Refusal
from streamcal.events.fields import Malformed
from streamcal.events.input_checks import InputChecks
from streamcal.join.outcomes import Joined
from streamcal.maps.rate_limits import RateLimits
from streamcal.quality.decision_sums import DecisionSums
from streamcal.run.config import RunConfig
from streamcal.run.order import MicroBatch
from streamcal.run.outcome import FarAhead, Lost, Outcome, PriorSnapshot
from streamcal.run.rows import (
    AnswerColumns,
    Answers,
    RejectRow,
    alarm_rows,
    answer_columns,
    lost_alarm_row,
    reject_row,
)
from streamcal.run.run_state import RunState
from streamcal.sampling import Sampler
from streamcal.sketch.weighing import HEAVIEST, as_weights

_UNRATED: Final = 4096  # joined labels that may wait until they are rated, all at once; so may predictions
_FEW: Final = 16  # fewer events take longer many at a time than they would one by one …
_MOST: Final = 1024  # … as which so many may then be taken
_NEEDS_BOTH: Final = Refusal(
    "missing_field", {"sender": "an event of the source of calibration", "needs": "score and label"}
)


class Pipeline(RunState):
    """Join, engines and counts of one run, and what events do to them.

    Parameters
    ----------
    options
        of the run; None: the defaults.
    publishes_maps
        whether anyone reads `Outcome.versions`. If not, versions get neither a row nor a certificate, which
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
        options: RunConfig | None = None,
        *,
        publishes_maps: bool = True,
        keeps_answers: bool = False,
        checks_deployment: bool = True,
    ) -> None:
        options = options or RunConfig()
        super().__init__(options, publishes_maps=publishes_maps, keeps_answers=keeps_answers)
        self._checks_deployment = checks_deployment
        self._timed = self._config.needs_time
        self._taking: BlockSteps | None = None
        self._to_rows = self.kind.to_rows(options.added(getattr(self.decisions, "take", None)))
        self._keeps_decisions = self.decisions is not None and self.decisions.capacity is not None
        self.processed = 0
        """Number of events processed since it was made; any thread may ask, at any time."""

    # Events

    def calibrate(self, batch: MicroBatch) -> Outcome:
        """Learn labelled events of the source of calibration.

        Raises
        ------
        MeaningError
            if labels or scores do not mean what they would be taken for: nothing of the batch may be
            committed.
        """
        outcome, input_checks = Outcome(Answers(), [], []), self.tally.calibration
        events = self._begin(batch, input_checks)
        if isinstance(events, Block) and self._learns_whole(events):
            self.processed += len(events)
            self._learn(
                outcome,
                None,
                len(events),
                lambda engine: engine.learn_many(events.scores, events.labels, events.domain, None, None),
            )
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
            why: Refusal | None = _NEEDS_BOTH
            if isinstance(event, Malformed):
                self.tally.calibration.refused(event, index, batch.origin)
                why = event
            elif isinstance(event, LabelledEvent):
                if run and (event.key, event.domain) != (run[0].key, run[0].domain):
                    self._learn_run(outcome, run)
                    run = []
                why = refused(event, config)
                if why is None and not self.engines.admits(event.key):
                    why = self._too_many_keys(event.key)
                if why is None:
                    run.append(event)
            if why is not None:
                outcome.rejects.append(self._reject(batch.origin(index), why))
        self._learn_run(outcome, run)

    def calibrated(self) -> Outcome:
        """End the calibration: return the maps that it has formed, and the alarms of their certificates."""
        outcome = Outcome(Answers(), [], [])
        for key in self._unpublished if self._publishes_maps else ():
            self._published.append((self.engines.of(key).as_published(), self.join.time))
        self._publish(outcome)
        self._unpublished = {}
        return outcome

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of the deployment: answer predictions, join labels, learn. Raises as `calibrate`."""
        input_checks = self.tally.deployment
        events = self._begin(batch, input_checks, ends=self._checks_deployment)
        plain = not (self.join.matures or self._timed or self._keeps_decisions)
        in_columns = plain and isinstance(events, Block)
        rated, doubted = len(self._unrated.labels), self.join.clock.doubted
        outcome = Outcome(Answers(), [], [])
        left = self.join.advance(batch.watermark)
        for each in emit(left, self.engines.of) if left else ():
            self._emit(each, outcome)
        if isinstance(events, Block) and in_columns:
            self._take_block(batch, events, outcome)
        else:
            self._step(batch, enumerate(events), outcome)
        self._publish(outcome)
        if self.join.clock.doubted > doubted:
            self.tally.far_ahead = self._far_ahead(batch)
        if len(self._unrated.labels) > rated:
            delays = np.array(self._unrated.delays[rated:])
            outcome.delays = array("d", delays[~np.isnan(delays)].tobytes())
        if len(self._unrated.labels) >= self._quality.watch.until_look:
            self._rate()
            self._emit_raised(outcome)
        elif max(len(self._unrated.labels), len(self._unrated.predictions)) >= _UNRATED:
            self._rate()
        return self._ended(outcome, input_checks, events)

    def _far_ahead(self, batch: MicroBatch) -> FarAhead:
        """Return the last event of a batch whose time the clock does not believe."""
        time, clock = self.join.clock.doubt
        index = max(index for index, event in enumerate(batch.events) if event.time == time)
        origin = batch.origin(index)
        return FarAhead(batch.events[index].id, time, clock, origin.source, origin.line)

    def _step(
        self,
        batch: MicroBatch,
        events: Iterable[tuple[int, Event | Malformed]],
        outcome: Outcome,
    ) -> None:
        """Take events of a batch, with their indices, one at a time."""
        rejects, input_checks = outcome.rejects, self.tally.deployment
        config, join, engine_of = self._config, self.join, self.engines.of
        answers, kept, drawn, limits = list[Any](), list[Kept](), list[float](), list[Any]()
        decided, capped = list[int](), self.decisions if self._keeps_decisions else None
        known, admits = self.engines.known, self.engines.admits
        checks, index = self._checks_deployment, 0

        def origin_of() -> Origin:
            return batch.origin(index)

        for index, event in events:  # origin_of reads it
            self.processed += 1
            if isinstance(event, Malformed):
                if checks:
                    input_checks.refused(event, index, batch.origin)
                rejects.append(self._reject(origin_of(), event))
                continue
            if not isinstance(event, LabelEvent) and event.key not in known and not admits(event.key):
                rejects.append(self._reject(origin_of(), self._too_many_keys(event.key)))
                continue
            why = (
                refused(event, config, join)
                or (self._lacks_day(event) if event.time is None else None)
                or (None if self.sampler is None or join.again else self._unasked(event, self.sampler))
            )
            if why is not None:
                rejects.append(self._reject(origin_of(), why))
                continue
            cell = 0
            for each in step(event, join, engine_of, origin_of):
                if isinstance(each, Recalibrated):
                    # It is that to this event; a label alone has none.
                    answers.append(each)
                    kept.append(event.kept)  # type: ignore[union-attr]
                    limits.append(self._limits(each.key))
                    weight = 1.0 if event.weight is None else event.weight
                    drawn.append(weight if self.sampler is None else self._draw(event, each, self.sampler))
                    if capped is not None:
                        cell = self._decide(each, capped)
                        decided.append(cell)
                elif cell and isinstance(each, Joined):  # its label had come before
                    self._emit(msgspec.structs.replace(each, decided=cell), outcome)
                else:
                    self._emit(each, outcome)
        if answers:
            columns = AnswerColumns.of(answers, kept, drawn, limits)
            self._take_answers(columns._replace(decided=decided or None), outcome)

    def _take_answers(self, columns: AnswerColumns, outcome: Outcome) -> None:
        """Take answers into an outcome."""
        outcome.answers.parts.append(self._to_rows(columns))
        self._unrated.add_predictions(columns.scores, columns.times)
        if self._quality.samples:
            each = columns.probabilities.tolist(), np.asarray(columns.drawn).tolist()
            more = columns.keys or repeat(None), columns.decided or repeat(0)
            self._unrated.sampled += zip(*each, *more, strict=False)

    def _limits(self, key: str | None) -> RateLimits | None:
        """Return limits of the rate, of a key; None if there are no intervals."""
        formed = None if self._interval is None else self.engines.of(key).limits
        return formed and formed[1]

    def _lacks_day(self, event: Event) -> Refusal | None:
        """Return why a prediction without a time is refused: no day is known yet; None if it is not."""
        capacity, per_day = None if self.decisions is None else self.decisions.capacity, ""
        if self.sampler is not None and self.sampler.lacks_time:
            per_day = "[sampling] labels_per_day"
        elif capacity is not None and capacity.day is None:
            per_day = "[decision] capacity_per_day"
        if isinstance(event, LabelEvent) or not per_day:
            return None
        return Refusal("missing_time", {"kind": "a prediction", "per_day": per_day})

    def _unasked(self, event: Event, sampler: Sampler) -> Refusal | None:
        """Return why a label that was not asked for is refused: it is no draw; None if it was."""
        if isinstance(event, PredictionEvent):
            return None
        known = None if event.id is None else self.join.prediction(event.id)
        if known is None and isinstance(event, LabelledEvent):
            return Refusal("label_not_asked", {})
        if known is None:  # of one that has ended, the join says what became of it
            ended = self.join.is_prediction(str(event.id))
            return None if ended else Refusal("label_not_asked", {"unknown": event.id})
        if known.weight is None or sampler.asks(str(event.id), 1.0 / known.weight):
            return None
        return Refusal("label_not_asked", {"id": event.id})

    def _draw(self, event: Any, answer: Recalibrated, sampler: Sampler) -> float:
        """Return one over the chance that a prediction is to be labelled, which the join keeps with it."""
        weight = min(1.0 / sampler.propensity(answer.probability, answer.time), HEAVIEST)
        row = self.join.known(str(answer.id))
        if self.join.is_waiting(row):
            self.join.weigh(row, weight)
        if event.domain == "target" and not self.options.classes and sampler.asks(event.id, 1.0 / weight):
            self.engines.of(event.key).ask_label(answer.score)
        return weight

    def _decide(self, answer: Recalibrated, decisions: DecisionSums) -> int:
        """Return the cell of the decision on a prediction, which the join keeps with it unless it is 0."""
        cell = decisions.take_one(answer.score, answer.probability, answer.time)
        row = self.join.known(answer.id) if cell and answer.id is not None else 0
        if row and (self._keeps_answers or self.join.is_waiting(row)):
            self.join.held(row).decided = cell
            self.join.note(row)
        return cell

    def _emit(self, emission: Emission | Joined, outcome: Outcome) -> None:
        """Take what join and engine said beside answers into an outcome."""
        if isinstance(emission, Joined):
            self._unrated.add(emission)
            if self.sampler is not None and emission.memo is None:
                self.sampler.learn(emission.probability, emission.label)
        elif isinstance(emission, Rejected):
            outcome.rejects.append(self._reject(emission.event.origin, emission))
        elif isinstance(emission, MapPublished) and self._publishes_maps:
            self._published.append((emission, self.join.time))
            outcome.priors.append(PriorSnapshot.of(self.engines.of(emission.key), self.join.time))
        elif isinstance(emission, DriftAlarm):
            alarms = self.engines.of(emission.key).alarms
            before = alarms.index(msgspec.structs.replace(emission, key=None))
            outcome.alarms += alarm_rows(emission.key, alarms[: before + 1], self.join.time, before)

    def _take_block(self, batch: MicroBatch, block: Block, outcome: Outcome) -> None:
        """Take events as `_step` does, many at a time where most are of the common case."""
        at = steps = 0
        if self._taking is None or self._taking.join is not self.join:  # `restore` replaces it
            self._taking = BlockSteps(self.join, self.engines.of, self.engines.admits, self.sampler)
        taking, emits = self._taking, partial(self._emit, outcome=outcome)
        taking.begin(block)
        while at < len(block):
            taken = taking.take(at, emits)
            self.processed += taken.end - at
            self._emit_block(batch, taken, block, outcome)
            few, at = taken.end - at < _FEW, taken.end
            if taken.expires:
                for each in emit(self.join.expire(), self.engines.of):
                    self._emit(each, outcome)
            steps = min(2 * max(steps, _FEW), _MOST) if few else int(taken.is_event)
            end = min(at + steps, len(block))
            if at < end:
                self._step(batch, ((index, block[index]) for index in range(at, end)), outcome)
                at = end

    def _emit_block(self, batch: MicroBatch, taken: Taken, block: Block, outcome: Outcome) -> None:
        """Take what came of some events of a block into an outcome."""
        ends = taken.ends
        if len(taken.at):
            self._take_answers(answer_columns(block, taken), outcome)
        if len(ends):
            labels, times = block.labels[ends], block.times[ends]
            columns_of_labels = taken.scores, taken.forecasts, labels, taken.keys, taken.predicted_at
            self._unrated.extend(*columns_of_labels, times, taken.weights_of_labels)
            self._unrated.memos += taken.memos
        for index in taken.unasked:
            why = Refusal("label_not_asked", {"id": block.ids[index]})
            outcome.rejects.append(self._reject(batch.origin(index), why))

    def end(self) -> None:
        """Say that the inputs have ended, before the last batch is committed. Raises as `calibrate`."""
        self.tally.calibration.end(self.columns)
        self.tally.deployment.end(self.columns)

    def close(self) -> Outcome:
        """End the stream: reject labels that still wait; raise alarms of certificates that nobody read."""
        rejects = [self._reject(each.event.origin, each) for each in self.join.close()]
        self._count(rejects)
        outcome = Outcome(Answers(), rejects, [])
        self._rate()
        self._emit_raised(outcome)
        if not self._publishes_maps and len(self.engines) <= self._keys.certified:
            for key in list(self.engines):
                engine = self.engines.of(key)
                alarms = len(engine.alarms)
                engine.certify()
                outcome.alarms += alarm_rows(key, engine.alarms, self.join.time, alarms)
        return outcome

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
        if self.columns.positive is not None:
            events = input_checks.decide(events, self.columns.positive)
        if ends and not input_checks.settled:
            input_checks.take(events, batch.origin, self.columns)
        self.tally.count(events, batch.times_read)
        if not self._stored:
            self.engines.rest()
        return events

    def _ended(self, outcome: Outcome, input_checks: InputChecks, events: Sequence[object]) -> Outcome:
        """Count what a batch gave, and return it."""
        self._count(outcome.rejects)
        self._raise_lost(outcome)
        input_checks.events += len(events)
        outcome.doubtful = bool(input_checks.labels or input_checks.percents)
        return outcome

    def _learns_whole(self, block: Block) -> bool:
        """Whether a block of the source of calibration is one run of labelled events, none to be rejected."""
        alone = np.isnan(block.scores).any() or (block.labels == NO_LABEL).any()
        return not (alone or block.others or block.keys or self._timed) and self.engines.admits(None)

    def _learn_run(self, outcome: Outcome, run: Sequence[LabelledEvent]) -> None:
        """Learn labelled events of one key and domain."""
        if run:
            weights = None
            if any(event.weight for event in run):  # None where there is none, and none is 0
                weights = as_weights([event.weight or 1.0 for event in run], len(run))
            times = np.array([event.time for event in run], np.float64) if self._timed else None
            key = run[0].key
            self._learn(outcome, key, len(run), lambda engine: engine.learn_events(run, times, weights))

    def _learn(self, outcome: Outcome, key: str | None, count: int, learn: Callable[[Engine], None]) -> None:
        """Let the engine of a key learn this number of labels of a calibration."""
        engine = self.engines.of(key)
        version, alarms = engine.served.version, len(engine.alarms)
        learn(engine)
        self.tally.source_labels += count
        outcome.alarms += alarm_rows(key, engine.alarms, self.join.time, alarms)
        if engine.served.version != version:
            self._unpublished[key] = None

    def _too_many_keys(self, key: str | None) -> Refusal:
        """Count an event whose key is one too many; return why it is rejected."""
        self.tally.refused += 1
        which = "events without a key" if key is None else f"key {key!r}"
        return Refusal("too_many_keys", {"key": which, "limit": self._keys.limit})

    def _reject(self, origin: Origin | None, why: Refusal) -> RejectRow:
        self.tally.rejected += 1
        if why.code == "conflicting_label":
            first, label = (self.columns.label_values[why.fields[name]] for name in ("first", "label"))
            why = Refusal(why.code, {**why.fields, "first": first, "label": label})
        elif why.code == "lost_records" and origin is not None:
            lost = self.tally.lost.setdefault(origin.source, Lost())
            lost.records += why.fields.get("count", 0)
            lost.unknown += "count" not in why.fields
        return reject_row(origin, why)

    def _count(self, rejects: Sequence[RejectRow]) -> None:
        for row in rejects:
            self.reasons[row.code] = self.reasons.get(row.code, 0) + 1

    def _raise_lost(self, outcome: Outcome) -> None:
        """Raise an alarm of each loss of records."""
        rows = [row for row in outcome.rejects if row.code == "lost_records"]
        first = self.reasons.get("lost_records", 0) - len(rows) + 1
        for number, row in enumerate(rows, first):
            outcome.alarms.append(lost_alarm_row(number, row, self.join.time, self.join.counts.joined))
