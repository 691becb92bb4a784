"""Segments: what segments gain and lose, late labels, states, and wrong usage.

Streams are seeded. Each statistical test names the chance with which it would fail on another seed, from the
spread of its figure over 20 seeds, taken as normal. `test_..._without_...` break a formula and see the
figure miss its limit.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamcal import Recalibrator
from streamcal.engine.segments.corrections_c import READ, BetweenSegments, Corrections
from tests.engine.segments.streams import brier, drawn, plain, played
from tests.inside import corrections_of

pytestmark = pytest.mark.filterwarnings("ignore:mode 'source' has learned:UserWarning")


def gain(tau: float, seed: int = 3, count: int = 50, n: int = 10_000) -> float:
    rng = np.random.default_rng(seed)
    scores, labels, segments, _ = drawn(rng.normal(0.0, tau, count), n, rng)
    pooled, served = played(plain(), scores, labels, segments.tolist())
    return brier(served, labels) / brier(pooled, labels)


def risk(tau: float, seed: int = 3) -> float:
    """Return the mean squared distance to the truth over that of pooled."""
    rng = np.random.default_rng(seed)
    scores, labels, segments, truth = drawn(rng.normal(0.0, tau, 50), 10_000, rng)
    pooled, served = played(plain(), scores, labels, segments.tolist())
    return float(np.square(served - truth).mean() / np.square(pooled - truth).mean())


@pytest.mark.statistical
def test_nothing_is_lost_where_segments_do_not_differ() -> None:
    """Over seeds 1.00003 ± 0.00006: chance of failure below 1e-9."""
    assert gain(0.0) <= 1.002


@pytest.mark.statistical
def test_segments_that_differ_gain() -> None:
    """Over seeds 0.14 ± 0.03: chance of failure below 1e-4."""
    assert risk(1.0) <= 0.3


@pytest.mark.statistical
def test_first_labels_of_a_segment_do_no_harm() -> None:
    assert first_labels() <= 1.005


def first_labels() -> float:
    """Return Brier over pooled of 1,000 segments with 10 labels each; over seeds 1.00000 ± 0.00002."""
    rng = np.random.default_rng(8)
    scores, labels, segments, _ = drawn(rng.normal(0.0, 0.1, 1_000), 10_000, rng)
    pooled, served = played(plain(), scores, labels, segments.tolist())
    return brier(served, labels) / brier(pooled, labels)


@pytest.mark.statistical
def test_the_spread_is_estimated() -> None:
    """Within a grid step, which is a factor of two, of its size in 50 segments; chance below 1e-4."""
    for tau in (0.2, 1.0):
        rng = np.random.default_rng(5)
        scores, labels, segments, _ = drawn(rng.normal(0.0, tau, 50), 20_000, rng)
        engine = plain()
        played(engine, scores, labels, segments.tolist())
        between = corrections_of(engine).between
        assert tau / 2.0 <= between.offset_precision**-0.5 <= 2.0 * tau
        assert between.slope_precision**-0.5 <= 0.2
        assert between.share > 0.99


@pytest.mark.statistical
def test_two_fields_add_up() -> None:
    """Loss left, over seeds: 0.05 ± 0.02 with both, 0.43 ± 0.16 with one; chance of failure below 1e-2."""
    rng = np.random.default_rng(2)
    n, first, second = 12_000, rng.normal(0.0, 1.0, 8), rng.normal(0.0, 1.0, 6)
    pairs = np.stack([rng.integers(0, 8, n), rng.integers(0, 6, n)], 1)
    logits = rng.normal(-1.0, 1.2, n)
    truth = 1.0 / (1.0 + np.exp(-logits - first[pairs[:, 0]] - second[pairs[:, 1]]))
    labels = (rng.random(n) < truth).astype(np.int8)
    scores = 1.0 / (1.0 + np.exp(-logits))
    pooled, both = played(plain(("a", "b")), scores, labels, list(map(tuple, pairs.tolist())))
    _, one = played(plain(), scores, labels, pairs[:, 0].tolist())
    lost = [brier(made, labels) - brier(truth, labels) for made in (pooled, one, both)]
    assert lost[2] < 0.13 * lost[0]
    assert 2.0 * lost[2] < lost[1]


@pytest.mark.statistical
def test_late_labels_teach_no_deviation_that_all_have() -> None:
    """Over seeds 0.9998 ± 0.0002: chance of failure below 1e-6."""
    assert late_deviation() <= 1.003


def late_deviation() -> float:
    """Return Brier over pooled where all scores are off from the middle on, and labels are 1,000 late.

    No segment differs, and the pooled engine catches up. Corrections that learned the deviation add it again.
    """
    rng = np.random.default_rng(4)
    n = 12_000
    scores, labels, segments, _ = drawn(np.zeros(4), n, rng)
    logits = np.log(scores / (1.0 - scores))
    scores = np.where(np.arange(n) < n // 2, scores, 1.0 / (1.0 + np.exp(-logits - 1.0)))
    engine = Recalibrator(segments="segment", own_engines=0)
    pooled, served = played(engine, scores, labels, segments.tolist(), late=1_000)
    return brier(served, labels) / brier(pooled, labels)


@pytest.mark.statistical
def test_effects_that_turn_before_late_labels_tell_of_them_do_no_harm() -> None:
    """Over seeds 0.997 ± 0.005: chance of failure below 2e-2."""
    assert turning() <= 1.007


def turning() -> float:
    """Return Brier over pooled where effects of segments turn about their means as often as labels come.

    Six segments have means of ±0.4, and effects 0.8 to either side in turn, 5,000 events each; labels are
    5,000 late. So whichever candidate was the best of the latest labels is the worst of the next forecasts.
    """
    rng = np.random.default_rng(7)
    n, count, late = 60_000, 6, 5_000
    segments, logits = rng.integers(0, count, n), rng.normal(-1.0, 1.2, n)
    turn = np.where(np.arange(n) // late % 2, 1.0, -1.0)
    means, effects = 0.4 * rng.choice([-1.0, 1.0], count), 0.8 * rng.choice([-1.0, 1.0], count)
    truth = 1.0 / (1.0 + np.exp(-logits - means[segments] - turn * effects[segments]))
    labels = (rng.random(n) < truth).astype(np.int8)
    pooled, served = played(plain(), 1.0 / (1.0 + np.exp(-logits)), labels, segments.tolist(), late)
    return brier(served, labels) / brier(pooled, labels)


def test_labels_count_for_less_the_more_of_their_segment_came_since_the_prediction() -> None:
    saved = []
    for since in (0.0, 20.0, 60.0):
        field, read = Corrections(), np.zeros(READ)
        place = field.place("x")
        for _ in range(60):
            field.read(place, 0.0, float("nan"), read, 0)
            field.learn(place, 0.0, 1, read, 0, 0.0, 0.0, np.array([0.0, 0.0, 0.0, np.nan, 1e9]), 0, 0.0)
        before = field.to_state().rows[7]
        then = np.array([0.0, 0.5, 0.5, np.nan, 60.0 - since])
        field.learn(place, 0.0, 1, read, 0, 0.0, 0.0, then, 0, 0.0)
        saved.append(field.to_state().rows[7] - before)
    assert saved[1] == pytest.approx(saved[0] / 2.0, rel=1e-3)
    assert saved[2] == pytest.approx(saved[0] / 4.0, rel=1e-3)


def test_a_new_segment_is_served_the_pooled_probability_to_the_last_bit() -> None:
    engine = Recalibrator(segments="segment")
    engine.learn_many([0.2, 0.8] * 100, [0, 1] * 100, segments=["a", "b"] * 100)
    assert engine.predict_one(0.37, "new") == engine.map.predict_many([0.37])[0]


WRONG: dict[str, tuple[Callable[[Recalibrator], object], str]] = {
    "too few values": (
        lambda engine: engine.predict_one(0.5, "x"),
        r"segments must be a tuple of 2 values, in the order country, device, got \('x',\)",
    ),
    "too many values": (
        lambda engine: engine.learn_many([0.5, 0.5], [0, 1], segments=[("x", "y"), ("x", "y", "z")]),
        r"index 1: segments must be a tuple of 2 values, .*got \('x', 'y', 'z'\)",
    ),
    "columns by name for many": (
        lambda engine: engine.predict_many([0.5, 0.5], {"country": ["x", "y"], "device": ["x", "y"]}),
        "sequence of one value or tuple a score, or a data frame, got {'country'",
    ),
    "half of a character": (
        lambda engine: engine.learn_one(0.5, 1, segments=("x", "\ud800")),
        r"a segment must be Unicode text, got '\\ud800'",
    ),
    "too many digits": (
        lambda engine: engine.learn_one(0.5, 1, segments=("x", 10**9999)),
        "a segment must have fewer digits, got a whole number of about 9999 digits",
    ),
    "a score": (lambda engine: engine.predict_one(1.5, ("x", "y")), r"number in \[0, 1\], got 1.5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage_is_said(name: str) -> None:
    engine = Recalibrator(segments=("country", "device"))
    before = engine.to_bytes()
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        call(engine)
    assert engine.to_bytes() == before


@pytest.mark.parametrize(
    "frame", [pd.DataFrame, pl.DataFrame, lambda columns: pl.DataFrame(columns).to_arrow()]
)
def test_columns_of_a_data_frame_go_by_their_names(frame: Callable[[Any], Any]) -> None:
    """Two of two rows are no two tuples, and the only column of one row is no value."""
    one = Recalibrator(segments="country", own_engines=0)
    two = Recalibrator(segments=("country", "device"))
    scores, labels = [0.5] * 2, [1, 1]
    columns = {"device": ["a", "b"], "country": ["x"] * 2}
    for engine, its in ((one, columns["country"]), (two, [("x", each) for each in columns["device"]])):
        as_tuples = Recalibrator.from_bytes(engine.to_bytes())
        engine.learn_many(scores, labels, segments=frame(columns))
        as_tuples.learn_many(scores, labels, segments=its)
        assert engine.to_bytes() == as_tuples.to_bytes()
        assert (engine.predict_many(scores, frame(columns)) == engine.predict_many(scores, its)).all()


@pytest.mark.parametrize("own_engines", [0, 2])
def test_many_are_predicted_as_one_by_one(own_engines: int) -> None:
    rng, decimals = np.random.default_rng(0), [Decimal("1.0"), Decimal("1.00")]
    values = np.array(["a", "b", "3", 3.0, 3, True, None, float("nan"), *decimals], object)
    engine, names = Recalibrator(segments=["of"], own_engines=own_engines), rng.choice(values, 2_000)
    scores = rng.random(2_000)
    engine.learn_many(scores, rng.random(2_000) < scores, segments=names)

    def one_by_one(names: list[Any]) -> list[float]:
        return [engine.predict_one(score, (name,)) for score, name in zip(scores, names, strict=True)]

    expected, frame = one_by_one(names.tolist()), pd.DataFrame({"of": names})
    for segments in (names, names.tolist(), names[:, np.newaxis], [(name,) for name in names], frame):
        assert engine.predict_many(scores, segments).tolist() == expected
    texts = pd.Series(["a", "b", None, "new"] * 500)
    expected = one_by_one(texts.to_list())
    for column in (texts, texts.astype("category"), texts.astype("string"), texts.astype(object)):
        assert engine.predict_many(scores, pd.DataFrame({"of": column})).tolist() == expected


def test_the_evidence_of_one_segment_is_the_gaussian_marginal_likelihood() -> None:
    information, score = np.array([[5.0, 1.0], [1.0, 3.0]]), np.array([2.0, -1.0])
    between, rows = BetweenSegments(), np.array((0.0,) * 5 + (5.0, 1.0, 3.0, 2.0, -1.0), np.float32)
    between.replace(rows, 0, 5)
    prior = np.diag([0.08**2, 0.16**2])
    expected = 0.5 * score @ np.linalg.inv(information + np.linalg.inv(prior)) @ score
    expected -= 0.5 * np.log(np.linalg.det(np.eye(2) + prior @ information))
    assert between.evidence.reshape(9, 5)[3, 2] == pytest.approx(expected)
    between.replace(rows, 5, 0)
    assert between.evidence == pytest.approx(np.zeros(45), abs=1e-12)
