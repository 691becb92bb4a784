"""What positives that are told before a label is final do to the mixture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcal import JoinConfig, LabelEvent, PredictionEvent, Recalibrated, Recalibrator
from streamcal.base.values import Floats
from streamcal.events import Event
from streamcal.mixture.evidence import NO_EVIDENCE, Evidence


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


LAWS: dict[str, Callable[[np.random.Generator, Floats], Floats]] = {
    "all at once": lambda rng, times: np.full(len(times), 0.5),
    "in bulk": lambda rng, times: np.ceil(times / 0.25) * 0.25 - times,
    "exponential": lambda rng, times: rng.exponential(0.1, len(times)),
    "soon or late": lambda rng, times: np.where(rng.random(len(times)) < 0.5, 0.01, 0.7 + 0.2 * rng.random()),
}


@pytest.mark.parametrize("law", LAWS)
def test_a_right_score_is_kept_until_labels_are_final(law: str) -> None:
    """Forecasts stay within a tenth of a right score, whatever the law of the delays.

    Over 4,000 predictions, in 10 parts of two limits, the rate of a part is known to a standard error of .02.
    """
    rng, count, limit = np.random.default_rng(3), 4000, 3600.0
    times, scores = np.sort(rng.random(count)) * 2.0, 0.1 + 0.5 * rng.random(count)
    labels, delays = rng.random(count) < scores, LAWS[law](rng, times)
    engine = Recalibrator(join=JoinConfig(missing_labels="negative", label_delay_limit=limit))
    events: list[tuple[float, Event]] = []
    for index, (time, score) in enumerate(zip(times.tolist(), scores.tolist(), strict=True)):
        events.append((time, PredictionEvent(str(index), score, 1.8e9 + time * limit)))
        if labels[index] and delays[index] <= 1.0:
            known = time + float(delays[index])
            events.append((known, LabelEvent(str(index), 1, 1.8e9 + known * limit)))
    served = np.full(count, np.nan)
    for _, event in sorted(events, key=lambda pair: pair[0]):
        for emission in engine.step(event):
            if isinstance(emission, Recalibrated) and isinstance(event, PredictionEvent):
                served[int(event.id)] = emission.probability
    parts = np.array_split(np.arange(count), 10)
    np.testing.assert_allclose(
        [served[part].mean() for part in parts], [scores[part].mean() for part in parts], rtol=0.1
    )
