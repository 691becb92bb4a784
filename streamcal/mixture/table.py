"""The mixture as one step map: intervals on which it is constant.

The edges of the intervals are fixed ones, an eighth of an octave apart or less from 2⁻¹² to 1 − 2⁻¹², and
quantiles of the scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Final

import msgspec
import numpy as np

from streamcal.base.values import Cells, Floats
from streamcal.maps.platt import wide_logit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.candidates import Candidate, names_of
from streamcal.mixture.forecasts_c import MixedSteps, Snapshot
from streamcal.mixture.windows import Windows, quantile_edges
from streamcal.sketch import grid
from streamcal.sketch.decoding import Part, Probability, require
from streamcal.sketch.score_sketch import ScoreSketch

LAST: Final = grid.LAST_KEY >> grid.MIN_LEVEL
"""Cell of score 1 on the finest grid."""

_FIRST: Final = grid.FIRST_KEY >> grid.MIN_LEVEL  # cell of score 0
_TAIL, _HALF = grid.cells_of(np.array([2.0**-40, 0.5]), grid.MIN_LEVEL).tolist()
_OCTAVE: Final = 1 << (52 - grid.MIN_LEVEL)  # cells of the finest grid, from 2⁻⁴⁰ to ½
_TAIL_OCTAVE: Final = _OCTAVE >> 6  # below 2⁻⁴⁰
_OCTAVES: Final = 39  # from 2⁻⁴⁰ to ½


def _fixed_edges() -> Cells:
    """Return 0, 48 edges an octave next to ½, 8 down to 2⁻¹², one an octave to 2⁻⁴⁰, and few beyond.

    The first and the last cell are intervals of their own: many scores may be 0 or 1.
    """
    tail = [_TAIL - below * _TAIL_OCTAVE for below in (*range(960, 128, -64), *range(128, 0, -8))]
    below = [
        _TAIL + octave * _OCTAVE + part * _OCTAVE // parts
        for octave in range(_OCTAVES)
        for parts in [48 if octave >= _OCTAVES - 3 else 8 if octave >= _OCTAVES - 11 else 1]
        for part in range(parts)
    ]
    lower = np.array(tail + below)
    upper = 2 * _HALF - lower[::-1]
    edges = [0, _FIRST + 1], lower, [_HALF], upper[upper < LAST], [LAST]
    return np.concatenate(edges).astype(np.int32)


_FIXED: Final = _fixed_edges()


def choose_partition(edges: Cells) -> Cells:
    """Return the left ends of the intervals, int32[p] in cells of the finest grid, ascending from 0.

    Parameters
    ----------
    edges
        Edges to cut the fixed intervals by, in cells of the finest grid.
    """
    starts = np.sort(np.concatenate((_FIXED, edges)))
    # Close to 1 there are more cells than float64 scores.
    left = grid.left_edges(starts, grid.MIN_LEVEL)
    return starts[np.concatenate(([True], left[1:] > left[:-1]))]


class Mixing(msgspec.Struct, frozen=True):
    """Weights of the candidates in the map of mode ``auto``."""

    leader: str
    """Candidate with the largest weight."""
    weights: dict[str, Probability]
    """Positive weights by candidate; they sum to 1."""
    reason: str | None = None
    """Reason why the leader differs from that of the version before; None if it does not."""


class Mixed:
    """A new map, and its weights; both are computed when they are first asked for.

    Parameters
    ----------
    cells
        intervals of the map, see `Table.cells`.
    snapshot
        snapshot that is mixed.
    candidates, leader
        the candidates, and the index of the one with the largest weight.
    reason
        As in `Mixing`.
    """

    def __init__(
        self,
        cells: tuple[Floats, Floats, Floats],
        snapshot: Snapshot,
        candidates: Sequence[Candidate],
        leader: int,
        reason: str | None,
    ) -> None:
        self._cells, self._snapshot, self._candidates = cells, snapshot, candidates
        self._leader, self._reason = leader, reason

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mixed) and (self.map, self.mixing) == (other.map, other.mixing)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def map(self) -> RecalibrationMap:
        """Map to serve from now on: a step map of version 0, without shift correction."""
        # All that the constructor checks holds already.
        edges, values = (0.0, *self._cells[0].tolist(), 1.0), tuple(self.steps().values().tolist())
        return RecalibrationMap.model_construct(version=0, edges=edges, values=values, weights=(1.0, 1.0))

    def steps(self) -> MixedSteps:
        """Return the same map, only to be evaluated at single scores."""
        return MixedSteps(self._cells, self._snapshot)

    @cached_property
    def mixing(self) -> Mixing:
        """Weights of the candidates."""
        names = names_of(self._candidates, by_scores=self._snapshot.by_scores)
        named: dict[str, float] = {}
        for name, weight in zip(names, self._snapshot.weights[0].tolist(), strict=True):
            if weight > 0.0:
                named[name] = named.get(name, 0.0) + weight
        return Mixing(names[self._leader], named, self._reason)


_KEPT_FOR: Final = 2048  # labels, after which the partition follows the scores
_NO_EDGES: Final = np.empty(0, np.int32)


class Table(Part, dict=True):
    """The intervals of the served map, with the schedule of their partition: its own state.

    The partition is chosen anew with every new source, with every new map of all labels, and after 2,048
    labels.
    """

    partition: Cells = msgspec.field(default_factory=lambda: choose_partition(_NO_EDGES))
    """Left ends of the intervals, int32[p] in cells of the finest grid, strictly ascending from 0."""
    source_edges: Cells = msgspec.field(default_factory=_NO_EDGES.copy)
    chosen_at: Annotated[int, msgspec.Meta(ge=-1)] = 0
    """Label count at which the partition was chosen, −1 if it is out of date."""

    def __post_init__(self) -> None:
        require(len(self.partition) > 0, "a table without intervals")

    @cached_property
    def cells(self) -> tuple[Floats, Floats, Floats]:
        """Left ends but the first as scores, and the scores and wide logits in the middle, float64[p]."""
        scores = grid.middles(
            self.partition, grid.MIN_LEVEL, np.append(self.partition[1:], np.int32(LAST + 1))
        )
        return grid.left_edges(self.partition, grid.MIN_LEVEL)[1:], scores, wide_logit(scores)

    def set_source(self, sketch: ScoreSketch) -> None:
        """Make the partition follow the scores of a source from the next `follow` on."""
        self.source_edges = quantile_edges(sketch.cells, sketch.level, sketch.totals)
        self.chosen_at = -1

    def follow(self, windows: Windows) -> None:
        """Choose the partition anew, if it is due, by the labels of these windows."""
        if self.chosen_at < 0 or windows.n - self.chosen_at >= _KEPT_FOR:
            self.chosen_at = windows.n
            self.partition = choose_partition(windows.recent_edges() if windows.n else self.source_edges)
            vars(self).pop("cells", None)
