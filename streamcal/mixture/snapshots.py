"""When a mixture takes its steps, and the snapshots that they served, kept to score late labels.

A label that comes late is scored with the snapshot that was served when its prediction was made. Of older
steps fewer are kept.

Memory: about 40 snapshots in the long run, a few kB each.
"""

from __future__ import annotations

from typing import Annotated, Final, Self, TypeAlias

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats
from streamcal.mixture.forecasts_c import SLOPES, Line, Snapshot, put_served, thinned
from streamcal.sketch.decoding import Count, Part, decoded, encoded, require

STRIDE: Final = 64
"""The longest step, in labels. The first step takes 8, and the next ones a quarter of the labels so far."""

STRIDE_AT_ONCE: Final = 16
"""The longest step while most labels come before the next step: what they teach is of use at once.

Steps of 64 would add .8 % to the losses then, and 11 % where a stream changes fast. Steps of a quarter of the
delay would add as much where delays are exponential: many labels come early."""

_FIRST_STEP: Final = 8

_OLDEST: Final = 2048  # in steps: the age at which all snapshots but the first are gone
_ALL_KEPT: Final = 8  # the latest so many are all kept
_THIN_EVERY: Final = 8
_MOST: Final = 64  # snapshots of a state
_MOST_LOG_ODDS: Final = 700.0

_Inside: TypeAlias = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]


class _Entry(msgspec.Struct, array_like=True):
    """A `Snapshot` with the number of its step: its lines as indices, −1 for none, and its other fields."""

    step: Count
    lines: list[int]
    observed: Count
    weights: Floats
    odds: Floats
    knows: bool
    by_scores: bool
    limits: tuple[_Inside, _Inside]
    slopes: Floats
    centre: Annotated[float, msgspec.Meta(ge=-_MOST_LOG_ODDS, le=_MOST_LOG_ODDS)]


class _State(Part):
    """The state of `Snapshots`."""

    lines: list[bytes]
    """Lines that the snapshots share, each once."""
    entries: Annotated[list[_Entry], msgspec.Meta(min_length=1, max_length=_MOST)]
    arrival: _Entry | None
    """Snapshot served when the latest prediction was made; None: the latest of the entries."""


def next_step(labels: int, *, at_once: bool) -> int:
    """Return the label count of the step after one at so many labels."""
    return labels + min(STRIDE_AT_ONCE if at_once else STRIDE, max(_FIRST_STEP, labels // 4))


class Snapshots:
    """Snapshots in the order of their steps.

    Parameters
    ----------
    first
        snapshot of step 0. The counts of observed scores of those that are added must not descend.
    """

    __slots__ = ("arrival", "entries")

    def __init__(self, first: Snapshot) -> None:
        self.entries = [(0, first)]
        """Snapshots, each with the number of its step; do not change it."""
        self.arrival = first
        """Snapshot that was served when the latest prediction was made."""

    @property
    def latest(self) -> Snapshot:
        """Served snapshot."""
        return self.entries[-1][1]

    @property
    def all(self) -> list[Snapshot]:
        """Snapshots, and that of the latest prediction."""
        return [*(snapshot for _, snapshot in self.entries), self.arrival]

    def begin(self, snapshot: Snapshot) -> None:
        """Keep this snapshot alone, as that of step 0."""
        self.entries = [(0, snapshot)]

    def add(self, snapshot: Snapshot) -> None:
        """Add the snapshot of the next step, and at every eighth step thin out the older ones."""
        now = self.entries[-1][0] + 1
        self.entries.append((now, snapshot))
        if not now % _THIN_EVERY:
            self.entries = thinned(self.entries, _OLDEST, _ALL_KEPT)

    def served_at(self, prediction_index: Counts) -> tuple[Counts, int]:
        """Return the index of the snapshot served after each number of scores, int64[n], and the least index.

        For negative numbers it is K, the number of snapshots that are held. K also stands for snapshots that
        knew no label: their candidates forecast the same, so no label can distinguish them.
        """
        index = np.empty(len(prediction_index), np.int64)
        return index, put_served(self.entries, prediction_index, index)

    def to_bytes(self) -> bytes:
        """Return the state as bytes."""
        lines: dict[bytes, int] = {}
        known = {id(None): -1}

        def place(line: Line | None) -> int:
            if line is not None and id(line) not in known:
                known[id(line)] = lines.setdefault(line.to_bytes(), len(lines))
            return known[id(line)]

        def packed(step: int, snapshot: Snapshot) -> _Entry:
            return _Entry(step, [*map(place, snapshot.lines)], *snapshot.fields())

        entries = [packed(*entry) for entry in self.entries]
        arrival = None if self.arrival is self.latest else packed(0, self.arrival)
        return encoded(_State([*lines], entries, arrival))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the snapshots of `to_bytes`; raise ValueError if these are none."""
        state = decoded(data, _State, "snapshots")
        candidates = len(state.entries[0].lines)
        lines = [*map(Line.from_bytes, state.lines), None]

        def restored(held: _Entry) -> Snapshot:
            fitting = len(held.lines) == candidates and all(
                -1 <= place < len(state.lines) for place in held.lines
            )
            require(fitting, f"a snapshot of the lines {held.lines}, for {candidates} candidates")
            held.weights, held.slopes = held.weights.reshape(3, candidates), held.slopes.reshape(len(SLOPES))
            held.odds = held.odds.reshape(candidates)
            return Snapshot(tuple(lines[place] for place in held.lines), *msgspec.structs.astuple(held)[2:])

        snapshots = cls(restored(state.entries[0]))
        snapshots.entries += [(held.step, restored(held)) for held in state.entries[1:]]
        snapshots.arrival = snapshots.latest if state.arrival is None else restored(state.arrival)
        return snapshots
