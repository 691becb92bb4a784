"""The state of a `Mixture` as bytes: equal states give equal bytes, and bytes from anywhere are checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.mixture.fits import Fit, Line, Snapshot, Source, Steps
from streamcal.mixture.names import ALL, FAMILIES, UNIFORM_FROM
from streamcal.sketch import grid
from streamcal.sketch.nested_windows import WindowState

__all__ = ["MixtureState", "SnapshotState", "decode", "encode", "pack_fits", "pack_floats", "unpack_fits"]

Cells = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
T = TypeVar("T")

_MOST_SNAPSHOTS: Final = 64
_MOST_PLACES: Final = 4096
_MOST_LABELS: Final = 1 << 50
_MOST_LOSS: Final = 4.0
_LAST: Final = grid.LAST_KEY >> grid.MIN_LEVEL


class FitState(msgspec.Struct, array_like=True):
    """A `Fit`."""

    labels: int
    positives: int
    edges: bytes
    values: bytes
    logits: bytes
    line: bytes
    platt: tuple[float, float]


class SnapshotState(msgspec.Struct, array_like=True):
    """A `Snapshot`: fits and source by their places in the lists of `MixtureState`, −1 for no source."""

    step: int
    observed: int
    source: int
    fits: list[int]
    fused: float | None


class MixtureState(msgspec.Struct):
    """The state of a `Mixture`."""

    stride: int
    scores: bytes
    labels: bytes
    seen: bytes
    windows: WindowState
    fits: list[FitState]
    sources: list[tuple[int, tuple[float, ...]]]
    ring: list[SnapshotState]
    now: SnapshotState
    fitted_at: list[int]
    source_places: bytes
    places: bytes
    placed_at: int
    next_step: int
    shift_allowed: bool
    fused: bool
    weights: bytes
    leader: int
    recent: bytes
    recent_labels: list[int]
    weighed: int
    served: bytes


def encode(state: MixtureState) -> bytes:
    """Return the bytes of a state."""
    return msgspec.msgpack.encode(state)


def decode(data: bytes) -> MixtureState:
    """Return the state of bytes.

    Raises
    ------
    DamagedStateError
        if they are none.
    """
    try:
        return msgspec.msgpack.decode(data, type=MixtureState)
    except msgspec.DecodeError as error:
        raise DamagedStateError(f"not the state of a mixture: {error}") from None


def pack_floats(values: Sequence[float] | Floats) -> bytes:
    """Return float64 values as bytes."""
    return np.asarray(values, "<f8").tobytes()


def unpack_floats(data: bytes, low: float, high: float, size: int | None = None) -> Floats:
    """Return float64 values from bytes.

    Raises
    ------
    DamagedStateError
        unless they are as many as they should be, and all in [low, high].
    """
    if len(data) % 8 or (size is not None and len(data) != 8 * size):
        raise DamagedStateError(f"numbers of a mixture in {len(data)} bytes, not {8 * (size or 0)}")
    values = np.frombuffer(data, "<f8").astype(np.float64)
    if not ((values >= low) & (values <= high)).all():
        raise DamagedStateError(f"numbers of a mixture are not in [{low}, {high}]")
    return values


def unpack_weights(data: bytes, size: int) -> Floats:
    """Return so many weights from bytes.

    Raises
    ------
    DamagedStateError
        unless they are in [0, 1] and add up to 1.
    """
    weights = unpack_floats(data, 0.0, 1.0, size)
    if abs(weights.sum() - 1.0) > 1e-6:
        raise DamagedStateError(f"weights of a mixture add up to {weights.sum()!r}, not to 1")
    return weights


def pack_cells(cells: Cells) -> bytes:
    """Return cells as bytes."""
    return cells.astype("<i4").tobytes()


def unpack_cells(data: bytes) -> Cells:
    """Return cells of the finest grid, strictly ascending.

    Raises
    ------
    DamagedStateError
        if they are not.
    """
    if len(data) % 4:
        raise DamagedStateError(f"cells of a mixture in {len(data)} bytes")
    cells = np.frombuffer(data, "<i4").astype(np.int32)
    if len(cells) and ((np.diff(cells) <= 0).any() or not 0 <= cells[0] <= cells[-1] <= _LAST):
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
        if one is none.
    """
    fits = []
    for state in states:
        steps = Steps(unpack_cells(state.edges), unpack_floats(state.values, 0.0, 1.0))
        logits = unpack_floats(state.logits, -100.0, 100.0)
        line = Line(logits, unpack_floats(state.line, 0.0, 1.0, len(logits)))
        if len(steps.values) not in (0, len(steps.edges) + 1) or (len(steps.edges) and not len(steps.values)):
            raise DamagedStateError(f"{len(steps.edges)} edges between {len(steps.values)} bins")
        if not len(logits) or (np.diff(logits) < 0.0).any() or not np.isfinite(state.platt).all():
            raise DamagedStateError("a fit of a mixture is not one")
        if not 0 <= state.positives <= state.labels or not 0 < state.labels < _MOST_LABELS:
            raise DamagedStateError(f"a fit to {state.positives} of {state.labels} labels")
        fits.append(Fit(state.labels, state.positives, steps, line, state.platt))
    return fits


