"""The map of mode ``auto``: a mixture of candidate maps, whose weights follow their losses.

When labels arrive, every candidate (`names.names_of`) is scored by the Brier losses of two forecasts: the one
that it would have given when the prediction was made, and the one that it gives now. The weights move by
them (`weights`). The mixture is corrected where its own forecasts were off (`calibeating`), and tabulated as
one step map (`table`). Where positives are told before a label is final, they tilt the weights (`evidence`).

The candidates that are fitted to target labels continue from the source's newest ones, as if these had been
earlier labels of the same stream: how long they speak for the target is for the weights to say.

Memory: that of the windows (`windows`), the snapshots (`snapshots`) and the table (`table`).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.maps.platt import IDENTITY, logit
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import shift_weights
from streamcal.mixture import newton
from streamcal.mixture import state as codec
from streamcal.mixture.calibeating import Calibeating
from streamcal.mixture.evidence import NO_EVIDENCE, Evidence
from streamcal.mixture.fits import Counts, Floats, Source, fit_source
from streamcal.mixture.forecasts import Points, Snapshot, forecasts
from streamcal.mixture.names import DISCOUNTS, RECENT_PRIOR, WINDOWS, names_of
from streamcal.mixture.newton import OnlinePlatt
from streamcal.mixture.recent import RecentLosses
from streamcal.mixture.snapshots import Snapshots
from streamcal.mixture.table import ServedTable
from streamcal.mixture.weights import Weights, by_source
from streamcal.mixture.windows import Windows
from streamcal.sketch.arrays import Units
from streamcal.sketch.decoding import MOST, Probability
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import NONE, ONE, Mass

__all__ = ["EARLIER", "STRIDE", "Mixed", "Mixing", "Mixture"]

STRIDE: Final = 64
"""The longest step, in labels. The first step takes 8, and the next ones a quarter of the labels so far."""

EARLIER: Final = WINDOWS[-1]
"""How many of the source's newest labels the candidates can continue from."""

_FIRST_STEP: Final = 8
_LASTS: Final = 4  # panes: of so many, one snapshot is kept until the labels of its predictions are final


class Mixing(msgspec.Struct, frozen=True):
    """How the map of mode ``auto`` is mixed from its candidates."""

    leader: str
    """The candidate with the largest weight."""
    weights: dict[str, Probability]
    """The positive weights, by candidate; they sum to 1."""
    reason: str | None = None
    """Why the leader differs from that of the version before; None if it does not."""


class Mixed(NamedTuple):
    """A new map, and how it is mixed."""

    map: RecalibrationMap
    """The map to serve from now on: a step map of version 0, without shift correction."""
    mixing: Mixing


