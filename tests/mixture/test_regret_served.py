"""What docs/proofs/mixture.md proves of exact block costs, and of what is served in the end (corollary 6)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from streamcal.mixture import mixture as mixture_module
from streamcal.mixture.mixture import Mixture
from streamcal.mixture.weights import SLOPE_RATE, Slopes
from streamcal.sketch.counts_c import AT_ONCE
from tests.mixture.test_regret import (
    ROUNDING,
    Floats,
    Recorded,
    Terms,
    excess_plain,
    mixed,
    taking_part,
    terms_of,
)


def charged(weights: Floats, rate: float, losses: Floats) -> float:
    """Return M, what exponential weights charge for a block with these losses, float64[K]."""
    least = losses.min()
    return float(least - np.log(weights @ np.exp(-rate * (losses - least))) / rate)


def with_exact_costs(terms: Terms, weights: list[Floats]) -> Terms:
    """Return terms with the block costs themselves, given the weights before each block."""
    blocks = zip(weights, terms.rates, terms.losses, strict=True)
    return terms._replace(extra=terms.lost - [charged(*block) for block in blocks])


class RecordedSlopes(Slopes, dict=True):
    """Slopes that keep the weights before each block, and its losses."""

    def __post_init__(self) -> None:
        self.blocks: list[tuple[Floats, Floats]] = []

    def track(self, losses: Floats) -> None:
        """Keep the block, and move the weights."""
        self.blocks.append((self.weights, losses.copy()))
        super().track(losses)


def test_what_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Corollary 6, labels at once, against every candidate and the worst sequence."""
    monkeypatch.setattr(mixture_module, "Weights", Recorded)
    rng, mixture, served, more = np.random.default_rng(5), Mixture.begun(), [], []
    assert isinstance(mixture.weights, Recorded)
    mixture.slopes = slopes = RecordedSlopes()
    trials, blocks, seen, begins = mixture.weights.trials, slopes.blocks, 0, 0
    while mixture.n < 8000:
        scores = rng.random(mixture.next_step - mixture.n)
        rates = (scores, 1.0 - scores, np.full(len(scores), 0.02), 0.5 * scores)[mixture.n // 2000]
        forecasts = mixture._mixed().map.predict_many(scores)
        against = (forecasts < 0.5).astype(np.int8)
        told = rng.random(len(scores)) < 0.1
        labels = np.where(told, against, rng.random(len(scores)) < rates).astype(np.int8)
        (low, high), starts, seen = mixture._limits(), not mixture.n, seen + len(scores)
        mixture.learn(scores, labels, np.full(len(scores), AT_ONCE), None, seen)
        mixture.step(seen)
        if starts:  # until then the score was served: the sums begin after these
            begins = len(trials)
            continue
        served.append(-np.log(np.where(labels == 1, forecasts, 1.0 - forecasts)).sum())
        clipped = -np.log(np.where(labels == 1, low, 1.0 - high)) - 1e-9
        weights, losses = blocks[-1]
        more.append(np.log1p(trials[-1].weights[1] @ (trials[-1].losses[0] >= clipped)).sum())
        more[-1] += np.log1p(weights @ (losses >= clipped)).sum()
        np.testing.assert_allclose(losses[0], trials[-1].tracked[0], rtol=1e-9)  # x is z₁
    taking, own = taking_part(trials[0]), trials[begins:]
    terms = terms_of(trials, 0)
    first = np.minimum(trials[0].weights[1], trials[begins].weights[1])[taking]  # of a start, and a switch
    terms = Terms(first, *(each[begins:] for each in terms[1:]))
    before = [trial.weights[1][taking] for trial in own]
    terms = with_exact_costs(terms, before)
    last = blocks[len(blocks) - len(own) :]
    factors = sum(
        float(mixed(weights, losses).sum()) - charged(weights, SLOPE_RATE, losses.sum(axis=1))
        for weights, losses in last
    )
    factors += 2.0001e-4 * sum(losses.shape[1] for _, losses in last) - 20.0 * math.log(last[0][0][0])
    extra = float(terms.extra.sum() - np.log1p(-terms.shares) @ (1.0 / terms.rates)) + factors + sum(more)
    # Against one candidate for all labels, with the weights that it had.
    inverse = 1.0 / terms.rates
    rises = np.maximum(np.diff(inverse, prepend=inverse[0]), 0.0)
    prices = -np.log(np.array(before))
    fixed = terms.losses.sum(axis=0) + inverse[0] * prices[0] + rises @ prices
    assert sum(served) <= fixed.min() + extra + ROUNDING
    assert fixed.min() + extra - sum(served) < 20.0  # it is not vacuous
    # Against the worst sequence.
    assert sum(served) + excess_plain(terms) <= terms.lost.sum() + factors + sum(more) + ROUNDING
