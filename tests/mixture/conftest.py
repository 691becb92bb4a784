"""What tests of the mixture share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair


@pytest.fixture(scope="session")
def source_of() -> Callable[[int, float, int], ScoreSketch]:
    """Draw n labelled scores of a source with this prior and seed; give their sketch."""

    def draw(n: int, prior: float, seed: int) -> ScoreSketch:
        sketch = ScoreSketch()
        sketch.add(*NormalPair(prior).sample(n, np.random.default_rng(seed)))
        return sketch

    return draw
