"""The state of a `Mixture` as bytes.

Equal states give equal bytes. Bytes are checked: they may be untrusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from streamcal.errors import DamagedStateError
from streamcal.maps.logistic import FEATURES
from streamcal.mixture.first_labels import FirstLabels
from streamcal.mixture.fits import Cells, Floats, Source
from streamcal.mixture.forecasts import LOGISTIC_ROWS
from streamcal.mixture.forecasts_c import Line, Snapshot
from streamcal.mixture.names import EXPOSURES, NAMES, WINDOWS
from streamcal.mixture.partition import LAST
from streamcal.mixture.windows import WindowsState
from streamcal.sketch import grid
from streamcal.sketch.arrays import Units
from streamcal.sketch.decoding import Count, Finite, decoded
from streamcal.sketch.weighing import NONE, check_units

__all__ = [
    "Maps",
    "MixtureState",
    "SnapshotState",
    "SourceState",
    "decode",
    "encode",
    "pack_cells",
    "pack_floats",
    "pack_snapshots",
    "pack_units",
    "unpack_cells",
    "unpack_floats",
    "unpack_partition",
    "unpack_snapshots",
    "unpack_units",
]

T = TypeVar("T")

_MOST_SNAPSHOTS: Final = 64
_MOST_INTERVALS: Final = 4096
_MOST_PARAMETER: Final = 1e9  # of a Platt map: the priors of its fits keep it far below

Odds = Annotated[float, msgspec.Meta(gt=0.0, le=1e300)]
Loss = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class SourceState(msgspec.Struct, array_like=True):
    """A `Source`, with indices into `Maps`."""

    labels: Count
    prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
    platt: tuple[Finite, Finite]
    curve: int
    losses: tuple[Loss, Loss, Loss]


class Maps(msgspec.Struct, array_like=True):
    """Maps that snapshots share, each once: pairs of knots and values."""

    lines: list[tuple[bytes, bytes]]
    sources: list[SourceState]


class SnapshotState(msgspec.Struct, array_like=True):
    """A `Snapshot`, with indices into `Maps`; −1 means none."""

    step: Count
    observed: Count
    weights: bytes
    logistic: bytes
    isotonic: list[int]
    curve: int
    source: int
    odds: tuple[Odds, Odds]
    by_scores: bool


class MixtureState(msgspec.Struct, omit_defaults=True):
    """The state of a `Mixture`."""

    labels: Count
    positives: Count
    latest: bytes
    windows: WindowsState
    maps: Maps
    snapshots: list[SnapshotState]
    arrival: SnapshotState | None
    """Snapshot served when the latest prediction was made; None: the latest of the snapshots."""
    now: SnapshotState
    """Maps, source and weights as of now; the latest of the snapshots holds the served ones."""
    online: bytes
    first_labels: FirstLabels
    source_edges: bytes
    partition: bytes
    chosen_at: int
    next_step: Count
    at_once: bool
    shift_allowed: bool
    weights: bytes
    leader: Count
    recent: bytes
    recent_labels: list[Count]
    mass: tuple[int, int, int] = NONE
    latest_units: bytes = b""
    evidence: bytes | None = None
    """Evidence of early positives; None if exposures are not candidates."""


def encode(state: MixtureState) -> bytes:
    """Return the bytes of a state."""
    return msgspec.msgpack.encode(state)


def decode(data: bytes) -> MixtureState:
    """Return the state of bytes.

    Raises
    ------
    DamagedStateError
        If the bytes are not such a state.
    """
    return decoded(data, MixtureState, "a mixture")


def pack_floats(values: Sequence[float] | Floats) -> bytes:
    """Return float64 values as bytes."""
    return np.asarray(values, "<f8").tobytes()


def unpack_floats(data: bytes, low: float, high: float, size: int | None = None) -> Floats:
    """Return float64 values from bytes.

    Raises
    ------
    DamagedStateError
        Unless there are ``size`` of them, if it is given, all in [low, high].
    """
    if len(data) % 8 or (size is not None and len(data) != 8 * size):
        expected = "a multiple of 8" if size is None else 8 * size
        raise DamagedStateError(f"numbers of a mixture in {len(data)} bytes, expected {expected}")
    values = np.frombuffer(data, "<f8").astype(np.float64)
    if not ((values >= low) & (values <= high)).all():
        raise DamagedStateError(f"numbers of a mixture are not in [{low}, {high}]")
    return values


def pack_units(units: Units) -> bytes:
    """Return units of weights as bytes."""
    return units.astype("<i8").tobytes()


def unpack_units(data: bytes, count: int) -> Units:
    """Return the units of ``count`` weights from bytes.

    Raises
    ------
    DamagedStateError
        If they are not such units.
    """
    units = np.frombuffer(data[: len(data) // 8 * 8], "<i8").astype(np.int64)
    try:
        check_units(units, count)
    except ValueError as error:
        raise DamagedStateError(f"of a mixture, {error}") from None
    return units


def pack_cells(cells: Cells) -> bytes:
    """Return cells as bytes."""
    return cells.astype("<i4").tobytes()


def unpack_cells(data: bytes) -> Cells:
    """Return cells of the finest grid from bytes.

    Raises
    ------
    DamagedStateError
        Unless they exist and are strictly ascending.
    """
    if len(data) % 4:
        raise DamagedStateError(f"cells of a mixture in {len(data)} bytes")
    cells = np.frombuffer(data, "<i4").astype(np.int32)
    if len(cells) and ((np.diff(cells) <= 0).any() or not 0 <= cells[0] <= cells[-1] <= LAST):
        raise DamagedStateError("cells of a mixture are out of order or out of range")
    return cells


class _Shared:
    """A list that holds every object once, in the order of first appearance."""

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        self.objects: list[Any] = []

    def index(self, thing: object) -> int:
        """Return the index of an object, which is appended if it is new; −1 for None."""
        if thing is None:
            return -1
        if id(thing) not in self._indices:
            self._indices[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return self._indices[id(thing)]


def pack_snapshots(snapshots: Sequence[tuple[int, Snapshot]]) -> tuple[list[SnapshotState], Maps]:
    """Return the states of snapshots with their steps, and of the maps that they share."""
    lines, sources = _Shared(), _Shared()
    states = [
        SnapshotState(
            step,
            snapshot.observed,
            pack_floats(snapshot.weights.ravel()),
            pack_floats(snapshot.logistic.ravel()),
            [lines.index(line) for line in snapshot.isotonic],
            lines.index(snapshot.curve),
            sources.index(snapshot.source),
            snapshot.odds,
            snapshot.by_scores,
        )
        for step, snapshot in snapshots
    ]
    of_sources = [
        SourceState(
            source.labels,
            source.prior,
            source.platt,
            lines.index(source.curve),
            source.losses,
        )
        for source in sources.objects
    ]
    maps = Maps(
        [(pack_floats(line.logits), pack_floats(line.values)) for line in lines.objects],
        of_sources,
    )
    return states, maps


def unpack_snapshots(state: MixtureState) -> list[tuple[int, Snapshot]]:
    """Return the snapshots with their steps, then the snapshots of the arrival and of now.

    Raises
    ------
    DamagedStateError
        If the state cannot be that of a mixture.
    """
    lines = [_line(*held) for held in state.maps.lines]
    sources = [_source(held, lines) for held in state.maps.sources]
    numbers, observed = [held.step for held in state.snapshots], [held.observed for held in state.snapshots]
    if (
        not 0 < len(numbers) <= _MOST_SNAPSHOTS
        or numbers[0]
        or numbers != sorted(set(numbers))
        or observed != sorted(observed)
    ):
        raise DamagedStateError(f"{len(numbers)} snapshots of a mixture, or they are out of order")
    snapshots, more = [], 0 if state.evidence is None else len(EXPOSURES)
    for held in (*state.snapshots, state.arrival or state.snapshots[-1], state.now):
        if len(held.isotonic) not in (0, len(WINDOWS)):
            raise DamagedStateError(f"a snapshot of {len(held.isotonic)} windows")
        if (held.curve < 0) != (not held.isotonic):
            raise DamagedStateError("a snapshot of some windows only")
        size = FEATURES * (LOGISTIC_ROWS + more)
        logistic = unpack_floats(held.logistic, -_MOST_PARAMETER, _MOST_PARAMETER, size)
        snapshot = Snapshot(
            held.observed,
            _weights(held.weights, len(NAMES) + more),
            logistic.reshape(-1, FEATURES),
            tuple(_at(lines, index) for index in held.isotonic),
            None if held.curve < 0 else _at(lines, held.curve),
            None if held.source < 0 else _at(sources, held.source),
            held.odds,
            held.by_scores,
        )
        snapshots.append((held.step, snapshot))
    return snapshots


def unpack_partition(data: bytes) -> Cells:
    """Return the partition of a table from bytes.

    Raises
    ------
    DamagedStateError
        Unless its intervals begin at 0, ascend, and hold a score each.
    """
    partition = unpack_cells(data)
    if (
        not 0 < len(partition) <= _MOST_INTERVALS
        or partition[0]
        or (np.diff(grid.left_edges(partition, grid.MIN_LEVEL)) <= 0.0).any()
    ):
        raise DamagedStateError(f"{len(partition)} intervals, at most {_MOST_INTERVALS}, or they are damaged")
    return partition


def _weights(data: bytes, candidates: int) -> Floats:
    """Return the weights of all candidates, float64[3, K]: in [0, 1], with sum 1."""
    weights = unpack_floats(data, 0.0, 1.0, 3 * candidates).reshape(3, -1)
    if (abs(weights.sum(axis=1) - 1.0) > 1e-6).any():
        raise DamagedStateError(f"weights of a mixture add up to {weights.sum(axis=1).tolist()}, not to 1")
    return weights


def _line(knots: bytes, values: bytes) -> Line:
    logits = unpack_floats(knots, -100.0, 100.0)
    if not len(logits) or (np.diff(logits) < 0.0).any():
        raise DamagedStateError("an isotonic map has no knots, or knots that descend")
    return Line(logits, unpack_floats(values, 0.0, 1.0, len(logits)))


def _source(state: SourceState, lines: Sequence[Line]) -> Source:
    if not state.labels or not all(abs(parameter) <= _MOST_PARAMETER for parameter in state.platt):
        raise DamagedStateError(f"a source of {state.labels} labels with the parameters {state.platt}")
    return Source(state.labels, state.prior, state.platt, _at(lines, state.curve), state.losses)


def _at(things: Sequence[T], index: int) -> T:
    if not 0 <= index < len(things):
        raise DamagedStateError(f"a mixture has {len(things)} maps or sources, but refers to number {index}")
    return things[index]
