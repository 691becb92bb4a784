"""An index from the hash of an id to the numbers of its entries in a store, in memory: 16 bytes per entry.

A unique index in the file would write to a random page for every prediction, and nearly every look-up would
find nothing. This index is rebuilt when a run opens the store, by reading all entries once.

It keeps sorted runs of geometrically growing lengths and merges them as entries come (a log-structured
merge). An entry takes part in O(log n) merges; a look-up is one binary search per run.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

__all__ = ["IdIndex", "Int64s", "hashes"]

Int64s = npt.NDArray[np.int64]

_GONE = -1


class IdIndex:
    """A multimap from 64-bit hashes to entry numbers, integers of at least 0.

    Different ids may have the same hash, so the caller must compare the ids of the entries found.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[Int64s, Int64s]] = []  # (sorted hashes, their numbers), the longest first

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(numbers != _GONE)) for _, numbers in self._runs)

    def add(self, keys: Int64s, numbers: Int64s) -> None:
        """Add entry numbers under their hashes, int64[n] each."""
        if not len(keys):
            return
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], numbers[order]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= 2 * len(self._runs[-1][0]):
            self._runs.append(_merged(self._runs.pop(), self._runs.pop()))

    def remove(self, keys: Int64s, numbers: Int64s) -> None:
        """Remove entry numbers from under their hashes, int64[n] each."""
        order = np.argsort(keys, kind="stable")
        keys, numbers = keys[order], numbers[order]
        for known, where in self._runs:
            asked, found = _matches(known, keys)
            where[found[where[found] == numbers[asked]]] = _GONE

    def find(self, keys: Int64s) -> Int64s:
        """Return the entry numbers under any of these hashes, int64[m], ascending and distinct."""
        keys = np.sort(keys)
        found = [where[_matches(known, keys)[1]] for known, where in self._runs]
        if not found:
            return np.empty(0, np.int64)
        numbers: Int64s = np.unique(np.concatenate(found))
        return numbers[np.searchsorted(numbers, 0) :]


def hashes(ids: Iterable[str]) -> Int64s:
    """Return the hash of every id, int64[n]; hashes differ between processes."""
    return np.fromiter(map(hash, ids), np.int64)


def _merged(one: tuple[Int64s, Int64s], other: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    one, other = _left(one), _left(other)
    keys, numbers = np.concatenate((one[0], other[0])), np.concatenate((one[1], other[1]))
    del one, other  # the merge of the longest runs is the peak of memory
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    return keys, numbers[order]


def _left(run: tuple[Int64s, Int64s]) -> tuple[Int64s, Int64s]:
    """Return a run without the removed entries."""
    keys, numbers = run
    left = numbers != _GONE
    return run if left.all() else (keys[left], numbers[left])


def _matches(known: Int64s, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return every pair of equal values in two ascending arrays, as indices into ``keys`` and ``known``."""
    first = np.searchsorted(known, keys, side="left")
    hit = np.flatnonzero(known[np.minimum(first, len(known) - 1)] == keys) if len(known) else first[:0]
    first = first[hit]
    times = np.searchsorted(known, keys[hit], side="right") - first
    ends = np.cumsum(times)
    within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - times, times)
    return np.repeat(hit, times), np.repeat(first, times) + within
