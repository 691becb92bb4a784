"""IdTable: the memory of the join, by id.

Each id is a row: numbers in columns, and its bytes in one text. A hash table with open addressing finds the
row of an id. A row is a prediction that waits for its label, a prediction that has ended, or a label that
waits for its prediction. The rows of each kind are a queue in order of arrival: the oldest leave first.
Values without a column are in an object.

A store has the rows in packs: the columns of up to `PACK` rows of a queue, one behind the other. A pack is
written once; a bit for each of its rows says whether it is still there. It is written again once half of it
has gone, or the object of a row has changed, or while it is the last of its queue and small.

Compiled where there is a C compiler; `id_table_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.events import DOMAINS, LabelEvent
from streamcal.join.entries import Memo, Pending
from streamcal.join.packs import PACK, Kind, Pack, PackChanges, PackRows

WAITING, ENDED, EARLY = 0, 1, 2
"""Queues: predictions that wait, predictions that have ended, and labels that wait for their prediction."""

FREE, WAITS, COMES, EXPIRED, LABELLED = 0, 1, 2, 3, 4
"""States of a row. The state of a row that has ended with a label is the last one plus that label."""

DOMAIN, HELD = 1, 2
"""Flags of a row: its domain, as a number; whether it has an object."""

REAL, PAIR = 4, 2
"""Numbers per row in the columns of floats (since, score, probability, time), of integers (prediction index,
and the place of the id) and of links (next and previous)."""

# As C has them.
_WAITING, _ENDED, _EARLY = WAITING, ENDED, EARLY
_FREE, _WAITS, _COMES, _EXPIRED, _LABELLED = FREE, WAITS, COMES, EXPIRED, LABELLED
_DOMAIN, _HELD = DOMAIN, HELD
_REAL, _PAIR = REAL, PAIR
_KINDS: Final[tuple[Kind, ...]] = ("pending", "settled", "early")
_PACK, _INDEX_BITS = PACK, PACK.bit_length() - 1
_SMALL: Final = 2  # bytes of bits of a small pack
_QUEUES = 3  # the first rows are the ends of the queues: before the first row of each, and behind its last
SIZE_BITS: Final = 16
_SIZE_BITS = SIZE_BITS
_SIZES: Final = (1 << 16) - 1
ROW: Final = (1 << 32) - 1
_ROW = ROW
_NONE: Final = float("nan")
_FEWEST: Final = 64  # rows of a new table
_MORE: Final = 1 << 19
_NAMES: Final = 1024
_WRITTEN: Final = ("real", "whole", "key", "state", "flags")
_WORD: Final = (1 << 64) - 1
_SEED: Final = hash("streamcal") & _WORD
_ODD: Final = 0x9E37_79B9_7F4A_7C15  # 2⁶⁴ by the golden ratio

_COLUMNS: Final[dict[str, tuple[Any, int]]] = {
    "real": (np.float64, REAL),
    "whole": (np.int64, PAIR),
    "links": (np.uint32, PAIR),
    "key": (np.int32, 1),
    "state": (np.uint16, 1),
    "flags": (np.uint8, 1),
    "pack": (np.int64, 1),
}


class IdTable:
    """Rows by id, in three queues."""

    def __init__(self) -> None:
        self.classes = 2
        """Number of classes: a label is below it."""
        self.names: list[str | None] = [None]
        """Keys of rows, by number."""
        self.renumbered: int = 0
        """Number of times that the numbers of keys have changed."""
        self._codes: dict[str | None, int] = {None: 0}
        self._most_names = _NAMES  # before those are forgotten that no row has
        self._counts = _zeros(_QUEUES, np.int64)  # rows of each queue
        self._rows = self._limit = _QUEUES - 1  # the number of the last row, and of the last with memory
        self._free = self._live = 0
        self._columns = {name: _zeros(width * _QUEUES, kind) for name, (kind, width) in _COLUMNS.items()}
        self._see_columns()
        self._slots = _zeros(2 * _FEWEST, np.uint64)
        self._mask = 2 * _FEWEST - 1
        self._text = bytearray()
        self._text_end = self._text_live = 0
        self.objects: list[Any] = []  # by row, as far as there is one
        self._present: dict[int, bytearray] = {}  # by pack: a bit for each of its rows, 0 once it is gone
        self._changed: dict[int, int] = {}  # by pack of which a row has gone: another, 0 if none is left
        self._noted: set[int] = set()  # packs of rows whose object has changed
        self._last_pack = 0
        for queue in range(_QUEUES):
            self._links[_PAIR * queue] = self._links[_PAIR * queue + 1] = queue

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._live

    def known(self, id_: str) -> int:
        """Return the row of an id; 0 if it has none."""
        data = id_.encode("utf-8", "surrogatepass")
        return self._find(hashed(data, 0, len(data)), data, 0, len(data))

    def is_prediction(self, id_: str) -> bool:
        """Whether an id is that of a prediction."""
        row = self.known(id_)
        return bool(row and self._state[row] != _COMES)

    def is_waiting(self, row: int) -> bool:
        """Whether a row is a prediction that waits."""
        return bool(self._state[row] == _WAITS)

    def is_early(self, row: int) -> bool:
        """Whether a row is a label that waits for its prediction."""
        return bool(self._state[row] == _COMES)

    def label_of(self, row: int) -> int | None:
        """Return the label with which a prediction has ended; None if it ended without one."""
        return self._state[row] - _LABELLED if self._state[row] >= _LABELLED else None

    def since(self, row: int) -> float | None:
        """Return the time of the clock when a row came to its queue; None if it had no time yet."""
        since = self._real[_REAL * row]
        return None if since != since else since

    def prediction(self, id_: str) -> Pending | None:
        """Return a prediction that waits, or what is left of one that has ended; None: nothing."""
        row = self.known(id_)
        left: Pending | None = self.object_of(row) if self.is_prediction(id_) else None
        return self._pending(row) if self.is_waiting(row) else left

    def count(self, queue: int) -> int:
        """Return the number of rows in a queue."""
        count: int = self._counts[queue]
        return count

    def oldest(self, queue: int) -> int:
        """Return the first row of a queue, 0 if there is none."""
        row: int = self._links[_PAIR * queue]
        return 0 if row == queue else row

    def load(self, packs: Iterable[Pack]) -> None:
        """Put the rows of packs into the table, in the order of their numbers.

        Raises
        ------
        ValueError
            if a pack holds no rows, or is out of order, or an id is there already.
        """
        settled = range(_EXPIRED, _LABELLED + self.classes)
        for pack in packs:
            states = [_WAITS] if pack.kind == "pending" else [_COMES] if pack.kind == "early" else settled
            content, columns, present = PackRows.of(pack, states, self.classes)
            sizes, entered, stays = columns[0].tolist(), columns[1].tolist(), present.tolist()
            if pack.number <= self._last_pack:
                raise ValueError(f"pack {pack.number} comes after pack {self._last_pack}")
            text, start, places = content.text, 0, dict[int, int]()
            for index, size in enumerate(sizes):
                if stays[index]:
                    found = hashed(text, start, size)
                    if self._find(found, text, start, size):
                        raise ValueError(f"an id twice: {text[start : start + size]!r}")
                    row = places[index] = self._add(found, text, start, size)
                    self._pack[row] = pack.number << _INDEX_BITS | index
                    self._enqueue(row, entered[index])
                start += size
            rows, real = list(places.values()), columns[2][present]
            self._column("real")[rows, : real.shape[1]] = real
            for name, column in zip(("whole", "flags"), columns[3:], strict=False):
                self._column(name)[rows, 0] = column[present]
            for index in places if content.keys else ():
                self._key[places[index]] = self.code_of(content.keys[index])
            for objects in (content.predictions, content.labels, content.memos):
                for index in places.keys() & objects.keys():
                    self.hold_object(places[index], objects[index])
            self._present[pack.number] = bytearray(pack.present)
            self._last_pack = pack.number

    def packs(self) -> list[Pack]:
        """Return all rows, in new packs; equal queues give equal packs."""
        rows = np.empty(self._live, np.uint32)
        ends = self._divided([self._links[_PAIR * queue] for queue in range(_QUEUES)], rows.data, 0)
        return self._packed(rows, ends, range(1, len(ends) + 1))

    def changes(self) -> PackChanges:
        """Return what a store has to write since the last call, or since `load`."""
        changed, noted, self._changed, self._noted = self._changed, self._noted, {}, set()
        removed, marks, begins = list[int](), dict[int, bytes](), list[int]()
        ends, numbers, found = list[int](), list[int](), np.empty(self._live, np.uint32)
        rows, count = found.data, 0
        for queue in range(_QUEUES):
            row = self._links[_PAIR * queue + 1]
            while row != queue and not self._pack[row]:
                row = self._links[_PAIR * row + 1]
            pack = self._pack[row] >> _INDEX_BITS
            if self._links[_PAIR * row] != queue and pack and len(self._present[pack]) <= _SMALL:
                changed[pack] = 0
                while self._pack[row] >> _INDEX_BITS == pack:
                    self._pack[row] = 0
                    row = self._links[_PAIR * row + 1]
            begins.append(self._links[_PAIR * row])
        for pack, row in changed.items():
            present = self._present[pack]
            if row and pack not in noted and int.from_bytes(present, "little").bit_count() > 4 * len(present):
                marks[pack] = bytes(present)
                continue
            removed.append(pack)
            del self._present[pack]
            if row:
                while self._pack[self._links[_PAIR * row + 1]] >> _INDEX_BITS == pack:
                    row = self._links[_PAIR * row + 1]
                while self._pack[row] >> _INDEX_BITS == pack:
                    rows[count] = row
                    count, row = count + 1, self._links[_PAIR * row]
                ends.append(count)
                numbers.append(pack)
        ends += self._divided(begins, rows, count)
        last = self._last_pack + len(ends) - len(numbers)
        numbers += range(self._last_pack + 1, last + 1)
        self._last_pack = last
        added, start = self._packed(found[: max(ends, default=0)], ends, numbers), 0
        for pack, end, made in zip(numbers, ends, added, strict=True):
            self._present[pack] = bytearray(made.present)
            for index in range(start, end):
                self._pack[rows[index]] = pack << _INDEX_BITS | index - start
            start = end
        return PackChanges(removed, added, marks)

    def _divided(self, begins: Sequence[int], rows: Any, count: int) -> list[int]:
        """Put the rows of each queue from a row on behind others; return where packs of them end."""
        ends = list[int]()
        for queue, row in enumerate(begins):
            begin = count
            while row != queue:
                rows[count] = row
                count, row = count + 1, self._links[_PAIR * row]
            ends += [min(start + PACK, count) for start in range(begin, count, PACK)]
        return ends

    def _packed(self, rows: npt.NDArray[Any], ends: Sequence[int], numbers: Sequence[int]) -> list[Pack]:
        """Return packs of rows with these numbers; each ends before an index, where the next begins."""
        real, whole, keys, states, flags = (self._column(name).take(rows, 0) for name in _WRITTEN)
        sizes = (whole[:, 1] & _SIZES).astype(np.uint16)
        held = [*np.flatnonzero(flags & _HELD).tolist(), len(rows)]
        packs, domains, start, at = list[Pack](), flags & _DOMAIN, 0, 0
        for end, number in zip(ends, numbers, strict=True):
            row, part, count = rows[start], slice(start, end), end - start
            kind: Kind = _KINDS[_queue_of(self._state[row])]
            waits = kind == "pending"
            columns = [sizes[part], states[part], real[part] if waits else real[part, 0]]
            if waits:
                columns += [whole[part, 0], domains[part]]
            text = self._text_of(rows[part], int(sizes[part].sum()))
            content = PackRows([column.tobytes() for column in columns], text)
            if waits and keys[part].any():
                content.keys = [self.names[code] for code in keys[part, 0].tolist()]
            while held[at] < end:
                what = self.objects[rows[held[at]]]
                objects = content.memos if waits else content.labels
                (content.predictions if type(what) is Pending else objects)[held[at] - start] = what
                at += 1
            present = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
            packs.append(Pack(number, kind, self.since(row), content.encoded(), present))
            start = end
        return packs

    def _text_of(self, rows: Any, length: int) -> bytes:
        """Return the ids of rows, so many bytes, one behind the other."""
        copied = bytearray(length)
        text, to, end = self._text, copied, 0
        for index in range(len(rows)):
            place = self._whole[_PAIR * rows[index] + 1]
            start, size = place >> _SIZE_BITS, place & _SIZES
            for i in range(size):
                to[end + i] = text[start + i]
            end += size
        return bytes(copied)

    def _column(self, name: str) -> npt.NDArray[Any]:
        """Return a column, with a row of numbers for each row."""
        return np.asarray(self._columns[name]).reshape(-1, _COLUMNS[name][1])

    def note(self, row: int) -> None:
        """Mark the object of a row as changed."""
        pack = self._pack[row] >> _INDEX_BITS
        if pack:
            self._changed[pack] = row
            self._noted.add(pack)

    def remove(self, row: int) -> None:
        """Forget a row."""
        self._leave(row)
        if self._flags[row] & _HELD:
            self.objects[row] = None
        self._unslot(row)
        self._text_live -= self._whole[_PAIR * row + 1] & _SIZES
        self._state[row] = _FREE
        self._flags[row] = 0
        self._links[_PAIR * row] = self._free
        self._free = row
        self._live -= 1

    def id_of(self, row: int) -> str:
        """Return the id of a row."""
        place = self._whole[_PAIR * row + 1]
        start, size = place >> _SIZE_BITS, place & _SIZES
        text = self._text
        return text[start : start + size].decode("utf-8", "surrogatepass")

    def code_of(self, key: str | None) -> int:
        """Return the number of a key."""
        code = self._codes.get(key)
        if code is None:
            if len(self.names) > self._most_names:
                self._renumber()
            code = self._codes[key] = len(self.names)
            self.names.append(key)
        return code

    def codes_of(self, keys: Iterable[str | None]) -> dict[str | None, int]:
        """Return the numbers of many keys, all as of now."""
        if len(self.names) > 2 * self._live + _NAMES:
            self._renumber()
        self._most_names = 1 << 62
        codes = {key: self.code_of(key) for key in keys}
        self._most_names = 2 * len(self.names) + _NAMES
        return codes

    def _renumber(self) -> None:
        """Forget the keys that no row has; give the others new numbers."""
        before, self.names, self._codes = self.names, [None], {None: 0}
        for row in range(_QUEUES, self._rows + 1):
            if self._state[row] != _FREE:
                key = before[self._key[row]]
                if key not in self._codes:
                    self._codes[key] = len(self.names)
                    self.names.append(key)
                self._key[row] = self._codes[key]
        self._most_names = 2 * len(self.names) + _NAMES
        self.renumbered += 1

    def held(self, row: int) -> Pending:
        """Return a row's prediction as an object, which is kept: changes to it stay."""
        if not self._flags[row] & _HELD or type(self.objects[row]) is not Pending:
            self.hold_object(row, self._pending(row))
        held: Pending = self.objects[row]
        return held

    def hold_object(self, row: int, held: Pending | LabelEvent | Memo | float) -> None:
        """Keep an object of a row; of a prediction that has no more than `Memo`, or a weight, that alone."""
        objects = self.objects
        if row >= len(objects):
            objects.extend([None] * (self._limit + 1 - len(objects)))
        objects[row] = held
        self._flags[row] |= _HELD

    def object_of(self, row: int) -> Any:
        """Return the object of a row; None if it has none."""
        return self.objects[row] if self._flags[row] & _HELD else None

    def take_object(self, row: int) -> Any:
        """Remove the object of a row, and return it."""
        self._flags[row] &= ~_HELD
        objects = self.objects
        held, objects[row] = objects[row], None
        return held

    def _pending(self, row: int) -> Pending:
        """Return a prediction that waits as an object."""
        held = self.object_of(row)
        if type(held) is Pending:
            return held
        weight, memo = (held, None) if type(held) is float else (None, held)
        real = _REAL * row
        since, time = self._real[real], self._real[real + 3]
        return Pending(
            None if since != since else since,
            self._real[real + 1],
            self._real[real + 2],
            DOMAINS[self._flags[row] & _DOMAIN],
            self.names[self._key[row]],
            None if time != time else time,
            self._whole[_PAIR * row],
            weight=weight,
            memo=memo,
        )

    def _write(
        self,
        row: int,
        score: float,
        probability: float,
        time: float,
        prediction_index: int,
        is_target: bool,
        code: int,
    ) -> None:
        """Write the values of a prediction; ``code`` is the number of its key."""
        real = _REAL * row
        self._real[real + 1] = score
        self._real[real + 2] = probability
        self._real[real + 3] = time
        self._whole[_PAIR * row] = prediction_index
        self._flags[row] = is_target
        self._key[row] = code

    def _enqueue(self, row: int, state: int) -> None:
        """Put a row that is in no queue behind the others of its state."""
        self._state[row] = state
        queue = _queue_of(state)
        before = self._links[_PAIR * queue + 1]
        self._links[_PAIR * row], self._links[_PAIR * row + 1] = queue, before
        self._links[_PAIR * before] = self._links[_PAIR * queue + 1] = row
        self._counts[queue] += 1

    def _leave(self, row: int) -> None:
        """Take a row out of its queue."""
        after, before = self._links[_PAIR * row], self._links[_PAIR * row + 1]
        self._links[_PAIR * before], self._links[_PAIR * after + 1] = after, before
        self._counts[_queue_of(self._state[row])] -= 1
        pack, index = self._pack[row] >> _INDEX_BITS, self._pack[row] & (_PACK - 1)
        if pack:
            left = after if self._pack[after] >> _INDEX_BITS == pack else before
            self._changed[pack] = left if self._pack[left] >> _INDEX_BITS == pack else 0
            present = self._present[pack]
            present[index >> 3] &= ~(1 << (index & 7))
            self._pack[row] = 0

    def _find(self, found: int, data: Any, start: int, size: int) -> int:
        """Return the row of an id with this hash, 0 if it has none."""
        tag = found >> 32
        at = tag & self._mask
        text = self._text
        while True:
            slot = self._slots[at]
            if not slot:
                return 0
            if slot >> 32 == tag:
                row: int = slot & _ROW
                place = self._whole[_PAIR * row + 1]
                if place & _SIZES == size:
                    other, i = place >> _SIZE_BITS, 0
                    while i < size and text[other + i] == data[start + i]:
                        i += 1
                    if i == size:
                        return row
            at = (at + 1) & self._mask

    def _add(self, found: int, data: Any, start: int, size: int) -> int:
        """Return a new row for an id with this hash that has none."""
        if 3 * self._live >= 2 * self._mask:
            self._slots = widened(self._slots)
            self._mask = len(self._slots) - 1
        row = self._free
        if row:
            self._free = self._links[_PAIR * row]
        else:
            if self._rows == self._limit:
                self._lengthen()
            self._rows += 1
            row = self._rows
        self._live += 1
        if self._text_end + size > len(self._text):
            self._make_room(size)
        end = self._text_end
        text = self._text
        for i in range(size):
            text[end + i] = data[start + i]
        self._whole[_PAIR * row + 1] = end << _SIZE_BITS | size
        self._text_end += size
        self._text_live += size
        tag = found >> 32
        at = tag & self._mask
        while self._slots[at]:
            at = (at + 1) & self._mask
        self._slots[at] = tag << 32 | row
        self._key[row] = 0
        return row

    def _unslot(self, row: int) -> None:
        """Take a row out of the hash table, and move up the rows behind it that its slot had displaced."""
        place = self._whole[_PAIR * row + 1]
        text = self._text
        mask = self._mask
        at = hashed(text, place >> _SIZE_BITS, place & _SIZES) >> 32 & mask
        while self._slots[at] & _ROW != row:
            at = (at + 1) & mask
        next_ = at
        while True:
            next_ = (next_ + 1) & mask
            slot = self._slots[next_]
            if not slot:
                break
            if ((next_ - (slot >> 32)) & mask) >= ((next_ - at) & mask):
                self._slots[at] = slot
                at = next_
        self._slots[at] = 0

    def _lengthen(self) -> None:
        """Make room for a third more rows, or for twice as many while they are cheap to move."""
        self._limit += max(_FEWEST, self._limit // 3, min(3 * self._limit, _MORE))
        for name, column in self._columns.items():
            kind, width = _COLUMNS[name]
            longer = _zeros(width * (self._limit + 1), kind)
            longer[: len(column)] = column
            self._columns[name] = longer
            self._see_columns()  # so that there are never two copies of all

    def _see_columns(self) -> None:
        columns = self._columns
        self._real, self._whole, self._links = columns["real"], columns["whole"], columns["links"]
        self._key, self._state, self._flags = columns["key"], columns["state"], columns["flags"]
        self._pack = columns["pack"]

    def _make_room(self, size: int) -> None:
        """Make room for an id: in the place of removed ids, if these are many."""
        if 4 * self._text_live > 3 * self._text_end:
            self._text.extend(bytes(len(self._text) // 3 + 64 * _FEWEST + size))
            return
        moved = bytearray((self._text_live + size) * 4 // 3 + 64 * _FEWEST)
        text, to, end = self._text, moved, 0
        for row in range(_QUEUES, self._rows + 1):
            if self._state[row] != _FREE:
                place = self._whole[_PAIR * row + 1]
                start, count = place >> _SIZE_BITS, place & _SIZES
                for i in range(count):
                    to[end + i] = text[start + i]
                self._whole[_PAIR * row + 1] = end << _SIZE_BITS | count
                end += count
        self._text, self._text_end = moved, end


def _zeros(size: int, kind: Any) -> Any:
    """Return zeros that take no memory before they are written; reading one gives a Python int or float."""
    return np.zeros(size, kind).data


def _queue_of(state: int) -> int:
    """Return the queue of a state."""
    return _WAITING if state == _WAITS else _EARLY if state == _COMES else _ENDED


def widened(before: Any) -> Any:
    """Return a hash table of twice the size, uint64[2 n]; of each slot the upper half is its tag."""
    slots = np.zeros(2 * len(before), np.uint64).data
    mask = 2 * len(before) - 1
    for i in range(len(before)):
        slot = before[i]
        if slot:
            at = slot >> 32 & mask
            while slots[at]:
                at = (at + 1) & mask
            slots[at] = slot
    return slots


def hashed(data: Sequence[int], start: int, size: int) -> int:
    """Return the hash of bytes; it differs between processes, so nobody can choose texts that collide."""
    found, at, end = _SEED ^ size * _ODD & _WORD, start, start + size
    while at + 8 <= end:
        b0, b1, b2, b3 = data[at], data[at + 1], data[at + 2], data[at + 3]
        b4, b5, b6, b7 = data[at + 4], data[at + 5], data[at + 6], data[at + 7]
        word = b0 | b1 << 8 | b2 << 16 | b3 << 24 | b4 << 32 | b5 << 40 | b6 << 48 | b7 << 56
        found = (found ^ word) * _ODD & _WORD
        found ^= found >> 29
        at += 8
    word = 0
    while end > at:
        end -= 1
        word = word << 8 | data[end]
    found = (found ^ word) * _ODD & _WORD
    found ^= found >> 32
    found = found * _ODD & _WORD
    return found ^ found >> 32
