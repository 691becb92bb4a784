"""Malformed requests: python -m tests.serve.fuzz --requests 100000.

Bodies, headers, lengths, encodings, broken HTTP and slow clients. No answer has a status of 500 or more, no
request hangs, and at the end the server holds no more files and answers as before.
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

from tests.serve.servers import Served

CONNECTIONS = 16
PATIENCE = 60.0  # seconds for an answer, on a machine that does other things, too
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 0.5, 1.5, -0.0, 1e308, -1e308, 10**400, 5e-324, 1 << 64),
    *("", "a", "1", "0.5", "NaN", "\x00", "\u2028", "\ud800", "é" * 300, "x" * 5000, "2026-01-01T00:00:00Z"),
    *("2026-13-01", "99999999999", [], {}, [1], {"a": 1}, [[[[]]]], "source", "target", "null"),
]
NAMES = ["id", "score", "label", "time", "key", "domain", "Score", "", "x", "inputs", "data", "specversion"]
TYPES = [
    *("application/json", "application/x-ndjson"),
    *("application/jsonl", "application/json; charset=utf-16", "text/plain", "", "a/b/c", "\xff"),
    "multipart/form-data; boundary=x",
]
PATHS = [
    *("/v1/predictions", "/v1/labels", "/v2/models/_/infer", "/v2/models/a%2Fb/infer", "/v1/map", "/metrics"),
    *(
        "/v1/certificate?key=%00",
        "/v1/alarms?key=zzz&key=",
        "/v1/map?key=" + "k" * 3000,
        "/openapi.json",
        "/v2",
    ),
    *("/", "//", "/../../etc/passwd", "/%", "/v1/predictions/", "/v2/models//infer", "/healthz?x", "*", "/é"),
]
METHODS = ["POST"] * 30 + ["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "post", "X" * 50]


def event(rng: random.Random) -> dict[str, Any]:
    return {
        rng.choice(NAMES): rng.choice(VALUES) if rng.random() < 0.7 else rng.random()
        for _ in range(rng.randrange(6))
    }


def tensors(rng: random.Random) -> dict[str, Any]:
    size = rng.randrange(4)
    made = [
        {
            "name": "score",
            "shape": [size],
            "datatype": "FP64",
            "data": [rng.choice(VALUES) for _ in range(size)],
        },
        {
            "name": "id",
            "shape": [size],
            "datatype": "BYTES",
            "data": [f"f{rng.randrange(9)}" for _ in range(size)],
        },
    ]
    one = rng.choice(made)
    one[rng.choice(sorted(one))] = rng.choice([*VALUES, [size, 1], [-1], ["x"]])
    return {"inputs": rng.choice([made, made[:1], made * 2, rng.choice(VALUES)])}


def body(rng: random.Random, kind: int) -> bytes:
    if kind == 0:
        data = json.dumps(event(rng)).encode()
    elif kind == 1:
        data = b"\n".join(json.dumps(event(rng)).encode() for _ in range(rng.randrange(5)))
    elif kind == 2:
        data = json.dumps(tensors(rng)).encode()
    elif kind == 3:
        data = rng.choice(
            [
                *(
                    b"",
                    b"\n",
                    b"\n\n\n",
                    b"{",
                    b"[" * 5000,
                    b'{"a":' * 3000,
                    b"NaN",
                    b'{"score":NaN,"id":"a"}',
                ),
                *(
                    b"\xef\xbb\xbf{}",
                    b"\xff\xfe{\x00}\x00",
                    b"\x1f\x8b\x08\x00",
                    b"null",
                    b"1",
                    b'"a"',
                    b"[]",
                ),
                *(
                    b'{"id":"a","id":"b","score":0.1,"score":2}',
                    b'{"id":"\\ud800","score":0.5}',
                    b"\x00" * 100,
                ),
                b'{"id":"a","score":0.5}' * 3,
            ]
        )
    elif kind == 4:
        data = rng.randbytes(rng.randrange(200))
    else:
        data = json.dumps({"id": f"g{rng.randrange(50)}", "score": 0.5, "label": 1}).encode()
    if rng.random() < 0.2 and data:
        mutable = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            mutable[rng.randrange(len(mutable))] = rng.randrange(256)
        data = bytes(mutable)
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data


def request(rng: random.Random) -> tuple[bytes, bool]:
    """Return a request, and whether it is whole HTTP, so that an answer has to come."""
    kind = rng.randrange(6)
    data = body(rng, kind)
    method, path = rng.choice(METHODS), rng.choice(PATHS[:2] if rng.random() < 0.8 else PATHS)
    if kind == 2 and rng.random() < 0.8:
        path = "/v2/models/_/infer"
    fits = TYPES[kind == 1]
    head = {
        "Host": "localhost",
        "Content-Type": fits if rng.random() < 0.8 else rng.choice(TYPES),
        "Content-Length": str(len(data)),
    }
    rare = (
        ("Content-Encoding", rng.choice(["gzip", "identity", "br", "x"])),
        ("Inference-Header-Content-Length", "3"),
        ("Authorization", "Bearer x"),
        ("Accept", rng.choice(["*/*", "application/openmetrics-text", "\xff;q=a"])),
        ("Expect", "100-continue"),
        ("Host", rng.choice(["evil.example", "", "[::1", "localhost:x", "127.0.0.1:99999"])),
        ("X-Long", "y" * rng.choice([10, 1000, 20_000])),
    )
    head |= {name: value for name, value in rare if rng.random() < 0.08}
    whole = method.isalpha() and method.isupper() and len(method) < 20 and path.isascii() and path != "*"
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    text = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + data
    if rng.random() < 0.15:
        whole = False
        text = rng.choice(
            [
                text.replace(
                    b"HTTP/1.1", rng.choice([b"HTTP/9.9", b"", b"HTTP/1.1 x", b"HTTP/0.9", b"HTTP/1.0"])
                ),
                text.replace(
                    b"Content-Length: ", rng.choice([b"Content-Length: -", b"Content-Length: 9", b"A: "])
                ),
                text.replace(b"Content-Length", b"Content-Length: 5\r\nContent-Length"),
                text.replace(b"\r\n", b"\n"),
                text.replace(b"\r\n", b"\x00"),
                text.replace(
                    b"Content-Length: %d" % len(data),
                    b"Transfer-Encoding: " + rng.choice([b"chunked", b"gzip, chunked", b"x"]),
                ),
                b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
                + rng.choice(
                    [b"zz\r\n", b"5\r\nab", b"-1\r\n", b"FFFFFFFFFFFFFFFFF\r\n", b"0\r\n\r\n", b"3\r\nabcX"]
                ),
                b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n{",
                text[: rng.randrange(len(text))],
                rng.randbytes(rng.randrange(1, 300)),
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(64),
                b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % i for i in range(3000)) + b"\r\n",
            ]
        )
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
    length = int(fields.get(b"content-length", b"0"))
    await reader.readexactly(0 if bodiless else length)
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


async def slow(port: int, rng: random.Random) -> float:
    """Send a part of a request and wait; return how long the server waited before it gave up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(rng.choice([b"", head[:30], head, head + b"Content-Length: 50\r\n\r\n{", head + b"X: y"]))
    start = time.monotonic()
    while True:
        try:
            got = await asyncio.wait_for(reader.read(4096), PATIENCE)
        except ConnectionError:
            got = b""
        if not got:
            writer.close()
            return time.monotonic() - start


