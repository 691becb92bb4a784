"""Codes of rejected events, and the one table that puts them into words.

A program filters and counts by `Code`; the sentence is for people, and nothing reads it.
"""

from __future__ import annotations

from string import Formatter
from typing import Any, Final, Literal, TypeAlias

import msgspec

from streamcal.times import show_duration, show_time

__all__ = ["TITLES", "Code", "Refusal"]

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
    "late_label",
    "malformed",
    "missing_field",
    "missing_time",
    "mixed_time_units",
    "not_csv",
    "not_json",
    "not_utf8",
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
    "late_label": "late label",
    "malformed": "not an event",
    "missing_field": "an event needs an id, and a score, a label or both",
    "missing_time": "missing time",
    "mixed_time_units": "all times of an input must be in one unit",
    "not_csv": "not a row of the CSV file",
    "not_json": "not JSON",
    "not_utf8": "invalid UTF-8",
    "too_far_ahead": "a time too far ahead",
    "too_long": "too long",
    "too_many_keys": "too many keys",
    "unknown_key": "a key without a map",
    "unmatched_label": "unmatched label",
    "weight_not_allowed": "a weight where none is allowed",
    "wrong_path": "sent to the wrong path",
}
"""Short words for what is wrong with all events of a code."""

_BOUNDS: Final = "(label_ttl is {label_ttl:duration}, max_pending {max_pending:,})"
_DETAILS: Final[dict[Code, tuple[str, ...]]] = {
    "bad_time": ("time {time!r} is no date in any unit, from seconds to nanoseconds",),
    "conflicting_label": ("the label of id {id!r} is {first!r} already, which stays, got {label!r}",),
    "duplicate_label": ("there was one with id {id!r} before",),
    "duplicate_prediction": ("there was one with id {id!r} before",),
    "implied_label": ("the prediction with id {id!r} had none for {label_delay_limit:duration}",),
    "late_label": (
        f"the prediction with id {{id!r}} has expired by {{since:time}} {_BOUNDS}",
        "the prediction with id {id!r} has expired",
    ),
    "missing_time": (
        "{kind} needs a time, for the window {window} is a stretch of event time",
        "{kind} needs a time, for without a label predictions count as 0 after"
        " {label_delay_limit:duration} of event time",
    ),
    "mixed_time_units": ("time {time!r} is in {unit}, the others of its input are in {others}",),
    "too_far_ahead": (
        "time {time:.15g} ({time:time}) is more than {limit:duration} past those before it, whose median is"
        " {median:time}; if it is right, raise max_jump of [join]",
    ),
    "too_many_keys": ("{key} would be one more than the limit of {limit}",),
    "unknown_key": ("there is no map for key {key!r} yet",),
    "unmatched_label": (
        f"no prediction with id {{id!r}} has come, or it was settled before {{before:time}} {_BOUNDS}",
        f"no prediction with id {{id!r}} has come, or it was settled and is forgotten {_BOUNDS}",
        "no prediction with id {id!r} has come",
    ),
    "weight_not_allowed": ("a label must not have a weight other than 1, got {weight:g}: {option}",),
}
"""The rest of the sentence: the first text of which there are all fields. Decoders word other codes."""


class Refusal(msgspec.Struct, frozen=True):
    """A reason to reject an event: a code, and the values that its sentence names."""

    code: Code
    fields: dict[str, Any] = {}
    """Values by name: ids and labels, times in seconds since the epoch, durations in seconds, limits."""

    @property
    def reason(self) -> str:
        """The sentence: what is wrong, the value, and what is allowed."""
        for text in _DETAILS[self.code]:
            try:
                return f"{TITLES[self.code]}: {_WORDS.vformat(text, (), self.fields)}"
            except KeyError:
                continue
        raise KeyError(self.code)


class _Words(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "time":
            return show_time(value)
        return show_duration(value) if format_spec == "duration" else format(value, format_spec)


_WORDS: Final = _Words()
