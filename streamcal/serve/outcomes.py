"""Results of the events of a request: an answer, the outcome of a label, or a problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from streamcal.engine.emissions import Recalibrated
from streamcal.events import Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.columns import Columns
from streamcal.events.fields import Fields, Malformed
from streamcal.join.entries import Early, Pending, Settled
from streamcal.join.tables import Tables
from streamcal.run.rows import answer_rows
from streamcal.serve.http_problems import Fault, Problem

__all__ = ["LabelAnswer", "Outcomes", "Result"]

_UNPROCESSABLE: Final = 422


class LabelAnswer(msgspec.Struct, frozen=True):
    """A label was taken."""

    id: str | None
    outcome: Literal["joined", "waiting", "duplicate"]
    """It met its prediction; it waits for it; or the same label had come before, and is counted once."""


Result: TypeAlias = Recalibrated | LabelAnswer | Problem
"""Answer to one event of a request."""


class Outcomes:
    """Tells, after a micro-batch and before its commit, what became of its events.

    Parameters
    ----------
    tables
        of the join.
    columns
        names of the fields of events, and which of them rows of answers keep.
    """

    def __init__(self, tables: Tables, columns: Columns) -> None:
        self._tables = tables
        self._fields = Fields(columns, "target")
        self._row_of = answer_rows(columns.keep) if columns.keep else None

    def of(
        self,
        events: Sequence[Event | Malformed],
        raws: Sequence[bytes],
        answers: Sequence[Recalibrated],
        refused: Mapping[int, str],
    ) -> list[Result]:
        """Return the result of every event.

        Parameters
        ----------
        events, raws
            of the micro-batch, in order.
        answers
            those that it gave, in order.
        refused
            by index: why an event was rejected.
        """
        results: list[Result] = []
        given = iter(answers)
        answer = next(given, None)
        for index, event in enumerate(events):
            why = refused.get(index)
            if isinstance(event, Malformed):
                results.append(self._malformed(event.reason, raws[index]))
            elif isinstance(event, LabelEvent):
                results.append(self._label(event, why))
            else:
                result: Result | None = None
                if answer is not None and answer.id == event.id and (why is None or _of_label(why)):
                    result, answer = answer, next(given, None)
                if isinstance(event, LabelledEvent) and event.id is not None and why and _of_label(why):
                    labelled = self._label(LabelEvent(event.id, event.label), why)
                    result = labelled if isinstance(labelled, Problem) else result
                results.append(result or self._again(event, why))
        return results

    def _label(self, event: LabelEvent, why: str | None) -> Result:
        id_, first = event.id, None
        known = self._tables.get(id_)
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
        detail = f"the label of id {id_!r} is {first} already, which stays, got {event.label}"
        return Problem(409, detail, id=id_, outcome="conflicting", errors=(Fault("#/label", detail),))

    def _again(self, event: PredictionEvent | LabelledEvent, why: str | None) -> Result:
        """Return what a prediction was answered that had come before; of a new one, why it was refused."""
        known = None if event.id is None else self._known(event.id)
        if known is None:
            return Problem(_UNPROCESSABLE, why or "", id=event.id)
        if not isinstance(known, Pending) or known.answer is None:
            detail = f"there was a prediction with id {event.id!r} before, and its answer was not kept"
            return Problem(409, detail, id=event.id, errors=(Fault("#/id", detail),))
        for name, before, now in (
            ("score", known.score, event.score),
            ("key", known.key, event.key),
            ("domain", known.domain, event.domain),
        ):
            if before != now:
                detail = (
                    f"there was a prediction with id {event.id!r} and {name} {before!r} before, got {now!r}"
                )
                return Problem(409, detail, id=event.id, errors=(Fault(f"#/{name}", detail),))
        version, *weights = known.answer
        answer = Recalibrated(
            event.id, known.score, known.probability, version, (weights[0], weights[1]), known.key, known.time
        )
        return answer if self._row_of is None else self._row_of(answer, event.kept)

    def _known(self, id_: str) -> object | None:
        """Return the prediction with an id, if it is remembered; only how it ended, if no more is known."""
        known = self._tables.get(id_)
        if isinstance(known, Settled):
            return known.answered or known
        return known if isinstance(known, Pending) else None

    def _malformed(self, reason: str, raw: bytes) -> Problem:
        if reason.startswith(("not JSON", "invalid UTF-8")):
            return Problem(400, reason)
        try:
            fields = msgspec.json.decode(raw)
        except (ValueError, RecursionError):  # of a long event, only the beginning is there
            fields = None
        if not isinstance(fields, dict):
            return Problem(_UNPROCESSABLE, reason, errors=(Fault("#", reason),))
        culprit = self._fields.culprit(fields)
        pointer = "#" if culprit is None else "#/" + culprit.replace("~", "~0").replace("/", "~1")
        return Problem(_UNPROCESSABLE, reason, errors=(Fault(pointer, reason),))


def _of_label(why: str) -> bool:
    """Whether only the label of an event was refused."""
    return why.startswith(("duplicate label", "late label"))
