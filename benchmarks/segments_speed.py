"""Segments in a run: processor time and memory beside the same run without, and a run that is killed.

``python benchmarks/segments_speed.py --events 10000000 --segments 1000000`` writes that many lines: half are
predictions, each of a shop; half their labels, which come a mean of 20,000 predictions later. Every shop
comes at least once, if there are as many predictions; the others come by log-normal sizes. Then
`streamcal run` takes them, each time in a process of its own, in turn:

* plain: the field is not read;
* kept: the field is read, and goes through to the output (``[columns] keep``);
* segments: it makes segments;
* segments, kept: both.

``--kills 20`` instead runs segments with a store once whole and once with so many kills, by the run's own
processor time, and compares all outputs and what the store holds.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from streamcal_connectors.sqlite.store import SqliteStore

RUNS: Final = {
    "plain": "",
    "kept": '[columns]\nkeep = ["shop"]\n',
    "segments": '[segments]\nfields = ["shop"]\n',
    "segments, kept": '[columns]\nkeep = ["shop"]\n[segments]\nfields = ["shop"]\n',
}
DELAY: Final = 20_000.0
SPREAD: Final = 1.5  # standard deviation of the logarithm of a segment's size
PART: Final = 200_000
ROWS: Final = {
    "pending": "id, since, score, probability, domain, key, time, prediction_index",
    "settled": "id, since, label",
    "early": "id, since, label, time",
}


class Took(NamedTuple):
    """What a run took."""

    seconds: float
    """On the processor, of user and system."""
    peak: float
    """Most resident memory, GiB."""


def write(folder: Path, events: int, segments: int) -> None:
    """Write predictions and labels."""
    rng, n = np.random.default_rng(1), events // 2
    sizes = np.cumsum(rng.lognormal(0.0, SPREAD, segments))
    shops = np.searchsorted(sizes, sizes[-1] * rng.random(n))
    shops[rng.permutation(n)[:segments]] = np.arange(min(segments, n))
    scores = np.round(rng.random(n) ** 3, 6)
    offsets = rng.normal(0.0, 0.5, segments)
    odds = scores / (1.0 - np.minimum(scores, 0.999999)) * np.exp(offsets[shops] - 0.3)
    labels = (rng.random(n) < odds / (1.0 + odds)).astype(np.int64)
    times = 1.7e9 + np.arange(n)
    known = times + np.ceil(rng.exponential(DELAY, n))
    order = np.argsort(known, kind="stable")
    with (folder / "predictions.jsonl").open("w") as file:
        for part in _parts(n):
            columns = (part, scores[part], shops[part], times[part])
            file.writelines(
                f'{{"id":"e{i:08d}","score":{score},"shop":"s{shop:07d}","time":{time:.0f}}}\n'
                for i, score, shop, time in zip(*(each.tolist() for each in columns), strict=True)
            )
    with (folder / "labels.jsonl").open("w") as file:
        for part in _parts(n):
            columns = (order[part], labels[order[part]], known[order[part]])
            file.writelines(
                f'{{"id":"e{i:08d}","label":{label},"time":{time:.0f}}}\n'
                for i, label, time in zip(*(each.tolist() for each in columns), strict=True)
            )


def _parts(n: int) -> Iterable[np.ndarray]:
    return (np.arange(begin, min(begin + PART, n)) for begin in range(0, n, PART))


def run(folder: Path, name: str, out: Path, *, stored: bool, life: float = 0.0) -> Took | None:
    """Run in a process of its own, killed after a ``life`` of processor seconds; None: it was killed."""
    out.mkdir(exist_ok=True)
    config = out / "run.toml"
    config.write_text(RUNS[name])
    paths = {
        "--config": config,
        "--events": folder / "predictions.jsonl",
        "--labels": folder / "labels.jsonl",
    }
    paths |= {f"--{kind}": out / f"{kind}.jsonl" for kind in ("output", "rejects", "maps")}
    if stored:
        paths["--store"] = out / "state.db"
    arguments = [str(each) for pair in paths.items() for each in pair]
    # The timer outlives exec, and its signal ends the process with no handler and no clean-up.
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "streamcal", "run", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=partial(signal.setitimer, signal.ITIMER_PROF, life),
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},  # or each would compile the package for itself
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if life and process.returncode == -signal.SIGPROF:
        return None
    if process.returncode:
        raise SystemExit(f"the run of {name} ended with {process.returncode}")
    return Took(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20)


def compare(folder: Path, events: int, repeats: int, runs: list[str]) -> None:
    """Print a table: what each run took, without a store and with one."""
    print("| run | store | processor s | events/s | of plain | of kept | peak GiB |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for stored in (False, True):
        took: dict[str, list[Took]] = {name: [] for name in runs}
        for repeat in range(repeats):
            for name in reversed(runs) if repeat % 2 else runs:
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    each = run(folder, name, Path(out), stored=stored)
                assert each is not None
                took[name].append(each)
        for name, all_ in took.items():
            seconds = statistics.median(each.seconds for each in all_)
            ratios = [
                statistics.median(
                    base.seconds / each.seconds for base, each in zip(took[other], all_, strict=True)
                )
                if other in runs
                else math.nan
                for other in ("plain", "kept")
            ]
            print(
                f"| {name} | {'yes' if stored else 'no'} | {seconds:.1f} | {events / seconds:,.0f}"
                f" | {ratios[0]:.2f} | {ratios[1]:.2f} | {max(each.peak for each in all_):.2f} |",
                flush=True,
            )


def digests(out: Path) -> dict[str, str]:
    """Return a hash of each output, and of each part of the store."""
    found = {path.name: [path.read_bytes()] for path in sorted(out.glob("*.jsonl"))}
    with sqlite3.connect(out / "state.db") as db:
        # How rows are numbered depends on how the stream was cut into batches; their order does not.
        queries = {name: f"SELECT {columns} FROM {name} ORDER BY seq" for name, columns in ROWS.items()}  # noqa: S608
        queries |= {name: f"SELECT * FROM {name} ORDER BY 1, 2" for name in ("positions", "maps")}  # noqa: S608
        for name, query in queries.items():
            found[f"table {name}"] = [repr(row).encode() for row in db.execute(query)]
    db.close()
    store = SqliteStore(out / "state.db", read_only=True)
    checkpoint = store.load()
    found["run"] = [checkpoint.run]
    found["engines"] = [repr(sorted(checkpoint.engines.items(), key=repr)).encode()]
    rows = sorted(checkpoint.segments.items(), key=repr)
    print(f"{len(rows):,} corrections, {max((len(row) for _, row in rows), default=0)} bytes each")
    found["segments"] = [repr(rows).encode()]
    store.close()
    return {name: hashlib.sha256(b"".join(parts)).hexdigest() for name, parts in found.items()}


def kill(folder: Path, kills: int) -> bool:
    """Run whole, and with kills; print and return whether all is the same."""
    whole = run(folder, "segments", folder / "whole", stored=True)
    assert whole is not None
    print(f"whole: {whole.seconds:.0f} s, {whole.peak:.2f} GiB", flush=True)
    rng, killed, ended = np.random.default_rng(7), 0, None
    while ended is None:
        life = rng.uniform(0.0, 2.0 * whole.seconds / kills) if killed < kills else 0.0
        ended = run(folder, "segments", folder / "killed", stored=True, life=life)
        killed += ended is None
        size = (folder / "killed" / "output.jsonl").stat().st_size if killed else 0
        print(f"kill {killed} after {life:.1f} s: {size:,} bytes of output", flush=True)
    peak = max(whole.peak, ended.peak)
    expected, found = digests(folder / "whole"), digests(folder / "killed")
    for name, each in expected.items():
        print(f"{name}: {'same' if found[name] == each else 'DIFFERS'} {each[:16]}")
    same = found == expected
    print(f"killed {killed} times, {'all the same' if same else 'NOT THE SAME'}, {peak:.2f} GiB", flush=True)
    return same and killed == kills


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000, help="lines of both inputs; default 10^6")
    parser.add_argument("--segments", type=int, default=100_000, help="default 10^5")
    parser.add_argument("--repeats", type=int, default=3, help="times that each run is made; default 3")
    parser.add_argument("--kills", type=int, default=0, help="kill a run so many times, and time nothing")
    parser.add_argument("--runs", nargs="+", choices=[*RUNS], default=[*RUNS], help="default: all four")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.events, options.segments)
        print(f"{options.events:,} events, {options.segments:,} segments", flush=True)
        if not options.kills:
            compare(folder, options.events, options.repeats, options.runs)
        elif not kill(folder, options.kills):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
