"""The HTTP server of a run's page, in a thread beside the run."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Final

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streamcal.monitor.addresses import http_url, is_loopback, listen, names_this_machine
from streamcal.monitor.http_server import BACKLOG, HttpServer
from streamcal.monitor.latest_status import LatestStatus
from streamcal.monitor.routes import page_routes

__all__ = ["PageServer"]

_FAREWELL: Final = 2  # seconds for viewers to get the last record


class PageServer:
    """Shows the latest status of a run until it is closed; on this machine only.

    Parameters
    ----------
    host, port
        where it listens: a loopback address, for whoever can connect can read. Port 0 takes a free one.

    Raises
    ------
    OSError
        if it cannot listen there.
    ValueError
        if the host is no loopback address.
    """

    def __init__(self, host: str, port: int) -> None:
        if not is_loopback(host):
            raise ValueError(
                f"the page has no password, and {host!r} is no loopback address such as 127.0.0.1; to see it"
                " from elsewhere, use an SSH tunnel, a port-forward, or `streamcal serve` with --token-file"
            )
        self._socket = listen(host, port, BACKLOG)
        self._host, self.port = host, int(self._socket.getsockname()[1])
        self._server: HttpServer | None = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"{http_url(self._host, self.port)}/"

    def show(self, latest: LatestStatus) -> None:
        """Answer from now on."""
        routes = page_routes(latest, lambda: self._server is None or self._server.stopping)
        self._server = server = HttpServer(_OwnHosts(Starlette(routes=routes)), self._socket)
        self._thread = Thread(target=lambda: asyncio.run(server.run()), name="page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more; viewers get the last record first, but are not waited for long."""
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join(2.0 * _FAREWELL)
        self._socket.close()


class _OwnHosts:
    """Answers requests that name this machine only, and so no page of another site."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if names_this_machine(named):
            await self._app(scope, receive, send)
        else:
            text = f"this page answers to its own address, such as 127.0.0.1, not to {named!r}\n"
            await PlainTextResponse(text, 421)(scope, receive, send)
