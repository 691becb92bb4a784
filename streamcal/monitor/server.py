"""The page of a run: its server, in a thread beside the run."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streamcal.monitor.addresses import is_loopback, names_this_machine
from streamcal.monitor.health import Health
from streamcal.monitor.latest_status import LatestStatus
from streamcal.monitor.routes import page_routes
from streamcal.monitor.run_server import RunServer


class PageServer(RunServer):
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
        super().__init__(host, port)

    def show(self, latest: LatestStatus, health: Health) -> None:
        """Answer from now on."""
        routes = page_routes(latest, lambda: self.stopping)
        self.start(_OwnHosts(Starlette(routes=routes)), health)


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
