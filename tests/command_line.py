"""The command line in a process of its own, and files for it to read."""

from __future__ import annotations

import gzip
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from streamcal.testing import NormalPair
from tests.forks import command, forked

STREAMCAL = [sys.executable, "-c", "from streamcal.cli.app import main; main()"]

FLIGHTS = Path(__file__).parents[1] / "examples" / "flights"
GOOD = b'{"id":"good","score":0.5}\n'


def streamcal(
    *arguments: object, stdin: bytes = b"", status: int | None = None
) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process of its own; without a status, it may end with any."""
    given, environment = list(map(str, arguments)), {**os.environ, "COLUMNS": "200"}
    ended, out, err = forked(given, stdin, environment, 120.0)
    assert status in (None, ended), f"exit status {ended}:\n{out.decode()}\n{err.decode()}"
    return subprocess.CompletedProcess(given, ended, out.decode(), err.decode())


def in_process(*arguments: object, status: int | None = None) -> Any:
    """Call the command line in this process, whose signals and loggers stay as they were."""
    from typer.testing import CliRunner

    from streamcal.cli.app import app

    loggers = [logging.getLogger(name) for name in ("streamcal", "streamcal_connectors")]
    before = [(each.handlers, each.level, each.propagate) for each in loggers]
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    done = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    for logger, kept in zip(loggers, before, strict=True):
        logger.handlers, logger.level, logger.propagate = kept
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert status in (None, done.exit_code), done.output
    return done


def in_shell(code: str, folder: Path) -> str:
    """Run a script in a folder, with the command line on its path, which must succeed; return its output."""
    own, server = command()
    path = os.pathsep.join([str(own), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euc", code],
        cwd=folder,
        env=os.environ | {"PATH": path},
        pass_fds=[server],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def wait_for(what: Callable[[], Any]) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + 60
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.splitlines()]


def table(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return the table at the end of a run."""
    rows = (line.rsplit(None, 1) for line in (done.stdout or done.stderr).splitlines())
    return {row[0].strip(): row[1] for row in rows if len(row) == 2}


def synthetic(folder: Path, n: int = 400) -> tuple[Path, Path, Path]:
    """Write a source, predictions and labels that come 50 seconds late; return the paths."""
    rng = np.random.default_rng(3)
    z, y = NormalPair(0.5).sample(n, rng)
    source = folder / "source.jsonl"
    source.write_text("".join(f'{{"score":{s},"label":{c}}}\n' for s, c in zip(z, y, strict=True)))
    z, y = NormalPair(0.2).sample(n, rng)
    events, labels = folder / "events.csv", folder / "labels.jsonl.gz"
    events.write_text("id,time,score\n" + "".join(f"{i},{i},{s}\n" for i, s in enumerate(z.tolist())))
    lines = "".join(f'{{"id":"{i}","label":{c},"time":{i + 50}}}\n' for i, c in enumerate(y.tolist()))
    labels.write_bytes(gzip.compress(lines.encode()))
    return source, events, labels