class Mixture:
    """Candidates fitted to labels, weighed and mixed.

    It keeps no labels; the caller buffers them. When the number of target labels reaches `next_step`, or
    whenever it wants a new map, the caller hands those that came since to `learn`, and calls `step`. The
    state is a function of these calls and their arguments.

    Parameters
    ----------
    exposed
        whether positives are told before a label is final: `names.EXPOSURES` are candidates then.
    """

    __slots__ = (
        "_calibeating",
        "_evidence",
        "_leader",
        "_mass",
        "_next_step",
        "_online",
        "_panes",
        "_positives",
        "_recent",
        "_recent_labels",
        "_recent_units",
        "_snapshots",
        "_source",
        "_table",
        "_weights",
        "_windows",
        "n",
    )

    def __init__(self, *, exposed: bool = False) -> None:
        self.n = 0
        """The number of target labels learned."""
        self._positives = 0
        self._mass = NONE  # what all labels count for beyond one each
        self._recent_labels = b""  # the latest target labels, for the more recent prior
        self._recent_units: Units | None = None  # of these; None: all weights are 1
        self._windows = Windows()
        self._online = OnlinePlatt()
        self._calibeating = Calibeating()
        self._source: Source | None = None
        self._evidence = NO_EVIDENCE if exposed else None
        self._panes = 0  # that have brought evidence
        self._weights = Weights(exposed=exposed)
        self._leader = 0
        self._recent = RecentLosses(names_of(exposed=exposed, by_scores=False))
        self._next_step = _next_step(0)
        self._snapshots = Snapshots([(0, self._snapshot(0, None))])
        self._table = ServedTable()
        self._table.fill(self._snapshots.latest, self._windows)

    @property
    def exposed(self) -> bool:
        """Whether `names.EXPOSURES` are candidates."""
        return self._evidence is not None

    @property
    def observed(self) -> int:
        """The number of target scores observed at the last step."""
        return self._snapshots.latest.observed

    @property
    def next_step(self) -> int:
        """The number of target labels at which a step is due."""
        return self._next_step

    @property
    def map(self) -> RecalibrationMap:
        """The map that is served since the last step: a step map of version 0, without shift correction."""
        return self._table.table.map(self._snapshots.latest.weights[0], self._calibeating)

    def set_source(self, sketch: ScoreSketch, *, new_generation: bool = False) -> None:
        """Set the source; it is served from the next step on.

        Parameters
        ----------
        sketch
            The labelled scores of the source.
        new_generation
            Whether it is another source than before, for which label shift is allowed again.

        Raises
        ------
        ValueError
            If the sketch has no labels; nothing is changed then.
        """
        self._source = fit_source(sketch)
        if self._weights.set_source(new_generation=new_generation):
            self._recent.clear()
        self._table.set_source(sketch)

    def refute_label_shift(self) -> None:
        """Take out the candidates that assume label shift, until there is a new generation of the source."""
        self._weights.refute_label_shift()

    def continue_from(self, scores: Floats, labels: npt.NDArray[np.int8], units: Units | None = None) -> None:
        """Take the source's newest labels for earlier labels of the target, before its first.

        Parameters
        ----------
        scores, labels
            float64[m] and int8[m], the newest last; of more than `EARLIER` the first are left out.
        units
            Those of the labels' weights, int64[m]; None: all are 1.

        Raises
        ------
        ValueError
            If there were target labels before; nothing is changed then.
        """
        if self.n:
            raise ValueError(f"a source must come before the target's labels, there are {self.n}")
        scores, labels = scores[-EARLIER:], labels[-EARLIER:]
        units = None if units is None else units[-EARLIER:]
        self._windows.add(scores, labels, units)
        shares = None if units is None else _shared(units, Mass.of(labels, units), len(labels))
        self._online.learn(logit(scores), labels, shares)

    def relabel(self, score: float, label: int) -> None:
        """Put another label in the place of one that was learned, where all labels are counted.

        What was weighed by it stays weighed: losses, online fits and the newest labels.
        """
        if self._windows.relabel(score, label):
            self._positives += 2 * label - 1

    def learn(
        self,
        scores: Floats,
        labels: npt.NDArray[np.int8],
        seen: Counts,
        units: Units | None = None,
    ) -> None:
        """Score the candidates on the target's next labels, move the weights, and learn the labels.

        Parameters
        ----------
        scores, labels
            float64[k] in [0, 1] and int8[k] in {0, 1}.
        seen
            int64[k], the number of target scores observed when each prediction was made; −1 if its label came
            at once.
        units
            int64[k], those of the labels' weights; None: all are 1. The labels of all calls so far then count
            for their effective number together: weights shift what is learned, not how fast.

        Raises
        ------
        ValueError
            If the lengths differ; nothing is changed then.
        """
        if not len(scores) == len(labels) == len(seen):
            raise ValueError(f"{len(scores)} scores, {len(labels)} labels, {len(seen)} counts of seen scores")
        if not len(labels):
            return
        if not self.n:
            self._weights.begin()
        shares = self._shares(labels, units)
        points = Points.of(scores)
        forecasts, mixed = self._forecasts(points, seen)
        self._calibeating.learn(mixed[0], labels, shares)
        hits = labels.astype(np.float64)
        forecasts -= hits
        mixed -= hits
        if shares is not None:  # the losses are squares of these
            forecasts *= np.sqrt(shares)
            mixed *= np.sqrt(shares)
        self._weights.track(forecasts, mixed[1:], shares)
        self._recent.add(forecasts[0])
        self._online.learn(points.logits, labels, shares)
        self._windows.add(scores, labels, units)
        self.n += len(labels)
        self._positives += int(np.count_nonzero(labels))
        self._keep_recent(labels, units)

    def step(self, observed: int, prior: float | None = None, evidence: Evidence | None = None) -> Mixed:
        """Fit the maps that are due, and mix a new map.

        Parameters
        ----------
        observed
            The number of target scores observed so far; not less than at the step before.
        prior
            The target's prior from labels and scores together, in (0, 1), if known. The composites then take
            it in place of those from labels, which come late and cannot tell in time which prior is better.
        evidence
            What told positives say, of a pane that has closed; None: what they said before.

        Raises
        ------
        ValueError
            If ``observed`` goes down, or the prior is out of range; nothing is changed then.
        """
        if observed < self.observed:
            raise ValueError(f"observed was {self.observed} and must not go down, got {observed!r}")
        if prior is not None and not 0.0 < prior < 1.0:
            raise ValueError(f"a prior must be in (0, 1), got {prior!r}")
        if evidence is not None:
            self._evidence = evidence
            self._panes += 1
        if self.n and self._windows.fit():
            self._table.expire()
        snapshot = self._snapshot(observed, prior)
        if self.n or self._panes:
            self._snapshots.add(snapshot, lasting=evidence is not None and self._panes % _LASTS == 1)
        else:  # however often the source was formed before the first label, only the last is needed
            self._snapshots.begin(snapshot)
        self._next_step = _next_step(self.n)
        self._table.fill(snapshot, self._windows)
        names = names_of(exposed=self.exposed, by_scores=prior is not None)
        leader, before = int(snapshot.weights[0].argmax()), self._leader
        self._leader = leader
        reason = self._reason(before, leader) if self.n and leader != before else None
        weights = zip(names, snapshot.weights[0].tolist(), strict=True)
        named = {name: weight for name, weight in weights if weight > 0.0}
        return Mixed(self.map, Mixing(names[leader], named, reason))

    def merge(self, other: Mixture) -> None:
        """Add what another has learned, as later labels; a step should follow.

        The weights are averaged, each by its number of labels. Source and snapshots stay this one's.
        """
        self._weights.merge(other._weights, self.n / (self.n + other.n or 1))
        self._windows.merge(other._windows)
        self._online.merge(other._online, other._windows.n)
        self._calibeating.merge(other._calibeating)
        self._recent.merge(other._recent)
        self.n += other.n
        self._positives += other._positives
        self._mass = self._mass.plus(other._mass)
        self._keep_recent(np.frombuffer(other._recent_labels, np.int8), other._recent_units)

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        fits, source = self._windows, self._source
        now = Snapshot(
            0,
            self._weights.served,
            self._snapshots.latest.platt,
            fits.isotonic,
            fits.uniform,
            source,
            1.0,
            by_scores=False,
        )
        snapshots, maps = codec.pack_snapshots([*self._snapshots.held, (0, now)])
        chosen_at, source_edges, partition = self._table.to_state()
        losses, recent_labels = self._recent.to_state()
        return codec.encode(
            codec.MixtureState(
                labels=self.n,
                positives=self._positives,
                latest=self._recent_labels,
                windows=self._windows.to_state(),
                maps=maps,
                snapshots=snapshots[:-1],
                now=snapshots[-1],
                online=codec.pack_floats(self._online.to_state()),
                calibeating=codec.pack_floats(self._calibeating.to_state()),
                source_edges=codec.pack_cells(source_edges),
                partition=codec.pack_cells(partition),
                chosen_at=chosen_at,
                next_step=self._next_step,
                shift_allowed=self._weights.shift_allowed,
                weights=codec.pack_floats(self._weights.to_state()),
                leader=self._leader,
                recent=codec.pack_floats(losses),
                recent_labels=recent_labels,
                evidence=None if self._evidence is None else codec.pack_floats(self._evidence.to_state()),
                panes=self._panes,
                lasting=list(self._snapshots.lasting),
                mass=self._mass if any(self._mass) else NONE,
                latest_units=b"" if self._recent_units is None else codec.pack_units(self._recent_units),
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
        mixture = cls(exposed=state.evidence is not None)
        candidates = len(mixture._weights.active)
        if state.leader >= candidates:
            raise DamagedStateError(f"a mixture led by candidate {state.leader}, of {candidates}")
        if state.evidence is not None:
            mixture._evidence = Evidence.restored(codec.unpack_floats(state.evidence, -MOST, MOST))
        mixture._panes = state.panes
        *snapshots, (_, now) = codec.unpack_snapshots(state)
        mixture._source, mixture._leader = now.source, state.leader
        n = mixture.n = state.labels
        if state.positives > n or len(state.latest) != min(n, RECENT_PRIOR) or {*state.latest} - {0, 1}:
            raise DamagedStateError(f"{state.positives} positives among {n} labels of a mixture")
        mixture._positives, mixture._recent_labels = state.positives, state.latest
        mixture._mass = Mass(*state.mass)
        if not mixture._mass.labels + ONE * n >= n or mixture._mass.squares + ONE * n < n:
            raise DamagedStateError(f"the weights of {n} labels of a mixture are damaged")
        if state.latest_units:
            mixture._recent_units = codec.unpack_units(state.latest_units, len(state.latest))
        mixture._windows.restore(state.windows, now.isotonic, now.uniform)
        if n > mixture._windows.n or not -1 <= state.chosen_at <= mixture._windows.n:
            raise DamagedStateError(f"a mixture of {n} labels, with windows of {mixture._windows.n}")
        if not 0 < state.next_step <= _next_step(n):
            raise DamagedStateError(f"a mixture of {n} labels with the next step at {state.next_step}")
        mixture._next_step = state.next_step
        online = codec.unpack_floats(state.online, -newton.MOST, newton.MOST, 5 * len(DISCOUNTS))
        if not mixture._online.restore(online):
            raise DamagedStateError("online Platt scalings of a mixture are damaged")
        if not mixture._calibeating.restore(codec.unpack_floats(state.calibeating, -MOST, MOST, 20)):
            raise DamagedStateError("the corrections of a mixture are damaged")
        mixture._snapshots = Snapshots(snapshots, tuple(state.lasting))
        weights = codec.unpack_floats(state.weights, -MOST, MOST, 2 * candidates + 4)
        if not mixture._weights.restore(
            weights, sourced=now.source is not None, shift_allowed=state.shift_allowed
        ):
            raise DamagedStateError("the weights of a mixture are damaged")
        mixture._recent.restore(codec.unpack_floats(state.recent, 0.0, float(MOST)), state.recent_labels)
        mixture._table.restore(
            state.chosen_at,
            codec.unpack_cells(state.source_edges),
            codec.unpack_partition(state.partition),
            mixture._snapshots.latest,
        )
        return mixture

    def _snapshot(self, observed: int, prior: float | None) -> Snapshot:
        """Return what is served from now on."""
        snapshot, evidence = self._untilted(observed, prior), self._evidence
        if evidence is None:
            return snapshot
        snapshot = snapshot._replace(platt=np.concatenate((snapshot.platt, evidence.platt)))
        weights = snapshot.weights.copy()
        weights[0] = evidence.tilt(weights[0], forecasts(snapshot, evidence.points))
        return snapshot._replace(weights=weights)

    def _untilted(self, observed: int, prior: float | None) -> Snapshot:
        """Return what final labels alone let serve, without the maps of `names.EXPOSURES`."""
        source, weights, online, windows = self._source, self._weights.served, self._online, self._windows
        isotonic, uniform = windows.isotonic, windows.uniform
        if source is None:
            platt = _with_composite(online.parameters, IDENTITY)
            return Snapshot(observed, weights, platt, isotonic, uniform, None, 1.0, by_scores=False)
        every = lately = source.prior
        if prior is not None:
            every = lately = prior
        elif self.n:
            recent, latest = self._recent_counts
            positives, labels = self._mass.effective(self._positives, self.n)
            every = (positives + source.prior) / (labels + 1.0)
            lately = (recent + source.prior) / (latest + 1.0)
        slope, intercept = source.platt
        shifted = slope, intercept + math.log(_odds(source.prior, every))
        platt = _with_composite(online.parameters if self.n else source.platt, shifted)
        if not self.n:  # before its first label the target's maps are those of the source
            isotonic, uniform = (source.curve,) * len(WINDOWS), source.uniform
            first = by_source(source, shifted=prior is not None, exposed=self.exposed)
            weights = np.tile(first, (3, 1))
        return Snapshot(
            observed,
            weights,
            platt,
            isotonic,
            uniform,
            source,
            _odds(source.prior, lately),
            by_scores=prior is not None,
        )

    def _shares(self, labels: npt.NDArray[np.int8], units: Units | None) -> Floats | None:
        """Return what the next labels count for, float64[k]; None: one each, as all so far."""
        self._mass = self._mass.plus(Mass.of(labels, units))
        if not any(self._mass):
            return None
        own = np.full(len(labels), ONE) if units is None else units
        return _shared(own, self._mass, self.n + len(labels))

    def _keep_recent(self, labels: npt.NDArray[np.int8], units: Units | None) -> None:
        """Take later labels among the most recent ones."""
        if units is not None or self._recent_units is not None:
            parts = (len(self._recent_labels), self._recent_units), (len(labels), units)
            both = np.concatenate([np.full(n, ONE) if own is None else own for n, own in parts])
            both = both[-RECENT_PRIOR:]
            self._recent_units = None if (both == ONE).all() else both
        self._recent_labels = (self._recent_labels + labels.tobytes())[-RECENT_PRIOR:]

    @property
    def _recent_counts(self) -> tuple[float, float]:
        """(positives, labels) of the most recent labels; with weights, as their effective number."""
        positives, labels = self._recent_labels.count(1), len(self._recent_labels)
        if self._recent_units is None:
            return positives, labels
        recent = np.frombuffer(self._recent_labels, np.int8)
        return Mass.of(recent, self._recent_units).effective(positives, labels)

    def _forecasts(self, points: Points, seen: Counts) -> tuple[Floats, Floats]:
        """Return what was and is forecast for n scores.

        Returns
        -------
        What every candidate forecast when each prediction was made, and what it forecasts now,
        float64[2, K, n], or float64[1, K, n] where both are the same; and what was forecast then by the
        mixture and by each tracker, float64[3, n].
        """
        snapshots = self._snapshots
        which = snapshots.served_at(seen)
        if which.min() == len(snapshots.held) - 1:
            now = self._table.table.at(points.scores)
            return now[np.newaxis], snapshots.latest.weights.dot(now)
        then, mixed = snapshots.forecasts(which, points)
        if snapshots.latest.by_scores:
            return then[np.newaxis], mixed  # what scores tell of now is not what labels of the past confirm
        forecasts = np.empty((2, *then.shape))
        forecasts[0] = then
        forecasts[1] = self._table.table.at(points.scores)
        return forecasts, mixed

    def _reason(self, before: int, leader: int) -> str:
        """Return why another candidate leads than before."""
        if not self._weights.active[before]:
            name = names_of(exposed=self.exposed, by_scores=False)[before]
            return f"{name} is out: label shift is refuted"
        if self.exposed and int(self._weights.served[0].argmax()) != leader:
            return "the positives told so far fit it better than the final labels do"
        labels = self._source.labels if self._source else 0
        return self._recent.compare(before, leader) or f"a source of {labels} labels has come in"


def _shared(units: Units, mass: Mass, labels: int) -> Floats:
    """Return what labels of these weights count for, so that all count for their effective number together.

    ``mass`` and ``labels`` are those of all.
    """
    return units.astype(np.float64) * (mass.effective(0, labels)[1] / (mass.labels + ONE * labels))


def _next_step(labels: int) -> int:
    """Return the label count of the step after one at so many labels."""
    return labels + min(STRIDE, max(_FIRST_STEP, labels // 4))


def _with_composite(online: npt.ArrayLike, composite: tuple[float, float]) -> Floats:
    """Return (a, b) of every online Platt scaling, or the one that all have, and of the composite's."""
    platt = np.empty((len(DISCOUNTS) + 1, 2))
    platt[:-1] = online
    platt[-1] = composite
    return platt


def _odds(source: float, target: float) -> float:
    """Return κ of the shift from one prior to another."""
    zeros, ones = shift_weights(source, target)
    return ones / zeros
