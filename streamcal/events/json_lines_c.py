"""Lines of JSON from and to columns, without an object for each value.

`LineReader` reads the plain case only: an object a line, known fields in any order, each once, ids and keys
without escapes. Of anything else it says that it is not plain, and the decoder of single lines decides.
`answer_lines` writes answers as `msgspec` writes them, to the byte.

Compiled where there is a C compiler; `json_lines_c.pxd` has the types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.string_column import PADDING, StringColumn
from streamcal.base.times import LATEST
from streamcal.base.values import MAX_NAME_CHARACTERS, Counts, Floats
from streamcal.events.columns import MAX_KEPT_BYTES, Role

FIELDS: Final[tuple[Role, ...]] = ("score", "label", "time", "domain", "id", "key")
"""Roles of the first fields of a reader."""

ID, KEY, OTHERS = 4, 5, 6
"""Places of id and key among the fields, and of the first that has no role."""

# As C has them.
_SCORE, _LABEL, _TIME, _DOMAIN = range(ID)
_ID, _OTHERS = ID, OTHERS
_QUOTE, _ESCAPE, _COLON, _COMMA, _OPEN, _CLOSE = b'"\\:,{}'
_BREAK, _RETURN, _SPACE, _DELETE, _WIDE, _TAB = b"\n\r \x7f\x80\t"
_POINT, _MINUS, _PLUS, _ZERO, _NINE = b".-+09"
_N, _T, _F, _E = b"ntfe"
_CAPITAL: Final = 0x20  # the bit that a capital letter lacks
_NULL, _TRUE, _FALSE, _SOURCE, _TARGET = b"null", b"true", b"false", b'"source"', b'"target"'
_DIGITS: Final = 19  # fit into 64 bits
_EXACT: Final = 1 << 53  # whole numbers up to it are floats, …
_PLACES: Final = 22  # … and so are powers of ten up to this one
_POWERS: Final = 10.0 ** np.arange(_PLACES + 1)
_LONG: Final = 32  # characters of a number that is surely finite
_NAME: Final = MAX_NAME_CHARACTERS
_TEXT: Final = MAX_KEPT_BYTES // 4
_LATEST: Final = LATEST
_NONE: Final = float("nan")
_SMALL, _TEN, _LARGE, _LARGEST = 1e-5, 10.0, 1e6, 1e12  # a number below the first has an exponent
_HIDDEN, _HALF = 1 << 52, (1 << 32) - 1
_FIVES: Any = np.array([5**power for power in range(16, 22)], np.uint64).data
_TENS: Any = np.array([10**power for power in range(_DIGITS)], np.uint64).data
_ROOM: Final = 256  # bytes of an answer at most, without its texts


class LineReader:
    """Reads lines of JSON.

    Parameters
    ----------
    names
        of the fields: those of `FIELDS`, then others, whose values are checked but not read.
    is_target
        domain of events that do not state one.

    Attributes
    ----------
    scores, labels, times
        of the events, as in `streamcal.events.blocks.Block`.
    domain
        domain of all predictions, 1 if it is the target; -1: there are none.
    has_wide, has_odd, has_escapes
        whether texts have bytes beyond ASCII; ids or keys characters that may not be printable; other texts
        escapes, which are not checked.
    """

    def __init__(self, names: Sequence[str], *, is_target: bool) -> None:
        self.usable = all(name.isprintable() and '"' not in name and "\\" not in name for name in names)
        """Whether each name stands in a text as it is."""
        self._is_target = is_target
        quoted = [f'{name}"'.encode() for name in names]
        sizes = np.array([len(name) for name in quoted], np.int64)
        self._names, self._fields = b"".join(quoted), len(quoted)
        self._name_starts, self._name_sizes = (np.cumsum(sizes) - sizes).data, sizes.data
        self._order = np.arange(self._fields).data  # of the fields, as lines before had them
        self._powers: Any = _POWERS.data

    def read(self, block: bytes, lines: int, most: int) -> list[tuple[int, int, int]] | None:
        """Read all lines, of which there are so many.

        Returns
        -------
        Number, beginning and end of each line that is not plain, and was left out; None if more than ``most``
        are not.
        """
        self._block = block + bytes(PADDING)
        self.spans = np.zeros((self._fields - ID, 2, lines), np.int64)
        """Where the id, the key and each other field begins in the text, and of how many bytes it is."""
        self.scores, self.times = np.full(lines, np.nan), np.full(lines, np.nan)
        self.labels = np.full(lines, -1, np.int8)
        views: list[Any] = [each.data for each in (self.scores, self.times, self.labels, self.spans)]
        self._score, self._time, self._label, self._span = views
        self._seen = np.zeros(self._fields, np.int64).data  # by field, the latest line that has it, from 1
        self.domain, self.has_wide, self.has_odd, self.has_escapes = -1, False, False, False
        at, odd = 0, list[tuple[int, int, int]]()
        for line in range(lines):
            start, has_wide = at, self.has_wide
            at = self._line(self._block, start, line)
            if at < 0:
                if len(odd) == most:
                    return None
                at = block.find(b"\n", start) + 1 or len(block)
                odd.append((line, start, at))
                self._score[line], self._time[line], self._label[line] = _NONE, _NONE, -1
                self.spans[:, :, line], self.has_wide = 0, has_wide
        return odd

    def values(self, field: int) -> list[bytes]:
        """Return the values of a field without a role as they are written, ``null`` where there is none."""
        block = self._block
        ends = zip(*self.spans[field - ID].tolist(), strict=True)
        return [block[start : start + size] or _NULL for start, size in ends]

    def texts(self, field: int) -> StringColumn:
        """Return the ids or the keys, one behind the other."""
        starts, sizes = self.spans[field - ID]
        places, out = np.cumsum(sizes) - sizes, bytearray(int(sizes.sum()) + PADDING)
        _gather(self._block, starts, sizes, out)
        return StringColumn(np.frombuffer(out, np.uint8), places, sizes)

    def _line(self, text: Any, at: int, line: int) -> int:
        """Read the line at a place; return where the next one begins, -1 if it is not plain."""
        if text[at] != _OPEN:
            return -1
        place, is_target, has_score, has_label, mark = 0, self._is_target, False, False, _COMMA
        while mark == _COMMA:
            at = _skip(text, at + 1)
            if text[at] != _QUOTE or place == self._fields:
                return -1
            field = self._field(text, at + 1, place)
            if field < 0 or self._seen[field] > line:
                return -1
            self._seen[field] = line + 1
            place += 1
            at = _skip(text, at + 1 + self._name_sizes[field])
            if text[at] != _COLON:
                return -1
            start = _skip(text, at + 1)
            first, at = text[start], -1
            if field == _SCORE:
                at = self._number(text, start)
                if not 0.0 <= self._value <= 1.0:
                    return -1
                self._score[line], has_score = self._value, True
            elif field == _LABEL:
                if first != _ZERO and first != _ZERO + 1:
                    return -1
                self._label[line], has_label, at = first - _ZERO, True, start + 1
                if text[at] == _POINT and text[at + 1] == _ZERO:  # as of a column with gaps
                    at += 2
            elif first == _N:
                at = _behind(text, start, _NULL, 4)
            elif field == _TIME:
                at = self._number(text, start)
                if not -_LATEST < self._value < _LATEST:
                    return -1
                self._time[line] = self._value
            elif field == _DOMAIN:
                is_target = text[start + 1] == _T
                at = _behind(text, start, _TARGET if is_target else _SOURCE, 8)
            elif first == _QUOTE:
                at = self._text(text, start + 1, field < _OTHERS)
                if field < _OTHERS:
                    if at - start < 3:
                        return -1
                    self._span[field - _ID, 0, line] = start + 1
                    self._span[field - _ID, 1, line] = at - start - 2
            elif field >= _OTHERS:
                if first == _T:
                    at = _behind(text, start, _TRUE, 4)
                elif first == _F:
                    at = _behind(text, start, _FALSE, 5)
                else:
                    at = self._number(text, start)
            if at < 0:
                return -1
            if field >= _OTHERS:
                self._span[field - _ID, 0, line] = start
                self._span[field - _ID, 1, line] = at - start
            at = _skip(text, at)
            mark = text[at]
        if mark != _CLOSE or not (has_score or has_label):
            return -1
        if not (has_score and has_label) and not self._span[0, 1, line]:
            return -1
        at = _skip(text, at + 1)
        at += text[at] == _RETURN
        if text[at] == _BREAK:
            at += 1
        elif at != len(self._block) - PADDING:
            return -1
        if not has_score:
            self._span[1, 1, line] = 0  # a label has no key
        elif self.domain != is_target:
            if self.domain >= 0:
                return -1
            self.domain = is_target
        return at

    def _field(self, text: Any, at: int, place: int) -> int:
        """Return the field whose name is at a place, -1 if none is; that of the line before first."""
        field = self._order[place]
        if _is_at(text, at, self._names, self._name_starts[field], self._name_sizes[field]):
            return field
        for field in range(self._fields):
            if _is_at(text, at, self._names, self._name_starts[field], self._name_sizes[field]):
                self._order[place] = field
                return field
        return -1

    def _text(self, text: Any, at: int, is_name: bool) -> int:
        """Return the place behind a text that begins at one; -1 if it is not plain, or long."""
        most = at + (_NAME if is_name else _TEXT)
        while at <= most:
            byte = text[at]
            at += 1
            if byte == _QUOTE:
                return at
            if byte < _SPACE or (byte == _ESCAPE and is_name):
                return -1
            if byte == _ESCAPE:
                self.has_escapes = True
                at += 1
            elif byte >= _DELETE:
                self.has_odd = self.has_odd or is_name
                self.has_wide = self.has_wide or byte >= _WIDE
        return -1

    def _number(self, text: Any, at: int) -> int:
        """Read a number; return the place behind it, -1 if it is not plain: then its value is NaN."""
        self._value = _NONE
        start, digits, after, value = at, 0, 0, 0
        at += text[at] == _MINUS
        first = at
        while _ZERO <= text[at] <= _NINE:
            value, at = value * 10 + (text[at] - _ZERO), at + 1
        digits = at - first
        if not digits or (digits > 1 and text[first] == _ZERO):
            return -1
        if text[at] == _POINT:
            at = first = at + 1
            while _ZERO <= text[at] <= _NINE:
                value, at = value * 10 + (text[at] - _ZERO), at + 1
            after = at - first
            if not after:
                return -1
        is_quick = digits + after <= _DIGITS and value <= _EXACT and after <= _PLACES
        if text[at] | _CAPITAL == _E:
            is_quick, at = False, at + 1
            at += text[at] == _PLUS or text[at] == _MINUS
            first = at
            while _ZERO <= text[at] <= _NINE:
                at += 1
            if at == first or at - first > 2:
                return -1
        if at - start > _LONG or (text[start] == _MINUS and not value):  # -0 is 0
            return -1
        if not is_quick:
            self._value = float(self._block[start:at])
        else:
            self._value = value / self._powers[after]
            if text[start] == _MINUS:
                self._value = -self._value
        return at


def _skip(text: Any, at: int) -> int:
    """Return the first place from one on that has no space."""
    while text[at] == _SPACE:
        at += 1
    return at


def _is_at(text: Any, at: int, names: Any, start: int, size: int) -> bool:
    """Whether a name, a part of others, is at a place."""
    i = 0
    while i < size and text[at + i] == names[start + i]:
        i += 1
    return i == size


def _behind(text: Any, at: int, word: Any, size: int) -> int:
    """Return the place behind a word, -1 if it is not at this place."""
    return at + size if _is_at(text, at, word, 0, size) else -1


def _gather(data: Any, starts: Any, sizes: Any, out: Any) -> None:
    """Write parts of a text one behind the other."""
    to = 0
    for i in range(len(starts)):
        start = starts[i]
        for at in range(start, start + sizes[i]):
            out[to] = data[at]
            to += 1


def are_distinct(text: bytes) -> bool:
    """Return whether no object in a valid text of JSON has a field twice; False, too, if that is not certain.

    It is not if names have escapes, objects lie deep in one another, or those that are open have many fields.
    """
    data, at, depth, count, size = text, 0, 0, 0, len(text)
    begins, ends, firsts = [0] * 64, [0] * 64, [0] * 8
    while at < size:
        mark = data[at]
        at += 1
        if mark == _OPEN:
            depth += 1
            if depth == 8:
                return False
            firsts[depth] = count
        elif mark == _CLOSE:
            count = firsts[depth]
            depth -= 1
        elif mark == _QUOTE:
            begin, is_odd = at, False
            while data[at] != _QUOTE:
                if data[at] == _ESCAPE:
                    is_odd = True
                    at += 1
                at += 1
            end = at
            at = _behind_spaces(data, at + 1, size)
            if at == size or data[at] != _COLON:
                continue
            if is_odd or count == 64:
                return False
            for i in range(firsts[depth], count):
                if ends[i] - begins[i] == end - begin and _is_same(data, begins[i], begin, end - begin):
                    return False
            begins[count], ends[count] = begin, end
            count += 1
    return True


def _behind_spaces(text: bytes, at: int, size: int) -> int:
    """Return the place of the first byte from this on that is no space."""
    while at < size and (text[at] == _SPACE or text[at] == _TAB or text[at] == _BREAK or text[at] == _RETURN):
        at += 1
    return at


def _is_same(text: bytes, one: int, other: int, size: int) -> bool:
    """Return whether so many bytes are the same from two places on."""
    same = 0
    while same < size and text[one + same] == text[other + same]:
        same += 1
    return same == size


def answer_lines(
    ids: StringColumn,
    scores: Floats,
    probabilities: Floats,
    times: Floats,
    which: npt.NDArray[np.intp],
    versions: Counts,
    weights: Floats,
    keys: StringColumn,
    added: Mapping[str, Any],
) -> memoryview:
    """Return answers as lines of JSON.

    Parameters
    ----------
    ids, scores, probabilities, times, which, versions, weights
        as in `streamcal.run.rows.AnswerColumns`; texts are printable.
    keys
        that of the answers of each version.
    added
        further fields by name: arrays or lists of a value for each answer.
    """
    texts, begins, lengths = _texts_of(added)
    count, width = len(added), 0
    for k in range(count):
        width += lengths[k]
    names, starts, sizes = ids.data, ids.starts, ids.sizes
    key_names, key_starts, key_sizes = keys.data, keys.starts, keys.sizes
    width += _ROOM + 2 * int(keys.sizes.max(initial=0))
    room = 2 * int(ids.sizes.sum()) + width * len(sizes) + len(texts)
    out = made = bytearray(room)
    at = size = start = 0
    for i in range(len(scores)):
        at = _put(out, at, b'{"id":', 6)
        at = _put_text(out, at, names, starts[i], sizes[i])
        at = _put(out, at, b',"score":', 9)
        at = _put_number(out, at, scores[i])
        at = _put(out, at, b',"probability":', 15)
        at = _put_number(out, at, probabilities[i])
        run, before, start = which[i], start, at
        if i and run == which[i - 1]:
            for k in range(size):
                out[at + k] = out[before + k]
            at += size
        else:
            at = _put(out, at, b',"map_version":', 15)
            at = _put_digits(out, at, versions[run], _width(versions[run]))
            at = _put(out, at, b',"weights":[', 12)
            at = _put_number(out, at, weights[run, 0])
            at = _put(out, at, b",", 1)
            at = _put_number(out, at, weights[run, 1])
            at = _put(out, at, b'],"key":', 8)
            at = _put_text(out, at, key_names, key_starts[run], key_sizes[run])
            at = _put(out, at, b',"time":', 8)
            size = at - start
        at = _put_number(out, at, times[i])
        for k in range(count):
            at = _put_part(out, at, texts, begins[k], lengths[k])
            place = count + k * len(scores) + i
            at = _put_part(out, at, texts, begins[place], lengths[place])
        at = _put(out, at, b"}\n", 2)
    return memoryview(made)[:at]


def _texts_of(added: Mapping[str, Any]) -> tuple[bytes, Counts, Counts]:
    """Return fields as texts of JSON: the bytes, and where in them is each name, then each value."""
    names = [b",%b:" % msgspec.json.encode(name) for name in added]
    columns = [_joined(names), *map(_encoded, added.values())]
    texts, starts, sizes = zip(*columns, strict=True)
    before = np.cumsum([0, *map(len, texts)])
    return b"".join(texts), np.concatenate(list(map(np.add, starts, before))), np.concatenate(sizes)


def _encoded(values: Any) -> tuple[bytes, Counts, Counts]:
    """Return values as texts of JSON, as in `_joined`."""
    encode, listed = msgspec.json.encode, values if isinstance(values, list) else values.tolist()
    if getattr(values, "dtype", None) != np.float64:
        return _joined(list(map(encode, listed)))
    text = encode(listed)  # numbers have no commas
    ends = np.append(np.flatnonzero(np.frombuffer(text, np.uint8) == _COMMA), len(text) - 1)
    starts = np.append(0, ends[: len(ends) - 1]) + 1
    return text, starts, ends - starts


def _joined(texts: list[bytes]) -> tuple[bytes, Counts, Counts]:
    """Return texts one behind the other, where each begins, and how long it is."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    return b"".join(texts), np.cumsum(sizes) - sizes, sizes


