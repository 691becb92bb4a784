"""Decodes events from text: one JSON object per line, or one CSV row.

A prediction is ``{"id", "score", "time"?, "key"?, "domain"?}``, a label is ``{"id", "label", "time"?}``, and
a labelled prediction is ``{"id"?, "score", "label", …}``, under these names or those of `Columns`. Other
fields are ignored and counted. Each may have a weight where a column is named for it; such events are decoded
one by one. A time is seconds since the epoch, or a date and time (UTC if it has no zone).

Whatever a text holds, it becomes an event or a `Malformed`, and the same one in every run.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from streamcal.base.times import LATEST, iso_date, read_time
from streamcal.base.values import MAX_NAME_CHARACTERS, parse_number
from streamcal.events import DOMAINS, Domain, Event, Kept, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.blocks import FEWEST, NO_LABEL, Block
from streamcal.events.codes import FieldError
from streamcal.events.columns import MAX_KEPT_BYTES, ROLES, Columns, Role, check_header
from streamcal.events.fields import Fields, Malformed, TableFields, count_names, malformed
from streamcal.events.json_lines_c import FIELDS, ID, KEY, OTHERS, LineReader, are_distinct

MAX_DEPTH: Final = 100
"""Arrays and objects may be nested so deep: far less than what any decoder takes, so that none decides."""

_BACKSLASH, _DELETE = b"\\\x7f"
_MOST_IGNORED: Final = 16
_ODD: Final = 16  # of so many lines, one may be in no plain form
_LONGEST_ODD: Final = 1 << 16  # bytes of such a line
_BEFORE: Final = (b"", b"\xef")  # a blank line, or a byte order mark
_SQUARE, _CURLY = b"[]", b"{}"
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_ORDERS: Final[tuple[Literal["dmy", "mdy"], ...]] = ("dmy", "mdy")
_SEPARATORS: Final = ",;\t|"
_COMMA: Final = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
_THOUSANDS: Final = re.compile(r"[1-9]\d{0,2},\d{3}", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]  # longer ones: slow path
_Key = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARACTERS)]
_Time = Annotated[float, msgspec.Meta(gt=-LATEST, lt=LATEST)]  # in its unit: see `run.order`
_Kept = Annotated[str, msgspec.Meta(max_length=MAX_KEPT_BYTES // 4)] | bool | int | float | None
_VALUES: Final = msgspec.json.Decoder(list[_Kept]).decode


class JsonDecoder:
    """Decode JSON lines into events.

    Parameters
    ----------
    domain
        domain of events that do not state one.
    columns
        the names of the fields.
    """

    def __init__(self, domain: Domain = "target", columns: Columns | None = None) -> None:
        columns = columns or Columns()
        self._domain: Domain = domain
        self._fields = Fields(columns, domain)
        scores = self._fields.scores
        self._is_quick, self._event = not self._fields.doubled, scores.quickly(self._made)
        self._in_columns = self._is_quick and scores.in_columns
        self._names = columns.names
        self._keep = self._fields.keep if self._is_quick else ()  # a struct cannot hold a field twice
        self._ignored: list[str] = []  # names of unknown fields that the quick way skips
        self._prepare()
        self._kept = _kept_of(len(self._keep))
        self._takes_labels = columns.positive is None
        self.unknown_fields: Counter[str] = Counter()
        """Counts of ignored fields, which events do not have, by name: at most 100 names,
        each cut to 100 characters; the others count as one."""

    def _prepare(self) -> None:
        """Make the decoders of the quick way."""
        wire = _wire_type(self._names, self._fields.scores.wire, self._keep, self._ignored)
        self._decode = msgspec.json.Decoder(wire).decode
        fields = [*(self._names[role] for role in FIELDS), *self._keep, *self._ignored]
        self._reader = LineReader(fields, is_target=self._domain == "target")

    def _ignore(self, names: Iterable[str]) -> None:
        """Count unknown fields, and let the quick way skip the first so many of them from now on."""
        count_names(self.unknown_fields, names)
        new = [name for name in names if name not in self._ignored and _can_be_skipped(name)]
        new = [name for name in new if name in self.unknown_fields]  # others do not count by themselves
        if new and len(self._ignored) + len(new) <= _MOST_IGNORED:
            self._ignored += sorted(new)
            self._prepare()

    def _count(self, wire: Any) -> None:
        """Count the unknown fields that the quick way has skipped."""
        for index, name in enumerate(self._ignored):
            if getattr(wire, f"ignored_{index}") is not msgspec.UNSET:
                self.unknown_fields[name] += 1

    def decode(self, raw: bytes) -> Event | Malformed:
        """Return the event of one line, or why it is not one; never raises on bad input."""
        if self._is_quick:
            try:
                wire = self._decode(raw)
                check_repeated(raw)
            except Exception:  # malformed, or valid in a rare form: the slow way tells
                return self._decode_slowly(raw)
            event: Event | None = self._event(wire)
            if event is not None and (_has_plain_text(raw) or _is_plain(event)):
                if self._ignored:
                    self._count(wire)
                return event
        return self._decode_slowly(raw)

    def decode_lines(self, block: bytes, *, rejects: bool = False) -> Block | None:
        """Return the events of a block of lines, one per line, or None if the lines need `decode` each.

        They do if they are few, or one is blank, is not an event, or has another form than that of
        `LineReader`; with ``rejects``, some of many lines may.
        """
        reader, kept = self._reader, None
        lines = block.count(b"\n") + (not block.endswith(b"\n"))
        if lines < FEWEST or not (self._in_columns and reader.usable):
            return None
        odd = reader.read(block, lines, lines // _ODD if rejects and self._takes_labels else 0)
        if odd is None:
            return None
        texts = [block[start:end].removesuffix(b"\n").removesuffix(b"\r") for _, start, end in odd]
        if any(text.isspace() or text[:1] in _BEFORE or len(text) > _LONGEST_ODD for text in texts):
            return None
        try:
            if reader.has_wide:
                block.decode()
            fields = range(OTHERS, OTHERS + len(self._keep) + len(self._ignored) * reader.has_escapes)
            values = [_VALUES(b"[%b]" % b",".join(reader.values(field))) for field in fields]
        except ValueError:
            return None
        if self._keep:
            kept = list(zip(*values[: len(self._keep)], strict=True))
        keys = reader.texts(KEY)
        found = Block(
            reader.texts(ID),
            reader.scores,
            reader.labels,
            reader.times,
            DOMAINS[reader.domain] if reader.domain >= 0 else self._domain,
            keys.tolist() if keys.sizes.any() else None,
            kept,
        )
        if (not self._takes_labels and (reader.labels != NO_LABEL).any()) or (
            reader.has_odd and not _has_plain_names(found)
        ):
            return None
        for index, name in enumerate(self._ignored, OTHERS + len(self._keep)):
            if present := int(np.count_nonzero(reader.spans[index - ID, 1])):
                self.unknown_fields[name] += present
        found.others = others = {line: self.decode(text) for (line, *_), text in zip(odd, texts, strict=True)}
        found.times[[*others]] = np.array([other.time for other in others.values()], np.float64)
        return found

    def _made(self, wire: Any, also_kept: Kept = ()) -> Event | None:
        """Return the event, or None if the slow path must decide."""
        score, label = wire.score, wire.label
        kept = also_kept if self._kept is None else self._kept(wire) + also_kept
        if label is msgspec.UNSET:
            if type(score) is not float or wire.id is None:
                return None
            return PredictionEvent(
                wire.id, score, wire.time, wire.key, wire.domain or self._domain, None, kept
            )
        if type(label) is not int or score is None or not self._takes_labels:
            return None
        if score is msgspec.UNSET:
            return None if wire.id is None else LabelEvent(wire.id, label, wire.time)
        return LabelledEvent(
            score, label, wire.id, wire.time, wire.key, wire.domain or self._domain, None, kept
        )

    def _decode_slowly(self, raw: bytes) -> Event | Malformed:
        try:
            if _is_deep(raw):
                return Malformed("malformed", {"depth": MAX_DEPTH})
            fields = msgspec.json.decode(raw)
            if not isinstance(fields, dict):
                return Malformed("malformed", {"value": fields})
            check_repeated(raw)
            self._ignore(fields.keys() - self._fields.known)
            return self._fields.event(fields)
        except Exception as error:  # the boundary: no text may end a run
            return malformed(error, raw)


class TextFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The form of files of text, all but the first for CSV; what is None is found out where it is certain."""

    encoding: str | None = None
    """Name of the encoding, such as ``"cp1252"``; None: UTF-8, or UTF-16 with a byte order mark."""

    separator: Literal[",", ";", "\t", "|"] | None = None
    """Mark between two cells; None: the one by which the header names a score or a label."""
    decimal: Literal[".", ","] | None = None
    """Mark before the decimals of a number; None: either, except that 1,234 is no weight."""
    date_format: Literal["dmy", "mdy"] | None = None
    """Order of the parts of 01/02/2026; None: the first date that has only one decides."""

    def __post_init__(self) -> None:
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError as error:  # no encoding, or none of text
            raise ValueError(str(error)) from None


