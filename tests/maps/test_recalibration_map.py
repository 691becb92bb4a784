"""Recalibration maps and the shift correction."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from streamcal import RecalibrationMap
from streamcal.maps.shift import shift_correction, shift_correction_one

PROBABILITY = st.floats(0.0, 1.0)
WEIGHTS = st.tuples(st.floats(0.0, 1e9), st.floats(0.0, 1e9)).filter(any)


@st.composite
def lines(draw: st.DrawFn) -> RecalibrationMap:
    knots = sorted(
        draw(st.sets(st.integers(-27_700, 27_700).map(lambda k: k / 1000), min_size=1, max_size=8))
    )
    log_odds = draw(st.lists(st.floats(-700.0, 700.0), min_size=len(knots), max_size=len(knots)))
    return RecalibrationMap(
        version=1, kind="linear", knots=tuple(knots), log_odds=tuple(log_odds), weights=draw(WEIGHTS)
    )


@st.composite
def maps(draw: st.DrawFn) -> RecalibrationMap:
    if draw(st.booleans()):
        return draw(lines())
    inner = sorted(draw(st.sets(st.floats(0.0, 1.0, exclude_min=True, exclude_max=True), max_size=8)))
    values = draw(st.lists(PROBABILITY, min_size=len(inner) + 1, max_size=len(inner) + 1))
    edges = (0.0, *inner, 1.0)
    if draw(st.booleans()):
        edges, values = (), []
    return RecalibrationMap(
        version=draw(st.integers(0, 99)), edges=edges, values=tuple(values), weights=draw(WEIGHTS)
    )


@given(maps())
def test_json_round_trip(recalibration: RecalibrationMap) -> None:
    assert RecalibrationMap.model_validate_json(recalibration.model_dump_json()) == recalibration


@given(maps(), st.lists(PROBABILITY))
def test_many_equals_a_loop_of_one(recalibration: RecalibrationMap, scores: list[float]) -> None:
    many = recalibration.predict_many(scores).tolist()
    assert many == [recalibration.predict_one(score) for score in scores]
    assert all(0.0 <= probability <= 1.0 for probability in many)


@given(maps(), PROBABILITY)
def test_another_language_can_apply_it(recalibration: RecalibrationMap, score: float) -> None:
    """The rule in docs/recalibration.md, from the JSON alone."""
    m = json.loads(recalibration.model_dump_json())
    assert m["format"] == 2
    p = score
    if m["kind"] == "linear":
        z = min(max(score, 2.0**-40), 1.0 - 2.0**-40)
        p = 1.0 / (1.0 + math.exp(-interpolated(math.log(z / (1.0 - z)), m["knots"], m["log_odds"])))
    elif m["values"]:
        p = m["values"][sum(edge <= score for edge in m["edges"][1:-1])]
    w0, w1 = m["weights"]
    if w0 != w1 and w1 * p + w0 * (1 - p) > 0:
        p = w1 * p / (w1 * p + w0 * (1 - p))
    exactly = m["kind"] == "step"
    assert recalibration.predict_one(score) == (p if exactly else pytest.approx(p, rel=1e-6, abs=1e-6))


def interpolated(x: float, knots: list[float], log_odds: list[float]) -> float:
    """Return y at x on the line between the knots, constant beyond them."""
    above = sum(knot <= x for knot in knots)
    if above in (0, len(knots)):
        return log_odds[max(0, above - 1)]
    left, right = knots[above - 1], knots[above]
    part = (x - left) / (right - left)
    return (1.0 - part) * log_odds[above - 1] + part * log_odds[above]


@pytest.mark.slow
@given(lines(), st.lists(PROBABILITY, min_size=200, max_size=300))
def test_a_line_that_rises_keeps_the_order_of_scores(
    recalibration: RecalibrationMap, scores: list[float]
) -> None:
    rising = recalibration.model_copy(update={"log_odds": tuple(sorted(recalibration.log_odds))})
    for _ in range(1 + 4096 // len(scores)):  # until there is a look-up table
        probabilities = rising.predict_many(sorted(scores))
    assert (np.diff(probabilities) >= -1e-15).all()
    assert probabilities.tolist() == [rising.predict_one(score) for score in sorted(scores)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "linear"}, "at least 1 of each; got 0 log_odds and 0 knots"),
        (
            {"kind": "linear", "knots": (1.0, 1.0), "log_odds": (0.0, 1.0)},
            "knots must ascend, by at least 1e-09 each",
        ),
        (
            {"kind": "linear", "knots": (0.0,), "log_odds": (0.0,), "edges": (0.0, 1.0), "values": (0.5,)},
            'of kind "step", this one is of kind "linear"',
        ),
    ],
)
def test_a_map_of_two_kinds_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RecalibrationMap.model_validate({"version": 1, **fields})


def test_bins_are_closed_on_the_left_and_the_last_on_both_sides() -> None:
    recalibration = RecalibrationMap(version=1, edges=(0.0, 0.5, 1.0), values=(0.2, 0.7))
    assert recalibration.predict_many([0.0, 0.4999, 0.5, 1.0]).tolist() == [0.2, 0.2, 0.7, 0.7]


def test_shift_correction_by_hand() -> None:
    """π from 0.5 to 0.1: odds times 1/9, so 0.9 becomes 0.5."""
    assert shift_correction_one(0.9, (1.8, 0.2)) == pytest.approx(0.5)
    corrected = shift_correction(np.array([0.0, 0.5, 1.0]), (1.8, 0.2))
    assert corrected.tolist() == pytest.approx([0.0, 0.1, 1.0])


@given(PROBABILITY, WEIGHTS)
def test_shift_correction_leaves_0_and_1_unchanged_and_never_fails(
    p: float, weights: tuple[float, float]
) -> None:
    assert shift_correction_one(0.0, weights) == 0.0
    assert shift_correction_one(1.0, weights) == 1.0
    assert shift_correction_one(p, weights) == shift_correction(np.array([p]), weights)[0]
    assert shift_correction_one(p, (weights[0], weights[0])) == p


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"edges": (0.0, 1.0)}, "0 values need 1 edges, got 2"),
        ({"edges": (0.1, 1.0), "values": (0.5,)}, "edges must go from 0 to 1, got 0.1"),
        ({"edges": (0.0, 0.6, 0.6, 1.0), "values": (0.5,) * 3}, "strictly ascending"),
        ({"weights": (0.0, 0.0)}, "must not both be 0"),
        ({"version": -1}, "greater than or equal to 0"),
    ],
)
def test_a_bad_map_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        RecalibrationMap(**{"version": 1, **fields})


def test_the_schema_in_docs_is_the_models() -> None:
    path = Path(__file__).parents[2] / "docs" / "recalibration-map.schema.json"
    assert json.loads(path.read_text()) == RecalibrationMap.model_json_schema()
