"""A stream on Spark: buckets join, the driver learns, and the next micro-batch is answered by that.

Plain engines learn sketches of what was joined. Engines with segments and of many classes learn the labels
themselves, see `streamcal.spark.kinds`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, Unpack

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions, unlike
from streamcal.engine.recalibrator import Recalibrator
from streamcal.events.columns import Columns
from streamcal.join.join_c import JoinConfig
from streamcal.join.outcomes import JoinCounts
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.multiclass.recalibrator import MulticlassRecalibrator
from streamcal.segments.recalibrator import SegmentedRecalibrator
from streamcal.segments.segments import check_fields
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.spark.buckets import COUNTS, LABELS, LEARNED, OUTCOMES, PREDICTION, REJECT, SCORES, Buckets
from streamcal.spark.checkpoint import Kept, files_of, latest, of_micro_batch, resumed, save
from streamcal.spark.kinds import ENGINES, Carrying, Engines, Kind, Learned, OfClasses, Plain, WithSegments
from streamcal.times import LIMIT

__all__ = ["Batch", "StreamState", "read_state", "recalibrate_stream"]

_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_EVENT: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "id": ("string", (T.StringType, T.IntegralType)),
    "time": ("double", (T.TimestampType, T.TimestampNTZType, T.NumericType)),
    "score": ("double", (T.NumericType,)),
    "label": ("double", (T.NumericType, T.BooleanType)),
    "key": ("string", (T.AtomicType,)),
    "domain": ("string", (T.StringType,)),
}
"""The columns of events: what each is cast to, and the types that it may have."""
_OF_CLASSES: Final = _EVENT | {
    "scores": ("array<double>", (T.ArrayType,)),
    "label": ("string", (T.StringType, T.IntegralType)),
}
_SEGMENT: Final = (T.StringType, T.IntegralType, T.BooleanType, T.DecimalType, T.DateType)
"""Types of fields of segments: those whose texts are the same in Spark and in Python."""
Learner: TypeAlias = Recalibrator | SegmentedRecalibrator | MulticlassRecalibrator
"""An engine of a stream."""
_ANSWERS: Final = (
    "id string, score double, probability double, version long, key string, domain string, time double"
)


class Batch(NamedTuple):
    """A micro-batch, to be written."""

    number: int
    """From 0. After a failure Spark may run the last one again, with the same number and the same rows."""
    answers: DataFrame
    """A row for each prediction that was taken: id, score, probability, version, key, domain, time. Of many
    classes, scores and probabilities are arrays in their order, and there is no version."""
    rejects: DataFrame
    """A row for each event that changed nothing: id, time, code, reason."""
    maps: dict[str | None, RecalibrationMap]
    """The map of each key that answered; keys that are not here are answered by the map before any label.
    With segments, the map of all, before corrections. Many classes have none."""


class StreamState(NamedTuple):
    """State of a stream by the end of a micro-batch."""

    batch: int
    """Number of the micro-batch; −1 before the first."""
    engines: dict[str | None, Learner]
    """The engine of each key."""
    counts: JoinCounts
    """Number of events that met each end."""


def recalibrate_stream(
    events: DataFrame,
    write: Callable[[Batch], None],
    checkpoint: str,
    *,
    segments: Sequence[str] = (),
    classes: Sequence[str] = (),
    engines: Mapping[str | None, Learner] | None = None,
    join: JoinConfig | None = None,
    buckets: int = 64,
    trigger: Mapping[str, Any] | None = None,
    config: RecalibratorConfig | None = None,
    **options: Unpack[RecalibratorOptions],
) -> StreamingQuery:
    """Start a query that answers predictions, joins their labels, and learns.

    Parameters
    ----------
    events
        a streaming frame with the columns of docs/events.md: ``id``, ``time`` (a timestamp, or seconds),
        ``score`` of predictions, ``label`` of labels (numbers, 0 or 1), ``key``, ``domain``; of the last four
        those that are used. Predictions and labels go into one frame with
        ``unionByName(..., allowMissingColumns=True)``.
    write
        called on the driver with each micro-batch, to write its frames.
    checkpoint
        a directory that driver and executors reach: Spark's checkpoint, and the engines. With segments or
        classes, Python reads it on the executors.
    segments
        columns of the events that make segments: texts, whole numbers, decimals, booleans or dates. Each
        key's engine is a `SegmentedRecalibrator`, without own engines if the stream begins it.
    classes
        names of all classes. Each key's engine is a `MulticlassRecalibrator`. Events have ``scores``, an
        array of the scores in this order, in place of ``score``; a ``label`` is the name of a class.
    engines
        to begin with, by key, as `learn` returns them; they are copied. Other keys begin anew. A stream that
        goes on from a checkpoint has its own.
    join
        options of the join. ``max_pending`` is divided among the buckets; ``max_jump`` is how far a time may
        be past the machine's when the micro-batch began.
    buckets
        how many joins the ids are hashed to; with the engines' options, it stays the same for a checkpoint.
    trigger
        of ``DataStreamWriter.trigger``, such as ``{"processingTime": "10 seconds"}``.
    config, **options
        of the engines, as those of `Recalibrator`; without segments or classes, the mode must be given.

    Returns
    -------
    The query.

    Raises
    ------
    ValueError
        if there are both segments and classes; if a plain engine's state depends on the order of the labels,
        as in mode ``auto``; if there is a ``label_delay_limit`` with segments or classes; if the
        join takes predictions without a label for 0; if engines are of another kind, or
        have other options than are given; if there are fewer than 1 buckets; if a column is missing, or of a
        type that is not its own; or if the checkpoint is of another query, or of a stream begun with other
        options.
    """
    begun = dict(engines or {})
    if segments and classes:
        raise ValueError("segments and classes exclude each other: leave out one of them")
    chosen = config or RecalibratorConfig(**options)
    kind: Kind = Plain()
    if segments:
        kind = WithSegments(check_fields(segments))
        Columns().with_segments(kind.fields)  # raises if one is the column of something else
    elif classes:
        kind = OfClasses(MulticlassRecalibrator(classes, chosen).classes)
    elif chosen.why_ordered is not None:
        raise ValueError(f"labels come from buckets in no order: {chosen.why_ordered}")
    if isinstance(kind, Carrying) and (limit := chosen.label_delay_limit) is not None:
        raise ValueError(f"label_delay_limit={limit!r} does not go with segments: leave it out")
    for key, engine in begun.items():
        if not kind.fits(engine):
            raise ValueError(f"the engine of key {key!r} must have {kind.text}, got {engine!r}")
        if differences := unlike(kind.config_of(engine), chosen):
            raise ValueError(f"the engine of key {key!r} was made with other options: {differences}")
    if buckets < 1:
        raise ValueError(f"buckets must be at least 1, got {buckets}")
    given = join or JoinConfig()
    if given.missing_labels == "negative":
        raise ValueError(
            "missing_labels='negative' of the join: on Spark, its buckets only add up labels as they are"
            " told. Use streamcal run, or missing_labels='drop'"
        )
    share = given.model_copy(update={"max_pending": -(-given.max_pending // buckets)})
    timed = _prepared(events, kind, buckets, math.inf if given.max_jump is None else given.max_jump)
    spark, place = events.sparkSession, checkpoint.rstrip("/")
    kept = resumed(spark, place, chosen, kind, buckets)
    if kept is None:
        begin = {key: engine.to_bytes() for key, engine in begun.items()}
        kept = Kept(-1, buckets, begin, JoinCounts(), kind)
        save(spark, place, kept)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    outcomes = timed.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=Buckets(share, chosen, kind),
        outputStructType=OUTCOMES,
        outputMode="append",
        timeMode="eventTime",
    )
    learner = _Learner(spark, chosen, place, write, kept)
    writer = outcomes.writeStream.foreachBatch(learner).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def read_state(spark: SparkSession, checkpoint: str) -> StreamState:
    """Return what a stream has learned by the end of its latest micro-batch.

    Raises
    ------
    ValueError
        if there is no state of a stream.
    """
    kept = latest(spark, checkpoint.rstrip("/"))
    if kept is None:
        raise ValueError(f"there is no state of a stream in {checkpoint}")
    engines = {key: kept.kind.restore(state) for key, state in kept.engines.items()}
    return StreamState(kept.batch, engines, kept.counts)


def _prepared(events: DataFrame, kind: Kind, buckets: int, max_jump: float) -> DataFrame:
    """Return the events with all columns, their bucket, and a watermark that follows the latest time."""
    given = {field.name: field.dataType for field in events.schema.fields}
    score = "scores" if isinstance(kind, OfClasses) else "score"
    fields = kind.fields if isinstance(kind, WithSegments) else ()
    columns = _OF_CLASSES if isinstance(kind, OfClasses) else _EVENT
    columns = columns | dict.fromkeys(fields, ("string", _SEGMENT))
    for name, (_, types) in columns.items():
        found = given.get(name)
        if found is None and (name in ("id", "time", *fields) or not {score, "label"} & set(given)):
            wanted = name if name in ("id", "time", *fields) else f"{score}, or a column label"
            raise ValueError(f"events need a column {wanted}; there are {', '.join(given)}: rename one")
        if found is not None and not isinstance(found, (*types, T.NullType)):
            named = ", ".join(each.__name__.removesuffix("Type").lower() for each in types)
            raise ValueError(
                f"the column {name} must be of a type of these: {named}; it is {found.simpleString()}:"
                " cast it"
            )
    time = F.col("time")
    if isinstance(given["time"], T.TimestampNTZType):
        time = F.to_timestamp(F.concat(time.cast("string"), F.lit("Z")))  # UTC, not the zone of the session
    seconds = time.cast("double")
    # The watermark, of which there is no way back, follows no time that the join rejects.
    believed = (F.abs(seconds) < LIMIT) & (seconds <= F.current_timestamp().cast("double") + max_jump)
    clock = F.when(believed, F.timestamp_seconds(seconds))
    # Without a delay, and on a column of its own: the join, not Spark, says what is late.
    followed = events.withColumns({"time": seconds, "clock": clock}).withWatermark("clock", "0 seconds")
    all_columns = {name: F.col(name) if name in given else F.lit(None) for name in columns}
    bucket = F.pmod(F.xxhash64(all_columns["id"].cast("string")), F.lit(buckets)).cast("int")
    taken = {name: all_columns[name].cast(type_) for name, (type_, _) in columns.items()}
    other = F.lit(None).cast("string")
    if fields:
        other = F.to_json(F.array(*[taken.pop(name) for name in fields]))
    elif isinstance(kind, OfClasses):
        scores = taken.pop("scores")
        taken["score"], other = F.array_max(scores), F.to_json(scores)
    taken["given"] = other
    return followed.select(bucket.alias("bucket"), *(column.alias(name) for name, column in taken.items()))


@dataclass
class _Learner:
    """Takes each micro-batch on the driver; its state is a function of the state before and the rows."""

    spark: SparkSession
    config: RecalibratorConfig
    checkpoint: str
    write: Callable[[Batch], None]
    kept: Kept

    def __call__(self, outcomes: DataFrame, number: int) -> None:
        """Answer by the maps of the state before, and learn."""
        before = self.kept
        if before.batch != number - 1:
            before = of_micro_batch(self.spark, self.checkpoint, number - 1)
        engines, kind = Engines(before.kind, self.config, before.engines), before.kind
        wanted = F.col("kind").isin(SCORES, LABELS, LEARNED, COUNTS)
        if isinstance(kind, Carrying):
            wanted = wanted | ((F.col("kind") == PREDICTION) & (F.col("domain") == "target"))
            files = files_of(self.spark, self.checkpoint, before.batch)
            outcomes.sparkSession.sparkContext.setLocalProperty(ENGINES, json.dumps(files))
        outcomes = outcomes.persist()
        try:
            rows = outcomes.where(wanted).collect()
            maps = {key: kind.map_of(engines[key]) for key in before.engines}
            first = kind.map_of(kind.new(self.config))
            found = {key: each for key, each in maps.items() if each}
            self.write(_batch(number, outcomes, kind, found, first))
            kept = self._learn(before, number, engines, rows)
        finally:
            outcomes.unpersist()
        save(self.spark, self.checkpoint, kept)
        self.kept = kept

    def _learn(self, before: Kept, number: int, engines: Engines, rows: list[Row]) -> Kept:
        counts = [
            msgspec.json.decode(row["payload"], type=JoinCounts) for row in rows if row["kind"] == COUNTS
        ]
        totals = [
            sum(each) for each in zip(*map(msgspec.structs.astuple, (before.counts, *counts)), strict=True)
        ]
        if isinstance(before.kind, Carrying):
            _learn_labels(before.kind, engines, rows)
        else:
            _learn_sketches(engines, rows)
        states = before.engines | {key: engine.to_bytes() for key, engine in engines.items()}
        return Kept(number, before.buckets, states, JoinCounts(*totals), before.kind)


def _learn_sketches(engines: Engines, rows: list[Row]) -> None:
    merged: dict[tuple[str | None, str | None], ScoreSketch] = {}
    for row in rows:
        if row["kind"] == COUNTS:
            continue
        sketch = ScoreSketch.from_bytes(bytes(row["payload"]))
        known = merged.setdefault((row["key"], row["domain"]), sketch)  # scores have no domain
        if known is not sketch:
            known.merge(sketch)
    # The source before the target, and scores first: the order of the engine's own batches.
    order = {None: 0, "source": 1, "target": 2}
    for (key, domain), sketch in sorted(merged.items(), key=lambda item: order[item[0][1]]):
        if domain is None:
            engines[key].observe_sketch(sketch)
        else:
            engines[key].learn_sketch(sketch, "source" if domain == "source" else "target")


def _learn_labels(kind: Carrying, engines: Engines, rows: list[Row]) -> None:
    observed: dict[str | None, list[Row]] = {}
    learned: dict[str | None, list[Learned]] = {}
    for row in rows:
        if row["kind"] == PREDICTION:
            observed.setdefault(row["key"], []).append(row)
        elif row["kind"] == LEARNED:
            its = msgspec.msgpack.decode(row["payload"], type=list[Learned])
            learned.setdefault(row["key"], []).extend(its)
    for key in observed | learned:
        predictions = sorted(
            observed.get(key, ()),
            key=lambda row: (row["time"] is not None, row["time"] or 0.0, str(row["id"])),
        )
        labels = sorted(learned.get(key, ()), key=lambda each: each.order)
        kind.learn(engines[key], [row["answer"] for row in predictions], labels)


def _batch(
    number: int,
    outcomes: DataFrame,
    kind: Kind,
    maps: dict[str | None, RecalibrationMap],
    first: RecalibrationMap | None,
) -> Batch:
    """Return a micro-batch answered by the map of each key, or by the first, of version 0."""

    def answered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        unknown = first or RecalibrationMap(version=0)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            for key in table["key"].unique().to_pylist():
                rows = table.filter(pc.is_in(table["key"], pa.array([key], pa.string())))
                found = maps.get(key, unknown)
                columns = {name: rows[name] for name in ("id", "score", "key", "domain", "time")}
                columns["probability"] = pa.array(found.predict_many(rows["score"]))
                columns["version"] = pa.array([found.version] * rows.num_rows, pa.int64())
                ordered = pa.table(columns).select([column.split()[0] for column in _ANSWERS.split(", ")])
                yield from ordered.to_batches()

    predictions = outcomes.where(F.col("kind") == PREDICTION)
    rejects = outcomes.where(F.col("kind") == REJECT)
    code, reason = F.col("key").alias("code"), F.col("payload").cast("string").alias("reason")
    if isinstance(kind, Carrying):
        answers = predictions.select("id", *kind.columns, "key", "domain", "time")
    else:
        answers = predictions.mapInArrow(answered, _ANSWERS)
    return Batch(number, answers, rejects.select("id", "time", code, reason), maps)
