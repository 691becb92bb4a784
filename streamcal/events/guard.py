"""Checks of event times: one unit for a stream, and no jump far beyond the events before.

The rule, for the events of one stream that have a time, in their order:

* **Unit.** The stream has one unit, recognised by magnitude (`streamcal.base.times`). An event in another
  unit is refused. Each event in the stream's unit is a vote for it, up to `SURE`; each one refused takes one
  away, and with none left, the next event sets the unit. So a wrong first event costs itself and one more,
  and a stream that has changed its unit goes on after at most `SURE` events.
* **Beginning.** Until a time was believed, one is refused that looks like a date written as a number.
* **Jump.** An event is refused if its time is more than ``max_jump`` past the median of the `NEIGHBOURS`
  times before it, refused ones among them. So a stream that resumes after a pause goes on once those are the
  majority. Where times were farther apart than that before, as in a stream with one date a month, four times
  the distance is allowed.

The decision on an event depends only on the events before it, not on how many are judged at a time.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.times import LIMIT, SCALES, UNITS, date_like, seconds_of, unit_of, units_of
from streamcal.base.values import Floats
from streamcal.events.codes import Refusal
from streamcal.sketch.decoding import Number

NEIGHBOURS: Final = 9
"""Number of times before an event that are its neighbours."""
FEWEST: Final = 5
"""Smallest number of neighbours with which a jump can be detected."""
SURE: Final = 32
"""Largest number of votes that a unit may have."""

_TOLERATED: Final = 4.0  # times the spread that was seen
_SMALL: Final = 32  # so many times are judged one by one rather than in halves
_NEVER, _FOREVER = float("-inf"), float("inf")
_LAST: Final = math.nextafter(LIMIT, 0.0)


class ClockState(msgspec.Struct, frozen=True):
    """State of a clock (`streamcal.join.rules_c.Clock`)."""

    time: float | None = None
    """Event time that was reached, in seconds; None before the first."""
    votes: Number = 0
    """Votes for it."""
    ahead: float | None = None
    """Earliest time in doubt since the votes were complete; None if there is none."""
    gap: float = 0.0
    """Mean of the seconds by which an event moved it, of about the last `SURE`."""
    seen: Number = 0
    """Number of events of that mean, at most `SURE`."""
    doubted: Number = 0
    """Number of events in doubt."""
    decided: Number = 0
    """Number of those decided: the clock went on to them, or votes were complete again."""
    wrong: Number = 0
    """Number of events in doubt after which the votes were complete again."""
    doubt: tuple[float, float] = (0.0, 0.0)
    """Latest time in doubt, and the time of the clock then."""


class GuardState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a guard: the unit of a stream and its latest times."""

    begun: bool = False
    """Whether any event has been looked at, with a time or without."""
    unit: int = 0
    """Unit of the stream, an index into `streamcal.base.times.UNITS`."""
    votes: int = 0
    """Votes for the unit."""
    recent: tuple[float, ...] = ()
    """Latest times in seconds, at most `NEIGHBOURS`."""
    spread: float = 0.0
    """Longest distance beyond ``max_jump`` between a lower quartile and its median, in seconds; 0 if none."""
    of_labels: bool = False
    """Whether the first events are labels, some with a time: then a label must have one."""
    clock: ClockState = ClockState()
    """Clock of the stream."""


