"""Where events come from and where results go: the interfaces that connectors implement.

A connector is found by the scheme of a URL through the entry-point group ``streamcal.connectors``; a bare
path is a ``file``, and ``-`` is ``stdio``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Final, Protocol

import msgspec

from streamcal.codec import Malformed
from streamcal.types import Domain, Event

__all__ = ["Connector", "Sink", "Source", "connector"]

_GROUP: Final = "streamcal.connectors"
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):")


class Source(Protocol):
    """A finite or endless sequence of events, in the order in which they are to be taken."""

    @property
    def unknown_fields(self) -> int:
        """How many fields were kept out so far because no event has them."""

    def batches(self) -> Iterator[Sequence[Event | Malformed]]:
        """Yield what there is, as it comes: every input exactly once, bad input as `Malformed`.

        Raises
        ------
        OSError, ValueError
            if nothing can be read from here at all.
        """


class Sink(Protocol):
    """Takes rows in order. What was written before `close` returns is with the operating system."""

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Write rows, each as one record."""

    def close(self) -> None:
        """Flush and release; may be called twice."""


class Connector(Protocol):
    """Opens sources and sinks of one scheme."""

    def source(self, url: str, domain: Domain) -> Source:
        """Open a source; ``domain`` is that of events that name none."""

    def sink(self, url: str) -> Sink:
        """Open a sink, emptying what was there."""


def connector(url: str) -> Connector:
    """Return the connector for a URL.

    Raises
    ------
    ValueError
        if no installed connector has its scheme; it names those that there are.
    """
    match = _SCHEME.match(url)
    scheme = "stdio" if url == "-" else match[1] if match else "file"
    known = {entry.name: entry for entry in entry_points(group=_GROUP)}
    if scheme not in known:
        raise ValueError(
            f"no connector for {scheme!r} (in {url!r}); installed: {', '.join(sorted(known)) or 'none'}"
        )
    made: Connector = known[scheme].load()()
    return made
