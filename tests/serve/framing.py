"""Framing of HTTP: python -m tests.serve.framing --requests 100000.

Requests in chunks, with trailers, several in a packet or one in many; behind them what is no HTTP. Each
well-formed request gets one well-formed answer, in order; what is malformed gets at most one, of 400 or more,
and the connection is closed. The server lives on, in bounded memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.serve.fuzz import PATIENCE, files, memory
from tests.serve.servers import Served

CONNECTIONS = 32
IDS = 500  # the same ids again and again, so that the state does not grow
MOST_GROWTH = 32 << 10  # KiB

JSON, LINES = b"application/json", b"application/x-ndjson"


class Request(NamedTuple):
    """A request, and what its answer has to be."""

    text: bytes
    status: int
    ids: list[str]
    """Ids in the answer, in order."""
    bodiless: bool = False


def event(rng: random.Random, path: bytes) -> dict[str, object]:
    number = rng.randrange(IDS)
    value = {"label": number % 2} if path.endswith(b"labels") else {"score": number / IDS}
    return {"id": f"f{number}", **value}


def cased(rng: random.Random, name: bytes) -> bytes:
    return rng.choice((name, name.lower(), name.upper()))


def head(rng: random.Random, line: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    """Return a head, with fields in any order and more of them."""
    more = [(b"X-%d" % i, b"y" * rng.randrange(80)) for i in range(rng.choice((0, 0, 1, 5, 40)))]
    mixed = [(b"Host", b"localhost"), *fields, *more]
    rng.shuffle(mixed)
    space = rng.choice((b"", b" ", b" ", b"\t  "))
    rows = b"".join(b"%s:%s%s\r\n" % (cased(rng, name), space, value) for name, value in mixed)
    return rng.choice((b"", b"", b"", b"\r\n")) + line + b"\r\n" + rows + b"\r\n"


def chunked(rng: random.Random, body: bytes) -> bytes:
    """Return a body in chunks, with extensions and trailers."""
    parts, at = [], 0
    most = rng.choice((1, 3, 40, 1 << 20)) if len(body) < 1_000 else 1 << 20  # extensions have 16 KiB at most
    while at < len(body):
        part = body[at : at + rng.randrange(1, most + 1)]
        at += len(part)
        size = b"%x" % len(part)
        size = rng.choice((size, size, size.upper(), b"000" + size))
        parts.append(
            size + rng.choice((b"", b"", b";a=b", b';a="b c"', b";a;b=c")) + b"\r\n" + part + b"\r\n"
        )
    trailers = b"".join(
        rng.choice((b"X: y\r\n", b"Content-Type: x\r\n", b"Authorization: Bearer x\r\n", b"Host: evil\r\n"))
        for _ in range(rng.choice((0, 0, 1, 3)))
    )
    return b"".join(parts) + rng.choice((b"0", b"000", b"0;a=b")) + b"\r\n" + trailers + b"\r\n"


def post(rng: random.Random, path: bytes, kind: bytes, body: bytes) -> bytes:
    fields = [(b"Content-Type", kind)]
    if rng.random() < 0.1:
        fields.append((b"Expect", b"100-continue"))
    if rng.random() < 0.5:
        fields.append((b"Transfer-Encoding", rng.choice((b"chunked", b"Chunked"))))
        body = chunked(rng, body)
    else:
        fields.append((b"Content-Length", b"%d" % len(body)))
    return head(rng, b"POST %s HTTP/1.1" % path, fields) + body


def request(rng: random.Random) -> Request:
    """Return a well-formed request."""
    path = rng.choice((b"/v1/predictions", b"/v1/labels"))
    kind = rng.randrange(8)
    if kind < 3:
        one = event(rng, path)
        return Request(post(rng, path, JSON, json.dumps(one).encode()), 200, [str(one["id"])])
    if kind < 5:
        many = [event(rng, path) for _ in range(rng.choice((1, 2, 30)))]
        body = b"\n".join(json.dumps(each).encode() for each in many)
        return Request(post(rng, path, LINES, body), 200, [str(each["id"]) for each in many])
    if kind == 5:  # answered before its body came
        return Request(post(rng, b"/v1/nothing", JSON, rng.randbytes(rng.choice((0, 10, 3000)))), 404, [])
    if kind == 6:
        return Request(post(rng, path, JSON, b'{"id":'), 400, [])
    method = rng.choice((b"GET", b"GET", b"HEAD"))
    return Request(head(rng, method + b" /healthz HTTP/1.1", []), 200, [], method == b"HEAD")


_START = b"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_IN_CHUNKS = _START + b"Transfer-Encoding: chunked\r\n\r\n"
_NEVER = b'{"id":"never","score":0.5}'
_LENGTH = b"Content-Length: %d\r\n" % len(_NEVER)

MALFORMED: list[bytes] = [
    *(
        _START + b"Content-Length: %s\r\n\r\n" % length + _NEVER
        for length in (b"26x", b"-26", b"+26", b"26,26", b"0x1a", b"2 6", b"9" * 40)
    ),
    _START + _LENGTH + b"Content-Length: 5\r\n\r\n" + _NEVER,
    _START + _LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + _NEVER,
    *(
        _IN_CHUNKS + size + b"\r\n" + _NEVER + b"\r\n0\r\n\r\n"
        for size in (b"zz", b"-1a", b"+1a", b"0x1a", b"", b" ", b"1a x", b"F" * 17, b"5", b"1A\n")
    ),
    _IN_CHUNKS + b"1a\r\n" + _NEVER + b"0\r\n\r\n",
    _IN_CHUNKS + b"1a\r\n" + _NEVER + b"\r\n0\r\nno field\r\n\r\n",
    _IN_CHUNKS + b"1a\r\n" + _NEVER + b"\r\n0\r\n" + b"a: b\r\n" * 10_000,
    _IN_CHUNKS + b"1a;" + b"x" * 40_000,
    _START + b"no field\r\n\r\n",
    _START + b"a b: c\r\n\r\n",
    _START + b"a: \x00\r\n\r\n",
    _START + b": c\r\n\r\n",
    _START + b"a: b\r\n" * 10_000,
    _START + b"a: " + b"b" * 40_000,
    b"GET /" + b"a" * 40_000,
    b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"get /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /healthz FTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]

CLOSING: list[bytes] = [
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n",
    _START + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
]


async def answer(reader: asyncio.StreamReader, *, bodiless: bool = False) -> tuple[int, bytes]:
    """Return the status and the body of the next answer; anything but a well-formed one raises."""
    status = 100
    while status == 100:
        start, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
        version, code, _ = start.split(b" ", 2)
        assert version in (b"HTTP/1.0", b"HTTP/1.1"), start
        status = int(code)
    fields = Counter(line.split(b": ", 1)[0].lower() for line in lines)
    assert fields[b"content-length"] == 1, lines
    assert not fields[b"transfer-encoding"], lines
    length = next(
        int(line.split(b": ", 1)[1]) for line in lines if line.lower().startswith(b"content-length:")
    )
    body = b"" if bodiless else await reader.readexactly(length)
    if body and b"content-type: text/plain; charset=utf-8" not in lines:
        [json.loads(line) for line in body.splitlines()]
    return status, body


def pieces(rng: random.Random, text: bytes) -> list[bytes]:
    """Return a text in packets: one, some, or many small ones."""
    way = rng.randrange(5)
    if way < 2:
        return [text]
    if way < 4:
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(1, 12)))
    else:
        start = rng.randrange(len(text))
        cuts = list(range(start, min(start + 60, len(text)), rng.randrange(1, 4)))
    edges = [0, *cuts, len(text)]
    return [text[low:high] for low, high in pairwise(edges) if high > low]


async def received(connection: socket.socket, reader: asyncio.StreamReader) -> None:
    """Give a reader what comes, to the end; asyncio's own drops it when it is closed while it sends."""
    loop = asyncio.get_running_loop()
    try:
        while data := await loop.sock_recv(connection, 65536):
            reader.feed_data(data)
    except ConnectionError:  # it was closed, and bytes were left
        pass
    reader.feed_eof()