def _put_part(out: Any, at: int, data: Any, start: int, size: int) -> int:
    """Write a part of a text at a place; return the place behind it."""
    for i in range(size):
        out[at + i] = data[start + i]
    return at + size


def _put_text(out: Any, at: int, data: Any, start: int, size: int) -> int:
    """Write a text at a place, null if it is empty; return the place behind it."""
    if not size:
        return _put(out, at, _NULL, 4)
    out[at] = _QUOTE
    for i in range(start, start + size):
        at += 1
        if data[i] == _QUOTE or data[i] == _ESCAPE:
            out[at] = _ESCAPE
            at += 1
        out[at] = data[i]
    out[at + 1] = _QUOTE
    return at + 2


def _put_number(out: Any, at: int, number: float) -> int:
    """Write a number at a place, null for NaN; return the place behind it."""
    end = -1
    if number != number:
        return _put(out, at, _NULL, 4)
    if _SMALL <= number < _LARGEST or (number == 0.0 and math.copysign(1.0, number) > 0.0):
        places = 9 if number < _LARGE else 3
        unit = 10**9 if number < _LARGE else 10**3
        digits = int(number * unit + 0.5)
        if digits / float(unit) == number:  # of 15 digits at most, and so it has as many as these
            end = _put_decimal(out, at, digits, places)
        elif number < _TEN:
            end = _put_shortest(out, at, number)
    if end >= 0:
        return end
    text = msgspec.json.encode(float(number))
    return _put(out, at, text, len(text))


