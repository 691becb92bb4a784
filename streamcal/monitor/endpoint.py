"""An HTTP endpoint for scrapes that no client can crowd or hold up.

A fixed number of threads take one connection at a time, answer one request, and close it. A connection has
`SECONDS` in all, however slowly its bytes come. Further ones wait in the system's queue, of bounded length.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Final

__all__ = ["SECONDS", "THREADS", "Endpoint", "is_loopback", "listen", "named_host", "parse_address"]

THREADS: Final = 4
"""Number of requests that are answered at a time."""
SECONDS: Final = 5.0
"""Time limit of a request, in seconds."""

_WAITING: Final = 16
_HEAD_BYTES: Final = 8192
_PATHS: Final = ("/", "/metrics")

log = logging.getLogger("streamcal")


class Endpoint:
    """Answers GET and HEAD of ``/metrics`` until it is closed.

    Parameters
    ----------
    host, port
        where it listens; port 0 takes a free one.
    answer
        given the header ``Accept`` of a request, returns the content and its type.

    Raises
    ------
    OSError
        if it cannot listen there.
    """

    def __init__(self, host: str, port: int, answer: Callable[[str], tuple[bytes, str]]) -> None:
        self._listener = listen(host, port, _WAITING)
        self._answer = answer
        self.port = int(self._listener.getsockname()[1])
        self._threads = [
            Thread(target=self._serve, name=f"metrics {number}", daemon=True) for number in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Listen no more; what is being answered is answered first."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if self._listener.fileno() < 0 or not _listens(self._listener):
                    return
                log.warning("the metrics endpoint could not take a connection: %s", error)
                time.sleep(1.0)  # such as too many open files: it may pass
                continue
            with connection:
                try:
                    with suppress(OSError):  # the client is too slow, or gone
                        self._handle(connection)
                except Exception:
                    log.exception("the metrics could not be given")  # the next scrape may work

    def _handle(self, connection: socket.socket) -> None:
        deadline = time.monotonic() + SECONDS
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            if len(head) > _HEAD_BYTES:
                _respond(connection, deadline, "431 Request Header Fields Too Large")
                return
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            some = connection.recv(_HEAD_BYTES)
            if not some:
                return
            head += some
        request, *fields = head.decode("latin-1").splitlines()
        method, _, target = request.partition(" ")
        if method not in ("GET", "HEAD"):
            _respond(connection, deadline, "405 Method Not Allowed")
            return
        if target.split(" ")[0].split("?")[0] not in _PATHS:
            _respond(connection, deadline, "404 Not Found")
            return
        accept = [
            value for name, _, value in (each.partition(":") for each in fields) if name.lower() == "accept"
        ]
        content, kind = self._answer(",".join(accept))
        _respond(connection, deadline, "200 OK", kind, content, bodiless=method == "HEAD")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ``[HOST:]PORT``; an IPv6 address stands in brackets: ``[::1]:9100``.

    Raises
    ------
    ValueError
        if it has another form.
    """
    host, _, digits = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if host.startswith("[") and host.endswith("]") else host
    if ":" in bare or bare != host:
        try:
            ipaddress.IPv6Address(bare.partition("%")[0])
        except ValueError:
            raise ValueError(
                f"give [HOST:]PORT, with an IPv6 address in brackets, such as [::1]:9100; got {text!r}"
            ) from None
    if not (digits.isascii() and digits.isdigit() and int(digits[:6]) <= 65_535 and len(digits) <= 5):
        raise ValueError(f"a port is a number from 0 to 65535, got {digits!r} in {text!r}")
    return bare or "127.0.0.1", int(digits)


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Return a socket that listens at an address of IPv4 or IPv6; port 0 takes a free one.

    Raises
    ------
    OSError
        if it cannot listen there.
    """
    family, *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    return socket.create_server((host, port), family=family, backlog=backlog)


def named_host(header: str) -> str:
    """Return the host in the header ``Host`` of a request, without its port and brackets."""
    host = header.rpartition(":")[0] if ":" in header and not header.endswith("]") else header
    return host.removeprefix("[").removesuffix("]")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine and reached from it alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _listens(listener: socket.socket) -> bool:
    return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _respond(
    connection: socket.socket,
    deadline: float,
    status: str,
    kind: str = "text/plain; charset=utf-8",
    content: bytes | None = None,
    *,
    bodiless: bool = False,
) -> None:
    body = f"{status}\n".encode() if content is None else content
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    head += "Connection: close\r\n\r\n"
    connection.settimeout(max(deadline - time.monotonic(), 0.001))
    connection.sendall(head.encode() + (b"" if bodiless else body))
