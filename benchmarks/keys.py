"""10,000 keys with Zipf traffic through files and the store: memory, and events a second.

Usage: python benchmarks/keys.py [PREDICTIONS [KEYS]]. Each number of engines in memory runs in a process of
its own; what they leave behind has to be byte-equal.
"""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.recalibrator import Recalibrator
from streamcal.run.config import KeysConfig
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import RowKind
from streamcal.run.runner import Inputs, Outputs, Runner

ACTIVE = (100, 1_000, 10_000)
LABELLED = 0.2
DELAY = 20_000.0


def write_events(folder: Path, predictions: int, keys: int, seed: int = 1) -> None:
    """Write predictions of keys whose traffic goes as 1 / rank, a fifth of them with a label later."""
    rng = random.Random(seed)  # noqa: S311  # a seeded stream
    shares = list(accumulate(1 / rank for rank in range(1, keys + 1)))
    late: list[tuple[float, str, int]] = []
    chosen = rng.choices(range(keys), cum_weights=shares, k=predictions)
    with (folder / "predictions.jsonl").open("w") as events, (folder / "labels.jsonl").open("w") as labels:

        def write_labels(until: float) -> None:
            while late and late[0][0] <= until:
                moment, id_, label = heappop(late)
                labels.write(f'{{"id":"{id_}","label":{label},"time":{moment:.0f}}}\n')

        for i, key in enumerate(chosen):
            score, moment, id_ = round(rng.random() ** 3, 6), 1.7e9 + i, f"{rng.getrandbits(64):016x}"
            events.write(f'{{"id":"{id_}","score":{score},"time":{moment:.0f},"key":"key-{key}"}}\n')
            if rng.random() < LABELLED:
                heappush(late, (moment + rng.expovariate(1 / DELAY), id_, int(rng.random() < score)))
            write_labels(moment)
        write_labels(float("inf"))


def resident() -> float:
    """Return this process's resident memory, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def run(folder: Path, active: int) -> None:
    """Run once, everything new; print what it took as JSON."""
    connectors = Connectors()
    store = connectors.store(str(folder / f"{active}.db"))
    sources = [connectors.source(str(folder / f"{name}.jsonl")) for name in ("predictions", "labels")]
    kinds: tuple[RowKind, ...] = ("answers", "rejects", "maps")
    sinks = [connectors.sink(str(folder / f"{active}-{kind}.jsonl"), kind) for kind in kinds]
    pipeline = Pipeline(tables=store.tables, keys=KeysConfig(active=active))
    before, most, engines = resident(), 0.0, 0

    def after(_: Outcome, __: float) -> None:
        nonlocal most, engines
        most, engines = max(most, resident()), max(engines, pipeline.engines.in_memory)

    start, busy = time.perf_counter(), time.process_time()
    Runner(pipeline, Inputs([], sources), Outputs(*sinks), store, clock=time.monotonic, after=after).run()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    states = dict(store.load().engines)
    digest = hashlib.sha256()
    for key, state in states.items():
        digest.update(f"{key} {len(state)} ".encode() + state)
    for sink in sinks:
        sink.close()
    store.close()
    print(
        json.dumps(
            {
                "events": pipeline.tally.events,
                "seconds": seconds,
                "busy": busy,
                "keys": len(states),
                "engines": engines,
                "resident": most,
                "engines_resident": most - before,
                "store": (folder / f"{active}.db").stat().st_size / 1e6,
                "bytes": sorted(map(len, states.values())),
                "digest": digest.hexdigest(),
            }
        )
    )


def main() -> None:
    predictions = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    keys = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_events(folder, predictions, keys)
        digests = set()
        print(
            f"{'active':>7} {'events':>9} {'keys':>7} {'events/s':>9} {'CPU s':>6} {'in memory':>9}"
            f" {'RSS MiB':>8} {'store MB':>9}  bytes of an engine: median, 99 %, most"
        )
        for active in ACTIVE:
            command = [sys.executable, __file__, "run", str(folder), str(active)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
            found = json.loads(done.stdout)
            sizes = found["bytes"]
            digests.add(found["digest"])
            print(
                f"{active:7,} {found['events']:9,} {found['keys']:7,}"
                f" {found['events'] / found['seconds']:9,.0f} {found['busy']:6.1f} {found['engines']:9,}"
                f" {found['resident']:8.0f} {found['store']:9.1f} "
                f" {sizes[len(sizes) // 2]:,}, {sizes[len(sizes) * 99 // 100]:,}, {sizes[-1]:,}",
                flush=True,
            )
    print("engines byte-equal" if len(digests) == 1 else "ENGINES DIFFER")
    config = RecalibratorConfig()
    for what, scores, labels in (("new", 0, 0), ("10 scores", 10, 0), ("100 scores, 20 labels", 100, 20)):
        engine, rng = Recalibrator(config), random.Random(1)  # noqa: S311
        for i in range(scores):
            engine.observe_one(rng.random())
            if i < labels:
                engine.learn_one(rng.random(), rng.randrange(2), "target")
        print(f"an engine, {what}: {len(engine.to_bytes()):,} bytes")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "run":
        run(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
