"""The map of mode ``auto``: a mixture of candidate maps, whose weights follow their losses.

When labels arrive, every candidate (`candidates`) is scored by the log losses of two forecasts: the one
that it would have given when the prediction was made, and the one that it gave when the label arrived. The
weights move by them (`weights`). The mixture is tabulated as one step map (`table`). Where labels are final
only later, positives that have come also change the weights (`evidence`).

The candidates that are fitted to target labels continue from the source's newest ones, as if these had been
earlier labels of the same stream, and so do the weights, which decide how long these labels count for the
target. Until the target's first label, the maps of the source are served, or the score.

No probability is served that is smaller than the labels so far can tell (`Mixture._limits`).

Memory: that of the windows (`windows`), the snapshots (`snapshots`) and the table (`table`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture import updates_c as updates
from streamcal.mixture.candidates import CANDIDATES, DISCOUNTS, WINDOWS, are, names_of, taking_part
from streamcal.mixture.evidence import NO_EVIDENCE, Evidence, forecasts
from streamcal.mixture.fits import Source, fit_source, platt_line
from streamcal.mixture.forecasts_c import SLOPES, Line, Snapshot, lose
from streamcal.mixture.label_counts import CountsState, TargetCounts, shared
from streamcal.mixture.snapshots import (
    STRIDE,
    STRIDE_AT_ONCE,
    Snapshots,
    SnapshotsState,
    checked_weights,
    next_step,
)
from streamcal.mixture.table import Mixed, Mixing, Table
from streamcal.mixture.updates_c import OnlinePlatt
from streamcal.mixture.weights import RecentLosses, Slopes, Weights, by_source
from streamcal.mixture.windows import Windows, WindowsState
from streamcal.sketch.buffers_c import AT_ONCE
from streamcal.sketch.decoding import MOST, Count, Positive, decoded, encoded, require, restoring, within
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import Mass
from streamcal.values import Counts, Floats, Labels

__all__ = [
    "EARLIER",
    "FIRST",
    "START",
    "STRIDE",
    "STRIDE_AT_ONCE",
    "Mixed",
    "Mixing",
    "Mixture",
    "MixtureState",
]

EARLIER: Final = WINDOWS[-1]
"""Number of the source's newest labels that the candidates can continue from."""

START: Final = 1e-4
"""Smallest probability, of either class, that is served before there is any label."""

_ENDS: Final = math.log(START / (1.0 - START)), math.log((1.0 - START) / START)
FIRST: Final = RecalibrationMap(version=0, kind="linear", knots=_ENDS, log_odds=_ENDS)
"""Map before there is any label: the score, kept within [`START`, 1 − `START`]."""

_CLAIM: Final = 1.0  # label of a class, at least, that is expected of as many labels as are known, …
_KNOWN: Final = WINDOWS[-1]  # … of which only so many count: a stream moves,
_OF_PRIOR: Final = 0.02  # … or this part of the share of that class
_SOURCE_STEP: Final = 256  # of the source's labels: nothing is served between them


class MixtureState(msgspec.Struct, omit_defaults=True):
    """The state of a `Mixture`."""

    counts: CountsState
    windows: WindowsState
    source: Source | None
    snapshots: SnapshotsState
    online: Floats
    table: Table
    next_step: Positive
    at_once: bool
    weights: Floats
    slopes: Floats
    leader: Count
    recent: RecentLosses
    evidence: Evidence | None = None
    """Evidence of early positives; None if exposures are not candidates."""
    own: list[str] = []
    """Names of the user's own candidates."""


