"""The regret bounds of docs/proofs/mixture.md, on streams that an adversary makes, labels late included.

Each bound is held against the sequence of candidates that is worst for it: a shortest path over blocks and
candidates. Rates and shares are worked out here from their definitions. So a bound fails if the code moves
weights at another rate, or gives another share back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from streamcal.mixture import weights as module
from streamcal.mixture.forecasts_c import Rates
from streamcal.mixture.weights import Slopes, Weights
from tests.mixture.plain import DELAYED, WITH_EARLY, log_losses
from tests.nightly import one_in

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]

LEAST = 1e-3  # ε, how near to 0 or 1 a forecast is taken for
ROUNDING = 1e-6  # nats, in sums of thousands

# What the page says.
RATE, LEAD_RATE, SHARE, BLOCK = module.RATE, module._LEAD_RATE, module.SHARE, module.BLOCK
EARLY = module.EARLY
SLOPE_RATE, SLOPE_SHARE = module.SLOPE_RATE, module.SLOPE_SHARE
KEPT, COIN, FIRST, TRUST = module._RATES.kept, module._RATES.coin, module._FIRST_LABELS, module._TRUST


class Trial(NamedTuple):
    """One block of m labels, and the weights before it."""

    weights: Floats
    """float64[3, K]: served, of the tracker as of the prediction, and of that on arrival."""
    losses: Floats
    """Of the candidates, as of the prediction and on arrival, float64[2, K, m]."""
    tracked: Floats
    """Those of the two trackers' own mixtures as of the prediction, float64[2, m]."""
    earlier: int | None
    """How many labels of the target came before; None: it is of the source."""


class Recorded(Weights):
    """Weights that keep every block in `trials`."""

    def __post_init__(self) -> None:
        self.trials: list[Trial] = []
        self.labels = 0

    def track(
        self,
        losses: Floats,
        tracked: Floats,
        counted: Floats | None = None,
        *,
        earlier: int | None = -1,
        made: int | None = None,
    ) -> None:
        """Move the weights, block by block; by default, earlier labels are those of the blocks so far."""
        assert counted is None or (counted == 1.0).all()
        assert made is None
        if earlier == -1:
            earlier = self.labels
        self.labels += losses.shape[2]
        for start in range(0, losses.shape[2], BLOCK):
            own, ours = losses[:, :, start : start + BLOCK], tracked[:, start : start + BLOCK]
            both = np.broadcast_to(own, (2, *own.shape[1:]))
            known = None if earlier is None else earlier + start
            self.trials.append(Trial(self.served.copy(), both.copy(), ours.copy(), known))
            super().track(own, ours, counted, earlier=known)


class Terms(NamedTuple):
    """What the bounds of one tracker are made of; B blocks."""

    first: Floats
    """w₀ of its experts, float64[K]."""
    rates: Floats
    """η of each block, float64[B]."""
    shares: Floats
    """α of each block, float64[B]."""
    losses: Floats
    """Of each expert in each block, float64[B, K]."""
    lost: Floats
    """What the tracker lost on its forecasts in each block, float64[B]."""
    extra: Floats
    """What its blocks may cost beyond exponential weights, float64[B]."""


def mixed(weights: Floats, losses: Floats) -> Floats:
    """Return the losses of the mixture of clipped forecasts, float64[m]."""
    return -np.log(weights @ np.exp(-losses))


def taking_part(trial: Trial) -> npt.NDArray[np.bool_]:
    """Return which candidates take part, bool[K]."""
    taking: npt.NDArray[np.bool_] = trial.weights[1] > 0.0
    return taking


def means_of(trials: list[Trial], tracker: int, asleep: int = 0) -> Floats:
    """Return the mean loss a label before each block, float64[B]; the last ``asleep`` candidates sleep."""
    total, labels, out = FIRST * COIN, FIRST, []
    for trial in trials:
        out.append(total / labels)
        size = trial.losses.shape[2]
        weights = trial.weights[1 + tracker, : trial.weights.shape[1] - asleep]
        own = float(weights @ trial.losses[tracker, : len(weights)].sum(axis=1) / weights.sum())
        total, labels = KEPT**size * total + own, KEPT**size * labels + size
    return np.array(out)


