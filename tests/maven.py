"""Jars of servers for the tests, from Maven Central through a ``pom.xml``: once, then without a network."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).resolve().parents[1] / ".cache"
_SECONDS: Final = 600.0


class FetchError(RuntimeError):
    """Maven or Java is missing, or Maven failed."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder of the cache for this process alone; another one waits."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetched(pom: Path, name: str) -> Path:
    """Bring the jars of a ``pom.xml`` unless they are there, and return their directory in the cache.

    One process fetches, others wait; an interrupted fetch leaves nothing that looks complete.

    Raises
    ------
    FetchError
        if they are not there and cannot be fetched, or there is no Java.
    """
    folder = CACHE / name
    target = folder / hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    if shutil.which("java") is None:
        raise FetchError("no java on the path")
    if target.is_dir():
        return target
    if shutil.which("mvn") is None:
        raise FetchError("no mvn on the path")
    with locked(folder):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=folder, prefix="fetching-") as scratch:
                partial = Path(scratch, "jars")
                command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
                command += [f"-DoutputDirectory={partial}"]
                # An optimising compiler would take longer than all that it compiles.
                cheap = os.environ | {"MAVEN_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
                ran = subprocess.run(
                    command, env=cheap, capture_output=True, text=True, errors="replace", timeout=_SECONDS
                )
                if ran.returncode:
                    raise FetchError(f"mvn ended with {ran.returncode}: {ran.stdout[-2000:]}")
                partial.rename(target)
    return target
