"""The map of mode ``auto``: a mixture of candidate maps, whose weights follow their losses.

When a label arrives, every candidate (`names.NAMES`) is scored by the Brier loss of the forecast that it
would have given when the prediction was made. The weights move by these losses (`weights`), and the mixture
is tabulated as one step map (`table`).

The work is done in steps, at which the windows of labels advance and are fitted anew. Between two steps the
candidates stay the same. Labels are weighed there too, and where that moves the weights by enough, the same
candidates are mixed anew.

Memory: that of the windows (`windows`), the snapshots (`snapshots`) and the table (`table`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture import state as codec
from streamcal.mixture.fits import Counts, Floats, Source, fit_source
from streamcal.mixture.forecasts import Points, Snapshot
from streamcal.mixture.names import ALL, NAMES, TARGET_ONLY
from streamcal.mixture.recent import RecentLosses
from streamcal.mixture.snapshots import Snapshots
from streamcal.mixture.table import ServedTable
from streamcal.mixture.weights import Weights, pool
from streamcal.mixture.windows import Windows
from streamcal.sketch import grid
from streamcal.sketch.decoding import MOST, Probability
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["FIRST_STEP", "MATERIAL", "STRIDE", "WEIGHED", "Mixed", "Mixing", "Mixture"]

FIRST_STEP: Final = 24
"""The label count of the first step."""

STRIDE: Final = 256
"""The longest step, in labels. Earlier steps are a tenth of the labels so far."""

WEIGHED: Final = 64
"""The number of labels that are weighed at a time between two steps.

No weighing is due closer than this to the next step."""

MATERIAL: Final = 0.25
"""A weighing mixes a new map if the weights are at least this far, in total variation, from the served map's.

