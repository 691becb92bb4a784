"""A table of the join whose rows are in a store.

It holds what the current micro-batch may touch (`Tables.prefetch`) and what that batch has put. The rest
stays in the store; `StoredTable.changes` says what the store has to write. Entries that expire by the
thousand go to the store in portions (`Tables.flush`). So memory is bounded by the batch, whatever is pending.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from streamcal.join.tables import E, Early, Pending, Settled

__all__ = ["BLOCK_SIZE", "Rows", "StoredTable"]

BLOCK_SIZE: Final = 16
"""A store may keep so many entries that arrive one after the other as one row."""

_READ_AHEAD: Final = 1024  # rows of a store's table, from the oldest on, that are read at a time

E_co = TypeVar("E_co", Pending, Early, Settled, covariant=True)


class Rows(Protocol[E_co]):
    """A table as its store holds it, by ``seq``, the number of arrival."""

    def after(self, seq: int, limit: int) -> Sequence[tuple[int, str, E_co]]:
        """Return the first rows beyond ``seq``, in order."""

    def extent(self) -> tuple[int, int]:
        """Return how many rows there are, and the largest ``seq``, 0 if there is none."""


class StoredTable(Generic[E]):
    """A `Table` whose rows are in a store: reads through, and gathers what changes until it is told to it.

    Parameters
    ----------
    rows
        with all changes told so far.
    """

    def __init__(self, rows: Rows[E]) -> None:
        self.entries: dict[str, E] = {}
        self._rows: Rows[E] = rows
        self._loaded: dict[str, tuple[int, E]] = {}  # rows read since `changes`
        self._stored, self._last = rows.extent()
        self._passed = 0  # no row at or before this one is left
        self._ahead: list[tuple[int, str, E]] = []  # the next oldest rows, last first
        self._noted: set[str] = set()  # ids whose entries were changed in place
        self._put: list[
            tuple[str, E]
        ] = []  # the oldest of what was put, last first: a dict is slow at its old end

    def __len__(self) -> int:
        return self._stored - len(self._loaded) + len(self.entries)

    @property
    def is_changed(self) -> bool:
        """Whether anything was put or removed since `changes`."""
        entries = self.entries
        same = len(entries) == len(self._loaded) and not self._noted
        return not (same and all(entries.get(id_) is entry for id_, (_, entry) in self._loaded.items()))

    def note(self, id_: str) -> None:
        """Take note that the entry of an id was changed in place; it keeps its order."""
        self._noted.add(id_)

    def take(self, rows: Iterable[tuple[int, str, E]]) -> None:
        """Make (seq, id, entry) of the store ready to be looked up."""
        for seq, id_, entry in rows:
            if id_ not in self._loaded:  # else it may have changed since
                self._loaded[id_] = (seq, entry)
                self.entries[id_] = entry

    def oldest(self) -> tuple[str, E] | None:
        """Return the first in order, None if there is none."""
        while self._ahead or self._read_ahead():
            _, id_, entry = self._ahead[-1]
            loaded = self._loaded.get(id_)
            if loaded is None:
                return id_, entry
            if self.entries.get(id_) is loaded[1]:
                return id_, loaded[1]
            self._passed = self._ahead.pop()[0]
        for _ in range(2):
            while self._put:
                id_, entry = self._put[-1]
                if self.entries.get(id_) is entry:
                    return id_, entry
                self._put.pop()
            self._put = [
                (id_, entry)
                for id_, entry in reversed(self.entries.items())
                if id_ not in self._loaded or self._loaded[id_][1] is not entry
            ]
        return None

    def pop_oldest(self) -> tuple[str, E]:
        """Remove the first in order, of which there must be one."""
        found = self.oldest()
        if found is None:
            raise KeyError("the table is empty")
        id_, entry = found
        if self._ahead:
            seq, _, stored = self._ahead.pop()
            self._passed = seq
            self._loaded.setdefault(id_, (seq, stored))
        else:
            self._put.pop()
        self.entries.pop(id_, None)
        return id_, entry

    def first(self, count: int) -> list[tuple[str, E]]:
        """Return the first so many in order, or all if there are fewer."""
        found: list[tuple[str, E]] = []
        while True:
            found = [
                (id_, entry)
                for seq, id_, entry in reversed(self._ahead)
                if id_ not in self._loaded or self.entries.get(id_) is self._loaded[id_][1]
            ]
            last = self._ahead[0][0] if self._ahead else self._passed
            if len(found) >= count or last >= self._last:
                break
            more = list(self._rows.after(last, _READ_AHEAD))
            if not more:
                break
            self._ahead = more[::-1] + self._ahead
        for id_, entry in self.entries.items() if len(found) < count else ():
            if id_ not in self._loaded or self._loaded[id_][1] is not entry:
                found.append((id_, entry))
        return found[:count]

    def pop_first(self, count: int) -> list[str]:
        """Remove the first so many in order, of which there must be as many; return their ids."""
        return [self.pop_oldest()[0] for _ in range(count)]

    def changes(self) -> tuple[int, dict[str, E], list[tuple[int, str]], dict[int, E]]:
        """Return what has changed.

        The ``seq`` of the first entry to add, and the entries; (seq, id) of those to remove; and, by ``seq``,
        those to replace.

        That ``seq`` is a multiple of `BLOCK_SIZE`, so that a block is not added to later. Remove first: an id
        may be in both. The store must have written the changes before the table is used again.
        """
        added, first = self.entries, (self._last // BLOCK_SIZE + 1) * BLOCK_SIZE
        removed: list[tuple[int, str]] = []
        replaced: dict[int, E] = {}
        for id_, (seq, entry) in self._loaded.items():
            if added.get(id_) is entry:
                del added[id_]  # it stays
                if id_ in self._noted:
                    replaced[seq] = entry
            else:
                removed.append((seq, id_))
        removed.sort()
        self._last = first - 1 + len(added) if added else self._last
        self._stored += len(added) - len(removed)
        self.entries, self._loaded, self._ahead, self._put, self._noted = {}, {}, [], [], set()
        return first, added, removed, replaced

    def _read_ahead(self) -> bool:
        if self._passed >= self._last:
            return False
        self._ahead = list(self._rows.after(self._passed, _READ_AHEAD))[::-1]
        if not self._ahead:
            self._passed = self._last
        return bool(self._ahead)
