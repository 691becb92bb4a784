"""ClassesEngine: the engine of one key of a run whose events have the scores of many classes.

What is answered is the probability of each class, by a `MulticlassRecalibrator`. Beside it, a binary engine
learns whether the class with the highest score is right. Its map is not served: its priors, certificate and
alarms are about the decision of the model. The join keeps scores, answer and candidates of a prediction with
it, so that all are judged as of the prediction, however late its label comes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.engine.config import EngineOptions
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.engine.engine import Engine
from streamcal.engine.state import unpack
from streamcal.errors import DamagedStateError
from streamcal.events import LabelledEvent, PredictionEvent
from streamcal.join.entries import Memo
from streamcal.join.outcomes import Joined
from streamcal.multiclass.class_map import MulticlassMap
from streamcal.multiclass.recalibrator import MulticlassRecalibrator, answer_row
from streamcal.multiclass.rows_c import largest
from streamcal.sketch.decoding import restoring
from streamcal.sketch.weighing import ONE
from streamcal.values import Counts, Floats

__all__ = ["NUMBER_BYTES", "ClassAnswer", "ClassesEngine", "kept_numbers"]

NUMBER_BYTES: Final = 8
"""Bytes of a number that the join keeps."""
_NUMBERS: Final = np.dtype("<f8")


class ClassAnswer(Recalibrated, frozen=True, gc=False):
    """The answer to a prediction; score and probability are those of the class with the highest score."""

    probabilities: tuple[float, ...] = ()
    """Recalibrated probability of each class."""


class ClassesEngine(Engine):
    """Engine of all classes, and binary engine of the decision; made by `make`."""

    classes: MulticlassRecalibrator
    """Engine of all classes."""

    @classmethod
    def make(
        cls, options: EngineOptions, key: str | None, data: bytes | None = None, rows: Any = None
    ) -> Self:
        """Return the engine of a key, see `Engine.make`."""
        made = super().make(options, key, data, rows)
        if data is None:
            made.classes = MulticlassRecalibrator(options.classes, options.config)
        else:
            made.classes = MulticlassRecalibrator.from_bytes(unpack(data, 3)[2])
        return made

    def parts(self) -> list[bytes]:
        """Return the parts of the state: those of the binary engine, and of that of all classes."""
        return [*super().parts(), self.classes.to_bytes()]

    @property
    def portable_map(self) -> MulticlassMap:
        """Map by which the engine answers, not that of the decision."""
        return self.classes.map

    # A prediction

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, bytes, tuple[Emission, ...]]:
        """Answer with the probability of each class; see `EventRules.answer`.

        The join is to keep scores, answer and candidates.
        """
        scores = event.kept[-len(self.classes.classes) :]
        row = np.frombuffer(struct.pack(f"{len(scores)}d", *scores))  # numpy takes longer
        made, memo = answer_row(self.classes, row, observes=event.domain == "target")
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
        numbers = np.concatenate((row, made[0], memo[0]), dtype=_NUMBERS)
        return given, prediction_index, numbers.tobytes(), emissions

    # A label

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Let both engines learn."""
        numbers, classes = self._kept(joined), len(self.classes.classes)
        is_right = int(joined.label == numbers[:classes].argmax())
        emissions = super().learn(msgspec.structs.replace(joined, label=is_right, memo=None))
        timed = self.config.needs_time
        with restoring("not what the join keeps with a prediction"):
            self.classes.learn_one(
                numbers[:classes],
                self.classes.classes[joined.label],
                joined.domain,
                time=joined.labelled_at if timed else None,
                weight=None if joined.weight == 1.0 else joined.weight,
                carried=numbers[2 * classes :],  # type: ignore[arg-type]  # a sequence, too
            )
        return emissions

    def _kept(self, joined: Joined) -> Floats:
        """Return what the join has kept with a prediction; it may come from a store."""
        classes, numbers = len(self.classes.classes), kept_numbers(joined.memo)
        shares, more = numbers[: 2 * classes], numbers[2 * classes :]
        if (
            len(shares) < 2 * classes
            or not len(more)
            or joined.score != largest(shares[:classes])
            or not 0.0 <= largest(shares) <= 1.0
            or not 0.0 <= largest(more) <= max(self.classes.prediction_count, 1)
        ):
            raise DamagedStateError("a prediction that waits has not the scores and forecasts of its classes")
        return numbers

    def learn_events(
        self, events: Sequence[LabelledEvent], times: Floats | None, units: Counts | None
    ) -> None:
        """Let both engines learn events of one domain, predicted just before."""
        classes, domain = self.classes.classes, events[0].domain
        scores = np.array([event.kept[-len(classes) :] for event in events], np.float64)
        labels = [classes[event.label] for event in events]
        weights = None if units is None else units / ONE
        self.classes.learn_many(scores, labels, domain, times=times, weights=weights)
        right = scores.argmax(axis=1) == [event.label for event in events]
        self.learn_many(scores.max(axis=1), right.astype(np.int8), domain, times, None, units)


def kept_numbers(memo: Memo | None) -> Floats:
    """Return the numbers that the join has kept with a prediction; none of what holds none."""
    if isinstance(memo, bytes) and len(memo) % NUMBER_BYTES == 0:
        return np.frombuffer(memo, _NUMBERS)
    return np.empty(0)
