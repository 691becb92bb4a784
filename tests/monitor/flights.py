"""A run on the flights with a page: some at once, then 5,000 events a second, as long as it is looked at."""

from __future__ import annotations

import gzip
import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Final, Self

from tests.forks import Fork

_FLIGHTS: Final = Path(__file__).parents[2] / "examples" / "flights"
_RATE: Final = 5_000  # events per second
_TICK: Final = 0.05  # seconds
_HOSTILE: Final = (
    b'{"id":"<img src=x onerror=alert(1)>","score":0.4,"label":7}\nnot JSON <script>alert("raw")</script>\n'
)


def _lines(name: str) -> list[bytes]:
    return gzip.decompress((_FLIGHTS / f"{name}.jsonl.gz").read_bytes()).splitlines(keepends=True)


def _time(line: bytes) -> float:
    time: float = json.loads(line)["time"]
    return time


class LiveFlights:
    """Such a run, from entering it to leaving it.

    Parameters
    ----------
    folder
        for its files.
    at_once
        events that are there at the beginning.
    calibration
        labelled events that are learned first.
    """

    def __init__(self, folder: Path, at_once: int, calibration: int = 4_000) -> None:
        self._folder = folder
        self._predictions, self._labels = _lines("predictions"), _lines("labels")
        self._at = self._labelled = 0
        (folder / "c.toml").write_text("[decision]\nfalse_positive = 1\nfalse_negative = 4\n")
        (folder / "source.jsonl").write_bytes(b"".join(_lines("source")[:calibration]))
        self._files = [(folder / name).open("ab", buffering=0) for name in ("p.jsonl", "l.jsonl")]
        self._write(at_once)
        self._files[1].write(_HOSTILE)
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        files = {"calibration": "source", "events": "p", "labels": "l", "output": "o", "rejects": "r"}
        options = [part for name, file in files.items() for part in (f"--{name}", f"{file}.jsonl")]
        self.process = Fork(
            ["run", "--config", "c.toml", *options, "--follow", "--page", "0"],
            cwd=self._folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = self.process.stderr.readline()
        assert said.startswith("page at http://127.0.0.1:"), said
        self.url = said.split()[-1]
        self._threads = [threading.Thread(target=self._feed), threading.Thread(target=self._drain)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.process.terminate()
        self.process.wait(30.0)
        for thread in self._threads:
            thread.join()
        for file in (*self._files, self.process.stderr):
            file.close()

    def _write(self, count: int) -> None:
        """Append so many events: half of them predictions, and the labels that had come by then."""
        part = self._predictions[self._at : self._at + count // 2]
        if not part:
            return  # the year is over
        self._at += len(part)
        now, first = _time(part[-1]), self._labelled
        while self._labelled < len(self._labels) and _time(self._labels[self._labelled]) <= now:
            self._labelled += 1
        self._files[0].write(b"".join(part))
        self._files[1].write(b"".join(self._labels[first : self._labelled]))

    def _feed(self) -> None:
        start, ticks = time.monotonic(), 0
        while not self._stop.wait(max(0.0, start + ticks * _TICK - time.monotonic())):
            self._write(round(_RATE * _TICK))
            ticks += 1

    def _drain(self) -> None:
        self.said = self.process.stderr.read()