class CsvDecoder(TableFields):
    """Decode CSV rows into events; the header names the columns, and an empty cell is an absent field.

    Parameters
    ----------
    header
        the text of the header.
    domain
        domain of events that do not state one.
    columns
        their names.
    required
        columns that there must be.
    form
        the form of the file.

    Raises
    ------
    ValueError
        if the header has neither a score nor a label column, a column twice, or not all that are required.
    """

    def __init__(
        self,
        header: bytes,
        domain: Domain = "target",
        columns: Columns | None = None,
        required: Iterable[str] = (),
        form: TextFormat | None = None,
    ) -> None:
        columns, self._form = columns or Columns(), form or TextFormat()
        text = header.decode("utf-8", "backslashreplace")
        self._separator, found = _header(text, self._form.separator or _SEPARATORS, columns, required)
        super().__init__("CSV header", found, columns, domain, required, columns.carried)
        self.names = found
        """Names of the columns, in their order."""
        self._used = [(index, name) for index, name in enumerate(found) if name in self._fields.known]
        self._scores = frozenset(columns.score_columns)
        self._numbers = (*self._fields.scores.numbers, *self._fields.weights)
        self._order = self._form.date_format
        self._time, self._label = columns.names["time"], None if columns.positive is None else columns.label
        self.notes: dict[str, str] = {}
        """Sentences on what no option names: the separator, and the first value of a form that has others."""
        if self._separator != (self._form.separator or ","):
            self.notes["separator"] = f"its cells are separated by {self._separator!r}"

    def decode(self, raw: bytes) -> Event | Malformed:
        """Return the event of one row, or why it is not one; never raises on bad input."""
        try:
            cells = next(csv.reader([raw.decode()], delimiter=self._separator, strict=True), [])
            if len(cells) != len(self.names):
                return Malformed("not_csv", {"header": len(self.names), "row": len(cells)})
            self._rows += 1
            fields: dict[str, Any] = {
                name: cell for index, name in self._used if (cell := cells[index].strip())
            }
            for name in self._numbers:
                if (text := fields.get(name)) is not None:
                    number = parse_number(text)
                    fields[name] = self._number(name, text) if number is None else number
            if self._rows == 1 and self._time in fields:
                self._moment(fields[self._time])  # for its note
            return self._event(fields)
        except UnicodeDecodeError as error:
            place = {"error": error.reason, "byte": error.start}
            return Malformed("not_utf8", {**place, "encoding": self._form.encoding or "cp1252"})
        except Exception as error:  # the boundary: no text may end a run
            return malformed(error, raw)

    def decode_lines(self, block: bytes, *, rejects: bool = False) -> Block | None:  # noqa: ARG002  # as `JsonDecoder` has it
        """Return None: rows need `decode` each."""
        return None

    def find_order(self, lines: Iterable[bytes]) -> bool:
        """Find out the order of dates such as 01/02/2026, if the first time is one and no option says it.

        Returns
        -------
        Whether there was a time, or there cannot be any.

        Parameters
        ----------
        lines
            the first ones, with or without the header: the first date of one meaning decides.

        Raises
        ------
        ValueError
            if there is none.
        """
        if self._order is not None or self._time not in self.names:
            return True
        at, first = self.names.index(self._time), ""
        rows = csv.reader(_texts(lines), delimiter=self._separator, strict=True)
        with suppress(csv.Error):  # the rows themselves are refused for it, or are not whole yet
            for row in rows:
                if len(row) != len(self.names) or (text := row[at].strip("\ufeff ")) in ("", self._time):
                    continue
                orders = _orders(text)
                if not first and not orders:
                    return True
                first = first or text
                if len(orders) == 1:
                    (self._order,) = orders
                    dates = ", ".join(
                        f"{each!r} as {iso_date(each, self._order)}" for each in {first: 0, text: 0}
                    )
                    self.notes["date"] = f"column {self._time!r} is read in the order {self._order}: {dates}"
                    return True
        if first:
            raise self._ambiguous(first)
        return False

    def lines_of(self, lines: Iterable[bytes]) -> int:
        """Return how many of the lines are the first row, whose texts in quotes may have line breaks.

        That is one more than there are if it does not end in them.
        """
        rows = csv.reader(chain(_texts(lines), [""]), delimiter=self._separator)
        with suppress(csv.Error):
            next(rows, None)
        return rows.line_num

    def _event(self, fields: dict[str, Any]) -> Event | Malformed:
        try:
            return self._fields.event(fields)
        except FieldError as error:
            if error.refusal.code != "bad_time" or (time := self._moment(fields[self._time])) is None:
                raise
            return self._fields.event({**fields, self._time: time})

    def _number(self, name: str, text: str) -> float | str:
        """Return a number with a decimal comma; the text itself where a label may be named by it."""
        number = None
        if _COMMA.fullmatch(text) and name != self._label and self._form.decimal != ".":
            number = parse_number(text.replace(",", "."))
            if self._form.decimal is None:
                if self._fields.weights.get(name) == "weight" and _THOUSANDS.fullmatch(text):
                    raise FieldError("bad_weight", column=name, weight=text, meant=number)
                self.notes.setdefault("decimal", f"{text!r} in column {name!r} is read as {number}")
        if number is None and name in self._scores:
            value = float(text) if _NOT_FINITE.fullmatch(text) else text
            raise FieldError("bad_score", value=value, column=name)
        return text if number is None else number

    def _moment(self, text: str) -> str | float | None:
        """Return a time as `times.read_time` takes it; None if that has to judge the text itself.

        Raises
        ------
        FieldError
            if the text is a date of two meanings.
        """
        if (number := self._number(self._time, text)) != text:
            return number
        date = iso_date(text, self._order)
        if date != text and _is_date(date):
            if self._order is None:
                self.notes.setdefault("date", f"{text!r} in column {self._time!r} is read as {date}")
            return date
        if self._order is None and _orders(text):
            raise self._ambiguous(text)
        return None

    def _ambiguous(self, text: str) -> FieldError:
        orders = " or ".join(map(repr, _orders(text)))
        return FieldError("bad_time", value=text, column=self._time, order=orders)


