"""``python -m tests.spark.rates``: what applying a map and fitting one take on Spark, a row.

The first query only draws the scores, as all of them do. Processor time is that of both cores
together.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamcal.spark import learn, recalibrated
from streamcal.sql import query
from tests.spark.maps import linear_map, step_map
from tests.spark.session import local_session

TICK = os.sysconf("SC_CLK_TCK")


def processor_time() -> float:
    """Return the seconds of this process and of all below it that run."""
    parents: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            after = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(status.parent.name)
        parents.setdefault(int(after[1]), []).append(pid)
        used[pid] = sum(map(int, after[11:15]))  # its own, and of children that have ended
    total, left = 0, [os.getpid()]
    while left:
        each = left.pop()
        total += used.get(each, 0)
        left += parents.get(each, [])
    return total / TICK


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    rows = parser.parse_args().rows
    spark = local_session(spark__driver__extraJavaOptions="-XX:+UseSerialGC", spark__driver__memory="2g")
    frame = spark.range(0, rows, 1, 2).select(F.rand(7).alias("score"))

    def cost(name: str, column: Column | str = "", text: str = "") -> None:
        for _ in range(2):  # the first run compiles
            began, used = time.monotonic(), processor_time()
            if text:
                frame.createOrReplaceTempView("predictions")
                spark.sql(text).write.format("noop").mode("overwrite").save()
            else:
                frame.select(column).write.format("noop").mode("overwrite").save()
        report(name, processor_time() - used, time.monotonic() - began)

    def report(name: str, used: float, wall: float) -> None:
        print(
            f"{name:>34}: {used / rows * 1e9:6.0f} ns of processor a row, {rows / wall / 1e6:5.2f} M rows/s"
        )

    step, line = step_map(254, (0.3, 2.0)), linear_map(40, (0.3, 2.0))
    cost("scores only", F.col("score").alias("probability"))
    cost("steps, 254 bins", recalibrated("score", step))
    cost("lines, 40 knots", recalibrated("score", line))
    cost("steps, 254 bins, as SQL", text=query(step, "spark"))
    labelled = frame.withColumn("label", (F.rand(8) < F.col("score")).cast("int"))
    for _ in range(2):
        began, used = time.monotonic(), processor_time()
        learn(labelled, mode="source")
    report("learn", processor_time() - used, time.monotonic() - began)
    spark.stop()


if __name__ == "__main__":
    main()
