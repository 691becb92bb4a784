"""What is compiled gives what the same file gives as Python, to the last bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import streamcal
from streamcal.mixture import newton_c
from streamcal.testing import NormalPair
from tests.uncompiled import uncompiled

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("weighed", [False, True])
def test_online_platt_scalings(weighed: bool) -> None:
    rng = np.random.default_rng(1)
    compiled = newton_c.OnlinePlatt()
    python = uncompiled("streamcal.mixture.newton_c").OnlinePlatt()
    for n in (1, 31, 32, 33, 0, 500, 7):
        logits, labels = rng.normal(0.0, 9.0, n).clip(-27.7, 27.7), (rng.random(n) < 0.3).astype(np.int8)
        shares = rng.uniform(0.1, 9.0, n) if weighed else None
        for each in (compiled, python):
            each.learn(logits, labels, shares)
        assert np.array_equal(compiled.to_state(), python.to_state())


UNCOMPILED = """
import sys
from tests.uncompiled import import_uncompiled

import_uncompiled()
import streamcal
from tests.test_compiled import learned

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
def test_an_engine_where_nothing_is_compiled() -> None:
    """As after an installation without a C compiler."""
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == f"False {learned()}"


def test_every_compiled_module_has_types_and_is_compiled() -> None:
    for path in (ROOT / "streamcal").rglob("*_c.py"):
        assert path.with_suffix(".pxd").exists(), path
        assert not streamcal.compiled or list(path.parent.glob(f"{path.stem}.*.*")), path
