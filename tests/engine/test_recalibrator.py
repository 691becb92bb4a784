"""The engine: schedule, modes, equivalences, state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from streamcal import LabelledEvent, Recalibrator, RecalibratorConfig
from streamcal.engine.schedule import Schedule
from streamcal.maps.platt import wide_logit
from streamcal.maps.uniform_mass import uniform_mass_binning
from streamcal.mixture.mixture import START
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.inside import memo_of, memos_of

MODES = ["auto", "source", "label_shift", "target", "composite"]


def sample(n: int, seed: int, prior: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    return NormalPair(prior).sample(n, np.random.default_rng(seed))


@given(st.integers(0, 10**7), st.sampled_from([1.01, 1.1, 2.0, 16.0]))
def test_schedule_counts_by_definition(labels: int, growth: float) -> None:
    passed = Schedule(growth).passed(labels)
    assert passed == 0 or math.ceil(64 * growth ** (passed - 1)) <= labels
    assert math.ceil(64 * growth**passed) > labels


def test_before_any_label_the_score_is_its_own_probability() -> None:
    for mode in MODES:
        engine = Recalibrator(mode=mode)
        # Mode auto says nothing that is more certain than 1e-4 before there is any label.
        ends = [START, 1.0 - START] if mode == "auto" else [0.0, 1.0]
        said = [engine.predict_one(z) for z in (0.0, 0.1, 1 / 3, 1.0)]
        assert said[1:3] == [0.1, 1 / 3]
        assert [said[0], said[3]] == (pytest.approx(ends, rel=1e-12) if mode == "auto" else ends)
        assert engine.predict_many([0.1, 1 / 3]).tolist() == [0.1, 1 / 3]
        assert (engine.version, engine.map.version, engine.source.prior) == (0, 0, None)
        assert engine.map.kind == ("linear" if mode == "auto" else "step")


def test_the_first_map_comes_with_the_64th_label() -> None:
    scores, labels = sample(64, 1)
    engine = Recalibrator()
    engine.learn_many(scores[:63], labels[:63], "source")
    assert engine.version == 0
    engine.learn_one(scores[63], labels[63], "source")
    assert engine.version == 1
    assert engine.map.bins > 1


def test_h_is_frozen_between_versions_and_g_is_not() -> None:
    scores, labels = sample(1000, 2)
    engine = Recalibrator(mode="composite")
    engine.learn_many(scores, labels, "source")
    frozen = engine.map
    engine.learn_one(0.5, 1, "source")
    assert (engine.map.edges, engine.map.values) == (frozen.edges, frozen.values)
    assert engine.predict_one(0.6) == frozen.predict_one(0.6)
    engine.learn_one(0.01, 0, "target")
    assert (engine.map.edges, engine.map.values) == (frozen.edges, frozen.values)
    assert engine.predict_one(0.5) < frozen.predict_one(0.5)


def test_modes_by_their_definitions() -> None:
    (z_p, y_p), (z_q, y_q) = sample(1000, 4), sample(100, 5, prior=0.1)
    engines = {mode: Recalibrator(mode=mode, bins=5) for mode in MODES}
    for engine in engines.values():
        engine.learn_many(z_p, y_p, "source")
        engine.learn_many(z_q, y_q, "target")
        engine.refresh()
    h_p, h_q = uniform_mass_binning(z_p, y_p, 5), uniform_mass_binning(z_q, y_q, 5)
    p, q = ((y.sum() + 0.5) / (len(y) + 1) for y in (y_p, y_q))
    w0, w1 = (1 - q) / (1 - p), q / p
    scores = np.linspace(0, 1, 101)

    def g(p: np.ndarray) -> np.ndarray:
        return w1 * p / (w1 * p + w0 * (1 - p))

    for mode, expected in {
        "source": h_p.predict_many(scores),
        "target": h_q.predict_many(scores),
        "label_shift": g(scores),
        "composite": g(h_p.predict_many(scores)),
    }.items():
        # Cells are finer than the distances between 1,000 scores, so the bins are the paper's.
        assert np.isclose(engines[mode].predict_many(scores), expected).mean() > 0.97, mode


def test_priors_are_krichevsky_trofimov() -> None:
    engine = Recalibrator(mode="composite")
    engine.learn_many([0.1] * 100, [0] * 90 + [1] * 10, "source")
    engine.learn_one(0.1, 0, "target")
    assert engine.source.prior == pytest.approx(10.5 / 101)
    assert engine.target.prior == pytest.approx(0.5 / 2)
    assert engine.predict_one(0.1) > 0, "a target without a positive yet must not predict 0"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scores", [[0.0], [0.0, 1.0]], ids=str)
@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_degenerate_streams_give_sane_maps(mode: str, scores: list[float], rate: float) -> None:
    engine = Recalibrator(mode=mode)
    labels = [int(index % 10 < 10 * rate) for index in range(200)]
    engine.learn_many((scores * 200)[:200], labels, "source")
    engine.learn_many((scores * 200)[:100], labels[:100], "target")
    engine.refresh()
    probabilities = engine.predict_many(np.linspace(0, 1, 101))
    assert np.isfinite(probabilities).all()
    assert ((probabilities >= 0) & (probabilities <= 1)).all()


@pytest.mark.parametrize("column", [pd.Series, pl.Series, pa.array])
def test_columns_of_every_kind(column: type) -> None:
    scores, labels = sample(500, 6)
    engine, twin = Recalibrator(), Recalibrator()
    engine.learn_many(scores, labels)
    twin.learn_many(column(scores.tolist()), column(labels.tolist()))
    assert engine.to_bytes() == twin.to_bytes()
    assert engine.predict_many(scores).tolist() == engine.predict_many(column(scores.tolist())).tolist()


def test_options_are_checked() -> None:
    for options in [{"bins": 0}, {"bins": "many"}, {"delta": 0}, {"mode": "best"}]:
        with pytest.raises(ValidationError, match=next(iter(options))):
            Recalibrator(**options)
    with pytest.raises(ValueError, match="either a config or options"):
        Recalibrator(RecalibratorConfig(), bins=3)
    assert Recalibrator(RecalibratorConfig(bins=3)).config.bins == 3


# Labels of any two names, and the mistakes that a first call of the engine makes


SCORES = [0.1, 0.6, 0.7, 0.9] * 30


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (np.array([-1, 1, -1, 1] * 30), 1),
        (np.array(["ham", "spam", "ham", "Spam"] * 30), "spam"),
        (np.array(["ham", "spam", "ham", "spam"] * 30, object), "spam"),
        ([False, True, "0", "yes"] * 30, True),
    ],
)
def test_positive_names_the_label_of_class_1(labels: Any, positive: object) -> None:
    plain, many, one = Recalibrator(), Recalibrator(), Recalibrator()
    plain.learn_many(SCORES, [0, 1, 0, 1] * 30, memos=memos_of(0, 120))
    many.learn_many(SCORES, labels, positive=positive, memos=memos_of(0, 120))
    for score, label in zip(SCORES, labels, strict=True):
        one.learn_one(score, label, positive=positive, memo=memo_of(0))
    assert plain.to_bytes() == many.to_bytes() == one.to_bytes()


@pytest.mark.parametrize(
    ("labels", "positive", "message"),
    [
        (["a", "b", "c"], "b", "index 2: a label must be 'b', which is the positive one, or 'a', the other"),
        ([[0], [1], [1]], 1, "labels must be one-dimensional"),
        ([-1, 1, 1], None, "index 0: a label must equal 0 or 1, got -1; positive= names the one that counts"),
    ],
)
def test_labels_that_are_refused_hint_at_positive(labels: Any, positive: object, message: str) -> None:
    engine = Recalibrator()
    with pytest.raises(ValueError, match=message):
        engine.learn_many([0.5] * 3, labels, positive=positive)
    assert engine.target.labels == 0


# Labels without a domain are those of the deployment, as events without one are


HALF = 2000


def flipped() -> tuple[list[float], list[int]]:
    """Return D(0.5), whose scores fall with the label from the middle on."""
    scores, labels = NormalPair(0.5).sample(2 * HALF, np.random.default_rng(1))
    scores[HALF:] = 1.0 - scores[HALF:]
    return scores.tolist(), labels.tolist()


def brier(**domain: Any) -> float:
    """Predict and learn one by one; return the mean loss of the predictions."""
    engine, squares = Recalibrator(), 0.0
    for score, label in zip(*flipped(), strict=True):
        squares += (engine.predict_one(score) - label) ** 2
        engine.learn_one(score, label, **domain)
    return squares / (2 * HALF)


def test_the_natural_loop_follows_a_drift() -> None:
    """A source does not: what was learned before the drift counts for ever."""
    natural = brier()
    assert natural == brier(domain="target")
    assert natural < 0.5 * brier(domain="source")


def learn_many(engine: Recalibrator, scores: list[float], labels: list[int]) -> None:
    engine.learn_many(scores, labels)


def learn_steps(engine: Recalibrator, scores: list[float], labels: list[int]) -> None:
    for score, label in zip(scores, labels, strict=True):
        engine.step(LabelledEvent(score, label))


@pytest.mark.parametrize("learn", [learn_many, learn_steps])
def test_a_mode_without_its_source_serves_the_score_and_warns_once(learn: Callable[..., None]) -> None:
    scores, labels = flipped()
    engine = Recalibrator(mode="composite")
    learn(engine, scores[:63], labels[:63])
    with pytest.warns(UserWarning, match=r"mode 'composite' has learned 64 .* domain='source'") as said:
        learn(engine, scores[63:64], labels[63:64])
    assert [each.filename for each in said] == [__file__]
    learn(engine, scores[64:200], labels[64:200])
    assert engine.predict_many([0.2, 0.7]).tolist() == [0.2, 0.7]
    engine.learn_many(scores[:64], labels[:64], "source")
    assert engine.predict_many([0.2, 0.7]).tolist() != [0.2, 0.7]


# Scores within 2⁻⁴⁰ of 0 and 1, as of a naive Bayes or a boosted tree: told apart as far as doubles do


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


# Labels that were counted elsewhere: one batch, whatever its order


def sketched(scores: Any, labels: Any = None) -> ScoreSketch:
    sketch = ScoreSketch(labelled=labels is not None)
    sketch.add(scores, labels)
    return sketch


@pytest.mark.parametrize("mode", ["target", "composite"])
def test_the_bytes_do_not_depend_on_order_or_shards(mode: str) -> None:
    source, target = sample(5000, 1), sample(3000, 2, 0.2)
    one, other = Recalibrator(mode=mode), Recalibrator(mode=mode)
    for domain, (scores, labels) in (("source", source), ("target", target)):
        one.learn_sketch(sketched(scores, labels), domain)
        order = np.random.default_rng(3).permutation(len(scores))
        merged = ScoreSketch()
        for part in np.array_split(order, 7):
            merged.merge(sketched(scores[part], labels[part]))
        other.learn_sketch(merged, domain)
    for each in (one, other):
        each.observe_sketch(sketched(target[0]))
    assert one.to_bytes() == other.to_bytes()
    assert Recalibrator.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()


@pytest.mark.parametrize("mode", ["target", "composite"])
def test_counts_and_map_are_those_of_learn_many_and_refresh(mode: Any) -> None:
    source, target = sample(5000, 1), sample(3000, 2, 0.2)
    batch, stream = Recalibrator(mode=mode), Recalibrator(mode=mode)
    batch.learn_sketch(sketched(*source), "source")
    batch.learn_sketch(sketched(*target), "target")
    stream.learn_many(*source, "source")
    stream.learn_many(*target, "target")
    stream.refresh()
    assert (batch.source, batch.target) == (stream.source, stream.target)
    assert batch.version == stream.version - 1  # the refresh is a version of its own
    assert batch.map == stream.map.model_copy(update={"version": batch.version})
    assert batch.certificate.on_schedule


def test_the_watch_of_label_shift_counts_a_sketch_as_it_counts_its_labels() -> None:
    source, target = sample(5000, 1), sample(3000, 2, 0.2)
    engines = Recalibrator(mode="composite"), Recalibrator(mode="composite")
    for engine in engines:
        engine.learn_many(*source, "source")
        engine.learn_many(target[0][:300], target[1][:300])  # the test has begun, at 256
    assert all(engine.log_e_value is not None for engine in engines)
    few = slice(300, 312)  # no look is due before 320
    engines[0].learn_many(target[0][few], target[1][few])
    engines[1].learn_sketch(sketched(target[0][few], target[1][few]), "target")
    states = [engine.to_bytes() for engine in engines]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "auto"}, "mode='auto' learns one label after the other"),
        ({"mode": "target", "window": 64}, "window=64 keeps the latest labels"),
        ({"mode": "target", "prior": "scores"}, "prior='scores' follows the scores"),
    ],
)
def test_an_engine_that_depends_on_the_order_refuses(options: dict[str, Any], said: str) -> None:
    engine = Recalibrator(**options)
    before = engine.to_bytes()
    with pytest.raises(ValueError, match=said):
        engine.learn_sketch(sketched([0.5], [1]))
    with pytest.raises(ValueError, match=said):
        engine.observe_sketch(sketched([0.5]))
    assert engine.to_bytes() == before
