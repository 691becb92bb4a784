"""The package `streamcal` 0.2.0 of PyPI, somebody else's of the same name, as a peer in a process of its own.

It cannot share an environment with this repository, so it gets one under ``.cache/``, made once by pip. It
needs Python 3.12 or newer: this interpreter, or one that is found by its name. Where it cannot be had,
`forecasts` says why.

Its settings are those of its README: 50 bins, decay 0.9, prior weight 1, an update after every 500 labels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from streams import ROOT, Stream

__all__ = ["NAME", "UnavailableError", "forecasts", "interpreter"]

NAME: Final = "streamcal 0.2.0"
VERSION: Final = "0.2.0"
CACHE: Final = ROOT / ".cache" / f"streamcal-{VERSION}"
CHILD: Final = Path(__file__).with_name("elsewhere_process.py")
NEWEST: Final = 16  # minor versions of Python to look for, from 3.12 on


class UnavailableError(Exception):
    """The package cannot be had here; the message says why."""


def forecasts(
    stream: Stream, order: NDArray[np.int64], known: NDArray[np.int64]
) -> tuple[NDArray[np.float64], float]:
    """Return the forecast of every event, float64[n], and the seconds of processor time of an event.

    Parameters
    ----------
    stream
        scores and labels; labels of the source are known from the start.
    order, known
        the events in the order in which their labels arrive, and how many of them are known to each forecast;
        int64[n], as of `replay.arrivals`.

    Raises
    ------
    UnavailableError
        if the package cannot be had.
    """
    python = interpreter()
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder, "given.npz"), Path(folder, "answer.npz")
        nothing = np.empty(0)
        np.savez(
            given,
            allow_pickle=False,
            scores=stream.scores,
            labels=stream.labels,
            order=order,
            known=known,
            source_scores=nothing if stream.source_scores is None else stream.source_scores,
            source_labels=nothing if stream.source_labels is None else stream.source_labels,
        )
        # Isolated (-I): neither this folder nor the environment's variables lead to the repository's package.
        subprocess.run([python, "-I", CHILD, given, answer], check=True)  # noqa: S603
        with np.load(answer) as kept:
            return kept["forecasts"], float(kept["seconds"]) / len(stream.scores)


@cache
def interpreter() -> Path:
    """Return the interpreter of an environment that has the package; make it if there is none yet.

    Raises
    ------
    UnavailableError
        if there is no Python of 3.12 or newer, or pip cannot install the package.
    """
    python = CACHE / "bin" / "python"
    ready = CACHE / ".ready"
    if not ready.exists():
        shutil.rmtree(CACHE, ignore_errors=True)
        _run(_newer_python(), "-m", "venv", CACHE)
        _run(python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", f"streamcal=={VERSION}")
        ready.touch()
    return python


def _newer_python() -> str:
    if sys.version_info >= (3, 12):
        return sys.executable
    for minor in range(12, NEWEST):
        found = shutil.which(f"python3.{minor}")
        # A name on the path may be a shim without a Python behind it.
        if found and not subprocess.run([found, "--version"], capture_output=True, check=False).returncode:  # noqa: S603
            return found
    raise UnavailableError("needs Python 3.12 or newer; no python3.12 or later is on the path")


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise UnavailableError(
            f"{Path(command[0]).name} {command[2]} ended with {done.returncode}: {said[-1]}"
        )
