"""The three tables of the join, in order of arrival.

The join works on `Table.entries`, a plain dict, so that a look-up costs what a dict's does. In memory it
holds everything (`MemoryTable`). A table whose rows are in a store holds what the current micro-batch may
touch (`streamcal.join.stored_table`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import islice
from typing import Annotated, Final, Generic, Protocol, TypeVar

import msgspec

from streamcal.events import Domain, LabelEvent, Weight

__all__ = [
    "Early",
    "MemoryTable",
    "MemoryTables",
    "Pending",
    "Settled",
    "Table",
    "Tables",
]


_LISTED: Final = 16_384  # entries, from the oldest on
_LARGE: Final = 512  # bytes of a dict for each entry that it could hold; without gaps it takes a fifth

# Checked where a stored entry is decoded.
_Probability = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
_Label = Annotated[int, msgspec.Meta(ge=0, le=1)]
_Seen = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]


class Pending(msgspec.Struct, gc=False, array_like=True):
    """A prediction that waits for its label; ``since`` is the join's clock at its arrival."""

    since: float | None
    score: _Probability
    probability: _Probability
    domain: Domain
    key: str | None
    time: float | None = None
    """Its event time."""
    seen: _Seen = 0
    """How many target scores its engine had observed before it answered."""
    answer: tuple[_Seen, float, float] | None = None
    """Of an answer that is kept, to be given again: the map's version, and the two weights of its shift
    correction."""
    told: tuple[_Label, float | None] | None = None
    """The label that it is learned with, and its event time: told before the prediction matured, or kept for
    a correction. Of one that was learned as 0 for want of a label, and is not corrected: the 1 told since."""
    weight: Weight | None = None
    """What its label counts for, if that does not say it itself; None: 1."""


class Early(msgspec.Struct, gc=False):
    """A label that waits for its prediction."""

    since: float | None
    event: LabelEvent


class Settled(msgspec.Struct, gc=False, array_like=True):
    """How a prediction ended; kept to tell duplicates and late labels."""

    since: float | None
    label: _Label | None
    """None: it expired without one."""
    answered: Pending | None = None
    """The prediction, if its answer is kept, or its label may yet be corrected."""


E = TypeVar("E", Pending, Early, Settled)


class Table(Protocol[E]):
    """Entries by id, in the order in which they were put."""

    entries: dict[str, E]
    """To look up, put and remove. An id may be looked up once it was prefetched, and is put only when it is
    not there: it is then the latest."""

    def __len__(self) -> int:
        """How many there are in all."""

    def note(self, id_: str) -> None:
        """Take note that the entry of an id was changed in place; it keeps its order."""

    def oldest(self) -> tuple[str, E] | None:
        """Return the first in order, None if there is none."""

    def pop_oldest(self) -> tuple[str, E]:
        """Remove the first in order, of which there must be one."""

    def first(self, count: int) -> list[tuple[str, E]]:
        """Return the first so many in order, or all if there are fewer."""

    def pop_first(self, count: int) -> list[str]:
        """Remove the first so many in order, of which there must be as many; return their ids."""


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
    """A `Table` in memory.

    A dict is slow at its old end, where what was removed leaves gaps: so the oldest entries are listed, many
    at a time. (An `OrderedDict` has no gaps, but twice the memory, and takes twice as long to put an entry.)
    """

    __slots__ = ("_oldest", "entries")

    def __init__(self, entries: dict[str, E] | None = None) -> None:
        self.entries: dict[str, E] = dict(entries or {})
        self._oldest: list[tuple[str, E]] = []  # last first; some may have gone

    def __len__(self) -> int:
        return len(self.entries)

    def note(self, id_: str) -> None:
        """Do nothing: what is in memory is the state."""

    def oldest(self) -> tuple[str, E] | None:
        """Return the first in order, None if there is none."""
        entries, oldest = self.entries, self._oldest
        while True:
            while oldest:
                id_, entry = oldest[-1]
                if entries.get(id_) is entry:
                    return id_, entry
                oldest.pop()
            if not entries:
                return None
            self._list(_LISTED)
            entries, oldest = self.entries, self._oldest

    def pop_oldest(self) -> tuple[str, E]:
        """Remove the first in order, of which there must be one."""
        found = self.oldest()
        if found is None:
            raise KeyError("the table is empty")
        self._oldest.pop()
        del self.entries[found[0]]
        return found

    def first(self, count: int) -> list[tuple[str, E]]:
        """Return the first so many in order, or all if there are fewer."""
        get = self.entries.get
        found = [pair for pair in self._oldest[: -count - 1 : -1] if get(pair[0]) is pair[1]]
        if len(found) < min(count, len(self.entries)):  # some have gone, or too few are listed
            self._oldest = [pair for pair in self._oldest if get(pair[0]) is pair[1]]
            if len(self._oldest) < count:
                self._list(count + _LISTED)
            found = self._oldest[: -count - 1 : -1]
        return found

    def pop_first(self, count: int) -> list[str]:
        """Remove the first so many in order, of which there must be as many; return their ids."""
        ids = [id_ for id_, _ in self.first(count)] if count else []
        for id_ in ids:
            del self.entries[id_]
        del self._oldest[len(self._oldest) - len(ids) :]
        return ids

    def _list(self, count: int) -> None:
        """List the oldest entries anew."""
        if sys.getsizeof(self.entries) > _LARGE * (len(self.entries) + _LISTED):
            self.entries = dict(self.entries)  # nearly all of it was gaps
        self._oldest = list(islice(self.entries.items(), count))
        self._oldest.reverse()


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
