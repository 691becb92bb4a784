"""The three tables of the join, in order of arrival: in memory, or kept by a store.

The join works on `Table.entries`, a plain dict, so that a look-up costs what a dict's does. In memory it
holds everything. Of a store it holds what the current micro-batch may touch (`Tables.prefetch`) and what
that batch has put; the rest stays where it is, and `StoredTable.changes` tells the store what to write. What
expires by the thousand at once goes to the store in portions (`Tables.flush`). So memory is bounded by the
batch, whatever is pending.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from streamcal.events import Domain, LabelEvent

__all__ = [
    "BLOCK",
    "Early",
    "MemoryTable",
    "MemoryTables",
    "Pending",
    "Rows",
    "Settled",
    "StoredTable",
    "Table",
    "Tables",
]

BLOCK: Final = 16
"""So many entries that arrive one after the other a store may keep as one row."""

_READ_AHEAD: Final = 1024  # rows of a store's table, from the oldest on, that are read at a time


class Pending(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A prediction that waits for its label; ``since`` is the join's clock at its arrival."""

    since: float | None
    score: float
    probability: float
    domain: Domain
    key: str | None
    time: float | None = None
    """Its event time."""
    seen: int = 0
    """How many target scores its engine had observed before it answered."""


class Early(msgspec.Struct, frozen=True, gc=False):
    """A label that waits for its prediction."""

    since: float | None
    event: LabelEvent


class Settled(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How a prediction ended; kept to tell duplicates and late labels."""

    since: float | None
    label: int | None
    """None: it expired without one."""


E = TypeVar("E", Pending, Early, Settled)


class Table(Protocol[E]):
    """Entries by id, in the order in which they were put."""

    entries: dict[str, E]
    """To look up, put and remove. An id may be looked up once it was prefetched, and is put only when it is
    not there: it is then the latest."""

    def __len__(self) -> int:
        """How many there are in all."""

    def oldest(self) -> tuple[str, E] | None:
        """Return the first in order, None if there is none."""

    def pop_oldest(self) -> tuple[str, E]:
        """Remove the first in order, of which there must be one."""


class Tables(Protocol):
    """The join's state but for its clock and counts. An id is in one of the three at most."""

    @property
    def pending(self) -> Table[Pending]:
        """Predictions that wait for their label."""

    @property
    def early(self) -> Table[Early]:
        """Labels that wait for their prediction."""

    @property
    def settled(self) -> Table[Settled]:
        """Predictions that have ended."""

    def prefetch(self, ids: Iterable[str]) -> None:
        """Make ids ready to be looked up, until the next commit."""

    def flush(self) -> None:
        """Hand what has changed to the store, if there is one, ahead of the commit.

        What was prefetched stays ready, in other dicts: `Table.entries` has to be asked for anew.
        """


class MemoryTable(Generic[E]):
    """A `Table` in memory."""

    __slots__ = ("_order", "entries")

    def __init__(self, entries: dict[str, E] | None = None) -> None:
        self._order: OrderedDict[str, E] = OrderedDict(entries or {})  # quick at its old end, unlike dict
        self.entries: dict[str, E] = self._order

    def __len__(self) -> int:
        return len(self.entries)

    def oldest(self) -> tuple[str, E] | None:
        """Return the first in order, None if there is none."""
        return next(iter(self._order.items()), None)

    def pop_oldest(self) -> tuple[str, E]:
        """Remove the first in order, of which there must be one."""
        return self._order.popitem(last=False)


class MemoryTables:
    """`Tables` in memory."""

    __slots__ = ("early", "pending", "settled")

    def __init__(self) -> None:
        self.pending: MemoryTable[Pending] = MemoryTable()
        self.early: MemoryTable[Early] = MemoryTable()
        self.settled: MemoryTable[Settled] = MemoryTable()

    def prefetch(self, ids: Iterable[str]) -> None:
        """Do nothing: everything is at hand."""

    def flush(self) -> None:
        """Do nothing: everything stays at hand."""


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
        self._put: list[
            tuple[str, E]
        ] = []  # the oldest of what was put, last first: a dict is slow at its old end

    def __len__(self) -> int:
        return self._stored - len(self._loaded) + len(self.entries)

    def take(self, rows: Iterable[tuple[int, str, E]]) -> None:
        """Make (seq, id, entry) of the store ready to be looked up; once between two calls of `changes`."""
        for seq, id_, entry in rows:
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

    def changes(self) -> tuple[int, dict[str, E], list[tuple[int, str]]]:
        """Return the entries to add, with the ``seq`` of the first, and (seq, id) of those to remove.

        That ``seq`` is a multiple of BLOCK, so that a block is not added to later. Removal comes first: an id
        may be in both. The rows have to be as told before the table is used again.
        """
        added, first = self.entries, (self._last // BLOCK + 1) * BLOCK
        removed: list[tuple[int, str]] = []
        for id_, (seq, entry) in self._loaded.items():
            if added.get(id_) is entry:
                del added[id_]  # nothing happened to it
            else:
                removed.append((seq, id_))
        removed.sort()
        self._last = first - 1 + len(added) if added else self._last
        self._stored += len(added) - len(removed)
        self.entries, self._loaded, self._ahead, self._put = {}, {}, [], []
        return first, added, removed

    def _read_ahead(self) -> bool:
        if self._passed >= self._last:
            return False
        self._ahead = list(self._rows.after(self._passed, _READ_AHEAD))[::-1]
        if not self._ahead:
            self._passed = self._last
        return bool(self._ahead)
