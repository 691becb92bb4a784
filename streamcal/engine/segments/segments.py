"""Segments: the corrections of all fields and the own engines, behind one pooled engine.

A **forecast** of one score is a row of 1 + 5 F numbers, F the number of fields: the pooled probability; then
for each field what it adds to the logit, what its candidates would: ``slow``, ``fast`` and ``own``, NaN where
there is none, and the number of labels of its value. A label is compared with the row that was made with
its prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec

from streamcal.base.values import shown
from streamcal.engine.event_rules_c import ServedMap
from streamcal.engine.segments.corrections_c import Fields, FieldsState, Name, logit_of
from streamcal.engine.segments.own import OwnEngines, OwnState
from streamcal.engine.state import compressed, expanded
from streamcal.sketch.decoding import Count, decoded, encoded

ReadRow = Callable[[int, Name], bytes | None]
"""Gives the row of a field's value that is in a store, None if it has none."""

_MOST_FIELDS: Final = 64
_MOST_ENGINES: Final = 65_536


class SegmentsState(msgspec.Struct):
    """State of segments, but for the pooled engine."""

    names: Annotated[list[str], msgspec.Meta(min_length=1, max_length=_MOST_FIELDS)]
    limit: Count
    corrections: FieldsState
    own: list[OwnState]


def packed(state: SegmentsState) -> list[bytes]:
    """Return the parts of a state; those of own engines are compressed already."""
    return [compressed(encoded(msgspec.structs.replace(state, own=[]))), encoded(state.own)]


def unpacked(body: bytes, own: bytes) -> SegmentsState:
    """Return the state of what `packed` gave; raise DamagedStateError if it is none."""
    state = decoded(expanded(body), SegmentsState, "segments")
    state.own = decoded(own, list[OwnState], "own engines")
    return state


class Segments:
    """Corrections and own engines.

    Parameters
    ----------
    names
        Names of the fields.
    own_engines
        How many segments may have an engine of their own; with several fields none has one.
    read_row
        Gives what a store has of a segment, by number of the field and name; None: there is no store.
    """

    __slots__ = ("_has_own", "_limit", "_own", "corrections", "names")

    def __init__(self, names: Sequence[str], own_engines: int, read_row: ReadRow | None = None) -> None:
        self.names = tuple(names)
        self.corrections = Fields(len(self.names), read_row)
        self._limit = own_engines
        self._has_own = len(self.names) == 1 and own_engines > 0
        self._own = OwnEngines(own_engines if self._has_own else 0, logs=read_row is not None)

    @property
    def has_engines(self) -> bool:
        """Whether segments may have engines of their own."""
        return self._has_own

    def has_own(self, names: Sequence[Name]) -> bool:
        """Whether a segment has an engine of its own that is served."""
        return self.own_served(names[0]) is not None

    def own_served(self, name: Name) -> ServedMap | None:
        """Return the map that the own engine of a value serves; None if it has none that forecasts."""
        return self._own.served((0, name))

    def carry(self, score: float, pooled: float, names: Sequence[Name], given: bytes) -> bytes:
        """Return the values of the fields and the forecast for a score, see the module.

        Parameters
        ----------
        score, pooled
            Score, and its pooled probability.
        names
            Value of each field.

        ``given`` is what `Fields.forecast` has just returned, without an own engine. `Fields.served` is then
        the probability.
        """
        own = self.own_served(names[0])
        if own is None:
            return given
        return self.corrections.forecast(pooled, names, [logit_of(own.forecast(score)) - logit_of(pooled)])

    def learn_own(self, name: Name, score: float, label: int) -> None:
        """Let the engine of a segment learn a label that its corrections have learned."""
        only = self.corrections.fields[0]
        gone = self._own.learn((0, name), score, label, only.labels(name))
        if gone is not None:
            only.forget_own(gone[1])

    def to_state(self) -> SegmentsState:
        """Return the state."""
        return SegmentsState(list(self.names), self._limit, self.corrections.to_state(), self._own.to_state())

    @classmethod
    def restored(cls, state: SegmentsState, read_row: ReadRow | None = None) -> Segments:
        """Restore from a state; raise ValueError if it cannot be one."""
        made = cls(check_fields(state.names), check_own_engines(state.limit), read_row)
        made.corrections.restore(state.corrections)
        made._own.restore(state.own)
        return made


def check_fields(fields: Sequence[str]) -> tuple[str, ...]:
    """Return the names of fields; ValueError if they cannot be such."""
    names = (fields,) if isinstance(fields, str) else tuple(map(str, fields))
    if not 1 <= len(names) <= _MOST_FIELDS:
        raise ValueError(f"fields must be 1 to {_MOST_FIELDS} names, got {shown(fields)}")
    if not all(names) or len(set(names)) < len(names):
        raise ValueError(f"fields must be different names that are not empty, got {shown(fields)}")
    return names


def of_frame(frame: Any, fields: Sequence[str], what: str) -> list[Any]:
    """Return the column of each field of a data frame; ValueError if it has no such column."""
    names = list(getattr(frame, "column_names", getattr(frame, "columns", ())))  # the former of Arrow
    for field in fields:
        if field not in names:
            found = f"it has {', '.join(map(shown, names))}" if names else f"{what} must be a data frame"
            raise ValueError(f"{what} has no column {field!r}, of whose values segments are made; {found}")
    return [frame[field] for field in fields]


def listed(values: Any) -> list[Any]:
    """Return the values of an array, a column or a sequence."""
    for name in ("to_list", "tolist", "to_pylist"):
        if hasattr(values, name):
            made: list[Any] = getattr(values, name)()
            return made
    return values if type(values) is list else list(values)


def check_own_engines(limit: object) -> int:
    """Return a number of own engines; ValueError if it cannot be one."""
    if type(limit) is not int or not 0 <= limit <= _MOST_ENGINES:
        raise ValueError(f"own_engines must be a whole number from 0 to {_MOST_ENGINES}, got {shown(limit)}")
    return limit
