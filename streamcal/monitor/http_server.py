"""HTTP of `streamcal serve`: granian, which is hyper, with limits for strangers."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server.embed import Server
from starlette.types import ASGIApp

from streamcal.monitor.run_server import CLIENT_SECONDS

BACKLOG: Final = 2048
"""Most open connections; as many more wait until one is closed."""

_MOST_HEAD_BYTES: Final = 16 << 10  # what is read ahead, too; hyper allows 100 fields
_OTHER_FILES: Final = 256  # that a process opens beside its connections


_LAST_SECONDS: Final = 0.2


class HttpServer:
    """Answers requests that come to a socket, in the event loop of `run`, until `stop`.

    A head, or the pause before it, may take `CLIENT_SECONDS`, and so may the reading of an answer where the
    system bounds it (Linux). The time and the size of a body are for the application to bound.
    """

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        self._app, self._listener = app, listener
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Granian | None = None
        self.stopping = False
        """Whether it was asked to stop."""

    async def run(self) -> None:
        """Answer requests; once it is stopped, those that have come."""
        self._loop = asyncio.get_running_loop()
        self._server = _Granian(self._app, self._listener)
        with _signals_wake(self._loop):
            if not self.stopping:
                await self._server.serve()
                # Its thread lets go of what it holds after that; if Python ended before, it would abort.
                await asyncio.sleep(_LAST_SECONDS)

    def stop(self) -> None:
        """Take no more connections; for any thread."""
        again, self.stopping = self.stopping, True
        if not again and self._loop is not None and self._server is not None:
            self._loop.call_soon_threadsafe(self._server.stop)


@contextmanager
def _signals_wake(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Wake the loop at a signal: else it sleeps over one that comes between its last look and its sleep."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        loop.add_reader(ours, ours.recv, 4096)
        before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(ours)


class _Granian(Server):
    """granian's server inside a program, which would bind an address of its own."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        files = _raise_limit_of_files()
        most = max(files - _OTHER_FILES, files // 4)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
            milliseconds = int(CLIENT_SECONDS * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self._file = os.dup(listener.fileno())  # the server closes it
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(CLIENT_SECONDS * 1000), max_buffer_size=_MOST_HEAD_BYTES
            ),
            websockets=False,
            backlog=BACKLOG,
            backpressure=min(BACKLOG, most),
            log_level=LogLevels.error,
            log_dictconfig={"incremental": True, "handlers": {}, "loggers": {}},  # change nobody's handlers
        )
        logging.getLogger("_granian").handlers = logging.getLogger("streamcal").handlers

    def _init_shared_socket(self) -> None:
        self._ssp = None
        self._shd: Any = SocketHolder(self._file, False, BACKLOG)  # type: ignore[call-arg]


def _raise_limit_of_files() -> int:
    """Let the process open as many files as connections need, if it may; return how many it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = BACKLOG + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else soft
