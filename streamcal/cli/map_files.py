"""The files of ``run --map``: the last map of every key, each written at once or not at all.

The map of events without a key goes to the path itself, that of a key to the path with the key before its
suffix: ``map.json``, ``map.DE.json``. In such a name every character but letters, digits and ``_.-~`` is
written as ``%`` and its bytes in UTF-8, as in a URL; a key too long for a file name keeps its beginning,
then come ``%~`` and the first 32 digits of its SHA-256. `key` in ``--maps`` has every key as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from streamcal.cli.whole import check_whole, replace_whole
from streamcal.engine.engine import Engine
from streamcal.values import shown

__all__ = ["is_map", "map_path", "write_maps"]

_NAME_BYTES: Final = 255  # of a file name, in every file system of today
_DIGEST: Final = 32


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
