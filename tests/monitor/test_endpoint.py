"""The metrics endpoint: it answers, and no client, slow, silent or many, costs more than its share."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from streamcal.monitor import endpoint
from streamcal.monitor.build import build_status
from streamcal.monitor.endpoint import THREADS, Endpoint, parse_address
from streamcal.monitor.metrics import RunMetrics
from streamcal.run.pipeline import Pipeline


@pytest.fixture(params=["127.0.0.1", "::1"])
def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(endpoint, "SECONDS", 1.0)
    if request.param == "::1":
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
    measured = RunMetrics([])
    measured.update(build_status(Pipeline()))
    serving = measured.serve(request.param, 0)
    yield request.param, serving.port
    serving.close()


def get(
    host: str, port: int, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    found = answer.status, str(answer.getheader("Content-Type")), answer.read()
    connection.close()
    return found


def test_what_is_answered(served: tuple[str, int]) -> None:
    status, kind, text = get(*served)
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert b"streamcal_events_total 0.0" in text
    status, kind, text = get(*served, Accept="application/openmetrics-text; version=1.0.0")
    assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
    assert get(*served, path="/metrics?x=1", method="HEAD")[::2] == (200, b"")
    assert get(*served, path="/other")[0] == 404
    assert get(*served, method="POST")[0] == 405


@pytest.mark.slow
def test_slow_silent_and_many_clients_cost_no_threads(served: tuple[str, int]) -> None:
    """They get their time and no more; then the next one is served."""
    before = threading.active_count()
    clients = []
    for number in range(3 * THREADS):
        client = socket.create_connection(served)
        client.sendall([b"", b"GET /metr", b"GET / HTTP/1.1\r\nX: 1\r\n"][number % 3])
        clients.append(client)
    assert threading.active_count() == before
    assert get(*served)[0] == 200
    assert threading.active_count() == before
    for client in clients:
        assert client.recv(1) == b""  # it was closed
        client.close()


def test_a_head_without_end(served: tuple[str, int]) -> None:
    with socket.create_connection(served) as client:
        client.sendall(b"GET / HTTP/1.1\r\nX: ".ljust(8193, b"y"))
        assert client.recv(12) == b"HTTP/1.1 431"
    for rubbish in (b"\r\n\r\n", b"\xff\n\n", b" \n\n", b"GET\n\n"):
        with socket.create_connection(served) as client:
            client.sendall(rubbish)
            assert client.recv(10).startswith(b"HTTP/1.1 4")
    assert get(*served)[0] == 200


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9100", "127.0.0.1", 9100),
        (":9100", "127.0.0.1", 9100),
        ("localhost:0", "localhost", 0),
        ("0.0.0.0:65535", "0.0.0.0", 65535),
        ("[::1]:9100", "::1", 9100),
        ("[::]:9100", "::", 9100),
        ("[fe80::1%lo]:9100", "fe80::1%lo", 9100),
        ("::1:9100", "::1", 9100),
    ],
)
def test_an_address(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)


@pytest.mark.parametrize("text", ["", "x", "host:", "65536", "-1", "1e3", "٣", "9" * 5000, "host:99999999"])
def test_a_port_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="a port is a number from 0 to 65535, got "):
        parse_address(text)


@pytest.mark.parametrize("text", ["::1", "[::1]", "[x]:9100", "a:b:9100", "[127.0.0.1]:9100"])
def test_an_ipv6_address_needs_its_brackets(text: str) -> None:
    with pytest.raises(ValueError, match=r"with an IPv6 address in brackets, such as \[::1\]:9100"):
        parse_address(text)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        Endpoint("127.0.0.1", taken.getsockname()[1], lambda _: (b"", ""))
