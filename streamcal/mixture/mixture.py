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
from functools import lru_cache
from typing import Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Cells, Counts, Floats, Labels
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture.candidates import (
    DISCOUNTS,
    WINDOWS,
    are,
    names_of,
    taking_part,
)
from streamcal.mixture.evidence import NO_EVIDENCE, Evidence, forecasts
from streamcal.mixture.fits import Source, fit_source, platt_line
from streamcal.mixture.forecasts_c import SLOPES, Line, Snapshot, look, lose
from streamcal.mixture.label_counts import TargetCounts, shared
from streamcal.mixture.online import OnlinePlatt
from streamcal.mixture.snapshots import (
    Snapshots,
    next_step,
)
from streamcal.mixture.table import Mixed, Table
from streamcal.mixture.weights import RecentLosses, Slopes, Weights, by_source
from streamcal.mixture.windows import Windows
from streamcal.sketch.counts_c import AT_ONCE
from streamcal.sketch.decoding import Count, Number, Part, Positive, require
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import NONE, Weighed

EARLIER: Final = WINDOWS[-1]
"""Number of the source's newest labels that the candidates can continue from."""

START: Final = 1e-4
"""Smallest probability, of either class, that is served before there is any label."""

_ENDS: Final = math.log(START / (1.0 - START)), math.log((1.0 - START) / START)


@lru_cache(16)
def first_map(prior: object, odds: float | None) -> RecalibrationMap:
    """Return the map before there is any label or score: the score, kept within [`START`, 1 − `START`].

    It is corrected by κ = ``odds`` if that is known. If the ``prior`` is a number, it is that everywhere.
    """
    if isinstance(prior, float):
        return RecalibrationMap(version=0, edges=(0.0, 1.0), values=(prior,))
    shifted = tuple(end + math.log(odds or 1.0) for end in _ENDS)
    return RecalibrationMap(version=0, kind="linear", knots=_ENDS, log_odds=shifted)


_CLAIM: Final = 1.0  # label of a class, at least, that is expected of as many labels as are known, …
_KNOWN: Final = WINDOWS[-1]  # … of which only so many count: a stream moves,
_OF_PRIOR: Final = 0.02  # … or this part of the share of that class
_LEAST: Final = 1e-6  # probability that is served before there is any label, by a known shift
_RECALLED: Final = 0.75  # of the weight: what is behind the map is what so much of it remembers
_SOURCE_STEP: Final = 256  # of the source's labels: nothing is served between them


