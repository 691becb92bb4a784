"""A stream on a cluster of this machine, with executors and drivers killed: what is joined stays the same.

``python -m benchmarks.spark.cluster --events 2000000 --workers 2 --kills 5`` writes a stream, runs it on
``local-cluster``, kills so many executors and so many drivers on the way, and compares counts and sketches
with those of one process. It prints events a second, and what an event took of the processor.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.spark.processes import executors, used
from streamcal.join.config import JoinConfig
from tests.inside import labels_of
from tests.spark.session import local_session
from tests.spark.streams import TTL, one_process, write_stream

MEMORY = 2048  # MiB an executor
BUCKETS = 16


def drive(folder: Path, checkpoint: Path, workers: int, files: int) -> None:
    """Run the stream until it has read everything: the driver, in a process of its own."""
    from streamcal.spark import Batch, recalibrate_stream

    spark = local_session(
        f"local-cluster[{workers},1,{MEMORY}]",
        spark__executor__memory=f"{MEMORY}m",
        spark__sql__shuffle__partitions=str(max(2, workers)),
        spark__driver__extraJavaOptions="-XX:+UseSerialGC",
        spark__executor__extraJavaOptions="-XX:+UseSerialGC",
        spark__task__maxFailures="20",
        spark__executorEnv__PYTHONPATH=os.environ.get("PYTHONPATH", ""),
    )
    stream = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    marks: list[
        tuple[float, Counter[str]]
    ] = []  # when each micro-batch was written, and what was used by then

    def write(batch: Batch) -> None:
        batch.answers.write.mode("overwrite").parquet(str(checkpoint) + f"-answers/{batch.number}")
        marks.append((time.monotonic(), used(os.getpid())))
        print("batch", batch.number, flush=True)

    query = recalibrate_stream(
        stream.option("maxFilesPerTrigger", files).parquet(str(folder)),
        write,
        str(checkpoint),
        mode="composite",
        join=JoinConfig(label_ttl=TTL, max_pending=100_000_000),
        buckets=BUCKETS,
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    rows = [progress["numInputRows"] for progress in query.recentProgress]
    if len(marks) > 2 and len(rows) == len(marks):
        (began, before), (ended, after) = marks[0], marks[-1]
        events, wall = sum(rows[1:]), ended - began
        print(f"after the first micro-batch of {rows[0]:,}: {events / wall:,.0f} events/s;", end=" ")
        print("µs of processor an event:", end=" ")
        cost = {name: (after[name] - before[name]) / events * 1e6 for name in sorted(after)}
        print(", ".join(f"{name} {each:.1f}" for name, each in cost.items()), end="")
        total = sum(cost.values())
        print(f", in all {total:.1f}: two idle cores would take {2e6 / total:,.0f} events/s", flush=True)
    spark.stop()


def run(folder: Path, checkpoint: Path, workers: int, files: int, kills: int, seed: int) -> int:
    """Run the driver until it ends by itself, killing on the way; return the kills that are left."""
    random = np.random.default_rng(seed)
    plan = ["executor", "driver"] * kills
    command = [sys.executable, "-m", "benchmarks.spark.cluster", "--drive", str(folder), str(checkpoint)]
    command += ["--workers", str(workers), "--files", str(files)]
    while True:
        log = (checkpoint.parent / "driver.log").open("ab")
        driver = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        assert driver.stdout is not None
        took, last = 3.0, None  # seconds of a micro-batch, of which kills come at any moment
        for line in driver.stdout:
            if not line.startswith(b"batch"):
                print(line.decode().strip(), flush=True)
                continue
            now = time.monotonic()
            took, last = took if last is None else now - last, now
            if not plan:
                continue
            time.sleep(random.uniform(0.0, took))
            found = executors(driver.pid)
            if plan[0] == "driver":
                os.killpg(driver.pid, signal.SIGKILL)  # Python, the driver's JVM, and its executors
            elif found:
                os.kill(int(random.choice(found)), signal.SIGKILL)
            else:
                continue
            print("killed", plan.pop(0), "after", line.decode().strip(), flush=True)
        if driver.wait() == 0:
            return len(plan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--files", type=int, default=4, help="files a micro-batch, of 64")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--drive", nargs=2, type=Path)
    given = parser.parse_args()
    if given.drive:
        drive(*given.drive, given.workers, given.files)
        return
    with tempfile.TemporaryDirectory() as name:
        folder, checkpoint = Path(name) / "events", Path(name) / "checkpoint"
        folder.mkdir()
        # A prediction brings 0.88 labels.
        events = write_stream(folder, int(given.events / 1.884), files=64)
        print(f"{len(events):,} events, {given.workers} workers", flush=True)
        began = time.monotonic()
        left = run(folder, checkpoint, given.workers, given.files, given.kills, given.seed)
        print(f"{time.monotonic() - began:.0f} s with the start of Spark", flush=True)
        join, sketches = one_process(events)
        from streamcal.spark import read_state

        spark = local_session("local[1]")
        state = read_state(spark, str(checkpoint))
        answers = spark.read.parquet(str(checkpoint) + "-answers/*")
        n, ids = answers.count(), answers.select("id").distinct().count()
        same = [msgspec.to_builtins(state.counts) == msgspec.to_builtins(join.counts)]
        for (key, domain), sketch in sketches.items():
            same.append(labels_of(state.engines[key], domain).to_bytes() == sketch.to_bytes())
        print("Spark      ", state.counts)
        print("one process", join.counts)
        print(f"counts equal: {same[0]}; sketches equal: {sum(same[1:])} of {len(same) - 1}")
        print(f"{n:,} answers of {ids:,} ids")
        spark.stop()
        if left:
            print(f"the stream ended before {left} of the kills: give more events, or fewer files")
        sys.exit(bool(left) or not (all(same) and n == ids == join.counts.predictions))


if __name__ == "__main__":
    main()
