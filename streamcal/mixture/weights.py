"""The weights of the candidates of mode ``auto``: exponential weights by log loss, with a fixed share.

After a block of labels, w_k ∝ w_k·exp(−η·L_k) with L_k the log loss of candidate k on it. Then the part
1 − (1 − α)^m, for m labels, goes back to the first weights (Herbster and Warmuth, "Tracking the best expert",
1998). Log loss tells candidates apart where positives are rare, which Brier loss hardly does. It is
1-mixable, so η = 1 costs least where losses are independent. Under drift they come in runs, and the noise of
labels makes fast weights chase them: η is `RATE` over the mixture's own loss a label, at most 1. The share is
in proportion to that loss: where labels are nearly certain, most teach nothing, and a constant share would
wipe out the effect of the others.

Of labels in bulk the last are not the next: what is served after them follows from all of them. So the share
goes back for as many labels as predictions were made.

All weights are float64[K] over the candidates (`candidates`), not negative, with sum 1. A candidate that does
not take part has weight 0. One that sleeps keeps its weight, and the others move among themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Final, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.base.values import Bytes, Flags, Floats
from streamcal.mixture.candidates import CANDIDATES, Candidate, are
from streamcal.mixture.fits import Source
from streamcal.mixture.forecasts_c import Rates, add_up, move, moved_slopes, trust
from streamcal.sketch.decoding import Count, Part

RATE: Final = 0.012
"""η times the mixture's mean loss a label, in nats, where η is below its maximum of 1."""

EARLY: Final = 1000.0
"""Increase of the rate at the beginning: 1 + `EARLY` / (n + 32) times as large after n labels of the target.

The first labels say how it differs from the source, and few of them must do."""

SHARE: Final = 1e-4
"""α for labels as uncertain as a coin toss: the part of the weights that goes back at a label."""

BLOCK: Final = 64
"""Number of labels that move the weights together."""

SLOPE_RATE: Final = 0.05
"""η of the slopes: weights are multiplied by e^(−η·loss) at every label. Far below 1, as late labels err
together."""

SLOPE_SHARE: Final = 1e-5
"""Part of the weights of the slopes that goes back to the first ones at a label."""

_FIRST_SLOPES: Final = np.array((0.9, 0.05, 0.03, 0.02))
_FASTEST: Final = 2.0  # the largest rate for Brier losses of independent labels, which are 2-mixable
_LEAD_RATE: Final = 0.01  # as `RATE`, for the weights of the two trackers
_TRUST: Final = 0.5  # the first weight of the tracker that scores as of the prediction
_FIRST_LABELS: Final = 100.0  # as uncertain as coin tosses, from which the mean loss starts
_MOST_LEAD: Final = 30.0  # of one tracker over the other, in log odds
_RATES: Final = Rates(RATE, EARLY, SHARE, _LEAD_RATE, _TRUST)
_IDENTITY: Final = 3.0  # its first weight, in parts of another's
_COMPOSITES: Final = 0.25  # of the first weight, with a source: a first guess, not a truth
_CREDIT: Final = 1024.0  # labels that may come at a time, until they are in bulk
Credit = Annotated[float, msgspec.Meta(ge=0.0, le=_CREDIT)]
"""Number of predictions for which no share has gone back yet, at most 1,024."""
_STRETCH: Final = 256  # labels whose losses are added up to say why a candidate leads
_DELAYED: Final = 0.05  # the weight of the exposures: told positives tilt it, final labels do not


class _Roles(NamedTuple):
    """Candidates that can take part, and the first weights with and without composites; arrays of K."""

    composite: Flags
    delayed: Flags
    first: Floats
    first_without_shift: Floats
    asleep: Bytes
    """Candidates that sleep while the source's labels are learned, 1 or 0."""


def _with_composites(weights: Floats, composite: Flags, delayed: Flags) -> Floats:
    """Return weights, float64[..., K], of which the composites have got their first part from the others."""
    remaining: Floats = np.where(delayed, weights, (1.0 - _COMPOSITES) * np.where(composite, 0.0, weights))
    rest = 1.0 - remaining.sum(axis=-1, keepdims=True)
    out: Floats = remaining + rest * (composite / composite.sum())
    return out


