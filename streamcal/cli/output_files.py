"""Files that a command writes at its end: looked at before it begins, and replaced in one step.

``--map`` writes the last map of every key, each at once or not at all. The map of events without a key goes
to the path itself, that of a key to the path with the key before its suffix: ``map.json``, ``map.DE.json``.
In such a name every character but letters, digits and ``_.-~`` is written as ``%`` and its bytes in UTF-8, as
in a URL; a name that is too long for the file system is told. `key` in ``--maps`` has every key as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from streamcal.base.values import shown
from streamcal.cli.terminal import Exit, fail
from streamcal.engine.engine import Engine


def as_json(value: object) -> bytes:
    """Return a value as JSON for people to read: indented, with a line end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def has_fields(data: bytes, names: Iterable[str]) -> bool:
    """Whether the content of a file is a JSON object with all these fields."""
    try:
        return set(names) <= set(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
    except (ValueError, RecursionError):
        return False


def is_map(data: bytes) -> bool:
    """Whether the content of a file is a map."""
    return has_fields(data, ("version", "values")) or is_class_map(data)


def is_class_map(data: bytes) -> bool:
    """Whether the content of a file is a map of many classes."""
    return has_fields(data, ("version", "candidates"))


def refuse_unwritable(option: str, path: Path, what: str, is_one: Callable[[bytes], bool]) -> None:
    """End the command if a file cannot be written, or is not such a thing and would be lost.

    Parameters
    ----------
    option
        the option that names the file.
    what
        what will be written there: "a report".
    is_one
        whether the content of a file is such a thing already, and may be replaced.
    """
    try:
        _check_replaceable(path, what, is_one)
    except (OSError, ValueError) as error:
        text = error.strerror if isinstance(error, OSError) else None
        fail(f"{option} {path}: {text or error}", Exit.USAGE)


def write_file(option: str, path: Path, data: bytes) -> None:
    """Write a file by `atomic_write`, and end the command if that fails."""
    try:
        atomic_write(path, data)
    except OSError as error:
        fail(f"{option}: cannot write {path}: {error.strerror or error}", Exit.UNUSABLE)


def _check_replaceable(path: Path, what: str, is_one: Callable[[bytes], bool]) -> None:
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


def atomic_write(path: Path, data: bytes) -> None:
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


def write_maps(engines: Mapping[str | None, Engine], path: Path, segments: Sequence[str] = ()) -> list[str]:
    """Write the map of every key; return what could not be written, and why.

    Parameters
    ----------
    engines
        engines by key.
    path
        as of ``--map``.
    segments
        fields that make segments: then a map says that it is not all that is served.
    """
    failed, more = [], {"segments": list(segments)} if segments else {}
    for key, engine in engines.items():
        name = map_path(path, key)
        try:
            _check_replaceable(name, "a map", is_map)
            atomic_write(name, as_json({**engine.portable_map.model_dump(mode="json"), **more}))
        except (OSError, ValueError) as error:
            failed.append(f"the map{'' if key is None else f' of key {shown(key)}'} to {name}: {error}")
    return failed


def map_path(path: Path, key: str | None) -> Path:
    """Return where the map of a key goes."""
    return path if key is None else path.with_name(f"{path.stem}.{quote(key, safe='')}{path.suffix}")
