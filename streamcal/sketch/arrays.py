"""The array types that sketches and maps share; one-dimensional unless a docstring says otherwise."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["AT_ONCE", "IN_CALL", "Cells", "Counts", "Labels", "Scores", "Units"]

AT_ONCE: Final = -1
"""Stand-in for the number of scores observed before a prediction: its label came together with it."""

IN_CALL: Final = -2
"""Stand-in like `AT_ONCE` for a label that came in one call with the label before it: both were predicted
before the call."""

Scores = npt.NDArray[np.float64]
"""Scores, each in [0, 1]."""

Labels = npt.NDArray[np.int8]
"""Labels, each 0 or 1."""

Cells = npt.NDArray[np.int32]
"""Cells of the dyadic grid, all of one level."""

Counts = npt.NDArray[np.int64]
"""Counts of labels or scores."""

Units = npt.NDArray[np.int64]
"""Weights of labels in units of 1/256, each positive: see `streamcal.sketch.weighing`."""
