"""Malformed requests: python -m tests.serve.fuzz --requests 100000.

Bodies, headers, lengths, encodings and broken HTTP. No answer has a status of 500 or more, no request hangs,
and at the end the server holds no more files and answers as before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import change_text
from tests.serve.servers import Served

CONNECTIONS = 16
PATIENCE = 60.0  # seconds for an answer, on a machine that does other things, too
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 0.5, 1.5, -0.0, 1e308, -1e308, 10**400, 5e-324, 1 << 64),
    *("", "a", "1", "0.5", "NaN", "\x00", "\u2028", "\ud800", "é" * 300, "x" * 5000, "2026-01-01T00:00:00Z"),
    *("2026-13-01", "99999999999", [], {}, [1], {"a": 1}, [[[[]]]], "source", "target", "null"),
]
NAMES = ["id", "score", "label", "time", "key", "domain", "Score", "", "x", "inputs", "data", "specversion"]
BODIES = [
    *(
        *(b"", b"\n\n\n", b"{", b"[" * 5000, b'{"a":' * 3000, b"NaN", b'{"score":NaN,"id":"a"}', b"null"),
        *(b'"a"', b"[]"),
    ),
    *(
        *(b"\xef\xbb\xbf{}", b"\xff\xfe{\x00}\x00", b"\x1f\x8b\x08\x00", b"\x00" * 100),
        b'{"id":"a","score":0.5}' * 3,
    ),
    *(b'{"id":"a","id":"b","score":0.1,"score":2}', b'{"id":"\\ud800","score":0.5}'),
]
TYPES = [
    *(
        *("application/json", "application/x-ndjson", "application/json; charset=utf-16", "text/plain", ""),
        "a/b/c",
    ),
    "multipart/form-data; boundary=x",
]
PATHS = [
    *("/v1/predictions", "/v1/labels", "/v1/map", "/metrics"),
    *(
        *("/v1/certificate?key=%00", "/v1/alarms?key=zzz&key=", "/v1/map?key=" + "k" * 3000),
        "/openapi.json",
    ),
    *("/", "//", "/../../etc/passwd", "/%", "/v1/predictions/", "/healthz?x", "*", "/é"),
]
METHODS = ["POST"] * 30 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "post", "X" * 50]
RARE = {
    "Content-Encoding": ["gzip", "identity", "br", "x"],
    "Authorization": ["Bearer x"],
    "Accept": ["*/*", "application/openmetrics-text", "\xff;q=a"],
    "Expect": ["100-continue"],
    "Host": ["evil.example", "", "[::1", "localhost:x", "127.0.0.1:99999"],
    "X-Long": ["y" * 10, "y" * 1000, "y" * 20_000],
}
CHUNKED = b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BROKEN = [
    *(
        CHUNKED + each
        for each in (b"zz\r\n", b"5\r\nab", b"-1\r\n", b"F" * 17 + b"\r\n", b"0\r\n\r\n", b"3\r\nabcX")
    ),
    b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n{",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),
    b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % i for i in range(3000)) + b"\r\n",
]
EXCHANGED = [
    *((b"HTTP/1.1", each) for each in (b"HTTP/9.9", b"", b"HTTP/1.1 x", b"HTTP/0.9", b"HTTP/1.0")),
    *((b"Content-Length: ", each) for each in (b"Content-Length: -", b"Content-Length: 9", b"A: ")),
    *((b"Content-Length: ", b"Transfer-Encoding: " + each) for each in (b"chunked", b"gzip, chunked", b"x")),
    (b"Content-Length", b"Content-Length: 5\r\nContent-Length"),
    *((b"\r\n", each) for each in (b"\n", b"\x00")),
]


def event(rng: random.Random) -> dict[str, Any]:
    values = (rng.choice(VALUES) if rng.random() < 0.7 else rng.random() for _ in range(rng.randrange(6)))
    return {rng.choice(NAMES): value for value in values}


def body(rng: random.Random, kind: int) -> bytes:
    match kind:
        case 0:
            data = json.dumps(event(rng)).encode()
        case 1:
            data = b"\n".join(json.dumps(event(rng)).encode() for _ in range(rng.randrange(5)))
        case 2:
            data = rng.choice([*BODIES, rng.randbytes(rng.randrange(200))])
        case _:
            data = json.dumps({"id": f"g{rng.randrange(50)}", "score": 0.5, "label": 1}).encode()
    data = change_text(data, rng) if rng.random() < 0.2 else data
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data


def request(rng: random.Random) -> tuple[bytes, bool]:
    """Return a request, and whether it is whole HTTP, so that an answer has to come."""
    kind = rng.randrange(4)
    data, method = body(rng, kind), rng.choice(METHODS)
    path = rng.choice(PATHS[:2]) if rng.random() < 0.8 else rng.choice(PATHS)
    of_body = TYPES[kind == 1] if rng.random() < 0.8 else rng.choice(TYPES)
    head = {"Host": "localhost", "Content-Type": of_body, "Content-Length": str(len(data))}
    head |= {name: rng.choice(values) for name, values in RARE.items() if rng.random() < 0.08}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    text = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data
    if rng.random() < 0.15:
        cut, noise = text[: rng.randrange(len(text))], rng.randbytes(rng.randrange(1, 300))
        return rng.choice([*BROKEN, *(text.replace(*pair) for pair in EXCHANGED), cut, noise]), False
    whole = method.isalpha() and method.isupper() and len(method) < 20 and path.isascii() and path != "*"
    return text, whole and method != "HEAD"


async def answer(reader: asyncio.StreamReader, *, bodiless: bool) -> int | None:
    """Return the status of the next answer; None if the connection was closed instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    status = int(head.split(b" ")[1])
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if status == 100:
        return await answer(reader, bodiless=bodiless)
    await reader.readexactly(0 if bodiless else int(fields.get(b"content-length", b"0")))
    return status


