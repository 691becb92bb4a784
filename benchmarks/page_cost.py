"""What the live page costs a run: processor time of `streamcal run` with and without ``--page`` and a viewer.

The flights of the demo, as fast as they go and one after the other: a run without a page, one with a page and
viewers that read all it sends, and so on. What other programs do at the same time moves processor time less
than time on the clock, and moves both of a pair.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

FLIGHTS = Path(__file__).parents[1] / "examples" / "flights"


def view(url: str, received: multiprocessing.Queue[int]) -> None:
    """Read what the page sends until the run ends."""
    records = 0
    try:
        with urllib.request.urlopen(f"{url}page/events") as events:  # noqa: S310
            for line in events:
                records += line.startswith(b"data:")
    except OSError:
        pass  # the run has ended
    received.put(records)


def run(viewers: int | None) -> tuple[float, int]:
    """Return the processor time of a run in seconds, and how many records its viewers received."""
    paged = [] if viewers is None else ["--page", "0"]
    files = {"source": "source", "events": "predictions", "labels": "labels"}
    options = [part for name, file in files.items() for part in (f"--{name}", FLIGHTS / f"{file}.jsonl.gz")]
    received: multiprocessing.Queue[int] = multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as folder:
        code = "import streamcal.page.server; from streamcal.cli.app import main; main()"  # once, in both
        output = ["--output", Path(folder) / "o.jsonl"]
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", code, "run", *options, *output, *paged],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        watching = []
        if viewers is not None:
            url = process.stderr.readline().split()[-1]
            watching = [multiprocessing.Process(target=view, args=(url, received)) for _ in range(viewers)]
            for each in watching:
                each.start()
        process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        assert status == 0, status
        records = sum(received.get() for _ in watching)
        for each in watching:
            each.join()
    return usage.ru_utime + usage.ru_stime, records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--viewers", type=int, default=1)
    options = parser.parse_args()
    ratios = []
    for _ in range(options.pairs):
        without, _ = run(None)
        with_page, records = run(options.viewers)
        ratios.append(with_page / without - 1.0)
        print(f"without {without:.2f} s, with {with_page:.2f} s ({records} records): {ratios[-1]:+.1%}")
    print(f"median {statistics.median(ratios):+.2%}")


if __name__ == "__main__":
    main()
