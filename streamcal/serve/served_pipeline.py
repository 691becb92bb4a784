"""The pipeline of a server, which tells what became of each event: an answer, an outcome, or a problem."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final, Literal, TypeAlias

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.fields import Malformed
from streamcal.join.entries import Early, Pending, Settled
from streamcal.multiclass.classes_engine import ClassAnswer, kept_numbers
from streamcal.run.config import RunConfig
from streamcal.run.order import BACKWARDS, MicroBatch
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import REQUESTS, JournalStore
from streamcal.run.rows import ClassRow
from streamcal.serve.http_problems import Fault, Problem

__all__ = ["LabelAnswer", "Result", "ServedPipeline"]

_UNPROCESSABLE: Final = 422


class LabelAnswer(msgspec.Struct, frozen=True):
    """A label was taken."""

    id: str | None
    outcome: Literal["joined", "waiting", "duplicate"]
    """It met its prediction; it waits for it; or the same label had come before, and is counted once."""


Result: TypeAlias = Recalibrated | ClassRow | LabelAnswer | Problem
"""Answer to one event of a request."""


class ServedPipeline(Pipeline):
    """The pipeline of a run that can tell what became of each event, and gives an answer again."""

    def __init__(self, options: RunConfig, store: JournalStore) -> None:
        super().__init__(
            options.recalibrator,
            options.join,
            tables=store.tables,
            keys=options.keys,
            columns=options.columns,
            segments=options.segments,
            keeps_answers=True,
            checks_deployment=False,  # who sends labels or scores of another meaning is told so at once
        )
        self._entry_of = store.tables.get
        self._latest = {True: -inf, False: -inf}  # times of labels, and of other events
        self.results: list[Result] = []
        """Results of the events of the last micro-batch, in order."""

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of requests."""
        batch.times_read.backwards = self._backwards(batch)
        outcome = super().process(batch)
        self.results = list(self._results(batch, outcome))
        return outcome

    def _backwards(self, batch: MicroBatch) -> int:
        """Return how many events go back among those of their kind: labels come later than predictions."""
        count, latest = 0, self._latest
        for event in batch.events:
            if (time := event.time) is not None:
                kind = isinstance(event, LabelEvent)
                count += time < latest[kind] - BACKWARDS
                latest[kind] = max(latest[kind], time)
        return count

    def _results(self, batch: MicroBatch, outcome: Outcome) -> Iterator[Result]:
        """Yield the result of every event, after a micro-batch and before its commit."""
        first = batch.origin(0).line
        refused = {row.line - first: row.reason for row in outcome.rejects if row.source == REQUESTS}
        events = batch.events
        if self.positive is not None:
            events = self.tally.deployment.decide(events, self.positive)
        answers = iter(outcome.answers)
        answer = next(answers, None)
        for index, event in enumerate(events):
            why = refused.get(index)
            if isinstance(event, Malformed):
                yield _malformed(event)
            elif isinstance(event, LabelEvent):
                yield self._label(event, why)
            else:
                result: Result | None = None
                if answer is not None and answer.id == event.id and (why is None or _of_label(why)):
                    result, answer = answer, next(answers, None)
                if isinstance(event, LabelledEvent) and event.id is not None and why and _of_label(why):
                    labelled = self._label(LabelEvent(event.id, event.label), why)
                    result = labelled if isinstance(labelled, Problem) else result
                yield result or self._again(event, why)

    def _label(self, event: LabelEvent, why: str | None) -> Result:
        id_, first = event.id, None
        known = self._entry_of(id_)
        if why is None:
            return LabelAnswer(id_, "waiting" if isinstance(known, Early) else "joined")
        if isinstance(known, Early):
            first = known.event.label
        elif isinstance(known, Pending):
            first = known.told and known.told[0]
        elif known is not None:
            first = known.label
        settled = isinstance(known, Settled)
        if first is None or (first != event.label and why.startswith("late label")):
            return Problem(
                410 if settled else _UNPROCESSABLE, why, id=id_, outcome="late" if settled else None
            )
        if first == event.label:
            return LabelAnswer(id_, "duplicate")
        names = [*map(repr, self.classes)] or ["0", "1"]
        detail = f"the label of id {id_!r} is {names[first]} already, which stays, got {names[event.label]}"
        return Problem(409, detail, id=id_, outcome="conflicting", errors=(Fault("#/label", detail),))

    def _again(self, event: PredictionEvent | LabelledEvent, why: str | None) -> Result:
        """Return what a prediction was answered that had come before; of a new one, why it was refused."""
        known = None if event.id is None else self._entry_of(event.id)
        if isinstance(known, Settled):  # how it ended; with its answer, if that is kept
            known = known.answered or known
        if known is None or isinstance(known, Early):
            return Problem(_UNPROCESSABLE, why or "", id=event.id)
        if isinstance(known, Settled) or known.answer is None:
            detail = f"there was a prediction with id {event.id!r} before, and its answer was not kept"
            return Problem(409, detail, id=event.id, errors=(Fault("#/id", detail),))
        classes = len(self.classes)
        carried = tuple(kept_numbers(known.carried).tolist()) if classes else ()
        scores = (
            ("scores", carried[:classes], event.kept[self._first_score :])
            if classes
            else ("score", known.score, event.score)
        )
        for name, before, now in (
            scores,
            ("key", known.key, event.key),
            ("domain", known.domain, event.domain),
        ):
            if before != now:
                detail = (
                    f"there was a prediction with id {event.id!r} and {name} {before!r} before, got {now!r}"
                )
                return Problem(409, detail, id=event.id, errors=(Fault(f"#/{name}", detail),))
        version, weight_0, weight_1 = known.answer
        answer: Recalibrated
        if classes:
            served = carried[classes : 2 * classes]
            answer = ClassAnswer(event.id, 0.0, 0.0, version, (1.0, 1.0), known.key, known.time, served)
        else:
            answer = Recalibrated(
                event.id, known.score, known.probability, version, (weight_0, weight_1), known.key, known.time
            )
        again: Result = answer if self._row_of is None else self._row_of(answer, event.kept)
        return again


def _malformed(event: Malformed) -> Problem:
    if event.reason.startswith(("not JSON", "invalid UTF-8")):
        return Problem(400, event.reason)
    pointer = "#" if event.column is None else "#/" + event.column.replace("~", "~0").replace("/", "~1")
    return Problem(_UNPROCESSABLE, event.reason, errors=(Fault(pointer, event.reason),))


def _of_label(why: str) -> bool:
    """Whether only the label of an event was refused."""
    return why.startswith(("duplicate label", "late label"))
