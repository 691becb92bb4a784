"""Label counts at which a mixture takes its steps."""

from __future__ import annotations

from typing import Final

__all__ = ["STRIDE", "STRIDE_AT_ONCE", "next_step"]

STRIDE: Final = 64
"""Longest step, in labels. The first step takes 8, and the next ones a quarter of the labels so far."""

STRIDE_AT_ONCE: Final = 16
"""Longest step, in labels, while most labels come before the next step: they are then useful at once."""

_FIRST_STEP: Final = 8


def next_step(labels: int, *, at_once: bool) -> int:
    """Return the label count of the step after one at ``labels``."""
    return labels + min(STRIDE_AT_ONCE if at_once else STRIDE, max(_FIRST_STEP, labels // 4))
