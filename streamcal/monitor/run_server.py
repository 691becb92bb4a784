"""HTTP of a run's metrics and page: few connections with a request each, in a thread beside the run.

A stranger costs the run little: no thread, at most `MOST_CONNECTIONS` files, and no line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Literal, TypeVar
from urllib.parse import unquote

from streamcal.monitor.addresses import http_url, listen
from streamcal.monitor.health import Health

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["CLIENT_SECONDS", "MOST_CONNECTIONS", "RunServer"]

CLIENT_SECONDS: Final = 10.0
"""Time limit for a client, in seconds: for a head, for a body, for reading an answer."""

MOST_CONNECTIONS: Final = 64
"""Most open connections; of more, the one that has kept the server waiting longest is closed."""

_BACKLOG: Final = 128
_MOST_HEAD_BYTES: Final = 16 << 10
_FAREWELL: Final = 2.0  # seconds for viewers to get the last record
_PAUSE: Final = 1.0  # seconds until a connection is accepted again, if no file could be opened

_PROBES: Final[dict[str, Literal["alive", "ready"]]] = {"/healthz": "alive", "/readyz": "ready"}

log = logging.getLogger("streamcal")
T = TypeVar("T")


class RunServer:
    """Answers GET requests with an application, until it is closed; ``/healthz`` and ``/readyz`` itself.

    Parameters
    ----------
    host, port
        where it listens; port 0 takes a free one.

    Raises
    ------
    OSError
        if it cannot listen there.
    """

    def __init__(self, host: str, port: int) -> None:
        self._listener = listen(host, port, _BACKLOG)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self.url = http_url(host, self.port)
        """Where it listens, without a path."""
        self.stopping = False
        """Whether it was closed: answers that go on are to end."""
        self._open: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.Task[None], None] = {}  # for their clients, the longest first
        self._begun, self._thread = Event(), Thread(target=self._run, name="http", daemon=True)
        self._said: set[str] = set()
        self._most = MOST_CONNECTIONS

    def start(self, app: ASGIApp, health: Health) -> None:
        """Answer from now on."""
        self._app, self._health = app, health
        self._thread.start()
        self._begun.wait()

    def close(self) -> None:
        """Listen no more; what is being answered may end, but is not waited for long."""
        self.stopping = True
        if self._begun.is_set():
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._accepting.cancel)
            self._thread.join(2.0 * _FAREWELL)
        self._listener.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._accepting = asyncio.get_running_loop(), asyncio.create_task(self._accept())
        self._begun.set()
        await asyncio.wait([self._accepting])
        for task in self._waiting:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open, timeout=_FAREWELL)

    async def _accept(self) -> None:
        while True:
            try:
                client, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:  # most likely, the process has as many files open as it may
                self._say_once("no connection is accepted", error)
                self._most = max(len(self._open) // 2, 1)  # the run needs the others
                while self._make_room():
                    pass
                await asyncio.sleep(_PAUSE)
                continue
            if len(self._open) >= self._most and not self._make_room():
                client.close()
                continue
            task = asyncio.create_task(self._answer(client))
            self._open.add(task)
            task.add_done_callback(self._open.discard)
            await asyncio.sleep(0)

    def _make_room(self) -> bool:
        """Close the connection that has kept the server waiting longest; return whether there was one."""
        task = next(iter(self._waiting), None)
        if task is None:
            return False
        del self._waiting[task]
        return task.cancel()

    def _say_once(self, what: str, error: Exception) -> None:
        if what not in self._said:
            self._said.add(what)
            log.warning("%s: %s: %r (said once)", self.url, what, error)

    async def _wait(self, awaited: Awaitable[T], task: asyncio.Task[None]) -> T:
        """Wait for a client, which has its time."""
        self._waiting[task] = None
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                return await awaited
        finally:
            self._waiting.pop(task, None)

    async def _answer(self, client: socket.socket) -> None:
        """Answer one request, and close."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # this one
        client.setblocking(False)
        scope: Scope = {}
        was_read = False

        async def receive() -> Message:
            nonlocal was_read
            if not was_read:
                was_read = True
                return {"type": "http.request"}
            await self._loop.sock_recv(client, 1)  # which is there when it has gone
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                fields = (*message["headers"], (b"connection", b"close"))
                lines = b"".join(b"%b: %b\r\n" % (name, value) for name, value in fields)
                content = b"HTTP/1.1 %d \r\n%b\r\n" % (message["status"], lines)
            else:
                content = b"" if scope["method"] == "HEAD" else message.get("body", b"")
            await self._wait(self._loop.sock_sendall(client, content), task)

        with client, suppress(OSError):
            try:
                head = await self._wait(self._head(client), task)
                if not head:
                    return
                try:
                    scope = _scope(head)
                except ValueError:
                    scope = {"method": ""}
                    await _say(send, 400, "this is no request of HTTP/1.1")
                else:
                    await self._respond(scope, receive, send)
                client.shutdown(socket.SHUT_WR)
            except OSError:
                raise
            except Exception as error:  # one request must not end the others
                self._say_once("a request failed", error)
                await _say(send, 500, "the request failed")

    async def _head(self, client: socket.socket) -> bytes:
        """Return the head of a request; nothing if the client has gone, or has sent too much."""
        head = b""
        while b"\r\n\r\n" not in head:
            part = await self._loop.sock_recv(client, _MOST_HEAD_BYTES - len(head))
            if not part:
                return b""
            head += part
        return head

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["method"] not in ("GET", "HEAD"):
            await _say(send, 405, "GET and HEAD are taken")
        elif path in _PROBES:
            why = self._health.why_not(_PROBES[path])
            await _say(send, 503 if why else 200, why or _PROBES[path])
        else:
            await self._app(scope, receive, send)


def _scope(head: bytes) -> Scope:
    """Return what ASGI has of a request."""
    first, *lines = head.partition(b"\r\n\r\n")[0].decode("ascii").split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    fields = (line.partition(":") for line in lines)
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.strip().encode()) for name, _, value in fields],
    }


async def _say(send: Send, status: int, words: str) -> None:
    fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": f"{words}\n".encode()})
