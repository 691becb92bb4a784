"""Files that a command writes as a whole at its end: looked at before it begins, and replaced in one step."""

from __future__ import annotations

import os
from pathlib import Path

from streamcal.cli.terminal import EXIT_UNUSABLE, EXIT_USAGE, fail

__all__ = ["check_whole", "write_whole"]


def check_whole(option: str, path: Path) -> None:
    """Refuse a path at which no file can be written, before any work is done for it."""
    if path.is_dir():
        fail(f"{option} {path}: that is a directory; give the name of a file", EXIT_USAGE)
    if not path.parent.is_dir():
        fail(f"{option} {path}: there is no directory {path.parent}", EXIT_USAGE)
    if not os.access(path.parent, os.W_OK):
        fail(f"{option} {path}: the directory {path.parent} may not be written", EXIT_USAGE)


def write_whole(option: str, path: Path, data: bytes) -> None:
    """Write a file in one step: whoever reads it finds the old content or all of the new."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        fail(f"{option}: cannot write {path}: {error.strerror or error}", EXIT_UNUSABLE)
