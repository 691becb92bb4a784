"""The files of ``run --map``: the last map of every key, each written at once or not at all.

The map of events without a key goes to the path itself, that of a key to the path with the key before its
suffix: ``map.json``, ``map.DE.json``. In such a name every character but letters, digits and ``_.-~`` is
written as ``%`` and its bytes in UTF-8, as in a URL; a key too long for a file name keeps its beginning,
then come ``%~`` and the first 32 digits of its SHA-256. `key` in ``--maps`` has every key as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from streamcal.engine.engine import Engine

__all__ = ["check_map_file", "map_path", "write_maps"]

_NAME_BYTES: Final = 255  # of a file name, in every file system of today
_DIGEST: Final = 32


def check_map_file(path: Path) -> None:
    """Find out before a run whether its map can be written there.

    Raises
    ------
    OSError, ValueError
        if the directory is missing or cannot be written, or if what is there is not a map.
    """
    if not _is_replaced(path):
        return
    with _temporary(_real(path)).open("xb"):
        pass
    _temporary(_real(path)).unlink()


def write_maps(engines: Mapping[str | None, Engine], path: Path) -> list[str]:
    """Write the map of every key; return what could not be written, and why."""
    failed = []
    for key, engine in engines.items():
        name = map_path(path, key)
        try:
            _write(name, msgspec.json.format(engine.map.model_dump_json().encode(), indent=2) + b"\n")
        except (OSError, ValueError) as error:
            failed.append(f"the map{'' if key is None else f' of key {key[:80]!r}'}: {error}")
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


def _write(path: Path, data: bytes) -> None:
    if not _is_replaced(path):
        path.write_bytes(data)
        return
    path = _real(path)
    temporary = _temporary(path)
    try:
        with temporary.open("xb") as file:
            if path.exists():
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_replaced(path: Path) -> bool:
    """Whether a file is written anew and takes its name, as all but devices and pipes are."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{path} is a directory")
    if not stat.S_ISREG(found.st_mode):
        return False
    data = path.read_bytes()
    try:
        is_map = {"version", "values"} <= set(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
    except (ValueError, RecursionError):
        is_map = False
    if data and not is_map:
        raise ValueError(
            f"{path} has {len(data)} bytes, which are no map: move it away, or give another file"
        )
    return True


def _real(path: Path) -> Path:
    """Return the file that a link leads to: it is replaced, not the link."""
    return Path(os.path.realpath(path))


def _temporary(path: Path) -> Path:
    return path.with_name(f".streamcal-{os.getpid()}.tmp")
