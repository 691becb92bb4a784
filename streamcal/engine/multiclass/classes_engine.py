"""ClassesEngine: the engine of many classes, of one key of a run or behind a `Recalibrator`.

It answers with the probability of each class. Beside it, a binary engine learns whether the class with the
highest score is right. Its map is not served: its priors, certificate and alarms are about the decision
of the model. The join keeps scores, answer and candidates of a prediction with it, so that all are judged as
of the prediction, however late its label comes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.base.errors import DamagedStateError
from streamcal.base.values import Counts, Floats
from streamcal.engine.config import EngineOptions
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.engine.engine import Engine
from streamcal.engine.multiclass.calls import ClassCalls, ClassView
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.engine.multiclass.classes import Classes
from streamcal.engine.multiclass.many import Many
from streamcal.engine.multiclass.simplex import ordered
from streamcal.engine.multiclass.softmax_c import largest
from streamcal.engine.multiclass.two import Two
from streamcal.engine.state import unpack
from streamcal.events import Domain, LabelledEvent, PredictionEvent
from streamcal.join.entries import Memo
from streamcal.join.outcomes import Joined
from streamcal.sketch.decoding import restoring

NUMBER_BYTES: Final = 8
"""Bytes of a number that the join keeps."""
_NUMBERS: Final = np.dtype("<f8")


class ClassAnswer(Recalibrated, frozen=True, gc=False):
    """The answer to a prediction; score and probability are those of the class with the highest score."""

    probabilities: tuple[float, ...] = ()
    """Recalibrated probability of each class."""


class ClassesEngine(Engine):
    """Engine of all classes, and binary engine of the decision; made by `make`."""

    classes: Classes
    """Names of the classes."""
    core: Two | Many
    """Engine of all classes."""

    @classmethod
    def make(
        cls, options: EngineOptions, key: str | None, data: bytes | None = None, rows: Any = None
    ) -> Self:
        """Return the engine of a key, see `Engine.make`."""
        classes, config = Classes(options.classes), options.config
        made = super().make(options, key, data, rows)
        inside = config.model_copy(update={"keeps_order": False})
        made.classes = classes
        made.core = Two(inside) if len(classes) == 2 else Many(len(classes), inside)
        if data is not None:
            made.core.restore(unpack(data, 3)[2])
        return made

    def parts(self) -> list[bytes]:
        """Return the parts of the state: those of the binary engine, and of that of all classes."""
        return [*super().parts(), self.core.to_bytes()]

    @property
    def portable_map(self) -> MulticlassMap:
        """Map by which the engine answers, not that of the decision."""
        core, names = self.core, self.classes.names
        return MulticlassMap(
            version=core.labels, classes=names, keeps_order=self.config.keeps_order, **core.parts()
        )

    @property
    def by_class(self) -> ClassView:
        """Names, priors, weights and certificates of the classes."""
        return ClassView(self)

    @property
    def why_unsketched(self) -> str:
        """See `Engine.why_unsketched`."""
        return "its scores are those of two classes"

    def calls(self) -> ClassCalls:
        """See `Engine.calls`."""
        return ClassCalls(self)

    def learn_usual(self, *_: object) -> bool:
        """Learn nothing: a score is a row."""
        return False

    # Rows of scores

    def predict(self, rows: Floats) -> Floats:
        """Return the probabilities of checked rows of scores, float64[n, K]."""
        return self._served(self.core.predict(rows), rows)

    def forecast(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return the probabilities of rows, float64[n, K], and what a join keeps, float64[n, 2 K + C].

        It keeps scores, answer and candidates.
        """
        made, carried = self.core.answer(rows)
        made = self._served(made, rows)
        return made, np.concatenate((rows, made, carried), axis=1, dtype=_NUMBERS)

    def _served(self, made: Floats, rows: Floats) -> Floats:
        return ordered(made, rows) if self.config.keeps_order else made

    def observe(self, rows: Floats) -> None:
        """Note checked rows of the target."""
        self.core.observe(rows)
        self.observe_many(rows.max(axis=1))

    def learn_rows(
        self,
        rows: Floats,
        codes: Counts,
        domain: Domain,
        times: Floats | None = None,
        weights: Floats | None = None,
        prediction_index: Counts | None = None,
        memos: Floats | None = None,
    ) -> None:
        """Let both engines learn checked rows with their labels.

        Parameters
        ----------
        rows, codes
            float64[n, K] and int64[n].
        domain, times, weights, prediction_index
            as of `Engine.learn_many`.
        memos
            numbers that `forecast` gave for the predictions, float64[n, 2 K + C]; None: they were made just
            before.
        """
        carried = None if memos is None else memos[:, 2 * len(self.classes) :]
        self.core.learn(rows, codes, domain, times, weights, carried)
        right = (rows.argmax(axis=1) == codes).astype(np.int8)
        self.learn_many(rows.max(axis=1), right, domain, times, prediction_index, weights)

    def refuses(self, memo: Memo | None) -> str | None:
        """Return why a memo is none of this engine; None if it is."""
        classes, numbers = len(self.classes), kept_numbers(memo)
        shares, more = numbers[: 2 * classes], numbers[2 * classes :]
        if len(more) != self.core.carried:
            return f"it is not of {classes} classes"
        if not 0.0 <= largest(shares) <= 1.0 or not 0.0 <= largest(more) <= max(self.core.observed, 1):
            return "its scores and forecasts are out of range"
        return None

    # A prediction

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, bytes, tuple[Emission, ...]]:
        """Answer with the probability of each class; see `EventRules.answer`.

        The join is to keep scores, answer and candidates.
        """
        scores = event.kept[-len(self.classes) :]
        row = np.frombuffer(struct.pack(f"{len(scores)}d", *scores))[np.newaxis]  # numpy takes longer
        made, memo = self.forecast(row)
        if event.domain == "target":
            self.core.observe(row)
        answer, prediction_index, _, emissions = super().answer(event)
        probabilities = tuple(made[0].tolist())
        given = ClassAnswer(
            answer.id,
            answer.score,
            probabilities[row.argmax()],
            answer.map_version,
            answer.weights,
            answer.key,
            answer.time,
            probabilities,
        )
        return given, prediction_index, memo.tobytes(), emissions

    # A label

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Let both engines learn."""
        if self.refuses(joined.memo) is not None:
            raise DamagedStateError("a prediction that waits has not the scores and forecasts of its classes")
        numbers, classes = kept_numbers(joined.memo)[np.newaxis], len(self.classes)
        rows = numbers[:, :classes]
        if joined.score != largest(rows[0]):
            raise DamagedStateError("a prediction that waits has not the scores of its classes")
        is_right = int(joined.label == rows[0].argmax())
        emissions = super().learn(msgspec.structs.replace(joined, label=is_right, memo=None))
        time = joined.labelled_at if self.config.needs_time else None
        with restoring("not what the join keeps with a prediction"):
            self.core.learn(
                self.classes.rows(rows),
                np.array([joined.label], np.int64),
                joined.domain,
                None if time is None else np.array([time]),
                None if joined.weight == 1.0 else np.array([joined.weight]),
                numbers[:, 2 * classes :],
            )
        return emissions

    def learn_events(
        self, events: Sequence[LabelledEvent], times: Floats | None, weights: Floats | None
    ) -> None:
        """Let both engines learn events of one domain, predicted just before."""
        scores = np.array([event.kept[-len(self.classes) :] for event in events], np.float64)
        codes = np.array([event.label for event in events], np.int64)
        self.learn_rows(self.classes.rows(scores), codes, events[0].domain, times, weights)


def kept_numbers(memo: Memo | None) -> Floats:
    """Return the numbers that the join has kept with a prediction; none of what holds none."""
    if isinstance(memo, bytes) and len(memo) % NUMBER_BYTES == 0:
        return np.frombuffer(memo, _NUMBERS)
    return np.empty(0)
