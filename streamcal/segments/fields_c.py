"""Several fields whose corrections add up on the logit, fitted in turn: backfitting online.

Each label updates every field once, with the sum of the others as offset. That sum is the present one: with
labels that are late, the sum as of the prediction would let all fields learn the same deviation until the
first label that shows it, and overshoot together. The pooled probability is that of the prediction.

**Common deviation.** If labels are late, pooled probabilities are off for all segments alike while the pooled
engine catches up. A correction that took this up would add it a second time later. So a common offset,
remembered over 500 labels, is fitted in turn like a field, and is never served.

Compiled where there is a C compiler; `fields_c.pxd` has the types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np

from streamcal.errors import DamagedStateError
from streamcal.segments.corrections_c import (
    READ,
    Corrections,
    CorrectionsState,
    expit,
    logit_of,
)
from streamcal.segments.names_c import Name, as_bytes, as_name
from streamcal.sketch.decoding import Count, Finite, require

__all__ = ["CENTRED", "MOST_COMMON", "TERMS", "Fields", "FieldsState", "names_of"]

CENTRED: Final = 1000
"""Labels whose mean logit is the centre."""
TERMS: Final = 5
"""Numbers of a field in a forecast: what it adds to the logit, δ of slow, fast and own, if it has one, and
how many labels its value has."""
MOST_COMMON: Final = 125.0
"""Information about the common offset that 500 labels can have."""

# As C has them.
_SIZE = 8  # bytes of a number
_COMMON = 1.0 - 1.0 / 500.0
_COMMON_PRECISION = 25.0
_CENTRED = CENTRED
_FARTHEST = 4.0  # from the centre, where slopes end
_READ = READ
_TERMS = TERMS
_NONE = float("nan")


class FieldsState(msgspec.Struct):
    """State of all fields."""

    fields: list[CorrectionsState]
    centre: Finite
    centred: Count
    score: Finite
    information: Finite


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
        require(abs(state.centre) <= 100.0, f"centre {state.centre}")
        require(state.centred <= _CENTRED, f"{state.centred} labels in the centre")
        require(0.0 <= state.information <= 1e3, f"information {state.information}")
        require(abs(state.score) <= 1e5, f"score {state.score}")
        for field, each in zip(self.fields, state.fields, strict=True):
            field.restore(each)
        self._centre, self._centred = state.centre, state.centred
        self._score, self._information = state.score, state.information


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
