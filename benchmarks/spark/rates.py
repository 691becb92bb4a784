"""``python -m benchmarks.spark.rates``: what applying a map, and fitting one, take on Spark, a row.

Each job stands beside one that reads the same rows from the same Parquet files and does nothing with them.
They take turns. Processor time is that of all cores, JVM and Python apart; of the repeats the least counts,
because other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from benchmarks.spark.processes import used
from streamcal.events import PredictionEvent
from streamcal.join.join import Join, JoinConfig
from streamcal.spark import learn, recalibrated
from streamcal.sql import query
from tests.spark.maps import linear_map, step_map
from tests.spark.session import local_session

WEIGHTS = (0.3, 2.0)


def pass_over(frame: DataFrame) -> None:
    """Compute all columns of all rows, and write them nowhere."""
    frame.write.format("noop").mode("overwrite").save()


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count rows: what any job costs whose rows go to Python as Arrow."""
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})


def kept(entries: int = 200_000) -> tuple[float, float]:
    """Return what a prediction that waits takes of a bucket's state: bytes, and seconds a micro-batch."""
    join = Join(JoinConfig(max_pending=entries))
    for number in range(entries):
        join.move_to(1.7e9 + number)
        id_ = f"r{number:08d}-{number * 2654435761 % 2**32:08x}"
        join.hold(PredictionEvent(id_, (number + 0.5) / entries, 1.7e9 + number), 0.5, 0)
    least = float("inf")
    for _ in range(5):
        before = time.process_time()
        state = join.to_bytes()
        Join.from_bytes(state)
        least = min(least, time.process_time() - before)
    return len(state) / entries, least / entries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    spark = local_session(spark__driver__extraJavaOptions="-XX:+UseSerialGC", spark__driver__memory="2g")
    step, line = step_map(254, WEIGHTS), linear_map(40, WEIGHTS)
    with tempfile.TemporaryDirectory() as name:
        drawn = spark.range(0, given.rows, 1, 2).select(
            F.rand(7).alias("score"), F.concat(F.lit("model "), F.col("id") % 3).alias("model")
        )
        labelled = drawn.withColumn("label", (F.rand(8) < F.col("score")).cast("int"))
        labelled.write.parquet(f"{name}/rows")
        rows = spark.read.parquet(f"{name}/rows")
        scores, pairs = rows.select("score"), rows.select("score", "label")
        scores.createOrReplaceTempView("predictions")

        def applied(column: Column) -> Callable[[], None]:
            return lambda: pass_over(scores.select(column))

        jobs: dict[str, Callable[[], object]] = {
            "scores, read only": lambda: pass_over(scores),
            "steps, 254 bins": applied(recalibrated("score", step)),
            "lines, 40 knots": applied(recalibrated("score", line)),
            "steps, 254 bins, as SQL": lambda: pass_over(spark.sql(query(step, "spark"))),
            "scores and labels, read only": lambda: pass_over(pairs),
            "to Python as Arrow, and counted": lambda: pairs.mapInArrow(counted, "n long").collect(),
            "learn": lambda: learn(rows, mode="source"),
            "with keys, to Python, and counted": lambda: rows.mapInArrow(counted, "n long").collect(),
            "learn, by=": lambda: learn(rows, mode="source", by="model"),
        }
        least: dict[str, Counter[str]] = {}
        for repeat in range(given.repeats + 1):  # the first compiles
            for job, run in jobs.items():
                before = used(os.getpid())
                run()
                now = used(os.getpid())
                now.subtract(before)
                if repeat:
                    least[job] = min(least.get(job, now), now, key=Counter.total)
        print(f"{given.rows:,} rows; ns of processor a row")
        for job, took in least.items():
            jvm, python = (took[f"driver {part}"] / given.rows * 1e9 for part in ("JVM", "Python"))
            rate = 2e3 / (jvm + python)
            print(f"{job:>34}: JVM {jvm:6.0f}, Python {python:6.0f}; two idle cores {rate:6.2f} M rows/s")
    size, seconds = kept()
    print(f"a prediction that waits: {size:.0f} bytes, {seconds * 1e6:.2f} µs of processor a micro-batch")
    spark.stop()


if __name__ == "__main__":
    main()
