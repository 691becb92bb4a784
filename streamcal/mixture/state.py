"""The state of a `Mixture` as bytes.

Equal states give equal bytes. Bytes are checked: they may come from anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from streamcal.errors import DamagedStateError
from streamcal.mixture.fits import Cells, Fit, Floats, Line, Source, Steps
from streamcal.mixture.forecasts import Snapshot
from streamcal.mixture.names import ALL, FAMILIES, NAMES, UNIFORM_FROM
from streamcal.mixture.partition import LAST
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, decoded
from streamcal.sketch.nested_windows import WindowState

__all__ = [
    "FitState",
    "MixtureState",
    "SnapshotState",
    "decode",
    "encode",
    "pack_cells",
    "pack_floats",
    "pack_snapshots",
    "unpack_cells",
    "unpack_fits",
    "unpack_floats",
    "unpack_partition",
    "unpack_snapshots",
    "unpack_weights",
]

T = TypeVar("T")

_MOST_SNAPSHOTS: Final = 64
_MOST_INTERVALS: Final = 4096
_MOST_LOSS: Final = 4.0
_MOST_PLATT: Final = 1e9  # the prior of `fit_platt` keeps (a, b) below it


class FitState(msgspec.Struct, array_like=True):
    """A `Fit`."""

    labels: Count
    positives: Count
    edges: bytes
    values: bytes
    logits: bytes
    line: bytes
    platt: tuple[float, float]


class SnapshotState(msgspec.Struct, array_like=True):
    """A `Snapshot`, with indices into the fits and sources of `MixtureState`; source −1 means none."""

    step: Count
    observed: Count
    source: int
    fits: list[int]
    fused: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None


class MixtureState(msgspec.Struct):
    """The state of a `Mixture`."""

    stride: Count
    weighed: Count
    windows: WindowState
    fits: list[FitState]
    sources: list[tuple[int, tuple[float, ...]]]
    snapshots: list[SnapshotState]
    now: SnapshotState
    """The fits and the source as of now; the latest of the snapshots holds those that are served."""
    fitted_at: list[int]
    source_edges: bytes
    partition: bytes
    chosen_at: int
    next_step: Count
    shift_allowed: bool
    fused: bool
    weights: bytes
    served: bytes
    leader: Count
    recent: bytes
    recent_labels: list[Count]


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


def unpack_weights(data: bytes) -> Floats:
    """Return the weights of all candidates, float64[K], from bytes.

    Raises
    ------
    DamagedStateError
        Unless they are in [0, 1] and add up to 1.
    """
    weights = unpack_floats(data, 0.0, 1.0, len(NAMES))
    if abs(weights.sum() - 1.0) > 1e-6:
        raise DamagedStateError(f"weights of a mixture add up to {float(weights.sum())!r}, not to 1")
    return weights


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


def pack_fits(fits: Sequence[Fit]) -> list[FitState]:
    """Return the states of fits."""
    return [
        FitState(
            fit.labels,
            fit.positives,
            pack_cells(fit.uniform.edges),
            pack_floats(fit.uniform.values),
            pack_floats(fit.isotonic.logits),
            pack_floats(fit.isotonic.values),
            fit.platt,
        )
        for fit in fits
    ]


def unpack_fits(states: Sequence[FitState]) -> list[Fit]:
    """Return fits from their states.

    Raises
    ------
    DamagedStateError
        If one of them cannot be the state of a fit.
    """
    fits = []
    for state in states:
        steps = Steps(unpack_cells(state.edges), unpack_floats(state.values, 0.0, 1.0))
        logits = unpack_floats(state.logits, -100.0, 100.0)
        line = Line(logits, unpack_floats(state.line, 0.0, 1.0, len(logits)))
        if len(steps.values) not in (0, len(steps.edges) + 1) or (len(steps.edges) and not len(steps.values)):
            raise DamagedStateError(f"{len(steps.edges)} edges between {len(steps.values)} bins")
        if not len(logits) or (np.diff(logits) < 0.0).any():
            raise DamagedStateError("a fit has no knots, or knots that descend")
        if not all(abs(parameter) <= _MOST_PLATT for parameter in state.platt):
            raise DamagedStateError(f"a fit has the parameters {state.platt}")
        if not state.positives <= state.labels or not state.labels:
            raise DamagedStateError(f"a fit to {state.positives} of {state.labels} labels")
        fits.append(Fit(state.labels, state.positives, steps, line, state.platt))
    return fits


class _Shared:
    """A list that holds every object once, in the order of first appearance."""

    def __init__(self) -> None:
        self._indices: dict[int, int] = {}
        self.objects: list[Any] = []

    def index(self, thing: object) -> int:
        """Return the index of an object, which is appended if it is new."""
        if id(thing) not in self._indices:
            self._indices[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return self._indices[id(thing)]


def pack_snapshots(
    snapshots: Sequence[tuple[int, Snapshot]],
) -> tuple[list[SnapshotState], list[FitState], list[tuple[int, tuple[float, ...]]]]:
    """Return the states of snapshots with their steps, and of the fits and sources that they share."""
    fits, sources = _Shared(), _Shared()
    states = [
        SnapshotState(
            step,
            snapshot.observed,
            -1 if snapshot.source is None else sources.index(snapshot.source),
            [fits.index(fit) for fit in snapshot.fits],
            snapshot.fused,
        )
        for step, snapshot in snapshots
    ]
    of_sources = [(fits.index(source.fit), source.losses) for source in sources.objects]
    return states, pack_fits(fits.objects), of_sources


def unpack_snapshots(state: MixtureState) -> list[tuple[int, Snapshot]]:
    """Return the snapshots with their steps, and after them the fits and the source as of now.

    Raises
    ------
    DamagedStateError
        If the state cannot be that of a mixture.
    """
    fits = unpack_fits(state.fits)
    sources = []
    for index, losses in state.sources:
        if len(losses) != 1 + len(FAMILIES) or not all(0.0 <= loss <= _MOST_LOSS for loss in losses):
            raise DamagedStateError(f"losses of a source are {losses}")
        fit = _at(fits, index)
        if not len(fit.uniform.values):
            raise DamagedStateError("a source has no uniform-mass map")
        sources.append(Source(fit, losses))
    steps, observed = [held.step for held in state.snapshots], [held.observed for held in state.snapshots]
    if (
        not 0 < len(steps) <= _MOST_SNAPSHOTS
        or steps[0]
        or steps != sorted(set(steps))
        or observed != sorted(observed)
    ):
        raise DamagedStateError(f"{len(steps)} snapshots of a mixture, or they are out of order")
    snapshots = []
    for held in (*state.snapshots, state.now):
        if len(held.fits) not in (0, ALL + 1):
            raise DamagedStateError(f"a snapshot of {len(held.fits)} fits after {held.observed} scores")
        source = None if held.source < 0 else _at(sources, held.source)
        windows = tuple(_at(fits, index) for index in held.fits)
        if any(not len(fit.uniform.values) for fit in windows[UNIFORM_FROM:]):
            raise DamagedStateError("a window has no uniform-mass map")
        snapshots.append((held.step, Snapshot(held.observed, source, windows, held.fused)))
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


def _at(things: Sequence[T], index: int) -> T:
    if not 0 <= index < len(things):
        raise DamagedStateError(f"a mixture has {len(things)} fits or sources, but refers to number {index}")
    return things[index]
