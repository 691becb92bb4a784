"""What positives that are told before a label is final do to the mixture."""

from __future__ import annotations

import numpy as np

from streamcal.mixture.evidence import NO_EVIDENCE, Evidence
from streamcal.mixture.mixture import Mixture
from streamcal.sketch.decoding import decoded, encoded
from tests.mixture.plain import DELAYED, NAMES


def evidence(trust: float = 1.0) -> Evidence:
    """Return evidence that the rate is a fifth of the score."""
    scores = np.array([0.1, 0.4, 0.8])
    exposures = np.array([300.0, 200.0, 150.0])
    platt = np.array([1.0, -1.6, 1.1, -1.5])
    return Evidence(platt, scores, exposures, exposures * scores / 5.0, trust)


def test_weights_are_tilted_by_the_log_loss_of_labels_like_these() -> None:
    """By that of so many positives and negatives, scored one by one."""
    said = evidence(0.5)
    forecasts = np.random.default_rng(1).random((4, 3))
    weights = np.array([0.1, 0.0, 0.6, 0.3])
    positives, negatives = said.positives, said.exposures - said.positives
    losses = -(positives * np.log(forecasts) + negatives * np.log1p(-forecasts)).sum(axis=1)
    log_weights = np.log(np.maximum(weights, 1e-300)) - 0.5 * 0.5 * losses
    expected = np.where(weights > 0.0, np.exp(log_weights - log_weights.max()), 0.0)
    np.testing.assert_allclose(said.tilt(weights, forecasts), expected / expected.sum(), atol=1e-12)
    assert NO_EVIDENCE.tilt(weights, np.empty((4, 0))) is weights
    np.testing.assert_allclose(evidence(0.0).tilt(weights, forecasts), weights)


def test_before_the_first_label_the_told_positives_decide() -> None:
    """The identity leads without evidence, and the exposures' maps with it; the state goes on alike."""
    mixture = Mixture.begun(delayed=True)
    assert mixture.step(0).mixing.leader == "identity"
    mixed = mixture.step(10, None, evidence())
    assert mixed.mixing.leader in DELAYED
    assert mixed.mixing.weights.keys() <= {*NAMES, *DELAYED}
    again = decoded(encoded(mixture), Mixture, "a mixture")
    assert encoded(again) == encoded(mixture)
    scores, labels = np.linspace(0.01, 0.99, 90), (np.arange(90) % 6 == 0).astype(np.int8)
    for each in (mixture, again):
        each.learn(scores, labels, np.arange(90) // 9)
    assert again.step(20) == mixture.step(20)
    assert encoded(again) == encoded(mixture)
