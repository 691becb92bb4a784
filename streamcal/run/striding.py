"""Striding: when events are taken many at a time, and when one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["stride"]

_FIRST: Final = 1024  # events at first looked at for a stretch
_LONGEST: Final = 1 << 16
_SHORT: Final = 64  # a stretch of fewer events takes longer than they would one by one
_STEPS: Final = 64  # events that are taken one by one after a short stretch, and twice as many after the next


def stride(
    count: int, stretch_at: Callable[[int, int], tuple[int, bool]], step_at: Callable[[int, int], None]
) -> None:
    """Take events in turn, in stretches where that can be.

    Parameters
    ----------
    count
        of the events.
    stretch_at
        takes the stretch that events, from one to before another, begin with; returns how long it is, and
        whether the event behind it may be as any other.
    step_at
        takes events, from one to before another, one by one.
    """
    at, size, steps = 0, _FIRST, _STEPS
    while at < count:
        looked = min(size, count - at)
        done, goes_on = stretch_at(at, at + looked)
        at += done
        size = min(2 * max(size if done == looked else done, _SHORT), _LONGEST)
        if done == looked or (goes_on and done >= _SHORT):
            continue
        # One event is one for `step_at`. Where stretches are short, many are.
        steps = _STEPS if done >= _SHORT else min(2 * steps, _FIRST)
        end = min(at + (1 if done >= _SHORT else steps), count)
        step_at(at, end)
        at = end