So after a weighing, the served map differs from the mixture by at most this part of the differences between
the candidates."""

_K: Final = len(NAMES)


class Mixing(msgspec.Struct, frozen=True):
    """How the map of mode ``auto`` is mixed from its candidates."""

    leader: str
    """The candidate with the largest weight."""
    weights: dict[str, Probability]
    """The positive weights, by candidate; they sum to 1. A window that is not full counts as ``all``."""
    reason: str | None = None
    """Why the leader differs from that of the version before; None if it does not."""


class Mixed(NamedTuple):
    """A new map, and how it is mixed."""

    map: RecalibrationMap
    """The map to serve from now on: a step map of version 0, without shift correction."""
    mixing: Mixing


class Mixture:
    """Candidates on windows of target labels, weighed and mixed.

    It keeps no labels; the caller buffers them. When the number of all labels reaches `next_weighing`, the
    caller hands those that were not weighed yet to `weigh`, and calls `remix`. When it reaches `next_step`,
    or whenever the caller wants a new map, it also hands all labels since the last count to `count`, and
    calls `step` instead. The state is a function of these calls and their arguments.

    Parameters
    ----------
    stride
        The longest step, in labels, at least 1. A shorter one follows fast drift sooner; its cost per label
        grows as its inverse.

    Raises
    ------
    ValueError
        If ``stride`` is less than 1.
    """

    __slots__ = (
        "_leader",
        "_next_step",
        "_recent",
        "_served",
        "_snapshots",
        "_source",
        "_stride",
        "_table",
        "_weighed",
        "_weights",
        "_windows",
    )

    def __init__(self, stride: int = STRIDE) -> None:
        if stride < 1:
            raise ValueError(f"stride must be at least 1, got {stride!r}")
        self._stride = stride
        self._weighed = 0
        self._windows = Windows()
        self._source: Source | None = None
        self._snapshots = Snapshots([(0, Snapshot(0, None, (), None))])
        self._next_step = FIRST_STEP
        self._weights = Weights()
        self._served = self._weights.current  # those of the served map
        self._leader = 0
        self._recent = RecentLosses()
        self._table = ServedTable()
        self._table.fill(self._snapshots.latest, self._windows)

    @property
    def stride(self) -> int:
        """The longest step, in labels."""
        return self._stride

    @property
    def observed(self) -> int:
        """The number of target scores observed at the last step."""
        return self._snapshots.latest.observed

    @property
    def n(self) -> int:
        """The number of labels counted into the windows."""
        return self._windows.n

    @property
    def weighed(self) -> int:
        """The number of labels that were weighed but not counted yet."""
        return self._weighed

    @property
    def next_step(self) -> int:
        """The total number of labels at which a step is due."""
        return self._next_step

    @property
    def next_weighing(self) -> int:
        """The total number of labels at which a weighing is due: that of the next step, or an earlier one."""
        due = self.n + self._weighed + WEIGHED
        return due if due + WEIGHED <= self._next_step else self._next_step

    def set_source(
        self,
        uniform_mass: RecalibrationMap,
        sketch: ScoreSketch,
        *,
        new_generation: bool = False,
        waiting: int = 0,
    ) -> None:
        """Set the source map; it is served from the next step on.

        Before the first target label, the candidates are weighed by their losses on the source's labels.

        Parameters
        ----------
        uniform_mass
            h_P, the uniform-mass map of the sketch.
        sketch
            The labelled scores of the source.
        new_generation
            Whether it is another source than before, for which label shift is allowed again.
        waiting
            The number of target labels that the caller holds and that were not weighed yet.

        Raises
        ------
        ValueError
            If the map has no bins, or the sketch no labels; nothing is changed then.
        """
        self._source = fit_source(uniform_mass, sketch)
        labels = self.n + self._weighed + waiting
        if self._weights.set_source(self._source, labels=labels, new_generation=new_generation):
            self._recent.clear()
        self._table.set_source(sketch)

    def refute_label_shift(self) -> None:
        """Take out the candidates that assume label shift, until there is a new generation of the source."""
        self._weights.refute_label_shift()

    def weigh(self, scores: Floats, labels: npt.NDArray[np.int8], seen: Counts) -> None:
        """Score the candidates on the next labels, and move the weights.

        Parameters
        ----------
        scores, labels
            The labels that were not weighed yet, float64[k] in [0, 1] and int8[k] in {0, 1}.
        seen
            int64[k], the number of target scores observed when each prediction was made; −1 if its label came
            at once.

        Raises
        ------
        ValueError
            If the lengths differ; nothing is changed then.
        """
        if not len(scores) == len(labels) == len(seen):
            raise ValueError(f"{len(scores)} scores, {len(labels)} labels, {len(seen)} counts of seen scores")
        if not len(labels):
            return
        losses = self._forecasts(scores, seen)
        losses -= labels
        np.square(losses, out=losses)
        self._weights.track(losses, WEIGHED)
        self._recent.add(losses)
        self._weighed += len(labels)

    def count(self, scores: Floats, labels: npt.NDArray[np.int8]) -> None:
        """Add all labels since the last count to the windows, float64[k] in [0, 1] and int8[k] in {0, 1}.

        Raises
        ------
        ValueError
            Unless these are as many as were weighed since; nothing is changed then.
        """
        if not len(scores) == len(labels) == self._weighed:
            raise ValueError(
                f"{self._weighed} labels were weighed, got {len(scores)} scores and {len(labels)} labels"
            )
        if len(labels):
            self._windows.add(grid.cells_of(scores, grid.MIN_LEVEL), labels)
            self._weighed = 0

    def step(self, observed: int, fused_prior: float | None = None) -> Mixed:
        """Fit the windows that are due, and mix a new map; all labels must be counted.

        Parameters
        ----------
        observed
            The number of target scores observed so far; not less than at the step before.
        fused_prior
            The target prior from labels and scores together, in (0, 1), if known.

        Raises
        ------
        ValueError
            If labels were not counted, ``observed`` goes down, or the prior is out of range; nothing is
            changed then.
        """
        if observed < self.observed:
            raise ValueError(f"observed was {self.observed} and must not go down, got {observed!r}")
        if fused_prior is not None and not 0.0 < fused_prior < 1.0:
            raise ValueError(f"a prior must be in (0, 1), got {fused_prior!r}")
        self._check_counted()
        n = self.n
        if n and self._windows.fit():
            self._table.expire()
        self._weights.set_fused(fused_prior is not None)
        snapshot = Snapshot(observed, self._source, self._windows.fits, fused_prior)
        # However often the source was formed before the first label, only the last snapshot is needed.
        (self._snapshots.add if n else self._snapshots.begin)(snapshot)
        self._next_step = _next_step(n, self._stride)
        self._table.fill(snapshot, self._windows)
        return self._mix()

    def remix(self) -> Mixed | None:
        """Mix the same candidates anew, if the weights have moved by enough since the served map was mixed.

        Returns
        -------
        Mixed | None
            None if the weights have not moved by enough, or if there is a new source: that needs a step.
        """
        if self._snapshots.latest.source is not self._source:
            return None
        moved = pool(self._weights.current, self.n) - pool(self._served, self.n)
        return self._mix() if 0.5 * float(np.abs(moved).sum()) >= MATERIAL else None

    def merge(self, other: Mixture) -> None:
        """Add what another has learned, as later labels; a step should follow.

        The weights are averaged, each by its number of labels. Source and snapshots stay this one's.

        Raises
        ------
        ValueError
            If they differ in ``stride``, or labels of either were not counted; nothing is changed then.
        """
        if other._stride != self._stride:
            raise ValueError(f"cannot merge mixtures of strides {self._stride} and {other._stride}")
        self._check_counted()
        other._check_counted()
        self._weights.merge(other._weights, self.n / (self.n + other.n or 1))
        self._windows.merge(other._windows)
        self._recent.merge(other._recent)

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        now = Snapshot(0, self._source, self._windows.fits, None)
        snapshots, fits, sources = codec.pack_snapshots([*self._snapshots.held, (0, now)])
        windows, fitted_at = self._windows.to_state()
        chosen_at, source_edges, partition = self._table.to_state()
        losses, recent_labels = self._recent.to_state()
        return codec.encode(
            codec.MixtureState(
                stride=self._stride,
                weighed=self._weighed,
                windows=windows,
                fits=fits,
                sources=sources,
                snapshots=snapshots[:-1],
                now=snapshots[-1],
                fitted_at=fitted_at,
                source_edges=codec.pack_cells(source_edges),
                partition=codec.pack_cells(partition),
                chosen_at=chosen_at,
                next_step=self._next_step,
                shift_allowed=self._weights.shift_allowed,
                fused=self._weights.fused,
                weights=codec.pack_floats(self._weights.current),
                served=codec.pack_floats(self._served),
                leader=self._leader,
                recent=codec.pack_floats(losses),
                recent_labels=recent_labels,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore a mixture from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            If the bytes are not such a state; the message says what is wrong.
        """
        state = codec.decode(data)
        if state.stride < 1 or state.leader >= _K or len(state.fitted_at) != ALL + 1:
            raise DamagedStateError(f"a mixture of stride {state.stride} led by candidate {state.leader}")
        mixture = cls(state.stride)
        *snapshots, (_, now) = codec.unpack_snapshots(state)
        mixture._weighed, mixture._next_step = state.weighed, state.next_step
        mixture._source, mixture._leader = now.source, state.leader
        mixture._windows.restore(state.windows, state.fitted_at, now.fits)
        n = mixture.n
        if state.next_step != _next_step(n, state.stride):
            raise DamagedStateError(f"a mixture of {n} labels with the next step at {state.next_step}")
        if (snapshots[-1][1].fits and not n) or not -1 <= state.chosen_at <= n:
            raise DamagedStateError(f"a mixture of {n} labels with fits or a partition to others")
        mixture._snapshots = Snapshots(snapshots)
        if not mixture._weights.restore(
            codec.unpack_weights(state.weights),
            sourced=now.source is not None,
            shift_allowed=state.shift_allowed,
            fused=state.fused,
        ):
            raise DamagedStateError("candidates of a mixture that do not take part have weight")
        mixture._served = codec.unpack_weights(state.served)
        mixture._recent.restore(codec.unpack_floats(state.recent, 0.0, float(MOST)), state.recent_labels)
        mixture._table.restore(
            state.chosen_at,
            codec.unpack_cells(state.source_edges),
            codec.unpack_partition(state.partition),
            mixture._snapshots.latest,
        )
        return mixture

    def _check_counted(self) -> None:
        if self._weighed:
            raise ValueError(f"{self._weighed} labels were weighed but not counted")

    def _forecasts(self, scores: Floats, seen: Counts) -> Floats:
        """Return what every candidate forecast for each score when its prediction was made."""
        sourced = self._source is not None
        which, table = self._snapshots.served_at(seen), self._table.table
        latest = len(self._snapshots.held) - 1
        if which.min() == latest and len(table.values) == (_K if sourced else TARGET_ONLY):
            return table.at(grid.cells_of(scores, grid.MIN_LEVEL))
        return self._snapshots.forecasts(which, Points.of(scores), sourced=sourced)

    def _mix(self) -> Mixed:
        """Mix the candidates with the current weights: that map is served from now on."""
        self._served = self._weights.current
        weights = pool(self._served, self.n)
        leader, before = int(weights.argmax()), self._leader
        self._leader = leader
        named = {name: weight for name, weight in zip(NAMES, weights.tolist(), strict=True) if weight > 0.0}
        reason = None if leader == before else self._reason(before, leader)
        return Mixed(self._table.table.map(self._served), Mixing(NAMES[leader], named, reason))

    def _reason(self, before: int, leader: int) -> str:
        """Return why another candidate leads than before."""
        if not self._weights.active[before]:
            why = "its prior is not known" if self._weights.shift_allowed else "label shift is refuted"
            return f"{NAMES[before]} is out: {why}"
        labels = self._source.fit.labels if self._source else 0
        return self._recent.compare(before, leader) or f"a source of {labels} labels has come in"


def _next_step(labels: int, stride: int) -> int:
    """Return the label count of the step after one at so many labels."""
    return max(FIRST_STEP, labels + min(stride, math.ceil(labels / 10)))
