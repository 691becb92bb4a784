"""Ring: snapshots of the candidates of mode ``auto``, fewer of them the older they are.

Labels that come late are scored with the snapshot that was served when their prediction was made.

Memory: about 40 snapshots in the long run, a few kB each. Until the next is added, those that labels asked
for stay laid out (`hindsight`), which is no part of the state: about 20 kB where labels come some hundred
others late, 150 kB where it is many thousands, none where they come at once.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from streamcal.mixture.fits import Counts, Floats, Points, Snapshot
from streamcal.mixture.forecasts import Hindsight

__all__ = ["Ring"]

_OLDEST: Final = 1024  # steps, to the oldest snapshot but the first
_ALL_KEPT: Final = 8  # of the latest
_MARGIN: Final = 4


class Ring:
    """Snapshots in the order of their steps.

    Parameters
    ----------
    held
        with the number of the step that made each: at least one, the first of step 0, none ever observed less
        than those before.
    """

    __slots__ = ("_first", "_hindsight", "_observed", "held")

    def __init__(self, held: list[tuple[int, Snapshot]]) -> None:
        self.held = held
        """The snapshots, each with the number of the step that made it; not to be changed."""
        self._hindsight: Hindsight | None = None
        self._first = 0  # of the snapshots that are laid out
        self._take(held)

    @property
    def latest(self) -> Snapshot:
        """The candidates that are served."""
        return self.held[-1][1]

    def begin(self, snapshot: Snapshot) -> None:
        """Have this snapshot only."""
        self._take([(0, snapshot)])

    def add(self, snapshot: Snapshot) -> None:
        """Take on a snapshot; now and then, let those go that have grown too old to be so many."""
        now = self.held[-1][0] + 1
        held = [*self.held, (now, snapshot)]
        self._take(held if now % 8 else [each for each in held if _is_kept(each[0], now - each[0])])

    def places(self, seen: Counts) -> Counts:
        """Return which snapshot was served after so many scores, int64[n]; the latest for −1."""
        places: Counts = np.maximum(np.searchsorted(self._observed, seen, side="right") - 1, 0)
        places[seen < 0] = len(self.held) - 1
        return places

    def forecasts(self, places: Counts, points: Points, *, sourced: bool) -> Floats:
        """Return what every candidate of the snapshots at these places said; see `Hindsight.forecasts`."""
        first = int(places.min())
        if self._hindsight is None or first < self._first:
            # Delays of a kind scatter by a factor, which in the thinned part of the ring is a few snapshots.
            self._first = first if first >= len(self.held) - _ALL_KEPT else max(0, first - _MARGIN)
            self._hindsight = Hindsight([snapshot for _, snapshot in self.held[self._first :]])
        return self._hindsight.forecasts(places - self._first, points, sourced=sourced)

    def _take(self, held: list[tuple[int, Snapshot]]) -> None:
        self.held = held
        self._observed: Counts = np.array([snapshot.observed for _, snapshot in held], np.int64)
        self._hindsight = None
        self._first = 0


def _is_kept(step: int, age: int) -> bool:
    """Return whether the snapshot of a step is kept at this age: four of every doubling, from 8 steps on."""
    return not step or age < _ALL_KEPT or (age < _OLDEST and step % (1 << (age.bit_length() - 3)) == 0)
