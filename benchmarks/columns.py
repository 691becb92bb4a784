"""Files in columns: events a second of processor time, and the most memory, by case; polars beside them.

Usage: python benchmarks/columns.py [PREDICTIONS] [CASE ...]. Every case runs in a process of its own, and so
does polars, right behind it, which does what it can of the same: read, join the labels, apply a map, write.
To compare with another commit, run it with that commit's ``streamcal`` first on PYTHONPATH.
"""

from __future__ import annotations

import inspect
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import Row

from streamcal import RecalibratorConfig
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Outputs, Runner


class Case(NamedTuple):
    """What is run."""

    mode: str
    labelled: float
    """Which share of the predictions gets a label."""
    stores: bool = False
    form: str = "jsonl"
    at_least: float | None = None
    """How many times as fast as polars it is to be; with a store, which polars has not, events a second."""


CASES = {
    "composite, no labels": Case("composite", 0.0),
    "composite, no labels, Parquet": Case("composite", 0.0, form="parquet"),
    "composite": Case("composite", 0.2, at_least=0.7),
    "composite, Parquet": Case("composite", 0.2, form="parquet", at_least=0.5),
    "auto": Case("auto", 0.2, at_least=0.45),
    "composite, store": Case("composite", 0.2, stores=True, at_least=300_000),
    "source, store": Case("source", 0.2, stores=True, at_least=300_000),
    "auto, store": Case("auto", 0.2, stores=True, at_least=300_000),
}
SOURCE = 20_000
DELAY = 20_000  # predictions from a prediction to its label, on average
BLOCK = 100_000
POLARS = 10_000_000  # predictions that it can hold, with all that comes of them
START = 1_700_000_000

Columns = dict[str, Any]


def make_source() -> Columns:
    """Return labelled events for calibration."""
    rng = np.random.default_rng(1)
    scores = np.round(rng.random(SOURCE) ** 2, 6)
    return {"score": scores, "label": (rng.random(SOURCE) < scores**1.5).astype(int)}


def make_events(predictions: int, labelled: float) -> Iterator[tuple[Columns, Columns]]:
    """Yield predictions and labels in the order of time, a block at a time."""
    rng = np.random.default_rng(2)
    late: list[tuple[int, str, int]] = []
    for start in range(0, predictions, BLOCK):
        count = min(BLOCK, predictions - start)
        numbers = np.arange(start, start + count)
        scores = np.round(rng.random(count) ** 3, 6)
        salts = rng.integers(0, 1 << 32, count)
        ids = [f"r{number:08d}-{salt:08x}" for number, salt in zip(numbers, salts.tolist(), strict=True)]
        chosen = np.flatnonzero(rng.random(count) < labelled)
        due = (numbers[chosen] + 1 + rng.exponential(DELAY, len(chosen))).astype(int).tolist()
        labels = (rng.random(len(chosen)) < scores[chosen]).astype(int).tolist()
        late += zip(due, [ids[index] for index in chosen], labels, strict=True)
        late.sort()
        end = next((index for index, (at, *_) in enumerate(late) if at >= start + count), len(late))
        now, late = late[:end], late[end:]
        yield (
            {"id": ids, "score": scores, "time": START + numbers},
            {"id": [id_ for _, id_, _ in now], "label": [label for *_, label in now]}
            | {"time": np.array([START + at for at, *_ in now], int)},
        )


def write_jsonl(path: Path) -> Callable[[Columns], None]:
    """Return what appends rows to JSON lines."""
    file = path.open("w")

    def write(columns: Columns) -> None:
        form = "{" + ",".join(f'"{name}":' + ('"%s"' if name == "id" else "%s") for name in columns) + "}\n"
        lists = [each if isinstance(each, list) else each.tolist() for each in columns.values()]
        file.writelines(form % row for row in zip(*lists, strict=True))
        file.flush()

    return write


