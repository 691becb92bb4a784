"""The state of a `Mixture`, and of the snapshots whose maps it shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np

from streamcal.maps.logistic import FEATURES
from streamcal.mixture.evidence import Evidence
from streamcal.mixture.fits import Source
from streamcal.mixture.forecasts_c import SLOPES, Line, Snapshot
from streamcal.mixture.label_counts import CountsState
from streamcal.mixture.names import DELAYED, LOGISTIC_ROWS, NAMES, WINDOWS
from streamcal.mixture.table import LAST
from streamcal.mixture.windows import WindowsState
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, Positive, ascending, require, within
from streamcal.values import Cells, Floats

__all__ = [
    "Maps",
    "MixtureState",
    "SnapshotState",
    "SourceState",
    "checked_edges",
    "checked_partition",
    "checked_slopes",
    "pack_snapshots",
    "unpack_snapshots",
]

T = TypeVar("T")

_MOST_SNAPSHOTS: Final = 64
_MOST_INTERVALS: Final = 4096
_MOST_LOG_ODDS: Final = 700.0
_FARTHEST: Final = 1000.0  # bound on the logits of knots
_MOST_PARAMETER: Final = 1e9  # of a Platt map: the priors of its fits keep it far below

Odds = Annotated[float, msgspec.Meta(gt=0.0, le=1e300)]
Loss = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Inside = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
LogLoss = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
Parameter = Annotated[float, msgspec.Meta(ge=-_MOST_PARAMETER, le=_MOST_PARAMETER)]


class SourceState(msgspec.Struct, array_like=True):
    """A `Source`, with indices into `Maps`."""

    labels: Positive
    prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
    platt: tuple[Parameter, Parameter]
    curve: int
    losses: tuple[Loss, Loss, Loss]
    log_losses: tuple[LogLoss, LogLoss]


class Maps(msgspec.Struct, array_like=True):
    """Maps that snapshots share, each once: pairs of knots and values."""

    lines: list[tuple[Floats, Floats]]
    sources: list[SourceState]


class SnapshotState(msgspec.Struct, array_like=True):
    """A `Snapshot`, with indices into `Maps`; −1 means none."""

    step: Count
    observed: Count
    weights: Floats
    logistic: Floats
    isotonic: list[int]
    curve: int
    source: int
    odds: tuple[Odds, Odds]
    by_scores: bool
    limits: tuple[Inside, Inside]
    slopes: Floats
    centre: Annotated[float, msgspec.Meta(ge=-_MOST_LOG_ODDS, le=_MOST_LOG_ODDS)]


class MixtureState(msgspec.Struct, omit_defaults=True):
    """The state of a `Mixture`."""

    counts: CountsState
    windows: WindowsState
    maps: Maps
    snapshots: Annotated[list[SnapshotState], msgspec.Meta(min_length=1, max_length=_MOST_SNAPSHOTS)]
    arrival: SnapshotState | None
    """Snapshot served when the latest prediction was made; None: the latest of the snapshots."""
    now: SnapshotState
    """Maps, source and weights as of now; the latest of the snapshots holds those that are served."""
    online: Floats
    source_edges: Cells
    partition: Cells
    chosen_at: Annotated[int, msgspec.Meta(ge=-1)]
    next_step: Positive
    at_once: bool
    weights: Floats
    slopes: Floats
    leader: Count
    recent: Floats
    recent_labels: list[Count]
    evidence: Evidence | None = None
    """Evidence of early positives; None if exposures are not candidates."""
    own: list[str] = []
    """Names of the user's own candidates."""


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
            snapshot.weights,
            snapshot.logistic,
            [lines.index(line) for line in snapshot.isotonic],
            lines.index(snapshot.curve),
            sources.index(snapshot.source),
            snapshot.odds,
            snapshot.by_scores,
            snapshot.limits,
            snapshot.slopes,
            snapshot.centre,
        )
        for step, snapshot in snapshots
    ]
    of_sources = [
        SourceState(
            each.labels, each.prior, each.platt, lines.index(each.curve), each.losses, each.log_losses
        )
        for each in sources.objects
    ]
    return states, Maps([(line.logits, line.values) for line in lines.objects], of_sources)


