"""Routes of the page: its files, and the latest status of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from streamcal.monitor.latest_status import LatestStatus

_LOOK: Final = 0.5  # seconds between two looks for a new record
_SILENCE: Final = 15.0  # seconds after which a viewer is told that nothing is new: it may be gone
_MOST_VIEWERS: Final = 50

_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def page_routes(latest: LatestStatus, stopping: Callable[[], bool]) -> list[Route]:
    """Return the routes of the page: ``/``, and what lies below ``/page/``.

    ``/page/events`` sends the latest status as a server-sent event whenever there is a new one,
    ``/page/state`` returns the newest, and ``/page/rejects`` the latest rejects with their raw text. There is
    no access control: whoever mounts them decides who may ask.

    Parameters
    ----------
    latest
        what is shown.
    stopping
        whether the server is to stop, and waits for its viewers to go: within a second they do.
    """
    viewers = 0

    async def state(_: Request) -> Response:
        return Response(latest.posted.record, media_type="application/json", headers=_HEADERS)

    async def rejects(_: Request) -> Response:
        return Response(latest.posted.rejects, media_type="application/json", headers=_HEADERS)

    async def sent() -> AsyncIterator[bytes]:
        nonlocal viewers
        viewers += 1
        try:
            yield b"retry: 2000\n\n"
            number, silent = -1, 0.0
            while True:
                posted = latest.posted
                if posted.number != number:
                    number, silent = posted.number, 0.0
                    yield b"data: " + posted.record + b"\n\n"
                elif silent >= _SILENCE:
                    silent = 0.0
                    yield b": still here\n\n"
                if posted.ended or stopping():
                    return
                await asyncio.sleep(_LOOK)
                silent += _LOOK
        finally:
            viewers -= 1

    async def events(_: Request) -> Response:
        if viewers >= _MOST_VIEWERS:
            text = f"{_MOST_VIEWERS} viewers are connected, and no more are admitted\n"
            return Response(text, 503, _HEADERS, "text/plain")
        return StreamingResponse(sent(), media_type="text/event-stream", headers=_HEADERS)

    return [
        Route("/", _part("index.html")),
        Route("/page/state", state),
        Route("/page/rejects", rejects),
        Route("/page/events", events),
        *(
            Route(f"/page/{part.name}", _part(part.name))
            for part in files(__package__).joinpath("static").iterdir()
            if part.name != "index.html"
        ),
    ]


def _part(name: str) -> Callable[[Request], Awaitable[Response]]:
    content = files(__package__).joinpath("static", name).read_bytes()
    kind = _KINDS[name.rpartition(".")[2]]

    async def answer(_: Request) -> Response:
        return Response(content, media_type=kind, headers=_HEADERS)

    return answer
