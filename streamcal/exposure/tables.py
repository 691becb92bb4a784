"""Counts by key, as sorted columns: the state is a function of the multiset of counted keys.

Memory: 16 bytes for each key that occurs.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.sketch.decoding import MOST

__all__ = ["Table"]

Counts = npt.NDArray[np.int64]

_NONE: Final = np.zeros(0, np.int64)


class Table:
    """Number of times that each key occurred.

    Parameters
    ----------
    keys, counts
        int64[m], ascending; int64[m], positive.
    """

    __slots__ = ("counts", "keys")

    def __init__(self, keys: Counts = _NONE, counts: Counts = _NONE) -> None:
        self.keys, self.counts = keys, counts

    def add(self, keys: Counts, counts: Counts | None = None) -> None:
        """Count keys, int64[n] in any order, once each, or ``counts`` times, int64[n]."""
        if not len(keys):
            return
        more = np.ones(len(keys), np.int64) if counts is None else counts
        self.keys, places = np.unique(np.concatenate((self.keys, keys)), return_inverse=True)
        sums = np.zeros(len(self.keys), np.int64)
        np.add.at(sums, places, np.concatenate((self.counts, more)))
        self.counts = sums

    def take_below(self, key: int) -> Table:
        """Remove the keys below this one, and return them with their counts."""
        cut = int(self.keys.searchsorted(key))
        taken = Table(self.keys[:cut], self.counts[:cut])
        self.keys, self.counts = self.keys[cut:], self.counts[cut:]
        return taken

    def to_state(self) -> tuple[bytes, bytes]:
        """Return the state."""
        return self.keys.astype("<i8").tobytes(), self.counts.astype("<i8").tobytes()

    @classmethod
    def restored(cls, state: tuple[bytes, bytes]) -> Self:
        """Return the table of a state.

        Raises
        ------
        DamagedStateError
            if it is not such a state.
        """
        if len(state[0]) % 8 or len(state[0]) != len(state[1]):
            raise DamagedStateError(f"counts by key of {len(state[0])} and {len(state[1])} bytes")
        keys, counts = (np.frombuffer(part, "<i8").astype(np.int64) for part in state)
        if (np.diff(keys) <= 0).any() or (counts <= 0).any() or not counts.sum(dtype=float) <= MOST:
            raise DamagedStateError("counts by key are out of order or out of range")
        return cls(keys, counts)
