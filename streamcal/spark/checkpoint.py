"""State that a stream keeps beside Spark's checkpoint: its engines and counts by the end of a micro-batch.

There are two places, in turns: while one is being written, the other holds what was before.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from streamcal.engine.config import EngineOptions, unlike
from streamcal.join.outcomes import JoinCounts
from streamcal.sketch.decoding import decoded, encoded

_PLACES: Final = 2


class Kept(msgspec.Struct, frozen=True):
    """State of a stream by the end of a micro-batch."""

    batch: int
    """Number of the micro-batch; −1 before the first."""
    buckets: Annotated[int, msgspec.Meta(ge=1)]
    """Number of joins that the ids are hashed to."""
    engines: dict[str | None, bytes]
    """The state of each key's engine."""
    counts: JoinCounts
    """Number of events that met each end."""
    options: EngineOptions
    """Options of the engines."""


def resumed(spark: SparkSession, checkpoint: str, options: EngineOptions, buckets: int) -> Kept | None:
    """Return what a stream goes on from; None if it is new.

    Raises
    ------
    ValueError
        if the checkpoint is not that of a stream with these options.
    """
    kept = latest(spark, checkpoint)
    if kept is None:
        if _exists(spark, f"{checkpoint}/commits"):
            raise ValueError(
                f"the checkpoint {checkpoint} is of another query, or its folder streamcal is gone: begin"
                " with a new checkpoint, or restore the folder together with the rest"
            )
        return None
    differences = "" if kept.buckets == buckets else f"buckets ({kept.buckets}, now {buckets})"
    differences = differences or unlike(kept.options, options)
    if differences:
        raise ValueError(
            f"the stream of checkpoint {checkpoint} was begun with other options: {differences}; give the"
            " same again, or a new checkpoint"
        )
    return kept


def latest(spark: SparkSession, checkpoint: str) -> Kept | None:
    """Return what was kept last; None if nothing was."""
    found = [_read(spark, checkpoint, place) for place in range(_PLACES)]
    return max((kept for kept in found if kept is not None), key=lambda kept: kept.batch, default=None)


def of_micro_batch(spark: SparkSession, checkpoint: str, number: int) -> Kept:
    """Return what was kept at the end of a micro-batch.

    Raises
    ------
    RuntimeError
        if it is not there.
    """
    kept = _read(spark, checkpoint, number % _PLACES)
    if kept is None or kept.batch != number:
        raise RuntimeError(
            f"the engines of micro-batch {number} are not in {_folder(checkpoint)}: Spark's checkpoint and"
            " they belong together; restore both, or begin with a new checkpoint"
        )
    return kept


def save(spark: SparkSession, checkpoint: str, kept: Kept) -> None:
    """Keep a state in its place; that of the micro-batch before stays in the other."""
    told = encoded(msgspec.structs.replace(kept, engines={}), json=True)
    rows = [(kept.batch, True, None, told), *((kept.batch, False, *each) for each in kept.engines.items())]
    frame = spark.createDataFrame(
        [(batch, is_told, key, bytearray(state)) for batch, is_told, key, state in rows],
        "batch long, told boolean, key string, state binary",
    )
    frame.coalesce(1).write.mode("overwrite").parquet(f"{_folder(checkpoint)}/{kept.batch % _PLACES}")


def files_of(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    """Return the files that have the state by the end of a micro-batch, as URIs."""
    return spark.read.parquet(f"{_folder(checkpoint)}/{number % _PLACES}").inputFiles()


def _folder(checkpoint: str) -> str:
    return f"{checkpoint}/streamcal"


def _read(spark: SparkSession, checkpoint: str, place: int) -> Kept | None:
    """Return the state in a place; None if there is none, or none that was written to its end."""
    try:
        rows = spark.read.parquet(f"{_folder(checkpoint)}/{place}").collect()
    except AnalysisException:
        return None
    once = [row for row in rows if row["told"]]
    if len(once) != 1:
        return None
    kept = decoded(bytes(once[0]["state"]), Kept, "a stream", json=True)
    engines = {row["key"]: bytes(row["state"]) for row in rows if not row["told"]}
    return msgspec.structs.replace(kept, engines=engines)


def _exists(spark: SparkSession, folder: str) -> bool:
    """Return whether there is any file in a folder."""
    try:
        return bool(spark.read.text(folder).head(1))
    except AnalysisException:
        return False
