"""The path in a URL, and the file that a path leads to."""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from streamcal.run.ports import Role

__all__ = ["identities_of", "path_of"]


def path_of(url: str, scheme: str) -> Path:
    """Return the path of a bare path or of a URL with this scheme, such as ``file:x`` or ``file:///x``."""
    return Path(unquote(urlsplit(url).path)) if url.startswith(f"{scheme}:") else Path(url)


def identities_of(file: Path | int, role: Role) -> frozenset[Hashable]:
    """Return what identifies a file, or an open descriptor, by whatever path it is reached.

    That is device and inode where it exists, else where it would be made. Empty for a terminal or another
    device that is written: nothing that was kept there can be lost.
    """
    try:
        found = os.stat(file)  # noqa: PTH116  # of a descriptor too
    except OSError:
        return frozenset({os.path.realpath(file)} if isinstance(file, Path) else ())
    is_file = stat.S_ISREG(found.st_mode) or stat.S_ISFIFO(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return frozenset({("file", found.st_dev, found.st_ino)} if is_file or role == "read" else ())
