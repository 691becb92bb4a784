"""Five million events, a fifth of them labelled, through files and the store: memory and store over time.

Usage: python benchmarks/soak.py [EVENTS]. Predictions, one a second, wait for their label for a time to live
of 200,000 seconds, and how they ended is known for as long again: by the first tenth of the events, as many
wait as ever will. Fewer events have a shorter time to live. At the very end only labels are left, far apart
in time: everything that is pending expires in one micro-batch.

Resident memory is that between micro-batches. Peak is the most there ever was, within one too.
"""

from __future__ import annotations

import resource
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple
from unittest.mock import patch

import pipeline as inputs_of

from streamcal.join.join_c import JoinConfig
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.runner import Inputs, Outputs, Runner

TTL: Final = 0.04  # seconds for each event
DELAY: Final = 0.1  # mean time from a prediction to its label, in times to live
ROWS: Final = 20  # of the table
FIRST: Final = 2  # of them are the first 10 %


class Stored(NamedTuple):
    """Bytes of the store."""

    pending: int
    settled: int
    maps: int
    used: int
    """In pages of the file that are in use."""
    files: int
    """On the disk, the write-ahead log with it."""


class Row(NamedTuple):
    """What there was at a moment."""

    events: int
    resident: float
    peak: float
    pending: int
    stored: Stored

    @property
    def each(self) -> float:
        """Bytes of the store for each pending prediction."""
        return self.stored.pending / max(self.pending, 1)


def resident() -> float:
    """Return this process's resident memory, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def peak() -> float:
    """Return the most of it that there was so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def stored(path: Path) -> Stored:
    """Return what a store holds, as of its last commit."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        pending, settled = (
            db.execute(f"SELECT ifnull(sum(length(rows)), 0) FROM {table}_blocks").fetchone()[0]  # noqa: S608
            for table in ("pending", "settled")
        )
        (maps,) = db.execute(
            "SELECT ifnull(sum(length(map) + ifnull(length(certificate), 0) + ifnull(length(mixture), 0)), 0)"
            " FROM maps"
        ).fetchone()
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    finally:
        db.close()
    files = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    return Stored(pending, settled, maps, (pages - free) * size, files)


def soak(folder: Path, events: int) -> list[Row]:
    """Run once, printing a row at every twentieth of the events; return the rows."""
    ttl = TTL * events
    with patch.object(inputs_of, "DELAY", DELAY * ttl):
        inputs = inputs_of.write_events(folder, events * 5 // 6)
    connectors = Connectors()
    path = folder / "state.db"
    store = connectors.store(str(path))
    sources = [connectors.source(str(each)) for each in inputs]
    outputs = Outputs(connectors.sink(str(folder / "out.jsonl")))
    pipeline = Pipeline(join=JoinConfig(label_ttl=ttl), tables=store.tables)
    rows: list[Row] = []
    start = time.perf_counter()
    print(
        "                             MiB                               MB of the store\n"
        "    events seconds resident   peak pending   pending settled  maps in use files  bytes/pending"
    )

    def note() -> None:
        row = Row(pipeline.tally.events, resident(), peak(), pipeline.join.pending, stored(path))
        rows.append(row)
        sizes = row.stored
        print(
            f"{row.events:10,} {time.perf_counter() - start:7.1f} {row.resident:8.1f} {row.peak:6.1f}"
            f" {row.pending:7,}   {sizes.pending / 1e6:7.1f} {sizes.settled / 1e6:7.1f}"
            f" {sizes.maps / 1e6:5.1f} {sizes.used / 1e6:6.1f} {sizes.files / 1e6:5.1f}"
            f"  {row.each:13.1f}",
            flush=True,
        )

    def after(_: Outcome, __: float) -> None:
        if pipeline.tally.events * ROWS >= events * (len(rows) + 1):
            note()

    Runner(pipeline, Inputs([], sources), outputs, store, clock=time.monotonic, after=after).run()
    if rows[-1].events < pipeline.tally.events:
        note()
    store.close()
    return rows


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as name:
        rows = soak(Path(name), events)
    first, last = rows[FIRST - 1], rows[-1]
    most = max(rows[FIRST - 1 :], key=lambda row: row.resident)
    print(
        f"resident memory after the first 10 %: {first.resident:.1f} MiB; the most after that:"
        f" {most.resident:.1f} MiB, {most.resident / first.resident - 1:+.1%}; at the end:"
        f" {last.resident:.1f} MiB, {last.resident / first.resident - 1:+.1%}"
    )
    print(
        f"peak by the first 10 %: {first.peak:.1f} MiB; at the end, all that was pending having expired in"
        f" one micro-batch: {last.peak:.1f} MiB, {last.peak / first.peak - 1:+.1%}"
    )
    some = sorted((row.pending, row.each) for row in rows if row.pending)
    each = [size for _, size in some]
    print(
        f"bytes of the store for each pending prediction: {min(each):.1f} to {max(each):.1f}, with"
        f" {some[0][0]:,} to {some[-1][0]:,} pending"
    )


if __name__ == "__main__":
    main()