def _texts(lines: Iterable[bytes]) -> Iterator[str]:
    return (f"{line.decode(errors='replace')}\n" for line in lines)


def _orders(text: str) -> list[Literal["dmy", "mdy"]]:
    """Return the orders in which a date that has no one order is a date."""
    if iso_date(text, "dmy") == iso_date(text):
        return []
    return [order for order in _ORDERS if _is_date(iso_date(text, order))]


def _header(text: str, separators: str, columns: Columns, required: Iterable[str]) -> tuple[str, list[str]]:
    """Return the first separator by which a header has what it must, or has most cells; and the cells."""
    found, wrong = list[tuple[str, list[str]]](), None
    for mark in separators:
        try:
            cells = next(csv.reader([text], delimiter=mark, strict=True), [])
        except csv.Error as error:
            wrong = wrong or error
            continue
        found.append((mark, [cell.strip() for cell in cells]))
        with suppress(ValueError):
            check_header("CSV header", found[-1][1], columns, required)
            return found[-1]
    best = max(found, key=lambda each: len(each[1]), default=("", []))
    if wrong is not None and len(best[1]) < 2:
        raise ValueError(f"not a CSV header: {wrong}")
    return best


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        read_time(text)
        return True
    return False


def _can_be_skipped(name: str) -> bool:
    """Return whether a struct can have a field of this name."""
    return name.isprintable() and '"' not in name and "\\" not in name


