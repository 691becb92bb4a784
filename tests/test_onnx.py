"""streamcal.onnx, by running what it makes on onnxruntime."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from streamcal import MulticlassMap, RecalibrationMap
from tests.engine.multiclass.maps import CLASS_MAPS, LARGEST_OF_CLASSES, refused_for, rows_for
from tests.spark.maps import EXACT, LARGEST_DIFFERENCE, LINEAR, REFUSED, bits, scores_for

if not os.environ.get("CI"):
    pytest.importorskip("onnx", reason="needs onnx: pip install '.[onnx]'")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install '.[dev]'")

import onnx
import onnxruntime

from streamcal.onnx import model


def run(recalibration: RecalibrationMap | MulticlassMap, scores: Any, dtype: Any = "float64") -> Any:
    made = model(recalibration, dtype)
    onnx.checker.check_model(made, full_check=True)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: np.asarray(scores, dtype)})
    assert found.dtype == dtype
    return found


@pytest.mark.parametrize("name", EXACT)
def test_steps_and_the_identity_have_the_bits_of_predict_many(name: str) -> None:
    scores = scores_for(EXACT[name])
    np.testing.assert_array_equal(bits(run(EXACT[name], scores)), bits(EXACT[name].predict_many(scores)))


@pytest.mark.parametrize("name", LINEAR)
def test_lines_differ_in_the_last_bits_at_most(name: str) -> None:
    scores = np.append(scores_for(LINEAR[name]), [0.0, 1.0])
    np.testing.assert_allclose(
        run(LINEAR[name], scores), LINEAR[name].predict_many(scores), rtol=0.0, atol=LARGEST_DIFFERENCE
    )


@pytest.mark.parametrize("name", ["identity", "g", "254 bins", "40 knots, g"])
def test_what_predict_many_refuses_is_nan(name: str) -> None:
    refused = [each for each in REFUSED if each is not None]
    assert np.isnan(run((EXACT | LINEAR)[name], refused)).all()


def test_the_map_travels_with_the_model() -> None:
    recalibration = EXACT["31 bins"]
    (kept,) = model(recalibration).metadata_props
    assert kept.key == "map"
    assert RecalibrationMap.model_validate_json(kept.value) == recalibration


@pytest.mark.parametrize("name", CLASS_MAPS)
def test_many_classes_differ_in_the_last_bits_at_most(name: str) -> None:
    class_map = CLASS_MAPS[name]
    rows = rows_for(class_map)
    found, wanted = run(class_map, rows), class_map.predict_many(rows)
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=LARGEST_OF_CLASSES)
    assert np.isnan(run(class_map, refused_for(class_map))).all()
    singles = rows.astype("f4")
    wanted = class_map.predict_many(singles)
    np.testing.assert_allclose(run(class_map, singles, "float32"), wanted, rtol=0.0, atol=1e-7)
