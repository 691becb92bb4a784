"""Kind of a run, of one score an event or of many classes: one object has all that differs between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from streamcal.base.values import Floats
from streamcal.engine.emissions import Recalibrated
from streamcal.engine.multiclass.classes_engine import ClassAnswer, kept_numbers
from streamcal.events import KeptValue, LabelledEvent, PredictionEvent
from streamcal.events.score_fields import by_class
from streamcal.join.entries import Pending
from streamcal.maps.shift import NO_SHIFT
from streamcal.quality.class_sums import ClassSums
from streamcal.quality.figures import Quality
from streamcal.quality.groups import Groups
from streamcal.run.added import Added, Field, with_fields
from streamcal.run.rows import AnswerColumns, Answers, Column

_TIME: Final = 1772366400.0  # of examples


class ClassRow(msgspec.Struct, frozen=True, gc=False):
    """The answer to a prediction of many classes."""

    id: str | None
    scores: dict[str, float]
    """Score of each class."""
    probabilities: dict[str, float]
    """Recalibrated probability of each class; they sum to 1."""
    map_version: int
    key: str | None
    time: float | None


class Kind:
    """Runs of one score an event."""

    row: ClassVar[Any] = Recalibrated
    """Type of the rows of answers."""
    answer: ClassVar[type[Recalibrated]] = Recalibrated
    """Type of what an engine answers."""
    score: ClassVar[str] = "score"
    """Field of a row that has the scores."""
    probability: ClassVar[str] = "probability"
    """Field of a row that has the probabilities."""
    has_maps: ClassVar[bool] = True
    """Whether an engine serves a map of one score, which a run can publish."""
    example: Any = Recalibrated("a1", 0.93, 0.81, 7, NO_SHIFT, None, _TIME)
    """Row of an answer."""
    schema: ClassVar[dict[str, Any]] = {"type": "number", "minimum": 0, "maximum": 1}
    """JSON schema of these scores."""

    _own: Sequence[Added] = ()

    def quality(self, segments: Sequence[str], *, matures: bool) -> Quality:
        """Return the quality of no forecasts yet, in a run with segments by these fields."""
        return Quality(matures=matures, segments={field: Groups() for field in segments})

    def row_with(self, added: Sequence[Added]) -> Any:
        """Return the type of rows with the fields that are added."""
        fields = [field for each in added for field in each.fields]
        if not fields:
            return self.row
        # Names of kept values are any texts.
        own = {f"kept_{at}": field.name for at, field in enumerate(fields) if field.type is KeptValue}
        names = {name: field for field, name in own.items()}
        types = [(names.get(field.name, field.name), field.type, field.example) for field in fields]
        row, name = self.row, self.row.__name__
        return msgspec.defstruct(name, types, bases=(row,), rename=own, frozen=True, gc=False)

    def to_rows(self, added: Sequence[Added]) -> Callable[[AnswerColumns], AnswerColumns]:
        """Return what makes rows of answers, with the fields that are added."""
        return partial(with_fields, row=self.row_with(added), added=[*self._own, *added])

    def numbers(self, value: Any) -> Sequence[float]:
        """Return the numbers in the field `score` or `probability` of a row."""
        return (value,)

    def columns(self, rows: Answers) -> dict[str, Any]:
        """Return what is served in rows of answers, as columns."""
        parts = rows.parts
        weights = np.concatenate([part.weights[part.which] for part in parts])
        return {
            "probability": np.concatenate([part.probabilities for part in parts]),
            "map_version": np.concatenate([np.array(part.versions)[part.which] for part in parts]),
            "weight_0": weights[:, 0],
            "weight_1": weights[:, 1],
            **self._added(rows),
        }

    def _added(self, rows: Answers) -> dict[str, Any]:
        """Return what is added to rows, as arrays."""
        names = [name for name in rows.parts[0].added if name not in (self.score, self.probability)]
        return {name: np.concatenate([part.added[name] for part in rows.parts]) for name in names}

    def score_of(self, event: PredictionEvent | LabelledEvent) -> Any:
        """Return the scores of an event."""
        return event.score

    def remembered(self, known: Pending) -> tuple[Any, ...]:
        """Return the scores of a prediction that waits; then the fields of `answer` beyond those of all."""
        return (known.score,)

    def applied(self, found: Any, event: PredictionEvent | LabelledEvent) -> tuple[Any, ...]:
        """Return what a map from elsewhere gives: probability and weights; then as `remembered`."""
        return found.predict_one(event.score), found.weights


class _Classes(Kind):
    row = ClassRow
    answer = ClassAnswer
    score, probability = "scores", "probabilities"
    has_maps = False

    def __init__(self, classes: Sequence[str]) -> None:
        self._classes, self._count = classes, len(classes)
        self._named: Any = by_class(classes) or (lambda *values: dict(zip(classes, values, strict=True)))
        even = dict.fromkeys(classes, 1.0 / len(classes))
        self.example = ClassRow("a1", even, even, 7, None, _TIME)
        one = dict.fromkeys(classes, Kind.schema)
        fields = [Field(name, dict[str, float], even) for name in (self.score, self.probability)]
        self._own = [Added(fields, self._named_numbers)]
        self.schema = {"type": "object", "required": [*classes], "properties": one}  # type: ignore[misc]

    def quality(self, segments: Sequence[str], *, matures: bool) -> Quality:
        del segments
        return Quality(matures=matures, segments={"class": Groups()}, classes=ClassSums.of(self._classes))

    def _named_numbers(self, answers: AnswerColumns) -> Sequence[Column]:
        named, count = self._named, self._count
        scores = [named(*values[-count:]) for values in answers.kept or ()]
        return scores, [named(*each.probabilities) for each in answers.answers]

    def numbers(self, value: Any) -> Sequence[float]:
        return tuple(value.values())

    def columns(self, rows: Answers) -> dict[str, Any]:
        made: Floats = np.array([each.probabilities for part in rows.parts for each in part.answers])
        names = [f"probability_{name}" for name in self._classes]
        found: dict[str, Any] = dict(zip(names, made.reshape(-1, self._count).T, strict=True))
        versions = [np.array(part.versions)[part.which] for part in rows.parts]
        return {**found, "map_version": np.concatenate(versions), **self._added(rows)}

    def score_of(self, event: PredictionEvent | LabelledEvent) -> Any:
        return event.kept[-self._count :]

    def remembered(self, known: Pending) -> tuple[Any, ...]:
        memo, count = tuple(kept_numbers(known.memo).tolist()), self._count
        return memo[:count], memo[count : 2 * count]

    def applied(self, found: Any, event: PredictionEvent | LabelledEvent) -> tuple[Any, ...]:
        scores = self.score_of(event)
        made = tuple(found.predict_many([scores])[0].tolist())
        return made[scores.index(event.score)], NO_SHIFT, made


def kind_of(classes: Sequence[str]) -> Kind:
    """Return the kind of a run with these classes; of one score if there are none."""
    return _Classes(classes) if classes else Kind()
