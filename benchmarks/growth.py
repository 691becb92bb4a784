"""What grows with the stream? Memory, the store, and the cost of an event, by events and by keys.

    python -m benchmarks.growth [--parts engine run keys] [--events 5000000] [--keys 100 1000 10000 100000]

Engine: bytes of a state, and all that `tracemalloc` sees of an engine; processor time of the next events
after 10⁵ and after 10⁷ labels. Run: files through a store, a fifth of the predictions labelled. By the first
tenth of the events as many predictions wait for their labels as ever will. Memory is resident, between
micro-batches. Keys: an engine a key, Zipf traffic or even, with a store; each run is a process of its own.
With 64 MiB for engines most sleep: what such a run leaves in its store has to be equal to the byte.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, product
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.measuring import options, publish, resident, seconds, spread
from streamcal import Recalibrator
from streamcal.engine.config import Mode
from streamcal.join.config import JoinConfig
from streamcal.run.config import KeysConfig, RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.runner import Inputs, Runner
from streamcal.testing import NormalPair

ROWS: Final = 10  # of the table of a run
LABELLED: Final = 0.2
TTL: Final = 0.04  # seconds that a prediction waits, for each event; one prediction a second
DELAY: Final = 0.1  # mean time from a prediction to its label, in times to live
TIGHT: Final = "64MiB"
COLLECTED: Final = 50_000  # new objects at which a command looks for garbage
START: Final = 1_700_000_000

Table = tuple[tuple[str, ...], Iterator[Sequence[str]]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--events", type=int, default=5_000_000, help="of a run; keys get a tenth")
    parser.add_argument("--keys", type=int, nargs="+", default=[10**power for power in range(2, 6)])
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.run:  # a process of its own
        print(json.dumps(run_keys(Path(asked.run[0]), asked.run[1])))
        return
    if asked.quick:
        asked.events, asked.keys = 200_000, [500]
    for part in asked.parts:
        header, rows = PARTS[part](asked)
        publish(part, header, rows, write=asked.write)


# An engine


def engines(asked: Any) -> Table:
    """Return a row for each mode: its size, and the cost of an event by how many came before."""
    few, many = (10**4, 10**5) if asked.quick else (10**5, 10**7)

    def rows() -> Iterator[Sequence[str]]:
        for mode in ("source", "target", "auto"):
            domain = "source" if mode == "source" else "target"
            states = {n: learned(mode, domain, n) for n in (few, many)}
            sizes = [f"{len(state) / 1024:,.0f}" for state in states.values()]
            soon, late = (cost(state, domain) for state in states.values())
            ratios = [b / a for a, b in zip(soon, late, strict=True)]
            figures = memory(mode, domain, few), spread(soon), spread(late), spread(ratios)
            yield [mode, *sizes, *figures]

    names = [f"{n:,}" for n in (few, many)]
    sizes = [f"state after {n}, KiB" for n in names]
    costs = [f"µs a label after {n}" for n in names]
    return ("mode", *sizes, f"in memory after {names[0]}, KiB", *costs, "ratio"), rows()


def learned(mode: Mode, domain: Any, n: int) -> bytes:
    """Return the state of an engine that has learned n labels."""
    engine, rng = Recalibrator(mode=mode), np.random.default_rng(1)
    for _ in range(n // 10**4):
        engine.learn_many(*NormalPair(0.5).sample(10**4, rng), domain)
    return engine.to_bytes()


def memory(mode: Mode, domain: Any, n: int) -> str:
    """Return the KiB that `tracemalloc` sees of such an engine after it has answered."""
    state = learned(mode, domain, n)
    tracemalloc.start()
    engine = Recalibrator.from_bytes(state)
    engine.predict_many(np.linspace(0.0, 1.0, 1_000))
    found = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return f"{found / 1024:,.0f}"


def cost(state: bytes, domain: Any, n: int = 20_000) -> list[float]:
    """Return the microseconds of each further label, one at a time."""
    scores, labels = NormalPair(0.5).sample(n, np.random.default_rng(2))
    pairs = list(zip(scores.tolist(), labels.tolist(), strict=True))
    engine = [Recalibrator.from_bytes(state)]

    def restore() -> None:
        engine[0] = Recalibrator.from_bytes(state)

    def learn() -> None:
        learn_one = engine[0].learn_one
        for score, label in pairs:
            learn_one(score, label, domain)

    (taken,) = seconds(learn, repeats=5, before=restore)
    return [1e6 * each / n for each in taken]


# A run with a store


def write_events(
    folder: Path, predictions: int, delay: float, keys: int = 1, *, even: bool = False
) -> list[Path]:
    """Write predictions, and labels of some of them after delays of this mean; return both files."""
    rng, late = random.Random(1), list[tuple[float, str, int]]()  # noqa: S311  # a seeded stream
    shares = list(accumulate(1.0 if even else 1 / rank for rank in range(1, keys + 1)))
    chosen = rng.choices(range(keys), cum_weights=shares, k=predictions)
    paths = [folder / "predictions.jsonl", folder / "labels.jsonl"]
    with paths[0].open("w") as events, paths[1].open("w") as labels:
        for i, key in enumerate(chosen):
            score, moment, id_ = round(rng.random() ** 3, 6), START + i, f"{i:08d}-{rng.getrandbits(32):08x}"
            named = f',"key":"key-{key}"' if keys > 1 else ""
            events.write(f'{{"id":"{id_}","score":{score},"time":{moment}{named}}}\n')
            if rng.random() < LABELLED:
                late.append((moment + rng.expovariate(1 / delay), id_, int(rng.random() < score)))
        for moment, id_, label in sorted(late):
            labels.write(f'{{"id":"{id_}","label":{label},"time":{moment:.0f}}}\n')
    return paths


def used(store: Path) -> int:
    """Return the bytes of a store's pages that are in use, as of its last commit."""
    db = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    db.close()
    return int((pages - free) * size)


