"""Scores within 2⁻⁴⁰ of 0 and 1, as of a naive Bayes or a boosted tree: told apart as far as doubles do."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from streamcal import Recalibrator
from streamcal.maps.platt import wide_logit

Floats = npt.NDArray[np.float64]

N, WARM, STEP, WINDOW = 24_000, 8_000, 1000, 5000
CLIP = 1e-3


def naive_bayes(n: int, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[np.int8]]:
    """Log odds 15 times as far apart as they should be, most of them beyond ±28, where 2⁻⁴⁰ is.

    Most are below: next to 1 there are no doubles beyond 37.
    """
    log_odds = rng.normal(-90.0, 40.0, n)
    return expit(log_odds), (rng.random(n) < expit((log_odds + 90.0) / 15.0)).astype(np.int8)


def losses(forecasts: Floats, labels: npt.NDArray[np.int8]) -> Floats:
    """Log loss and Brier score."""
    p = np.clip(forecasts, CLIP, 1.0 - CLIP)
    return np.array([-np.log(np.where(labels == 1, p, 1.0 - p)).mean(), np.square(p - labels).mean()])


@pytest.mark.parametrize("sourced", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_as_good_as_isotonic_regression_of_the_latest(sourced: bool, single: bool) -> None:
    """It tells all scores apart, as it has no grid."""
    rng = np.random.default_rng(1)
    scores, labels = naive_bayes(N, rng)
    source = naive_bayes(10_000, rng)
    if single:
        scores, source = (
            scores.astype(np.float32).astype(np.float64),
            (source[0].astype(np.float32), source[1]),
        )
    engine = Recalibrator(mode="auto")
    if sourced:
        engine.learn_many(*source, "source")
    x, ours, peer = wide_logit(scores), np.empty(N), np.full(N, 0.5)
    for start in range(0, N, STEP):
        now, window = slice(start, start + STEP), slice(max(0, start - WINDOW), start)
        ours[now] = engine.predict_many(scores[now])
        if start:
            # It takes numbers for equal that are less than 1e-15 apart: logits are not.
            fitted = IsotonicRegression(out_of_bounds="clip").fit(x[window], labels[window])
            peer[now] = fitted.predict(x[now])
        engine.learn_many(scores[now], labels[now])
    assert (losses(ours[WARM:], labels[WARM:]) <= 1.02 * losses(peer[WARM:], labels[WARM:])).all()
