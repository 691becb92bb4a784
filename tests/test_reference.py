"""The fast paths equal the plain ones in `reference`, bit for bit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal import RecalibrationMap, Recalibrator, ScoreSketch
from streamcal.maps.platt import expit
from streamcal.sketch import grid
from tests import reference
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
LEVELS = st.integers(grid.MIN_LEVEL, grid.MAX_LEVEL)


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


@given(st.lists(SCORES, min_size=1), LEVELS)
def test_cells(scores: list[float], level: int) -> None:
    values = np.array(scores)
    assert grid.cells_of(values, level).tolist() == reference.cells_of(values, level).tolist()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(SCORES, st.integers(0, 1)), max_size=300),
    st.lists(st.integers(0, 300), max_size=4),
    st.booleans(),
)
def test_sketches(events: list[tuple[float, int]], cuts: list[int], labelled: bool) -> None:
    scores = np.array([score for score, _ in events])
    labels = np.array([label for _, label in events], np.int8) if labelled else None
    sketch = ScoreSketch(64, labelled=labelled)
    places = sorted({0, *(min(cut, len(events)) for cut in cuts), len(events)})
    for start, end in itertools.pairwise(places):
        sketch.add(scores[start:end], None if labels is None else labels[start:end])
    assert sketch.to_bytes() == reference.sketch_of(scores, labels, 64).to_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", one_in(2, STREAMS))
@pytest.mark.parametrize("max_cells", [64, 1 << 17])
def test_sketches_of_long_streams(name: str, max_cells: int) -> None:
    scores = STREAMS[name][:5000]
    labels = (np.random.default_rng(2).random(5000) < scores).astype(np.int8)
    for given_labels in (labels, None):
        at_once = ScoreSketch(max_cells, labelled=given_labels is not None)
        at_once.add(scores, given_labels)
        expected = reference.sketch_of(scores, given_labels, max_cells).to_bytes()
        assert at_once.to_bytes() == expected
        in_parts = ScoreSketch(max_cells, labelled=given_labels is not None)
        for part in np.array_split(np.arange(5000), 7):
            in_parts.add(scores[part], None if given_labels is None else given_labels[part])
        assert in_parts.to_bytes() == expected


@pytest.mark.parametrize("level", [grid.MAX_LEVEL - 4, grid.MAX_LEVEL])
def test_a_sketch_made_coarse_goes_on_at_its_level(level: int) -> None:
    scores, labels = np.array(SPECIAL), np.arange(len(SPECIAL), dtype=np.int8) % 2
    coarse = ScoreSketch(64).at_level(level)
    coarse.add(scores, labels)
    assert coarse == reference.sketch_of(scores, labels, 64).at_level(level)


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
    expected = reference.predict(engine.map, everywhere)
    if engine.map.kind == "step":
        assert many.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(many, expected, rtol=1e-9)
    assert many.tobytes() == engine.map.predict_many(everywhere).tobytes()
    assert many[-200:].tolist() == [engine.predict_one(score) for score in everywhere[-200:].tolist()]


@pytest.mark.slow
@settings(max_examples=100)
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
    assert many.tobytes() == reference.predict(recalibration, everywhere).tobytes()
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
