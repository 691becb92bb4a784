"""The predictions of maps and engines equal their definition, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import RecalibrationMap, Recalibrator
from streamcal.base.values import Floats
from streamcal.maps.platt import expit
from streamcal.maps.shift import shift_correction
from tests.nightly import one_in

# Ends, denormals, neighbours of ½ and of the end cells, dyadic scores (cell boundaries), float32, ties.
SPECIAL = [
    0.0, -0.0, 5e-324, 1e-310, 2.0**-1022, math.nextafter(2.0**-1022, 1), 2.0**-1021, 1e-300, 2.0**-53,
    2.0**-41, 2.0**-40, math.nextafter(2.0**-40, 0), 2.0**-39, 0.1,
    0.25, math.nextafter(0.5, 0), 0.5, math.nextafter(0.5, 1), math.nextafter(0.5, 1) + 2.0**-50, 0.75, 0.9,
    1 - 2.0**-39, 1 - 2.0**-40, math.nextafter(1 - 2.0**-40, 1), 1 - 2.0**-41, 1 - 2.0**-52,
    math.nextafter(1.0, 0), 1.0,
]  # fmt: skip
SCORES = st.one_of(
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0, width=32),
    st.floats(0.0, 1100.0).map(lambda e: 2.0**-e),
    st.floats(0.0, 60.0).map(lambda e: 1.0 - 2.0**-e),
    st.integers(0, 64).map(lambda k: k / 64),
    st.sampled_from(SPECIAL),
)


def streams() -> dict[str, np.ndarray]:
    """Long streams of every shape: 100,000 scores, several chunks."""
    rng = np.random.default_rng(1)
    uniform = rng.random(100_000)
    wide = 2.0 ** -rng.uniform(0, 45, 100_000)
    return {
        "uniform": uniform,
        "float32": uniform.astype(np.float32).astype(np.float64),
        "wide": np.where(uniform < 0.5, wide, 1.0 - wide),
        "rare": rng.beta(0.2, 200.0, 100_000),
        "narrow": 0.3 + 1e-7 * uniform,
        "around a half": 0.5 + 1e-9 * (uniform - 0.5),
        "two decimals": np.round(uniform, 2),
        "one score": np.full(100_000, 0.7),
        "ends": np.where(uniform < 0.5, 0.0, 1.0),
        "ascending": np.sort(uniform),
        "narrow, then wide": np.concatenate((0.3 + 1e-7 * uniform[:50_000], wide[50_000:])),
        "tiny and large": np.concatenate((np.full(99_999, 5e-324), [1.0])),
    }


STREAMS = streams()


def predict(recalibration: RecalibrationMap, scores: Floats) -> Floats:
    """`RecalibrationMap.predict_many` by its definition."""
    if recalibration.knots:
        inside = np.clip(scores, 2.0**-40, 1.0 - 2.0**-40)
        exponents = np.interp(np.log(inside / (1.0 - inside)), recalibration.knots, recalibration.log_odds)
        return shift_correction(1.0 / (1.0 + np.exp(-exponents)), recalibration.weights)
    if not recalibration.values:
        return shift_correction(scores, recalibration.weights)
    values = shift_correction(np.asarray(recalibration.values), recalibration.weights)
    return values[np.searchsorted(np.asarray(recalibration.edges[1:-1]), scores, side="right")]


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(3, STREAMS))
@pytest.mark.parametrize(("mode", "bins"), [("source", 3000), ("auto", "auto"), ("label_shift", 1)])
def test_predictions_of_the_engine(name: str, mode: str, bins: int | str) -> None:
    scores = STREAMS[name]
    labels = (np.random.default_rng(3).random(len(scores)) < scores).astype(np.int8)
    engine = Recalibrator(mode=mode, bins=bins)
    engine.learn_many(scores, labels, "source")
    engine.learn_many(scores[:100], 1 - labels[:100], "target")
    bends = (*engine.map.edges, *expit(np.array(engine.map.knots)).tolist())
    everywhere = np.concatenate((scores, SPECIAL, bends, np.nextafter(bends, 0.0)))
    many = engine.predict_many(everywhere)
    expected = predict(engine.map, everywhere)
    if engine.map.kind == "step":
        assert many.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(many, expected, rtol=1e-9)
    assert many.tobytes() == engine.map.predict_many(everywhere).tobytes()
    assert many[-200:].tolist() == [engine.predict_one(score) for score in everywhere[-200:].tolist()]


@pytest.mark.slow
@given(
    st.sets(SCORES.filter(lambda z: 0.0 < z < 1.0), min_size=1, max_size=40),
    st.lists(SCORES, max_size=20),
    st.sampled_from([(1.0, 1.0), (0.3, 1.7), (0.0, 1.0)]),
)
def test_predictions_of_any_map(inner: set[float], scores: list[float], weights: tuple[float, float]) -> None:
    edges = (0.0, *sorted(inner), 1.0)
    values = tuple(np.random.default_rng(4).random(len(inner) + 1).tolist())
    recalibration = RecalibrationMap(version=1, edges=edges, values=values, weights=weights)
    near = [math.nextafter(edge, to) for edge in edges for to in (0.0, 1.0)]
    everywhere = np.resize([*scores, *edges, *near, *SPECIAL], 5000)  # long enough for the table
    many = recalibration.predict_many(everywhere)
    assert many.tobytes() == predict(recalibration, everywhere).tobytes()
    assert many.tolist() == [recalibration.predict_one(score) for score in everywhere.tolist()]


def test_the_identity_returns_an_array_of_its_own() -> None:
    scores = np.array([0.2, 0.4])
    Recalibrator().predict_many(scores)[0] = 0.9
    assert scores.tolist() == [0.2, 0.4]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_columns_of_narrower_types(dtype: type) -> None:
    scores = np.random.default_rng(6).random(5000).round() if dtype in (np.int64, np.uint8) else None
    column = (STREAMS["uniform"][:5000] if scores is None else scores).astype(dtype)
    labels = np.random.default_rng(7).integers(0, 2, 5000)
    engine, twin = Recalibrator(), Recalibrator()
    engine.learn_many(column, labels.astype(bool))
    twin.learn_many(column.astype(np.float64), labels.astype(np.float32))
    assert engine.to_bytes() == twin.to_bytes()
    assert engine.predict_many(column).tobytes() == twin.predict_many(column.astype(np.float64)).tobytes()
