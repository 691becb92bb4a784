"""Which format a file has, by the ending of its name."""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

from streamcal.run.ports import Format

__all__ = ["ROTATED", "TABLES", "Kind", "TableKind", "format_of"]

TableKind: TypeAlias = Literal["parquet", "arrow"]
"""Formats whose columns have types."""

Kind: TypeAlias = Format | TableKind

ROTATED: Final = re.compile(r"[.-](old|\d[\d.:T_-]*?)(\.gz)?")
"""What rotation puts behind the name of a file."""

TABLES: Final[dict[str, TableKind]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
"""Their endings."""
_LINES: Final[dict[str, Format]] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}
_KNOWN: Final = (
    f"{', '.join(_LINES)} (each also with .gz), {', '.join(TABLES)}, or none at all, for JSON lines"
)
_LOOKS_ROTATED: Final = re.compile(rf"(.+?){ROTATED.pattern}")


def format_of(name: str, given: Format | None = None, *, read: bool) -> Kind:
    """Return the format of a file by its name; a name without an ending has the one that is ``given``.

    To be read, it may be a rotated one, such as ``events.jsonl.1.gz``.

    Raises
    ------
    ValueError
        if it has an ending that is not known; the message lists those that are.
    """
    match = _LOOKS_ROTATED.fullmatch(name) if read else None
    is_gzip = name.endswith(".gz")
    stem, dot, ending = (match[1] if match else name).removesuffix(".gz").rpartition(".")
    if not (stem and dot):
        return given or "jsonl"
    ending = f".{ending}"
    if ending in _LINES:
        return _LINES[ending]
    if ending in TABLES and not is_gzip:
        return TABLES[ending]
    if ending in TABLES:
        raise ValueError(f"{name!r} ends in {ending}.gz: unpack it; {ending} is compressed within")
    if read and given is not None:
        return given
    advice = "; --format jsonl or csv reads it as it is" if read else ""
    raise ValueError(f"{name!r} has an unknown ending, {ending!r}: known are {_KNOWN}{advice}")