class TimeGuard:
    """Check of the times of one stream, which converts them to seconds.

    Parameters
    ----------
    max_jump
        seconds; inf: any time is believed.
    state
        state to continue from.
    """

    def __init__(self, max_jump: float, state: GuardState | None = None) -> None:
        state = state or GuardState()
        self._max_jump = max_jump
        self._begun, self._unit, self._votes = state.begun, state.unit, state.votes
        self._recent = deque(state.recent, NEIGHBOURS)
        self._spread, self._of_labels = state.spread, state.of_labels
        self._find_bounds()

    @property
    def state(self) -> GuardState:
        """State, to continue from later."""
        recent = tuple(self._recent)
        return GuardState(self._begun, self._unit, self._votes, recent, self._spread, self._of_labels)

    def begin(self, times: Floats) -> None:
        """Look at the first times of a stream before any of them is judged, float64[n] without NaN.

        They set the unit, and count as the neighbours before the first event: even that may be refused then.
        """
        self._begun = True
        units = units_of(times)
        counts = np.bincount(units, minlength=len(UNITS) + 1)[: len(UNITS)]
        if counts.any():
            self._unit = int(counts.argmax())
            self._votes = min(int(counts[self._unit]), SURE)
            first = [seconds_of(each) for each in times[units == self._unit].tolist()]
            if not all(map(date_like, first)):
                self._recent.extend(first[:NEIGHBOURS])
            self._find_bounds()

    def take(self, time: float) -> float | Refusal:
        """Return the seconds of the next event's time, or why it is refused."""
        if self._low <= time <= self._high:  # no later than any neighbour allows, nor earlier than all
            self._recent.append(time)
            self._votes += self._votes < SURE
            return time
        self._begun = True
        seconds = self._in_unit(time)
        if not isinstance(seconds, Refusal):
            seconds = self._refusal(seconds) or seconds
            self._find_bounds()
        return seconds

    def take_many(self, times: Floats) -> tuple[Floats, dict[int, Refusal]]:
        """Judge the next events in turn, as one call of `take` for each.

        Parameters
        ----------
        times
            of the events, float64[n]; NaN for one that has no time.

        Returns
        -------
        The seconds, float64[n], NaN for events without a time and for refused ones; and the refusals, by
        index.
        """
        self._begun = self._begun or len(times) > 0
        seconds, refused = times.copy(), dict[int, Refusal]()
        timed = np.flatnonzero(~np.isnan(times))
        units = units_of(times[timed])
        if not self._votes and len(timed) and units[0] < len(UNITS):
            self._unit = int(units[0])
        if (units == self._unit).all():
            self._votes = min(self._votes + len(timed), SURE)
            if self._unit:
                seconds /= SCALES[self._unit]
        else:
            for index in timed.tolist():
                time = self._in_unit(float(times[index]))
                if isinstance(time, Refusal):
                    seconds[index], refused[index] = np.nan, time
                else:
                    seconds[index] = time
            timed = timed[~np.isnan(seconds[timed])]
        doubted = 0
        if not self._recent:
            while doubted < len(timed) and (like := date_like(float(seconds[timed[doubted]]))):
                index = int(timed[doubted])
                seconds[index], refused[index] = np.nan, Refusal("bad_time", like)
                doubted += 1
        self._judge(seconds, timed[doubted:], refused)
        self._find_bounds()
        return seconds, refused

    # Inside

    def _in_unit(self, time: float) -> float | Refusal:
        """Vote on the unit of a time, and return its seconds."""
        unit = unit_of(time)
        if unit == len(UNITS):
            return Refusal("bad_time", {"time": time})
        if not self._votes:
            self._unit = unit
        if unit != self._unit:
            self._votes -= 1
            fields = {"time": time, "unit": UNITS[unit], "others": UNITS[self._unit]}
            return Refusal("mixed_time_units", fields)
        self._votes = min(self._votes + 1, SURE)
        return seconds_of(time)

    def _judge(self, seconds: Floats, timed: npt.NDArray[np.intp], refused: dict[int, Refusal]) -> None:
        """Take the times at some indices in turn, and replace refused ones by NaN."""
        if not len(timed):
            return
        part = seconds[timed]
        low, high = min([part.min(), *self._recent]), max([part.max(), *self._recent])
        if high <= low + self._max_jump:  # so none is farther from the median
            self._recent.extend(part[-NEIGHBOURS:].tolist())
        elif len(timed) > _SMALL:
            half = len(timed) // 2
            self._judge(seconds, timed[:half], refused)
            self._judge(seconds, timed[half:], refused)
        else:
            for index, each in zip(timed.tolist(), part.tolist(), strict=True):
                refusal = self._refusal(each)
                if refusal is not None:
                    seconds[index], refused[index] = np.nan, refusal

    def _refusal(self, seconds: float) -> Refusal | None:
        """Take one time in seconds; return why it is refused, None if it is not."""
        if not self._recent and (like := date_like(seconds)):
            return Refusal("bad_time", like)
        limit, before = _FOREVER, sorted(self._recent)
        if len(before) >= FEWEST:
            median, lower = before[len(before) // 2], before[len(before) // 4]
            if median > lower + self._max_jump:
                self._spread = max(self._spread, median - lower)
            limit = median + max(self._max_jump, _TOLERATED * max(self._spread, median - lower))
        self._recent.append(seconds)
        if seconds <= limit:
            return None
        return Refusal("too_far_ahead", {"time": seconds, "limit": limit - median, "median": median})

    def _find_bounds(self) -> None:
        """Find the range of seconds in which a time is accepted without a look at the others."""
        low, high = min(self._recent, default=_FOREVER), max(self._recent, default=_NEVER)
        self._low, self._high = low, min(low + self._max_jump, _LAST)
        if self._unit or high > self._high:
            self._low, self._high = _FOREVER, _NEVER