async def load(port: int, seed: int, requests: int, slow_ones: int) -> tuple[Counter[object], float]:
    statuses: Counter[object] = Counter()
    rng = random.Random(seed)
    waiting = [asyncio.create_task(slow(port, random.Random(seed + i))) for i in range(slow_ones)]
    each = requests // CONNECTIONS
    clients = [client(port, random.Random(rng.random()), each, statuses) for _ in range(CONNECTIONS)]
    await asyncio.gather(*clients)
    longest = max(await asyncio.gather(*waiting), default=0.0)
    return statuses, longest


def files(process: int) -> int:
    return len(list(Path(f"/proc/{process}/fd").iterdir()))


def memory(process: int) -> int:
    text = Path(f"/proc/{process}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS")))


def run(requests: int, seed: int, slow_ones: int = 50) -> str:
    """Send so many requests; return what was found."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(Path(folder) / "store.db")
        try:
            asyncio.run(load(server.port, seed + 1, max(requests // 5, 160), 0))  # what is cached, is now
            before = files(server.process.pid), memory(server.process.pid)
            statuses, longest = asyncio.run(load(server.port, seed, requests, slow_ones))
            status, answered = server.predict(id="a good one", score=0.5)
            assert status == 200, answered
            time.sleep(0.5)
            after = files(server.process.pid), memory(server.process.pid)
        finally:
            ended, said = server.stop()
        assert ended == 0, said
        assert "Traceback" not in said, said
        assert after[0] <= before[0] + 2, (before, after)
        found = ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items(), key=str))
        return (
            f"{sum(statuses.values()):,} requests: {found}; slow clients were left after at most"
            f" {longest:.1f} seconds; memory {before[1] >> 10} MiB, then {after[1] >> 10} MiB; files"
            f" {before[0]}, then {after[0]}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(run(asked.requests, asked.seed))
