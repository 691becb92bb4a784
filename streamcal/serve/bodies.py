"""Contents of a request's body: events as JSON or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamcal.serve.http_problems import RefusedError
from streamcal.serve.reading import check_values, count_values

JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"

MOST_LINES: Final = 10_000
"""Most events of one request."""

MOST_EVENT_BYTES: Final = 1 << 20
"""Most bytes of an event."""

MOST_EVENT_VALUES: Final = 20_000
"""Most values of an event, counted as those of a body."""

_BATCHES: Final = (JSON_LINES, "application/jsonl", "application/jsonlines")


def read(headers: Mapping[str, str], body: bytearray) -> tuple[list[bytes], bool]:
    """Return the events of a request, each as JSON, and whether it is a batch, answered line by line.

    Parameters
    ----------
    headers
        by name, in small letters.

    Raises
    ------
    RefusedError
        if it is none of the types that are taken, or holds no event.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == JSON:
        _check_event(body)
        return [bytes(body)], False
    if kind in _BATCHES:
        if not body or body.isspace():
            raise RefusedError(400, "the body holds no event")
        count = body.count(b"\n") + (not body.endswith(b"\n"))
        if count > MOST_LINES:
            raise RefusedError(413, f"the body holds {count:,} events, at most {MOST_LINES:,} may be sent")
        lines = bytes(body).removesuffix(b"\n").split(b"\n")
        for line in lines:
            _check_event(line)
        return lines, True
    taken = ", ".join((JSON, *_BATCHES))
    raise RefusedError(415, f"Content-Type must be one of {taken}, got {kind[:100] or 'none'!r}")


def _check_event(text: bytes | bytearray) -> None:
    if len(text) > MOST_EVENT_BYTES:
        raise RefusedError(413, f"an event may have {MOST_EVENT_BYTES:,} bytes, this one has {len(text):,}")
    if len(text) > MOST_EVENT_VALUES:
        check_values("an event", count_values(text), MOST_EVENT_VALUES)
