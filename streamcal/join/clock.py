"""The join's clock: when what waits has waited too long.

The clock is the latest event time seen. An entry's time to live counts from what the clock showed when the
entry arrived, so entries expire in their order of arrival, at O(1) an event. It ends when both the clock and
the watermark have passed it. Where one partition is read ahead of another, the watermark is the time up to
which all of them have been read.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ExpiryClock"]

_NEVER: Final = float("-inf")
_FOREVER: Final = float("inf")


class ExpiryClock:
    """Event time as far as it has come, and the moment at which something may expire next.

    Parameters
    ----------
    ttl
        seconds that an entry may wait.
    time
        the latest event time seen; None before the first.
    start
        the first time that the clock showed; entries that came before any time count from it.
    least
        the shortest time that any entry may wait, if some have another than ``ttl``.
    """

    __slots__ = ("_due", "_least", "_now", "next_look", "start", "time", "ttl", "watermark")

    def __init__(
        self,
        ttl: float,
        time: float | None = None,
        start: float | None = None,
        least: float | None = None,
    ) -> None:
        self._least = ttl if least is None else min(ttl, least)
        self.ttl = ttl
        """Seconds that an entry may wait."""
        self.time = time
        """The latest event time seen; None before the first."""
        self.start = start
        """The first time that the clock showed; None before it."""
        self._now = _NEVER if time is None else time
        self.watermark = _FOREVER
        """Nothing beyond it expires."""
        self._due = _NEVER  # nothing expires before both clock and watermark are beyond this
        self.next_look = _NEVER
        """Nothing expires, for the present watermark, before the clock is beyond this."""

    def move(self, time: float) -> bool:
        """Move on to an event time; return whether something may expire by it."""
        if not time > self._now:
            return False
        self.time = self._now = time
        return time > self.next_look

    def set_watermark(self, watermark: float) -> bool:
        """Take a watermark that holds until the next one; return whether something may expire by it."""
        self.watermark = watermark
        self.next_look = self._due if self._due < watermark or self.start is None else _FOREVER
        return self._now > self.next_look

    def begin_look(self) -> None:
        """Begin to look through what waits: `has_passed` is then asked about the oldest entries, in order."""
        if self.start is None:
            self.start = self._now
        self._due = self._reached + self._least  # of what arrives from now on

    def end_of(self, since: float | None, ttl: float | None = None) -> float:
        """Return when the time of an entry is up that arrived when the clock showed ``since``."""
        since = self.start if since is None else since
        return (_NEVER if since is None else since) + (self.ttl if ttl is None else ttl)

    def has_passed(self, since: float | None, ttl: float | None = None) -> bool:
        """Return whether an entry that arrived when the clock showed ``since`` has outlived its time."""
        end = self.end_of(since, ttl)
        if self._reached <= end:
            self._due = min(self._due, end)
            return False
        return True

    def end_look(self) -> None:
        """Work out when to look again."""
        self.next_look = self._due if self._due < self.watermark else _FOREVER

    @property
    def _reached(self) -> float:
        return min(self._now, self.watermark)
