"""Codes of rejected events, and the one table that puts them into words.

A program filters and counts by `Code`; the sentence is for people, and nothing reads it.
"""

from __future__ import annotations

from string import Formatter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from streamcal.base.times import RULE, show_duration, show_time
from streamcal.base.values import shown

MAX_REASON: Final = 1_000
"""Most characters of a reason."""

Code: TypeAlias = Literal[
    "bad_domain",
    "bad_field",
    "bad_id",
    "bad_key",
    "bad_label",
    "bad_score",
    "bad_time",
    "bad_weight",
    "conflicting_label",
    "duplicate_label",
    "duplicate_prediction",
    "implied_label",
    "label_not_asked",
    "late_label",
    "lost_records",
    "malformed",
    "missing_field",
    "missing_time",
    "mixed_time_units",
    "not_csv",
    "not_json",
    "not_utf8",
    "repeated_field",
    "too_far_ahead",
    "too_long",
    "too_many_keys",
    "unknown_key",
    "unmatched_label",
    "weight_not_allowed",
    "wrong_path",
]

TITLES: Final[dict[Code, str]] = {
    "bad_domain": "a domain must be source or target",
    "bad_field": "a value to keep must be a number, a short text, true, false or null",
    "bad_id": "an id must be a text of 1 to 512 bytes",
    "bad_key": "a key must be a text of at most 512 bytes",
    "bad_label": "a label must equal 0 or 1, or be one of the classes",
    "bad_score": "a score must be a number in [0, 1]",
    "bad_time": "a time must be a date",
    "bad_weight": "a weight or a propensity must be in its range",
    "conflicting_label": "conflicting label",
    "duplicate_label": "duplicate label",
    "duplicate_prediction": "duplicate prediction",
    "implied_label": "late label of a prediction that counts as 0",
    "label_not_asked": "label that was not asked for",
    "late_label": "late label",
    "lost_records": "records lost",
    "malformed": "not an event",
    "missing_field": "an event needs an id, and a score, a label or both",
    "missing_time": "missing time",
    "mixed_time_units": "all times of an input must be in one unit",
    "not_csv": "not a row of the CSV file",
    "not_json": "not JSON",
    "not_utf8": "invalid UTF-8",
    "repeated_field": "a field that comes twice",
    "too_far_ahead": "a time too far ahead",
    "too_long": "too long",
    "too_many_keys": "too many keys",
    "unknown_key": "a key without a map",
    "unmatched_label": "unmatched label",
    "weight_not_allowed": "a weight where none is allowed",
    "wrong_path": "sent to the wrong path",
}
"""Short words for what is wrong with all events of a code."""

