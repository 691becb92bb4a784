"""streamcal.pmml, by running what it makes on pmml4s, an engine for PMML on the JVM."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from streamcal import RecalibrationMap
from streamcal.pmml import _apart, model
from tests.spark.maps import EXACT, LINEAR, REFUSED, bits, linear_map, scores_for, step_map

if not os.environ.get("CI"):
    pytest.importorskip("pypmml", reason="needs pypmml: pip install '.[dev]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs Java 8 or newer for pypmml", allow_module_level=True)

from pypmml import Model

MANY = 50_000
NAMESPACE = {"": "http://www.dmg.org/PMML-4_4"}


@pytest.fixture(scope="module", autouse=True)
def virtual_machine() -> Iterator[None]:
    yield
    Model.close()


def run(recalibration: RecalibrationMap, scores: Any) -> Any:
    # As JSON: a DataFrame would travel with 10 digits.
    table = json.dumps({"columns": ["score"], "data": [[float(score)] for score in scores]})
    found = json.loads(Model.fromBytes(model(recalibration)).predict(table))
    assert found["columns"] == ["probability"]
    assert len(found["data"]) == len(scores)
    return np.array(found["data"], np.float64).reshape(-1)


def many(at: Any) -> Any:
    """Return scores: anywhere, near both ends, at both, at these, and beside them."""
    random = np.random.default_rng(3)
    tiny = 10.0 ** random.uniform(-16, 0, MANY // 4)
    ends = [0.0, 1.0, 5e-324, np.nextafter(1.0, 0.0)]
    found = np.concatenate((at, np.nextafter(at, 0.0), np.nextafter(at, 1.0), tiny, 1.0 - tiny, ends))
    return np.append(found, random.random(MANY - len(found)))


@pytest.mark.parametrize("name", EXACT)
def test_steps_and_the_identity_have_the_bits_of_predict_many(name: str) -> None:
    scores = np.append(scores_for(EXACT[name]), [0.0, 1.0])
    np.testing.assert_array_equal(bits(run(EXACT[name], scores)), bits(EXACT[name].predict_many(scores)))


@pytest.mark.parametrize("name", LINEAR)
def test_lines_differ_by_the_bound_at_most(name: str) -> None:
    scores = np.append(scores_for(LINEAR[name]), [0.0, 1.0])
    apart = np.abs(run(LINEAR[name], scores) - LINEAR[name].predict_many(scores))
    assert apart.max() <= _apart(LINEAR[name]) <= 1e-12


def test_scores_at_both_ends_are_taken_for_some_way_inside() -> None:
    knots, log_odds = (-27.73, -27.7, 27.7, 27.73), (-1.0, 0.0, 0.0, 1.0)
    recalibration = RecalibrationMap(version=1, kind="linear", knots=knots, log_odds=log_odds)
    ends = [0.0, 5e-324, 2.0**-41, 1.0 - 2.0**-41, 1.0]
    np.testing.assert_allclose(
        run(recalibration, ends), recalibration.predict_many(ends), rtol=0.0, atol=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.3, 2.0)])
def test_of_many_scores_steps_have_the_same_bits(weights: tuple[float, float]) -> None:
    recalibration = step_map(63, weights)
    scores = many(np.array(recalibration.edges))
    np.testing.assert_array_equal(bits(run(recalibration, scores)), bits(recalibration.predict_many(scores)))


@pytest.mark.slow
@pytest.mark.parametrize("weights", [(1.0, 1.0), (30.0, 0.2)])
def test_of_many_scores_lines_differ_by_the_bound_at_most(weights: tuple[float, float]) -> None:
    recalibration = linear_map(40, weights)
    scores = many(1.0 / (1.0 + np.exp(-np.array(recalibration.knots))))
    apart = np.abs(run(recalibration, scores) - recalibration.predict_many(scores))
    assert apart.max() <= _apart(recalibration) <= 1e-12


@pytest.mark.parametrize(
    "changed",
    [
        {"knots": (-1.0, -1.0 + 1e-8), "log_odds": (-1.0, 1.0)},  # 2e8 steep, through 1/2
        {"weights": (1e4, 1.0)},
        {"weights": (1.0, 0.0)},
    ],
)
def test_a_linear_map_that_two_engines_cannot_agree_on_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="between two engines, more than 1e-12"):
        model(LINEAR["40 knots"].model_copy(update=changed))


@pytest.mark.parametrize("name", ["identity", "g", "254 bins", "1 knot", "40 knots, g"])
def test_what_predict_many_refuses_is_missing(name: str) -> None:
    made = Model.fromBytes(model((EXACT | LINEAR)[name]))
    for score in REFUSED:
        assert np.isnan(made.predict({"score": score})["probability"]), score


def test_the_map_travels_with_the_model() -> None:
    kept = ElementTree.fromstring(model(EXACT["31 bins"])).find("Header/Extension[@name='map']", NAMESPACE)
    assert kept is not None
    assert RecalibrationMap.model_validate_json(kept.attrib["value"]) == EXACT["31 bins"]
