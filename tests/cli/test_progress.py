"""Progress: events one by one, the share of the bytes, the time left; on a terminal, and in a log."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from streamcal.cli.terminal import version_line
from streamcal.join.outcomes import Joined
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.runner import Inputs, Runner
from tests.command_line import STREAMCAL
from tests.forks import Fork

pytestmark = pytest.mark.slow  # each test calls the command line


def both(n: int) -> str:
    return "".join(f'{{"id":"{i}","score":0.5,"label":{i % 2}}}\n' for i in range(n))


def test_it_counts_events_within_a_micro_batch(tmp_path: Path) -> None:
    """In the middle of a micro-batch, it knows how many of its events are done."""
    (tmp_path / "e.jsonl").write_text(both(500))
    seen: list[int] = []

    def observe(joined: Joined) -> None:
        seen.append(pipeline.processed)

    pipeline = Pipeline(observer=observe)
    source = Connectors().source(str(tmp_path / "e.jsonl"))
    Runner(pipeline, Inputs([], [source]), Outputs(NullSink()), None, clock=lambda: 0.0).run()
    source.close()
    assert seen == list(range(1, 501))


class Terminal:
    """A run whose standard error is a terminal of 80 columns."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        ours, theirs = pty.openpty()
        self._ours = ours
        self._seen = ""
        self.process = Fork(
            [*arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
        )
        os.close(theirs)

    def wait_for(self, pattern: str) -> str:
        """Read until the pattern is there; return what matches."""
        while not (found := re.search(pattern, self._seen)):
            self._seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(self._ours, 65_536).decode())
        return found[0]

    def rest(self) -> str:
        """Let it come to its end; return all that was shown."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        try:
            while data := os.read(self._ours, 65_536):
                self._seen += data.decode()
        except OSError:  # Linux: the other end is closed
            pass
        os.close(self._ours)
        return self._seen


def test_a_terminal_shows_how_much_is_read(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text(both(3_000) + "oops\n")
    run = Terminal(tmp_path, "run", "--events", "e.jsonl", "--output", "o.jsonl")
    run.wait_for(r"rejected: e\.jsonl, line 3001: not JSON")  # above the line, not through it
    run.wait_for(r"100%, 3,001 events, [\d,]+ events/s")
    run.rest()


def test_elsewhere_nothing_moves(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text(both(100))
    done = subprocess.run(
        [*STREAMCAL, "run", "--events", tmp_path / "e.jsonl", "--output", tmp_path / "o", "--log-json"],
        capture_output=True,
        check=True,
    )
    messages = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert messages == [version_line(), "end of run"]
