"""Clock: the event time that a stream has reached, which one wrong time does not move.

An event whose time is more than a tolerance ahead of the clock is in doubt: it does not move the clock. The
tolerance is at least `GAPS` times the mean distance of the events before. Each other event is a vote for the
clock, up to `SURE`, and each event in doubt takes one away. When fewer than `FEWEST` are left, as after a
pause, the clock goes on to the earliest time that was in doubt.

Compiled where there is a C compiler; `clock_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from streamcal.values import Floats

__all__ = ["FEWEST", "GAPS", "SURE", "Clock", "ClockState"]

SURE, FEWEST = 32, 5
"""Largest number of votes for a clock, and the number below which it goes on to a time in doubt."""

GAPS = 16.0
"""Number of mean distances of events that one may be ahead of the clock."""

# As C has them.
_SURE, _FEWEST, _GAPS = SURE, FEWEST, GAPS
_NEVER, _FOREVER = -math.inf, math.inf


class ClockState(msgspec.Struct, frozen=True):
    """State of a clock."""

    time: float | None = None
    """Event time that was reached, in seconds; None before the first."""
    votes: int = 0
    """Votes for it."""
    ahead: float | None = None
    """Earliest time in doubt since the votes were complete; None if there is none."""
    gap: float = 0.0
    """Mean of the seconds by which an event moved it, of about the last `SURE`."""
    seen: int = 0
    """Number of events of that mean, at most `SURE`."""
    doubted: int = 0
    """Number of events in doubt."""
    decided: int = 0
    """Number of those decided: the clock went on to them, or votes were complete again."""
    wrong: int = 0
    """Number of events in doubt after which the votes were complete again."""
    doubt: tuple[float, float] = (0.0, 0.0)
    """Latest time in doubt, and the time of the clock then."""


class Clock:
    """Event time that a stream has reached.

    Parameters
    ----------
    tolerance
        seconds that an event may be ahead of the clock, above 0; inf: every time is believed.
    state
        state to continue from.
    """

    def __init__(self, tolerance: float, state: ClockState | None = None) -> None:
        state = state or ClockState()
        self.tolerance: float = tolerance
        self.now: float = _NEVER if state.time is None else state.time
        """Time that was reached; -inf before the first."""
        self.votes: int = state.votes
        """Votes for it."""
        self.gap: float = state.gap
        self.seen: int = state.seen
        self.ahead: float = _FOREVER if state.ahead is None else state.ahead
        self.doubted: int = state.doubted
        """Number of events in doubt."""
        self.decided: int = state.decided
        self.wrong: int = state.wrong
        """Events in doubt after which enough others came that agree with the clock."""
        self.far: float = state.doubt[0]
        self.near: float = state.doubt[1]

    @property
    def state(self) -> ClockState:
        """State, to continue from later."""
        time = None if self.now == _NEVER else self.now
        ahead = None if self.ahead == _FOREVER else self.ahead
        votes = self.votes, ahead, self.gap, self.seen
        return ClockState(time, *votes, self.doubted, self.decided, self.wrong, self.doubt)

    @property
    def doubt(self) -> tuple[float, float]:
        """Latest time in doubt, and the time of the clock then; 0 if there was none."""
        return self.far, self.near

    def move(self, time: float) -> bool:
        """Take the time of the next event, not NaN; return whether it is believed."""
        limit = max(self.tolerance, _GAPS * self.gap)
        if time <= self.now + limit:
            if self.votes < _SURE:
                self.votes += 1
            else:
                self.ahead = _FOREVER
                self.wrong += self.doubted - self.decided
                self.decided = self.doubted
            self._step(time, limit)
            return True
        self.ahead = min(self.ahead, time)
        if self.votes >= _FEWEST:
            self.votes -= 1
            self.doubted += 1
            self.far, self.near = time, self.now
            return False
        self.decided = self.doubted
        if self.now == _NEVER:
            self.now = self.ahead
        self._step(self.ahead, limit)
        self.ahead = _FOREVER
        return time <= self.now + limit

    def _step(self, time: float, limit: float) -> None:
        """Move on to a time, of which the mean distance of events counts no more than the tolerance."""
        step = max(0.0, time - self.now)
        if self.seen < _SURE:
            self.seen += 1
        self.gap += (min(step, limit) - self.gap) / self.seen
        self.now = max(self.now, time)

    def believed(self, times: Floats) -> Floats:
        """Take the times of the next events, float64[n], NaN for none; return those that are believed.

        Returns
        -------
        The times, float64[n], with the clock in place of each that is in doubt.
        """
        found = times.copy()
        view: Any = found.data  # of which Python reads floats of its own, where this is not compiled
        for index in range(len(view)):
            time = view[index]
            if time == time and not self.move(time):
                view[index] = self.now
        return found
