"""Finds the connectors that are installed, by the scheme of a URL, and asks them."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar, cast

from streamcal.run.ports import (
    Feed,
    FeedConnector,
    IdentifyingConnector,
    Role,
    RowKind,
    Sink,
    SinkConnector,
    SinkOptions,
    Source,
    SourceConnector,
    SourceOptions,
    Store,
    StoreConnector,
    TunableConnector,
)

__all__ = ["Connectors", "connector_names", "public_url"]

T = TypeVar("T")

_GROUP: Final = "streamcal.connectors"
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):")


class Connectors:
    """The connectors of one run, each loaded when its scheme is first met.

    Every method raises ValueError if no installed connector has the URL's scheme (it names those that there
    are), or if that one cannot do what is asked, and passes on what the connector raises.

    Parameters
    ----------
    options, stop
        for `TunableConnector.set_up`; the options by scheme.
    """

    def __init__(
        self,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._options = options or {}
        self._stop = stop
        self._made: dict[str, object] = {}

    def source(self, url: str, options: SourceOptions | None = None) -> Source:
        """Open a source; see `SourceConnector`."""
        return self._find(url, SourceConnector, "read events").source(url, options or SourceOptions())

    def sink(self, url: str, rows: RowKind = "answers", kept: Mapping[str, Any] | None = None) -> Sink:
        """Open a sink; ``kept``: the types of columns that pass through. See `SinkConnector`."""
        options = SinkOptions(rows=rows, kept=kept, stop=self._stop)
        return self._find(url, SinkConnector, "write rows").sink(url, options)

    def feed(self, url: str) -> Feed:
        """Open a feed; see `FeedConnector`."""
        return self._find(url, FeedConnector, "read rows back").feed(url)

    def store(self, url: str, *, read_only: bool = False) -> Store:
        """Open a store; see `StoreConnector`."""
        return self._find(url, StoreConnector, "keep state", "sqlite").store(url, read_only=read_only)

    def identities(self, url: str, role: Role) -> frozenset[Hashable]:
        """Return what is behind a URL; see `IdentifyingConnector`. Of another connector, the URL."""
        found = self._made_for(url, "sqlite" if role == "store" else "file")
        if not isinstance(found, IdentifyingConnector):
            return frozenset({url})
        return frozenset(found.identities(url, role))

    def _find(self, url: str, kind: Callable[..., T], what: str, bare: str = "file") -> T:
        """Return the connector of a URL, which has to be of a kind: one that can do ``what``."""
        found = self._made_for(url, bare)
        if isinstance(found, cast("type[T]", kind)):
            return found
        scheme = _scheme(url) or url
        raise ValueError(f"the connector for {scheme!r} cannot {what} (in {public_url(url)!r})")

    def _made_for(self, url: str, bare: str) -> object:
        scheme = _scheme(url) or bare
        if scheme not in self._made:
            known = {entry.name: entry for entry in entry_points(group=_GROUP)}
            if scheme not in known:
                names = ", ".join(sorted(known)) or "none"
                raise ValueError(f"no connector for {scheme!r} (in {public_url(url)!r}); installed: {names}")
            made = cast("type[object]", known[scheme].load())()
            if isinstance(made, TunableConnector):
                made.set_up(self._options.get(scheme, {}), self._stop)
            elif scheme in self._options:
                raise ValueError(f"the connector for {scheme!r} takes no options, got a table [{scheme}]")
            self._made[scheme] = made
        return self._made[scheme]


def connector_names() -> set[str]:
    """Return the schemes of the connectors that are installed."""
    return {entry.name for entry in entry_points(group=_GROUP)}


def _scheme(url: str) -> str | None:
    match = _SCHEME.match(url)
    return "stdio" if url == "-" else match[1] if match else None


def public_url(url: str) -> str:
    """Return a URL fit to be shown: a path as it is, others without user, password and options.

    Of a webhook, only the host: whoever knows the path may post there.
    """
    scheme = _scheme(url)
    if scheme is None:
        return url
    if scheme in ("http", "https"):
        return re.sub(r"//(?:[^/?#]*@)?([^/?#]*).*", r"//\1/…", url, flags=re.DOTALL)
    return re.sub(r"\?.*", "?…", re.sub(r"//[^/@]*@", "//…@", url))
