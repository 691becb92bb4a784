"""Run the command line again and again, and kill each run at a random moment; see test_crash.py.

Usage: python crash.py SEED KILLS LONGEST_SECONDS MAX_EVENTS -- ARGUMENTS. Prints how many runs were killed.
A run is a fork of this process, so that it does not spend its life on imports.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pyarrow.parquet  # noqa: F401  # what reads tables is imported only when there is one

from streamcal.cli import app as cli
from streamcal.run import runner


def child(arguments: list[str], max_events: int) -> None:
    runner.MAX_EVENTS = max_events  # type: ignore[misc]  # small batches: many moments to be killed at
    sys.argv = ["streamcal", *arguments]
    status = 1
    try:
        cli.main()
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    seed, kills, longest, max_events = sys.argv[1:5]
    arguments = sys.argv[6:]
    rng = random.Random(int(seed))
    killed = 0
    while True:
        process = os.fork()
        if not process:
            child(arguments, int(max_events))
        if killed < int(kills):
            time.sleep(rng.uniform(0.0, float(longest)))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, status
            break
        killed += 1
    print(f"killed {killed}", flush=True)


if __name__ == "__main__":
    main()
