"""Files → store → files: events a second, end to end, and what the time goes into.

Usage: python benchmarks/pipeline.py [PREDICTIONS]. Budget: 150,000 events/s; if it falls short,
the profile's top ten follow. The second half is shown apart, and so is a run whose engine learns nothing:
what reading, joining, storing and writing take by themselves.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import random
import sys
import tempfile
import time
from contextlib import nullcontext
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from streamcal.engine.engine import Engine
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import RowKind
from streamcal.run.runner import Inputs, Outputs, Runner

BUDGET = 150_000
LABELLED = 0.2
DELAY = 20_000.0  # mean seconds from a prediction to its label; one prediction a second


def write_events(folder: Path, predictions: int, seed: int = 1) -> tuple[Path, Path]:
    """Write predictions, a fifth of which get a label later."""
    rng = random.Random(seed)  # noqa: S311  # a seeded stream
    late: list[tuple[float, str, int]] = []
    paths = folder / "predictions.jsonl", folder / "labels.jsonl"
    with paths[0].open("w") as events, paths[1].open("w") as labels:

        def write_labels(until: float) -> None:
            while late and late[0][0] <= until:
                moment, id_, label = heappop(late)
                labels.write(f'{{"id":"{id_}","label":{label},"time":{moment:.0f}}}\n')

        for i in range(predictions):
            score, moment, id_ = round(rng.random() ** 3, 6), 1.7e9 + i, f"r{i:08d}-{rng.getrandbits(32):08x}"
            events.write(f'{{"id":"{id_}","score":{score},"time":{moment:.0f}}}\n')
            if rng.random() < LABELLED:
                heappush(late, (moment + rng.expovariate(1 / DELAY), id_, int(rng.random() < score)))
            write_labels(moment)
        write_labels(float("inf"))
    return paths


class Taken(NamedTuple):
    """What a run took."""

    seconds: float
    busy: float
    """Seconds on the processor."""
    events: int
    half: float
    """Events a second in the second half."""


def run(folder: Path, inputs: tuple[Path, Path], name: str, *, learn: bool = True) -> Taken:
    """Run once, with everything new."""
    with nullcontext() if learn else patch.object(Engine, "learn_label", lambda *_, **__: ()):
        return _run(folder, inputs, name)


def _run(folder: Path, inputs: tuple[Path, Path], name: str) -> Taken:
    connectors = Connectors()
    store = connectors.store(str(folder / f"{name}.db"))
    sources = [connectors.source(str(path)) for path in inputs]
    kinds: tuple[RowKind, ...] = ("answers", "rejects", "maps")
    outputs = Outputs(*(connectors.sink(str(folder / f"{name}-{kind}.jsonl"), kind) for kind in kinds))
    pipeline = Pipeline(tables=store.tables)
    times: list[tuple[int, float]] = []

    def after(_: Outcome, __: float) -> None:
        times.append((pipeline.tally.events, time.perf_counter()))

    start, busy = time.perf_counter(), time.process_time()
    Runner(pipeline, Inputs([], sources), outputs, store, clock=time.monotonic, after=after).run()
    for sink in outputs.sinks:
        sink.close()
    store.close()
    end, events = time.perf_counter(), pipeline.tally.events
    half, moment = next(each for each in times if each[0] >= events // 2)
    return Taken(end - start, time.process_time() - busy, events, (events - half) / (end - moment))


def main() -> None:
    predictions = int(sys.argv[1]) if len(sys.argv) > 1 else 1_500_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = write_events(folder, predictions)
        rates = []
        for index in range(4):
            learns = index < 3
            taken = run(folder, inputs, f"run{index}", learn=learns)
            rate = taken.events / taken.seconds
            rates += [rate] * learns
            print(
                f"{taken.events:,} events in {taken.seconds:.1f} s ({taken.busy:.1f} s of processor time):"
                f" {rate:,.0f} events/s, in the second half {taken.half:,.0f}"
                + (", without learning" * (not learns)),
                flush=True,
            )
        print(f"best {max(rates):,.0f} events/s; budget {BUDGET:,}")
        if max(rates) < BUDGET:
            profile = cProfile.Profile()
            profile.runcall(run, folder, inputs, "profiled")
            text = io.StringIO()
            pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(10)
            print(text.getvalue())


if __name__ == "__main__":
    main()
