"""Waiting for the run's thread, from the event loop."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from streamcal.serve.http_problems import RefusedError

__all__ = ["settle", "within"]

ANSWER_SECONDS: Final = 30.0
"""Time limit of an answer, in seconds."""

T = TypeVar("T")


async def within(waiting: asyncio.Future[T]) -> T:
    """Return the result.

    Raises
    ------
    RefusedError
        if it does not come in time.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await waiting
    except TimeoutError:
        raise RefusedError(
            503,
            f"no answer within {ANSWER_SECONDS:g} seconds. What was sent may be taken yet: send it again,"
            " with the same ids",
            retry_after=1,
        ) from None


def settle(waiting: asyncio.Future[T], value: T) -> None:
    """Set the result unless the waiter was cancelled."""
    if not waiting.done():
        waiting.set_result(value)
