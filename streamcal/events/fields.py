"""Fields of any type, made into an event or the reason why they are none: one rule for every format.

The decoders of text (`streamcal.events.codec`) and of tables (`streamcal.events.table_codec`) have a fast
path for the usual forms. All other input is decided here.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from streamcal.base.times import read_time
from streamcal.base.values import check_domain, check_id, check_key
from streamcal.events import Domain, Event, Kept, KeptValue, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codes import Code, FieldError, Refusal
from streamcal.events.columns import MAX_KEPT_BYTES, Columns, Role, check_header
from streamcal.events.score_fields import score_fields
from streamcal.sketch import weighing

MAX_FIELDS: Final = 100
"""Most names of unknown fields that are counted, each cut to as many characters; the others count as one."""

T = TypeVar("T")

_MANY: Final = 1e300
_WEIGHTS: Final[dict[Role, Callable[[object], float]]] = {
    "weight": weighing.check_weight,
    "propensity": weighing.check_propensity,
}
_OTHERS: Final = "(others)"
_INDEX: Final = re.compile(r"__index_level_\d+__|Unnamed: 0|")  # of pandas, in Parquet and in CSV


class Malformed(Refusal, frozen=True):
    """Text that is not an event, and the reason."""

    @property
    def id(self) -> str | None:
        """Unknown, so None."""

    @property
    def time(self) -> float | None:
        """Unknown, so None."""

    @property
    def label(self) -> str | None:
        """The class that its label names, if it was refused for that."""
        return self.fields.get("label")

    @property
    def score(self) -> float | None:
        """Score, if it was refused for being a number outside [0, 1]."""
        value = self.fields.get("value") if self.code == "bad_score" else None
        return float(value) if isinstance(value, int | float) and abs(value) < _MANY else None

    @property
    def lacks(self) -> str | None:
        """The column of labels, if it has none though it comes from an input of labels."""
        return self.fields.get("lacks")


class OtherLabel(Malformed, frozen=True, kw_only=True):
    """An event with a label other than the positive one: of class 0, if the stream has no third label.

    Only `streamcal.events.input_checks` takes all events in order, and can tell; for others it is malformed.
    """

    event: LabelEvent | LabelledEvent
    """The event, with label 0."""

    @property
    def id(self) -> str | None:
        """Id of the event."""
        return self.event.id

    @property
    def time(self) -> float | None:
        """Time of the event."""
        return self.event.time


def with_time(event: Any, seconds: float) -> Any:
    """Return an event with another time unless it has none; what is no event, as it is."""
    if seconds != seconds:
        return event
    if isinstance(event, OtherLabel):
        return replace(event, event=replace(event.event, time=seconds))
    return event if isinstance(event, Malformed) else replace(event, time=seconds)


class Fields:
    """Makes events of fields of any type.

    Parameters
    ----------
    columns
        the names of the fields.
    domain
        domain of events that do not state one.
    """

    def __init__(self, columns: Columns, domain: Domain) -> None:
        self._domain: Domain = domain
        names = columns.names
        self._id, self._label = names["id"], names["label"]
        self._time, self._key, self._in = names["time"], names["key"], names["domain"]
        self.weights = {names[role]: role for role in _WEIGHTS if role in names}
        """Role of each column that holds weights, by its name."""
        self.scores = score_fields(columns)
        """Reader of scores and labels."""
        self.keep = columns.passed
        """Fields that pass through, but for scores of classes."""
        self.sought = columns.sought
        self.known = {*columns.names.values(), *columns.carried, *columns.score_columns}
        self.doubled = not set(columns.carried).isdisjoint(columns.names.values())

    def event(self, fields: Mapping[str, Any], kept: Kept | None = None) -> Event | OtherLabel:
        """Return the event.

        Parameters
        ----------
        fields
            values of any type, by the names of the columns.
        kept
            what passes through; None: it is among the fields.

        Raises
        ------
        FieldError
            if the fields are no event; it names the column, if it is the value of one.
        """
        has_score, has_label = self.scores.are_in(fields), self._label in fields
        if not has_score and not has_label:
            needs = f"{self.scores.wanted}, a label, or both"
            raise FieldError("missing_field", sender="an event", needs=needs, lacks=self.sought)
        id_ = _checked("bad_id", self._id, check_id, fields.get(self._id))
        if id_ is None and not (has_score and has_label):
            raise FieldError("missing_field", sender="a prediction or a label", needs="an id")
        key, domain = None, self._domain
        if has_score:  # a label has neither, and keeps nothing: whatever stands there is ignored
            key = _checked("bad_key", self._key, check_key, fields.get(self._key))
            if fields.get(self._in) is not None:
                domain = _checked("bad_domain", self._in, check_domain, fields[self._in])
        time = None
        if fields.get(self._time) is not None:
            time = _checked("bad_time", self._time, read_time, fields[self._time])  # in its unit
        if has_score and kept is None:
            kept = tuple([check_kept(name, fields.get(name)) for name in self.keep])
        weight = self._weight_of(fields) if self.weights else None
        score = 0.0
        if has_score:
            score, kept = self.scores.read(fields, kept or ())
        if not has_label:
            return PredictionEvent(str(id_), score, time, key, domain, None, kept or (), weight)
        label, other = self.scores.label(fields[self._label])
        event: LabelEvent | LabelledEvent = LabelEvent(str(id_), label, time, None, weight)
        if has_score:
            event = LabelledEvent(score, label, id_, time, key, domain, None, kept or (), weight)
        if other is None:
            return event
        return OtherLabel("bad_label", {"label": other}, event=event)

    def _weight_of(self, fields: Mapping[str, Any]) -> float | None:
        """Return the weight of an event, from that itself or from a propensity; None if it has neither."""
        given = {name: value for name in self.weights if (value := fields.get(name)) is not None}
        if len(given) > 1:
            raise FieldError("bad_weight", **{self.weights[name]: value for name, value in given.items()})
        for name, value in given.items():
            role = self.weights[name]
            try:
                return _WEIGHTS[role](value)
            except ValueError:
                raise FieldError("bad_weight", column=name, **{role: value}) from None
        return None


def _checked(code: Code, column: str, check: Callable[[Any], T], value: Any) -> T:
    """Return what a check returns for the value of a column."""
    try:
        return check(value)
    except ValueError:
        raise FieldError(code, value=value, column=column) from None


class TableFields:
    """The columns of a table, and how many rows were decoded: the base of its decoders.

    Parameters
    ----------
    what
        "table", for messages.
    names
        the columns that the table has.
    columns
        the names of those that are read.
    domain
        domain of events that do not state one.
    required
        columns that there must be.
    kept
        those that pass through.

    Raises
    ------
    ValueError
        if there is neither a score nor a label column, a column twice, or not all that are required.
    """

    def __init__(
        self,
        what: str,
        names: Sequence[str],
        columns: Columns,
        domain: Domain,
        required: Iterable[str],
        kept: Iterable[str],
    ) -> None:
        check_header(what, names, columns, required)
        self._fields = Fields(columns, domain)
        self._fields.sought = None  # the header has told; a row without a label is one that waits for it
        used = {*columns.names.values(), *kept}
        self._ignored = [name for name in names if name not in used and not _INDEX.fullmatch(name)]
        self._rows = 0

    @property
    def unknown_fields(self) -> Counter[str]:
        """Counts of ignored fields, as `JsonDecoder` has them."""
        counted: Counter[str] = Counter()
        count_names(counted, self._ignored, self._rows)
        return counted


def check_kept(name: str, value: object) -> KeptValue:
    """Return the value of a field to keep.

    Raises
    ------
    FieldError
        if it is no single value, or a text of more than `MAX_KEPT_BYTES`.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and len(value.encode()) <= MAX_KEPT_BYTES:
        return value
    raise FieldError("bad_field", value=value, most=MAX_KEPT_BYTES, column=name)


