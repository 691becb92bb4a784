"""Progress of a run: a moving line on a terminal, a log message every few seconds elsewhere.

The line is drawn ten times a second by a thread. It counts events one by one; how far the files are read is
known after each micro-batch, and in between from the events that were processed since.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Source

__all__ = ["Advance", "Meter", "Pace"]

_EVERY_SECONDS: Final = 5.0

log = logging.getLogger("streamcal")


class Advance(msgspec.Struct, frozen=True):
    """Progress of a run at one moment."""

    events: int
    """Events processed by this run."""
    events_per_second: float
    share: float | None = None
    """Share of the bytes that is read, in [0, 1]; None if unknown, as for a pipe."""
    seconds_left: float | None = None
    """Estimated seconds to the end; None if unknown."""

    def __str__(self) -> str:
        parts = [] if self.share is None else [f"{self.share:.0%}"]
        parts += [f"{self.events:,} events", f"{self.events_per_second:,.0f} events/s"]
        if self.seconds_left is not None:
            parts.append(f"{timedelta(seconds=round(self.seconds_left))} left")
        return ", ".join(parts)

    @property
    def fields(self) -> dict[str, Any]:
        """The same for a log of JSON objects."""
        fields: dict[str, Any] = {
            "events": self.events,
            "events_per_second": round(self.events_per_second),
        }
        if self.share is not None:
            fields["share_read"] = round(self.share, 4)
        if self.seconds_left is not None:
            fields["seconds_left"] = round(self.seconds_left)
        return fields


class Pace:
    """Estimates how far a run is, between the moments at which it is known.

    Parameters
    ----------
    total
        bytes to be read in all, those that earlier runs have read among them; None if unknown.
    start
        the clock at the beginning, in seconds.
    """

    def __init__(self, total: float | None, start: float) -> None:
        self._total = total
        self._start = start
        self._known: tuple[int, float] | None = None  # events processed by this run, and bytes read then
        self._per_event: float | None = None  # bytes

    def know(self, processed: int, left: float, *, fresh: bool) -> None:
        """Take note that so many events were processed, and so many bytes are left.

        ``fresh``: no earlier run has read anything.
        """
        if self._total is None:
            return
        done = max(self._total - left, 0.0)
        before = (0, 0.0) if self._known is None and fresh else self._known
        if before is not None and processed > before[0] and done > before[1]:
            self._per_event = (done - before[1]) / (processed - before[0])
        self._known = processed, done

    def at(self, processed: int, now: float) -> Advance:
        """Return how far the run is once it has processed so many events."""
        rate = processed / max(now - self._start, 1e-9)
        if self._total is None or self._known is None:
            return Advance(processed, rate)
        then, done = self._known
        done = min(done + (processed - then) * (self._per_event or 0.0), self._total)
        share = done / self._total if self._total else 1.0
        if not self._per_event or not rate:
            return Advance(processed, rate, share)
        return Advance(processed, rate, share, (self._total - done) / self._per_event / rate)


class _Line(Progress):
    """A line that looks anew whenever it is drawn."""

    def __init__(self, look: Callable[[], Advance], console: Console) -> None:
        self._look = look
        super().__init__(
            SpinnerColumn(),
            BarColumn(bar_width=12),
            TextColumn("{task.description}"),
            console=console,
            transient=True,
        )
        self.add_task("reading", total=None)

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            advance = self._look()
            if advance.events:
                share = advance.share
                self.update(
                    task.id, description=str(advance), total=None if share is None else 1.0, completed=share
                )
        yield from super().get_renderables()


class Meter:
    """Shows the progress of a run, from entering it to leaving it.

    Parameters
    ----------
    pipeline, sources
        of the run, before it begins.
    live
        whether a moving line may be shown, if standard error is a terminal.
    """

    def __init__(self, pipeline: Pipeline, sources: Sequence[Source], *, live: bool) -> None:
        self._pipeline = pipeline
        self._sources = sources
        self._shown = start = time.monotonic()
        self._pace = Pace(self._left(), start)
        console = Console(stderr=True)
        self._line = _Line(lambda: self.advance, console) if live and _moves(console) else None

    def __enter__(self) -> Self:
        if self._line is not None:
            self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._line is not None:
            self._line.stop()

    def show(self) -> None:
        """Take note that a micro-batch has ended; without a terminal, log how far it is now and then."""
        left = self._left()
        if left is not None:
            processed = self._pipeline.processed
            self._pace.know(processed, left, fresh=processed == self._pipeline.tally.events)
        now = time.monotonic()
        if self._line is None and now - self._shown >= _EVERY_SECONDS:
            self._shown = now
            advance = self.advance
            log.info("%s", advance, extra={"fields": advance.fields})

    @property
    def advance(self) -> Advance:
        """Progress of the run now."""
        return self._pace.at(self._pipeline.processed, time.monotonic())

    def _left(self) -> float | None:
        """Return how many bytes are left; None where that is unknown, or more may always come."""
        if any(source.endless for source in self._sources):
            return None
        lags = [source.lag() for source in self._sources]
        return sum(sum(lag.values()) for lag in lags) if all(lags) else None


def _moves(console: Console) -> bool:
    return console.is_terminal and not console.is_dumb_terminal
