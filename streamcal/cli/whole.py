"""Files that a command writes as a whole at its end: looked at before it begins, and replaced in one step."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from streamcal.cli.terminal import EXIT_UNUSABLE, EXIT_USAGE, fail

__all__ = ["check_whole", "write_whole"]


def check_whole(option: str, path: Path, what: str, is_one: Callable[[bytes], bool]) -> None:
    """Refuse a path at which no file can be written, or is one that would be lost, before any work is done.

    Parameters
    ----------
    option
        the option that names it.
    what
        what will be written there: "a picture".
    is_one
        whether the content of a file is such a thing already, and may be replaced.
    """
    if path.is_dir():
        fail(f"{option} {path}: that is a directory; give the name of a file", EXIT_USAGE)
    if not path.parent.is_dir():
        fail(f"{option} {path}: there is no directory {path.parent}", EXIT_USAGE)
    if path.exists() and not path.is_file():
        return  # a device or a pipe
    if not os.access(_real(path).parent, os.W_OK):
        fail(f"{option} {path}: the directory {_real(path).parent} may not be written", EXIT_USAGE)
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        fail(f"{option} {path}: {error.strerror or error}", EXIT_USAGE)
    if before and not is_one(before):
        fail(
            f"{option} {path}: there is a file of {len(before):,} bytes that is not {what}: move it away, or"
            " give another name",
            EXIT_USAGE,
        )


def write_whole(option: str, path: Path, data: bytes) -> None:
    """Write a file in one step: whoever reads it finds the old content or all of the new.

    A link stays, and what it leads to is replaced; what is no file, such as ``/dev/stdout``, is written to.
    """
    beside = _real(path).with_name(f".{_real(path).name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)
            return
        beside.write_bytes(data)
        beside.replace(_real(path))
    except OSError as error:
        beside.unlink(missing_ok=True)
        fail(f"{option}: cannot write {path}: {error.strerror or error}", EXIT_UNUSABLE)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))