def plain_kept(value: Any) -> Any:
    """Return a value that passes through as what JSON can hold: times and decimals as text."""
    if isinstance(value, date | time):  # a datetime, too
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value


def count_names(counted: Counter[str], names: Iterable[str], times: int = 1) -> None:
    """Count names: at most `MAX_FIELDS` of them, and the others as one."""
    for name in names:
        short = name[:MAX_FIELDS]
        counted[short if short in counted or len(counted) < MAX_FIELDS else _OTHERS] += times


def malformed(error: Exception, raw: bytes = b"") -> Malformed:
    """Return what is said of text that raised: every exception is one of the text."""
    match error:
        case FieldError():
            return Malformed(error.refusal.code, error.refusal.fields)
        case UnicodeDecodeError():
            return Malformed("not_utf8", {"error": error.reason, "byte": error.start})
        case msgspec.DecodeError():
            is_special = any(word in raw for word in (b"NaN", b"Infinity", b"nan", b"inf"))
            special = {"special": "NaN and Infinity"} if is_special else {}
            return Malformed("not_json", {"error": str(error), **special})
        case csv.Error():
            return Malformed("not_csv", {"error": str(error)})
        case ValueError():
            return Malformed("malformed", {"error": str(error)})
        case _:
            return Malformed("malformed", {"error": f"{type(error).__name__}: {error}"})
