"""The application: what is answered at which path.

Requests for events take the short way, without what a framework adds to each; starlette routes the others.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from streamcal.events.columns import Columns
from streamcal.monitor.endpoint import named_host
from streamcal.serve import bodies
from streamcal.serve.http_problems import PROBLEM_TYPE, Problem, RefusedError
from streamcal.serve.openapi import document
from streamcal.serve.outcomes import Result
from streamcal.serve.queries import Queries
from streamcal.serve.request_queue import Kind, RequestQueue
from streamcal.serve.waiting import settle, within

__all__ = ["NO_KEY", "App"]

MOST_BYTES: Final = 8 << 20
"""Most bytes of a request's body."""
_MOST_DROPPED: Final = 8 * MOST_BYTES
READ_SECONDS: Final = 10.0
"""Time limit for a request to arrive, in seconds."""

NO_KEY: Final = "_"
"""The model of the V2 protocol that stands for events without a key."""

_EVENTS: Final[dict[str, Kind]] = {"/v1/predictions": "predictions", "/v1/labels": "labels"}
_OPEN: Final = frozenset({"/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"})
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
        columns: Columns,
        *,
        token: str | None,
        loopback: bool,
        pages: Sequence[BaseRoute] = (),
    ) -> None:
        self._requests = requests
        self._queries = queries
        self._columns = columns
        self._columns_of: dict[Kind, Columns] = {
            "predictions": columns.of("events"),
            "labels": columns.of("labels"),
        }
        self._token = None if token is None else f"Bearer {token}".encode()
        self._only_local = loopback and token is None
        self._others = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/readyz", self._ready),
                Route("/metrics", self._metrics),
                Route("/openapi.json", self._openapi),
                Route("/v1/map", self._asking(queries.map)),
                Route("/v1/certificate", self._asking(queries.certificate)),
                Route("/v1/alarms", self._asking(queries.alarms)),
                Route("/v2", self._server),
                Route("/v2/health/live", self._health),
                Route("/v2/health/ready", self._ready),
                Route("/v2/models/{key}", self._model),
                Route("/v2/models/{key}/ready", self._ready),
                Route("/v2/models/{key}/infer", self._infer, methods=["POST"]),
                *pages,
            ],
            exception_handlers={
                RefusedError: _refused,
                404: _not_found,
                405: _not_allowed,
            },
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        try:
            await self._answer(scope, receive, send)
        except RefusedError as error:
            await _respond(send, error.problem)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._check_caller(scope)
        kind = _EVENTS.get(scope["path"])
        if kind is None:
            await self._others(scope, receive, send)
        elif scope["method"] != "POST":
            raise RefusedError(405, f"{scope['path']} takes POST, got {scope['method'][:20]}")
        else:
            await self._events(kind, scope, receive, send)

    # Events

    async def _events(self, kind: Kind, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        body = await _body(headers, receive)
        lines, many = bodies.read(headers, body, self._columns_of[kind])
        results = await self._results(kind, lines)
        if not many:
            await _respond(send, results[0])
            return
        parts = [
            msgspec.structs.replace(each, line=number) if isinstance(each, Problem) else each
            for number, each in enumerate(results, 1)
        ]
        await _send(send, 200, bodies.JSON_LINES, msgspec.json.Encoder().encode_lines(parts))

    async def _infer(self, request: Request) -> Response:
        try:
            return await self._inferred(request)
        except RefusedError as error:
            return _response(msgspec.structs.replace(error.problem, error=error.problem.detail))

    async def _inferred(self, request: Request) -> Response:
        headers, name = dict(request.headers), request.path_params["key"]
        if "inference-header-content-length" in headers:
            raise RefusedError(415, "tensors must be JSON: the binary extension is not supported")
        _check_json(headers)
        body = await _body(headers, request.receive)
        asked, lines = bodies.tensors(body, None if name == NO_KEY else name, self._columns)
        rows = []
        for index, each in enumerate(await self._results("predictions", lines)):
            if isinstance(each, Problem):
                detail = f"value {index}: {each.detail}"
                return _response(msgspec.structs.replace(each, detail=detail, error=detail))
            rows.append(msgspec.structs.asdict(each))
        outputs = [
            _tensor("probability", "FP64", [row["probability"] for row in rows]),
            _tensor("map_version", "INT64", [row["map_version"] for row in rows]),
        ]
        answer = {"model_name": name, **({} if asked.id is None else {"id": asked.id}), "outputs": outputs}
        return Response(_encode(answer), media_type=bodies.JSON)

    async def _results(self, kind: Kind, lines: list[bytes]) -> list[Result]:
        waiting: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._requests.submit(kind, lines, lambda results: settle(waiting, results))
        return await within(waiting)

    # What is known

    def _asking(
        self, query: Callable[[str | None], Awaitable[bytes]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return Response(await query(request.query_params.get("key")), media_type=bodies.JSON)

        return answer

    async def _health(self, request: Request) -> Response:  # noqa: ARG002
        return Response(b'{"status":"alive"}', media_type=bodies.JSON)

    async def _ready(self, request: Request) -> Response:  # noqa: ARG002
        if not self._requests.ready:
            raise RefusedError(
                503, "the server is starting: it reads its store and its source", retry_after=1
            )
        return Response(b'{"status":"ready"}', media_type=bodies.JSON)

    async def _metrics(self, request: Request) -> Response:
        content, kind = await self._queries.metrics(request.headers.get("accept", ""))
        return Response(content, headers={"content-type": kind})

    async def _openapi(self, request: Request) -> Response:  # noqa: ARG002
        return Response(_encode(document(self._columns)), media_type=bodies.JSON)

    async def _server(self, request: Request) -> Response:  # noqa: ARG002
        about = {"name": "streamcal", "version": self._queries.version, "extensions": []}
        return Response(_encode(about), media_type=bodies.JSON)

    async def _model(self, request: Request) -> Response:
        name = request.path_params["key"]
        version = await self._queries.map_version(None if name == NO_KEY else name)
        about = {
            "name": name,
            "versions": [str(version)],
            "platform": "streamcal",
            "inputs": [
                {"name": "score", "datatype": "FP64", "shape": [-1]},
                {"name": "id", "datatype": "BYTES", "shape": [-1]},
            ],
            "outputs": [
                {"name": "probability", "datatype": "FP64", "shape": [-1]},
                {"name": "map_version", "datatype": "INT64", "shape": [-1]},
            ],
        }
        return Response(_encode(about), media_type=bodies.JSON)

    # Who may ask

    def _check_caller(self, scope: Scope) -> None:
        if scope["path"] in _OPEN:
            return
        if self._token is not None:
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if scope["method"] == "GET":  # to read, and for no other site to write
                given = _as_bearer(given)
            if not hmac.compare_digest(given, self._token):
                raise RefusedError(
                    401, "the header Authorization must be 'Bearer ' and the token of the server"
                )
        elif self._only_local:
            host = next((value for name, value in scope["headers"] if name == b"host"), b"")
            if host and not _is_local(host.decode("latin-1")):
                raise RefusedError(
                    421,
                    "without --token-file, the header Host must name this machine: localhost or an address,"
                    f" got {host[:100].decode('latin-1')!r}",
                )


def _as_bearer(given: bytes) -> bytes:
    """Return the password of a browser's user as the token that it is; anything else as it was given."""
    scheme, _, text = given.partition(b" ")
    if scheme.lower() != b"basic":
        return given
    try:
        return b"Bearer " + base64.b64decode(text, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _is_local(header: str) -> bool:
    """Whether the header ``Host`` holds an address, or localhost: no name that another may let lead here."""
    host = named_host(header)
    if host.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_json(headers: dict[str, str]) -> None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != bodies.JSON:
        raise RefusedError(415, f"Content-Type must be {bodies.JSON}, got {kind[:100] or 'none'!r}")


async def _body(headers: dict[str, str], receive: Callable[[], Awaitable[Message]]) -> bytes:
    """Return the body of a request.

    Raises
    ------
    RefusedError
        if it is too long, too late, or compressed.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", ""):
        raise RefusedError(415, f"the body must not be compressed, got Content-Encoding {encoding[:100]!r}")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(READ_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedError(400, "the request ended before its body did")
                part = message.get("body", b"")
                size += len(part)
                if size <= MOST_BYTES:
                    parts.append(part)
                elif size > _MOST_DROPPED:  # up to here it is read, so that the client gets to the answer
                    break
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise RefusedError(408, f"the body did not come within {READ_SECONDS:g} seconds") from None
    if size > MOST_BYTES:
        raise RefusedError(413, f"a body may have {MOST_BYTES:,} bytes, this one has more")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _tensor(name: str, datatype: str, values: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [len(values)], "data": values}


# Responses


async def _respond(send: Send, result: Result) -> None:
    if isinstance(result, Problem):
        await _send(send, result.status, PROBLEM_TYPE, _encode(result), _headers(result))
    else:
        await _send(send, 200, bodies.JSON, _encode(result))


async def _send(
    send: Send, status: int, kind: str, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(problem: Problem) -> list[tuple[bytes, bytes]]:
    found = []
    if problem.retry_after is not None:
        found.append((b"retry-after", b"%d" % problem.retry_after))
    if problem.status == 401:
        found.append((b"www-authenticate", b"Bearer"))
        found.append((b"www-authenticate", b'Basic realm="streamcal: the token is the password"'))
    if problem.status == 405:
        found.append((b"allow", b"POST"))
    if problem.status in (408, 413):  # the rest of the body is not read
        found.append((b"connection", b"close"))
    return found


def _response(problem: Problem) -> Response:
    headers = {name.decode(): value.decode() for name, value in _headers(problem)}
    return Response(_encode(problem), problem.status, headers, PROBLEM_TYPE)


async def _refused(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RefusedError)  # noqa: S101  # the handler of this class
    return _response(error.problem)


async def _not_found(request: Request, error: Exception) -> Response:  # noqa: ARG001
    return _response(Problem(404, f"there is nothing at {request.url.path[:200]}; see /openapi.json"))


async def _not_allowed(request: Request, error: Exception) -> Response:
    response = _response(Problem(405, f"{request.url.path[:200]} does not take {request.method[:20]}"))
    allow = getattr(error, "headers", None) or {}
    response.headers["allow"] = allow.get("Allow", "GET")
    return response