async def client(port: int, rng: random.Random, count: int, statuses: Counter[object]) -> None:
    reader = writer = None
    for _ in range(count):
        text, whole = request(rng)
        try:
            if reader is None or writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            if not whole:
                writer.write_eof()
            status = await asyncio.wait_for(answer(reader, bodiless=text[:5] == b"HEAD "), PATIENCE)
            statuses[status] += 1
            assert status is None or status < 500, (status, text)
        except TimeoutError:
            raise AssertionError(f"no answer to {text!r}") from None
        except OSError:  # also that the server closed the connection after the request before
            status = None
            statuses["reset"] += 1
        if (status is None or not whole) and writer is not None:
            writer.close()
            reader = writer = None
    if writer is not None:
        writer.close()


async def load(port: int, seed: int, requests: int) -> Counter[object]:
    statuses, rng = Counter[object](), random.Random(seed)
    each = requests // CONNECTIONS
    await asyncio.gather(
        *(client(port, random.Random(rng.random()), each, statuses) for _ in range(CONNECTIONS))
    )
    return statuses


def files(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def memory(process: int) -> int:
    text = Path(f"/proc/{process}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS")))


def run(requests: int, seed: int) -> str:
    """Send so many requests; return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(Path(folder) / "store.db")
        try:
            asyncio.run(load(server.port, seed + 1, max(requests // 5, 160)))  # what is cached, is now
            before = files(server.process.pid)
            statuses = asyncio.run(load(server.port, seed, requests))
            status, answered = server.predict(id="a good one", score=0.5)
            assert status == 200, answered
            time.sleep(0.5)
            after, kib = files(server.process.pid), memory(server.process.pid)
        finally:
            ended, said = server.stop()
        assert ended == 0, said
        assert "Traceback" not in said, said
        assert after <= before + 2, (before, after)
        found = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items(), key=str))
        return f"{statuses.total():,} requests: {found}; {kib >> 10} MiB, files {before}, then {after}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(run(asked.requests, asked.seed))
