"""The path in a URL."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["path_of"]


def path_of(url: str, scheme: str) -> Path:
    """Return the path of a bare path or of a URL with this scheme, such as ``file:x`` or ``file:///x``."""
    return Path(unquote(urlsplit(url).path)) if url.startswith(f"{scheme}:") else Path(url)
