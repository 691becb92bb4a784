"""The slopes: a plain recursion, weights that stay weights, and what they are for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal import Recalibrator
from streamcal.mixture import weights as module
from streamcal.mixture.forecasts_c import SLOPES
from streamcal.mixture.weights import SLOPE_RATE, SLOPE_SHARE, Slopes
from tests.inside import memos_of
from tests.mixture.plain import slopes_after
from tests.nightly import one_in

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]

FIXED = np.array((1.0, 0.0, 0.0, 0.0))
DELAY, BLOCK, WARM = 3000, 100, 6000


def losses_of(rng: np.random.Generator, n: int) -> Floats:
    """Return log losses of the forecasts with each factor on n labels."""
    return rng.exponential(0.5, (len(SLOPES), n))


def test_the_weights_are_the_plain_recursion() -> None:
    """Call after call: exponential weights by the sums of a call, and a share that goes back a label."""
    rng, slopes, calls, moved = np.random.default_rng(1), Slopes(), list[Floats](), 0.0
    for n, scale in ((1, 1.0), (64, 0.1), (7, 20.0), (500, 0.001), (16, 1.0), (3000, 1.0), (1, 0.0)):
        calls.append(losses_of(rng, n) * scale)
        before = slopes.weights
        kept = before.copy()
        slopes.track(calls[-1])
        assert np.array_equal(before, kept)  # what a snapshot holds does not change
        expected = slopes_after(module._FIRST_SLOPES, calls, SLOPE_RATE, SLOPE_SHARE, module._FIRST_SLOPES)
        assert slopes.weights == pytest.approx(expected, rel=1e-9, abs=1e-300)
        moved = max(moved, float(np.abs(expected - module._FIRST_SLOPES).max()))
    assert moved > 0.05


# What it is for


def stream(seed: int, *, falls: bool, n: int = 24_000) -> tuple[Floats, Labels]:
    """Return scores whose slope falls by a third in every 4,000 predictions, or whose log odds are right."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.0, 1.5, n)
    slope = 3.0 * np.exp(-np.arange(n) / 10_000.0) if falls else np.ones(n)
    return expit(x), (rng.random(n) < expit(slope * x - 1.0)).astype(np.int8)


def served(scores: Floats, labels: Labels, *, restarted_at: int = -1) -> tuple[Floats, Recalibrator]:
    """Return what is served where labels are 3,000 predictions late, and the engine."""
    engine, said = Recalibrator(), np.empty(len(scores))
    for start in range(0, len(scores), BLOCK):
        if start == restarted_at:
            engine = Recalibrator.from_bytes(engine.to_bytes())
        part, late = slice(start, start + BLOCK), slice(start - DELAY, start - DELAY + BLOCK)
        said[part] = engine.predict_many(scores[part])
        engine.observe_many(scores[part])
        if start >= DELAY:
            engine.learn_many(scores[late], labels[late], memos=memos_of(start - DELAY, len(labels[late])))
    return said, engine


def ratio(monkeypatch: pytest.MonkeyPatch, seed: int, *, falls: bool) -> float:
    """Return the log loss with slopes over that without, once labels have come for one more delay."""
    scores, labels = stream(seed, falls=falls)
    with_slopes = served(scores, labels)[0]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_FIRST_SLOPES", FIXED)
        without = served(scores, labels)[0]
    losses = [
        -np.log(np.where(labels == 1, said, 1.0 - said))[WARM:].mean() for said in (with_slopes, without)
    ]
    return float(losses[0] / losses[1])


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_where_scores_have_lost_meaning_by_the_time_that_labels_come(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What was learned 3,000 labels ago and before is about 1.5 times too sharp, and stays so.

    Log loss was .986, .985 and .985 times that with weights fixed at (1, 0, 0, 0), the truth's .964 to .969.
    """
    assert ratio(monkeypatch, seed, falls=True) <= 0.99


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_where_nothing_changes_slopes_cost_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Log loss was .99998, 1.00003 and 1.00004 times that with weights fixed at (1, 0, 0, 0)."""
    assert ratio(monkeypatch, seed, falls=False) <= 1.002
