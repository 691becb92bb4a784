"""Five million events, a fifth of them labelled, through files and the store: memory and store over time.

Usage: python benchmarks/soak.py [EVENTS]. Predictions wait for their label for a time to live of 200,000
seconds, at one a second: so what is pending, and with it the store, stops growing early on.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from pipeline import write_events

from streamcal.config import JoinConfig
from streamcal.pipeline import Outcome, Pipeline
from streamcal.ports import Connectors
from streamcal.runner import Inputs, Outputs, Runner

TTL = 200_000.0


def resident() -> float:
    """Return this process's resident memory, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs = write_events(folder, events * 5 // 6)
        connectors = Connectors()
        path = folder / "state.db"
        store = connectors.store(str(path))
        sources = [connectors.source(str(each)) for each in inputs]
        pipeline = Pipeline(join=JoinConfig(label_ttl=TTL), tables=store.tables)
        start, shown = time.perf_counter(), -1
        first = 0.0
        print(f"{'events':>12} {'seconds':>8} {'RSS MiB':>8} {'pending':>10} {'store MB':>9}")

        def after(_: Outcome, __: float) -> None:
            nonlocal shown, first
            done = pipeline.tally.events * 20 // events
            if done > shown:
                shown = done
                size = sum(each.stat().st_size for each in folder.glob("state.db*")) / 1e6
                if done == 2:
                    first = resident()
                print(
                    f"{pipeline.tally.events:12,} {time.perf_counter() - start:8.1f} {resident():8.1f}"
                    f" {pipeline.pending:10,} {size:9.1f}",
                    flush=True,
                )

        outputs = Outputs(connectors.sink(str(folder / "out.jsonl")))
        Runner(pipeline, Inputs([], sources), outputs, store, clock=time.monotonic, after=after).run()
        print(f"resident memory after the first 10 %: {first:.1f} MiB, at the end {resident():.1f} MiB")


if __name__ == "__main__":
    main()
