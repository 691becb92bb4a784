"""Where the rows of a store are, by the hash of their id: in memory, 16 bytes a row.

A unique index in the file would be written to at a random page for every prediction, and asked in vain for
nearly every id. This one is made anew when a run opens the store, by reading the rows through once.

Sorted runs of geometrically growing lengths, merged as they come (a log-structured merge): n rows cost
O(log n) sorted passes each, and a look-up one binary search a run.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["IdIndex", "Places", "hashes"]

Places = npt.NDArray[np.int64]

_GONE = -1


class IdIndex:
    """A multimap from 64-bit hashes to places, integers of at least 0.

    Ids whose hashes are equal share an entry: what is found has to be looked at.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[Places, Places]] = []  # (hashes in order, their places), the longest first

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(places != _GONE)) for _, places in self._runs)

    def add(self, keys: Places, places: Places) -> None:
        """Add places under hashes, int64[n] each."""
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], places[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            self._runs.append(_merged(self._runs.pop(), self._runs.pop()))

    def remove(self, keys: Places, places: Places) -> None:
        """Remove places from under their hashes, int64[n] each."""
        order = np.argsort(keys, kind="stable")
        keys, places = keys[order], places[order]
        for known, where in self._runs:
            asked, found = _matches(known, keys)
            where[found[where[found] == places[asked]]] = _GONE

    def find(self, keys: Places) -> Places:
        """Return the places under any of these hashes, int64[m], ascending and distinct."""
        keys = np.sort(keys)
        found = [where[_matches(known, keys)[1]] for known, where in self._runs]
        if not found:
            return np.empty(0, np.int64)
        places: Places = np.unique(np.concatenate(found))
        return places[np.searchsorted(places, 0) :]


def hashes(ids: Iterable[str]) -> Places:
    """Return the hash of every id, int64[n]; the same in this process only."""
    return np.fromiter(map(hash, ids), np.int64)


def _merged(one: tuple[Places, Places], other: tuple[Places, Places]) -> tuple[Places, Places]:
    one, other = _left(one), _left(other)
    keys, places = np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))
    del one, other  # a merge of the longest runs takes the most memory of all that is done with them
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    return keys, places[order]


def _left(run: tuple[Places, Places]) -> tuple[Places, Places]:
    """Return a run without what was removed."""
    keys, places = run
    left = places != _GONE
    return run if left.all() else (keys[left], places[left])


def _matches(known: Places, keys: Places) -> tuple[Places, Places]:
    """Return every pair of equal ones in two ascending arrays, as indices into ``keys`` and ``known``."""
    first = np.searchsorted(known, keys, side="left")
    hit = np.flatnonzero(known[np.minimum(first, len(known) - 1)] == keys) if len(known) else first[:0]
    first = first[hit]
    times = np.searchsorted(known, keys[hit], side="right") - first
    ends = np.cumsum(times)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times, times)
    return np.repeat(hit, times), np.repeat(first, times) + within
