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

CLOCK, LAGS = SimpleNamespace(now=1000.0), {"0": 0.0}


@pytest.fixture
def health() -> Health:
    source: Any = SimpleNamespace(name="t", lag=lambda: LAGS)
    return Health([source], lambda: CLOCK.now)


@pytest.fixture
def server(health: Health) -> Iterator[RunServer]:
    server = RunServer("127.0.0.1", 0)
    server.start(make_asgi_app(CollectorRegistry()), health)
    yield server
    server.close()


def asked(server: RunServer, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20.0)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_probes_say_what_is_wrong(server: RunServer, health: Health) -> None:
    assert asked(server, "/healthz") == (200, "alive\n")
    assert asked(server, "/readyz") == (503, "the run is starting: it reads its store\n")
    for lag, status, words in (
        (MOST_LAG + 5.0, 503, "t, partition 0: 1,000,005 records or bytes are"),
        (math.nan, 503, "does not answer"),
        (0.0, 200, "ready"),
    ):
        LAGS["0"], CLOCK.now = lag, CLOCK.now + 2.0
        health.take()
        found, said = asked(server, "/readyz")
        assert (found, words in said) == (status, True), said
    CLOCK.now += ALIVE_SECONDS
    assert asked(server, "/healthz")[0] == 200
    CLOCK.now += 1.0
    for path in ("/healthz", "/readyz"):
        found, said = asked(server, path)
        assert (found, "for 61 seconds, at most 60 may" in said) == (503, True)


def test_a_run_that_hangs_in_a_commit_is_not_alive(tmp_path: Path, health: Health) -> None:
    hangs, goes_on = Event(), Event()

    class Hanging(NullSink):
        def commit(self, positions: Any) -> Any:
            hangs.set()
            goes_on.wait()

    (tmp_path / "e.jsonl").write_text('{"id":"a","score":0.5}\n')
    inputs, outputs = Inputs([], [Connectors().source(str(tmp_path / "e.jsonl"))]), Outputs(Hanging())
    health.take()
    runner = Runner(
        Pipeline(), inputs, outputs, None, clock=lambda: CLOCK.now, after=lambda *_: health.take()
    )
    thread = Thread(target=runner.run)
    thread.start()
    assert hangs.wait(20.0)
    before = health.why_not("alive")
    CLOCK.now += ALIVE_SECONDS + 1.0
    meanwhile = health.why_not("alive")
    goes_on.set()
    thread.join()
    assert (before, health.why_not("alive")) == (None, None)
    assert "start it anew" in str(meanwhile)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200"),
        (b"GET /metrics HTTP/1.1\r\nAccept: text/plain;version=x;q=y\r\n\r\n", b""),  # the client fails of it
        (b"GET /\xff HTTP/1.1\r\n\r\n", b""),
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
        assert found.files <= before + MOST_CONNECTIONS + 32  # for a moment
        assert found.growth <= 32 << 10
        with (tmp_path / "e.jsonl").open("a") as events:
            events.write('{"id":"b","score":0.5}\n')
        while (tmp_path / "o.jsonl").read_text().count("\n") < 2:
            assert run.poll() is None, (tmp_path / "log").read_text()
        said = (tmp_path / "log").read_text()
        assert said.count("\n") < 10 + seconds  # the line of progress among them
        assert said.count("said once") == (most < MOST_CONNECTIONS)
