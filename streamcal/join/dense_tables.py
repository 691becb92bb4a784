"""The join's tables as columns in memory: for predictions and labels that come many at a time.

Every prediction that the join remembers is a row: its id among the bytes of all, numbers as columns, and what
became of it. It is the same row while it waits and once it has ended, so that one look-up tells which. Rows
are numbered in the order of arrival and lie in a ring, whose oldest part is free again once all of it is
forgotten. A remembered prediction takes about 50 bytes and its id.

What is not of the common case comes one at a time, through `Tables.prefetch` and `StoredTable`, as with a
store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import structs

from streamcal.events import DOMAINS, Domain
from streamcal.join.entry_tables import optional
from streamcal.join.id_slots import MAX_ROW, IdSlots
from streamcal.join.row_queue import RowQueue
from streamcal.join.stored_table import StoredTable
from streamcal.join.stretches import Answered, Floats, Mask, Settling, Stretch, Waiting
from streamcal.join.tables import MemoryTables, Pending, Settled
from streamcal.texts import PADDING, Indices, Texts, gathered, same_bytes

__all__ = ["DenseTables"]

_ROWS: Final = 1 << 16  # of a new ring
_BYTES: Final = 24 * _ROWS  # for their ids
_SPARE: Final = 1.1  # more room for ids: they may be longer later
_MORE: Final = 1 << 19  # a ring grows fast up to so much more, and from there on by a third
_AT_ONCE: Final = 1 << 16  # rows that are looked through, or moved, at a time
_READ_AHEAD: Final = 64

_WEIGHED: Final = len(DOMAINS)  # added to the number of the domain where a prediction has a weight

_GONE, _WAITS, _ENDED, _EXPIRED = 0, 1, 2, 4  # and `_ENDED` + 1: with label 1

_COLUMNS: Final[dict[str, Any]] = {
    "state": np.uint8,
    "start": np.int64,
    "size": np.uint16,
    "since": np.float64,
    "score": np.float64,
    "probability": np.float64,
    "time": np.float64,
    "seen": np.int64,
    "domain": np.uint8,
}


Moved: TypeAlias = Callable[[Indices], Indices]


class DenseTables:
    """`Tables` in memory, as columns, for many events at a time; see `streamcal.join.stretches.BulkTables`.

    Parameters
    ----------
    tables
        to go on from.
    """

    in_portions = False

    def __init__(self, tables: MemoryTables) -> None:
        self._size = 0  # rows that the ring can hold
        self._columns = {name: np.zeros(0, kind) for name, kind in _COLUMNS.items()}
        self._keys: npt.NDArray[np.int32] | None = None  # of each row, a number in `_names`; None: no keys
        self._weights: Floats | None = None  # of the rows that have one; None: none ever had
        self._names: list[str | None] = [None]
        self._codes: dict[str | None, int] = {None: 0}
        self._text = np.zeros(PADDING, np.uint8)
        self._text_end = 0  # bytes of ids since the beginning
        self._slots = IdSlots(0)
        self._first = 1  # no row below lives …
        self._oldest = 1  # … and none below waits
        self._next = 1
        self._waiting = 0
        self._ended = RowQueue()
        self.early = tables.early
        self._asked: Texts = Texts.of([])
        self._renew(_ROWS, _BYTES)
        self._begin()
        self._put_pending(tables.pending.entries)
        self._put_settled(tables.settled.entries)
        self._begin()

    # One at a time

    def prefetch(self, ids: Iterable[str]) -> None:
        """Make ids ready to be looked up; see `Tables`."""
        self._asked = Texts.of(list(ids))
        self.settle()
        self._fetch()

    def flush(self) -> None:
        """Take what has changed into the columns; see `Tables`."""
        self.settle()
        self._fetch()

    def settle(self) -> None:
        """Take what was changed one at a time into the columns; nothing is ready to be looked up then."""
        if not (self.pending.is_changed or self.settled.is_changed):
            return
        _, put, gone, _ = self.pending.changes()
        _, ended, forgotten, _ = self.settled.changes()
        self._forget(self._ended.pop(len(forgotten)))
        self._forget(np.array([row for row, id_ in gone if id_ not in ended], np.int64))
        self._waiting -= len(gone)
        self._put_settled(ended)
        self._put_pending(put)
        self._advance()
        self._begin()

    def _begin(self) -> None:
        self.pending: StoredTable[Pending] = StoredTable(_PendingRows(self))
        self.settled: StoredTable[Settled] = StoredTable(_SettledRows(self))

    def _fetch(self) -> None:
        rows = self._find(self._asked)
        here = rows > 0
        waits = np.zeros(len(rows), np.bool_)
        waits[here] = self._of("state", rows[here]) == _WAITS
        self.pending.take(self._entries(rows[waits], self._pending_of))
        self.settled.take(self._entries(rows[here & ~waits], self._settled_of))

    def _entries(self, rows: Indices, entries_of: Any) -> list[tuple[int, str, Any]]:
        rows = np.unique(rows)
        return list(zip(rows.tolist(), self._ids(rows).tolist(), entries_of(rows), strict=True))  # type: ignore[arg-type]

    def _pending_of(self, rows: Indices) -> list[Pending]:
        since, time = optional(self._of("since", rows)), optional(self._of("time", rows))
        scores, probabilities = self._of("score", rows).tolist(), self._of("probability", rows).tolist()
        codes = self._of("domain", rows)
        domains = [DOMAINS[code % _WEIGHED] for code in codes.tolist()]
        keys = self._keys_of(rows) or [None] * len(rows)
        seen = self._of("seen", rows).tolist()
        found = list(map(Pending, since, scores, probabilities, domains, keys, time, seen))
        if self._weights is not None:
            weights = self._weights[self._at(rows)].tolist()
            for index in (codes >= _WEIGHED).nonzero()[0].tolist():
                found[index] = structs.replace(found[index], weight=weights[index])
        return found

    def _settled_of(self, rows: Indices) -> list[Settled]:
        labels = [None if state == _EXPIRED else state - _ENDED for state in self._of("state", rows).tolist()]
        return list(map(Settled, optional(self._of("since", rows)), labels))

    def _put_pending(self, entries: dict[str, Pending]) -> None:
        if not entries:
            return
        new = list(entries.values())
        rows, _ = self._append(Texts.of(list(entries)))
        self._write(
            rows,
            state=_WAITS,
            since=np.array([each.since for each in new], np.float64),  # None becomes NaN
            score=[each.score for each in new],
            probability=[each.probability for each in new],
            time=np.array([each.time for each in new], np.float64),
            seen=[each.seen for each in new],
            domain=[DOMAINS.index(each.domain) + _WEIGHED * (each.weight is not None) for each in new],
        )
        self._write_keys(rows, [each.key for each in new])
        weights = np.array([each.weight for each in new], np.float64)  # None becomes NaN
        if not np.isnan(weights).all():
            if self._weights is None:
                self._weights = np.zeros(self._size)
            self._weights[self._at(rows)] = weights
        self._waiting += len(new)

    def _put_settled(self, entries: dict[str, Settled]) -> None:
        """Let predictions have ended: those that wait, and others."""
        if not entries:
            return
        ids = Texts.of(list(entries))
        rows = self._find(ids)
        new = (rows == 0).nonzero()[0]
        added, moved = self._append(ids.take(new))
        rows = moved(rows)
        rows[new] = added
        states = [_EXPIRED if each.label is None else _ENDED + each.label for each in entries.values()]
        since = np.array([each.since for each in entries.values()], np.float64)
        self._write(rows, state=states, since=since)
        self._ended.push(rows)

    # Many at a time

    def counts(self) -> tuple[int, int]:
        """Return how many predictions wait, and how many have ended."""
        return self._waiting, len(self._ended)

    def new(self, names: Texts) -> int:
        """Return how many predictions, from the first on, have an id that is not known, or none."""
        known = self._find(names) > 0
        early = self.early.entries
        if early:
            known |= np.fromiter((id_ in early for id_ in names.tolist()), np.bool_, len(names))
        return int(known.argmax()) if known.any() else len(names)

    def waiting(self, marked: Texts, domain: Domain) -> Waiting:
        """Return the predictions that wait for labels."""
        rows = self._find(marked)
        at = self._at(rows)
        columns = self._columns
        found = (rows > 0) & (columns["state"][at] == _WAITS)
        strange = found & (columns["domain"][at] != DOMAINS.index(domain))
        return Waiting(
            found,
            rows,
            columns["score"][at],
            columns["probability"][at],
            columns["seen"][at],
            columns["time"][at],
            self._keys_of(rows),
            int(strange.argmax()) if strange.any() else len(rows),
        )

    def since(self, count: int, *, ended: bool) -> Floats:
        """Return since when the first so many in order are there, or all if there are fewer; NaN: no time."""
        return self._of("since", self._ended.rows[:count] if ended else self._first_waiting(count))

    def leave(self, marked: Texts, waiting: Waiting, count: int) -> Mask:  # noqa: ARG002
        """Return which labels are for one of the first so many that wait."""
        first: Mask = waiting.found & (waiting.rows <= self._first_waiting(count)[-1])
        return first

    def take(self, made: Stretch, answered: Answered, since: Floats, settling: Settling) -> None:
        """Let the tables be as after a stretch; see `BulkTables`."""
        named = made.names.sizes > 0
        everything = bool(named.all())
        names = made.names if everything else made.names.take(named.nonzero()[0])
        self._forget(self._ended.pop(made.forgotten))
        leaving = self._first_waiting(settling.expiries)
        labelled = made.labelled.sizes.nonzero()[0]
        held = made.waiting.rows[labelled]
        added, moved = self._append(names)
        leaving, held = moved(leaving), moved(held)
        each = slice(None) if everything else named
        self._write(
            added,
            state=_WAITS,
            since=since[each],
            score=answered.scores[each],
            probability=answered.probabilities[each],
            time=answered.times[each],
            seen=answered.seen[each],
            domain=DOMAINS.index(answered.domain),
        )
        if answered.keys is not None:
            keys = (
                answered.keys
                if everything
                else [answered.keys[index] for index in named.nonzero()[0].tolist()]
            )
            self._write_keys(added, keys)
        if made.own is not None:
            numbers = np.cumsum(named) - 1
            own = made.own[labelled]
            held = np.where(own < 0, held, added[numbers[own]] if len(added) else 0)
        rows = np.concatenate((leaving, held))
        states = np.full(len(rows), _EXPIRED, np.uint8)
        states[len(leaving) :] = _ENDED + settling.labels[labelled]
        moments = np.concatenate((settling.expired_at, settling.labelled_at[labelled]))
        if len(leaving) and len(held):
            order = np.argsort(np.concatenate((settling.expired_by, made.ends[labelled])), kind="stable")
            rows, states, moments = rows[order], states[order], moments[order]
        self._write(rows, state=states, since=moments)
        self._ended.push(rows)
        self._waiting += len(added) - len(rows)
        self._advance()
        self._begin()

    # Rows

    def _at(self, rows: Indices) -> Indices:
        """Return where rows are in the ring."""
        return rows - rows // self._size * self._size

    def _of(self, name: str, rows: Indices) -> npt.NDArray[Any]:
        return self._columns[name][self._at(rows)]

    def _write(self, rows: Indices, **values: Any) -> None:
        at: Any = self._at(rows)
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1 == at[-1] - at[0] and (np.diff(at) == 1).all():
            at = slice(int(at[0]), int(at[-1]) + 1)
        for name, value in values.items():
            self._columns[name][at] = value

    def _ids(self, rows: Indices) -> Texts:
        starts = self._of("start", rows) % (len(self._text) - PADDING)
        return Texts(self._text, starts, self._of("size", rows).astype(np.int64))

    def _keys_of(self, rows: Indices) -> list[str | None] | None:
        if self._keys is None:
            return None
        names = self._names
        return [names[code] for code in self._keys[self._at(rows)].tolist()]

    def _write_keys(self, rows: Indices, keys: Sequence[str | None]) -> None:
        codes = self._codes
        for key in set(keys).difference(codes):
            codes[key] = len(self._names)
            self._names.append(key)
        if self._keys is None and len(codes) > 1:
            self._keys = np.zeros(self._size, np.int32)
        if self._keys is not None:
            self._keys[self._at(rows)] = [codes[key] for key in keys]

    def _find(self, ids: Texts) -> Indices:
        def same(numbers: Indices, rows: Indices) -> Mask:
            agree: Mask = self._of("state", rows) != _GONE
            sizes = ids.sizes[numbers]
            agree &= self._of("size", rows) == sizes
            some = agree.nonzero()[0]
            known = self._ids(rows[some])
            agree[some] = same_bytes(
                ids.data, ids.starts[numbers[some]], known.data, known.starts, sizes[some]
            )
            return agree

        hashes = ids.hashes()
        rows = self._slots.find(hashes, self._first, same)
        rows[ids.sizes == 0] = 0
        return rows

    def _first_waiting(self, count: int) -> Indices:
        """Return the first so many rows that wait, or all."""
        found: list[Indices] = []
        left, start = min(count, self._waiting), self._oldest
        while left > 0:
            rows = np.arange(start, min(start + max(2 * left, 256), self._next))
            some = rows[self._of("state", rows) == _WAITS][:left]
            found.append(some)
            left -= len(some)
            start += len(rows)
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _forget(self, rows: Indices) -> None:
        self._columns["state"][self._at(rows)] = _GONE

    def _advance(self) -> None:
        """Find the first row that lives, and the first that waits."""
        self._first = self._first_with(self._first, np.uint8(_WAITS), np.uint8(0xFF))
        self._oldest = self._first_with(max(self._oldest, self._first), np.uint8(_WAITS), np.uint8(_WAITS))

    def _first_with(self, start: int, least: np.uint8, most: np.uint8) -> int:
        count = 256
        while start < self._next:
            rows = np.arange(start, min(start + count, self._next))
            states = self._of("state", rows)
            found = (states >= least) & (states <= most)
            if found.any():
                return start + int(found.argmax())
            start += len(rows)
            count = min(4 * count, _AT_ONCE)
        return self._next

    def _append(self, ids: Texts) -> tuple[Indices, Moved]:
        """Return new rows for ids, none of which is known, and what the rows until now are from now on."""
        data, sizes = gathered(ids)
        count, bytes_ = len(sizes), len(data)
        moved: Moved = _unmoved
        fits = self._next - self._first + count <= self._size and self._next + count < MAX_ROW
        if not (fits and self._slots.has_room(count) and self._text_fits(bytes_)):
            moved = self._renew(count, bytes_)
        size = len(self._text) - PADDING
        if self._text_end % size + bytes_ > size:  # no id lies around the end
            self._text_end += size - self._text_end % size
        start = self._text_end % size
        self._text[start : start + bytes_] = data
        rows = np.arange(self._next, self._next + count)
        hashes = ids.hashes()
        starts = self._text_end + np.cumsum(sizes) - sizes
        self._write(rows, state=_GONE, start=starts, size=sizes)
        self._slots.add(hashes, rows, self._first)
        self._next += count
        self._text_end += bytes_
        return rows, moved

    def _text_fits(self, more: int) -> bool:
        size = len(self._text) - PADDING
        begin = self._text_end
        if begin % size + more > size:
            begin += size - begin % size
        if self._first == self._next:
            return more <= size
        oldest = int(self._of("start", np.array([self._first]))[0])
        return begin + more - oldest <= size

    def _renew(self, more: int, more_bytes: int) -> Moved:
        """Give the rows that live new numbers, in a ring with room for so many more."""
        rows: Any = np.arange(self._first, self._next, dtype=np.int32)  # half the memory of the moment
        rows = rows[self._of("state", rows) != _GONE] if len(rows) else rows
        at = self._at(rows) if len(rows) else rows
        count, before = len(rows), self._size
        size = max(before, _roomy(count + more))
        self._slots = IdSlots(size)  # now, so that no two are in memory
        if count and self._text_fits(more_bytes):
            starts = self._of("start", rows)  # they stay: a copy would be most of the memory of the moment
        else:
            starts, self._text, self._text_end = self._moved_text(rows, more_bytes, size / (count + more))
        for name, column in self._columns.items():
            moved = np.zeros(size, column.dtype)
            moved[1 : count + 1] = starts if name == "start" else column[at]
            self._columns[name] = moved
        if self._keys is not None:
            keys = np.zeros(size, np.int32)
            keys[1 : count + 1] = self._keys[at]
            self._keys = keys
        if self._weights is not None:
            weights = np.zeros(size)
            weights[1 : count + 1] = self._weights[at]
            self._weights = weights
        new_of = np.zeros(before, np.int32)
        new_of[at] = np.arange(1, count + 1, dtype=np.int32)

        def renumbered(old: Indices) -> Indices:
            known: Indices = new_of[old - old // before * before].astype(np.int64) if len(old) else old
            return known

        self._ended.rows[:] = renumbered(self._ended.rows)  # in their place
        self._oldest = 1 + int(np.searchsorted(rows, self._oldest))
        self._first, self._next, self._size = 1, count + 1, size
        for start in range(1, count + 1, _AT_ONCE):
            some = np.arange(start, min(start + _AT_ONCE, count + 1))
            self._slots.add(self._ids(some).hashes(), some, 1)
        return renumbered

    def _moved_text(
        self, rows: Indices, more: int, times: float
    ) -> tuple[Indices, npt.NDArray[np.uint8], int]:
        """Return where the id of each row begins, the ids one behind the other, and where they end.

        There is room for so many more bytes, and for so many times those of all.
        """
        if not len(rows):
            return np.zeros(0, np.int64), np.zeros(int(_SPARE * times * more) + PADDING, np.uint8), 0
        sizes = self._of("size", rows)
        ends = np.cumsum(sizes, dtype=np.int64)
        before = len(self._text) - PADDING
        size = max(before, int(_SPARE * times * (int(ends[-1]) + more)))
        text = np.zeros(size + PADDING, np.uint8)
        for start in range(0, len(rows), _AT_ONCE):
            data, _ = gathered(self._ids(rows[start : start + _AT_ONCE]))
            begin = int(ends[start]) - int(sizes[start])
            text[begin : begin + len(data)] = data
        end = int(ends[-1])
        ends -= sizes
        return ends, text, end


class _PendingRows:
    """The predictions that wait, as `streamcal.join.stored_table.Rows`; their numbers are those of rows."""

    def __init__(self, tables: DenseTables) -> None:
        self._tables = tables

    def after(self, seq: int, limit: int) -> Sequence[tuple[int, str, Pending]]:
        """Return the first beyond a number, in order: not too many, for most often only one is asked for."""
        tables, start = self._tables, max(seq + 1, self._tables._oldest)
        rows = np.zeros(0, np.int64)
        while not len(rows) and start < tables._next:
            some = np.arange(start, min(start + _AT_ONCE, tables._next))
            rows = some[tables._of("state", some) == _WAITS][: min(limit, _READ_AHEAD)]
            start += len(some)
        return tables._entries(rows, tables._pending_of)

    def extent(self) -> tuple[int, int]:
        """Return how many there are, and the largest number."""
        return self._tables._waiting, self._tables._next - 1


class _SettledRows:
    """The predictions that have ended; their numbers are those of their end."""

    def __init__(self, tables: DenseTables) -> None:
        self._tables = tables

    def after(self, seq: int, limit: int) -> Sequence[tuple[int, str, Settled]]:
        """Return the first beyond a number, in order; see `_PendingRows`."""
        tables = self._tables
        queue = tables._ended
        skipped = max(seq - queue.popped, 0)
        rows = queue.rows[skipped : skipped + min(limit, _READ_AHEAD)]
        numbers = range(queue.popped + skipped + 1, queue.popped + skipped + 1 + len(rows))
        return list(zip(numbers, tables._ids(rows).tolist(), tables._settled_of(rows), strict=True))  # type: ignore[arg-type]

    def extent(self) -> tuple[int, int]:
        """Return how many there are, and the largest number."""
        return len(self._tables._ended), self._tables._ended.popped + len(self._tables._ended)


def _roomy(size: int) -> int:
    """Return the size of a new ring for so much."""
    return size + max(size // 3, min(3 * size, _MORE))


def _unmoved(rows: Indices) -> Indices:
    return rows
