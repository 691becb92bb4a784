"""The array types that sketches and maps share; one-dimensional unless a docstring says otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["Cells", "Counts", "Labels", "Scores", "Units"]

Scores = npt.NDArray[np.float64]
"""Scores, each in [0, 1]."""

Labels = npt.NDArray[np.int8]
"""Labels, each 0 or 1."""

Cells = npt.NDArray[np.int32]
"""Cells of the dyadic grid, all of one level."""

Counts = npt.NDArray[np.int64]
"""Numbers of labels or scores."""

Units = npt.NDArray[np.int64]
"""Weights of labels in units of 1/256, each positive: see `streamcal.sketch.weighing`."""
