"""Attacks by strangers while a good client asks: python -m tests.serve.attack serve --seconds 60.

Connections that never ask, ask slowly, or stay; and bodies that expand when they are decoded.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from streamcal.serve.reading import MOST_BYTES
from tests.forks import Fork
from tests.serve.fuzz import files, memory
from tests.serve.servers import JSON, LINES, Served, exchange

PREDICT = "/v1/predictions"
HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CONNECTIONS: Final = "connections"


@cache
def fields() -> bytes:
    return b"".join(b'"%x":0,' % i for i in range(700_000))


Body = tuple[str, str, Callable[[], bytes]]
"""Path, type, and what makes the content, of megabytes each."""

BODIES: Final[dict[str, Body]] = {
    "lists": (PREDICT, JSON, lambda: b'{"id":"a","score":[%b0]}' % (b"[]," * 2_600_000)),
    "objects in a batch": (PREDICT, LINES, lambda: b"{}\n" * 2_700_000),
    "objects in an event": (PREDICT, JSON, lambda: b'{"id":"a","score":[%b0]}' % (b"{}," * 2_600_000)),
    "fields": (PREDICT, JSON, lambda: b'{%b"id":"a"}' % fields()),
    "fields of lines": (PREDICT, LINES, lambda: (b'{%b"id":"a"}\n' % fields()[:80_000]) * 80),
    "deep": (PREDICT, JSON, lambda: b'{"id":' + b"[" * (MOST_BYTES - 100)),
    "repeated": (PREDICT, JSON, lambda: b'{%b"id":"a"}' % (b'"id":"a",' * 900_000)),
    "escapes": (PREDICT, JSON, lambda: b'{"id":"%b"}' % (b'\\"' * (MOST_BYTES // 2 - 10))),
    "breaks": (PREDICT, LINES, lambda: b"{}" + b"\n" * (MOST_BYTES - 2)),
}
"""Bodies that are refused undecoded."""

ALLOWED: Final[list[Body]] = [
    (PREDICT, JSON, lambda: b'{%b"id":"a"}' % fields()[:190_000]),
    (PREDICT, LINES, lambda: (b'{%b"id":"a"}\n' % fields()[:140]) * 9_900),
    (PREDICT, LINES, lambda: (b'{"id":"%b"}\n' % (b"x" * 800)) * 9_900),
    (PREDICT, JSON, lambda: b'{"id":"%b"}' % (b'\\"' * 500_000)),
]
"""Likewise, those that are decoded, and hold as much as they may."""


class Found(NamedTuple):
    """What an attack did."""

    p99: float
    """Of a good client's requests, in seconds."""
    growth: int
    """Of the server's memory, at most, in KiB."""
    files: int
    """Most files that it had open."""
    asked: int
    failed: int
    """Requests of the good client, and those that were not answered."""


async def _stay(port: int, kind: int) -> None:
    """Connect again and again: never ask (0), ask slowly (1), or stay after a request (2)."""
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write((b"", HEALTH[:-2], HEALTH)[kind])
            ended = asyncio.ensure_future(reader.read())
            while not (await asyncio.wait([ended], timeout=1.0))[0]:
                if kind == 1:
                    writer.write(b"x")
            writer.close()
            ended.result()
        await asyncio.sleep(0.5)


async def _send(port: int, bodies: Sequence[tuple[str, dict[str, str], bytes]]) -> None:
    """Send bodies, one after the other, again and again."""
    while True:
        for path, headers, body in bodies:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            head += f"Content-Type: {headers['content-type']}\r\nContent-Length: {len(body)}\r\n\r\n"
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + body)
                await reader.read()
                writer.close()


def _attack(port: int, name: str, strangers: int) -> None:
    async def attack() -> None:
        if name == CONNECTIONS:
            await asyncio.gather(*(_stay(port, i % 3) for i in range(strangers)))
        given = BODIES.values() if name == "bodies" else ALLOWED
        bodies = [(path, kind, made()) for path, kind, made in given]
        await asyncio.gather(_send(port, bodies), _send(port, bodies[::-1]))

    os.nice(10)  # strangers have processors of their own
    asyncio.run(attack())


def attacked(
    process: int, port: int, name: str | None, seconds: float, path: str = PREDICT, strangers: int = 1020
) -> Found:
    """Attack a server for so long, if at all, while a good client asks for a path."""
    attack = multiprocessing.get_context("fork").Process(target=_attack, args=(port, name, strangers))
    took, failed, end = list[float](), 0, time.monotonic() + seconds
    before = most = memory(process)
    opened = files(process)
    if name is not None:
        attack.start()
    method = "POST" if path == PREDICT else "GET"
    while (start := time.monotonic()) < end:
        body = b'{"id":"g%d","score":0.5}' % len(took) if path == PREDICT else None
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                failed += exchange(connection, method, path, body)[0] != 200
        except (OSError, http.client.HTTPException):
            failed += 1
        took.append(time.monotonic() - start)
        most, opened = max(most, memory(process)), max(opened, files(process))
        time.sleep(max(0.0, 0.02 - took[-1]))
    if name is not None:
        attack.kill()
        attack.join()
    return Found(float(np.quantile(took, 0.99)), most - before, opened, len(took), failed)


@contextmanager
def following(folder: Path, option: str, most_files: int) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run with ``--metrics`` or ``--page`` over a file that it follows; yield its process and the port."""
    (folder / "e.jsonl").write_text('{"id":"a","score":0.5}\n')
    rest = ["--output", folder / "o.jsonl", "--store", folder / "s.db", option, 0]
    with (folder / "log").open("wb") as log:
        run = Fork(["run", "--events", folder / "e.jsonl", "--follow", *rest], stderr=log)
    try:
        while not ((folder / "o.jsonl").exists() and (folder / "o.jsonl").stat().st_size):
            assert run.poll() is None, (folder / "log").read_text()
            time.sleep(0.02)
        resource.prlimit(run.pid, resource.RLIMIT_NOFILE, (most_files, most_files))
        yield run, int(re.findall(r"(?:metrics|page) at \S+?:(\d+)", (folder / "log").read_text())[0])
        assert run.poll() is None, (folder / "log").read_text()
    finally:
        run.kill()
        run.wait()


def main() -> None:
    """Attack for so long, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", choices=["serve", "metrics", "page"])
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        if asked.server == "serve":
            served = Served(Path(name) / "store.db")
            stack.callback(served.stop)
            process, port, path = served.process.pid, served.port, PREDICT
        else:
            run, port = stack.enter_context(following(Path(name), f"--{asked.server}", 1024))
            process, path = run.pid, {"metrics": "/metrics", "page": "/page/state"}[asked.server]
        for attack in (None, CONNECTIONS, "bodies", "allowed")[: 4 if path == PREDICT else 2]:
            found = attacked(process, port, attack, asked.seconds, path)
            print(f"load {os.getloadavg()[0]:.1f}", attack, found, flush=True)


if __name__ == "__main__":
    main()
