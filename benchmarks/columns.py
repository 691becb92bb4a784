"""Files in columns: events a second of processor time, and the most memory, by case.

Usage: python benchmarks/columns.py [PREDICTIONS] [CASE ...]. Every case runs in a process of its own. To
compare with another commit, run it with that commit's ``streamcal`` first on PYTHONPATH.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streamcal import RecalibratorConfig
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Outputs, Runner

CASES = {
    "composite, no labels": ("composite", 0.0, False),
    "composite": ("composite", 0.2, False),
    "auto": ("auto", 0.2, False),
    "auto, store": ("auto", 0.2, True),
    "source, store": ("source", 0.2, True),
}
SOURCE = 20_000
DELAY = 20_000  # predictions from a prediction to its label, on average


def write_events(folder: Path, predictions: int, labelled: float) -> None:
    """Write a source of calibration, predictions, and labels of some of them, in the order of time."""
    rng = random.Random(1)  # noqa: S311  # a seeded stream
    with (folder / "source.jsonl").open("w") as source:
        for _ in range(SOURCE):
            score = round(rng.random() ** 2, 6)
            source.write(f'{{"score":{score},"label":{int(rng.random() < score**1.5)}}}\n')
    due: dict[int, list[str]] = {}
    with (folder / "events.jsonl").open("w") as events, (folder / "labels.jsonl").open("w") as labels:
        for i in range(predictions):
            score, id_ = round(rng.random() ** 3, 6), f"r{i:08d}-{rng.getrandbits(32):08x}"
            events.write(f'{{"id":"{id_}","score":{score},"time":{1_700_000_000 + i}}}\n')
            if rng.random() < labelled:
                at = i + 1 + int(rng.expovariate(1 / DELAY))
                due.setdefault(at, []).append(f'{{"id":"{id_}","label":{int(rng.random() < score)},"time":')
            for line in due.pop(i, ()):
                labels.write(f"{line}{1_700_000_000 + i}}}\n")


def run(folder: Path, mode: str, *, stores: bool) -> tuple[int, float]:
    """Run once; return the events behind the first micro-batch, and their seconds of processor time."""
    connectors = Connectors()
    store = connectors.store(str(folder / "run.db")) if stores else None
    source = connectors.source(str(folder / "source.jsonl"), SourceOptions(domain="source"))
    sources = [connectors.source(str(folder / f"{each}.jsonl")) for each in ("events", "labels")]
    outputs = Outputs(connectors.sink(str(folder / "out.jsonl")))
    tables = store.tables if store else None
    pipeline = Pipeline(RecalibratorConfig(mode=mode), tables=tables, tells_maps=stores)  # type: ignore[arg-type]
    begun: list[float] = []

    def after(_: Outcome, __: float) -> None:
        if not begun and pipeline.counts.predictions:  # the first micro-batch of the deployment
            begun.extend((time.process_time(), pipeline.tally.events))

    Runner(pipeline, Inputs([source], sources), outputs, store, clock=time.monotonic, after=after).run()
    taken = time.process_time() - begun[0]
    for sink in outputs.sinks:
        sink.close()
    if store:
        store.close()
    return pipeline.tally.events - int(begun[1]), taken


def measure(predictions: int, case: str) -> None:
    """Write the events of a case, run over them, and print what that took."""
    mode, labelled, stores = CASES[case]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_events(folder, predictions, labelled)
        events, seconds = run(folder, mode, stores=stores)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{case:24} {events:>12,} events {seconds / events * 1e6:7.2f} µs each {events / seconds:>10,.0f}/s"
        f" {peak:6,.0f} MiB",
        flush=True,
    )


def main() -> None:
    predictions = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    cases = sys.argv[2:]
    if len(cases) == 1:
        measure(predictions, cases[0])
        return
    for case in cases or CASES:
        subprocess.run([sys.executable, __file__, str(predictions), case], check=True)  # noqa: S603


if __name__ == "__main__":
    main()
