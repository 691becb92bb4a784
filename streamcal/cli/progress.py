"""Progress of a run: a moving line on a terminal, a log message every few seconds elsewhere.

The line counts events one by one. The share of the files that is read moves with each micro-batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Final

import msgspec
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

from streamcal.run.ports import Source

_EVERY_SECONDS: Final = 5.0

log = logging.getLogger("streamcal")


class Advance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Progress of a run at one moment; in a log of JSON objects, its fields."""

    events: int
    """Events processed by this run."""
    events_per_second: int
    share_read: float | None = None
    """Share of the bytes that is read, in [0, 1]; None if unknown, as for a pipe."""
    seconds_left: int | None = None
    """Estimated seconds to the end; None if unknown."""

    def __str__(self) -> str:
        parts = [] if self.share_read is None else [f"{self.share_read:.0%}"]
        parts += [f"{self.events:,} events", f"{self.events_per_second:,} events/s"]
        if self.seconds_left is not None:
            parts.append(f"{timedelta(seconds=self.seconds_left)} left")
        return ", ".join(parts)


class Meter:
    """Shows the progress of a run.

    Parameters
    ----------
    processed
        number of events processed so far; called from another thread, too.
    sources
        of the run, before it begins.
    live
        whether a moving line may be shown, if standard error is a terminal.
    """

    def __init__(self, processed: Callable[[], int], sources: Sequence[Source], *, live: bool = True) -> None:
        self._processed = processed
        self._sources = sources
        self._start = self._shown = time.monotonic()
        self._total = self._left = self._bytes_left()
        self._known: tuple[float, float] | None = None  # the end of the first micro-batch, and bytes left
        console = Console(stderr=True)
        self._moves = live and _can_move(console)
        self._spinner = Spinner("dots", "reading")
        self.line: AbstractContextManager[object] = nullcontext()
        """The moving line, from entering it to leaving it."""
        if self._moves:
            self.line = Live(
                console=console, get_renderable=self._draw, refresh_per_second=10, transient=True
            )

    def show(self) -> None:
        """Take note that a micro-batch has ended; without a terminal, log how far it is now and then."""
        now = time.monotonic()
        if self._total is not None:
            self._left = self._bytes_left()
            self._known = self._known or (now, self._left or 0.0)
        if not self._moves and now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            advance = self.advance
            log.info("%s", advance, extra={"fields": msgspec.to_builtins(advance)})

    @property
    def advance(self) -> Advance:
        """Progress of the run now."""
        processed, now = self._processed(), time.monotonic()
        rate = round(processed / max(now - self._start, 1e-9))
        left = self._left
        if self._total is None or self._known is None or left is None:
            return Advance(processed, rate)
        share = round(1.0 - min(left / self._total, 1.0), 4) if self._total else 1.0
        then, before = self._known  # what earlier runs have read is not part of the pace
        seconds_left = round((now - then) * left / (before - left)) if before > left else None
        return Advance(processed, rate, share, seconds_left)

    def _draw(self) -> Spinner:
        advance = self.advance
        self._spinner.update(text=str(advance) if advance.events else "reading")
        return self._spinner

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
