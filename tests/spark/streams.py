"""A stream of predictions and labels in micro-batches, and what one process makes of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamcal.engine.config import EngineOptions, RecalibratorConfig
from streamcal.engine.stepping_c import step
from streamcal.events import LabelEvent, PredictionEvent
from streamcal.join.join import Join, JoinConfig
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.spark.buckets import _Work
from streamcal.testing import NormalPair

TTL = 600.0
"""Seconds of event time; a label takes up to 150 % of it."""
KEYS = (None, "DE")


def write_stream(folder: Path, predictions: int, files: int, seed: int = 3) -> pa.Table:
    """Write predictions and labels as Parquet files in the order of time; return them all.

    One in twenty labels comes before its prediction, one in eight never, some late, some twice.
    """
    random = np.random.default_rng(seed)
    scores, labels = NormalPair(0.4).sample(predictions, random)
    times = np.sort(random.integers(0, 20 * int(TTL), predictions)) + 1_700_000_000
    delay = random.integers(1, int(1.5 * TTL), predictions)
    early = random.random(predictions) < 0.05
    comes = random.random(predictions) < 0.875
    twice = random.random(predictions) < 0.01
    ids = np.char.add("p", np.arange(predictions).astype(str))
    keys = np.array([KEYS[i] for i in random.integers(0, 2, predictions)], object)
    source = np.where(random.random(predictions) < 0.5, "source", "target")
    told = times + np.where(early, -delay // 4, delay)
    none = pa.nulls
    given = pa.table(
        {
            "id": ids,
            "time": times.astype(np.float64),
            "score": scores,
            "label": none(predictions, pa.float64()),
            "key": pa.array(keys, pa.string()),
            "domain": source,
        }
    )
    answered = np.concatenate((np.flatnonzero(comes), np.flatnonzero(comes & twice)))
    n = len(answered)
    later = np.concatenate((np.zeros(comes.sum()), np.full(n - comes.sum(), 7.0)))
    told = pa.table(
        {
            "id": ids[answered],
            "time": told[answered] + later,
            "score": none(n, pa.float64()),
            # Every other label that comes again is another than the first.
            "label": np.where((later > 0) & (answered % 2 == 0), 1 - labels[answered], labels[answered])
            * 1.0,
            "key": none(n, pa.string()),
            "domain": none(n, pa.string()),
        }
    )
    events = pa.concat_tables([given, told])
    alone = np.isnan(events["score"].to_numpy())
    order = np.lexsort((events["id"].to_numpy(zero_copy_only=False).astype(str), alone, events["time"]))
    events = events.take(order)
    write_files(folder, events, files)
    return events


def write_files(folder: Path, events: pa.Table, files: int) -> list[pa.Table]:
    """Write events as so many files; return their parts, a file each."""
    cuts = np.linspace(0, len(events), files + 1).astype(int)
    parts = [events.slice(start, end - start) for start, end in pairwise(cuts.tolist())]
    for index, part in enumerate(parts):
        path = folder / f"{index:05}.parquet"
        pq.write_table(part, path)
        os.utime(path, (1_700_000_000 + index, 1_700_000_000 + index))  # Spark reads them in this order
    return parts


def run_to_the_end(start: Callable[[], Any], failure: str) -> None:
    """Start a query until one ends that does not fail in this way.

    Spark gives the Python process that plans a micro-batch ten seconds to start, on any machine.
    """
    from pyspark.errors import StreamingQueryException

    while True:
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if failure not in str(error) and "failed to connect back" not in str(error):
                raise
        else:
            return


def one_process(events: pa.Table) -> tuple[Join, dict[Any, ScoreSketch]]:
    """Return the join of all events, and the sketches of what it joined, by key and domain."""
    join = Join(JoinConfig(label_ttl=TTL))
    work = _Work(join, EngineOptions(RecalibratorConfig()))
    for row in events.to_pylist():
        if row["score"] is None:
            event: Any = LabelEvent(row["id"], int(row["label"]), row["time"])
        else:
            event = PredictionEvent(row["id"], row["score"], row["time"], row["key"], row["domain"])
        step(event, join, lambda _: work)
    sketches = {}
    for group, (scores, labels) in work._labels.items():
        sketches[group] = ScoreSketch()
        sketches[group].add(scores, labels)
    return join, sketches
