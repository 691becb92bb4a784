"""HTTP of one connection: uvicorn's protocol on httptools, and the limits that it leaves to others.

Others were weighed, all with a bare application. uvicorn on h11 bounds heads and trailers, but chunks of a
byte stop it for seconds, it takes 40 % of the requests, and clients that say nothing stay. hypercorn bounds
nearly all, and takes a fifth of the requests. granian does as much at uvicorn's speed, but its server for use
inside a program is experimental. None has one budget for all bodies, or room for a newcomer.
"""
# ruff: noqa: D102  # the methods are those that asyncio, uvicorn and httptools call

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from streamcal.serve.reading import READ_SECONDS

if TYPE_CHECKING:
    import asyncio

__all__ = ["LimitedProtocol"]

MOST_CONNECTIONS: Final = 800
"""Most open connections; for one more, the one that waits longest for its client is closed. A process may
usually open 1,024 files."""

MOST_HEAD_BYTES: Final = 16 << 10
"""Most bytes of a head, of trailers, or of anything else that is not a body."""

MOST_HEADERS: Final = 100
"""Most fields of a head: an object each, many times as large as a short field."""

_MOST_DROPPED: Final = 1 << 20
"""Most bytes behind what is malformed that are read, so that they do not take the answers before them."""

_PIECE: Final = 1024  # bytes that are parsed at once: all requests in them are held, and all chunks
_LARGE_PIECE: Final = 64 << 10  # … of a body whose length is known
_PIECES: Final = 16  # that are parsed before other connections have their turn

_REFUSAL: Final = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n"
    b"connection: close\r\n\r\n%b"
)


class _Flow(FlowControl):
    """uvicorn's, that reads no more while something waits for its turn."""

    def __init__(self, protocol: LimitedProtocol) -> None:
        super().__init__(protocol.transport)
        self._protocol = protocol

    def resume_reading(self) -> None:
        if self._protocol.refused or not (self._protocol.pipeline or self._protocol._rest):
            super().resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with limits: on bytes that are not a body, on time, and on connections."""

    cycle: Any  # the newest request; None before the first
    _in_head = False
    _left = 0  # bytes of a body whose length is known
    _more: asyncio.Handle | None = None  # there is one while the rest waits for the turn of others
    _unparsed = 0  # bytes since a head, a part of a body or a request was complete
    refused: str = ""  # why nothing more is parsed
    _dropped = 0  # bytes since then
    _rest = b""  # what waits to be parsed
    _late: asyncio.TimerHandle | None = None  # there is one while it waits for its client
    _since = 0.0  # when it began to wait
    _running: RequestResponseCycle | None = None  # what is being answered; uvicorn knows the newest

    # What uvicorn calls

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(self)
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            others: Any = self.connections - {self}
            waiting = [each for each in others if each.waits and not each.transport.is_closing()]
            min(waiting, key=lambda each: each._since, default=self)._leave()

    def data_received(self, data: bytes) -> None:
        if self.refused:
            self._dropped += len(data)
            if self._dropped > _MOST_DROPPED:
                self._leave()
            return
        data = self._rest + data
        self._rest = b""
        start = 0
        for _ in range(_PIECES):
            if start >= len(data) or self.pipeline:
                break
            piece = data[start : start + max(_PIECE, min(_LARGE_PIECE, self._left))]
            start += len(piece)
            self._unparsed += len(piece)
            super().data_received(piece)
            if self._unparsed > MOST_HEAD_BYTES:
                self.send_400_response(f"A head may have {MOST_HEAD_BYTES:,} bytes, and so may trailers.")
            if self._ended:
                return
        if start < len(data):  # answers, and others, first: memory is bounded, and so is the time until then
            self._rest = data[start:]
            self.flow.pause_reading()
            if not self.pipeline and self._more is None:
                self._more = self.loop.call_soon(self._go_on)
        if data and self._late is None and self._answered:
            self._wait()

    def _go_on(self) -> None:
        """Parse the rest."""
        self._more = None
        if not (self.pipeline or self.transport.is_closing()):
            self.data_received(b"")
            if not self._rest:
                self.flow.resume_reading()

    def on_response_complete(self) -> None:
        was_last = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._since = self.loop.time()
        if self.refused:
            if was_last:
                self._refuse()
            return
        if not self.pipeline:
            self.data_received(b"")  # the rest
            self.flow.resume_reading()
        if self._answered and self.cycle.more_body:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._forget()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        if not self.refused:
            self._stop_waiting()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Parse no more; answer the requests before this one, then this one, then close."""
        self.refused = msg
        busy = not self._answered
        if busy and self.cycle.more_body:  # it is malformed itself
            busy = bool(self.pipeline)
            if busy:
                self.pipeline.popleft()
        self.flow.resume_reading()
        if not busy:
            self._refuse()

    def _refuse(self) -> None:
        """Answer what is malformed, unless it was answered before its body; close once its client has."""
        self._forget()
        if not (self._answered and self.cycle is not None and self.cycle.more_body):
            text = self.refused.encode()
            self.transport.write(_REFUSAL % (len(text), text))
        self.transport.write_eof()
        self._wait()

    # What its parser calls

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer
            super().on_header(name, value)
            if name.lower() == b"content-length":
                self._left = int(value)
            if len(self.headers) > MOST_HEADERS:
                raise ValueError(f"more than {MOST_HEADERS} header fields")

    def on_headers_complete(self) -> None:
        self._in_head, self._unparsed = False, 0
        if not self.flow.write_paused:
            self._stop_waiting()
        self._since = self.loop.time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        self._left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = self._left = 0
        super().on_message_complete()

    @property
    def _ended(self) -> bool:
        return bool(self.refused) or self.transport.is_closing()

    # Whom it waits for

    @property
    def waits(self) -> bool:
        """Whether its client is to send or to read something."""
        return self.cycle is None or self.cycle.more_body or self._answered or self.flow.write_paused

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(READ_SECONDS, self._leave)
            self._since = self.loop.time()

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _leave(self) -> None:
        """Close the connection, also if its client does not read what was sent."""
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)
