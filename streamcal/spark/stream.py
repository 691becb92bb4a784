"""A stream on Spark: buckets join, the driver learns, and the next micro-batch is answered by that.

Engines that can learn sketches of what was joined. The others learn the labels themselves, see
`streamcal.spark.answering`.
"""

from __future__ import annotations

import json
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

from streamcal.base.times import LIMIT, date_like
from streamcal.engine.config import EngineOptions, RecalibratorConfig, RecalibratorOptions, unlike
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.engine.recalibrator import Recalibrator, calls_of, options_of
from streamcal.events.codes import Refusal
from streamcal.events.columns import Columns
from streamcal.join.config import JoinConfig
from streamcal.join.join import Join
from streamcal.join.outcomes import JoinCounts
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.spark.answering import ENGINES, Engines, Learned, learn
from streamcal.spark.buckets import COUNTS, LABELS, LEARNED, OUTCOMES, PREDICTION, REJECT, SCORES, Buckets
from streamcal.spark.checkpoint import Kept, files_of, latest, of_micro_batch, resumed, save

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
Map: TypeAlias = RecalibrationMap | MulticlassMap
"""Map of an engine."""
_ANSWERS: Final = (
    "id string, score double, probability double, version long, key string, domain string, time double"
)


class Batch(NamedTuple):
    """A micro-batch, to be written."""

    number: int
    """From 0. After a failure Spark may run the last one again, with the same number and the same rows."""
    answers: DataFrame
    """A row for each prediction that was taken: id, score, probability, version, key, domain, time. Of many
    classes, these are scores and probabilities, arrays in their order, and the version is of the decision."""
    rejects: DataFrame
    """A row for each event that changed nothing: id, time, code, reason."""
    maps: dict[str | None, Map]
    """The map of each key that answered; keys that are not here are answered by the map before any label.
    With segments, the map of all, before corrections."""


