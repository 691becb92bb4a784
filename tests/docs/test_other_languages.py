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

from streamcal import RecalibrationMap
from tests.spark.maps import LARGEST_DIFFERENCE

FOLDER = Path(__file__).parents[2] / "examples" / "languages"
VECTORS = FOLDER / "maps.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())


def said(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None and not os.environ.get("CI"):
        pytest.skip(f"needs {name} on the path")
    return found or name


def check(printed: str) -> None:
    """Fail unless all answers were compared, and are right."""
    answers, off = re.findall(r"\d[\d.eE-]*", printed)
    assert int(answers) == sum(len(case["answers"]) for case in CASES) > 1000
    assert float(off) <= LARGEST_DIFFERENCE


def test_answers_of_the_release_are_those_of_today() -> None:
    for case in CASES:
        recalibration = RecalibrationMap.model_validate(case["map"])
        largest = LARGEST_DIFFERENCE if recalibration.knots else 0.0
        many = recalibration.predict_many(case["scores"])
        one = [recalibration.predict_one(score) for score in case["scores"]]
        np.testing.assert_allclose([many, one], [case["answers"]] * 2, rtol=0.0, atol=largest)


def test_the_command_prints_the_vectors() -> None:
    printed = json.loads(said(sys.executable, FOLDER / "vectors.py"))
    assert [each["map"] for each in printed] == [each["map"] for each in CASES]
    for one, other in zip(printed, CASES, strict=True):
        np.testing.assert_allclose(one["scores"], other["scores"], rtol=0.0, atol=1e-15)


def test_javascript() -> None:
    check(said(program("node"), FOLDER / "check.mjs", VECTORS))


@pytest.mark.slow
def test_java(tmp_path: Path) -> None:
    said(program("javac"), "-d", tmp_path, *FOLDER.glob("*.java"))
    check(said(program("java"), "-cp", tmp_path, "CheckMap", VECTORS))
