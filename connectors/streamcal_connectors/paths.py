"""Paths: those in URLs, and the format that a name tells."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from streamcal.run.ports import Format

TableKind: TypeAlias = Literal["parquet", "arrow"]
"""Formats whose columns have types."""

Kind: TypeAlias = Format | TableKind

TABLES: Final[dict[str, TableKind]] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
"""Endings of the formats whose columns have types."""
_LINES: Final[dict[str, Format]] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv"}
_KNOWN: Final = (
    f"{', '.join(_LINES)} (each also with .gz), {', '.join(TABLES)}, or none at all, for JSON lines"
)


def format_of(name: str, declared: Format | None = None, *, read: bool) -> Kind:
    """Return the format of a file by its name; a name without an ending has the one that is ``declared``.

    Raises
    ------
    ValueError
        If it has an ending that is not known; the message lists those that are.
    """
    is_gzip = name.endswith(".gz")
    stem, dot, ending = name.removesuffix(".gz").rpartition(".")
    if not (stem and dot):
        return declared or "jsonl"
    ending = f".{ending}"
    if ending in _LINES or (read and ending == ".tsv"):
        return _LINES.get(ending, "csv")
    if ending in TABLES and not is_gzip:
        return TABLES[ending]
    if ending in TABLES:
        raise ValueError(f"{name!r} ends in {ending}.gz: unpack it; {ending} is compressed within")
    if read and declared is not None:
        return declared
    advice = "; --format jsonl or csv reads it as it is" if read else ""
    raise ValueError(f"{name!r} has an unknown ending, {ending!r}: known are {_KNOWN}{advice}")


def path_of(url: str, scheme: str) -> Path:
    """Return the path of a bare path or of a URL with this scheme, such as ``file:x`` or ``file:///x``."""
    return Path(unquote(urlsplit(url).path)) if url.startswith(f"{scheme}:") else Path(url)
