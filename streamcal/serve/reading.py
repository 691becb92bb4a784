"""Bodies that are being read: each within a time and a size, all of them within one budget of bytes.

A large one is decoded beside the event loop, and counts until it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeVar

from starlette.types import Message

from streamcal.monitor.run_server import CLIENT_SECONDS
from streamcal.serve.http_problems import RefusedError

MOST_BYTES: Final = 8 << 20
"""Most bytes of a request's body."""

MOST_VALUES: Final = 200_000
"""Most values of a body: commas and opening brackets, also in texts, for they are counted undecoded."""

MOST_READ: Final = 2 * MOST_BYTES
"""Most bytes of all bodies that are being read, but for the first `_FREE` of each."""

_FREE: Final = 16 << 10  # so that large bodies do not keep small ones out

_LARGE: Final = 64 << 10  # bytes

_DRAIN_SECONDS: Final = 1.0  # for what is left of a body, so that its client reads why it was refused

T = TypeVar("T")


async def drain(receive: Callable[[], Awaitable[Message]]) -> None:
    """Drop what is left of a body, unless that takes long: a client that is still sending reads no answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            while (await receive()).get("more_body", False):
                pass


def count_values(text: bytes | bytearray) -> int:
    """Return about how many values a JSON text has: its commas and opening brackets."""
    return sum(map(text.count, (b",", b"[", b"{")))


def check_values(what: str, count: int, most: int) -> None:
    """Refuse a text of too many values."""
    if count > most:
        raise RefusedError(413, f"{what} may have {most:,} commas, [ and {{, this one has {count:,} or more")


class BodyReader:
    """Reads the bodies of requests."""

    def __init__(self) -> None:
        self._reserved = 0

    async def read(
        self,
        headers: Mapping[str, str],
        receive: Callable[[], Awaitable[Message]],
        decode: Callable[[bytearray], T],
    ) -> T:
        """Return what the body of a request holds.

        Raises
        ------
        RefusedError
            if it is too long, too late, or compressed, if too much is being read, or if it cannot be decoded.
        """
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", ""):
            raise RefusedError(
                415, f"the body must not be compressed, got Content-Encoding {encoding[:100]!r}"
            )
        body = bytearray()  # in place: parts and the whole would take twice its memory
        reserved = values = 0
        more = True
        try:
            async with asyncio.timeout(CLIENT_SECONDS) as limit:
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusedError(400, "the request ended before its body did")
                    part = message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) + len(part) > MOST_BYTES:
                        raise RefusedError(413, f"a body may have {MOST_BYTES:,} bytes, this one has more")
                    values += count_values(part)
                    check_values("a body", values, MOST_VALUES)
                    reserved = self._reserve(reserved, len(body) + len(part) - _FREE)
                    body += part
                limit.reschedule(None)
                return decode(body) if len(body) <= _LARGE else await asyncio.to_thread(decode, body)
        except TimeoutError:
            raise RefusedError(408, f"the body did not come within {CLIENT_SECONDS:g} seconds") from None
        finally:
            self._reserved -= reserved

    def _reserve(self, reserved: int, wanted: int) -> int:
        """Count a body with so many bytes of the budget in place of those that it had; return them."""
        if wanted <= reserved:
            return reserved
        if self._reserved + wanted - reserved > MOST_READ:
            raise RefusedError(
                429,
                f"bodies of {self._reserved:,} bytes are being read, at most {MOST_READ:,} may be:"
                " send the same request again",
                retry_after=1,
            )
        self._reserved += wanted - reserved
        return wanted
