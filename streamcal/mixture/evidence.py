"""Evidence from positives that come before a label is final, by which the weights are tilted.

The weights follow losses on final labels, whose predictions are as old as a label takes. The loss of a
forecast on the predictions since is estimated without bias: with E exposures and S early positives of a
score, the log loss of the forecast q is −S·log q − (E − S)·log(1 − q) (docs/proofs/exposure.md). The served
weights are the weights by final labels times e^(−trust·loss / 2). How many positives are still to come is not
known before predictions have been final: a candidate's loss is compared with the best one's under the number
that favours the candidate most. The tilt is not learned, because the same predictions come again, with their
labels.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import numpy as np

from streamcal.base.values import Floats
from streamcal.maps.platt import IDENTITY, wide_logit
from streamcal.mixture.candidates import EARLY
from streamcal.mixture.forecasts_c import Snapshot, forecast
from streamcal.sketch.decoding import Probability

Scale = Annotated[float, msgspec.Meta(ge=1e-3, le=1e3)]  # factor on exposures
# Half of the rate at which the log loss is mixable: two of the maps are fitted to the same positives.
_RATE: Final = 0.5
_SCALES: Final = 5  # factors that are tried, from the smallest to the largest
_LEAST: Final = 1e-5  # a forecast closer to 0 or 1 counts as this one


class Evidence(msgspec.Struct, frozen=True):
    """Counts of early positives and exposures by score, and the maps fitted to them: its own state."""

    platt: Floats
    """Parameters (a, b) of each of `candidates.EARLY`, float64[4]."""
    scores: Floats
    """Scores, m of them, at which predictions and positives are counted."""
    exposures: Floats
    """Exposures of each score, float64[m]: each prediction counts by the share of positives that have come by
    now."""
    positives: Floats
    """Early positives of each score, float64[m]."""
    trust: Probability
    """Trust in the evidence, a factor on its losses; at 0 it changes nothing."""
    scales: tuple[Scale, Scale] = (1.0, 1.0)
    """Smallest and largest factor by which the exposures may differ from the true ones."""

    def tilt(self, weights: Floats, forecasts: Floats) -> Floats:
        """Return the weights to serve, float64[K].

        Parameters
        ----------
        weights
            float64[K], not negative, with sum 1.
        forecasts
            forecasts of each candidate for the scores, float64[K, m].
        """
        if not len(self.exposures) or not self.trust:
            return weights
        clipped = np.clip(forecasts, _LEAST, 1.0 - _LEAST)
        of_positives, of_negatives = -np.log(clipped).dot(self.positives), -np.log1p(-clipped)
        excess = np.full(len(weights), np.inf)
        for scale in np.unique(np.geomspace(*self.scales, _SCALES)):  # one, once labels are final
            negatives = np.maximum(scale * self.exposures - self.positives, 0.0)  # chance may bring more
            losses = of_positives + of_negatives.dot(negatives)
            excess = np.minimum(excess, losses - losses[weights > 0.0].min())
        tilted: Floats = weights * np.exp(-_RATE * self.trust * np.maximum(excess, 0.0))
        return tilted / float(tilted.sum())


NO_EVIDENCE: Final = Evidence(np.array(IDENTITY * len(EARLY)), np.empty(0), np.empty(0), np.empty(0), 0.0)
"""Evidence before enough positives came: its maps change nothing."""


def forecasts(snapshot: Snapshot, scores: Floats, logits: Floats | None = None) -> Floats:
    """Return the forecast of every candidate for every score, float64[K, n] in [0, 1].

    ``logits`` are the `wide_logit` of the scores, float64[n]; None: they are computed.
    """
    values = np.empty((snapshot.weights.shape[1], len(scores)))
    forecast(snapshot, scores, wide_logit(scores) if logits is None else logits, values)
    return values
