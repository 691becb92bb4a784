"""Synthetic streams with a known truth: what drifts, how, and the probability that was right at every event.

Given the label, the logit of the score is normal with variance 1, as in the paper's D(π). What drifts are the
two means, the prior, and the part of the labels that are turned round. The source comes from the law at the
start, except where the prior jumps: there the source has a prior of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import norm

__all__ = ["TRUTHS", "draw"]

Floats = NDArray[np.float64]

SOURCE: Final = 10_000
LENGTH: Final = 30_000
TIED: Final = 2  # decimals of a score
RARE: Final = 0.01  # base rate
_PERIOD: Final = 3_000  # of the recurring drift: events between two changes


def _constant(prior: float) -> Callable[[Floats], Floats]:
    return lambda moment: np.full_like(moment, prior)


def _jumps(*priors: float) -> Callable[[Floats], Floats]:
    return lambda moment: np.array(priors)[(moment * len(priors)).astype(int)]


class _Law:
    """A law that drifts with the moment, from 0 at the start of the deployment to 1 at its end."""

    def __init__(
        self,
        prior: Callable[[Floats], Floats],
        *,
        source_prior: float | None = None,
        far: Callable[[Floats], Floats] = np.zeros_like,
        near: tuple[float, float] = (-0.5, 0.5),
        flipped: Callable[[Floats], Floats] = np.zeros_like,
        decimals: int | None = None,
    ) -> None:
        self._prior, self._far, self._near, self._flipped = prior, far, near, flipped
        self._source_prior = source_prior
        self._decimals = decimals

    def sample(
        self, moments: Floats, rng: np.random.Generator, *, source: bool = False
    ) -> tuple[Floats, NDArray[np.int8], Floats]:
        """Return a score, a label and the right probability for each moment, float64[n] in [0, 1]."""
        prior = self._prior(moments)
        if source and self._source_prior is not None:
            prior = np.full_like(moments, self._source_prior)
        far, flipped = self._far(moments), self._flipped(moments)
        zeros, ones = (
            (1.0 - far) * start + far * end for start, end in zip((-2.0, 2.0), self._near, strict=True)
        )
        sides = rng.random(len(moments)) < prior
        logits = rng.standard_normal(len(moments)) + np.where(sides, ones, zeros)
        labels = sides ^ (rng.random(len(moments)) < flipped)
        scores = expit(logits)
        if self._decimals is None:
            odds = logit(prior) + 0.5 * ((logits - zeros) ** 2 - (logits - ones) ** 2)
            right = expit(odds)
        else:
            # Of all scores that are rounded to this one.
            half = 0.5 * 10.0**-self._decimals
            scores = np.round(scores, self._decimals)
            low, high = logit(np.clip(scores - half, 0.0, 1.0)), logit(np.clip(scores + half, 0.0, 1.0))
            positive = prior * (norm.cdf(high - ones) - norm.cdf(low - ones))
            negative = (1.0 - prior) * (norm.cdf(high - zeros) - norm.cdf(low - zeros))
            right = positive / (positive + negative)
        right = (1.0 - flipped) * right + flipped * (1.0 - right)
        return scores, labels.astype(np.int8), right


def _half(moment: Floats) -> Floats:
    return (moment >= 0.5).astype(np.float64)


def _in_turn(moment: Floats) -> Floats:
    return (moment * LENGTH // _PERIOD % 2).astype(np.float64)


def _growing(moment: Floats) -> Floats:
    return 0.3 * moment


TRUTHS: Final[dict[str, _Law]] = {
    # The classes close in, halfway: means ±2 become ±½.
    "truth-abrupt": _Law(_constant(0.3), far=_half),
    "truth-abrupt-rare": _Law(_constant(RARE), far=_half),
    # The same, evenly over the whole deployment.
    "truth-gradual": _Law(_constant(0.3), far=np.copy),
    "truth-gradual-tied": _Law(_constant(0.3), far=np.copy, decimals=TIED),
    # The prior alone jumps, three times: label shift.
    "truth-jump": _Law(_jumps(0.1, 0.4, 0.05, 0.4), source_prior=0.5),
    "truth-jump-rare": _Law(_jumps(0.01, 0.03, 0.005, 0.02), source_prior=0.05),
    # More and more labels are wrong: none at the start, 30 % at the end.
    "truth-noise": _Law(_constant(0.3), flipped=_growing),
    "truth-noise-tied": _Law(_constant(0.3), flipped=_growing, decimals=TIED),
    # Two laws take turns: means −2 and 2, and −3 and 1.
    "truth-recurring": _Law(_constant(0.3), far=_in_turn, near=(-3.0, 1.0)),
    "truth-recurring-tied": _Law(_constant(0.3), far=_in_turn, near=(-3.0, 1.0), decimals=TIED),
    # Nothing drifts.
    "truth-stationary": _Law(_constant(0.3)),
    "truth-stationary-rare": _Law(_constant(RARE)),
}
"""The laws by the names of their streams."""


def draw(name: str) -> dict[str, NDArray[Any]]:
    """Return a source and a deployment of a law of `TRUTHS`, and what was right at every event."""
    law = TRUTHS[name]
    rng = np.random.default_rng(sorted(TRUTHS).index(name))
    source_scores, source_labels, _ = law.sample(np.zeros(SOURCE), rng, source=True)
    scores, labels, right = law.sample(np.arange(LENGTH) / LENGTH, rng)
    return {
        "scores": scores,
        "labels": labels,
        "source_scores": source_scores,
        "source_labels": source_labels,
        "truth": right,
    }
