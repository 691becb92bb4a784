"""A server in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from tests.forks import Fork

JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}


def lines(*events: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, events)).encode()


class Served:
    """`streamcal serve` on a store. What a failed test leaves behind is killed (conftest.py)."""

    running: ClassVar[list[Served]] = []

    def __init__(self, store: Path, *more: object, port: int = 0) -> None:
        self.process = Fork(["serve", "--store", store, "--port", port, *more], stderr=subprocess.PIPE)
        self.running.append(self)
        os.set_blocking(self.process.stderr.fileno(), True)
        self.said = b""
        while b"listening" not in self.said:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError(f"no server: {self.said.decode()}")
            self.said += line
        self.port = int(re.findall(rb"listening at http://\S+:(\d+)", self.said)[0])
        while self.process.poll() is None:  # the log says so when it fails
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)

    def ask(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send a request; return the status and what the answer holds: JSON, or a list of JSON lines."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            return exchange(connection, method, path, body, headers)
        finally:
            connection.close()

    def predict(self, **event: object) -> tuple[int, Any]:
        return self.ask("POST", "/v1/predictions", event)

    def label(self, **event: object) -> tuple[int, Any]:
        return self.ask("POST", "/v1/labels", event)

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        text = self.ask("GET", "/metrics")[1]
        wanted = name + ("{" + ",".join(f'{k}="{v}"' for k, v in labels.items()) + "}" if labels else "")
        return float(re.findall(rf"^{re.escape(wanted)} (\S+)$", text, re.MULTILINE)[0])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit status and what the server wrote on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        if not self.process.stderr.closed:
            with self.process.stderr as stream:
                self.said += stream.read()
        status = self.process.wait(60)
        if self in self.running:
            self.running.remove(self)
        return status, self.said.decode()


def exchange(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any]:
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    with suppress(BrokenPipeError):  # it may refuse a body before it has all of it
        connection.request(method, path, data, JSON if headers is None else headers)
    answer = connection.getresponse()
    content, kind = answer.read(), answer.headers.get("content-type", "")
    if kind == "application/x-ndjson":
        return answer.status, [json.loads(line) for line in content.splitlines()]
    return answer.status, json.loads(content) if "json" in kind else content.decode()