def terms_of(trials: list[Trial], tracker: int, asleep: int = 0) -> Terms:
    """Return the terms of a tracker as of its learning (theorems 1 and 2), for its awake candidates."""
    means = means_of(trials, tracker, asleep)
    sizes = np.array([trial.losses.shape[2] for trial in trials])
    sooner = [0.0 if each.earlier is None else EARLY / (each.earlier + BLOCK / 2) for each in trials]
    rates = np.minimum(1.0, RATE * (1.0 + np.array(sooner)) / means)
    shares = 1.0 - (1.0 - SHARE * np.minimum(1.0, means / COIN)) ** sizes
    taking = taking_part(trials[0])
    taking[len(taking) - asleep :] = False
    each = [trial.losses[tracker][taking] for trial in trials]
    weights = [trial.weights[1 + tracker][taking] for trial in trials]
    ranges = np.array([np.square(np.ptp(own, axis=0)).sum() for own in each])
    return Terms(
        weights[0],
        rates,
        shares,
        np.array([own.sum(axis=1) for own in each]),
        np.array([mixed(w / w.sum(), own).sum() for w, own in zip(weights, each, strict=True)]),
        np.maximum(rates * sizes - 1.0, 0.0) * ranges / 8.0,
    )


def lead_of(trials: list[Trial], served: Floats) -> Terms:
    """Return the terms of the weights of the two trackers; ``served`` is what was lost in each block."""
    means = np.minimum(means_of(trials, 0), means_of(trials, 1))
    sizes = np.array([trial.losses.shape[2] for trial in trials])
    rates = np.minimum(1.0, LEAD_RATE / means)
    shares = 1.0 - (1.0 - SHARE * np.minimum(1.0, means / COIN)) ** sizes
    differ = np.array([trial.tracked[0].sum() != trial.tracked[1].sum() for trial in trials])
    ranges = np.array([np.square(np.ptp(trial.tracked, axis=0)).sum() for trial in trials])
    return Terms(
        np.array([TRUST, 1.0 - TRUST]),
        rates,
        np.where(differ, shares, 0.0) + 1e-12,
        np.array([trial.tracked.sum(axis=1) for trial in trials]),
        served,
        np.maximum(rates * sizes - 1.0, 0.0) * ranges / 8.0,
    )


def shortest(losses: Floats, start: Floats, starts: Floats, stays: Floats) -> float:
    """Return the least cost of a sequence of experts, one a block.

    Parameters
    ----------
    losses
        float64[B, K], the cost of an expert in a block.
    start
        float64[K], of beginning with it.
    starts, stays
        float64[B, K], of changing to it before a block, and of staying with it.
    """
    cost = start + losses[0]
    for block in range(1, len(losses)):
        cost = np.minimum(cost + stays[block], cost.min() + starts[block]) + losses[block]
    return float(cost.min())


def excess_weighted(terms: Terms) -> float:
    """Return by how much theorem 1 is violated by the worst sequence: what is lost, less the bound."""
    first, rates, shares, losses, lost, extra = terms
    prior, before = -np.log(first), np.append(1.0, shares[:-1])
    starts = prior - np.log(before)[:, np.newaxis]
    bound = shortest(rates[:, np.newaxis] * losses, prior, starts, np.zeros_like(losses))
    return float(rates @ (lost - extra)) - bound + float(np.log1p(-shares).sum())


def excess_plain(terms: Terms) -> float:
    """Return by how much theorem 2 is violated by the worst sequence: what is lost, less the bound."""
    first, rates, shares, losses, lost, extra = terms
    prior, before = -np.log(first), np.append(1.0, shares[:-1])
    least = prior - np.log(before)[:, np.newaxis]  # −log of the least weight that it can have had
    inverse = 1.0 / rates
    rises = np.maximum(np.diff(inverse, prepend=inverse[0]), 0.0)
    bound = shortest(losses, prior * inverse[0], least * inverse[:, np.newaxis], least * rises[:, np.newaxis])
    return float((lost - extra).sum()) - bound + float(np.log1p(-shares) @ inverse)


# Adversaries: forecasts of K candidates for m scores, and their labels, once they have seen the weights.

Adversary = Callable[[np.random.Generator, int, Floats, int], tuple[Floats, Labels]]


def told(rng: np.random.Generator, right: Floats) -> tuple[Floats, Labels]:
    """Return forecasts that give these probabilities, float64[K, m], to their labels."""
    labels = rng.integers(0, 2, right.shape[1], np.int8)
    forecasts: Floats = np.where(labels == 1, right, 1.0 - right)
    return forecasts, labels


def punishes_the_leader(
    rng: np.random.Generator, block: int, weights: Floats, m: int
) -> tuple[Floats, Labels]:
    right = np.full((len(weights), m), 0.6)
    right[weights.argmax()] = 0.3
    return told(rng, right)


