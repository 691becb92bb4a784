"""Mixture: the tracked mixture of mode ``auto``, and still one map.

Candidates (`roster.NAMES`) are scored when a label arrives, by the Brier loss of the forecast they would
have given when its prediction was made. Tracking weights (`tracking`) mix them, and the mixture is tabulated
as one step map. The work is done in steps, in which the windows advance and are fitted anew. Between two of
them the candidates stay as they are; the labels that are put aside are weighed now and then, and where that
moves the weights by enough, the same candidates are mixed anew.

Memory: counts of labels for all windows, up to 4 kB for each of about 40 boundaries; about 40 snapshots of
the candidates, a few kB each (`ring`); one table of all candidates, up to 250 kB, and what late labels have
laid out of the snapshots (`hindsight`), neither of which is in the state.
"""

from __future__ import annotations

import math
from array import array
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture import state as mixture_state
from streamcal.mixture import weights as weighing
from streamcal.mixture.fits import (
    Fit,
    Points,
    Snapshot,
    Source,
    cell_logits,
    fit_source,
    fit_windows,
    weights_by_source,
)
from streamcal.mixture.names import ALL, NAMES, TARGET_ONLY, WINDOWS
from streamcal.mixture.snapshots import Ring
from streamcal.mixture.table import Table, choose_places, quantile_edges
from streamcal.mixture.tracking import track
from streamcal.sketch import grid
from streamcal.sketch.nested_windows import PANES, WindowCounts
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["FIRST_STEP", "MATERIAL", "STRIDE", "WEIGHED", "Mixed", "Mixing", "Mixture"]

FIRST_STEP: Final = 24
"""The label count of the first step."""

STRIDE: Final = 256
"""The longest step, in labels; before, steps grow with the labels, by a tenth of them."""

WEIGHED: Final = 64
"""How many labels are weighed at a time between two steps, the last of them so many before the next step."""

MATERIAL: Final = 0.25
"""The total variation of the weights from which on the map is mixed anew between two steps.

After a weighing the served map is off the mixture by at most so much of what the candidates differ by."""

_MAX_CELLS: Final = 512
_PLACES_FOR: Final = 8 * STRIDE  # labels after which the places follow the scores
_RECENT: Final = 256  # labels: losses are compared over the last one to two times as many

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
_K: Final = len(NAMES)


class Mixing(msgspec.Struct, frozen=True):
    """How the map of mode ``auto`` is mixed from its candidates."""

    leader: str
    """The candidate of the largest weight."""
    weights: dict[str, float]
    """Of every candidate; they sum to 1."""
    reason: str | None = None
    """Why the leader is another than in the version before; None if it is not."""


class Mixed(NamedTuple):
    """What is served from now on, and why."""

    map: RecalibrationMap
    """The map to serve from now on: a step map without shift correction, of version 0."""
    leader: str
    """The candidate of the largest weight."""
    weights: dict[str, float]
    """The weights by name, those above 0; those of windows that are not full yet under ``all``."""
    reason: str | None
    """Why the leader is another than it was; None if it is not."""


