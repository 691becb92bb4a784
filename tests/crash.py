"""Run the command line again and again, and kill each run at a random moment; see test_crash.py.

Usage: python crash.py SEED KILLS LONGEST_SECONDS MAX_EVENTS -- ARGUMENTS. Prints the seconds that the last
run took, and how many runs were killed. A run is a fork of this process, so that it does not spend its life
on imports. Seconds are those of the run's processor time, at which the kernel ends it, with no handler and no
clean-up: on a loaded machine a run gets as far as on an idle one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable

import pyarrow.parquet  # noqa: F401  # what reads tables is imported only when there is one

from streamcal.cli import app as cli
from streamcal.run import runner


def crashed(
    arguments: Iterable[object], kills: int, longest: float, max_events: int = 50, seed: int = 11
) -> float:
    """Kill a command so many times; return the seconds that its last run took."""
    command = [sys.executable, __file__, *map(str, (seed, kills, longest, max_events)), "--"]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    seconds, killed = done.stdout.split()[-3::2]
    assert int(killed) == kills
    return float(seconds)


def child(arguments: list[str], max_events: int) -> None:
    runner.MAX_EVENTS = max_events  # small batches: many moments to be killed at
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
        life = rng.uniform(1e-4, float(longest)) if killed < int(kills) else 0.0
        process = os.fork()
        if not process:
            if life:
                signal.setitimer(signal.ITIMER_PROF, life)
            child(arguments, int(max_events))
        _, status, usage = os.wait4(process, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, status
            break
        assert os.WTERMSIG(status) == signal.SIGPROF, status
        killed += 1
    print(f"seconds {usage.ru_utime + usage.ru_stime:.3f} killed {killed}", flush=True)


if __name__ == "__main__":
    main()