class Shared:
    """Objects by their places in a list, each once, in the order of their first appearance."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self.objects: list[Any] = []

    def place(self, thing: object) -> int:
        """Return the place of an object, putting it at the end if it is new."""
        if id(thing) not in self._places:
            self._places[id(thing)] = len(self.objects)
            self.objects.append(thing)
        return self._places[id(thing)]


def pack_snapshots(
    snapshots: Sequence[tuple[int, Snapshot]],
) -> tuple[list[SnapshotState], list[FitState], list[tuple[int, tuple[float, ...]]]]:
    """Return the states of snapshots with their steps, of the fits they share, and of the sources."""
    fits, sources = Shared(), Shared()
    states = [
        SnapshotState(
            step,
            snapshot.observed,
            -1 if snapshot.source is None else sources.place(snapshot.source),
            [fits.place(fit) for fit in snapshot.fits],
            snapshot.fused,
        )
        for step, snapshot in snapshots
    ]
    of_sources = [(fits.place(source.fit), source.losses) for source in sources.objects]
    return states, pack_fits(fits.objects), of_sources


def unpack_snapshots(state: MixtureState) -> list[tuple[int, Snapshot]]:
    """Return the snapshots of the ring with their steps, and after them what is fitted now.

    Raises
    ------
    DamagedStateError
        if the state does not hold them.
    """
    fits = unpack_fits(state.fits)
    sources = []
    for place, losses in state.sources:
        if len(losses) != 1 + len(FAMILIES) or not all(0.0 <= loss <= _MOST_LOSS for loss in losses):
            raise DamagedStateError(f"losses of a source are {losses}")
        fit = _at(fits, place)
        if not len(fit.uniform.values):
            raise DamagedStateError("a source has no uniform-mass map")
        sources.append(Source(fit, losses))
    steps, observed = [held.step for held in state.ring], [held.observed for held in state.ring]
    if (
        not 0 < len(steps) <= _MOST_SNAPSHOTS
        or steps[0]
        or steps != sorted(set(steps))
        or observed != sorted(observed)
    ):
        raise DamagedStateError(f"{len(steps)} snapshots, or they are out of order")
    snapshots = []
    for held in (*state.ring, state.now):
        if len(held.fits) not in (0, ALL + 1) or held.observed < 0:
            raise DamagedStateError(f"a snapshot of {len(held.fits)} fits after {held.observed} scores")
        if held.fused is not None and not 0.0 < held.fused < 1.0:
            raise DamagedStateError(f"a prior must be in (0, 1), got {held.fused}")
        source = None if held.source < 0 else _at(sources, held.source)
        windows = tuple(_at(fits, place) for place in held.fits)
        if any(not len(fit.uniform.values) for fit in windows[UNIFORM_FROM:]):
            raise DamagedStateError("a window has no uniform-mass map")
        snapshots.append((held.step, Snapshot(held.observed, source, windows, held.fused)))
    return snapshots


def unpack_labels(state: MixtureState) -> tuple[Floats, npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    """Return the labels put aside: scores, labels, and how many scores had been seen, −1 for none.

    Raises
    ------
    DamagedStateError
        if they are none, or not equally many.
    """
    n = len(state.labels)
    scores, labels = unpack_floats(state.scores, 0.0, 1.0, n), np.frombuffer(state.labels, np.int8)
    if len(state.seen) != 8 * n:
        raise DamagedStateError(f"{n} labels of predictions in {len(state.seen)} bytes")
    seen = np.frombuffer(state.seen, "<i8").astype(np.int64)
    if not 0 <= state.weighed <= n:
        raise DamagedStateError(f"{state.weighed} labels are weighed, of {n} that were put aside")
    if n and (labels.min() < 0 or labels.max() > 1 or seen.min() < -1):
        raise DamagedStateError("labels that were put aside are none")
    return scores, labels, seen


def unpack_places(data: bytes) -> Cells:
    """Return the places of a table.

    Raises
    ------
    DamagedStateError
        if they cannot be.
    """
    places = unpack_cells(data)
    if (
        not 0 < len(places) <= _MOST_PLACES
        or places[0]
        or (np.diff(grid.left_edges(places, grid.MIN_LEVEL)) <= 0.0).any()
    ):
        raise DamagedStateError(f"{len(places)} places of a mixture, or they are out of order")
    return places


def _at(things: Sequence[T], place: int) -> T:
    if not 0 <= place < len(things):
        raise DamagedStateError(f"a mixture has {len(things)} fits or sources, not one at {place}")
    return things[place]
