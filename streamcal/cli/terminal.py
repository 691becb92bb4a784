"""The command line's terminal: messages on standard error, the closing table, signals and exit statuses."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum
from importlib.metadata import version
from types import FrameType
from typing import Final, NoReturn

import msgspec
import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streamcal.mixture.forecasts_c import compiled
from streamcal.monitor.rows import closing_rows, gain
from streamcal.monitor.status import Status
from streamcal.run.rows import RejectRow

SLOW: Final = (
    "The hot loops are not compiled, so this takes many times as long. Remedy: install a C compiler with"
    " Python's headers, such as `apt install gcc python3-dev`, then streamcal again: `pip install"
    " --force-reinstall --no-deps --no-cache-dir` and what you installed."
)
"""Message where the package was installed without a C compiler."""

_SHOWN_REJECTS: Final = 3

log = logging.getLogger("streamcal")


class Exit(IntEnum):
    """Exit statuses of the commands, beside 0."""

    NOTHING_READ = 1
    USAGE = 2
    UNUSABLE = 3
    """The store or an output cannot be used."""
    DOUBTFUL = 4
    """The run came to its end, but with remarks or a deviation, under ``--strict``."""
    INTERRUPTED = 130


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


class _StandardError(logging.Handler):
    """Writes to what standard error is at the moment: `streamcal.cli.progress` replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:  # as every handler of logging does: it reports, and goes on
            self.handleError(record)


def set_up_logging(*, as_json: bool, quiet: bool = False) -> None:
    """Send the log to standard error, from level ``info`` on, or ``warning`` if it is to be quiet."""
    handler = _StandardError()
    handler.setFormatter(_JsonFormatter() if as_json else logging.Formatter("%(message)s"))
    for name in ("streamcal", "streamcal_connectors"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(logging.WARNING if quiet else logging.INFO)
        logger.propagate = False


def version_line() -> str:
    """Return the version, and whether the hot loops are compiled."""
    how = "compiled" if compiled else "not compiled, so slower"
    return f"streamcal {version('streamcal-engine')} ({how})"


def warn_if_slow() -> None:
    """Log that nothing is compiled, and the remedy."""
    if not compiled:
        log.warning("%s", SLOW)


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


def run_table(status: Status) -> Group:
    """Return the verdict and the table at the end of a run."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for row in closing_rows(status):
        table.add_row(*map(Text, row))  # Text: a key is not markup
    found = gain(status.before, status.after)
    verdict = status.verdict
    words = Text.assemble((verdict.sentence, "bold"), f" {verdict.evidence} {verdict.advice}".rstrip())
    above = [words, *([Text(found)] if found else [])]
    return Group(*above, Text(), table)


@contextmanager
def failing(status: int, *kinds: type[Exception], text: str = "") -> Iterator[None]:
    """Log an error of one of these kinds, behind a text, and exit with a status."""
    try:
        yield
    except kinds as error:
        fail(f"{text}{error}", status)


class Stop:
    """Asks a run to stop on SIGTERM or SIGINT; a second SIGINT interrupts it at once."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        self.then: Callable[[], object] = lambda: None
        """Function that is called at a signal, too."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def __call__(self) -> bool:
        """Whether the run is to stop."""
        return self.by is not None

    @property
    def status(self) -> int:
        """Exit status of the run: 0 after SIGTERM, and if nothing asked it to stop."""
        return Exit.INTERRUPTED if self.by == signal.SIGINT else 0

    def _take(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # the signature of a handler
        self.by = signal.Signals(number)
        self.then()
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
