"""Labels per cell to which logistic curves are fitted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Case = tuple[Floats, Floats, Floats]


def drawn(seed: int, slope: float, intercept: float, spread: float, n: int, cells: int = 60) -> Case:
    """Return logits of cells, ascending, with positives and totals, float64[cells]; some may be empty."""
    rng = np.random.default_rng(seed)
    logits = np.clip(np.sort(rng.normal(0.0, spread, cells)), -27.7, 27.7)
    totals = rng.multinomial(n, np.full(cells, 1.0 / cells))
    positives = rng.binomial(totals, 1.0 / (1.0 + np.exp(-(slope * logits + intercept))))
    return logits, positives.astype(float), totals.astype(float)


CASES = [
    drawn(1, 1.0, 0.0, 2.0, 500),
    drawn(2, 4.0, -1.0, 1.0, 5000),
    drawn(3, 0.1, -2.5, 20.0, 2000),  # saturated scores that mean little
    drawn(4, 30.0, 0.0, 3.0, 800),  # all but separable
    drawn(5, -0.7, 1.0, 1.0, 300),
    drawn(6, 1.0, 0.0, 2.0, 1),
]
