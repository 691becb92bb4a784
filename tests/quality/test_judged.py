"""A judge's cheap labels beside few of people: the truth is held, and labels are saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcal import evaluate
from streamcal.quality import judged as module


def drawn(seed: int, n: int, wrong: float, chance: float) -> dict[str, Any]:
    """Return arguments of `evaluate`: forecasts .05 too low, and a judge that is wrong in this share."""
    rng = np.random.default_rng([5, seed])
    rates = rng.beta(1.0, 2.0, n) * 0.9 + 0.05
    labels = (rng.random(n) < rates).astype(float)
    judge = np.where(rng.random(n) < wrong, 1.0, labels)  # it errs on one side
    chances = np.clip(chance * (0.5 + rates), 0.0, 1.0)
    return {
        "labels": np.where(rng.random(n) < chances, labels, np.nan),
        "probabilities": rates - 0.05,
        "propensities": chances,
        "judge": judge,
    }


TRUTHS = {"gap": -0.05, "brier": 0.05**2}


def errors(streams: int, **options: Any) -> tuple[dict[str, int], dict[str, float]]:
    """Return how often the intervals missed, and their width over that without the judge."""
    missed, wider = dict.fromkeys(TRUTHS, 0), dict.fromkeys(TRUTHS, 0.0)
    for seed in range(streams):
        arguments = drawn(seed, 4_000, **options)
        both, alone = evaluate(**arguments), evaluate(**{**arguments, "judge": None})
        rates = arguments["probabilities"] + 0.05
        for name, shift in TRUTHS.items():
            truth = shift if name == "gap" else shift + float((rates * (1.0 - rates)).mean())
            low, high = (getattr(both, f"{name}_{end}") for end in ("low", "high"))
            missed[name] += not low <= truth <= high
            width = getattr(alone, f"{name}_high") - getattr(alone, f"{name}_low")
            wider[name] += (high - low) / width / streams
    return missed, wider


@pytest.mark.slow
def test_intervals_hold_the_truth_and_a_good_judge_saves_labels() -> None:
    # 5 % of 100 are 5; 16 or more come with a probability of 5e-5 for each of four counts.
    missed, width = errors(100, wrong=0.1, chance=0.05)
    assert max(missed.values()) < 16, missed
    assert max(width.values()) < 0.7, width  # twice the labels of people would give it
    missed, width = errors(100, wrong=1.0, chance=0.05)  # a judge that says 1 to everything
    assert max(missed.values()) < 16, missed
    assert max(width.values()) < 1.05, width


@pytest.mark.slow
def test_intervals_hold_where_hardly_a_positive_is_seen() -> None:
    """Of 200, 5 % are 10; 21 or more come with a probability of 1e-3. Without the added labels, 24 missed."""
    missed = 0
    for seed in range(200):
        rng = np.random.default_rng([6, seed])
        p = rng.beta(0.5, 50.0, 20_000)
        labels, seen = (rng.random(20_000) < 0.9 * p).astype(float), rng.random(20_000) < 0.02
        judge = np.clip(0.7 * labels + 0.15 + rng.normal(0.0, 0.05, 20_000), 0.0, 1.0)
        found = evaluate(np.where(seen, labels, np.nan), p, propensities=np.full(20_000, 0.02), judge=judge)
        missed += not found.gap_low <= 0.1 * p.mean() <= found.gap_high
    assert missed < 21


def test_a_judge_may_say_yes_or_no() -> None:
    arguments = drawn(0, 400, 0.1, 0.5)
    said = evaluate(**{**arguments, "judge": arguments["judge"] == 1.0})
    assert said.gap == evaluate(**arguments).gap


def test_they_would_not_if_the_judge_were_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    def believed(labels: Any, forecasts: Any, judge: Any, chances: Any, seen: Any, deviations: float) -> Any:
        every = np.ones(len(judge), np.bool_)
        return module.judged(np.where(seen, labels, judge), forecasts, judge, chances**0, every, deviations)

    monkeypatch.setattr("streamcal.quality.evaluate.judged", believed)
    missed, _ = errors(50, wrong=0.1, chance=0.05)
    assert max(missed.values()) > 40


def test_what_is_missing_is_said() -> None:
    arguments = drawn(0, 100, 0.1, 0.5)
    with pytest.raises(ValueError, match="judge needs propensities"):
        evaluate([0, 1], [0.1, 0.9], judge=[0, 1])
    seen = ~np.isnan(arguments["labels"])
    with pytest.raises(ValueError, match="judge needs all predictions"):
        evaluate(**{name: values[seen] for name, values in arguments.items()})
    with pytest.raises(ValueError, match="index 0: labels must not be masked"):
        evaluate(np.ma.masked_array(np.ones(2), mask=[True, False]), [0.5, 0.5], propensities=[0.5, 0.5])
    with pytest.raises(ValueError, match="judge must have the length of probabilities, 100: got 99"):
        evaluate(**{**arguments, "judge": arguments["judge"][:99]})
