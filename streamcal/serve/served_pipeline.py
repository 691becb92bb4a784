"""The pipeline of a server, which tells what became of each event: an answer, an outcome, or a problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.fields import Malformed
from streamcal.run.config import RunConfig
from streamcal.run.kinds import ClassRow
from streamcal.run.order import MicroBatch
from streamcal.run.outcome import Outcome
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import REQUESTS
from streamcal.run.rows import AnswerColumns, RejectRow
from streamcal.serve.http_problems import Fault, Problem

_UNPROCESSABLE: Final = 422
_OF_LABELS: Final = frozenset(("conflicting_label", "duplicate_label", "implied_label", "late_label"))
"""Codes of events whose label alone was rejected."""


class LabelAnswer(msgspec.Struct, frozen=True):
    """A label was taken."""

    id: str | None
    outcome: Literal["joined", "waiting", "duplicate"]
    """It met its prediction; it waits for it; or the same label had come before, and is counted once."""


Result: TypeAlias = Recalibrated | ClassRow | LabelAnswer | Problem
"""Answer to one event of a request."""


class ServedPipeline(Pipeline):
    """The pipeline of a run that can tell what became of each event, and gives an answer again."""

    def __init__(self, options: RunConfig) -> None:
        super().__init__(
            options,
            keeps_answers=True,
            checks_deployment=False,  # who sends labels or scores of another meaning is told so at once
        )
        self._to_rows_again = self.kind.to_rows(options.added(getattr(self.decisions, "again", None)))
        self.results: list[Result] = []
        """Results of the events of the last micro-batch, in order."""

    def process(self, batch: MicroBatch) -> Outcome:
        """Take events of requests."""
        batch.times_read.backwards = 0  # requests come in any order, and labels later than predictions
        outcome = super().process(batch)
        self.results = list(self._results(batch, outcome))
        return outcome

    def _results(self, batch: MicroBatch, outcome: Outcome) -> Iterator[Result]:
        """Yield the result of every event, after a micro-batch and before its commit."""
        refused = {row.line: row for row in outcome.rejects if row.source == REQUESTS}
        events = batch.events
        if self.columns.positive is not None:
            events = self.tally.deployment.decide(events, self.columns.positive)
        answers = iter(outcome.answers)
        answer = next(answers, None)
        for index, event in enumerate(events):
            why = refused.get(batch.origin(index).line) if refused else None
            if isinstance(event, Malformed):
                yield _malformed(event, event.reason if why is None else why.reason)
            elif isinstance(event, LabelEvent):
                yield self._label(event, why)
            else:
                result: Result | None = None
                of_label = why is not None and why.code in _OF_LABELS
                if answer is not None and answer.id == event.id and (why is None or of_label):
                    result, answer = answer, next(answers, None)
                if isinstance(event, LabelledEvent) and event.id is not None and of_label:
                    labelled = self._label(LabelEvent(event.id, event.label), why)
                    result = labelled if isinstance(labelled, Problem) else result
                yield result or self._again(event, why)

    def _accepted(self, id_: Any) -> LabelAnswer:
        is_early = self.join.is_early(self.join.known(id_))
        return LabelAnswer(id_, "waiting" if is_early else "joined")

    def _label(self, event: LabelEvent, why: RejectRow | None) -> Result:
        id_ = event.id
        if why is None:
            return self._accepted(id_)
        match why.code:
            case "duplicate_label":
                return LabelAnswer(id_, "duplicate")
            case "conflicting_label":
                fault = Fault("#/label", why.reason)
                return Problem(409, why.reason, id=id_, code=why.code, errors=(fault,))
            case "implied_label" if not event.label:
                return LabelAnswer(id_, "duplicate")
            case "late_label" | "implied_label":
                return Problem(410, why.reason, id=id_, code=why.code)
            case _:
                return Problem(_UNPROCESSABLE, why.reason, id=id_, code=why.code)

    def _again(self, event: PredictionEvent | LabelledEvent, why: RejectRow | None) -> Result:
        """Return what a prediction was answered that had come before; of a new one, why it was refused."""
        if event.id is None or not self.join.is_prediction(event.id):
            assert why is not None  # noqa: S101  # a new prediction that was not answered was rejected
            return Problem(_UNPROCESSABLE, why.reason, id=event.id, code=why.code)
        known = self.join.prediction(event.id)
        if known is None or known.answer is None:
            detail = f"there was a prediction with id {event.id!r} before, and its answer was not kept"
            return Problem(
                409, detail, id=event.id, code="duplicate_prediction", errors=(Fault("#/id", detail),)
            )
        scores, *more = self.kind.remembered(known)
        for name, before, now in (
            (self.kind.score, scores, self.kind.score_of(event)),
            ("key", known.key, event.key),
            ("domain", known.domain, event.domain),
        ):
            if before != now:
                detail = (
                    f"there was a prediction with id {event.id!r} and {name} {before!r} before, got {now!r}"
                )
                fault = Fault(f"#/{name}", detail)
                return Problem(409, detail, id=event.id, code="duplicate_prediction", errors=(fault,))
        version, weight_0, weight_1 = known.answer
        answer = self.kind.answer(
            event.id,
            known.score,
            known.probability,
            version,
            (weight_0, weight_1),
            known.key,
            known.time,
            *more,
        )
        beside = [event.kept], [known.weight or 1.0], [self._limits(event.key)]
        columns = AnswerColumns.of([answer], *beside)
        if self._keeps_decisions:
            columns = columns._replace(decided=[known.decided or 0])
        again: Result = next(self._to_rows_again(columns).rows())
        return again


def _malformed(event: Malformed, reason: str) -> Problem:
    if event.code in ("not_json", "not_utf8"):
        return Problem(400, reason, code=event.code)
    pointer = "#" if event.column is None else "#/" + event.column.replace("~", "~0").replace("/", "~1")
    return Problem(_UNPROCESSABLE, reason, code=event.code, errors=(Fault(pointer, reason),))
