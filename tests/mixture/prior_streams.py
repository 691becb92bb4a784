"""Streams of scores, and a source through which they tell of the prior."""

from __future__ import annotations

import numpy as np

from streamcal.mixture.likelihood import likeliest_prior
from streamcal.mixture.score_tracker import ScoreTracker

# A source whose scores take six values, each with a bin of its own: so what a tracker makes of them is exact.
VALUES = np.array([0.03, 0.2, 0.35, 0.6, 0.8, 0.97])
EDGES = (0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0)
MEANS = np.array([0.02, 0.15, 0.4, 0.65, 0.85, 0.99])
PRIOR = float(MEANS.mean())
ONE, ZERO = MEANS / MEANS.sum(), (1.0 - MEANS) / (1.0 - MEANS).sum()


def drawn(n: int, q: float, rng: np.random.Generator) -> np.ndarray:
    """Return scores of a target whose prior is q, float64[n]."""
    labels = rng.random(n) < q
    return VALUES[np.where(labels, rng.choice(6, n, p=ONE), rng.choice(6, n, p=ZERO))]


def with_source() -> ScoreTracker:
    tracker = ScoreTracker()
    tracker.set_source(EDGES, MEANS, PRIOR)
    return tracker


def up_to_date(tracker: ScoreTracker) -> float | None:
    """Return the prior from everything taken in: after a change of the source, it is estimated again."""
    tracker.set_source(EDGES, MEANS, PRIOR / 2.0)
    tracker.set_source(EDGES, MEANS, PRIOR)
    return tracker.prior


def oracle(scores: np.ndarray) -> float | None:
    return likeliest_prior((scores[:, None] == VALUES).sum(axis=0), MEANS, PRIOR)