def punishes_the_mixture(
    rng: np.random.Generator, block: int, weights: Floats, m: int
) -> tuple[Floats, Labels]:
    forecasts: Floats = rng.random((len(weights), m))
    if block % 2:
        forecasts = np.round(forecasts)
    return forecasts, (weights @ forecasts < 0.5).astype(np.int8)


def changes_once(rng: np.random.Generator, block: int, weights: Floats, m: int) -> tuple[Floats, Labels]:
    right = np.full((len(weights), m), 0.45)
    right[1 if block < 350 else 3] = 0.8
    return told(rng, right)


def never_changes(rng: np.random.Generator, block: int, weights: Floats, m: int) -> tuple[Floats, Labels]:
    right = np.full((len(weights), m), 0.3)
    right[2] = 0.6
    return told(rng, right)


def changes_the_level(rng: np.random.Generator, block: int, weights: Floats, m: int) -> tuple[Floats, Labels]:
    right = rng.uniform(0.3, 0.7, (len(weights), m))
    if block // 50 % 2:
        right = 1.0 - 0.01 * right
        right[weights.argmax(), 0] = 0.05
    return told(rng, right)


ADVERSARIES = (punishes_the_leader, punishes_the_mixture, changes_once, never_changes, changes_the_level)
STREAMS = ADVERSARIES, (1, BLOCK)


def played(
    adversary: Adversary, m: int, *, sourced: bool = False, delayed: bool = False, blocks: int = 700
) -> list[Trial]:
    """Return the blocks of a stream whose labels come at once, m at a time."""
    rng = np.random.default_rng(23)
    weights = Recorded.begun(*([WITH_EARLY] if delayed else []))
    if sourced:
        weights.set_source()
    for block in range(blocks):
        served = weights.served[1]
        losses = log_losses(*adversary(rng, block, served, m), LEAST)
        weights.track(losses[np.newaxis], np.tile(mixed(served, losses), (2, 1)))
    return weights.trials


@pytest.mark.slow
@pytest.mark.parametrize(("sourced", "adversary", "m"), one_in(3, product((False, True), *STREAMS)))
def test_labels_at_once(adversary: Adversary, m: int, sourced: bool) -> None:
    """Theorems 1 and 2; what is served is what either tracker mixes."""
    trials = played(adversary, m, sourced=sourced)
    for trial in trials:
        np.testing.assert_allclose(trial.weights[1:], trial.weights[[0, 0]], rtol=1e-6, atol=1e-9)
    terms = terms_of(trials, 0)
    assert excess_weighted(terms) <= ROUNDING
    assert excess_plain(terms) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize(("adversary", "m"), one_in(3, product(*STREAMS)))
def test_candidates_that_sleep(adversary: Adversary, m: int) -> None:
    """The mixture of those awake, against those awake."""
    trials, asleep = played(adversary, m, delayed=True), len(DELAYED)
    terms = terms_of(trials, 0, asleep)
    assert 0.0 < trials[0].weights[1, -asleep:].sum() == pytest.approx(1.0 - terms.first.sum())
    assert excess_weighted(terms) <= ROUNDING
    assert excess_plain(terms) <= ROUNDING


# Labels that come late


class Late(NamedTuple):
    """A stream whose labels come late."""

    trials: list[Trial]
    then: list[Floats]
    """The weights that were served at each prediction of a block, float64[m, 3, K] for each."""
    first: list[Floats]
    """The number of the first block that those weights had not learned, int64[m] for each."""


