"""streamcal.spark.recalibrate_stream: what is joined and learned is what one process joins and learns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from streamcal.join.join import JoinConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CELLS = 256


def test_a_stream_joins_and_learns_what_one_process_does(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    from streamcal.spark import Batch, read_state, recalibrate_stream
    from tests.spark.streams import TTL, one_process, write_stream

    folder, checkpoint = tmp_path / "events", str(tmp_path / "checkpoint")
    folder.mkdir()
    events = write_stream(folder, 4_000, files=3)
    stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    written: list[dict[str, object]] = []
    rejects: list[str] = []
    maps: dict[object, object] = {}
    failing = {1}  # the micro-batch whose first attempt fails after it was written

    def write(batch: Batch) -> None:
        rows = batch.answers.toArrow().to_pylist()
        rejected = batch.rejects.toArrow()["reason"].to_pylist()
        maps.update({(key, each.version): each for key, each in batch.maps.items()})
        if batch.number in failing:
            failing.clear()
            raise OSError("the disk is full")
        written.extend(rows)
        rejects.extend(rejected)

    ends = []
    while not ends or ends[-1]:
        query = recalibrate_stream(
            stream.option("maxFilesPerTrigger", 1).parquet(str(folder)),
            write,
            checkpoint,
            mode="composite",
            max_cells=CELLS,
            join=JoinConfig(label_ttl=TTL),
            buckets=3,
            trigger={"availableNow": True},
        )
        try:
            query.awaitTermination()
            ends.append("")
        except StreamingQueryException as error:
            ends.append(str(error))
            # Spark gives the Python process that plans a micro-batch ten seconds to start, on any machine.
            assert "the disk is full" in ends[-1] or "failed to connect back" in ends[-1]
    assert not failing
    state = read_state(spark, checkpoint)
    join, sketches = one_process(events, CELLS)
    assert msgspec.to_builtins(state.counts) == msgspec.to_builtins(join.counts)
    assert min(msgspec.structs.astuple(join.counts)[:8]) > 0  # all but unmatched labels are there
    for (key, domain), sketch in sketches.items():
        engine = state.engines[key]._engine
        log = (engine._target if domain == "target" else engine._source).log
        assert log.sketch.to_bytes() == sketch.to_bytes()
    # Each prediction is answered once, by the map that it names.
    predictions = {row["id"]: row for row in events.to_pylist() if row["score"] is not None}
    assert sorted(str(row["id"]) for row in written) == sorted(predictions)
    assert len({row["version"] for row in written}) > 2
    for row in written:
        found = maps.get((row["key"], row["version"]))
        wanted = row["score"] if found is None else found.predict_many(np.array([row["score"]]))[0]
        assert row["probability"] == wanted
    assert len(rejects) == join.counts.late + join.counts.duplicate + join.counts.unmatched


def test_mode_auto_is_refused_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    from streamcal.spark import recalibrate_stream

    with pytest.raises(ValueError, match="mode='auto' learns one label after the other"):
        recalibrate_stream(spark.range(1), print, str(tmp_path))