def run(asked: Any) -> Table:
    """Return a row for each tenth of the events."""

    def rows() -> Iterator[Sequence[str]]:
        found: list[list[float]] = []
        with tempfile.TemporaryDirectory() as name:
            folder, ttl = Path(name), TTL * asked.events
            inputs = write_events(folder, asked.events * 5 // 6, DELAY * ttl)
            connectors, path = Connectors(), folder / "run.db"
            store = connectors.store(str(path))
            sources = [connectors.source(str(each)) for each in inputs]
            outputs = Outputs(connectors.sink(str(folder / "out.jsonl")))
            pipeline = Pipeline(RunConfig(join=JoinConfig(label_ttl=ttl)))

            def after(_: Outcome, __: float) -> None:
                events = pipeline.tally.events
                if events - (found[-1][0] if found else 0.0) >= asked.events / ROWS:
                    waiting = pipeline.join.pending
                    found.append([events, time.process_time(), resident(), waiting, used(path)])

            start = time.process_time()
            Runner(pipeline, Inputs([], sources), outputs, store, clock=time.monotonic, after=after).run()
            store.close()
        before, then = 0.0, start
        for events, at, mebibytes, waiting, size in found:
            each = 1e6 * (at - then) / (events - before)
            before, then = events, at
            yield [
                f"{events:,.0f}",
                f"{each:.1f}",
                f"{mebibytes:,.0f}",
                f"{waiting:,.0f}",
                f"{size / 2**20:,.0f}",
            ]

    return ("events", "µs an event", "memory, MiB", "waiting", "store, MiB"), rows()


# Keys


def run_keys(folder: Path, memory: str) -> dict[str, Any]:
    """Run once, everything new; return what it took."""
    gc.set_threshold(COLLECTED)
    connectors, path = Connectors(), folder / f"{memory}.db"
    store = connectors.store(str(path))
    sources = [connectors.source(str(folder / f"{name}.jsonl")) for name in ("predictions", "labels")]
    outputs = Outputs(connectors.sink(str(folder / f"{memory}.jsonl")))
    pipeline = Pipeline(RunConfig(keys=KeysConfig.model_validate({"memory": memory})))
    most = 0.0

    def after(_: Outcome, __: float) -> None:
        nonlocal most
        most = max(most, resident())

    busy = time.process_time()
    Runner(pipeline, Inputs([], sources), outputs, store, clock=time.monotonic, after=after).run()
    busy = time.process_time() - busy
    states = dict(store.load().engines)
    digest = hashlib.sha256()
    for key, state in states.items():
        digest.update(f"{key} {len(state)} ".encode() + state)
    store.close()
    events, sizes = pipeline.tally.events, sorted(map(len, states.values()))
    return {
        "keys": len(states), "events": events, "µs": 1e6 * busy / events, "memory": most,
        "store": path.stat().st_size / 2**20, "engine": sizes[len(sizes) // 2], "digest": digest.hexdigest(),
    }  # fmt: skip


def keys(asked: Any) -> Table:
    """Return a row for each number of keys and traffic; up to 10,000 keys, also with little memory."""

    def rows() -> Iterator[Sequence[str]]:
        for keys, even in product(asked.keys, (True, False)):
            digests = set()
            with tempfile.TemporaryDirectory() as name:
                write_events(Path(name), asked.events // 30, asked.events / 2500, keys, even=even)
                for memory in ("2GiB", TIGHT) if keys <= 10_000 else ("2GiB",):
                    command = [sys.executable, "-m", "benchmarks.growth", "--run", name, memory]
                    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
                    found = json.loads(done.stdout)
                    digests.add(found["digest"])
                    figures = (found[each] for each in ("µs", "memory", "store", "engine"))
                    row = ["even" if even else "Zipf", memory, f"{found['keys']:,}", f"{found['events']:,}"]
                    yield [*row, *(f"{each:,.0f}" for each in figures)]
            if len(digests) > 1:
                raise ArithmeticError("the engines of the runs differ")

    header = ("traffic", "memory of engines", "keys", "events", "µs an event", "memory, MiB", "store, MiB")
    return (*header, "bytes of an engine, median"), rows()


PARTS: Final[dict[str, Callable[[Any], Table]]] = {"engine": engines, "run": run, "keys": keys}


if __name__ == "__main__":
    main()
