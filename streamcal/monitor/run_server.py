"""HTTP of a run's metrics and page: few connections with a request each, in a thread beside the run.

A stranger costs the run little: no thread, at most `MOST_CONNECTIONS` files, and no line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import unquote

from streamcal.monitor.addresses import http_url, listen
from streamcal.monitor.health import Health

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

CLIENT_SECONDS: Final = 10.0
"""Time limit for a client, in seconds: for a head, for a body, for reading an answer."""

MOST_CONNECTIONS: Final = 64
"""Most open connections, but for a moment; of more, the one that has waited longest is closed."""

_AT_ONCE: Final = 4  # accepted before one of them is looked after: few, for that takes some rounds
_BACKLOG: Final = 128
_MOST_HEAD_BYTES: Final = 16 << 10
_FAREWELL: Final = 2.0  # seconds for viewers to get the last record
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
        self.port = int(self._listener.getsockname()[1])
        self.url = http_url(host, self.port)
        """Where it listens, without a path."""
        self.stopping = False
        """Whether it was closed: answers that go on are to end."""
        self._open: set[asyncio.Task[None]] = set()
        self._waiting: dict[asyncio.StreamWriter, None] = {}  # for their clients, the longest first
        self._most, self._said = MOST_CONNECTIONS, False
        self._begun = Event()
        self._thread = Thread(target=lambda: asyncio.run(self._serve()), name="http", daemon=True)

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
                self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(2.0 * _FAREWELL)
        self._listener.close()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda _, context: self._fail(context))
        server = await asyncio.start_server(
            self._answer, sock=self._listener, limit=_MOST_HEAD_BYTES, backlog=_AT_ONCE
        )
        self._listener.listen(_BACKLOG)
        self._begun.set()
        await self._ended.wait()
        server.close()
        while self._make_room():
            pass
        if self._open:
            await asyncio.wait(self._open, timeout=_FAREWELL)

    def _fail(self, context: dict[str, Any]) -> None:
        """Say once that a request failed, or that no file could be opened: leave more of them to the run."""
        if isinstance(error := context.get("exception"), OSError):
            self._most = max(len(self._open) // 2, 1)
            while self._make_room():
                pass
        if not self._said:
            log.warning("%s: %s: %r (said once)", self.url, context["message"], error)
        self._said = True

    def _make_room(self) -> bool:
        """Close the connection that has kept the server waiting longest; return whether there was one."""
        writer = next(iter(self._waiting), None)
        if writer is not None:
            del self._waiting[writer]
            writer.transport.abort()
        return writer is not None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # this one
        requests: list[Message] = [{"type": "http.request"}]

        async def wait(awaited: Awaitable[T]) -> T:  # for the client
            self._waiting[writer] = None
            try:
                async with asyncio.timeout(CLIENT_SECONDS):
                    return await awaited
            finally:
                self._waiting.pop(writer, None)

        async def receive() -> Message:
            if not requests:
                await reader.read(1)  # which is there when it has gone
            return requests.pop() if requests else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            content = message.get("body", b"") if scope["method"] != "HEAD" else b""
            if "status" in message:
                fields = b"".join(b"%b: %b\r\n" % (name, value) for name, value in message["headers"])
                content = b"HTTP/1.1 %d \r\n%bconnection: close\r\n\r\n" % (message["status"], fields)
            writer.write(content)
            await wait(writer.drain())

        self._open.add(task)
        writer.transport.set_write_buffer_limits(0)  # so that what is drained was sent
        try:
            if len(self._open) <= self._most or self._make_room():
                scope = _scope(await wait(reader.readuntil(b"\r\n\r\n")))
                await (self._probe if scope["path"] in _PROBES else self._app)(scope, receive, send)
        except (OSError, EOFError, asyncio.LimitOverrunError, UnicodeError):
            pass  # it has gone, or it sends no request of HTTP/1.1
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _probe(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        state = _PROBES[scope["path"]]
        why = self._health.why_not(state)
        fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"status": 503 if why else 200, "headers": fields})
        await send({"body": f"{why or state}\n".encode()})


def _scope(head: bytes) -> Scope:
    """Return of a request what applications ask of ASGI."""
    first, *lines = head.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    method, target, *_ = [*first.split(" "), ""]
    path, _, query = target.partition("?")
    fields = (line.encode().partition(b":") for line in lines)
    headers = [(name.lower(), value.strip()) for name, _, value in fields]
    more = {"path": unquote(path), "query_string": query.encode(), "headers": headers}
    return {"type": "http", "method": method, **more}
