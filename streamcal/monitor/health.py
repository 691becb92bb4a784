"""Rules for probes of a run: whether it is alive, and whether it is ready."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from streamcal.run.ports import Source

ALIVE_SECONDS: Final = 60.0
"""Time between two micro-batches or polls of a run that is alive, at most, in seconds."""

MOST_LAG: Final = 1_000_000
"""Lag of a partition in a run that is ready, at most: records, or bytes of a file."""

_LOOK: Final = 1.0  # seconds between two looks at the lags


class Health:
    """Whether a run is alive and ready; any thread may ask.

    Parameters
    ----------
    sources
        of the run.
    clock
        monotonic time in seconds.
    """

    def __init__(self, sources: Sequence[Source], clock: Callable[[], float]) -> None:
        self._sources, self._clock = sources, clock
        self._moved: float | None = None  # when the run's loop last came round
        self._looked = 0.0
        self._behind: str | None = None

    def take(self) -> None:
        """Take note that the loop of the run has come round; only the run's thread may."""
        now = self._clock()
        if self._moved is None or now >= self._looked + _LOOK:
            self._looked = now
            self._behind = next(filter(None, map(_behind, self._sources)), None)
        self._moved = now

    def why_not(self, state: Literal["alive", "ready"]) -> str | None:
        """Return in words why the run is not alive, or not ready; None if it is.

        It is alive before its loop has begun, too; it is ready if it is alive, reads and has caught up.
        """
        if self._moved is None:
            return None if state == "alive" else "the run is starting: it reads its store"
        still = self._clock() - self._moved
        if still > ALIVE_SECONDS:
            return (
                f"the run has neither processed nor polled anything for {still:.0f} seconds, at most"
                f" {ALIVE_SECONDS:g} may pass: start it anew"
            )
        return None if state == "alive" else self._behind


def _behind(source: Source) -> str | None:
    """Return in words that a source is far from its end, or cannot tell; None if it is near, or never can."""
    for partition, lag in source.lag().items():
        if not lag <= MOST_LAG:
            where = f"{source.name}, partition {partition}" if partition else source.name
            left = f"{lag:,.0f} records or bytes are" if lag == lag else "it does not answer how much is"
            return f"{where}: {left} still to be read, at most {MOST_LAG:,} may be"
    return None