class Mixture(Part, dict=True):
    """Candidates fitted to labels, weighed and mixed; its fields are its state.

    It keeps no labels; the caller buffers them. When the number of target labels reaches `next_step`, or
    whenever it wants a new map, the caller hands those that came since to `learn`, and calls `step`. The
    state is a function of these calls and their arguments.
    """

    windows: Windows
    weights: Weights
    recent: RecentLosses
    snapshots: Snapshots
    evidence: Evidence | None = None
    """Evidence of early positives; None if exposures are not candidates."""
    source: Source | None = None
    counts: TargetCounts = msgspec.field(default_factory=TargetCounts)
    online: OnlinePlatt = msgspec.field(default_factory=OnlinePlatt)
    table: Table = msgspec.field(default_factory=Table)
    slopes: Slopes = msgspec.field(default_factory=Slopes)
    next_step: Positive = next_step(0, at_once=False)
    """Number of target labels at which a step is due."""
    at_once: bool = False
    """Whether most of the latest labels were predicted after the step before them."""
    steps: Number = 0
    """Number of steps that were due by the number of target labels."""
    stepped: bool = False
    """Whether there was any step."""
    leader: Count = 0
    """Index of the candidate with the largest weight."""
    reason: str | None = None
    """Reason why the leader differs from that of the step before; None if it does not."""

    def __post_init__(self) -> None:
        """Fit the parts of a state to the candidates; raise ValueError if they are those of others."""
        candidates = self._candidates = taking_part(delayed=self.delayed)
        self._composite, count = are("source", candidates), len(candidates)
        memories = [row.memory or math.inf for row in candidates]
        self._of_all = np.isinf(memories)
        self._memories = np.array(memories)
        self._memories[are("online", candidates)] = [1.0 / (1.0 - discount) for discount in DISCOUNTS]
        lines = {len(snapshot.lines) for snapshot in self.snapshots.all}
        require(lines == {count}, f"snapshots of {lines} candidates, not of {count}")
        require(len(self.windows.lines) == len(Windows.begun(candidates).lines), "maps of other candidates")
        require(self.leader < count, f"led by candidate {self.leader}, of {count}")
        self.weights.of(candidates)
        self.slopes.weights = self.slopes.weights.reshape(len(SLOPES))
        self.recent.sums = self.recent.sums.reshape(2 * count)

    @classmethod
    def begun(cls, *, delayed: bool = False) -> Self:
        """Return a new mixture.

        Parameters
        ----------
        delayed
            whether positives come before a label is final: `candidates.EARLY` are candidates then.
        """
        candidates, evidence = taking_part(delayed=delayed), NO_EVIDENCE if delayed else None
        weights, windows, k = Weights.begun(candidates), Windows.begun(candidates), len(candidates)
        recent = RecentLosses(np.zeros(2 * k))
        ends, slopes = (START, 1.0 - START), Slopes().weights
        none = Snapshot((None,) * k, 0, np.ones((3, k)) / k, np.ones(k), False, False, ends, slopes, 0.0)
        mixture = cls(windows, weights, recent, Snapshots(none), evidence)
        mixture.snapshots = Snapshots(mixture._snapshot(0, None))
        return mixture

    @property
    def n(self) -> int:
        """Number of target labels learned."""
        return self.counts.n

    @property
    def delayed(self) -> bool:
        """Whether `candidates.EARLY` are candidates."""
        return self.evidence is not None

    @property
    def observed(self) -> int:
        """Number of target scores observed at the last step."""
        return self.snapshots.latest.observed

    @property
    def odds(self) -> float:
        """κ (eq. 13) of the shift from the source's balance to that of all labels."""
        return float(self.snapshots.latest.odds[self._composite & self._of_all][0])

    @property
    def mixed(self) -> Mixed | None:
        """Map served since the last step, with its weights; None before the first."""
        return self._mixed() if self.stepped else None

    def set_source(self, sketch: ScoreSketch) -> None:
        """Set the source; it is served from the next step on.

        Parameters
        ----------
        sketch
            The labelled scores of the source, at least one.
        """
        self.source = fit_source(sketch)
        if self.weights.set_source():
            self.recent = RecentLosses(np.zeros(2 * len(self._candidates)))
        self.table.set_source(sketch)

    def continue_from(self, scores: Floats, labels: Labels, weights: Floats | None = None) -> None:
        """Take the source's newest labels for earlier labels of the target, before its first.

        Parameters
        ----------
        scores, labels
            float64[m] and int8[m], the newest last; of more than `EARLIER` the first are left out.
        weights
            weights of the labels, float64[m]; None: all are 1.
        """
        scores, labels = scores[-EARLIER:], labels[-EARLIER:]
        weights = None if weights is None else weights[-EARLIER:]
        shares = shared(weights, NONE.with_labels(labels, weights), len(labels))
        for start in range(0, len(labels), _SOURCE_STEP):
            part = slice(start, start + _SOURCE_STEP)
            told, counted = labels[part], shares[part]
            now = self._snapshot(self.observed, None, earlier=True)
            logits, losses, tracked, _ = lose(now, [], None, None, scores[part], told, now.limits, counted)
            self.weights.track(losses, np.zeros_like(tracked), counted, earlier=None)
            self.online.learn(logits, told, counted)
            self.windows.add(scores[part], labels[part], None if weights is None else weights[part])
            self.windows.fit(self._candidates)
        self.table.chosen_at = -1

    def learn(
        self,
        scores: Floats,
        labels: Labels,
        prediction_index: Counts,
        weights: Floats | None = None,
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
        weights
            weights of the labels, float64[k]; None: all are 1. The labels of all calls so far then count for
            their effective number together: weights shift what is learned, not how fast.
        observed
            Number of the target's scores so far.
        """
        if not len(labels):
            return
        n, before = self.counts.n, self.snapshots.latest
        shares = self.counts.add(labels, weights)
        # While no prediction is made, nothing that is mixed is served. Who observes fewer scores than labels
        # does not tell of predictions.
        newest, some, fresh = look(prediction_index, before.observed, observed > before.observed)
        made: int | None = max(observed - before.observed, 0) if newest >= 0 else 0
        if newest == AT_ONCE or (newest >= 0 and (some or observed < n + len(labels))):
            made = None  # it is not told
        if made != 0:
            self.snapshots.arrival = before
        self.at_once = newest < 0 or 2 * fresh > len(prediction_index)
        index = prediction_index if newest >= 0 else None
        logits, losses, tracked, sloped = self._losses(scores, labels, index, shares)
        self.weights.track(losses, tracked, shares, earlier=n, made=made)
        self.slopes.track(sloped)
        self.recent.add(losses)
        self.online.learn(logits, labels, shares)
        self.windows.add(scores, labels, weights)

    def step(
        self,
        observed: int,
        prior: float | None = None,
        evidence: Evidence | None = None,
        odds: float | None = None,
    ) -> Mixed:
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
        odds
            κ (eq. 13) from the score, and from the source, to the target, if it is known; None: it is not.
        """
        if evidence is not None:
            self.evidence = evidence
        self.table.follow(self.windows)
        if self.windows.n and self.windows.fit(self._candidates):
            self.table.chosen_at = -1
        if odds is not None and not self.n:
            self.online = self.online.shifted(odds)
        snapshot = self._snapshot(observed, prior, odds)
        if self.n or (self.evidence is not None and len(self.evidence.scores)):
            self.snapshots.add(snapshot)
        else:  # however often the source was formed before the first label, only the last is needed
            self.snapshots.begin(snapshot)
        self.steps += self.n >= self.next_step
        self.next_step = next_step(self.n, at_once=self.at_once)
        before, self.leader, self.stepped = self.leader, int(snapshot.weights[0].argmax()), True
        self.reason = self._reason(before, self.leader) if self.n and self.leader != before else None
        return self._mixed()

    def labels_behind(self) -> tuple[Cells, int, Weighed] | None:
        """Return the labels that the served map follows, by cells of a level; None: those of the source.

        They are as many of the latest as `_RECALLED` of the weight of the target's candidates remembers.
        """
        weights = self.snapshots.latest.weights[0]
        if not self.windows.n or weights[self._composite].sum() > 0.5:
            return None
        own = np.where(self._composite, 0.0, weights)
        order = np.argsort(self._memories, kind="stable")
        last = order[np.searchsorted(np.cumsum(own[order]), _RECALLED * own.sum())]
        return self.windows.latest(self._memories[last])

    def _mixed(self) -> Mixed:
        """Return the map of the table and the latest snapshot."""
        return Mixed(self.table.cells, self.snapshots.latest, self._candidates, self.leader, self.reason)

    def _snapshot(
        self, observed: int, prior: float | None, shift: float | None = None, *, earlier: bool = False
    ) -> Snapshot:
        """Return the snapshot that is served from now on."""
        source, evidence, counts = self.source, self.evidence, self.counts
        begins, waits = not earlier and not self.n, not self.n and evidence is None
        by_scores, weights, odds = source is not None and prior is not None, self.weights.served, (1.0, 1.0)
        if begins and source is not None:
            weights = np.tile(
                by_source(source, self._candidates, shifted=by_scores or shift is not None), (3, 1)
            )
        elif waits and source is None:  # the score is served as it is
            weights = np.tile(np.eye(weights.shape[1])[0], (3, 1))
        known = 0.5 if source is None else source.prior
        if by_scores or not waits:
            if source is not None:
                odds = counts.odds(known, prior)
            known = counts.prior(known, prior if by_scores else None)
        of_all = np.ones(len(self._candidates))
        if odds != (1.0, 1.0):
            of_all[self._composite] = odds
        lines = self._lines(of_source=begins or not self.windows.n)
        if shift is not None:
            of_all[[line is None for line in lines]] = shift  # a candidate without a line is the score
            of_all[self._composite & (begins or self._of_all)] = shift
        knows = source is not None or self.windows.n > 0
        centre = math.log(known / (1.0 - known))
        fixed = of_all, knows, by_scores, self._limits(shift or 1.0), self.slopes.weights, centre
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
        source, evidence = self.source, self.evidence
        fitted, online = self.windows.lines, [*map(platt_line, self.online.parameters)]
        if of_source and source is not None:
            curve, platt = source.curve, platt_line(np.array(source.platt))
            rows = (row for row in self._candidates if row.origin == "labels")
            fitted = tuple(platt if row.log_odds else curve for row in rows)
            online = [platt] * len(online)
        composite = None if source is None else source.curve
        early = () if evidence is None else map(platt_line, evidence.platt.reshape(-1, 2))
        return (None, *fitted, *online, composite, composite, *early)

    def _limits(self, shift: float = 1.0) -> tuple[float, float]:
        """Return the least and the greatest probability that labels so far allow to be meant.

        Of a class, that is one label in as many as are known, or, where it is rare, a part of its share. The
        labels are those of the windows, which continue from the source's; before the first, the source's.
        Without any, they follow a known ``shift``, κ.
        """
        n, positives = float(self.windows.n), float(self.windows.positives)
        if not n and self.source is not None:
            n, positives = float(self.source.labels), self.source.prior * self.source.labels
        if not n:
            return max(_LEAST, min(1.0, shift) * START), 1.0 - max(_LEAST, START / max(1.0, shift))
        claim = _CLAIM / (min(n, _KNOWN) + 1.0)
        least, other = (positives + 0.5) / (n + 1.0), (n - positives + 0.5) / (n + 1.0)
        return min(claim, _OF_PRIOR * least), 1.0 - min(claim, _OF_PRIOR * other)

    def _losses(
        self,
        scores: Floats,
        labels: Labels,
        prediction_index: Counts | None,
        shares: Floats,
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the log losses of the forecasts for n scores, see `forecasts_c.lose`.

        ``prediction_index`` is None if all labels came at once.
        """
        entries, arrival = self.snapshots.entries, self.snapshots.arrival
        is_latest = arrival is entries[-1][1]
        which = None
        if prediction_index is not None:
            which, least = self.snapshots.served_at(prediction_index)
            which = which if least < len(entries) - is_latest else None
        cells = self.table.cells if is_latest else None
        return lose(arrival, entries, which, cells, scores, labels, self._limits(), shares)

    def _reason(self, before: int, leader: int) -> str:
        """Return the reason why another candidate leads than before."""
        if self.delayed and int(self.weights.served[0].argmax()) != leader:
            return "the positives told so far fit it better than the final labels do"
        labels = self.source.labels if self.source else 0
        names = names_of(self._candidates)
        return self.recent.compare(before, leader, names) or f"a source of {labels} labels has come in"