class Mixture:
    """Candidates on windows of target labels, tracked and mixed.

    The engine calls `learn` with every target label, `reweigh` when `n` has reached `next_weighing`, and
    `step` when it has reached `next_step`, or whenever it wants a new map. The state is a function of these
    calls and their arguments; labels may come one by one or many at a time.

    Parameters
    ----------
    stride
        the longest step, in labels, at least 1: a shorter one follows fast drift sooner, at a cost for every
        label that goes with its inverse.
    """

    __slots__ = (
        "_counts",
        "_fits",
        "_fitted_at",
        "_fused",
        "_labels",
        "_leader",
        "_logits",
        "_next_step",
        "_placed_at",
        "_recent",
        "_recent_labels",
        "_ring",
        "_scores",
        "_seen",
        "_served",
        "_shift_allowed",
        "_source",
        "_source_places",
        "_stride",
        "_table",
        "_weighed",
        "_weights",
    )

    def __init__(self, stride: int = STRIDE) -> None:
        if stride < 1:
            raise ValueError(f"stride must be at least 1, got {stride!r}")
        self._stride = stride
        self._put_none_aside()
        self._counts = WindowCounts(WINDOWS, _MAX_CELLS)
        self._fits: tuple[Fit, ...] = ()
        self._fitted_at = [0] * (ALL + 1)
        self._source: Source | None = None
        self._source_places: Cells = np.empty(0, np.int32)
        self._ring = Ring([(0, Snapshot(0, None, (), None))])
        self._next_step = FIRST_STEP
        self._shift_allowed = True
        self._fused = False
        self._weights = weighing.first_weights()
        self._served = self._weights  # those that the served map is mixed with
        self._leader = 0
        self._recent: Floats = np.zeros((2, _K))  # losses of the stretch before, and of this one
        self._recent_labels = [0, 0]
        self._placed_at = 0
        self._logits = self._counts.cells, np.empty(0)  # of these cells
        self._table = self._new_table()
        self._table.fill(self._ring.latest)

    @property
    def n(self) -> int:
        """How many labels it has learned."""
        return self._counts.n + len(self._labels)

    @property
    def next_step(self) -> int:
        """The label count at which a step is due."""
        return self._next_step

    @property
    def next_weighing(self) -> int:
        """The label count at which labels are to be weighed: that of the next step, or before it."""
        due = self._counts.n + self._weighed + WEIGHED
        return due if due + WEIGHED <= self._next_step else self._next_step

    @property
    def shift_allowed(self) -> bool:
        """Whether candidates that assume label shift take part.

        Once set to False they are out until `set_source` is called with a new generation; their weight goes
        to the others.
        """
        return self._shift_allowed

    @shift_allowed.setter
    def shift_allowed(self, allowed: bool) -> None:
        self._shift_allowed = allowed
        self._weights = weighing.allowed(self._weights, self._active())

    def learn(self, score: float, label: int, seen: int | None = None) -> None:
        """Take one target label; score and label are checked by the caller.

        Parameters
        ----------
        seen
            how many target scores had been observed when its prediction was made; None: its label came at
            once.
        """
        self._scores.append(score)
        self._labels.append(label)
        self._seen.append(-1 if seen is None else seen)

    def learn_many(self, scores: Floats, labels: npt.NDArray[np.int8], seen: Any = None) -> None:
        """Take n target labels as n calls of `learn` would: float64[n], int8[n], integers [n] or None.

        Raises
        ------
        ValueError
            if the lengths differ; nothing is taken then.
        """
        sight = np.full(len(scores), -1) if seen is None else np.asarray(seen)
        if not len(scores) == len(labels) == len(sight):
            raise ValueError(f"{len(scores)} scores, {len(labels)} labels, {len(sight)} times they were seen")
        self._scores.frombytes(np.ascontiguousarray(scores, np.float64).tobytes())
        self._labels += np.ascontiguousarray(labels, np.int8).tobytes()
        self._seen.frombytes(np.ascontiguousarray(sight, np.int64).tobytes())

    def set_source(
        self, uniform_mass: RecalibrationMap, sketch: ScoreSketch, *, new_generation: bool = False
    ) -> None:
        """Take on a source map that was formed anew; it is served from the next step on.

        Before there are target labels, the candidates are weighed by what they lose on the source's labels.

        Parameters
        ----------
        uniform_mass
            h_P, the uniform-mass map of the sketch.
        sketch
            of the labelled scores of the source, not empty.
        new_generation
            True if it is another source than before, so that label shift is allowed again.

        Raises
        ------
        ValueError
            if the map is the identity, or the sketch empty; nothing is changed then.
        """
        enters = self._source is None or (new_generation and not self._shift_allowed)
        self._source = fit_source(uniform_mass, sketch)
        if enters:
            self._recent, self._recent_labels = np.zeros((2, _K)), [0, 0]
        self._source_places = quantile_edges(sketch.cells, sketch.level, sketch.totals)
        self._shift_allowed |= new_generation
        self._placed_at = -1
        if not self.n:
            self._weights = weights_by_source(self._source, self._active())
        elif enters:
            self._weights = 0.5 * (self._weights + weights_by_source(self._source, self._active()))

    def step(self, observed: int, fused_prior: float | None = None) -> Mixed:
        """Score the labels since the last step, move the weights, advance the windows, and mix a new map.

        Parameters
        ----------
        observed
            how many target scores were observed so far; not less than at the step before.
        fused_prior
            the target prior from labels and scores together, in (0, 1), if known.

        Raises
        ------
        ValueError
            if ``observed`` goes down, or the prior is none; nothing is changed then.
        """
        if observed < self._ring.latest.observed:
            raise ValueError(
                f"observed was {self._ring.latest.observed} and must not go down, got {observed!r}"
            )
        if fused_prior is not None and not 0.0 < fused_prior < 1.0:
            raise ValueError(f"a prior must be in (0, 1), got {fused_prior!r}")
        self._count()
        n = self._counts.n
        if n:
            self._fit()
        self._set_fused(fused_prior is not None)
        snapshot = Snapshot(observed, self._source, self._fits, fused_prior)
        # However often the source was formed before the first label: the last one speaks for all.
        (self._ring.add if n else self._ring.begin)(snapshot)
        self._next_step = max(FIRST_STEP, n + min(self._stride, math.ceil(n / 10)))
        if self._placed_at < 0 or n - self._placed_at >= _PLACES_FOR:
            self._placed_at = n
            self._table = self._new_table()
        self._table.fill(snapshot)
        return self._mixed()

    def reweigh(self) -> Mixed | None:
        """Score the labels that were put aside, and move the weights; the candidates stay as they are.

        Returns
        -------
        Mixed | None
            the same candidates mixed anew, if the weights have moved by enough since the map was mixed that
            is served; None if not, or if a source has come in that it has no part of: a step follows then.
        """
        self._score()
        if self._ring.latest.source is not self._source:
            return None
        moved = weighing.distance(self._weights, self._served, self._counts.n)
        return self._mixed() if moved >= MATERIAL else None

    def merge(self, other: Mixture) -> None:
        """Add what another has learned, as later labels; a step should follow.

        The weights are averaged, each counting by its labels. Source and snapshots stay this one's.

        Raises
        ------
        ValueError
            if they differ in ``stride``.
        """
        if other._stride != self._stride:
            raise ValueError(f"cannot merge mixtures of strides {self._stride} and {other._stride}")
        theirs = Mixture.from_bytes(other.to_bytes())
        self._count()
        theirs._count()
        mine = self._counts.n / (self._counts.n + theirs._counts.n or 1)
        mixed = mine * self._weights + (1.0 - mine) * theirs._weights
        self._weights = weighing.allowed(mixed, self._active())
        self._counts.merge(theirs._counts)
        self._fitted_at = [-1] * (ALL + 1)
        self._recent += theirs._recent
        self._recent_labels = [a + b for a, b in zip(self._recent_labels, theirs._recent_labels, strict=True)]

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        now = Snapshot(0, self._source, self._fits, None)
        snapshots, fits, sources = mixture_state.pack_snapshots([*self._ring.held, (0, now)])
        return mixture_state.encode(
            mixture_state.MixtureState(
                stride=self._stride,
                scores=mixture_state.pack_floats(self._scores),
                labels=bytes(self._labels),
                seen=np.array(self._seen, "<i8").tobytes(),
                weighed=self._weighed,
                windows=self._counts.to_state(),
                fits=fits,
                sources=sources,
                ring=snapshots[:-1],
                now=snapshots[-1],
                fitted_at=self._fitted_at,
                source_places=mixture_state.pack_cells(self._source_places),
                places=mixture_state.pack_cells(self._table.places),
                placed_at=self._placed_at,
                next_step=self._next_step,
                shift_allowed=self._shift_allowed,
                fused=self._fused,
                weights=mixture_state.pack_floats(self._weights),
                served=mixture_state.pack_floats(self._served),
                leader=self._leader,
                recent=mixture_state.pack_floats(self._recent.ravel()),
                recent_labels=self._recent_labels,
            )
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore a mixture from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        state = mixture_state.decode(data)
        if state.stride < 1 or not 0 <= state.leader < _K or len(state.fitted_at) != ALL + 1:
            raise DamagedStateError(f"a mixture of stride {state.stride} led by {state.leader}")
        if len(state.recent_labels) != 2 or min(state.recent_labels) < 0 or state.next_step < FIRST_STEP:
            raise DamagedStateError(f"a mixture of {state.recent_labels} labels, next step {state.next_step}")
        mixture = cls(state.stride)
        scores, labels, seen = mixture_state.unpack_labels(state)
        mixture.learn_many(scores, labels, seen)
        mixture._weighed = state.weighed
        mixture._counts.restore(state.windows)
        *ring, (_, now) = mixture_state.unpack_snapshots(state)
        mixture._ring, mixture._source, mixture._fits = Ring(ring), now.source, now.fits
        mixture._fitted_at, mixture._placed_at = state.fitted_at, state.placed_at
        mixture._source_places = mixture_state.unpack_cells(state.source_places)
        mixture._next_step, mixture._shift_allowed = state.next_step, state.shift_allowed
        mixture._fused, mixture._leader = state.fused, state.leader
        mixture._weights = mixture_state.unpack_weights(state.weights, _K)
        if mixture._weights[~mixture._active()].any():
            raise DamagedStateError("weights of a mixture are not of those that take part")
        mixture._served = mixture_state.unpack_weights(state.served, _K)
        mixture._recent = mixture_state.unpack_floats(state.recent, 0.0, math.inf, 2 * _K).reshape(2, _K)
        mixture._recent_labels = state.recent_labels
        mixture._table = Table(mixture_state.unpack_places(state.places))
        mixture._table.fill(ring[-1][1])
        return mixture

    # Inside

    def _put_none_aside(self) -> None:
        self._scores, self._labels, self._seen = array("d"), bytearray(), array("q")
        self._weighed = 0  # how many of these, the first ones, are scored

    def _score(self) -> None:
        """Score the labels that were put aside and are not scored yet, and move the weights."""
        labels = np.frombuffer(self._labels, np.int8)[self._weighed :]
        if not len(labels):
            return
        losses = self._forecasts()
        losses -= labels
        np.square(losses, out=losses)
        k = len(losses)
        shares = self._active() / self._active().sum()
        # A new array: that of the served map stays.
        weights = track(self._weights[:k], losses, shares[:k], block=WEIGHED)
        self._weights = np.append(weights, self._weights[k:])
        if self._recent_labels[1] >= _RECENT:
            self._recent = np.stack((self._recent[1], np.zeros(_K)))
            self._recent_labels = [self._recent_labels[1], 0]
        self._recent[1, :k] += losses.sum(axis=1)
        self._recent_labels[1] += len(labels)
        self._weighed = len(self._labels)

    def _forecasts(self) -> Floats:
        """Return what every candidate said of each label that is not scored, when it was predicted."""
        scores = np.frombuffer(self._scores)[self._weighed :]
        seen = np.frombuffer(self._seen, np.int64)[self._weighed :]
        sourced = self._source is not None
        places = self._ring.places(seen)
        latest = len(self._ring.held) - 1
        if places.min() == latest and len(self._table.values) == (_K if sourced else TARGET_ONLY):
            return self._table.at(grid.cells_of(scores, grid.MIN_LEVEL))
        return self._ring.forecasts(places, Points.of(scores), sourced=sourced)

    def _count(self) -> None:
        """Count the labels that were put aside, scored before if they are not yet."""
        self._score()
        if self._labels:
            cells = grid.cells_of(np.frombuffer(self._scores), grid.MIN_LEVEL)
            self._counts.add(cells, np.frombuffer(self._labels, np.int8))
            self._put_none_aside()

    def _fit(self) -> None:
        """Fit the windows that are due: after an eighth of their labels; that of all after a sixteenth."""
        n = self._counts.n
        old: tuple[Fit | None, ...] = self._fits or (None,) * (ALL + 1)
        due = []
        for place, length in enumerate(WINDOWS):
            first = self._fitted_at[place] < length
            if n >= length and (first or n - self._fitted_at[place] >= length // PANES):
                due.append((place, self._counts.window(length), old[place]))
        if not self._fits or n - self._fitted_at[ALL] >= n // (2 * PANES):
            due.append((ALL, self._counts.counts, old[ALL]))
            self._placed_at = -1
        cells, level = self._counts.cells, self._counts.level
        if self._logits[0] is not cells:
            self._logits = cells, cell_logits(cells, level)
        new = iter(fit_windows(cells, level, self._logits[1], due) if due else ())
        fits = dict(enumerate(self._fits))
        for place, _, _ in due:
            fits[place] = next(new)
            self._fitted_at[place] = n
        self._fits = tuple(
            fits[place if place == ALL or n >= WINDOWS[place] else ALL] for place in range(ALL + 1)
        )
        self._counts.mark()

    def _new_table(self) -> Table:
        """Choose places anew."""
        edges = [self._source_places]
        if self._source is not None:
            edges.append(self._source.fit.uniform.edges)
        if self._fits:
            recent = self._counts.window(WINDOWS[3]).sum(axis=0)
            edges.append(quantile_edges(self._counts.cells, self._counts.level, recent))
            edges.append(self._fits[ALL].uniform.edges)
        return Table(choose_places(edges))

    def _active(self) -> npt.NDArray[np.bool_]:
        return weighing.taking_part(
            sourced=self._source is not None, shift_allowed=self._shift_allowed, fused=self._fused
        )

    def _set_fused(self, fused: bool) -> None:
        """Let the candidates with the fused prior in, in place of those with one from labels, or out again.

        The user has asked for it; and labels that come late cannot tell in time which prior is the better.
        """
        if fused != self._fused:
            self._weights = (weighing.fused if fused else weighing.unfused)(self._weights)
            self._fused = fused

    def _mixed(self) -> Mixed:
        self._served = self._weights
        weights = weighing.counted(self._weights, self._counts.n)
        leader, before = int(weights.argmax()), self._leader
        self._leader = leader
        return Mixed(
            self._table.map(self._weights),
            NAMES[leader],
            {name: weight for name, weight in zip(NAMES, weights.tolist(), strict=True) if weight > 0.0},
            None if leader == before else self._reason(before, leader),
        )

    def _reason(self, before: int, leader: int) -> str:
        """Return why the leader is another."""
        if not self._active()[before]:
            why = "its prior is not known" if self._shift_allowed else "label shift is refuted"
            return f"{NAMES[before]} is out: {why}"
        labels = sum(self._recent_labels)
        if not labels:
            return f"a source of {self._source.fit.labels if self._source else 0} labels has come in"
        change = float(self._recent[:, before].sum() - self._recent[:, leader].sum()) / labels
        than = "less" if change >= 0.0 else "more"
        return (
            f"{NAMES[leader]} has lost {abs(change):.3g} {than} per label than {NAMES[before]} "
            f"over the last {labels} labels"
        )
