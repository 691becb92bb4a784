"""When a mixture takes its steps, and the snapshots that they served, kept to score late labels.

A label that comes late is scored with the snapshot that was served when its prediction was made. Of older
steps fewer are kept.

Memory: about 40 snapshots in the long run, a few kB each.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.mixture.forecasts_c import Snapshot
from streamcal.values import Counts

__all__ = ["STRIDE", "STRIDE_AT_ONCE", "Snapshots", "next_step"]

STRIDE: Final = 64
"""The longest step, in labels. The first step takes 8, and the next ones a quarter of the labels so far."""

STRIDE_AT_ONCE: Final = 16
"""The longest step while most labels come before the next step: what they teach is of use at once."""

_FIRST_STEP: Final = 8

_OLDEST: Final = 2048  # in steps: the age at which all snapshots but the first are gone
_ALL_KEPT: Final = 8  # the latest so many are all kept
_THIN_EVERY: Final = 8


def next_step(labels: int, *, at_once: bool) -> int:
    """Return the label count of the step after one at so many labels."""
    return labels + min(STRIDE_AT_ONCE if at_once else STRIDE, max(_FIRST_STEP, labels // 4))


class Snapshots:
    """Snapshots in the order of their steps.

    Parameters
    ----------
    entries
        Each snapshot with the number of the step that made it: at least one, the first of step 0. Their
        counts of observed scores must not descend.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: list[tuple[int, Snapshot]]) -> None:
        self.entries = entries
        """Snapshots, each with the number of its step; do not change it."""

    @property
    def latest(self) -> Snapshot:
        """Served snapshot."""
        return self.entries[-1][1]

    def begin(self, snapshot: Snapshot) -> None:
        """Keep this snapshot alone, as that of step 0."""
        self.entries = [(0, snapshot)]

    def add(self, snapshot: Snapshot) -> None:
        """Add the snapshot of the next step, and at every eighth step thin out the older ones."""
        now = self.entries[-1][0] + 1
        self.entries.append((now, snapshot))
        if not now % _THIN_EVERY:
            self.entries = [each for each in self.entries if _is_kept(each[0], now - each[0])]

    def served_at(self, prediction_index: Counts) -> tuple[Counts, int]:
        """Return the index of the snapshot served after each number of scores, int64[n], and the least index.

        For negative numbers it is K, the number of snapshots that are held. K also stands for snapshots that
        knew no label: their candidates forecast the same, so no label can distinguish them.
        """
        first = next((place for place, (_, each) in enumerate(self.entries) if each.knows), 0)
        next_served = [snapshot.observed for _, snapshot in self.entries[1:]]
        index = np.searchsorted(next_served, prediction_index, side="right")
        index[(prediction_index < 0) | (index < first)] = len(self.entries)
        return index, int(index.min())


def _is_kept(step: int, age: int) -> bool:
    """Return whether the snapshot of a step is kept at this age: from 8 steps on, four of every doubling."""
    return not step or age < _ALL_KEPT or (age < _OLDEST and step % (1 << (age.bit_length() - 3)) == 0)
