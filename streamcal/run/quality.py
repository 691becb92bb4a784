"""How good forecasts were, by their labels: log loss, calibration error, reliability diagram; streamed.

What is kept is bounded, and depends on the order of the labels alone, not on how they were cut into
micro-batches: a run that was killed and resumed gives the figures of one that was not, to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.maps import binning
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["ECE_BINS", "ForecastQuality", "ForecastQualityState", "Quality"]

ECE_BINS: Final = 15
"""The bins of the calibration error: of equal width, from k/15 up to (k + 1)/15 (Guo et al. 2017)."""

_CELLS: Final = 512  # of the sketch that the diagram is drawn from: some kilobytes of every commit
_LEAST: Final = 1e-15

Values = npt.NDArray[np.float64]


class ForecastQualityState(msgspec.Struct):
    """All of a `ForecastQuality`."""

    log_losses: float
    bins: list[list[float]]
    sketch: bytes


class ForecastQuality:
    """How good the forecasts of one stream were.

    Examples
    --------
    >>> quality = ForecastQuality()
    >>> quality.add([0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1])
    >>> round(quality.log_loss, 4), quality.calibration_error
    (0.5623, 0.25)
    """

    def __init__(self) -> None:
        self._log_losses = 0.0
        self._bins = np.zeros((3, ECE_BINS))  # labels, sum of forecasts, positives
        self._sketch = ScoreSketch(_CELLS)

    @property
    def labels(self) -> int:
        """How many labels there were."""
        return self._sketch.n

    @property
    def positives(self) -> int:
        """Those of them that are 1."""
        return self._sketch.n_positives

    @property
    def log_loss(self) -> float | None:
        """Mean of −ln of the probability that was given to the label, at least 10⁻¹⁵; None without labels."""
        return self._log_losses / self.labels if self.labels else None

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error (ECE) over `ECE_BINS` bins of equal width; None without labels."""
        if not self.labels:
            return None
        _, forecasts, positives = self._bins
        return float(np.abs(forecasts - positives).sum() / self.labels)

    def add(self, forecasts: Sequence[float], labels: Sequence[int]) -> None:
        """Add forecasts in [0, 1] with their labels, 0 or 1."""
        losses = [
            -math.log(max(forecast if label else 1.0 - forecast, _LEAST))
            for forecast, label in zip(forecasts, labels, strict=True)
        ]
        # Summed one by one, behind what there is: it makes no difference how labels come in parts.
        self._log_losses = float(np.cumsum([self._log_losses, *losses])[-1])
        values = np.array(forecasts, np.float64)
        bins = np.minimum((values * ECE_BINS).astype(np.int64), ECE_BINS - 1)
        where = np.concatenate([np.arange(ECE_BINS), bins])
        for row, added in enumerate((np.ones(len(values)), values, np.array(labels, np.float64))):
            self._bins[row] = np.bincount(where, np.concatenate([self._bins[row], added]), ECE_BINS)
        self._sketch.add(values, labels)

    def diagram(self, bins: int) -> tuple[Values, Values]:
        """Return the mean forecast and the rate of label 1 of at most ``bins`` bins of equal mass.

        Both arrays are float64[bins]; there has to be a label. The rates are exact; a forecast counts as the
        middle of its cell.
        """
        cells, (negatives, positives), level = self._sketch.cells, self._sketch.counts, self._sketch.level
        totals = negatives + positives
        splits = binning.uniform_mass(totals, bins)
        middle = (grid.left_edges(cells, level) + grid.left_edges(cells + np.int32(1), level)) / 2.0
        mass = binning.bin_sums(totals, splits)
        forecasts = np.add.reduceat(totals * middle, splits[:-1]) / mass
        return forecasts, binning.bin_sums(positives, splits) / mass

    @property
    def state(self) -> ForecastQualityState:
        """All of it, to be stored."""
        return ForecastQualityState(self._log_losses, self._bins.tolist(), self._sketch.to_bytes())

    @classmethod
    def restore(cls, state: ForecastQualityState) -> Self:
        """Go on from a state.

        Raises
        ------
        DamagedStateError
            if it is none.
        """
        made = cls()
        if [len(row) for row in state.bins] != [ECE_BINS] * len(made._bins):
            raise DamagedStateError(
                f"the calibration error has {ECE_BINS} bins of 3 numbers, not {state.bins}"
            )
        made._log_losses = state.log_losses
        made._bins = np.array(state.bins, np.float64)
        made._sketch = ScoreSketch.from_bytes(state.sketch)
        return made


class Quality(msgspec.Struct):
    """What the joined labels say of the forecasts that were given before them."""

    before: ForecastQuality
    """Of the scores."""
    after: ForecastQuality
    """Of the recalibrated probabilities, each of its time."""