class StreamState(NamedTuple):
    """State of a stream by the end of a micro-batch."""

    batch: int
    """Number of the micro-batch; −1 before the first."""
    engines: dict[str | None, Recalibrator]
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
    engines: Mapping[str | None, Recalibrator] | None = None,
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
        a directory that driver and executors reach: Spark's checkpoint, and the engines. Where the order of
        labels matters (mode ``auto``, windows, segments, classes), Python reads it on the executors.
    segments
        columns of the events that make segments: texts, whole numbers, decimals, booleans or dates. Each
        key's engine has these segments, without own engines if the stream begins it.
    classes
        names of all classes. Events have ``scores``, an array of the scores in this order, in place of
        ``score``; a ``label`` is the name of a class.
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
        of the engines, as those of `Recalibrator`.

    Returns
    -------
    The query.

    Raises
    ------
    ValueError
        if there are both segments and classes; if there is a ``label_delay_limit``; if the join takes
        predictions without a label for 0; if engines have other options than are given; if there are fewer
        than 1 buckets; if a column is missing, or of a
        type that is not its own; or if the checkpoint is of another query, or of a stream begun with other
        options.
    """
    begun = dict(engines or {})
    first = Recalibrator(config, classes=classes or None, segments=segments or None, own_engines=0, **options)
    wanted = options_of(first)
    Columns().with_segments(wanted.fields)  # raises if one is the column of something else
    for key, engine in begun.items():  # the number of own engines may be another
        found = msgspec.structs.replace(options_of(engine), own_engines=wanted.own_engines)
        if differences := unlike(found, wanted):
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
    rules = Join(given)
    timed = _prepared(events, wanted, buckets, min(rules.max_jump, rules.shortest_wait))
    spark, place = events.sparkSession, checkpoint.rstrip("/")
    kept = resumed(spark, place, wanted, buckets)
    if kept is None:
        begin = {key: engine.to_bytes() for key, engine in begun.items()}
        kept = Kept(-1, buckets, begin, JoinCounts(), wanted)
        save(spark, place, kept)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    outcomes = timed.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=Buckets(share, wanted, answers=not _by_sketches(first)),
        outputStructType=OUTCOMES,
        outputMode="append",
        timeMode="eventTime",
    )
    learner = _Learner(spark, first, place, write, kept)
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
    engines = {key: Recalibrator.from_bytes(state) for key, state in kept.engines.items()}
    return StreamState(kept.batch, engines, kept.counts)


def _prepared(events: DataFrame, options: EngineOptions, buckets: int, ahead: float) -> DataFrame:
    """Return the events with all columns, their bucket, and a watermark that follows the latest time."""
    given = {field.name: field.dataType for field in events.schema.fields}
    fields, score, columns = options.fields, "score", _EVENT
    if options.classes:
        score, columns = "scores", _OF_CLASSES
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
    # The watermark, of which there is no way back, follows no time that is in doubt.
    believed = (F.abs(seconds) < LIMIT) & (seconds <= F.current_timestamp().cast("double") + ahead)
    clock = F.when(believed, F.timestamp_seconds(seconds))
    # Without a delay, and on a column of its own: the join, not Spark, says what is late.
    followed = events.withColumns({"time": seconds, "clock": clock}).withWatermark("clock", "0 seconds")
    all_columns = {name: F.col(name) if name in given else F.lit(None) for name in columns}
    bucket = F.pmod(F.xxhash64(all_columns["id"].cast("string")), F.lit(buckets)).cast("int")
    taken = {name: all_columns[name].cast(type_) for name, (type_, _) in columns.items()}
    other = F.lit(None).cast("string")
    if fields:
        other = F.to_json(F.array(*[taken.pop(name) for name in fields]))
    elif options.classes:
        scores = taken.pop("scores")
        taken["score"], other = F.array_max(scores), F.to_json(scores)
    taken["given"] = other
    return followed.select(bucket.alias("bucket"), *(column.alias(name) for name, column in taken.items()))


@dataclass
class _Learner:
    """Takes each micro-batch on the driver; its state is a function of the state before and the rows."""

    spark: SparkSession
    first: Recalibrator
    """An engine before any label."""
    checkpoint: str
    write: Callable[[Batch], None]
    kept: Kept

    def __call__(self, outcomes: DataFrame, number: int) -> None:
        """Answer by the maps of the state before, and learn."""
        before = self.kept
        if before.batch != number - 1:
            before = of_micro_batch(self.spark, self.checkpoint, number - 1)
        engines, by_maps = Engines(before.options, before.engines), _by_sketches(self.first)
        wanted = F.col("kind").isin(SCORES, LABELS, LEARNED, COUNTS)
        if not by_maps:
            wanted = wanted | ((F.col("kind") == PREDICTION) & (F.col("domain") == "target"))
            files = files_of(self.spark, self.checkpoint, before.batch)
            outcomes.sparkSession.sparkContext.setLocalProperty(ENGINES, json.dumps(files))
        outcomes = outcomes.persist()
        try:
            if number == 0:
                _check_first_time(outcomes)
            rows = outcomes.where(wanted).collect()
            maps: dict[str | None, Map] = {key: engines[key].map for key in before.engines}
            if by_maps:
                predictions = outcomes.where(F.col("kind") == PREDICTION)
                answers = predictions.mapInArrow(_by_maps(maps, self.first.map), _ANSWERS)
            else:
                answers = _answers(outcomes, before.options)
            self.write(Batch(number, answers, _rejects(outcomes), maps))
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
        (_learn_sketches if _by_sketches(self.first) else _learn_labels)(engines, rows)
        states = before.engines | {key: engine.to_bytes() for key, engine in engines.items()}
        return Kept(number, before.buckets, states, JoinCounts(*totals), before.options)


def _check_first_time(outcomes: DataFrame) -> None:
    """Refuse a stream that begins with a number of days, or the like."""
    row = outcomes.agg(F.min("time")).first()
    time = None if row is None else row[0]
    if time is not None and (like := date_like(time)):
        raise ValueError(Refusal("bad_time", like).reason)


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


def _learn_labels(engines: Engines, rows: list[Row]) -> None:
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
        learn(engines[key], [(row["score"], bytes(row["payload"])) for row in predictions], labels)


def _by_sketches(engine: Recalibrator) -> bool:
    """Whether engines learn sketches, and their maps answer."""
    return calls_of(engine).engine.why_unsketched is None


def _by_maps(
    maps: dict[str | None, Map], first: Map
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what answers predictions by the map of each key, or by the first, of version 0."""

    def answered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            for key in table["key"].unique().to_pylist():
                rows = table.filter(pc.is_in(table["key"], pa.array([key], pa.string())))
                found = maps.get(key, first)
                columns = {name: rows[name] for name in ("id", "score", "key", "domain", "time")}
                columns["probability"] = pa.array(found.predict_many(rows["score"]))
                columns["version"] = pa.array([found.version] * rows.num_rows, pa.int64())
                ordered = pa.table(columns).select([column.split()[0] for column in _ANSWERS.split(", ")])
                yield from ordered.to_batches()

    return answered


def _answers(outcomes: DataFrame, options: EngineOptions) -> DataFrame:
    """Return the answers of the buckets: of many classes, arrays of scores and probabilities."""
    answer, count = F.col("answer"), len(options.classes)
    numbers = [answer[0].alias("score"), answer[1].alias("probability")]
    if count:
        starts = {"scores": 1, "probabilities": 1 + count}
        numbers = [F.slice(answer, start, count).alias(name) for name, start in starts.items()]
    version = F.element_at(answer, -1).cast("long").alias("version")
    predictions = outcomes.where(F.col("kind") == PREDICTION)
    return predictions.select("id", *numbers, version, "key", "domain", "time")


def _rejects(outcomes: DataFrame) -> DataFrame:
    code, reason = F.col("key").alias("code"), F.col("payload").cast("string").alias("reason")
    return outcomes.where(F.col("kind") == REJECT).select("id", "time", code, reason)