def _put_shortest(out: Any, at: int, number: float) -> int:
    """Write a number of 16 or 17 digits, in [1e-5, 10), at a place; return that behind it, -1 if unsure.

    The number is m / 2^q, so with k places it is m · 5^k / 2^s, where s = q − k. All decimals nearer to it
    than half the distance of floats, which is 5^k / 2^(s + 1), are read as this number: taken is the shortest
    of them, and of several the nearest.
    """
    places, limit, shift, scaled = 16, 1.0, 52, number
    while number < limit:
        places, limit = places + 1, limit / 10.0
    while scaled < 1.0:
        scaled, shift = scaled * 2.0, shift + 1
    while scaled >= 2.0:
        scaled, shift = scaled / 2.0, shift - 1
    m, five = int(scaled * _HIDDEN), _FIVES[places - 16]
    if m == _HIDDEN:  # floats below it are nearer
        return -1
    shift -= places
    first = (m & _HALF) * (five & _HALF)
    middle = (m & _HALF) * (five >> 32) + (m >> 32) * (five & _HALF) + (first >> 32)
    top = (m >> 32) * (five >> 32) + (middle >> 32)
    bottom = (middle & _HALF) << 32 | first & _HALF
    whole, rest, unit, zeros = (
        top << 64 - shift | bottom >> shift,
        bottom - (bottom >> shift << shift),
        100,
        2,
    )
    while unit:
        over, span = whole % unit << shift | rest, unit << shift
        if 2 * over == span:
            return -1
        is_up = 2 * over > span
        if 2 * (span - over if is_up else over) < five:
            return _put_decimal(out, at, whole // unit + is_up, places - zeros)
        unit, zeros = unit // 10, zeros - 1
    return -1


def _put_decimal(out: Any, at: int, digits: int, places: int) -> int:
    """Write a number with so many decimals at a place, without zeros at its end but for one."""
    while places > 1 and not digits % 10:
        digits, places = digits // 10, places - 1
    whole = 0
    if places < _DIGITS:
        unit = _TENS[places]
        whole, digits = digits // unit, digits % unit
    at = _put_digits(out, at, whole, _width(whole))
    out[at] = _POINT
    return _put_digits(out, at + 1, digits, places)


def _width(number: int) -> int:
    """Return how many digits a whole number has."""
    size = 1
    while number >= 10:
        number, size = number // 10, size + 1
    return size


def _put_digits(out: Any, at: int, number: int, size: int) -> int:
    """Write so many digits of a whole number at a place; return the place behind them."""
    for i in range(at + size - 1, at - 1, -1):
        out[i] = _ZERO + number % 10
        number //= 10
    return at + size


def _put(out: Any, at: int, text: Any, size: int) -> int:
    """Write a text at a place; return the place behind it."""
    for i in range(size):
        out[at + i] = text[i]
    return at + size
