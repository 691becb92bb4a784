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
    at, size, steps, was_short = 0, _FIRST, _STEPS, False
    while at < count:
        looked = min(size, count - at)
        done, goes_on = stretch_at(at, at + looked)
        at += done
        is_short = done < _SHORT
        if goes_on and is_short and not was_short:
            was_short = True  # what was due now is due again only after some time: the next may be long
            continue
        was_short = is_short
        size = min(2 * max(size if done == looked else done, _SHORT), _LONGEST)
        if done == looked or (goes_on and not is_short):
            continue
        # One event is one for `step_at`. Where stretches are short, many are.
        steps = min(2 * steps, _FIRST) if is_short else _STEPS
        end = min(at + (steps if is_short else 1), count)
        step_at(at, end)
        at = end
