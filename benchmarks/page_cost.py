"""What the live page costs a run: processor time of its threads, on the flights of the demo, with one viewer.

A run with a page and one without, in pairs, differ by less than such runs differ among themselves. So the
processor time is taken where it is spent: in the run's own thread while it makes records, and in the thread
that sends them. What other programs do at the same time hardly moves it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from streamcal.cli.demo import FILES
from streamcal.engine.config import RecalibratorConfig
from streamcal.page.latest_status import LatestStatus
from streamcal.page.server import PageServer
from streamcal.run.connectors import Connectors
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SinkOptions, SourceOptions
from streamcal.run.runner import Inputs, Outputs, Runner

VIEWER = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as events:
    print(sum(line.startswith(b"data:") for line in events))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="auto")
    options = parser.parse_args()
    folder, connectors = Path(__file__).parents[1] / "examples" / "flights", Connectors()
    calibration = connectors.source(str(folder / FILES[0]), SourceOptions(domain="source"))
    deployment = [connectors.source(str(folder / name)) for name in FILES[1:]]
    pipeline = Pipeline(RecalibratorConfig(mode=options.mode))
    board = LatestStatus(pipeline, {}, [calibration, *deployment])
    server = PageServer("127.0.0.1", 0)
    server.show(board)
    viewer = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", VIEWER, f"{server.url}page/events"], stdout=subprocess.PIPE, text=True
    )
    spent = 0.0

    def after(outcome: Outcome, _: float) -> None:
        nonlocal spent
        start = time.thread_time()
        board.take(outcome)
        spent += time.thread_time() - start

    (thread,) = (each for each in threading.enumerate() if each.name == "page")
    assert thread.ident is not None
    clock = time.pthread_getcpuclockid(thread.ident)
    with tempfile.TemporaryDirectory() as output:
        sink = connectors.sink(f"{output}/o.jsonl", SinkOptions())
        begun, wall, sending = time.thread_time(), time.monotonic(), time.clock_gettime(clock)
        Runner(
            pipeline,
            Inputs([calibration], deployment),
            Outputs(sink),
            None,
            clock=time.monotonic,
            after=after,
        ).run()
        whole, wall = time.thread_time() - begun, time.monotonic() - wall
        sending = time.clock_gettime(clock) - sending
        sink.close()
    board.end()
    server.close()
    received = viewer.communicate()[0].strip()
    print(f"the run: {whole:.2f} s of the processor, {wall:.1f} s on the clock; {received} records received")
    print(f"making records: {spent:.3f} s, {spent / whole:.2%} of the processor time of the run")
    print(f"sending them: {sending:.3f} s, {sending / wall:.2%} of the time on the clock")


if __name__ == "__main__":
    main()
