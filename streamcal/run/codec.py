"""Decodes events from text: one JSON object per line, or one CSV row.

A prediction is ``{"id", "score", "time"?, "key"?, "domain"?}``, a label is ``{"id", "label", "time"?}``, and
a labelled prediction is ``{"id"?, "score", "label", …}``. Other fields are ignored and counted. A time is
seconds since the epoch, or an ISO 8601 date and time (UTC if it has no zone).
"""

from __future__ import annotations

import csv
from collections import Counter
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from streamcal.events import Domain, Event, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.fields import MAX_ID_BYTES, check_domain, check_id, check_key, shorten
from streamcal.sketch import checks
from streamcal.times import read_time

__all__ = ["MAX_RAW_BYTES", "CsvDecoder", "JsonDecoder", "Malformed"]

MAX_RAW_BYTES: Final = 4096
"""How many bytes of the text of an event are kept for its reject."""

_BREAK, _BRACE = b"\n{"
_FIELDS: Final = ("id", "score", "label", "time", "key", "domain")


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """Text that is not an event, and the reason."""

    reason: str

    @property
    def id(self) -> None:
        """None: unknown."""

    @property
    def time(self) -> None:
        """None: unknown."""


_Id = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_ID_BYTES // 4)
]  # longer ids take the slow path
_Score = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Label = Annotated[int, msgspec.Meta(ge=0, le=1)]