def unpack_snapshots(state: MixtureState) -> list[tuple[int, Snapshot]]:
    """Return the snapshots with their steps, and after them those of the arrival and of now."""
    lines = [_line(*held) for held in state.maps.lines]
    sources = [
        Source(held.labels, held.prior, held.platt, _at(lines, held.curve), held.losses, held.log_losses)
        for held in state.maps.sources
    ]
    steps, observed = [held.step for held in state.snapshots], [held.observed for held in state.snapshots]
    in_order = steps[0] == 0 and steps == sorted(set(steps)) and observed == sorted(observed)
    require(in_order, f"{len(steps)} snapshots are out of order")
    more, own = 0 if state.evidence is None else len(DELAYED), len(state.own)
    snapshots, size = [], FEATURES * (LOGISTIC_ROWS + more)
    for held in (*state.snapshots, state.arrival or state.snapshots[-1], state.now):
        windows = len(held.isotonic)
        require(windows in (0, len(WINDOWS) + own), f"a snapshot of {windows} windows")
        require((held.curve < 0) == (windows == 0), "a snapshot of some windows only")
        snapshot = Snapshot(
            held.observed,
            _weights(held.weights, len(NAMES) + more + own),
            within(held.logistic, -_MOST_PARAMETER, _MOST_PARAMETER, "maps", size).reshape(-1, FEATURES),
            tuple(_at(lines, index) for index in held.isotonic),
            None if held.curve < 0 else _at(lines, held.curve),
            None if held.source < 0 else _at(sources, held.source),
            held.odds,
            held.by_scores,
            held.limits,
            checked_slopes(held.slopes),
            held.centre,
        )
        require(held.limits[0] <= held.limits[1], f"a snapshot has the limits {held.limits}")
        snapshots.append((held.step, snapshot))
    return snapshots


def checked_edges(cells: Cells) -> Cells:
    """Return cells of the finest grid; raise ValueError unless they exist and ascend."""
    return within(ascending(cells, "edges"), 0, LAST, "edges")


def checked_partition(cells: Cells) -> Cells:
    """Return the partition of a table; raise ValueError unless its intervals begin at 0 and hold scores."""
    require(0 < len(cells) <= _MOST_INTERVALS, f"{len(cells)} intervals, at most {_MOST_INTERVALS}")
    require(checked_edges(cells)[0] == 0, f"the first interval begins at {cells[0]}")
    ascending(grid.left_edges(cells, grid.MIN_LEVEL), "intervals")
    return cells


def checked_slopes(values: Floats) -> Floats:
    """Return weights of the factors of the slope; raise ValueError unless they are weights."""
    within(values, 0.0, 1.0, "weights of slopes", len(SLOPES))
    require(abs(float(values.sum()) - 1.0) <= 1e-6, f"weights of slopes add up to {values.sum()}, not to 1")
    return values


def _weights(values: Floats, candidates: int) -> Floats:
    """Return the weights of all candidates, float64[3, K]: in [0, 1], with sum 1."""
    weights = within(values, 0.0, 1.0, "weights", 3 * candidates).reshape(3, -1)
    sums = weights.sum(axis=1)
    require((abs(sums - 1.0) <= 1e-6).all(), f"weights add up to {sums.tolist()}, not to 1")
    return weights


def _line(logits: Floats, values: Floats) -> Line:
    within(logits, -_FARTHEST, _FARTHEST, "knots")
    require(len(logits) and (np.diff(logits) >= 0.0).all(), "a map has no knots, or knots that descend")
    return Line(logits, within(values, 0.0, 1.0, "values", len(logits)))


def _at(things: Sequence[T], index: int) -> T:
    require(0 <= index < len(things), f"{len(things)} maps or sources, but one refers to number {index}")
    return things[index]
