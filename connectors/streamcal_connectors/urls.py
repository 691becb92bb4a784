"""From URLs to paths."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["path_of"]


def path_of(url: str, scheme: str) -> Path:
    """Return the path that a bare path or a URL of a scheme (``file:x``, ``file:///x``) names."""
    return Path(unquote(urlsplit(url).path)) if url.startswith(f"{scheme}:") else Path(url)