@cache
def _roles(candidates: tuple[Candidate, ...]) -> _Roles:
    """Return the roles of candidates."""
    composite, delayed = are("source", candidates), are("early", candidates)
    without = np.where(composite | delayed, 0.0, 1.0)
    without[0] = _IDENTITY
    without *= (1.0 - _DELAYED * delayed.any()) / without.sum()
    without[delayed] = _DELAYED / max(delayed.sum(), 1)
    shifted = _with_composites(without, composite, delayed)
    return _Roles(composite, delayed, shifted, without, (composite | delayed).view(np.uint8))


class Weights(Part, dict=True):
    """The weights of the candidates, and which of them take part.

    They are a mixture of two trackers. One scores a candidate by what it forecast when the prediction was
    made. That is fair, but slow after a jump: the right map is learned one delay late, and proves better by
    labels that come another delay later. The other scores it by what it forecasts when the label
    arrives. That is one delay late, but overrates short memories where the stream changes as fast as labels
    come. The better tracker depends on the stream, so the trackers have weights in turn, by the log losses of
    their forecasts when the prediction was made. On labels that come at once both are the same.

    Its fields are its state; `of` must follow.
    """

    tracked: Floats
    """Weights of the candidates by each tracker, float64[2, K]."""
    loss: Floats
    """Discounted sums of the log loss by each tracker, and of labels, float64[3]."""
    lead: Annotated[float, msgspec.Meta(ge=-_MOST_LEAD, le=_MOST_LEAD)]
    """Lead of the first tracker, in log odds of its weight."""
    sourced: bool = False
    """Whether the composites take part."""
    credit: Credit = _CREDIT

    @classmethod
    def begun(cls, candidates: tuple[Candidate, ...] = CANDIDATES) -> Self:
        """Return the first weights of the rows of the table."""
        first, labels = _roles(candidates).first_without_shift, np.array((_RATES.coin, _RATES.coin, 1.0))
        lead = math.log(_TRUST / (1.0 - _TRUST))
        return cls(np.stack((first, first)), _FIRST_LABELS * labels, lead).of(candidates)

    def of(self, candidates: tuple[Candidate, ...]) -> Self:
        """Return these as the weights of the rows of the table; ValueError if they cannot be."""
        self._roles = _roles(candidates)
        self._set(self.tracked.reshape(2, len(candidates)))
        self.loss = self.loss.reshape(3)
        return self

    @property
    def active(self) -> Flags:
        """Mask of the candidates that take part, bool[K]."""
        return self._first > 0.0

    @property
    def _first(self) -> Floats:
        roles = self._roles
        return roles.first if self.sourced else roles.first_without_shift

    def _set(self, tracked: Floats) -> None:
        self.tracked = tracked
        share = trust(self.lead)
        served = np.empty((3, tracked.shape[1]))
        served[0] = share * tracked[0] + (1.0 - share) * tracked[1]
        served[1:] = tracked
        self.served: Floats = served
        """Weights of the candidates, and behind them the weights by each tracker, float64[3, K]."""

    def track(
        self,
        losses: Floats,
        tracked: Floats,
        counted: Floats | None = None,
        *,
        earlier: int | None,
        made: int | None = None,
    ) -> None:
        """Move the weights by log losses.

        Parameters
        ----------
        losses
            Losses of the candidates, float64[2, K, n]: as of the prediction, and on arrival; float64[1, K, n]
            where both are the same.
        tracked
            Losses of the two trackers' own mixtures as of the prediction, float64[2, n].
        counted
            What each label counts for, float64[n], by which the losses are multiplied; None: one.
        earlier
            Number of target labels that came before. None: the labels are the source's, to which the
            composites were fitted: these sleep.
        made
            Number of predictions made since the step before, ≥ 0; None: it is not known, and is enough.
        """
        roles = self._roles
        asleep = roles.asleep if earlier is None else roles.delayed.view(np.uint8)
        self.credit, part = pay(self.credit, made, losses.shape[2])
        rates = _RATES if part == 1.0 else _RATES._replace(share=SHARE * part)
        served, before = self.served.copy(), -1.0 if earlier is None else float(earlier)
        self.lead = move(
            served,
            self.loss,
            self.lead,
            losses,
            tracked,
            np.ones(losses.shape[2]) if counted is None else counted,
            self._first,
            asleep,
            before,
            rates,
        )
        self.served, self.tracked = served, served[1:]

    def set_source(self) -> bool:
        """Make the composites take part; return whether they did not before.

        They get their first part of the weight then, and the others keep their proportions.
        """
        enters, self.sourced = not self.sourced, True
        if enters:
            self._set(_with_composites(self.tracked, self._roles.composite, self._roles.delayed))
        return enters


