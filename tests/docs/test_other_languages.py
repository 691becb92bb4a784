"""Readers of maps in other languages give the answers of the test vectors, and so does this package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import MulticlassMap, RecalibrationMap
from tests.engine.multiclass.maps import LARGEST_OF_CLASSES
from tests.spark.maps import LARGEST_DIFFERENCE

FOLDER = Path(__file__).parents[2] / "examples" / "languages"
VECTORS = FOLDER / "maps.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())
CLASS_VECTORS = FOLDER / "class-maps.json"
CLASS_CASES: list[dict[str, Any]] = json.loads(CLASS_VECTORS.read_text())


def said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None and not os.environ.get("CI"):
        pytest.skip(f"needs {name} on the path")
    return found or name


def check(*command: str | Path, learned_by: Path | None = None) -> None:
    """Fail unless a reader compares all answers, and they are right."""
    files = {VECTORS: LARGEST_DIFFERENCE, CLASS_VECTORS: LARGEST_OF_CLASSES}
    for file, largest in ({learned_by: LARGEST_OF_CLASSES} if learned_by else files).items():
        answers, off = re.findall(r"\d[\d.eE-]*", said(*command, file))
        assert int(answers) == sum(np.size(case["answers"]) for case in json.loads(file.read_text())) > 1000
        assert float(off) <= largest


def test_answers_of_the_release_are_those_of_today() -> None:
    for case in CASES:
        recalibration = RecalibrationMap.model_validate(case["map"])
        largest = LARGEST_DIFFERENCE if recalibration.knots else 0.0
        many = recalibration.predict_many(case["scores"])
        one = [recalibration.predict_one(score) for score in case["scores"]]
        np.testing.assert_allclose([many, one], [case["answers"]] * 2, rtol=0.0, atol=largest)


def test_the_command_prints_the_vectors() -> None:
    printed = json.loads(said(sys.executable, FOLDER / "vectors.py"))
    printed += json.loads(said(sys.executable, FOLDER / "vectors.py", "classes"))
    assert [each["map"] for each in printed] == [each["map"] for each in CASES + CLASS_CASES]
    for one, other in zip(printed, CASES + CLASS_CASES, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=0.0, atol=1e-15)


def test_answers_to_classes_of_the_release_are_those_of_today() -> None:
    for case in CLASS_CASES:
        found = MulticlassMap.model_validate(case["map"]).predict_many(case["scores"])
        np.testing.assert_allclose(found, case["answers"], rtol=0.0, atol=LARGEST_OF_CLASSES)


def test_javascript() -> None:
    check(program("node"), FOLDER / "check.mjs")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    classes = tmp_path_factory.mktemp("java")
    said(program("javac"), "-d", classes, *FOLDER.glob("*.java"))
    return classes


@pytest.mark.slow
def test_java(compiled: Path) -> None:
    check(program("java"), "-cp", compiled, "CheckMap")
