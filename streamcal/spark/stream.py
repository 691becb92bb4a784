"""A stream on Spark: buckets join, the driver forms the next map version, the next micro-batch applies it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Unpack

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions, unlike
from streamcal.engine.recalibrator import Recalibrator
from streamcal.join.join_c import JoinConfig
from streamcal.join.outcomes import JoinCounts
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.segments.recalibrator import SegmentedRecalibrator
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.spark.buckets import COUNTS, LABELS, OUTCOMES, PREDICTION, REJECT, SCORES, Buckets
from streamcal.spark.checkpoint import Kept, latest, of_micro_batch, resumed, save
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
_ANSWERS: Final = (
    "id string, score double, probability double, version long, key string, domain string, time double"
)


class Batch(NamedTuple):
    """A micro-batch, to be written."""

    number: int
    """From 0. After a failure Spark may run the last one again, with the same number and the same rows."""
    answers: DataFrame
    """A row for each prediction that was taken: id, score, probability, version, key, domain, time."""
    rejects: DataFrame
    """A row for each event that changed nothing: id, time, reason."""
    maps: dict[str | None, RecalibrationMap]
    """The map of each key that answered; keys that are not here are answered with their score, version 0."""


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
        a directory that driver and executors reach: Spark's checkpoint, and the engines.
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
        of the engines, as those of `Recalibrator`; the mode must be given.

    Returns
    -------
    The query.

    Raises
    ------
    ValueError
        if there are segments; if an engine's state depends on the order of the labels, as in mode ``auto``;
        if the join takes predictions without a label for 0, or corrects labels; if engines have other options
        than are given; if there are fewer than 1 buckets; if a column is missing, or of a type that is not
        its own; or if the checkpoint is of another query, or of a stream begun with other options.
    """
    begun = dict(engines or {})
    if "segments" in options or any(isinstance(each, SegmentedRecalibrator) for each in begun.values()):
        raise ValueError(
            "a stream on Spark has no segments: its buckets add up labels in no order, and corrections of"
            " segments learn one label after the other, judged by what was served. Use streamcal run"
        )
    chosen = config or RecalibratorConfig(**options)
    if chosen.why_ordered is not None:
        raise ValueError(f"labels come from buckets in no order: {chosen.why_ordered}")
    for key, engine in begun.items():
        if differences := unlike(engine.config, chosen):
            raise ValueError(f"the engine of key {key!r} was made with other options: {differences}")
    if buckets < 1:
        raise ValueError(f"buckets must be at least 1, got {buckets}")
    given = join or JoinConfig()
    if given.missing_labels == "negative" or given.corrections:
        raise ValueError(
            f"missing_labels={given.missing_labels!r} and corrections={given.corrections!r} of the"
            " join: on Spark, its buckets only add up labels as they are told. Use streamcal run, or"
            " missing_labels='drop' and corrections=False"
        )
    share = given.model_copy(update={"max_pending": -(-given.max_pending // buckets)})
    timed = _prepared(events, buckets, math.inf if given.max_jump is None else given.max_jump)
    spark, place = events.sparkSession, checkpoint.rstrip("/")
    kept = resumed(spark, place, chosen, buckets)
    if kept is None:
        begin = {key: engine.to_bytes() for key, engine in begun.items()}
        kept = Kept(-1, buckets, begin, JoinCounts())
        save(spark, place, kept)
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    outcomes = timed.groupBy("bucket").transformWithStateInPandas(
        statefulProcessor=Buckets(share, chosen.max_cells),
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
    engines = {key: Recalibrator.from_bytes(state) for key, state in kept.engines.items()}
    return StreamState(kept.batch, engines, kept.counts)


def _prepared(events: DataFrame, buckets: int, max_jump: float) -> DataFrame:
    """Return the events with all columns, their bucket, and a watermark that follows the latest time."""
    given = {field.name: field.dataType for field in events.schema.fields}
    for name, (_, types) in _EVENT.items():
        kind = given.get(name)
        if kind is None and (name in ("id", "time") or not {"score", "label"} & set(given)):
            wanted = name if name in ("id", "time") else "score, or a column label"
            raise ValueError(f"events need a column {wanted}; there are {', '.join(given)}: rename one")
        if kind is not None and not isinstance(kind, (*types, T.NullType)):
            named = ", ".join(each.__name__.removesuffix("Type").lower() for each in types)
            raise ValueError(
                f"the column {name} must be of a type of these: {named}; it is {kind.simpleString()}: cast it"
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
    found = {name: F.col(name) if name in given else F.lit(None) for name in _EVENT}
    bucket = F.pmod(F.xxhash64(found["id"].cast("string")), F.lit(buckets)).cast("int")
    columns = [found[name].cast(kind).alias(name) for name, (kind, _) in _EVENT.items()]
    return followed.select(bucket.alias("bucket"), *columns)


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
        outcomes = outcomes.persist()
        try:
            engines = {key: Recalibrator.from_bytes(state) for key, state in before.engines.items()}
            self.write(_batch(number, outcomes, {key: each.map for key, each in engines.items()}))
            learned = outcomes.where(F.col("kind").isin(SCORES, LABELS, COUNTS))
            kept = self._learn(before, number, engines, learned.collect())
        finally:
            outcomes.unpersist()
        save(self.spark, self.checkpoint, kept)
        self.kept = kept

    def _learn(
        self, before: Kept, number: int, engines: dict[str | None, Recalibrator], rows: list[Row]
    ) -> Kept:
        totals = msgspec.structs.astuple(before.counts)
        merged: dict[tuple[str | None, str | None], ScoreSketch] = {}
        for row in rows:
            payload = bytes(row["payload"])
            if row["kind"] == COUNTS:
                counted = msgspec.structs.astuple(msgspec.json.decode(payload, type=JoinCounts))
                totals = tuple(a + b for a, b in zip(totals, counted, strict=True))
                continue
            sketch = ScoreSketch.from_bytes(payload)
            known = merged.setdefault((row["key"], row["domain"]), sketch)  # scores have no domain
            if known is not sketch:
                known.merge(sketch)
        # The source before the target, and scores first: the order of the engine's own batches.
        order = {None: 0, "source": 1, "target": 2}
        for (key, domain), sketch in sorted(merged.items(), key=lambda item: order[item[0][1]]):
            engine = engines.setdefault(key, Recalibrator(self.config))
            if domain is None:
                engine.observe_sketch(sketch)
            else:
                engine.learn_sketch(sketch, "source" if domain == "source" else "target")
        states = {key: engine.to_bytes() for key, engine in engines.items()}
        return Kept(number, before.buckets, states, JoinCounts(*totals))


def _batch(number: int, outcomes: DataFrame, maps: dict[str | None, RecalibrationMap]) -> Batch:
    def answered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        identity = RecalibrationMap(version=0)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            for key in table["key"].unique().to_pylist():
                rows = table.filter(pc.is_in(table["key"], pa.array([key], pa.string())))
                found = maps.get(key, identity)
                columns = {name: rows[name] for name in ("id", "score", "key", "domain", "time")}
                columns["probability"] = pa.array(found.predict_many(rows["score"]))
                columns["version"] = pa.array([found.version] * rows.num_rows, pa.int64())
                ordered = pa.table(columns).select([column.split()[0] for column in _ANSWERS.split(", ")])
                yield from ordered.to_batches()

    predictions = outcomes.where(F.col("kind") == PREDICTION)
    rejects = outcomes.where(F.col("kind") == REJECT)
    reason = F.col("payload").cast("string").alias("reason")
    return Batch(
        number, predictions.mapInArrow(answered, _ANSWERS), rejects.select("id", "time", reason), maps
    )