def _wire_type(
    names: Mapping[Role, str], values: tuple[Any, Any], keep: Sequence[str], ignored: Sequence[str]
) -> Any:
    """Return what a line is decoded into."""
    unset = msgspec.UnsetType | None
    fields: list[tuple[str, Any, Any]] = [
        ("id", _Id | None, None),
        ("score", values[0] | unset, msgspec.UNSET),
        ("label", values[1] | unset, msgspec.UNSET),
        ("time", _Time | None, None),
        ("key", _Key | None, None),
        ("domain", Domain | None, None),
        *((f"kept_{index}", _Kept, None) for index in range(len(keep))),
        *((f"ignored_{index}", _Kept | msgspec.UnsetType, msgspec.UNSET) for index in range(len(ignored))),
    ]
    rename: dict[str, str] = {f"kept_{index}": name for index, name in enumerate(keep)}
    rename |= {f"ignored_{index}": name for index, name in enumerate(ignored)}
    rename.update({role: name for role, name in names.items() if role in ROLES})
    return msgspec.defstruct("Wire", fields, rename=rename, forbid_unknown_fields=True, gc=False)


def check_repeated(text: bytes) -> None:
    """Refuse a valid text of JSON an object in which has a field twice: a decoder takes the last.

    Raises
    ------
    FieldError
        if one comes twice.
    """
    if not are_distinct(text):
        json.loads(text, object_pairs_hook=_all_once, parse_int=str, parse_float=str)