_PRINTABLE: Final = "without line breaks and control characters"
_BOUNDS: Final = "(label_ttl is {label_ttl:duration}, max_pending {max_pending:,})"
_SENTENCES: Final[dict[Code, tuple[str, ...]]] = {
    "bad_domain": ("a domain must be 'source' or 'target', got {value:shown}",),
    "bad_field": (
        "a field to keep, or of segments, must be a number, true, false, null or a text of at most {most}"
        " bytes, got {value:shown}",
    ),
    "bad_id": (f"an id must be a string of 1 to 512 bytes, {_PRINTABLE}, got {{value:shown}}",),
    "bad_key": (f"a key must be a string of 0 to 512 bytes, {_PRINTABLE}, got {{value:shown}}",),
    "bad_label": (
        "a label must be one of the classes {classes}, got {value:shown}",
        "a label must be {positive!r}, the positive one, or {other!r}, the other one so far, got {label!r}",
        "a label must name a class, got {value:shown}; the one that counts as 1 is {positive!r}",
        "a label must equal 0 or 1, got {value:shown}; option positive names the one that counts as 1",
        "a label other than the positive one",
    ),
    "bad_score": (
        "a score must be a number in [0, 1], got {value:shown}",
        "an array of scores must have {wanted:,} numbers, one for each class ({classes}), got {count:,}",
        "scores must be of the classes {classes}, got one of {unknown:shown}",
        "scores must be an object {{class: score}}, or an array of numbers, got {scores:shown}",
        "there must be a score of each class, {missing!r} has none; what cannot be has the score 0",
        "the scores of all classes must sum to 1, got a sum of {total:.9g}; class_sums = 'renormalise'"
        " divides by a sum from 0.99 to 1.01",
    ),
    "bad_time": (
        ": a stream that begins with {time:.15g} has no seconds since 1970 as times; it looks like {like}:"
        " write {date!r}. If these are seconds of a simulation, let them begin at 0",
        ": time {time!r} is no date in any unit, from seconds to nanoseconds",
        "a time must have one meaning, got {value:shown} (date_format = {order} of [file] or [stdio] tells)",
        f"{RULE}, got {{value:shown}}",
    ),
    "bad_weight": (
        "an event has a weight or a propensity, not both, got {weight:shown} and {propensity:shown}",
        "a weight must have one meaning, got {weight:shown} (decimal = ',' of [file] or [stdio]: {meant})",
        "a weight must be a number from 1e-9 to 10000, got {weight:shown}",
        "a propensity, the chance that the label is seen, must be a number from 0.0001 to 1, got"
        " {propensity:shown}",
    ),
    "conflicting_label": (": the label of id {id!r} is {first!r} already, which stays, got {label!r}",),
    "duplicate_label": (": there was one with id {id!r} before",),
    "duplicate_prediction": (": there was one with id {id!r} before",),
    "implied_label": (": the prediction with id {id!r} had none for {label_delay_limit:duration}",),
    "label_not_asked": (
        ": the prediction with id {id!r} was not drawn to be labelled ([sampling]). A label that comes for"
        " another reason says nothing of the others: have those labelled whose row says ask",
        ": there was no prediction with id {unknown!r} before, and with [sampling] a label comes after the"
        " row that says ask",
        ": prediction and label came as one event, and [sampling] draws which are to be labelled. Send"
        " predictions alone, and labels of those whose row says ask",
    ),
    "late_label": (
        f": the prediction with id {{id!r}} has expired by {{since:time}} {_BOUNDS}",
        ": the prediction with id {id!r} has expired",
    ),
    "lost_records": (
        ": up to {count:,}, from offset {start} on, were deleted before they were read; reading went on at"
        " offset {next}",
        ": from offset {start} on, how many is unknown, as the topic was made anew or has lost its end;"
        " reading went on at offset {next}",
    ),
    "malformed": (
        ": nested deeper than {depth} arrays and objects",
        "an event must be a JSON object, got {value:shown}",
        "not to be decoded with schema {schema}: {error}",
        ": {error}",
        "the record has no value",
    ),
    "missing_field": ("missing field: {sender} needs {needs}",),
    "missing_time": (
        ": {kind} needs a time, for the window {window} is a stretch of event time",
        ": {kind} needs a time, for without a label predictions count as 0 after"
        " {label_delay_limit:duration} of event time",
        ": {kind} needs a time, for {per_day} is a number in a day of event time, and none is known yet",
        ": others of {source} have one",
    ),
    "mixed_time_units": (": time {time!r} is in {unit}, the others of its input are in {others}",),
    "not_csv": ("not CSV: the header has {header} columns, the row {row}", "not CSV: {error}"),
    "not_json": (
        "not JSON, but as of schema {schema}: schema_registry of the [kafka] options says where schemas are",
        "not JSON: {error}; {special} are not JSON, and a score must be a number in [0, 1]",
        "not JSON: {error}",
    ),
    "not_utf8": (
        "invalid UTF-8: {error} at byte {byte}; perhaps encoding = {encoding!r} of [file] or [stdio]",
        "invalid UTF-8: {error} at byte {byte}",
    ),
    "repeated_field": ("an object has the field {name:shown} twice: which of them counts?",),
    "too_far_ahead": (
        ": time {time:.15g} ({time:time}) is more than {limit:duration} past those before it, whose median is"
        " {median:time}; if it is right, raise max_jump of [join]",
        ": time {time:.15g} ({time:time}) is more than {limit:duration} (max_jump) past {begun:time}, when"
        " the micro-batch began",
    ),
    "too_long": ("a line may have at most {most} bytes, got {size}",),
    "too_many_keys": (": {key} would be one more than the limit of {limit}",),
    "unknown_key": (": there is no map for key {key!r} yet",),
    "unmatched_label": (
        f": no prediction with id {{id!r}} has come, or it was settled before {{before:time}} {_BOUNDS}",
        f": no prediction with id {{id!r}} has come, or it was settled and is forgotten {_BOUNDS}",
        ": no prediction with id {id!r} has come",
    ),
    "weight_not_allowed": (": a label must not have a weight other than 1, got {weight:g}: {option}",),
    "wrong_path": (": /v1/{taken} takes {taken} alone; {sent} go to /v1/{sent}",),
}
"""Sentences of a code: the first of which there are all fields. One that begins with a colon goes on after
the title."""


class Refusal(msgspec.Struct, frozen=True):
    """A reason to reject an event: a code, and the values that its sentence names."""

    code: Code
    fields: dict[str, Any] = {}
    """Values by name: ids and labels, times in seconds since the epoch, durations in seconds, limits."""

    @property
    def reason(self) -> str:
        """The sentence: what is wrong, the value and its column, and what is allowed."""
        for text in _SENTENCES[self.code]:
            try:
                said = _WORDS.vformat(text, (), self.fields)
            except KeyError:
                continue
            where = f", in column {shown(self.column)}" if self.column is not None else ""
            return f"{TITLES[self.code] if said[0] == ':' else ''}{said}{where}"[:MAX_REASON]
        raise KeyError(self.code)

    @property
    def column(self) -> str | None:
        """The column whose value was refused; None if it was for another reason."""
        return self.fields.get("column")


class FieldError(ValueError):
    """A reason why fields are no event, with the values that its sentence names."""

    def __init__(self, code: Code, **fields: object) -> None:
        super().__init__()
        self.refusal = Refusal(code, fields)

    def __str__(self) -> str:
        return self.refusal.reason


class _Words(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "time":
            return show_time(value)
        if format_spec == "shown":
            return shown(value)
        return show_duration(value) if format_spec == "duration" else format(value, format_spec)


_WORDS: Final = _Words()
