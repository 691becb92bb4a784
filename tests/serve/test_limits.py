"""What strangers may send: connections, heads, trailers and bodies that never end cost little, and end."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from select import select
from threading import Thread

import pytest

from streamcal.serve.reading import MOST_BYTES, MOST_READ
from tests.serve.attack import BODIES, CONNECTIONS, attacked
from tests.serve.fuzz import memory
from tests.serve.servers import Served

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"
HEAD = b"POST /v1/labels HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that asks for a token; strangers have none."""
    folder = tmp_path_factory.mktemp("limits")
    (folder / "token").write_text(TOKEN)
    served = Served(folder / "store.db", "--token-file", folder / "token")
    yield served
    status, said = served.stop()
    assert (status, "Traceback" in said) == (0, False), said


@pytest.fixture(scope="module")
def open_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without a token."""
    served = Served(tmp_path_factory.mktemp("open") / "store.db")
    yield served
    status, said = served.stop()
    assert (status, "Traceback" in said) == (0, False), said


def connected(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def flood(connection: socket.socket, lines: bytes, most: int) -> int:
    """Send lines until the server closes the connection, or so many bytes; return how many were sent."""
    sent = 0
    try:
        while sent < most:
            connection.sendall(lines)
            sent += len(lines)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", id="trailers"),
        pytest.param(HEAD, id="head"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;", id="chunk extension"),
    ],
)
def test_header_lines_without_end_are_bounded_in_bytes(server: Served, start: bytes) -> None:
    before = memory(server.process.pid)
    line = b"x" * 1000 if start.endswith((b" ", b";", b"/")) else b"a: b\r\n" * 200
    with closing(connected(server)) as stranger:
        stranger.sendall(start)
        sent = flood(stranger, line, 200 << 20)
    assert sent < 100 << 20
    assert memory(server.process.pid) <= before + (16 << 10)


def test_pipelined_requests_are_all_answered(server: Served) -> None:
    """They have more bytes than a head may have, and come together."""
    fields = b"".join(b"X-%d: %s\r\n" % (i, b"y" * 60) for i in range(3))
    with closing(connected(server)) as client:
        request = HEALTH.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n")
        sending = Thread(target=lambda: client.sendall(request * 3_000))
        sending.start()
        got = b""
        while got.count(b'{"status":"alive"}') < 3_000:
            part = client.recv(65536)
            assert part, got.count(b"200 OK")
            got += part
        sending.join()
    assert 3_000 * len(request) > 16 << 10


def test_who_was_answered_before_its_body_came_is_left(server: Served) -> None:
    """A byte now and then does not keep the connection."""
    with ExitStack() as stack:
        strangers = []
        for _ in range(5):
            strangers.append(stranger := stack.enter_context(closing(connected(server))))
            stranger.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")
            assert stranger.recv(12) == b"HTTP/1.1 401"
            stranger.settimeout(0.5)
        left = set(strangers)
        for _ in range(100):  # each at most half a second
            for stranger in tuple(left):
                try:
                    stranger.sendall(b"x")
                    if not stranger.recv(65536):
                        left.discard(stranger)
                except TimeoutError:
                    continue
                except ConnectionError:
                    left.discard(stranger)
                if len(left) < len(strangers):
                    break
            if not left:
                break
        assert not left


def test_who_does_not_read_is_left(server: Served) -> None:
    before = memory(server.process.pid)
    with closing(connected(server)) as stranger:
        sent = flood(stranger, HEALTH * 1000, 1 << 30)
    assert sent < 1 << 30
    assert memory(server.process.pid) <= before + (8 << 10)


def test_bodies_that_are_being_read_share_a_budget(open_one: Served) -> None:
    before = memory(open_one.process.pid)
    text = HEAD + b"Content-Length: %d\r\n\r\n" % MOST_BYTES + b" " * (MOST_BYTES - 1)
    with ExitStack() as stack:
        large: list[socket.socket] = []
        for _ in range(50):  # until two, which take all of it, are read; else one of them may be refused
            large = [each for each in large if not select([each], [], [], 0)[0]]
            while len(large) < 2:
                large.append(stack.enter_context(closing(connected(open_one))))
                large[-1].sendall(text)
                time.sleep(0.1)
            status, problem = open_one.ask("POST", "/v1/labels", b" " * MOST_BYTES)
            if status == 429:
                break
        assert (status, problem["retry_after"]) == (429, 1)
        assert f"at most {MOST_READ:,}" in problem["detail"]
        assert open_one.label(id="small", label=1)[0] == 200  # a small one is no part of it
        more = [stack.enter_context(closing(connected(open_one))) for _ in range(28)]
        sending = [Thread(target=flood, args=(each, text, MOST_BYTES)) for each in more]
        for thread in sending:
            thread.start()
        for thread in sending:
            thread.join()
        # all would take 240 MiB; a whole one, which came before, is read, copied and kept in the journal
        assert memory(open_one.process.pid) <= before + (96 << 10)
        assert {each.recv(12) for each in more} <= {b"HTTP/1.1 429", b"HTTP/1.1 408"}  # in time, or late
    assert open_one.ask("POST", "/v1/labels", b" " * MOST_BYTES)[0] != 429


@pytest.mark.parametrize("name", BODIES)
def test_a_body_of_too_many_values_is_refused_undecoded(open_one: Served, name: str) -> None:
    path, kind, made = BODIES[name]
    body, before = made(), memory(open_one.process.pid)
    for _ in range(3):
        status, problem = open_one.ask("POST", path, body, kind)
        assert (status, "at most" in problem["detail"] or "may have" in problem["detail"]) == (413, True)
    assert memory(open_one.process.pid) <= before + (32 << 10)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [CONNECTIONS, "bodies"])
def test_a_good_client_is_answered_meanwhile(tmp_path: Path, name: str) -> None:
    served = Served(tmp_path / "store.db")
    attacked(served.process.pid, served.port, None, 2.0)  # what is allocated once, is now
    found = attacked(served.process.pid, served.port, name, 60.0)
    assert (served.stop()[0], found.failed) == (0, 0)
    assert found.growth <= 32 << 10
