"""Files that a command writes as a whole at its end: looked at before it begins, and replaced in one step.

``--map`` writes the last map of every key, each at once or not at all. The map of events without a key goes
to the path itself, that of a key to the path with the key before its suffix: ``map.json``, ``map.DE.json``.
In such a name every character but letters, digits and ``_.-~`` is written as ``%`` and its bytes in UTF-8, as
in a URL; a key too long for a file name keeps its beginning, then come ``%~`` and the first 32 digits of its
SHA-256. `key` in ``--maps`` has every key as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from streamcal.cli.terminal import EXIT_UNUSABLE, EXIT_USAGE, fail
from streamcal.engine.engine import Engine
from streamcal.values import shown

__all__ = [
    "check_whole",
    "is_map",
    "map_path",
    "refuse_unwritable",
    "replace_whole",
    "write_maps",
    "write_whole",
]

_NAME_BYTES: Final = 255  # of a file name, in every file system of today
_DIGEST: Final = 32


def refuse_unwritable(option: str, path: Path, what: str, is_one: Callable[[bytes], bool]) -> None:
    """End the command where `check_whole` raises."""
    try:
        check_whole(path, what, is_one)
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else None
        fail(f"{option} {path}: {text or error}", EXIT_USAGE)


def write_whole(option: str, path: Path, data: bytes) -> None:
    """Write a file as `replace_whole` does, and end the command where that raises."""
    try:
        replace_whole(path, data)
    except OSError as error:
        fail(f"{option}: cannot write {path}: {error.strerror or error}", EXIT_UNUSABLE)


def check_whole(path: Path, what: str, is_one: Callable[[bytes], bool]) -> None:
    """Look whether a file can be written at a path, and nothing is lost by it.

    Parameters
    ----------
    what
        what will be written there: "a picture".
    is_one
        whether the content of a file is such a thing already, and may be replaced.

    Raises
    ------
    OSError, ValueError
        if it cannot be written, or is something else.
    """
    if path.is_dir():
        raise ValueError("that is a directory; give the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"there is no directory {path.parent}")
    if path.exists() and not path.is_file():
        return  # a device or a pipe
    if not os.access(_real(path).parent, os.W_OK):
        raise ValueError(f"the directory {_real(path).parent} may not be written")
    before = path.read_bytes() if path.exists() else b""
    if before and not is_one(before):
        raise ValueError(
            f"there is a file of {len(before):,} bytes that is not {what}: move it away, or give another name"
        )


def replace_whole(path: Path, data: bytes) -> None:
    """Write a file in one step: whoever reads it finds the old content or all of the new.

    A link stays, and what it leads to is replaced; what is no file, such as ``/dev/stdout``, is written to.

    Raises
    ------
    OSError
        if it cannot be written; the old content is still there.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    real = _real(path)
    beside = real.with_name(f".streamcal-{os.getpid()}.tmp")  # short: the name may be as long as names can be
    try:
        with beside.open("xb") as file:
            if real.exists():
                beside.chmod(stat.S_IMODE(real.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(real)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def is_map(data: bytes) -> bool:
    """Return whether the content of a file is a map."""
    try:
        return {"version", "values"} <= set(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
    except (ValueError, RecursionError):
        return False


def write_maps(engines: Mapping[str | None, Engine], path: Path) -> list[str]:
    """Write the map of every key; return what could not be written, and why."""
    failed = []
    for key, engine in engines.items():
        name = map_path(path, key)
        try:
            check_whole(name, "a map", is_map)
            replace_whole(name, msgspec.json.format(engine.map.model_dump_json().encode(), indent=2) + b"\n")
        except (OSError, ValueError) as error:
            failed.append(f"the map{'' if key is None else f' of key {shown(key)}'} to {name}: {error}")
    return failed


def map_path(path: Path, key: str | None) -> Path:
    """Return where the map of a key goes."""
    if key is None:
        return path
    text = quote(key, safe="")
    room = _NAME_BYTES - len(os.fsencode(path.name)) - 1
    if len(text) > room:
        digest = f"%~{sha256(key.encode()).hexdigest()[:_DIGEST]}"
        text = f"{text[: max(room - len(digest), 0)]}{digest}"
    return path.with_name(f"{path.stem}.{text}{path.suffix}")
