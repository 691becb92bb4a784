"""The latest status and its server: what is sent, to whom, and that no viewer holds up the run."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from streamcal.monitor.health import Health
from streamcal.monitor.latest_status import LatestStatus, Live
from streamcal.monitor.server import PageServer
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.rows import RejectRow
from tests.monitor.streams import labelled, processed


@pytest.fixture
def latest() -> LatestStatus:
    pipeline = Pipeline()
    processed(pipeline, labelled(300))
    source: Any = SimpleNamespace(name="p", unknown_fields={"x": 1})
    return LatestStatus(pipeline, {"keys": {"limit": 7}}, [source])


@pytest.fixture
def server(latest: LatestStatus) -> Iterator[PageServer]:
    server = PageServer("127.0.0.1", 0)
    server.show(latest, Health([], time.monotonic))
    yield server
    server.close()


def asked(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20.0)
    connection.request(method, path, headers=headers)
    return connection.getresponse(), connection


def content(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    answer, connection = asked(server, path, method, **headers)
    with closing(connection):
        return answer.status, answer.read()


def data(answer: http.client.HTTPResponse) -> Live:
    """Return the next record of a stream of events."""
    while not (line := answer.readline()).startswith(b"data: "):
        assert line
    return msgspec.json.decode(line.removeprefix(b"data: "), type=Live)


def test_a_viewer_gets_each_record_and_the_last_one(server: PageServer, latest: LatestStatus) -> None:
    answer, connection = asked(server, "/page/events")
    with closing(connection):
        first = data(answer)
        assert first == msgspec.json.decode(content(server, "/page/state")[1], type=Live)
        assert (first.state, first.status.join.joined) == ("running", 300)
        assert [(each.code, each.fields) for each in first.status.remarks] == [
            ("unknown_fields", {"fields": {"x": 1}})
        ]
        assert first.status.options == {"keys": {"limit": 7}}
        latest.end()
        last = data(answer)
        assert last.state == "ended"
        assert last.events_per_second == 0.0
        assert answer.read().strip() == b""


def test_a_viewer_that_does_not_read_holds_up_nobody(server: PageServer, latest: LatestStatus) -> None:
    with ExitStack() as stack:
        for _ in range(3):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.sendall(b"GET /page/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stack.enter_context(socket.create_connection(("127.0.0.1", server.port))).sendall(b"GET /pa")
        answer, connection = asked(server, "/page/events")
        stack.callback(connection.close)
        data(answer)
        latest.end()
        assert data(answer).state == "ended"
        server.close()  # returns, whoever still holds a connection
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("host", "status"), [("localhost:{port}", 200), ("evil.example:{port}", 421), ("", 421)]
)
def test_it_answers_to_its_own_names_only(server: PageServer, host: str, status: int) -> None:
    """Another site may let its name mean 127.0.0.1 (DNS rebinding)."""
    assert content(server, "/page/state", Host=host.format(port=server.port))[0] == status


def test_rejects_are_apart_from_the_record_and_cut(server: PageServer, latest: LatestStatus) -> None:
    row = RejectRow("labels.jsonl", 3, "malformed", "not JSON: 'x'", "Jane Doe " + 1_000 * "x")
    latest.take(Outcome([], [row], []))
    latest.end()
    assert b"Jane" not in content(server, "/page/state")[1]
    (shown,) = json.loads(content(server, "/page/rejects")[1])
    assert shown["raw"] == row.raw[:300] + "…"
