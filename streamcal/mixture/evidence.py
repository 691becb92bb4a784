"""Evidence from positives that come before a label is final, by which the weights are tilted.

The weights follow losses on final labels, whose predictions are as old as a label takes. The loss of a
forecast on the predictions since is estimated without bias: with E exposures and S early positives of a
score,
the log loss of the forecast q is −S·log q − (E − S)·log(1 − q) (docs/proofs/exposure.md). The served weights
are the weights by final labels times e^(−trust·loss / 2). The tilt is not learned, because the same
predictions come again, with their labels.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np

from streamcal.maps.platt import IDENTITY
from streamcal.mixture.forecasts import Points
from streamcal.mixture.names import DELAYED
from streamcal.sketch.decoding import require, within
from streamcal.values import Floats

__all__ = ["NO_EVIDENCE", "Evidence"]

_OWN: Final = len(DELAYED)
_HEAD: Final = 1 + 2 * _OWN
_MOST: Final = 1e15
# Half of the rate at which the log loss is mixable: two of the maps are fitted to the same positives.
_RATE: Final = 0.5
_LEAST: Final = 1e-5  # a forecast closer to 0 or 1 counts as this one


class Evidence(NamedTuple):
    """Counts of early positives and exposures by score, and the maps fitted to them."""

    platt: Floats
    """Parameters (a, b) of `names.DELAYED`, float64[2, 2]."""
    points: Points
    """Scores, m of them, at which predictions and positives are counted."""
    exposures: Floats
    """Exposures of each score, float64[m]: each prediction counts by the share of positives that have come by
    now."""
    positives: Floats
    """Early positives of each score, float64[m]."""
    trust: float
    """Trust in the evidence, in [0, 1], a factor on its losses; at 0 it changes nothing."""

    def tilt(self, weights: Floats, forecasts: Floats) -> Floats:
        """Return the weights to serve, float64[K].

        Parameters
        ----------
        weights
            float64[K], not negative, with sum 1.
        forecasts
            forecasts of each candidate for the points, float64[K, m].
        """
        if not len(self.exposures) or not self.trust:
            return weights
        clipped = np.clip(forecasts, _LEAST, 1.0 - _LEAST)
        negatives = np.maximum(self.exposures - self.positives, 0.0)  # chance may tell more than there can be
        losses = -np.log(clipped).dot(self.positives) - np.log1p(-clipped).dot(negatives)
        losses -= losses[weights > 0.0].min()
        tilted: Floats = weights * np.exp(-_RATE * self.trust * np.maximum(losses, 0.0))
        return tilted / float(tilted.sum())

    def to_state(self) -> Floats:
        """Return the state, float64[5 + 3 m]."""
        head = self.trust, *self.platt.ravel().tolist()
        return np.concatenate((head, self.points.scores, self.exposures, self.positives))

    @classmethod
    def restored(cls, state: Floats) -> Self:
        """Return the evidence of a state."""
        require(len(state) >= _HEAD, f"{len(state)} numbers for the evidence")
        scores, exposures, positives = within(state, -_MOST, _MOST, "evidence")[_HEAD:].reshape(3, -1)
        trust = float(state[0])
        within(state[:1], 0.0, 1.0, "trust in the evidence")
        within(scores, 0.0, 1.0, "scores of the evidence")
        within(state[_HEAD:], 0.0, _MOST, "counts of the evidence")
        return cls(state[1:_HEAD].reshape(_OWN, 2), Points.of(scores), exposures, positives, trust)


NO_EVIDENCE: Final = Evidence(
    np.tile(np.array(IDENTITY), (_OWN, 1)), Points.of(np.empty(0)), np.empty(0), np.empty(0), 0.0
)
"""Evidence before enough positives came: the exposures' maps change nothing."""
