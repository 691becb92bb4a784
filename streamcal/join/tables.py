"""Tables of the join: its rows in memory, and the changes that a store has to write.

A store numbers the entries of each queue in order of arrival (``seq``). Memory holds only the entries that
the current micro-batch may touch (`Tables.prefetch`), and the oldest as far as they were needed;
`StoredTables.changes` says what the store has to write. Entries that expire by the thousand go to the store
in
portions (`Tables.flush`). So memory is bounded by the batch, whatever is pending.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, Self

from streamcal.join.entries import E, E_co, Early, Entry, Pending, Settled
from streamcal.join.id_table_c import EARLY, ENDED, WAITING
from streamcal.join.rules_c import JoinRules

__all__ = ["BLOCK_SIZE", "Changes", "Rows", "StoredTables", "Tables"]

BLOCK_SIZE: Final = 16
"""Number of entries, one after the other by arrival, that a store may keep as one row."""

_READ_AHEAD: Final = 1024  # rows of a store's table, from the oldest on, that are read at a time


class Tables:
    """The join's tables in memory."""

    def __init__(self) -> None:
        self.rows: JoinRules = JoinRules()

    def __deepcopy__(self, _: object) -> Self:
        made = type(self)()
        made.rows.classes = self.rows.classes
        for queue in (WAITING, ENDED, EARLY):
            for id_, entry in self.entries(queue).items():
                made.rows.put(id_, copy.deepcopy(entry))
        return made

    def get(self, id_: str) -> Entry | None:
        """Return the entry of an id that was prefetched, None if there is none."""
        row = self.rows.known(id_)
        return self.rows.entry(row) if row else None

    def entries(self, queue: int) -> dict[str, Entry]:
        """Return the entries of a queue (`streamcal.join.id_table_c`) in memory, in order."""
        return dict(self.rows.entries(queue))

    def prefetch(self, ids: Iterable[str]) -> None:
        """Make ids ready to be looked up, until the next commit."""

    def flush(self) -> None:
        """Hand changes to the store, if there is one, ahead of the commit.

        Prefetched entries stay ready, in other rows.
        """


class Rows(Protocol[E_co]):
    """A queue as its store holds it, by ``seq``, the number of arrival."""

    def after(self, seq: int, limit: int) -> Sequence[tuple[int, str, E_co]]:
        """Return the first rows beyond ``seq``, in order."""

    def extent(self) -> tuple[int, int]:
        """Return the number of rows, and the largest ``seq``, 0 if there is none."""


class Changes(NamedTuple, Generic[E]):
    """Changes of a queue for a store to write: removals first, since an id may be in both."""

    first: int
    """The ``seq`` of the first entry to add, a multiple of `BLOCK_SIZE`: no block is added to later."""
    added: Mapping[str, E]
    removed: Sequence[tuple[int, str]]
    """The ``seq`` and id of those to remove, in order."""
    replaced: Mapping[int, E]
    """Entries to replace, by ``seq``."""


class StoredTables(Tables):
    """The join's tables where the rows are in a store.

    Parameters
    ----------
    stored
        its predictions that wait, those that have ended, and its labels that wait.
    """

    def __init__(self, stored: tuple[Rows[Pending], Rows[Settled], Rows[Early]]) -> None:
        self.rows = JoinRules(self._read_ahead)
        self._stored: Sequence[Any] = stored
        self._last, self._passed = [0, 0, 0], [0, 0, 0]  # no row up to the second is left
        for queue in range(len(stored)):
            count, self._last[queue] = self._stored[queue].extent()
            self.rows.set_count(queue, count)
            self.rows.has_more[queue] = self._last[queue] > 0

    def load(self, queue: int, entries: Iterable[tuple[int, str, Entry]]) -> None:
        """Make each (seq, id, entry) of the store ready to be looked up, unless it has changed since."""
        rows = self.rows
        removed = rows.removed[queue]
        for seq, id_, entry in entries:
            if seq not in removed and not rows.known(id_):
                rows.put(id_, entry, seq)

    def changes(self) -> tuple[Changes[Pending], Changes[Settled], Changes[Early]]:
        """Return the changes of each queue, and forget them.

        The store must write them before the tables are used again.
        """
        rows, found = self.rows, list[Changes[Any]]()
        noted: list[dict[int, Entry]] = [{}, {}, {}]
        for row, seq in rows.noted.items():
            if rows.seq_of(row) == seq:
                noted[rows.queue_of(row)][seq] = rows.entry(row)
        for queue, replaced in enumerate(noted):
            added = dict(rows.entries(queue, new=True))
            first = (self._last[queue] // BLOCK_SIZE + 1) * BLOCK_SIZE
            found.append(Changes(first, added, sorted(rows.removed[queue].items()), replaced))
            oldest = rows.front(queue)
            if oldest:
                self._passed[queue] = rows.seq_of(oldest) - 1
            if added:
                self._last[queue] = first - 1 + len(added)
            rows.has_more[queue] = self._passed[queue] < self._last[queue]
        rows.clear()
        return found[WAITING], found[ENDED], found[EARLY]

    def _read_ahead(self, queue: int) -> None:
        rows = self.rows
        while rows.has_more[queue] and not rows.front(queue):
            some = self._stored[queue].after(self._passed[queue], _READ_AHEAD)
            self.load(queue, some)
            for seq, id_, _ in some:
                row = rows.known(id_)
                if row and rows.seq_of(row) == seq:
                    rows.put_in_front(row)
            self._passed[queue] = some[-1][0] if some else self._last[queue]
            rows.has_more[queue] = self._passed[queue] < self._last[queue]
