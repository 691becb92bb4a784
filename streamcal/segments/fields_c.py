"""Several fields whose corrections add up on the logit, fitted in turn: backfitting online.

Each label updates every field once, with the sum of the others as offset. That sum is the present one: with
labels that are late, the sum as of the prediction would let all fields learn the same deviation until the
first label that shows it, and overshoot together. The pooled probability is that of the prediction.

**Common deviation.** If labels are late, pooled probabilities are off for all segments alike while the pooled
engine catches up. A correction that took this up would add it a second time later. So a common offset,
remembered over 500 labels, is fitted in turn like a field, and is never served.

`SegmentRules` is what fields add to the rules of an engine.

Compiled where there is a C compiler; `fields_c.pxd` has the types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np

from streamcal.engine import event_rules_c
from streamcal.errors import DamagedStateError
from streamcal.events import Kept
from streamcal.segments.corrections_c import (
    READ,
    Corrections,
    CorrectionsState,
    Name,
    as_bytes,
    as_name,
    expit,
    logit_of,
)
from streamcal.segments.own import WORTH
from streamcal.sketch.decoding import Part, require
from streamcal.values import shown

if TYPE_CHECKING:
    from streamcal.segments.segments import Segments

__all__ = ["CENTRED", "TERMS", "Fields", "FieldsState", "SegmentRules", "name_of", "names_of"]

CENTRED: Final = 1000
"""Labels whose mean logit is the centre."""
TERMS: Final = 5
"""Numbers of a field in a forecast: what it adds to the logit, δ of slow, fast and own, if it has one, and
how many labels its value has."""

# As C has them.
_SIZE = 8  # bytes of a number
_COMMON = 1.0 - 1.0 / 500.0
_COMMON_PRECISION = 25.0
_CENTRED = CENTRED
_FARTHEST = 4.0  # from the centre, where slopes end
_READ = READ
_TERMS = TERMS
_NONE = float("nan")
_LONGEST = 4096  # bytes of a name
_PLAIN = 1024  # characters that cannot have more bytes
_MISSING: Any = ("NAType", "NaTType")  # of pandas
_MISSING_TEXTS: Any = ("NaN", "NaT")
_WHOLE: Any = re.compile(r"-?(0|[1-9]\d*)\.0", re.ASCII)
_WORDS: Any = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_MOMENT: Any = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(Z|[+-]\d\d:?\d\d)?", re.ASCII)


class FieldsState(Part):
    """State of all fields."""

    fields: list[CorrectionsState]
    centre: Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]
    centred: Annotated[int, msgspec.Meta(ge=0, le=CENTRED)]
    score: Annotated[float, msgspec.Meta(ge=-1e5, le=1e5)]
    information: Annotated[float, msgspec.Meta(ge=0.0, le=1e3)]


class Fields:
    """Corrections of ``count`` fields; ``read_row`` gives those of a store, by field and name."""

    def __init__(self, count: int, read_row: Callable[[int, Name], bytes | None] | None = None) -> None:
        readers = [None if read_row is None else partial(read_row, field) for field in range(count)]
        self.fields = [Corrections(reader) for reader in readers]
        self._centre, self._centred = 0.0, 0
        self._score = self._information = 0.0  # of the common deviation
        self._places: Any = np.zeros(count, np.int64).data
        self._read: Any = np.zeros(_READ * count).data
        # What `learn` was given: numbers, and the same as bytes.
        given = np.zeros(1 + _TERMS * count)
        self._then: Any = given.data
        self._then_bytes: Any = given.view(np.uint8).data
        # What `forecast` is to give: numbers, the size of each value, and the values.
        self._out = bytearray(given.nbytes + 2 * count)
        self._row: Any = np.frombuffer(self._out, np.float64, len(given)).data
        self.served = 0.0
        """Probability of the last forecast."""
        self.labels = 0.0
        """Number of labels of the first field's value, as of the last forecast or with the last label."""

    @property
    def centre(self) -> float:
        """Logit at which slopes add nothing."""
        return self._centre

    @property
    def farthest(self) -> float:
        """Distance of the logit from the centre, beyond which slopes add no more."""
        return _FARTHEST

    def added(self, logit: float, names: Sequence[Name]) -> list[float]:
        """Return what each field adds to the logit of a pooled probability, without own engines."""
        x, read, out = self._x(logit), self._read, []
        for i in range(len(self.fields)):
            field = self.fields[i]
            field.read(field.find(names[i]), x, _NONE, read, 0)
            out.append(read[0])
        return out

    def forecast(self, pooled: float, names: Sequence[Name], own: Sequence[float] | None) -> bytes:
        """Return values of the fields and their forecast: what `learn` is to be given with the label.

        Parameters
        ----------
        pooled
            Pooled probability.
        names, own
            Value of each field, and δ of its own engine (NaN: none); None: no field has one.
        """
        logit, read, row, added, count = logit_of(pooled), self._read, self._row, 0.0, len(self.fields)
        x, out, values = self._x(logit), self._out, b""
        row[0] = pooled
        for i in range(count):
            field, data = self.fields[i], as_bytes(names[i])
            delta = _NONE if own is None else own[i]
            field.read(field.find_bytes(data, 0, len(data)), x, delta, read, 0)
            added += read[0]
            at = 1 + _TERMS * i
            row[at], row[at + 1], row[at + 2] = read[0], read[1], read[2]
            row[at + 3], row[at + 4] = delta, read[8]
            at = _SIZE * len(row) + 2 * i
            out[at], out[at + 1] = len(data) & 255, len(data) >> 8
            values = values + data if i else data
            if i == 0:
                self.labels = read[8]
        self.served = expit(logit + added) if added else pooled
        return bytes(out[: len(self._out)]) + values

    def learn(self, label: int, given: bytes) -> None:
        """Learn a label, 0 or 1, of what `forecast` has given."""
        logit = self._take(given)
        if self._centred < _CENTRED:
            self._centred += 1
            self._centre += (logit - self._centre) / self._centred
        x, read, count = self._x(logit), self._read, len(self.fields)
        sizes = _SIZE * len(self._then)
        at = sizes + 2 * count
        for i in range(count):
            field, size = self.fields[i], size_of(given, sizes + 2 * i)
            self._places[i] = field.place(given, at, size)
            at += size
        before, now, noise = self._sums(logit, x)
        common = self._score / (self._information + _COMMON_PRECISION)
        p = expit(now)
        curvature = p * (1.0 - p)
        self._information = _COMMON * self._information + curvature
        self._score = _COMMON * self._score + curvature * common + label - p
        for i in range(count):
            field, at = self.fields[i], 1 + _TERMS * i
            others, their_noise = now - read[_READ * i], noise - read[_READ * i + 3]
            without = before - self._then[at]
            field.learn(
                self._places[i], x, label, read, _READ * i, others, their_noise, self._then, at, without
            )
        field = self.fields[0]
        self.labels = field.labels_at(self._places[0])

    def _take(self, given: bytes) -> float:
        """Take the forecast of each field as of the prediction; return the logit of the pooled one.

        Raises
        ------
        DamagedStateError
            if it is none of these fields: it may come from a store.
        """
        sizes, data = _SIZE * len(self._then), given
        left = len(given) - sizes - 2 * len(self.fields)
        if left >= 0:
            for k in range(sizes):
                self._then_bytes[k] = data[k]
            for i in range(len(self.fields)):
                left -= size_of(data, sizes + 2 * i)
        if left != 0:
            raise DamagedStateError("a prediction that waits has not the forecast of its segments")
        return logit_of(self._then[0])

    def _sums(self, logit: float, x: float) -> tuple[float, float, float]:
        """Read each field at its place; return the logits as of the prediction and now, and the variance."""
        read = self._read
        before, added, noise = logit, 0.0, 0.0
        for i in range(len(self.fields)):
            field = self.fields[i]
            field.read(self._places[i], x, self._then[_TERMS * i + 4], read, _READ * i)
            added += read[_READ * i]
            noise += read[_READ * i + 3]
            before += self._then[1 + _TERMS * i]
        common = self._score / (self._information + _COMMON_PRECISION)
        return before, logit + common + added, noise

    def _x(self, logit: float) -> float:
        """Return the logit less the centre, within the range of slopes."""
        return max(-_FARTHEST, min(_FARTHEST, logit - self._centre))

    # State

    def to_state(self) -> FieldsState:
        """Return the state."""
        fields = [field.to_state() for field in self.fields]
        return FieldsState(fields, self._centre, self._centred, self._score, self._information)

    def restore(self, state: FieldsState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        require(len(state.fields) == len(self.fields), f"{len(state.fields)} fields of segments")
        for field, each in zip(self.fields, state.fields, strict=True):
            field.restore(each)
        self._centre, self._centred = state.centre, state.centred
        self._score, self._information = state.score, state.information


def name_of(value: object) -> Name:
    """Return the name of one value of a field; None: it is missing.

    A value has one name in whatever format it comes: a boolean is ``true`` or ``false``, 3.0 is ``3`` (CSV
    has it where a column has gaps), a decimal has its digits, and a moment is in UTC, to the microsecond; at
    midnight it is a date. All other texts are their own names: ``1.10`` and ``1.1`` may be two versions.

    Raises
    ------
    ValueError
        If the value is no text of at most 4096 bytes, number, boolean, date, time or None. A number that JSON
        can hold, however long, has a name.
    """
    if type(value) is str:  # nearly always
        text: str = value
        size = len(text)
        if 0 < size <= _PLAIN:
            if not text.isascii():
                _check_size(text)
            if size > 4 and text[4] == "-":
                return _name_of_moment(text)
            if size > 2 and text[size - 1] == "0" and text[size - 2] == ".":
                return text[: size - 2] if _WHOLE.fullmatch(text) else text
            return _WORDS.get(text, text) if text[0] in "TF" else text
    if isinstance(value, np.datetime64 | date | Decimal):
        value = str(value)
        return None if value in _MISSING_TEXTS else _name_of_moment(value)
    if isinstance(value, str) and type(value) is not str:  # of NumPy, or an enumeration
        return name_of(str.__str__(value))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        _check_size(value)
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    if isinstance(value, int):
        try:
            return str(int(value))
        except ValueError:  # of more digits than Python writes; no format reads so many
            raise ValueError(f"a segment must have fewer digits, got {shown(value)}") from None
    if value is None or type(value).__name__ in _MISSING:
        return None
    raise ValueError(f"a segment must be a text, number, boolean, date, time or None, got {shown(value)}")


def names_of(given: Sequence[bytes], count: int, field: int) -> list[Name]:
    """Return the values of one of ``count`` fields, each of what `Fields.forecast` gave."""
    sizes = _SIZE * (1 + _TERMS * count)
    names = list[Name]()
    for each in given:
        at = sizes + 2 * count
        for i in range(field):
            at += size_of(each, sizes + 2 * i)
        names.append(as_name(each[at : at + size_of(each, sizes + 2 * field)]))
    return names


def size_of(data: Sequence[int], at: int) -> int:
    """Return the size of a value, in two bytes."""
    return data[at] | data[at + 1] << 8


_WORTH = WORTH


class SegmentRules(event_rules_c.EventRules):
    """Rules of an engine with segments; `streamcal.segments.segmented_engine` adds those for many, and state.

    `segments` are the corrections and own engines.
    """

    segments: Segments

    def begin(self, segments: Segments, places: Sequence[int]) -> None:
        """Begin with segments, and the index of each field among the values that an event keeps."""
        self.segments, self._fields, self._has_own = segments, segments.corrections, segments.has_engines
        self._places = list(places)
        self.carries = True
        if self.release is not None:
            self.release.excludes = False  # of predictions without a label, nothing was kept

    def learn_usual(
        self,
        score: object,  # noqa: ARG002
        label: object,  # noqa: ARG002
        domain: object,  # noqa: ARG002
        time: object,  # noqa: ARG002
        weight: object,  # noqa: ARG002
        memo: object,  # noqa: ARG002
        positive: object,  # noqa: ARG002
    ) -> bool:
        """Learn nothing: a label has segments."""
        return False

    def carry(self, kept: Kept, score: float, probability: float) -> tuple[float, bytes]:
        """Return the corrected probability of a score, and its segments with the forecast of each field."""
        names = list[Name]()
        for place in self._places:
            names.append(name_of(kept[place]) if place < len(kept) else None)
        forecast = self._fields.forecast(probability, names, None)
        if self._has_own and self._fields.labels >= _WORTH:
            forecast = self.segments.carry(score, probability, names, forecast)
        return self._fields.served, forecast

    def learn_memo(self, score: float, label: int, memo: Any) -> None:
        """Let corrections learn a label of the target."""
        self._fields.learn(label, memo)
        if self._has_own and self._fields.labels >= _WORTH:
            self.segments.learn_own(names_of([memo], 1, 0)[0], score, label)


def _check_size(text: str) -> None:
    """Raise ValueError if a text has too many bytes, or is none that has bytes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a segment must be Unicode text, got {shown(text)}") from None
    if size > _LONGEST:
        raise ValueError(f"a segment must be at most {_LONGEST} bytes, got {shown(text)}")


def _name_of_moment(text: str) -> str:
    """Return the name of a date and time; of another text itself."""
    if not _MOMENT.fullmatch(text):
        return text
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # such as 30 February
        return text
    named = str(moment).removesuffix(" 00:00:00")
    return named.rstrip("0") if moment.microsecond else named
