"""Which engine each key of a stream has: a plain one, one with segments, or one of many classes.

A plain engine learns sketches. The others judge each label by what was forecast at its prediction. So the
buckets read the engines of the micro-batch before, forecast, and keep the forecasts with the predictions. The
driver learns the labels one after the other: all of the source, then those of the target, in the order of the
events that joined them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, ClassVar, Final, TypeAlias, cast

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.fs as pa_fs  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody does

from streamcal.engine.checked_c import checked, lacks_time
from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.recalibrator import Recalibrator
from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.class_fields import ClassFields
from streamcal.events.codes import FieldError
from streamcal.events.columns import Columns
from streamcal.join.entries import Values
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.multiclass.recalibrator import MulticlassRecalibrator
from streamcal.segments.names_c import name_of
from streamcal.segments.recalibrator import SegmentedRecalibrator

__all__ = [
    "ENGINES",
    "Carrying",
    "Engines",
    "Kind",
    "Learned",
    "OfClasses",
    "Plain",
    "WithSegments",
    "engines_of_task",
]

ENGINES: Final = "streamcal.engines"
"""Property of the tasks of a micro-batch: the files that have the engines of the one before."""

_MOST_SEGMENTS: Final = 500_000  # of an engine: every Python worker holds them

Answered: TypeAlias = tuple[list[float], Values]
"""Numbers of an answer, and what the join keeps with the prediction."""


class Learned(msgspec.Struct, array_like=True, gc=False):
    """A prediction that has met its label, and the event by which it did."""

    domain: Domain
    timed: bool
    time: float
    alone: bool
    id: str
    score: float
    label: int
    labelled_at: float | None
    memo: Values

    @property
    def order(self) -> tuple[str, bool, float, bool, str]:
        """Position of the event among all of a micro-batch; labels are learned in this order."""
        return self.domain, self.timed, self.time, self.alone, self.id


class Plain(msgspec.Struct, frozen=True, tag="plain"):
    """A `Recalibrator`."""

    made: ClassVar[Any] = Recalibrator

    @property
    def class_count(self) -> int:
        """Number of classes."""
        return 2

    @property
    def text(self) -> str:
        """Description for messages."""
        return "no segments and two classes"

    def new(self, config: RecalibratorConfig) -> Any:
        """Return a new engine."""
        return self.made(config)

    def restore(self, data: bytes) -> Any:
        """Return the engine of a state."""
        return self.made.from_bytes(data)

    def fits(self, engine: object) -> bool:
        """Whether an engine is of this kind, with these fields or classes."""
        names = self.__struct_fields__
        return isinstance(engine, self.made) and all(
            getattr(engine, each) == getattr(self, each) for each in names
        )

    def config_of(self, engine: Any) -> RecalibratorConfig:
        """Return the options of an engine."""
        return cast(RecalibratorConfig, getattr(engine, "pooled", engine).config)

    def map_of(self, engine: Any) -> RecalibrationMap | None:
        """Return the map of all scores, None if there is none."""
        return getattr(getattr(engine, "pooled", engine), "map", None)

    def event(self, columns: Sequence[Any], config: RecalibratorConfig) -> Event:
        """Return the event of id, time, score, label, key, domain and what else is given as JSON.

        Raises
        ------
        ValueError
            if they are no event.
        """
        del config
        return checked(_event(*columns[:6]))


class Carrying(Plain, frozen=True):
    """Common part of the kinds that keep forecasts with predictions."""

    @property
    def columns(self) -> list[Column]:
        """Columns of an answer."""
        raise NotImplementedError

    def event(self, columns: Sequence[Any], config: RecalibratorConfig) -> Event:
        """See `Plain.event`."""
        event = super().event(columns, config)
        if refused := lacks_time(event, config):
            raise FieldError(refused.code, **refused.fields)
        return event

    def answer_many(self, engine: Any, events: Sequence[PredictionEvent | LabelledEvent]) -> list[Answered]:
        """Answer predictions; the engine stays as it is."""
        raise NotImplementedError

    def learn(self, engine: Any, observed: list[list[float]], learned: list[Learned]) -> None:
        """Let an engine observe the target scores of a micro-batch, then learn its labels."""
        raise NotImplementedError


class WithSegments(Carrying, frozen=True, tag="segments"):
    """A `SegmentedRecalibrator`; an answer is score, probability, and the version of the map of all."""

    made: ClassVar[Any] = SegmentedRecalibrator
    fields: tuple[str, ...]

    @property
    def text(self) -> str:
        """See `Plain.text`."""
        return f"segments by {', '.join(self.fields)}"

    def new(self, config: RecalibratorConfig) -> Any:
        """See `Plain.new`."""
        return SegmentedRecalibrator(self.fields, Recalibrator(config), own_engines=0)

    @property
    def columns(self) -> list[Column]:
        """See `Carrying.columns`."""
        answer = F.col("answer")
        return [
            answer[0].alias("score"),
            answer[1].alias("probability"),
            answer[2].cast("long").alias("version"),
        ]

    def event(self, columns: Sequence[Any], config: RecalibratorConfig) -> Event:
        """See `Plain.event`."""
        event = super().event(columns, config)
        if isinstance(event, LabelEvent):
            return event
        return msgspec.structs.replace(event, kept=tuple(map(name_of, json.loads(columns[6]))))

    def answer_many(self, engine: Any, events: Sequence[PredictionEvent | LabelledEvent]) -> list[Answered]:
        """See `Carrying.answer_many`."""
        rows = engine.forecast_many([each.score for each in events], [each.kept for each in events])
        answers, version = engine.probabilities(rows).tolist(), float(engine.pooled.version)
        index, out = float(engine.pooled.prediction_count), list[Answered]()
        for event, probability, row in zip(events, answers, rows.tolist(), strict=True):
            known = [None if number != number else number for number in row]  # NaN has no JSON
            out.append(([event.score, probability, version], (*event.kept, index, *known)))
        return out

    def learn(self, engine: Any, observed: list[list[float]], learned: list[Learned]) -> None:
        """See `Carrying.learn`; ValueError if there are too many segments then."""
        count, config = len(self.fields), engine.pooled.config
        engine.pooled.observe_many([answer[0] for answer in observed])
        for each in learned:
            index, *row = each.memo[count:]
            engine.learn_one(
                each.score,
                each.label,
                each.memo[:count],
                each.domain,
                time=each.labelled_at if config.needs_time else None,
                prediction_index=int(cast(float, index)) if each.domain == "target" else None,
                forecast=[math.nan if number is None else number for number in row],
            )
        if (segments := sum(engine.segments.values())) > _MOST_SEGMENTS:
            raise ValueError(
                f"an engine has {segments:,} segments by {', '.join(self.fields)}; on Spark it may have"
                f" {_MOST_SEGMENTS:,}, which every Python worker holds: use fewer fields, or streamcal run"
            )


class OfClasses(Carrying, frozen=True, tag="classes"):
    """A `MulticlassRecalibrator`. An answer is the score of each class, then the probability of each."""

    made: ClassVar[Any] = MulticlassRecalibrator
    classes: tuple[str, ...]

    @property
    def class_count(self) -> int:
        """See `Plain.class_count`."""
        return len(self.classes)

    @property
    def text(self) -> str:
        """See `Plain.text`."""
        return f"the {len(self.classes):,} classes {', '.join(self.classes[:5])}"

    def new(self, config: RecalibratorConfig) -> Any:
        """See `Plain.new`."""
        return MulticlassRecalibrator(self.classes, config)

    @property
    def columns(self) -> list[Column]:
        """See `Carrying.columns`."""
        count = len(self.classes)
        return [
            F.slice("answer", 1 + start, count).alias(name)
            for start, name in ((0, "scores"), (count, "probabilities"))
        ]

    def event(self, columns: Sequence[Any], config: RecalibratorConfig) -> Event:
        """See `Plain.event`."""
        id_, time, score, label, key, domain, given = columns
        fields = _class_fields(self.classes)
        code = None if label is None else fields.code(label)
        scores = () if given is None else fields.scores({"scores": json.loads(given)})
        score = max(scores) if scores else None
        event = super().event((id_, time, score, None if code is None else 0, key, domain), config)
        if code is not None:
            event = msgspec.structs.replace(event, label=code)
        return msgspec.structs.replace(event, kept=scores) if scores else event

    def answer_many(self, engine: Any, events: Sequence[PredictionEvent | LabelledEvent]) -> list[Answered]:
        """See `Carrying.answer_many`."""
        rows = [cast(tuple[float, ...], each.kept) for each in events]
        answers, carried = engine.predict_many(rows).tolist(), engine.carry_many(rows).tolist()
        return [
            ([*row, *answer], (*row, *each)) for row, answer, each in zip(rows, answers, carried, strict=True)
        ]

    def learn(self, engine: Any, observed: list[list[float]], learned: list[Learned]) -> None:
        """See `Carrying.learn`."""
        count = len(self.classes)
        engine.observe_many([answer[:count] for answer in observed])
        for domain, group in groupby(learned, lambda each: each.domain):
            labels = list(group)
            engine.learn_many(
                [each.memo[:count] for each in labels],
                [each.label for each in labels],
                domain,
                times=[each.labelled_at for each in labels] if engine.config.needs_time else None,
                carried=[each.memo[count:] for each in labels],
            )


Kind: TypeAlias = Plain | WithSegments | OfClasses


class Engines(dict[str | None, Any]):
    """Engines by key, restored from their states when they are asked for; other keys have a new one."""

    def __init__(self, kind: Kind, config: RecalibratorConfig, states: dict[str | None, bytes]) -> None:
        super().__init__()
        self._kind, self._config, self._states = kind, config, states

    def __missing__(self, key: str | None) -> Any:
        state = self._states.get(key)
        found = self[key] = self._kind.new(self._config) if state is None else self._kind.restore(state)
        return found


def engines_of_task(kind: Kind, config: RecalibratorConfig) -> Engines:
    """Return the engines that answer in the micro-batch of this task; a worker reads them once.

    Raises
    ------
    OSError
        if Python cannot read the checkpoint on this machine.
    """
    context = TaskContext.get()
    files = None if context is None else context.getLocalProperty(ENGINES)
    if files is None:
        raise RuntimeError(
            "a task of the stream does not know its engines: leave PYSPARK_PIN_THREAD as it is, and do not"
            " begin Spark jobs in threads of your own in write"
        )
    return _read(files, kind, config.model_dump_json())


@lru_cache(maxsize=1)
def _read(files: str, kind: Kind, config: str) -> Engines:
    states: dict[str | None, bytes] = {}
    for uri in json.loads(files):
        try:
            filesystem, path = pa_fs.FileSystem.from_uri(uri.replace("s3a://", "s3://", 1))
            table = pq.read_table(path, columns=["told", "key", "state"], filesystem=filesystem)
        except (OSError, pa.ArrowInvalid) as error:
            raise OSError(
                f"an executor cannot read the engines in {uri}: {error}; with segments or classes, the"
                " checkpoint must be where Python reads it on every executor, such as a shared folder"
            ) from error
        states |= {row["key"]: row["state"] for row in table.to_pylist() if not row["told"]}
    return Engines(kind, RecalibratorConfig.model_validate_json(config), states)


@lru_cache(maxsize=1)
def _class_fields(classes: tuple[str, ...]) -> ClassFields:
    return ClassFields(Columns(classes=classes))


def _event(id_: Any, time: Any, score: Any, label: Any, key: Any, domain: Any) -> Event:
    """Return the event of a row; ValueError if it is none."""
    domain = "target" if domain is None else domain
    if score is None:
        if label is None:
            raise ValueError("an event needs a score or a label; NaN is none")
        return LabelEvent(id_, label, time)
    if label is None:
        return PredictionEvent(id_, score, time, key, domain)
    return LabelledEvent(score, label, id_, time, key, domain)
