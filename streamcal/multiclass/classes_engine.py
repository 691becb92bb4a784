"""ClassesEngine: the engine of one key of a run whose events have the scores of many classes.

What is answered is the probability of each class, by a `MulticlassRecalibrator`. Beside it, a binary engine
learns whether the class with the highest score is right. Its map is not served: its priors, certificate and
alarms are about the decision of the model. The join keeps scores, answer and candidates of a prediction with
it, so that all are judged as of the prediction, however late its label comes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.emissions import Emission, Recalibrated
from streamcal.engine.engine import Engine
from streamcal.engine.state import unpack
from streamcal.errors import DamagedStateError
from streamcal.events import Domain, Kept, LabelledEvent, PredictionEvent
from streamcal.join.entries import Carried
from streamcal.join.outcomes import Joined
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.multiclass.class_map import MulticlassMap
from streamcal.multiclass.recalibrator import MulticlassRecalibrator, answer_row
from streamcal.multiclass.rows_c import largest
from streamcal.sketch.decoding import restoring
from streamcal.values import Floats

__all__ = ["NUMBER_BYTES", "ClassAnswer", "ClassesEngine", "kept_numbers", "served_map"]

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
    _first: int
    _carried: bytes = b""
    _checked: tuple[Carried | None, Floats] | None = None
    """Bytes kept with the latest label's prediction, and their numbers."""

    @classmethod
    def make(
        cls,
        config: RecalibratorConfig,
        key: str | None,
        classes: Sequence[str],
        first: int,
        data: bytes | None = None,
    ) -> Self:
        """Return the engine of a key.

        Parameters
        ----------
        config, key
            As of `streamcal.engine.event_rules_c.EventRules`.
        classes
            Names of the classes.
        first
            Index of the first score among the values that an event keeps.
        data
            State of such an engine; None: a new one.

        Raises
        ------
        DamagedStateError
            If the bytes are no such state.
        """
        if data is None:
            made = cls(config, key)
            made.classes = MulticlassRecalibrator(classes, config)
        else:
            made = cls.from_bytes(data, key)
            made.classes = MulticlassRecalibrator.from_bytes(unpack(data, 3)[2])
        made._first = first
        return made

    def parts(self) -> list[bytes]:
        """Return the parts of the state: those of the binary engine, and of that of all classes."""
        return [*super().parts(), self.classes.to_bytes()]

    # A prediction

    def answer(
        self, event: PredictionEvent | LabelledEvent
    ) -> tuple[Recalibrated, int, tuple[Emission, ...]]:
        """Answer with the probability of each class; see `EventRules.answer`."""
        scores = event.kept[self._first :]
        row = np.frombuffer(struct.pack(f"{len(scores)}d", *scores))  # numpy takes longer
        made, carried = answer_row(self.classes, row, observes=event.domain == "target")
        self._carried = np.concatenate((row, made[0], carried[0]), dtype=_NUMBERS).tobytes()
        answer, prediction_index, emissions = super().answer(event)
        probabilities = tuple(made[0].tolist())
        served = probabilities[row.argmax()]
        given = ClassAnswer(
            answer.id,
            answer.score,
            served,
            answer.map_version,
            answer.weights,
            answer.key,
            answer.time,
            probabilities,
        )
        return given, prediction_index, emissions

    def carried(self) -> bytes:
        """Return scores, answer and candidates of the prediction just answered."""
        return self._carried

    # A label

    def outcome(self, joined: Joined) -> Joined:
        """Return whether the class with the highest score is right, with the class, and what it was given."""
        numbers = self._kept(joined)[: 2 * len(self.classes.classes)]
        told = struct.pack("d", joined.label) + numbers.tobytes()
        return msgspec.structs.replace(
            joined, label=int(joined.label == self._decided(numbers)), carried=told
        )

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Let both engines learn."""
        numbers, classes = self._kept(joined), len(self.classes.classes)
        is_right = int(joined.label == self._decided(numbers))
        emissions = super().learn(msgspec.structs.replace(joined, label=is_right, carried=None))
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

    def _decided(self, numbers: Floats) -> int:
        """Return the place of the class with the highest score."""
        return int(numbers[: len(self.classes.classes)].argmax())

    def _kept(self, joined: Joined) -> Floats:
        """Return what the join has kept with a prediction; it may come from a store."""
        carried, classes = joined.carried, len(self.classes.classes)
        if self._checked is not None and carried is self._checked[0]:
            return self._checked[1]
        numbers = kept_numbers(carried)
        shares, more = numbers[: 2 * classes], numbers[2 * classes :]
        if (
            len(shares) < 2 * classes
            or not len(more)
            or joined.score != largest(shares[:classes])
            or not 0.0 <= largest(shares) <= 1.0
            or not 0.0 <= largest(more) <= max(self.classes.prediction_count, 1)
        ):
            raise DamagedStateError("a prediction that waits has not the scores and forecasts of its classes")
        self._checked = carried, numbers
        return numbers

    def learn_classes(
        self,
        kept: Sequence[Kept],
        codes: Sequence[int],
        domain: Domain,
        times: Floats,
        weights: Floats | None,
    ) -> list[int]:
        """Learn labelled events at once; return whether the class with the highest score was right in each.

        The binary engine is left to the caller.
        """
        scores = np.array([each[self._first :] for each in kept], np.float64)
        given = times if self.config.needs_time else None
        labels = [self.classes.classes[code] for code in codes]
        self.classes.learn_many(scores, labels, domain, times=given, weights=weights)
        right: list[int] = (scores.argmax(axis=1) == np.array(codes)).astype(int).tolist()
        return right


def kept_numbers(carried: Carried | None) -> Floats:
    """Return the numbers that the join has kept with a prediction; none of what holds none."""
    if isinstance(carried, bytes) and len(carried) % NUMBER_BYTES == 0:
        return np.frombuffer(carried, _NUMBERS)
    return np.empty(0)


def served_map(engine: Engine) -> RecalibrationMap | MulticlassMap:
    """Return the map by which an engine answers; of many classes not that of the decision."""
    return engine.classes.map if isinstance(engine, ClassesEngine) else engine.map