class Mixture:
    """Candidates fitted to labels, weighed and mixed.

    It keeps no labels; the caller buffers them. When the number of target labels reaches `next_step`, or
    whenever it wants a new map, the caller hands those that came since to `learn`, and calls `step`. The
    state is a function of these calls and their arguments.

    Parameters
    ----------
    delayed
        whether positives come before a label is final: `candidates.EARLY` are candidates then.
    """

    __slots__ = (
        "_at_once",
        "_candidates",
        "_composite",
        "_counts",
        "_evidence",
        "_leader",
        "_next_step",
        "_online",
        "_own",
        "_recent",
        "_slopes",
        "_snapshots",
        "_source",
        "_table",
        "_weights",
        "_windows",
    )

    def __init__(self, *, delayed: bool = False) -> None:
        self._candidates = taking_part(delayed=delayed)
        self._own = [row.name for row in self._candidates if row.origin == "labels" and row not in CANDIDATES]
        self._composite = are("source", self._candidates)
        self._counts = TargetCounts()
        self._windows = Windows(self._candidates)
        self._online = OnlinePlatt()
        self._source: Source | None = None
        self._evidence = NO_EVIDENCE if delayed else None
        self._weights = Weights(self._candidates)
        self._slopes = Slopes()
        self._leader = 0
        self._recent = RecentLosses(np.zeros(2 * len(self._candidates)))
        self._at_once = False  # whether most of the latest labels were predicted after the step before them
        self._next_step = next_step(0, at_once=False)
        self._snapshots = Snapshots(self._snapshot(0, None))
        self._table = Table()

    @property
    def n(self) -> int:
        """Number of target labels learned."""
        return self._counts.n

    @property
    def delayed(self) -> bool:
        """Whether `candidates.EARLY` are candidates."""
        return self._evidence is not None

    @property
    def observed(self) -> int:
        """Number of target scores observed at the last step."""
        return self._snapshots.latest.observed

    @property
    def next_step(self) -> int:
        """Number of target labels at which a step is due."""
        return self._next_step

    def mixed(self, mixing: Mixing) -> Mixed:
        """Return the map served since the last step, with its weights."""
        mixed = self._mixed((), "", None)
        mixed.mixing = mixing
        return mixed

    def set_source(self, sketch: ScoreSketch) -> None:
        """Set the source; it is served from the next step on.

        Parameters
        ----------
        sketch
            The labelled scores of the source, at least one.
        """
        self._source = fit_source(sketch)
        if self._weights.set_source():
            self._recent = RecentLosses(np.zeros(2 * len(self._candidates)))
        self._table.set_source(sketch)

    def continue_from(self, scores: Floats, labels: Labels, units: Counts | None = None) -> None:
        """Take the source's newest labels for earlier labels of the target, before its first.

        Parameters
        ----------
        scores, labels
            float64[m] and int8[m], the newest last; of more than `EARLIER` the first are left out.
        units
            The labels' weights in units of 1/256, int64[m]; None: all are 1.
        """
        scores, labels = scores[-EARLIER:], labels[-EARLIER:]
        units = None if units is None else units[-EARLIER:]
        shares = shared(units, Mass.of(labels, units), len(labels), len(labels))
        for start in range(0, len(labels), _SOURCE_STEP):
            part = slice(start, start + _SOURCE_STEP)
            told, counted = labels[part], shares[part]
            now, logits = self._snapshot(self.observed, None, earlier=True), np.empty(len(told))
            losses, tracked = np.empty((1, now.weights.shape[1], len(told))), np.empty((2, len(told)))
            sloped = np.empty((len(SLOPES), len(told)))
            lose(
                now, (), None, None, scores[part], told, now.limits, counted, logits, losses, tracked, sloped
            )
            self._weights.track(losses, np.zeros_like(tracked), counted, earlier=None)
            self._online.learn(logits, told, counted)
            self._windows.add(scores[part], labels[part], None if units is None else units[part])
            self._windows.fit()
        self._table.chosen_at = -1

    def learn(
        self,
        scores: Floats,
        labels: Labels,
        prediction_index: Counts,
        units: Counts | None = None,
        observed: int = 0,
    ) -> None:
        """Score the candidates on the target's next labels, move the weights, and learn the labels.

        Parameters
        ----------
        scores, labels
            float64[k] in [0, 1] and int8[k] in {0, 1}.
        prediction_index
            int64[k], the number of target scores observed when each prediction was made; `AT_ONCE`: just
            before its label came; `IN_CALL`: before the label before it came.
        units
            int64[k], the labels' weights in units of 1/256; None: all are 1. The labels of all calls so far
            then count for their effective number together: weights shift what is learned, not how fast.
        observed
            Number of the target's scores so far.
        """
        if not len(labels):
            return
        n, before = self._counts.n, self._snapshots.latest
        shares = self._counts.add(labels, units)
        # While no prediction is made, nothing that is mixed is served. Who observes fewer scores than labels
        # does not tell of predictions.
        tells = n + len(labels) <= observed <= before.observed
        newest, late = int(prediction_index.max()), prediction_index >= before.observed
        if newest == AT_ONCE or (newest >= 0 and (not tells or (prediction_index == AT_ONCE).any())):
            self._snapshots.arrival = before
        fresh = np.count_nonzero(prediction_index < 0) + (observed > before.observed) * np.count_nonzero(late)
        self._at_once = bool(newest < 0 or 2 * fresh > len(prediction_index))
        index = prediction_index if newest >= 0 else None
        logits = np.empty(len(scores))
        losses, tracked, sloped = self._losses(scores, labels, index, shares, logits)
        self._weights.track(losses, tracked, shares, earlier=n)
        self._slopes.track(sloped)
        self._recent.add(losses)
        self._online.learn(logits, labels, shares)
        self._windows.add(scores, labels, units)

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
            Evidence of early positives from a pane that has closed; None: the evidence before.
        """
        if evidence is not None:
            self._evidence = evidence
        if self._windows.n and self._windows.fit():
            self._table.chosen_at = -1
        snapshot = self._snapshot(observed, prior)
        if self.n or (self._evidence is not None and self._evidence is not NO_EVIDENCE):
            self._snapshots.add(snapshot)
        else:  # however often the source was formed before the first label, only the last is needed
            self._snapshots.begin(snapshot)
        self._next_step = next_step(self.n, at_once=self._at_once)
        self._table.follow(self._windows)
        names = names_of(self._candidates, by_scores=prior is not None)
        leader, before = int(snapshot.weights[0].argmax()), self._leader
        self._leader = leader
        reason = self._reason(before, leader) if self.n and leader != before else None
        return self._mixed(names, names[leader], reason)

    def _mixed(self, names: Sequence[str], leader: str, reason: str | None) -> Mixed:
        """Return the map of the table and the latest snapshot."""
        return Mixed(self._table.cells, self._snapshots.latest, names, leader, reason)

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return encoded(
            MixtureState(
                self._counts.to_state(),
                self._windows.to_state(),
                self._source,
                self._snapshots.to_state(),
                self._online.to_state(),
                self._table,
                self._next_step,
                self._at_once,
                self._weights.to_state(),
                self._slopes.weights,
                self._leader,
                self._recent,
                self._evidence,
                self._own,
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
        state = decoded(data, MixtureState, "a mixture")
        mixture = cls(delayed=state.evidence is not None)
        with restoring("not the state of a mixture"):
            mixture._restore(state)
        return mixture

    def _restore(self, state: MixtureState) -> None:
        n, candidates = state.counts.n, len(self._candidates)
        require(state.own == self._own, f"its own candidates are {state.own}, and {self._own} are registered")
        require(state.leader < candidates, f"led by candidate {state.leader}, of {candidates}")
        self._leader, self._next_step, self._at_once = state.leader, state.next_step, state.at_once
        require(state.next_step <= next_step(n, at_once=False), f"the next step at {state.next_step} of {n}")
        if state.evidence is not None:
            state.evidence.check()
        self._evidence, self._source = state.evidence, state.source
        self._table, self._recent = state.table, state.recent
        self._snapshots.restore(state.snapshots, candidates)
        self._counts.restore(state.counts)
        self._windows.restore(state.windows)
        known = self._windows.n
        require(min(n, EARLIER) <= known, f"{n} labels, with windows of {known}")
        self._table.check(known)
        online = within(state.online, -updates.MOST, updates.MOST, "scalings", 5 * len(DISCOUNTS))
        require(self._online.restore(online), "online Platt scalings are damaged")
        weights = within(state.weights, -MOST, MOST, "weights", 2 * candidates + 4)
        right = self._weights.restore(weights, sourced=self._source is not None)
        require(right, "the weights of the candidates are damaged")
        self._slopes.weights = checked_weights(state.slopes, 1, len(SLOPES))[0]
        within(state.recent.sums, 0.0, MOST, "sums of losses", 2 * candidates)

    def _snapshot(self, observed: int, prior: float | None, *, earlier: bool = False) -> Snapshot:
        """Return the snapshot that is served from now on."""
        source, evidence, counts = self._source, self._evidence, self._counts
        begins, waits = not earlier and not self.n, not self.n and evidence is None
        by_scores, weights, odds = source is not None and prior is not None, self._weights.served, (1.0, 1.0)
        if begins and source is not None:
            weights = np.tile(by_source(source, self._candidates, shifted=by_scores), (3, 1))
        elif waits and source is None:  # the score is served as it is
            weights = np.tile(np.eye(weights.shape[1])[0], (3, 1))
        known = 0.5 if source is None else source.prior
        if by_scores or not waits:
            if source is not None:
                odds = counts.odds(known, prior)
            known = counts.prior(known, prior if by_scores else None)
        of_all = np.ones(len(self._candidates))
        of_all[self._composite] = odds
        lines = self._lines(of_source=begins or not self._windows.n)
        knows = source is not None or self._windows.n > 0
        centre = math.log(known / (1.0 - known))
        fixed = of_all, knows, by_scores, self._limits(), self._slopes.weights, centre
        snapshot = Snapshot(lines, observed, weights, *fixed)
        if evidence is None:
            return snapshot
        weights = weights.copy()
        # As little as told positives are trusted, are their maps.
        weights[0, are("early", self._candidates)] *= evidence.trust
        weights[0] /= weights[0].sum()
        weights[0] = evidence.tilt(weights[0], forecasts(snapshot, evidence.scores))
        return Snapshot(lines, observed, weights, *fixed)

    def _lines(self, *, of_source: bool) -> tuple[Line | None, ...]:
        """Return the line of each candidate; ``of_source``: the target's are those of the source."""
        source, evidence = self._source, self._evidence
        fitted, online = self._windows.lines, [*map(platt_line, self._online.parameters)]
        if of_source and source is not None:
            curve, platt = source.curve, platt_line(np.array(source.platt))
            rows = (row for row in self._candidates if row.origin == "labels")
            fitted = tuple(platt if row.log_odds else curve for row in rows)
            online = [platt] * len(online)
        composite = None if source is None else source.curve
        early = () if evidence is None else map(platt_line, evidence.platt.reshape(-1, 2))
        return (None, *fitted, *online, composite, composite, *early)

    def _limits(self) -> tuple[float, float]:
        """Return the least and the greatest probability that labels so far allow to be meant.

        Of a class, that is one label in as many as are known, or, where it is rare, a part of its share. The
        labels are those of the windows, which continue from the source's; before the first, the source's.
        """
        n, positives = float(self._windows.n), float(self._windows.positives)
        if not n and self._source is not None:
            n, positives = float(self._source.labels), self._source.prior * self._source.labels
        if not n:
            return START, 1.0 - START
        claim = _CLAIM / (min(n, _KNOWN) + 1.0)
        shares = ((positives + 0.5) / (n + 1.0), (n - positives + 0.5) / (n + 1.0))
        least, other = (min(claim, _OF_PRIOR * share) for share in shares)
        return least, 1.0 - other

    def _losses(
        self,
        scores: Floats,
        labels: Labels,
        prediction_index: Counts | None,
        shares: Floats,
        logits: Floats,
    ) -> tuple[Floats, Floats, Floats]:
        """Return the log losses of the forecasts for n scores.

        ``prediction_index`` is None if all labels came at once. ``logits`` is an array that gets the
        logits of the scores.

        Returns
        -------
        The losses of every candidate as of the prediction and on arrival, float64[2, K, n], or float64[1, K,
        n] where both are the same; and the losses as of the prediction of each tracker, float64[2, n], and of
        the mixture with each slope, float64[S, n].
        """
        entries, arrival = self._snapshots.entries, self._snapshots.arrival
        is_latest = arrival is entries[-1][1]
        served: tuple[Snapshot, ...] = ()
        which, kinds = None, 1
        if prediction_index is not None:
            index, least = self._snapshots.served_at(prediction_index)
            if least < len(entries) - is_latest:
                served, which = (*(snapshot for _, snapshot in entries), arrival), index
                # What scores tell of now is not what labels of the past confirm.
                kinds = 1 if arrival.by_scores else 2
        cells = self._table.cells if is_latest else None
        losses, tracked = np.empty((kinds, arrival.weights.shape[1], len(scores))), np.empty((2, len(scores)))
        sloped, limits = np.empty((len(SLOPES), len(scores))), self._limits()
        lose(arrival, served, which, cells, scores, labels, limits, shares, logits, losses, tracked, sloped)
        return losses, tracked, sloped

    def _reason(self, before: int, leader: int) -> str:
        """Return the reason why another candidate leads than before."""
        if self.delayed and int(self._weights.served[0].argmax()) != leader:
            return "the positives told so far fit it better than the final labels do"
        labels = self._source.labels if self._source else 0
        names = names_of(self._candidates)
        return self._recent.compare(before, leader, names) or f"a source of {labels} labels has come in"
