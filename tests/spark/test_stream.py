"""streamcal.spark.recalibrate_stream: what is joined and learned is what one process joins and learns."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from streamcal import Recalibrator
from streamcal.engine.config import EngineOptions, RecalibratorConfig
from streamcal.join.config import JoinConfig
from streamcal.sketch.score_sketch import ScoreSketch
from tests.inside import labels_of

OPTIONS: dict[str, Any] = {"mode": "composite", "buckets": 3}


def add_hostile(folder: Path, events: pa.Table) -> tuple[pa.Table, dict[str | None, str]]:
    """Add a file of a prediction that came before, and of what is no event.

    Return all events, and why the others are refused, by id.
    """
    last = events["time"].to_numpy().max()
    given = events.filter(pc.is_valid(events["score"]))
    again = given.slice(len(given) - 1)
    columns = ("id", "time", "score", "label", "key", "domain")
    bad = {
        "b1": (last, 1.5, None, None, "target"),
        "b2": (last, None, 2.0, None, None),
        "b3": (last * 1000.0, 0.5, None, None, "target"),
        "b4": (last, None, None, None, None),
        "b5": (last, 0.5, None, None, "Target"),
        "b6": (4.1e9, 0.5, None, None, "target"),  # the year 2099
        None: (last, 0.5, None, None, "target"),
    }
    rows = [dict(zip(columns, (id_, *row), strict=True)) for id_, row in bad.items()]
    hostile = pa.concat_tables([again, pa.Table.from_pylist(rows, again.schema)])
    pq.write_table(hostile, folder / "hostile.parquet")
    said = ["a score must", "a label must", "a time must be seconds", "needs a score", "Target"]
    said += ["2099-12-03 16:53:20 UTC) is more than 30 days (max_jump) past", "needs an id"]
    return pa.concat_tables([events, again]), dict(zip(bad, said, strict=True))


def test_a_stream_joins_and_learns_what_one_process_does(spark: Any, tmp_path: Path) -> None:
    from streamcal.spark import Batch, read_state, recalibrate_stream
    from tests.spark.streams import TTL, one_process, run_to_the_end, write_stream

    folder, checkpoint = tmp_path / "events", str(tmp_path / "checkpoint")
    folder.mkdir()
    events, refused = add_hostile(folder, write_stream(folder, 4_000, files=2))
    stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    written: list[dict[str, object]] = []
    rejects: list[tuple[str | None, str]] = []
    maps: dict[object, object] = {}
    failing = {1}  # the micro-batch whose first attempt fails after it was written

    def write(batch: Batch) -> None:
        rows = batch.answers.toArrow().to_pylist()
        rejected = [(row["id"], row["reason"]) for row in batch.rejects.toArrow().to_pylist()]
        maps.update({(key, each.version): each for key, each in batch.maps.items()})
        if batch.number in failing:
            failing.clear()
            raise OSError("the disk is full")
        written.extend(rows)
        rejects.extend(rejected)

    files = stream.option("maxFilesPerTrigger", 1).parquet(str(folder))
    options: dict[str, Any] = {"join": JoinConfig(label_ttl=TTL), "trigger": {"availableNow": True}}
    run_to_the_end(
        lambda: recalibrate_stream(files, write, checkpoint, **options, **OPTIONS), "the disk is full"
    )
    assert not failing
    state = read_state(spark, checkpoint)
    join, sketches = one_process(events)
    assert msgspec.to_builtins(state.counts) == msgspec.to_builtins(join.counts)
    assert min(msgspec.structs.astuple(join.counts)[:8]) > 0  # all but unmatched labels are there
    for (key, domain), sketch in sketches.items():
        assert labels_of(state.engines[key], domain).to_bytes() == sketch.to_bytes()
    # Each prediction is answered once, by the map that it names.
    predictions = {row["id"]: row for row in events.to_pylist() if row["score"] is not None}
    assert sorted(str(row["id"]) for row in written) == sorted(predictions)
    assert len({row["version"] for row in written}) > 2
    for row in written:
        found = maps.get((row["key"], row["version"]))
        wanted = row["score"] if found is None else found.predict_many(np.array([row["score"]]))[0]
        assert row["probability"] == wanted
    for id_, reason in refused.items():
        (found,) = [told for each, told in rejects if each == id_]
        assert reason in found
    counts = join.counts
    assert len(rejects) == counts.late + counts.duplicate + counts.unmatched + len(refused)

    # What goes on from this checkpoint has to be the same stream.
    for other, said in (
        ({"buckets": 4}, "was begun with other options: buckets (3, now 4)"),
        ({"delta": 0.05}, "was begun with other options: delta (0.1, now 0.05)"),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            recalibrate_stream(stream.parquet(str(folder)), write, checkpoint, **(OPTIONS | other))


def test_a_time_without_a_zone_is_utc_whatever_the_session_is_in(spark: Any) -> None:
    from streamcal.spark.stream import _prepared

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(
            "select 'a' as id, 0.5 as score, t.time from values"
            # The second is an hour that New York's clocks leave out.
            " (timestamp_ntz'2023-11-14 22:13:20.25'), (timestamp_ntz'2024-03-10 02:30:00') as t(time)"
        )
        times = _prepared(frame, EngineOptions(RecalibratorConfig()), 1, 0.0).toArrow()["time"].to_pylist()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert times == [1_700_000_000.25, 1_710_037_800.0]


# examples/spark/flights.py, on two days of each month


EXAMPLES = Path(__file__).parents[2] / "examples"
DAYS = ("01", "15")


def copied(name: str, folder: Path) -> list[dict[str, Any]]:
    """Copy the events of these days, of ids such as ``0501-US1219-EWR``, and return them."""
    with gzip.open(EXAMPLES / "flights" / f"{name}.jsonl.gz", "rt") as lines:
        kept = [line for line in lines if line[9:11] in DAYS]
    with gzip.open(folder / f"{name}.jsonl.gz", "wt") as out:
        out.writelines(kept)
    return [json.loads(line) for line in kept]


def test_the_example_fits_and_applies_a_map(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, predictions, labels = (copied(name, tmp_path) for name in ("source", "predictions", "labels"))
    spec = importlib.util.spec_from_file_location("flights_on_spark", EXAMPLES / "spark" / "flights.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.fit_and_apply(spark, tmp_path)
    printed = capsys.readouterr().out
    figures = dict(line.strip().split("  ") for line in printed.splitlines()[3:])

    scores = {row["id"]: row["score"] for row in predictions}
    known = [row for row in labels if row["time"] < example.JUNE and row["id"] in scores]
    engine = Recalibrator(mode="composite")
    for rows, domain in ((source, "source"), (known, "target")):
        sketch = ScoreSketch()
        sketch.add([row.get("score", scores.get(row["id"])) for row in rows], [row["label"] for row in rows])
        engine.learn_sketch(sketch, domain)
    assert repr(engine.map) in printed
    told = {row["id"] for row in labels}
    later = [row for row in predictions if row["time"] >= example.JUNE and row["id"] in told]
    assert figures["n"] == f"{len(later):.5g}"
    assert float(figures["Brier of probability"]) < float(figures["Brier of score"])