def pay(credit: float, made: int | None, n: int) -> tuple[float, float]:
    """Return the credit after n labels, and the part of their share that goes back; see `Weights`."""
    before = _CREDIT + n if made is None else credit + made
    return min(max(before - n, 0.0), _CREDIT), min(1.0, before / n)


class Slopes(Part):
    """Weights of the factors of `forecasts_c.SLOPES`, by which log odds are drawn towards those of the prior.

    A map that was fitted to the past is too sharp for the future, the more so the later labels come: scores
    lose their meaning while nobody sees it. How much, the mixture itself cannot tell, as all of its
    candidates are fitted to the same past. So its forecasts with each factor are weighed, as experts, by
    their log losses when the prediction was made. Its fields are its state.
    """

    weights: Floats = msgspec.field(default_factory=lambda: _FIRST_SLOPES)
    """Weights, float64[S] with sum 1, in an array that is never changed in place."""

    def track(self, losses: Floats) -> None:
        """Move the weights by the log losses of the forecasts with each factor, float64[S, n]."""
        self.weights = moved_slopes(self.weights, losses, _FIRST_SLOPES, SLOPE_RATE, SLOPE_SHARE)


class RecentLosses(Part):
    """Sums of log losses, in nats, over the last two stretches of labels: its own state.

    A stretch ends at the first call of `add` after 256 labels. Why another candidate leads, they say.
    """

    sums: Floats
    """Sums of each candidate in the previous stretch, then in the current, float64[2 K]."""
    labels: tuple[Count, Count] = (0, 0)
    """Labels of both."""

    def add(self, losses: Floats) -> None:
        """Add the losses of the candidates on n labels, the first of float64[k, K, n]."""
        candidates, (before, now) = losses.shape[1], self.labels
        if now >= _STRETCH:
            self.sums = np.concatenate((self.sums[candidates:], np.zeros(candidates)))
            before, now = now, 0
        add_up(losses, self.sums[candidates:])
        self.labels = before, now + losses.shape[2]

    def compare(self, before: int, leader: int, names: Sequence[str]) -> str | None:
        """Return in words how the losses of two candidates differ, by index; None without losses."""
        labels = sum(self.labels)
        if not labels:
            return None
        lost = self.sums.reshape(2, -1).sum(axis=0)
        change = float(lost[before] - lost[leader]) / labels
        return (
            f"{names[leader]} has lost {abs(change):.3g} nats {'less' if change >= 0.0 else 'more'} per label"
            f" than {names[before]} over the last {labels} labels"
        )


def by_source(source: Source, candidates: Sequence[Candidate] = CANDIDATES, *, shifted: bool) -> Floats:
    """Return the weights before the first target label: exponential weights by losses on the source's labels.

    Platt map and curve are compared by the Brier loss, for which the curve's is known without bias; identity
    and Platt map by the log loss, which tells a score that is nearly certain, and wrong.

    Parameters
    ----------
    candidates
        rows of the table. Those of ``early`` have a small part.
    shifted
        Whether the target's prior is known to differ: then only the composites follow it.
    """
    losses = source.losses[1:]
    platt, curve = np.exp(-_FASTEST * source.labels * (np.array(losses) - min(losses))).tolist()
    ahead = source.labels * (source.log_losses[1] - source.log_losses[0])  # of the identity, in nats
    identity = platt * math.exp(min(ahead, _MOST_LEAD))
    composite, delayed = are("source", candidates), are("early", candidates)
    weights: Floats = curve / composite.sum() * composite
    if not shifted:
        weights[0], weights[[row.name for row in candidates].index("target/hinge/all")] = identity, platt
    total = float(weights.sum())
    weights = weights / total if total > 0.0 else composite / composite.sum()
    if delayed.any():
        weights = (1.0 - _DELAYED) * weights + _DELAYED / delayed.sum() * delayed
    return weights
