"""What is compiled gives what the same file gives as Python, to the last bit."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import streamcal
from streamcal.mixture import newton
from streamcal.testing import NormalPair

FILE = Path(streamcal.__file__).parent / "mixture" / "newton.py"


@pytest.fixture(scope="module")
def plain() -> ModuleType:
    """Return the module as Python; there is nothing to compare where that is the only one."""
    if not streamcal.compiled:
        if os.environ.get("CI"):
            pytest.fail("nothing was compiled")
        pytest.skip("nothing was compiled: there was no C compiler at the installation")
    spec = importlib.util.spec_from_file_location("newton_in_python", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.compiled
    return module


@pytest.mark.parametrize("weighed", [False, True])
def test_online_platt_scalings_are_those_of_python(plain: ModuleType, weighed: bool) -> None:
    rng = np.random.default_rng(1)
    compiled, python = newton.OnlinePlatt(), plain.OnlinePlatt()
    for n in (1, 31, 32, 33, 0, 500, 7):
        logits, labels = rng.normal(0.0, 9.0, n).clip(-27.7, 27.7), (rng.random(n) < 0.3).astype(np.int8)
        shares = rng.uniform(0.1, 9.0, n) if weighed else None
        for each in (compiled, python):
            each.learn(logits, labels, shares)
        assert np.array_equal(compiled.to_state(), python.to_state())


FROM_PYTHON = """
import importlib.util, sys

class FromPython:
    def find_spec(self, name, path=None, target=None):
        if name == "streamcal.mixture.newton":
            return importlib.util.spec_from_file_location(name, sys.argv[1])

sys.meta_path.insert(0, FromPython())
from tests.mixture.test_compiled import learned
import streamcal
sys.stdout.write(f"{streamcal.compiled} {learned()}")
"""


def learned() -> str:
    """Return the state of an engine after 2,000 labels, as hexadecimal digits."""
    engine = streamcal.Recalibrator()
    scores, labels = NormalPair(0.3).sample(2000, np.random.default_rng(2))
    for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
        engine.learn_one(score, label)
    return engine.to_bytes().hex()


@pytest.mark.slow
def test_an_engine_where_nothing_is_compiled_is_the_same() -> None:
    """As after an installation without a C compiler."""
    command = [sys.executable, "-c", FROM_PYTHON, str(FILE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert done.stdout == f"False {learned()}"
