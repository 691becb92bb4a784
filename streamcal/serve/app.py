"""The application: what is answered at which path.

Requests for events take the short way, without what a framework adds to each; starlette routes the others.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamcal.monitor.addresses import names_this_machine
from streamcal.monitor.health import Health
from streamcal.run.config import RunConfig
from streamcal.serve import bodies
from streamcal.serve.http_problems import PROBLEM_TYPE, Problem, RefusedError
from streamcal.serve.openapi import OPEN, document
from streamcal.serve.queries import Queries
from streamcal.serve.reading import BodyReader, drain
from streamcal.serve.request_queue import STARTING, Kind, RequestQueue

_EVENTS: Final[dict[str, Kind]] = {"/v1/predictions": "predictions", "/v1/labels": "labels"}
_encode: Final = msgspec.json.Encoder().encode


class App:
    """The application.

    Parameters
    ----------
    token
        what every request but those of health has to bear; None: nothing.
    loopback
        whether only this machine can reach it. Without a token, a request must then name it so: a page of the
        web whose name leads here is refused.
    pages
        further routes.
    """

    def __init__(
        self,
        requests: RequestQueue,
        queries: Queries,
        options: RunConfig,
        health: Health,
        *,
        token: str | None,
        loopback: bool,
        pages: Sequence[BaseRoute] = (),
    ) -> None:
        self._requests = requests
        self._bodies = BodyReader()
        self._queries = queries
        self._health = health
        self._options = options
        self._token = None if token is None else token.encode()
        self._only_local = loopback and token is None
        self._others = Starlette(
            routes=[
                Route("/healthz", self._probe("alive")),
                Route("/readyz", self._probe("ready")),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._openapi),
                Route("/v1/map", self._asking(queries.map)),
                Route("/v1/certificate", self._asking(queries.certificate)),
                Route("/v1/alarms", self._asking(queries.alarms)),
                *pages,
            ],
            exception_handlers={RefusedError: _refused, HTTPException: _not_routed},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        more, waited = True, False

        async def received() -> Message:
            nonlocal more
            message = await receive()
            more = message.get("more_body", False)
            return message

        answer: ASGIApp = self._others
        try:
            self._check_caller(scope)
            if kind := _EVENTS.get(scope["path"]):
                answer = await self._events(kind, scope, received)
        except RefusedError as error:
            answer, waited = _problem(error.problem), error.problem.status == 408
        if more and not waited:
            await drain(received)
        await answer(scope, receive, send)

    # Events

    async def _events(self, kind: Kind, scope: Scope, receive: Receive) -> Response:
        if scope["method"] != "POST":
            raise RefusedError(405, f"{scope['path']} takes POST, got {scope['method'][:20]}")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        lines, many = await self._bodies.read(headers, receive, partial(bodies.read, headers))
        results = await self._requests.submit(kind, lines)
        if not many:
            return _problem(results[0]) if isinstance(results[0], Problem) else _json(results[0])
        if Problem in set(map(type, results)):
            results = [
                msgspec.structs.replace(each, line=number) if isinstance(each, Problem) else each
                for number, each in enumerate(results, 1)
            ]
        return Response(msgspec.json.Encoder().encode_lines(results), media_type=bodies.JSON_LINES)

    # What is known

    def _asking(
        self, query: Callable[[str | None], Awaitable[bytes]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return Response(await query(request.query_params.get("key")), media_type=bodies.JSON)

        return answer

    def _probe(self, state: Literal["alive", "ready"]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:  # noqa: ARG001
            begun = state == "alive" or self._requests.ready
            if why := self._health.why_not(state) if begun else STARTING:
                raise RefusedError(503, why, retry_after=1)
            return _json({"status": state})

        return answer

    async def _metrics(self, request: Request) -> Response:
        content, kind = await self._queries.metrics(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": kind})

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002
        return _json(document(self._options))

    # Who may ask

    def _check_caller(self, scope: Scope) -> None:
        if scope["path"] in OPEN:
            return
        if self._token is not None:
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            # a browser's user may read; else another site could make the browser write
            given = _token_in(given, basic=scope["method"] == "GET")
            if not hmac.compare_digest(given, self._token):
                raise RefusedError(
                    401, "the header Authorization must be 'Bearer ' and the token of the server"
                )
        elif self._only_local:
            host = next((value for name, value in scope["headers"] if name == b"host"), b"")
            if host and not names_this_machine(host.decode("latin-1")):
                raise RefusedError(
                    421,
                    "without --token-file, the header Host must name this machine: localhost or an address,"
                    f" got {host[:100].decode('latin-1')!r}",
                )


def _token_in(given: bytes, *, basic: bool) -> bytes:
    """Return the token in a header Authorization, where it may be the password of a browser's user."""
    scheme, _, text = given.partition(b" ")
    if scheme.lower() == b"bearer":
        return text.strip()
    if scheme.lower() != b"basic" or not basic:
        return b""
    try:
        return base64.b64decode(text, validate=True).partition(b":")[2]
    except ValueError:
        return b""


# Responses


def _json(answer: object) -> Response:
    return Response(_encode(answer), media_type=bodies.JSON)


def _problem(problem: Problem, allow: str = "POST") -> Response:
    response = Response(_encode(problem), problem.status, media_type=PROBLEM_TYPE)
    headers = response.headers
    if problem.retry_after is not None:
        headers["retry-after"] = str(problem.retry_after)
    if problem.status == 401:
        headers.append("www-authenticate", "Bearer")
        headers.append("www-authenticate", 'Basic realm="streamcal: the token is the password"')
    if problem.status == 405:
        headers["allow"] = allow
    if problem.status == 408:  # the rest would come no sooner; after others it is dropped, and so read
        headers["connection"] = "close"
    return response


async def _refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RefusedError)  # noqa: S101  # the handler of this class
    return _problem(error.problem)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    path = request.url.path[:200]
    if error.status_code == 404:
        return _problem(Problem(404, f"there is nothing at {path}; see /openapi.json"))
    allow = (error.headers or {}).get("Allow", "GET")
    return _problem(Problem(error.status_code, f"{path} does not take {request.method[:20]}"), allow)
