"""Runs of the command line that a test kills and starts again.

As a program, ``python -m tests.connectors.kafka.runs MAX_EVENTS``, it is the server that forks them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import streamcal_connectors.kafka.source  # noqa: F401  # here, so that no fork spends its life on imports

from tests.crash import child

ROOT = Path(__file__).parents[3]


def fork_server() -> None:
    """Run the command line in a fork for every line of input; say its pid, and how it ended."""
    max_events = int(sys.argv[1])
    for line in sys.stdin:
        process = os.fork()
        if not process:
            child(msgspec.json.decode(line), max_events)
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


class Runs:
    """Runs of one command line, one after the other."""

    def __init__(self, arguments: Sequence[str], log: Path, max_events: int) -> None:
        self.arguments = msgspec.json.encode(list(arguments)) + b"\n"
        self.log = log
        with log.open("ab") as out:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "tests.connectors.kafka.runs", str(max_events)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
            )
        self.pid = 0

    def start(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(self.arguments)
        self._server.stdin.flush()
        self.pid = int(self._server.stdout.readline())

    def end(self, number: int) -> int:
        """Send a signal; return the exit status, negative if the signal ended it."""
        assert self._server.stdout is not None
        os.kill(self.pid, number)
        self.pid = 0
        # With the table of a run's end between.
        lines = iter(self._server.stdout.readline, b"")
        return next(int(line) for line in lines if line.strip().lstrip(b"-").isdigit())

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
        self._server.kill()
        self._server.communicate()


@contextmanager
def runs(arguments: Sequence[str], log: Path, max_events: int) -> Iterator[Runs]:
    made = Runs(arguments, log, max_events)
    try:
        yield made
    finally:
        made.close()


if __name__ == "__main__":
    fork_server()
