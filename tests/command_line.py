"""The command line in a process of its own, and files for it to read."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamcal.testing import NormalPair
from tests.forks import forked

STREAMCAL = [sys.executable, "-c", "from streamcal.cli.app import main; main()"]

_RIGHTS = "-dac_override,-dac_read_search"
HUMBLE = ["setpriv", "--bounding-set", _RIGHTS, "--inh-caps", _RIGHTS] if os.geteuid() == 0 else []
"""What comes before a command that is to give up root's right to read and write what is forbidden."""

FLIGHTS = Path(__file__).parents[1] / "examples" / "flights"
GOOD = b'{"id":"good","score":0.5}\n'


def streamcal(
    *arguments: object, stdin: bytes = b"", humble: bool = False
) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process of its own; a ``humble`` one gives up root's rights."""
    given, environment = list(map(str, arguments)), {**os.environ, "COLUMNS": "200"}
    if humble and HUMBLE:
        done = subprocess.run(
            [*HUMBLE, *STREAMCAL, *given],
            input=stdin,
            capture_output=True,
            timeout=120,
            check=False,
            env=environment,
        )
        status, out, err = done.returncode, done.stdout, done.stderr
    else:
        status, out, err = forked(given, stdin, environment, 120.0)
    return subprocess.CompletedProcess(given, status, out.decode(), err.decode())


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