def write_parquet(path: Path) -> Callable[[Columns], None]:
    """Return what appends rows to Parquet; the file is whole once this is let go."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    writers: list[Any] = []

    def write(columns: Columns) -> None:
        table = pa.table(columns)
        if not writers:
            writers.append(pq.ParquetWriter(path, table.schema))
        writers[0].write_table(table)

    return write


def write_events(folder: Path, predictions: int, case: Case) -> None:
    """Write a source of calibration, predictions, and labels of some of them, in the order of time."""
    writer = write_parquet if case.form == "parquet" else write_jsonl
    writer(folder / f"source.{case.form}")(make_source())
    events, labels = (writer(folder / f"{name}.{case.form}") for name in ("events", "labels"))
    for some, also in make_events(predictions, case.labelled):
        events(some)
        if case.labelled:
            labels(also)


def run(folder: Path, case: Case) -> tuple[int, float]:
    """Run once; return the events behind the first micro-batch, and their seconds of processor time."""
    connectors, form = Connectors(), case.form
    store = connectors.store(str(folder / "run.db")) if case.stores else None
    source = connectors.source(str(folder / f"source.{form}"), SourceOptions(domain="source"))
    names = ["events", "labels"] if case.labelled else ["events"]
    sources = [connectors.source(str(folder / f"{name}.{form}")) for name in names]
    outputs = Outputs(connectors.sink(str(folder / f"out.{form}")))
    # A commit from before this option wrote a row of every version.
    told = (
        {"publishes_maps": case.stores} if "publishes_maps" in inspect.signature(Pipeline).parameters else {}
    )
    tables: Any = store.tables if store else None
    pipeline = Pipeline(RecalibratorConfig(mode=case.mode), tables=tables, **told)  # type: ignore[arg-type]
    begun: list[float] = []

    def after(_: Outcome, __: float) -> None:
        if not begun and pipeline.join.counts.predictions:  # the first micro-batch of the deployment
            begun.extend((time.process_time(), pipeline.tally.events))

    Runner(pipeline, Inputs([source], sources), outputs, store, clock=time.monotonic, after=after).run()
    for sink in outputs.sinks:
        sink.close()
    taken = time.process_time() - begun[0]
    if store:
        store.close()
    return pipeline.tally.events - int(begun[1]), taken


def run_polars(folder: Path, case: Case) -> tuple[int, float]:
    """Let polars read, join, apply a map of a hundred bins, and write; return events and seconds."""
    import polars as pl

    parquet = case.form == "parquet"
    read: Any = pl.read_parquet if parquet else pl.read_ndjson
    values, edges = np.linspace(0.0, 1.0, 101), np.arange(1, 101) / 101
    begun = time.process_time()
    events = read(folder / f"events.{case.form}")
    count = len(events)
    if case.labelled:
        labels = read(folder / f"labels.{case.form}")
        count += len(labels)
        events = events.join(labels, on="id", how="left")
    answers = events.select(
        "id",
        "score",
        pl.Series("probability", values[np.searchsorted(edges, events["score"].to_numpy())]),
        map_version=pl.lit(1),
        weights=pl.lit([1.0, 1.0]),
        key=pl.lit(None, pl.String),
        time=pl.col("time").cast(pl.Float64),
    )
    if parquet:
        answers.write_parquet(folder / "polars.parquet", compression="snappy")
    else:
        answers.write_ndjson(folder / "polars.jsonl")
    return count, time.process_time() - begun


class Taken(NamedTuple):
    """What a case took."""

    events: int
    seconds: float
    """Of processor time."""
    peak: float
    """The most memory, in MiB."""


def measure(folder: Path, name: str, *, by_polars: bool = False) -> Taken:
    """Run a case over the events of a folder, in a process of its own."""
    command = [sys.executable, __file__, "--run", str(folder), name, *["--polars"] * by_polars]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return Taken(*json.loads(done.stdout))


def rows(predictions: int = 1_000_000) -> Iterator[Row]:
    """Yield events a second from file to file, beside polars."""
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            write_events(Path(folder), predictions, case)
            ours = measure(Path(folder), name)
            what, rate = f"files, {name}", ours.events / ours.seconds
            if case.stores:
                met = None if case.at_least is None else rate >= case.at_least
                yield Row(
                    "files", what, ours.events, "events/s", [rate],
                    budget=f"≥ {case.at_least:,.0f}/s", met=met,
                )  # fmt: skip
                continue
            theirs = measure(Path(folder), name, by_polars=True)
            other = theirs.events / theirs.seconds
            budget, met = "", None
            if case.at_least is not None:
                budget, met = f"≥ {case.at_least:g} ×", rate / other >= case.at_least
            yield Row(
                "files", what, ours.events, "events/s", [rate], "polars", [other],
                "× as fast", [rate / other], budget, met,
            )  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--run"]:  # a process of its own
        work = run_polars if "--polars" in sys.argv else run
        events, seconds = work(Path(sys.argv[2]), CASES[sys.argv[3]])
        print(json.dumps([events, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    predictions = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for name in sys.argv[2:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            write_events(Path(folder), predictions, CASES[name])
            beside = not CASES[name].stores and predictions <= POLARS
            for by_polars in (False, True)[: 1 + beside]:
                events, seconds, peak = measure(Path(folder), name, by_polars=by_polars)
                print(
                    f"{'  polars' if by_polars else name:30} {events:>12,} events"
                    f" {seconds / events * 1e6:7.2f} µs each {events / seconds:>10,.0f}/s {peak:6,.0f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
