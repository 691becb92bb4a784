"""Calls of a user on an engine of many classes, and a view of its classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats, shown
from streamcal.certificates.record import Certificate
from streamcal.engine.calls import Calls, refuse_segments
from streamcal.engine.multiclass.classes import Classes
from streamcal.engine.stepping_c import checked
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, PredictionEvent

if TYPE_CHECKING:
    from streamcal.engine.multiclass.classes_engine import ClassesEngine
    from streamcal.engine.multiclass.many import Many
    from streamcal.engine.multiclass.two import Two


class ClassCalls(Calls[Floats]):
    """Calls on an engine of many classes: a score is a row of K numbers, a label a class."""

    def __init__(self, engine: ClassesEngine) -> None:
        super().__init__(engine)
        self._classes: Classes = engine.classes
        self.class_count = len(engine.classes)

    def __str__(self) -> str:
        return f", {self.class_count:,} classes"

    # Inputs

    def one(self, score: Any, segments: Any, memo: bytes | None = None) -> Floats:
        """See `Calls.one`."""
        del memo
        refuse_segments(segments)
        return self._classes.row(score)

    def many(self, scores: Any, segments: Any, memos: Sequence[bytes] | None = None) -> Floats:
        """See `Calls.many`."""
        del memos
        refuse_segments(segments)
        return self._classes.rows(scores)

    def of_events(self, events: Sequence[PredictionEvent | LabelledEvent]) -> Floats:
        """See `Calls.of_events`."""
        return self._classes.rows(np.array([event.kept[-self.class_count :] for event in events]))

    def of_memos(self, scores: Floats, memos: Sequence[bytes]) -> Floats:
        """See `Calls.of_memos`."""
        del scores
        return self._numbers(memos)[1][:, : self.class_count]

    def scores(self, rows: Floats) -> Floats:
        """See `Calls.scores`."""
        return rows

    def _numbers(self, memos: Sequence[bytes]) -> tuple[Counts, Floats]:
        """Return the scores observed before each prediction, and the numbers that a join would keep."""
        indices, rest = self.split(memos)
        return indices, np.frombuffer(b"".join(rest)).reshape(len(rest), -1)

    def label(self, label: object, positive: object) -> int:
        """See `Calls.label`."""
        _refuse_positive(positive)
        return self._classes.code(label)

    def labels(self, labels: Any, positive: object) -> Counts:
        """See `Calls.labels`."""
        _refuse_positive(positive)
        return self._classes.codes(labels)

    def event(self, event: Event) -> Event:
        """See `Calls.event`; the last values that a prediction keeps are its scores, a label is a class."""
        is_label, changed = isinstance(event, LabelEvent | LabelledEvent), dict[str, Any]()
        plain = checked(msgspec.structs.replace(event, label=0) if is_label else event)
        if isinstance(event, LabelEvent | LabelledEvent):
            changed["label"] = self._classes.code(event.label)
        if not isinstance(plain, LabelEvent):
            row = self._classes.row(np.array(plain.kept[-self.class_count :]))
            changed |= {"kept": tuple(row[0].tolist()), "score": float(row.max())}
        return msgspec.structs.replace(plain, **changed)

    def refuses(self, memo: bytes) -> str | None:
        """See `Calls.refuses`."""
        why: str | None = self.engine.refuses(memo)
        return why

    def shown(self, probability: Floats, score: Any) -> Any:
        """See `Calls.shown`: by name if the scores are."""
        if type(score) is np.ndarray or not isinstance(score, Mapping):
            return probability
        return {name: probability[self._classes.code(name)].item() for name in score}

    # The engine

    def predict(self, rows: Floats) -> Floats:
        """See `Calls.predict`."""
        made: Floats = self.engine.predict(rows)
        return made

    def forecast(self, rows: Floats) -> tuple[Floats, list[bytes]]:
        """See `Calls.forecast`."""
        made, memos = self.engine.forecast(rows)
        return made, [memo.tobytes() for memo in memos]

    def observe(self, rows: Floats) -> None:
        """See `Calls.observe`."""
        self.engine.observe(rows)

    def learn(
        self,
        rows: Floats,
        labels: Counts,
        domain: Domain,
        times: Floats | None,
        weights: Floats | None,
        memos: Sequence[bytes] | None,
    ) -> None:
        """See `Calls.learn`."""
        indices, memo = (None, None) if memos is None else self._numbers(memos)
        if self.engine.config.needs_time and times is None and len(rows):
            raise ValueError(f"labels need a time: window={self.engine.config.window} is one of event time")
        if len(rows):
            self.engine.learn_rows(rows, labels, domain, times, weights, indices, memo)


class ClassView:
    """Classes of an engine: names, priors, weights of the candidates, certificates."""

    def __init__(self, engine: Any) -> None:  # a `ClassesEngine`
        self._classes: Classes = engine.classes
        self._core: Two | Many = engine.core

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the scores."""
        return self._classes.names

    @property
    def priors(self) -> tuple[dict[str, float] | None, dict[str, float] | None]:
        """Priors of the source and of the target by class; None while there is no evidence."""
        source, target = self._core.priors()
        return self._named(source), self._named(target)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the candidates by name; empty in other modes than ``auto``."""
        return self._core.weights

    @property
    def certificates(self) -> dict[str, Certificate | None]:
        """Certificate of each binary engine now, by class, each with δ/K; of two classes, of the second.

        Together they hold with probability at least 1 − δ (docs/proofs/multiclass.md). They are about the
        probability of one class before all are divided by their sum. None before the first version.
        """
        return {self.names[code]: found for code, found in self._core.certificates.items()}

    def _named(self, values: Floats | None) -> dict[str, float] | None:
        return None if values is None else dict(zip(self.names, values.tolist(), strict=True))


def _refuse_positive(positive: object) -> None:
    if positive is not None:
        raise ValueError(f"positive={shown(positive)} is of two classes: a label of many is the name of one")
