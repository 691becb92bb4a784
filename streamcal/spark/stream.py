"""A stream on Spark: buckets join, the driver forms the next map version, the next micro-batch applies it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Unpack

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import TimestampNTZType, TimestampType

from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions
from streamcal.engine.recalibrator import Recalibrator
from streamcal.join.join import JoinConfig, JoinCounts
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.spark.buckets import COUNTS, LABELS, OUTCOMES, PREDICTION, REJECT, SCORES, Buckets

__all__ = ["Batch", "StreamState", "read_state", "recalibrate_stream"]

_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_EVENT: Final = {
    "id": "string",
    "time": "double",
    "score": "double",
    "label": "double",
    "key": "string",
    "domain": "string",
}
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
    """What a stream has learned by the end of a micro-batch."""

    batch: int
    """Its number."""
    engines: dict[str | None, Recalibrator]
    """The engine of each key."""
    counts: JoinCounts
    """How many events met which end."""


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
        to begin with, by key, as `learn` returns them; they are copied. Other keys begin anew.
    join
        options of the join. ``max_pending`` is divided among the buckets; ``max_jump`` does not apply,
        because Spark's watermark believes every time.
    buckets
        how many joins the ids are hashed to. It must stay the same for a checkpoint.
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
        if an engine's state depends on the order of the labels, as in mode ``auto``; if engines have other
        options than are given; or if there are fewer than 1 buckets.
    """
    chosen = config or RecalibratorConfig(**options)
    if chosen.why_ordered is not None:
        raise ValueError(f"labels come from buckets in no order: {chosen.why_ordered}")
    for key, engine in (engines or {}).items():
        if engine.config != chosen:
            raise ValueError(f"the engine of key {key!r} has the options {engine.config!r}, not {chosen!r}")
    if buckets < 1:
        raise ValueError(f"buckets must be at least 1, got {buckets}")
    given = join or JoinConfig()
    share = given.model_copy(update={"max_pending": -(-given.max_pending // buckets)})
    spark = events.sparkSession
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    outcomes = (
        _prepared(events, buckets)
        .groupBy("bucket")
        .transformWithStateInPandas(
            statefulProcessor=Buckets(share, chosen.max_cells),
            outputStructType=OUTCOMES,
            outputMode="append",
            timeMode="eventTime",
        )
    )
    begin = {key: engine.to_bytes() for key, engine in (engines or {}).items()}
    learner = _Learner(spark, chosen, f"{checkpoint.rstrip('/')}/streamcal", begin, write)
    writer = outcomes.writeStream.foreachBatch(learner).option("checkpointLocation", checkpoint)
    return (writer.trigger(**trigger) if trigger else writer).start()


def read_state(spark: SparkSession, checkpoint: str) -> StreamState:
    """Return what a stream has learned by the end of its latest micro-batch.

    Raises
    ------
    ValueError
        if there is no state of a stream.
    """
    found = [_read(spark, f"{checkpoint.rstrip('/')}/streamcal", slot) for slot in range(_SLOTS)]
    states = [state for state in found if state is not None]
    if not states:
        raise ValueError(f"there is no state of a stream in {checkpoint}")
    latest = max(states, key=lambda state: state.batch)
    return StreamState(
        latest.batch,
        {key: Recalibrator.from_bytes(state) for key, state in latest.engines.items()},
        latest.counts,
    )


def _prepared(events: DataFrame, buckets: int) -> DataFrame:
    """Return the events with all columns, their bucket, and a watermark that follows the latest time."""
    clock = "clock"
    timed = isinstance(events.schema["time"].dataType, TimestampType | TimestampNTZType)
    time = F.col("time").cast("timestamp") if timed else F.timestamp_seconds(F.col("time"))
    # Without a delay, and on a column of its own: the join, not Spark, says what is late.
    followed = events.withColumn(clock, time).withWatermark(clock, "0 seconds")
    columns = [
        (F.col(clock) if name == "time" else F.col(name) if name in events.columns else F.lit(None))
        .cast(kind)
        .alias(name)
        for name, kind in _EVENT.items()
    ]
    bucket = F.pmod(F.xxhash64(F.col("id").cast("string")), F.lit(buckets)).cast("int")
    return followed.select(bucket.alias("bucket"), *columns)


class _Kept(NamedTuple):
    """A `StreamState`, engines as bytes."""

    batch: int
    engines: dict[str | None, bytes]
    counts: JoinCounts


_SLOTS: Final = 2  # states on disk: that of the micro-batch before, and that which is being written


class _Learner:
    """Takes each micro-batch on the driver; its state is a function of the state before and the rows."""

    def __init__(
        self,
        spark: SparkSession,
        config: RecalibratorConfig,
        folder: str,
        begin: dict[str | None, bytes],
        write: Callable[[Batch], None],
    ) -> None:
        self._spark, self._config, self._folder, self._write = spark, config, folder, write
        self._begin = begin
        self._kept: _Kept | None = None

    def __call__(self, outcomes: DataFrame, number: int) -> None:
        """Answer by the maps of the state before, and learn."""
        before = self._before(number)
        outcomes = outcomes.persist()
        try:
            engines = {key: Recalibrator.from_bytes(state) for key, state in before.engines.items()}
            self._write(_batch(number, outcomes, {key: each.map for key, each in engines.items()}))
            learned = outcomes.where(F.col("kind").isin(SCORES, LABELS, COUNTS))
            kept = self._learn(before, number, engines, learned.collect())
        finally:
            outcomes.unpersist()
        _save(self._spark, self._folder, kept)
        self._kept = kept

    def _learn(
        self, before: _Kept, number: int, engines: dict[str | None, Recalibrator], rows: list[Row]
    ) -> _Kept:
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
            engine = engines.setdefault(key, Recalibrator(self._config))
            if domain is None:
                engine.observe_sketch(sketch)
            else:
                engine.learn_sketch(sketch, "source" if domain == "source" else "target")
        states = {key: engine.to_bytes() for key, engine in engines.items()}
        return _Kept(number, states, JoinCounts(*totals))

    def _before(self, number: int) -> _Kept:
        """Return the state before a micro-batch."""
        if number == 0:
            return _Kept(-1, self._begin, JoinCounts())
        kept = self._kept
        if kept is None or kept.batch != number - 1:
            kept = _read(self._spark, self._folder, (number - 1) % _SLOTS)
        if kept is None or kept.batch != number - 1:
            raise RuntimeError(
                f"the engines of micro-batch {number - 1} are not in {self._folder}: Spark's checkpoint and"
                " they belong together; restore both, or begin with a new checkpoint"
            )
        return kept


def _batch(number: int, outcomes: DataFrame, maps: dict[str | None, RecalibrationMap]) -> Batch:
    def answered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        identity = RecalibrationMap(version=0)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            keys = table["key"].to_pylist()
            for key in dict.fromkeys(keys):
                rows = table if len(maps) < 2 and key in maps else table.take(_where(keys, key))
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


def _where(keys: list[str | None], key: str | None) -> list[int]:
    return [index for index, each in enumerate(keys) if each == key]


def _save(spark: SparkSession, folder: str, kept: _Kept) -> None:
    """Write a state into its slot; the state before it stays in the other."""
    counts = msgspec.json.encode(kept.counts)
    rows = [(kept.batch, True, None, counts), *((kept.batch, False, *each) for each in kept.engines.items())]
    frame = spark.createDataFrame(
        [(batch, counted, key, bytearray(state)) for batch, counted, key, state in rows],
        "batch long, counted boolean, key string, state binary",
    )
    frame.coalesce(1).write.mode("overwrite").parquet(f"{folder}/{kept.batch % _SLOTS}")


def _read(spark: SparkSession, folder: str, slot: int) -> _Kept | None:
    """Return the state in a slot; None if there is none, or none that was written to its end."""
    from pyspark.errors import AnalysisException

    try:
        rows = spark.read.parquet(f"{folder}/{slot}").collect()
    except AnalysisException:
        return None
    counted = [row for row in rows if row["counted"]]
    if len(counted) != 1:
        return None
    counts = msgspec.json.decode(bytes(counted[0]["state"]), type=JoinCounts)
    engines = {row["key"]: bytes(row["state"]) for row in rows if not row["counted"]}
    return _Kept(counted[0]["batch"], engines, counts)