async def converse(port: int, rng: random.Random, most: int, counts: Counter[str]) -> int:
    """Send some requests over one connection, and something at its end; return how many requests."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    asked = [request(rng) for _ in range(min(most, rng.choice((1, 2, 5, 20, 60))))]
    end = rng.choice(("closing", "malformed", "cut"))
    last = {
        "closing": lambda: rng.choice(CLOSING),
        "malformed": lambda: rng.choice(MALFORMED),
        "cut": lambda: (text := request(rng).text)[: rng.randrange(len(text))],
    }[end]()

    async def send() -> None:
        try:
            for piece in pieces(rng, b"".join(each.text for each in asked) + last):
                await loop.sock_sendall(connection, piece)
                await asyncio.sleep(0)
        except ConnectionError:  # it was closed behind what is malformed
            assert end == "malformed"

    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(connection, ("127.0.0.1", port))
        receiving, sending = asyncio.create_task(received(connection, reader)), asyncio.create_task(send())
        for number, each in enumerate(asked):
            try:
                status, body = await answer(reader, bodiless=each.bodiless)
            except asyncio.IncompleteReadError as error:
                answered = f"answer {number} of {len(asked)}, then {end}: {last[-60:]!r}; {error.partial!r}"
                raise AssertionError(f"closed in {answered}") from error
            assert status == each.status, (status, body, each)
            if each.ids:
                assert [json.loads(line)["id"] for line in body.splitlines()] == each.ids, (body, each)
            counts[str(status)] += 1
        await sending
        if end == "cut":
            connection.shutdown(socket.SHUT_WR)
        if end == "closing":
            status, body = await answer(reader)
            assert status == (200 if b"GET" in last else 400), (status, body, last)
        else:
            try:
                status, body = await answer(reader)
            except asyncio.IncompleteReadError as error:  # it was closed
                status, body = 500 if error.partial else 400, error.partial
            assert 400 <= status < 500, (status, body, last)
        assert not await reader.read(), last
        await receiving
    counts[end] += 1
    return len(asked)


async def client(port: int, rng: random.Random, count: int, counts: Counter[str]) -> None:
    while count > 0:
        state = rng.getstate()
        try:
            count -= await asyncio.wait_for(converse(port, rng, count, counts), PATIENCE)
        except Exception as error:
            rng.setstate(state)
            seen = [repr(request(rng))[:300] for _ in range(3)]
            raise AssertionError(f"{error!r} on a connection that began with {seen}") from error


async def load(port: int, seed: int, requests: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    each = -(-requests // CONNECTIONS)
    rngs = [random.Random(f"{seed}/{number}") for number in range(CONNECTIONS)]
    await asyncio.gather(*(client(port, rng, each, counts) for rng in rngs))
    return counts


def run(requests: int, seed: int, watch: Callable[[str], object] = print) -> str:
    """Send so many requests; return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(Path(folder) / "store.db")
        try:
            first = min(max(requests // 5, 320), 4_000)
            asyncio.run(load(server.port, seed + 1, first))  # what is cached, is now
            before = files(server.process.pid), memory(server.process.pid)
            watch(f"begins at {before[1] >> 10} MiB")
            counts = asyncio.run(load(server.port, seed, requests))
            assert server.predict(id="a good one", score=0.5)[0] == 200
            after = files(server.process.pid), memory(server.process.pid)
            again = server.predict(id="never", score=0.25)
        finally:
            ended, said = server.stop()
    assert ended == 0, said
    assert "Traceback" not in said, said
    assert again[0] == 200, again  # else what is malformed was taken: it has another score
    assert after[0] <= before[0] + 2, (before, after)
    assert after[1] <= before[1] + MOST_GROWTH, (before, after)
    found = ", ".join(f"{name}: {count:,}" for name, count in sorted(counts.items()))
    return f"{found}; memory {before[1] >> 10} MiB, then {after[1] >> 10} MiB"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(run(asked.requests, asked.seed))