class _Wire(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: _Id | None = None
    score: _Score | msgspec.UnsetType | None = msgspec.UNSET
    label: _Label | msgspec.UnsetType | None = msgspec.UNSET
    time: float | None = None
    key: str | None = None
    domain: Domain | None = None


class _Prediction(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    id: _Id
    score: _Score
    time: float | None = None
    key: str | None = None
    domain: Domain | None = None


class JsonDecoder:
    """Decode JSON lines into events.

    Parameters
    ----------
    domain
        domain of events that do not state one.
    """

    def __init__(self, domain: Domain = "target") -> None:
        self._domain: Domain = domain
        decoder = msgspec.json.Decoder(_Wire)
        self._decode, self._decode_lines = decoder.decode, decoder.decode_lines
        self._decode_predictions = msgspec.json.Decoder(_Prediction).decode_lines
        self._predictions_only = True  # whether the last block held predictions only
        self.unknown_fields: Counter[str] = Counter()
        """How often a field was ignored because events have no such field, by its name."""

    def decode(self, raw: bytes) -> Event | Malformed:
        """Return the event of one line, or why it is not one; never raises on bad input."""
        try:
            wire = self._decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._decode_slowly(raw)  # malformed, or valid in a rare form
        return self._event(wire) or self._decode_slowly(raw)

    def decode_lines(self, block: bytes) -> list[Event] | None:
        """Return the events of a block of lines, one per line, or None if the lines need `decode` each.

        They do if a line is blank, is not an event, or has a rare form.
        """
        text = np.frombuffer(block, np.uint8)
        breaks = np.flatnonzero(text == _BREAK)
        lines = len(breaks) + (not block.endswith(b"\n"))
        # The decoder accepts several values on one line; a line break before every brace rules that out.
        begun = block.startswith(b"{") + np.count_nonzero(text[breaks[: lines - 1] + 1] == _BRACE)
        if begun != np.count_nonzero(text == _BRACE):
            return None
        if self._predictions_only:
            try:
                wires = self._decode_predictions(block)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self._predictions_only = False
            else:
                own = self._domain
                if len(wires) != lines:
                    return None
                return [PredictionEvent(w.id, w.score, w.time, w.key, w.domain or own) for w in wires]
        try:
            found = list(map(self._event, self._decode_lines(block)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if len(found) != lines:
            return None
        events = [event for event in found if event is not None]
        self._predictions_only = all(isinstance(event, PredictionEvent) for event in events)
        return events if len(events) == lines else None

    def _event(self, wire: _Wire) -> Event | None:
        """Return the event, or None if the slow path must decide."""
        score, label = wire.score, wire.label
        if label is msgspec.UNSET:
            if type(score) is not float or wire.id is None:
                return None
            return PredictionEvent(wire.id, score, wire.time, wire.key, wire.domain or self._domain)
        if type(label) is not int or score is None:
            return None
        if score is msgspec.UNSET:
            return None if wire.id is None else LabelEvent(wire.id, label, wire.time)
        return LabelledEvent(score, label, wire.id, wire.time, wire.key, wire.domain or self._domain)

    def _decode_slowly(self, raw: bytes) -> Event | Malformed:
        try:
            fields = msgspec.json.decode(raw)
        except UnicodeDecodeError as error:
            return Malformed(f"invalid UTF-8: {error.reason} at byte {error.start}")
        except msgspec.DecodeError as error:
            return Malformed(f"not JSON: {error}{_hint(raw)}")
        if not isinstance(fields, dict):
            return Malformed(f"an event must be a JSON object, got {shorten(fields)}")
        self.unknown_fields.update(fields.keys() - set(_FIELDS))
        try:
            return _event(fields, self._domain)
        except ValueError as error:
            return Malformed(str(error))


class CsvDecoder:
    """Decode CSV rows into events; the header names the columns, and an empty cell is an absent field.

    Parameters
    ----------
    header
        the text of the first line. A row is one line: quoted line breaks are not supported.
    domain
        domain of events that do not state one.

    Raises
    ------
    ValueError
        if the header has neither a score nor a label column, or a column twice.
    """

    def __init__(self, header: bytes, domain: Domain = "target") -> None:
        self._domain: Domain = domain
        self._columns = next(csv.reader([header.decode("utf-8", "backslashreplace")]), [])
        self._columns = [column.strip() for column in self._columns]
        if not {"score", "label"} & set(self._columns) or len(set(self._columns)) < len(self._columns):
            raise ValueError(
                f"a CSV header must name score or label, and each column once, got {self._columns}"
            )
        self._unknown = [column for column in self._columns if column not in _FIELDS]
        self.unknown_fields: Counter[str] = Counter()
        """How often a field was ignored because events have no such field, by its name."""

    def decode(self, raw: bytes) -> Event | Malformed:
        """Return the event of one row, or why it is not one; never raises on bad input."""
        try:
            cells = next(csv.reader([raw.decode()], strict=True), [])
        except UnicodeDecodeError as error:
            return Malformed(f"invalid UTF-8: {error.reason} at byte {error.start}")
        except csv.Error as error:
            return Malformed(f"not CSV: {error}")
        if len(cells) != len(self._columns):
            return Malformed(f"the header has {len(self._columns)} columns, the row {len(cells)}")
        fields: dict[str, Any] = {
            column: cell.strip() for column, cell in zip(self._columns, cells, strict=True) if cell.strip()
        }
        self.unknown_fields.update(self._unknown)
        try:
            for name in ("score", "label"):
                if name in fields:
                    fields[name] = _number(name, fields[name])
            return _event(fields, self._domain)
        except ValueError as error:
            return Malformed(str(error))


def _event(fields: dict[str, Any], default_domain: Domain) -> Event:
    """Build an event from fields of any type, or raise ValueError."""
    if "score" not in fields and "label" not in fields:
        raise ValueError("missing field: an event needs a score, a label, or both")
    id_ = check_id(fields.get("id"))
    if id_ is None and not ("score" in fields and "label" in fields):
        raise ValueError("missing field: a prediction or a label needs an id")
    key = check_key(fields.get("key"))
    domain = default_domain if fields.get("domain") is None else check_domain(fields["domain"])
    time = None if fields.get("time") is None else read_time(fields["time"])  # in its unit: see `run.order`
    if "label" not in fields:
        return PredictionEvent(str(id_), checks.check_score(fields["score"]), time, key, domain)
    label = checks.check_label(fields["label"])
    if "score" not in fields:
        return LabelEvent(str(id_), label, time)
    return LabelledEvent(checks.check_score(fields["score"]), label, id_, time, key, domain)


def _number(name: str, text: str) -> float:
    if name == "label" and text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"a {name} must be a number, got {shorten(text)}") from None


def _hint(raw: bytes) -> str:
    if any(word in raw for word in (b"NaN", b"Infinity", b"nan", b"inf")):
        return "; NaN and Infinity are not JSON, and a score must be a number in [0, 1]"
    return ""
