"""What tests of the mixture share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.uniform_mass import form
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair


@pytest.fixture(scope="session")
def source_of() -> Callable[[int, float, int], tuple[RecalibrationMap, ScoreSketch]]:
    """Draw n labelled scores of a source with this prior and seed; give their uniform-mass map and sketch."""

    def draw(n: int, prior: float, seed: int) -> tuple[RecalibrationMap, ScoreSketch]:
        sketch = ScoreSketch()
        sketch.add(*NormalPair(prior).sample(n, np.random.default_rng(seed)))
        return form(sketch, "auto").map, sketch

    return draw
