"""The state of a `Mixture`, and of the snapshots whose maps it shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
import numpy as np

from streamcal.mixture.evidence import Evidence
from streamcal.mixture.fits import Source
from streamcal.mixture.forecasts_c import SLOPES, Line, Snapshot
from streamcal.mixture.label_counts import CountsState
from streamcal.mixture.table import LAST
from streamcal.mixture.windows import WindowsState
from streamcal.sketch import grid
from streamcal.sketch.decoding import Count, Positive, ascending, require, within
from streamcal.values import Cells, Floats

__all__ = [
    "LineState",
    "MixtureState",
    "SnapshotState",
    "SourceState",
    "checked_edges",
    "checked_partition",
    "checked_slopes",
    "pack",
    "unpack",
]

_MOST_SNAPSHOTS: Final = 64
_MOST_INTERVALS: Final = 4096
_MOST_LOG_ODDS: Final = 700.0
_FARTHEST: Final = 1000.0  # bound on the logits of knots
_MOST_PARAMETER: Final = 1e9  # of a Platt map, and log odds: the priors of its fits keep them far below

Odds = Annotated[float, msgspec.Meta(gt=0.0, le=1e300)]
Loss = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Inside = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
LogLoss = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
Parameter = Annotated[float, msgspec.Meta(ge=-_MOST_PARAMETER, le=_MOST_PARAMETER)]


class SourceState(msgspec.Struct, array_like=True):
    """A `Source`, with an index into the lines."""

    labels: Positive
    prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
    platt: tuple[Parameter, Parameter]
    curve: int
    losses: tuple[Loss, Loss, Loss]
    log_losses: tuple[LogLoss, LogLoss]


class LineState(msgspec.Struct, array_like=True):
    """A `Line`."""

    logits: Floats
    values: Floats
    log_odds: bool


class SnapshotState(msgspec.Struct, array_like=True):
    """A `Snapshot`, with an index into the lines for each candidate; −1 means none."""

    step: Count
    observed: Count
    weights: Floats
    lines: list[int]
    odds: dict[Count, Odds]
    """Odds of the candidates for which they are not 1."""
    knows: bool
    by_scores: bool
    limits: tuple[Inside, Inside]
    slopes: Floats
    centre: Annotated[float, msgspec.Meta(ge=-_MOST_LOG_ODDS, le=_MOST_LOG_ODDS)]


class MixtureState(msgspec.Struct, omit_defaults=True):
    """The state of a `Mixture`."""

    counts: CountsState
    windows: WindowsState
    lines: list[LineState]
    """Lines that the others share, each once."""
    fits: list[int]
    """Indices of the latest lines of the windows; −1 means none."""
    source: SourceState | None
    snapshots: Annotated[list[SnapshotState], msgspec.Meta(min_length=1, max_length=_MOST_SNAPSHOTS)]
    arrival: SnapshotState | None
    """Snapshot served when the latest prediction was made; None: the latest of the snapshots."""
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


def pack(
    snapshots: Sequence[tuple[int, Snapshot]], fits: Sequence[Line | None], source: Source | None
) -> tuple[list[SnapshotState], list[int], SourceState | None, list[LineState]]:
    """Return the states of snapshots with their steps, of fits, of a source, and of the lines of all."""
    indices: dict[int, int] = {id(None): -1}
    lines: list[LineState] = []

    def index(line: Line | None) -> int:
        if line is not None and id(line) not in indices:
            indices[id(line)] = len(lines)
            lines.append(LineState(line.logits, line.values, line.log_odds))
        return indices[id(line)]

    states = [
        SnapshotState(
            step,
            snapshot.observed,
            snapshot.weights,
            [index(line) for line in snapshot.lines],
            {k: odds for k, odds in enumerate(snapshot.odds.tolist()) if odds != 1.0},
            snapshot.knows,
            snapshot.by_scores,
            snapshot.limits,
            snapshot.slopes,
            snapshot.centre,
        )
        for step, snapshot in snapshots
    ]
    of_source = None
    if source is not None:
        of_source = SourceState(*source[:3], index(source.curve), *source[4:])
    return states, [index(line) for line in fits], of_source, lines


Unpacked: TypeAlias = tuple[list[tuple[int, Snapshot]], Snapshot, tuple[Line | None, ...], Source | None]


def unpack(state: MixtureState, candidates: int) -> Unpacked:
    """Return the snapshots with their steps, the snapshot of the arrival, the fits, and the source."""
    lines = [*map(_line, state.lines), None]

    def line(index: int) -> Line | None:
        require(-1 <= index < len(state.lines), f"{len(state.lines)} lines, but one refers to number {index}")
        return lines[index]

    steps, observed = [held.step for held in state.snapshots], [held.observed for held in state.snapshots]
    in_order = steps[0] == 0 and steps == sorted(set(steps)) and observed == sorted(observed)
    require(in_order, f"{len(steps)} snapshots are out of order")

    def snapshot(held: SnapshotState) -> Snapshot:
        right = len(held.lines) == candidates > max(held.odds, default=0)
        require(right, f"a snapshot of {len(held.lines)} lines, for {candidates} candidates")
        require(held.limits[0] <= held.limits[1], f"a snapshot has the limits {held.limits}")
        return Snapshot(
            held.observed,
            _weights(held.weights, candidates),
            tuple(line(index) for index in held.lines),
            np.array([held.odds.get(k, 1.0) for k in range(candidates)]),
            held.knows,
            held.by_scores,
            held.limits,
            checked_slopes(held.slopes),
            held.centre,
        )

    source = None
    if state.source is not None:
        held, curve = state.source, line(state.source.curve)
        if curve is None:
            raise ValueError("a source has no curve")
        source = Source(held.labels, held.prior, held.platt, curve, held.losses, held.log_losses)
    snapshots = [(held.step, snapshot(held)) for held in state.snapshots]
    arrival = snapshots[-1][1] if state.arrival is None else snapshot(state.arrival)
    return snapshots, arrival, tuple(line(index) for index in state.fits), source


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


def _line(line: LineState) -> Line:
    logits, most = within(line.logits, -_FARTHEST, _FARTHEST, "knots"), 100.0 * _MOST_PARAMETER
    require(len(logits) > 0 and (np.diff(logits) >= 0.0).all(), "a map has no knots, or knots that descend")
    least, most = (-most, most) if line.log_odds else (0.0, 1.0)
    return Line(logits, within(line.values, least, most, "values", len(logits)), line.log_odds)
