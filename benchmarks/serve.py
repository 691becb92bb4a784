"""How many events `streamcal serve` takes, each kept in the store before it is answered: with wrk.

    python benchmarks/serve.py [--seconds 10] [--connections 32]

Needs wrk (apt-get install wrk). Prints requests and events per second, the latency, and what a machine that
does other things, too, changes least: the processor time of the server for each event.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measure import Row

STREAMCAL = [sys.executable, "-c", "from streamcal.cli.app import main; main()"]

# Of every other request, or line, the label follows 20 later.
LOAD = """
local thread = 0
function setup(each) each:set("id", thread); thread = thread + 1 end
function init(args)
  math.randomseed(id + os.time())
  prefix, number, size = string.format("%%d-%%d-", id, math.random(1e9)), 0, %d
end
local function event()
  number = number + 1
  local time = 1.7e9 + number / 100
  return string.format('{"id":"%%s%%d","score":%%.6f,"time":%%d}', prefix, number, math.random(), time)
end
local function label(at)
  return string.format('{"id":"%%s%%d","label":%%d}', prefix, at, math.random() < 0.3 and 1 or 0)
end
local calls = 0
function request()
  calls = calls + 1
  local lines, path = {}, "/v1/predictions"
  if calls %% 2 == 0 and number > 20 * size * %d then
    path = "/v1/labels"
    for i = 1, size do lines[i] = label(number - 20 * size - size + i) end
  else
    for i = 1, size do lines[i] = event() end
  end
  local kind = size == 1 and "application/json" or "application/x-ndjson"
  return wrk.format("POST", path, {["Content-Type"] = kind}, table.concat(lines, "\\n"))
end
"""


def seconds_of(process: int) -> float:
    """Return the processor time that a process took."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(folder: Path, *more: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start a server on a new store, with further options; return it and its URL once it takes requests."""
    server = subprocess.Popen(  # noqa: S603
        [*STREAMCAL, "serve", "--store", str(folder / "store.db"), "--port", "0", *more],
        stderr=subprocess.PIPE,
    )
    assert server.stderr is not None
    url = next(re.findall(rb"http://\S+", line)[0].decode() for line in server.stderr if b"http://" in line)
    for _ in range(200):
        try:
            urllib.request.urlopen(f"{url}/readyz")  # noqa: S310
        except OSError:
            time.sleep(0.1)
        else:
            return server, url
    raise TimeoutError("the server does not get ready")


class Served(NamedTuple):
    """What a server did under load."""

    requests: float
    """Requests a second."""
    p50: str
    p99: str
    processor: float
    """Microseconds of its processor time an event."""
    refused: int


def measure(size: int, seconds: int = 10, connections: int = 32) -> Served:
    """Load a server with requests of so many events, predictions and labels in turn."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "load.lua"
        script.write_text(LOAD % (size, connections))
        server, url = serve(Path(folder))
        before = seconds_of(server.pid)
        try:
            done = subprocess.run(  # noqa: S603
                ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), url],  # noqa: S607
                check=True,
                capture_output=True,
                text=True,
            )
            taken = seconds_of(server.pid) - before
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
    requests = int(re.findall(r"(\d+) requests in", done.stdout)[0])
    rate = float(re.findall(r"Requests/sec:\s+([\d.]+)", done.stdout)[0])
    p50, p99 = (re.findall(rf"{share}%\s+(\S+)", done.stdout)[0] for share in (50, 99))
    refused = re.findall(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    return Served(rate, p50, p99, taken / requests / size * 1e6, int(refused[0]) if refused else 0)


def rows() -> Iterator[Row]:
    """Yield events a second over HTTP."""
    for size, at_least in ((1, 3_000), (100, 100_000)):
        served = measure(size)
        rate = served.requests * size
        yield Row(
            "serve", f"streamcal serve, {size} events a request", None, "events/s", [rate],
            budget=f"≥ {at_least:,}/s", met=rate >= at_least, note=f"median {served.p50}, p99 {served.p99}",
        )  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=32)
    asked = parser.parse_args()
    for size in (1, 100):
        served = measure(size, asked.seconds, asked.connections)
        print(
            f"{size:4} events a request, {asked.connections} connections: {served.requests:,.0f} requests/s,"
            f" {served.requests * size:,.0f} events/s, median {served.p50}, p99 {served.p99},"
            f" {served.processor:,.1f} µs of processor an event; refused: {served.refused}",
            flush=True,
        )