def played_late(delay: int, m: int, width: float, blocks: int = 500) -> Late:
    """Return a stream of labels up to ``delay`` events late, that are learned m at a time.

    Candidates forecast other things on arrival than when the prediction was made. In turn one is right when
    the prediction is made, and another when its label comes; the adversary punishes the leader now and then.
    """
    rng = np.random.default_rng(99)
    n = blocks * m
    arrived = np.arange(n) + rng.integers(0, delay + 1, n)
    order = np.argsort(arrived, kind="stable")
    weights, now, number = Recorded.begun(), 0, np.zeros(n, int)
    served = np.empty((n, *weights.served.shape))
    labels = rng.integers(0, 2, n, np.int8)
    right = 0.5 + width * rng.uniform(-1.0, 0.4, (2, served.shape[2], n))
    late = Late(weights.trials, [], [])
    for learned in range(blocks):
        part = order[learned * m : (learned + 1) * m]
        while now < n and now <= arrived[part[-1]]:  # predictions made before the last label of this block
            served[now], number[now] = weights.served, learned
            block = now // m
            right[0, 1 + block // 90 % 5, now] = 0.5 + width * 0.9
            right[1, 6 + block // 40 % 5, now] = 0.5 + width * 0.9
            if block % 3 == 0:
                right[:, weights.served[0].argmax(), now] = 0.5 - width
            now += 1
        forecasts = np.where(labels[part] == 1, right[:, :, part], 1.0 - right[:, :, part])
        losses = log_losses(forecasts, labels[part], LEAST)
        then = served[part]
        tracked = np.stack(
            [-np.log(np.einsum("nk,kn->n", then[:, 1 + tracker], np.exp(-losses[0]))) for tracker in (0, 1)]
        )
        weights.track(losses, tracked)
        late.then.append(then)
        late.first.append(number[part])
    return late


LATE = one_in(3, product((0, 900), (8, BLOCK), (0.05, 0.45)))
"""Delay, labels at a time, and how far from ½ forecasts are."""


def extra_of_old_weights(losses: list[Floats], terms: Terms, first: list[Floats]) -> Floats:
    """Return what blocks and old weights cost by theorem 3, float64[B].

    Parameters
    ----------
    losses
        Of the experts in each block, float64[K, m] for each.
    first
        The first block that the weights of each label's prediction had not learned, as in `Late`.
    """
    blocks = np.array([np.ptp(own.sum(axis=1)) for own in losses])
    since = np.append(0.0, (terms.rates * blocks / 4.0 + terms.shares).cumsum())
    moved = [np.minimum(since[block] - since[start], 1.0) for block, start in enumerate(first)]
    late = [np.ptp(own, axis=0) @ far for own, far in zip(losses, moved, strict=True)]
    extra: Floats = terms.rates * np.square(blocks) / 8.0 + np.array(late)
    return extra


@pytest.mark.slow
@pytest.mark.parametrize(("delay", "m", "width"), LATE)
def test_labels_that_come_late(delay: int, m: int, width: float) -> None:
    """Theorems 1 and 2 for what each tracker forecasts as it learns, and 3 for the weights of long ago."""
    trials, _, first = played_late(delay, m, width)
    for tracker in (0, 1):
        terms = terms_of(trials, tracker)
        assert excess_weighted(terms) <= ROUNDING
        assert excess_plain(terms) <= ROUNDING
    # What was forecast when the prediction was made, by the weights of then.
    terms = terms_of(trials, 0)
    extra = extra_of_old_weights([trial.losses[0][taking_part(trial)] for trial in trials], terms, first)
    lost = np.array([trial.tracked[0].sum() for trial in trials])
    assert excess_plain(terms._replace(lost=lost, extra=extra)) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize(("delay", "m", "width"), LATE)
def test_two_trackers_weighed_in_turn(delay: int, m: int, width: float) -> None:
    """Theorem 4: the same, of two experts; what is served is weighed by the lead of then."""
    trials, then, first = played_late(delay, m, width)
    of_now, of_then = [], []
    for trial, old in zip(trials, then, strict=True):
        values = np.exp(-trial.losses[0])
        of_then.append(float(-np.log(np.einsum("nk,kn->n", old[:, 0], values)).sum()))
        of_now.append(float(mixed(lead_weights(trial), trial.tracked).sum()))
    terms = lead_of(trials, np.array(of_now))
    assert excess_weighted(terms) <= ROUNDING
    assert excess_plain(terms) <= ROUNDING
    extra = extra_of_old_weights([trial.tracked for trial in trials], terms, first)
    assert excess_plain(terms._replace(lost=np.array(of_then), extra=extra)) <= ROUNDING


def lead_weights(trial: Trial) -> Floats:
    """Return the weights of the two trackers, float64[2], from what is served."""
    served, one, other = trial.weights
    apart = np.abs(one - other).argmax()
    if one[apart] == other[apart]:
        return np.array([0.5, 0.5])
    share = (served[apart] - other[apart]) / (one[apart] - other[apart])
    return np.array([share, 1.0 - share])


# The slopes: experts in a layer of their own, with a fixed rate and share


def sloped(adversary: Adversary, m: int, blocks: int = 700) -> Terms:
    """Return the terms of the weights of the slopes, whose labels come m at a time."""
    rng, slopes = np.random.default_rng(29), Slopes()
    first, rate, share = module._FIRST_SLOPES, SLOPE_RATE, SLOPE_SHARE
    losses, lost, extra = [], [], []
    for block in range(blocks):
        own = log_losses(*adversary(rng, block, slopes.weights, m), LEAST)
        lost.append(float(mixed(slopes.weights, own).sum()))
        losses.append(own.sum(axis=1))
        extra.append(max(rate * m - 1.0, 0.0) * float(np.square(np.ptp(own, axis=0)).sum()) / 8.0)
        slopes.track(own)
    shares = np.full(blocks, 1.0 - (1.0 - share) ** m)
    return Terms(first, np.full(blocks, rate), shares, np.array(losses), np.array(lost), np.array(extra))


@pytest.mark.slow
@pytest.mark.parametrize(("adversary", "m"), one_in(3, product(*STREAMS)))
def test_the_slopes(adversary: Adversary, m: int) -> None:
    """Theorems 1 and 2 with four experts, labels at once."""
    terms = sloped(adversary, m)
    assert excess_weighted(terms) <= ROUNDING
    assert excess_plain(terms) <= ROUNDING


# The bounds notice what is broken

BROKEN = [
    pytest.param("RATE", 10.0, punishes_the_leader, id="ten times the rate"),
    pytest.param("RATE", 0.1, never_changes, id="a tenth of the rate"),
    pytest.param("SHARE", 0.0, changes_once, id="no share"),
    pytest.param("SHARE", 30.0, never_changes, id="thirty times the share"),
]


def breaks(monkeypatch: pytest.MonkeyPatch, constant: str, factor: float) -> None:
    value = getattr(module, constant)
    rates = (factor * rate if rate == value else rate for rate in module._RATES)
    monkeypatch.setattr(module, "_RATES", Rates(*rates))


@pytest.mark.nightly
@pytest.mark.parametrize(("constant", "factor", "adversary"), BROKEN)
def test_the_bounds_fail_where_rate_or_share_is_broken(
    monkeypatch: pytest.MonkeyPatch, constant: str, factor: float, adversary: Adversary
) -> None:
    intact = terms_of(played(adversary, 16, blocks=2500), 0)
    assert excess_weighted(intact) <= ROUNDING
    breaks(monkeypatch, constant, factor)
    terms = terms_of(played(adversary, 16, blocks=2500), 0)
    assert excess_weighted(terms) > 0.1
    assert math.isfinite(excess_plain(terms))


def led(better: Callable[[int, float], int], blocks: int = 2500) -> Terms:
    """Return the terms of the lead where the adversary says which tracker loses less, given the lead."""
    rng, weights, served = np.random.default_rng(3), Recorded.begun(), []
    for block in range(blocks):
        trust = 1.0 / (1.0 + math.exp(-weights.lead))
        tracked = np.full((2, 16), 0.9)
        tracked[better(block, trust)] = 0.5
        served.append(float(mixed(np.array([trust, 1.0 - trust]), tracked).sum()))
        losses = -np.log(rng.uniform(0.45, 0.55, (1, len(weights.active), 16)))
        weights.track(losses, tracked)
    return lead_of(weights.trials, np.array(served))


def behind(_: int, trust: float) -> int:
    return int(trust >= 0.5)


def first_one_then_the_other(block: int, _: float) -> int:
    return int(block >= 1250)


BROKEN_LEAD = [
    pytest.param("_LEAD_RATE", 10.0, behind, id="ten times the rate"),
    pytest.param("SHARE", 0.0, first_one_then_the_other, id="no share"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("constant", "factor", "better"), BROKEN_LEAD)
def test_the_bound_of_the_lead_fails_where_it_is_broken(
    monkeypatch: pytest.MonkeyPatch, constant: str, factor: float, better: Callable[[int, float], int]
) -> None:
    intact = led(better)
    assert excess_weighted(intact) <= ROUNDING
    assert excess_plain(intact) <= ROUNDING
    breaks(monkeypatch, constant, factor)
    assert excess_weighted(led(better)) > 0.1


BROKEN_SLOPES = [
    pytest.param("RATE", 10.0, punishes_the_leader, id="ten times the rate"),
    pytest.param("SHARE", 0.0, changes_once, id="no share"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("constant", "factor", "adversary"), BROKEN_SLOPES)
def test_the_bound_of_the_slopes_fails_where_it_is_broken(
    monkeypatch: pytest.MonkeyPatch, constant: str, factor: float, adversary: Adversary
) -> None:
    assert excess_weighted(sloped(adversary, 16, 2500)) <= ROUNDING
    monkeypatch.setattr(module, f"SLOPE_{constant}", factor * getattr(module, f"SLOPE_{constant}"))
    assert excess_weighted(sloped(adversary, 16, 2500)) > 0.1
