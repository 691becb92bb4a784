"""Strangers at the metrics and the page of a run; probes, which say what is wrong with it."""

from __future__ import annotations

import http.client
import math
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, make_asgi_app

from streamcal.monitor.health import ALIVE_SECONDS, MOST_LAG, Health
from streamcal.monitor.run_server import MOST_CONNECTIONS, RunServer
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.runner import Inputs, Runner
from tests.serve.attack import CONNECTIONS, attacked, following
from tests.serve.fuzz import files


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lags() -> dict[str, float]:
    return {"0": 0.0}


@pytest.fixture
def health(clock: Clock, lags: dict[str, float]) -> Health:
    source: Any = SimpleNamespace(name="t", lag=lambda: lags)
    return Health([source], clock)


@pytest.fixture
def server(health: Health) -> Iterator[RunServer]:
    server = RunServer("127.0.0.1", 0)
    server.start(make_asgi_app(CollectorRegistry()), health)
    yield server
    server.close()


def asked(server: RunServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20.0)
    with closing(connection):
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_probes_say_what_is_wrong(
    server: RunServer, health: Health, clock: Clock, lags: dict[str, float]
) -> None:
    assert asked(server, "/healthz") == (200, "alive\n")
    assert asked(server, "/readyz") == (503, "the run is starting: it reads its store\n")
    for lag, words in (
        (0.0, None),
        (MOST_LAG + 5.0, "1,000,005 records or bytes are"),
        (math.nan, "does not answer"),
    ):
        lags["0"], clock.now = lag, clock.now + 2.0
        health.take()
        status, said = asked(server, "/readyz")
        assert (status, said == "ready\n") == ((503, False) if words else (200, True))
        assert words is None or ("t, partition 0" in said and words in said)
    clock.now += ALIVE_SECONDS
    assert asked(server, "/healthz")[0] == 200
    clock.now += 1.0
    for path in ("/healthz", "/readyz"):
        status, said = asked(server, path)
        assert (status, "for 61 seconds, at most 60 may" in said) == (503, True)


def test_a_run_that_hangs_in_a_commit_is_not_alive(tmp_path: Path, clock: Clock) -> None:
    hangs, goes_on = Event(), Event()

    class Hanging(NullSink):
        def commit(self, positions: Any) -> Any:
            hangs.set()
            goes_on.wait()
            return super().commit(positions)

    (tmp_path / "e.jsonl").write_text('{"id":"a","score":0.5}\n')
    source = Connectors().source(str(tmp_path / "e.jsonl"))
    health = Health([source], clock)
    health.take()
    runner = Runner(
        Pipeline(),
        Inputs([], [source]),
        Outputs(Hanging()),
        None,
        clock=clock,
        after=lambda _, __: health.take(),
    )
    thread = Thread(target=runner.run)
    thread.start()
    try:
        assert hangs.wait(20.0)
        assert health.why_not("alive") is None
        clock.now += ALIVE_SECONDS + 1.0
        assert "start it anew" in str(health.why_not("alive"))
    finally:
        goes_on.set()
        thread.join()
    assert health.why_not("alive") is None


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200"),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET /metrics?name[]=%FF HTTP/1.1\r\nAccept: text/plain;version=x;q=y\r\n\r\n", b"HTTP/1.1 500"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 405"),
        (b"GET /\xff HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (b"\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3000, b""),
    ],
)
def test_odd_requests_are_answered_or_closed(server: RunServer, request_: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20.0) as client:
        client.sendall(request_)
        try:
            got = client.recv(65536)
        except ConnectionResetError:
            got = b""
    assert got[:12] == status
    assert asked(server, "/healthz")[0] == 200


def test_of_too_many_connections_the_oldest_is_closed(server: RunServer) -> None:
    with ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20.0))
            for _ in range(MOST_CONNECTIONS + 10)
        ]
        assert asked(server, "/healthz")[0] == 200
        assert [each.recv(1) for each in strangers[:10]] == [b""] * 10
        strangers[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert strangers[-1].recv(12) == b"HTTP/1.1 200"


@pytest.mark.slow
@pytest.mark.parametrize(("option", "most"), [("metrics", 200), ("metrics", 40), ("page", 200)])
@pytest.mark.parametrize("seconds", [1.0, pytest.param(60.0, marks=pytest.mark.nightly)])
def test_strangers_cost_a_run_little(tmp_path: Path, option: str, most: int, seconds: float) -> None:
    """They come with more connections than the run may open files."""
    with following(tmp_path, f"--{option}", most) as (run, port):
        before = files(run.pid)
        path = "/metrics" if option == "metrics" else "/page/state"
        found = attacked(run.pid, port, CONNECTIONS, seconds, path, 300)
        assert found.files <= before + MOST_CONNECTIONS + 2
        assert found.growth <= 32 << 10
        with (tmp_path / "e.jsonl").open("a") as events:
            events.write('{"id":"b","score":0.5}\n')
        while (tmp_path / "o.jsonl").read_text().count("\n") < 2:
            assert run.poll() is None, (tmp_path / "log").read_text()
        said = (tmp_path / "log").read_text()
        assert said.count("\n") < 10 + seconds  # the line of progress among them
        assert said.count("no connection is accepted") == (most < MOST_CONNECTIONS)
