"""The command line's terminal: messages on standard error, progress, signals and exit statuses."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from types import FrameType
from typing import Final, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from streamcal.run.ports import StoppedError
from streamcal.run.rows import RejectRow

__all__ = [
    "EXIT_INTERRUPTED",
    "EXIT_NOTHING_READ",
    "EXIT_UNUSABLE",
    "EXIT_USAGE",
    "Meter",
    "RejectLog",
    "Stop",
    "fail",
    "give_up_standard_output",
    "hold_standard_streams",
    "set_up_logging",
    "stop_status",
    "stopped",
]

EXIT_NOTHING_READ: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNUSABLE: Final = 3
"""The store or an output cannot be used."""
EXIT_INTERRUPTED: Final = 130

_EVERY_SECONDS: Final = 5.0
_SHOWN_REJECTS: Final = 3

log = logging.getLogger("streamcal")


class _JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and the fields of ``extra={"fields": …}``."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(fields).decode()


def set_up_logging(*, as_json: bool) -> None:
    """Send the log of streamcal and its connectors to standard error, from level ``info`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else logging.Formatter("%(message)s"))
    for name in ("streamcal", "streamcal_connectors"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
        logger.propagate = False


def hold_standard_streams() -> None:
    """Keep the descriptors 0 to 2, if they are closed, from being given to a file of the run.

    What is meant for a closed stream would be written into that file.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def give_up_standard_output() -> None:
    """Drop what standard output could not take, so that nothing tries again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def fail(message: str, status: int) -> NoReturn:
    """Log an error, and exit with a status."""
    log.error("streamcal: %s", message)
    raise typer.Exit(status)


class Stop:
    """Asks a run to stop on SIGTERM or SIGINT; a second SIGINT interrupts it at once."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def __call__(self) -> bool:
        """Whether the run is to stop."""
        return self.by is not None

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # the signature of a handler
        self.by = signal.Signals(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Meter:
    """Shows progress: a live line on a terminal, a log message every five seconds elsewhere."""

    def __init__(self, stack: ExitStack, *, live: bool) -> None:
        self._start = self._shown = time.monotonic()
        self._progress: Progress | None = None
        self._first: int | None = None
        console = Console(stderr=True)
        if live and console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            self._progress = stack.enter_context(Progress(*columns, console=console, transient=True))
            self._task = self._progress.add_task("reading")

    def show(self, events: int) -> None:
        """Show how many events were read in all."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._start = events, now
        rate = (events - self._first) / max(now - self._start, 1e-9)
        if self._progress is not None:
            self._progress.update(self._task, description=f"{events:,} events, {rate:,.0f} events/s")
        elif now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            fields = {"events": events, "events_per_second": round(rate)}
            log.info("%s events, %s events/s", f"{events:,}", f"{rate:,.0f}", extra={"fields": fields})


class RejectLog:
    """Logs the first few rejects of a run without ``--rejects``."""

    def __init__(self) -> None:
        self._seen = 0

    def take(self, rows: list[RejectRow]) -> None:
        """Log what is among the first few."""
        for row in rows[: max(_SHOWN_REJECTS + 1 - self._seen, 0)]:
            self._seen += 1
            if self._seen <= _SHOWN_REJECTS:
                log.warning("rejected: %s, line %s: %s", row.source, row.line, row.reason)
            else:
                log.warning("further rejects are counted but not shown; --rejects FILE keeps them all")


def stop_status(stop: Stop) -> int:
    """Return the exit status of a run that was asked to stop."""
    return 0 if stop.by is not None and stop.by.name == "SIGTERM" else EXIT_INTERRUPTED


def stopped(stop: Stop, error: StoppedError) -> NoReturn:
    """Exit from a run that was stopped while it waited."""
    log.warning(
        "interrupted while waiting: what was committed is kept, the rest will be read again (%s)", error
    )
    raise typer.Exit(stop_status(stop))