def _all_once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise FieldError("repeated_field", name=max(names, key=names.count))


def _kept_of(count: int) -> Callable[[Any], Kept] | None:
    """Return what takes the kept fields of a wire; None if there are none."""
    if not count:
        return None
    values = attrgetter(*(f"kept_{index}" for index in range(count)))
    return values if count > 1 else lambda wire: (wire.kept_0,)


def _has_plain_text(text: bytes) -> bool:
    """Return whether no text in it can hold control characters, which are escapes but for DEL, in ASCII."""
    return text.isascii() and _BACKSLASH not in text and _DELETE not in text


def _is_plain(event: Event) -> bool:
    """Return whether id and key hold nothing that `check_name` has to look at."""
    key = None if isinstance(event, LabelEvent) else event.key
    return (event.id is None or event.id.isprintable()) and (key is None or key.isprintable())


def _has_plain_names(block: Block) -> bool:
    """Return the same of all events of a block."""
    ids = all(id_ is None or id_.isprintable() for id_ in block.ids)
    return ids and all(key is None or key.isprintable() for key in block.keys or ())


def _is_deep(raw: bytes) -> bool:
    """Return whether arrays and objects are nested deeper than may be.

    A decoder's own limit depends on the caller's depth, so it would tell events otherwise in a replay.
    """
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return False
    bare = np.frombuffer(_TEXT.sub(b"", raw), np.uint8)
    opened = (bare == _SQUARE[0]) | (bare == _CURLY[0])
    closed = (bare == _SQUARE[1]) | (bare == _CURLY[1])
    depth = np.cumsum(opened.astype(np.int32) - closed.astype(np.int32))
    return bool(len(depth)) and int(depth.max()) > MAX_DEPTH
