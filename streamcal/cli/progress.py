"""Progress of a run: a moving line on a terminal, a log message every few seconds elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from streamcal.run.ports import Source

_EVERY_SECONDS: Final = 5.0

log = logging.getLogger("streamcal")


class Meter:
    """Shows the progress of a run.

    Parameters
    ----------
    processed
        number of events processed so far.
    sources
        of the run, before it begins.
    live
        whether a moving line may be shown, if standard error is a terminal.
    """

    def __init__(self, processed: Callable[[], int], sources: Sequence[Source], *, live: bool = True) -> None:
        self._processed = processed
        self._sources = sources
        self._begun = self._logged = time.monotonic()
        self._total = self._bytes_left()
        console = Console(stderr=True)
        self._moves = live and _can_move(console)
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        self.line = Progress(*columns, console=console, transient=True, disable=not self._moves)
        """The moving line, from entering it to leaving it."""
        self._task = self.line.add_task("reading", total=self._total)

    def show(self) -> None:
        """Take note that a micro-batch has ended; without a terminal, log how far it is now and then."""
        now, events = time.monotonic(), self._processed()
        rate = round(events / max(now - self._begun, 1e-9))
        fields: dict[str, float] = {"events": events, "events_per_second": rate}
        words = f"{events:,} events, {rate:,} events/s"
        if self._total and (left := self._bytes_left()) is not None:
            share = max(1.0 - left / self._total, 0.0)
            fields["share_read"], words = round(share, 4), f"{share:.0%}, {words}"
            self.line.update(self._task, completed=share * self._total)
        self.line.update(self._task, description=words)
        if not self._moves and now - self._logged >= _EVERY_SECONDS:
            self._logged = now
            log.info("%s", words, extra={"fields": fields})

    def _bytes_left(self) -> float | None:
        """Return how many bytes are left; None where that is unknown, or more may always come."""
        if any(source.endless for source in self._sources):
            return None
        lags = [source.lag() for source in self._sources]
        return sum(sum(lag.values()) for lag in lags) if all(lags) else None


def busy(text: str) -> AbstractContextManager[object]:
    """Return what shows, from entering it to leaving it, that something goes on whose end is not known.

    Elsewhere than on a terminal, nothing.
    """
    console = Console(stderr=True)
    return console.status(text) if _can_move(console) else nullcontext()


def _can_move(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal
