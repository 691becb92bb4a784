"""ServedMap: the map that an engine serves now, laid out to answer one score quickly.

It is g∘h: h changes with a map version, the weights of g with every label.
"""

from __future__ import annotations

from bisect import bisect_right

from streamcal.engine.class_priors import ClassPriors
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT, shift_correction_one, shift_corrections
from streamcal.mixture.mixture import Mixed
from streamcal.sketch import checks
from streamcal.sketch.arrays import Scores

__all__ = ["ServedMap"]


class ServedMap:
    """What turns scores into probabilities.

    Parameters
    ----------
    priors
        give the weights of the shift correction g; None: h is served without correction.
    """

    __slots__ = ("_base", "_curve", "_inner_edges", "_mixed", "_priors", "_values", "_weights", "version")

    def __init__(self, priors: ClassPriors | None) -> None:
        self._priors = priors
        self._weights: tuple[float, float] | None = None
        self._mixed: Mixed | None = None  # a map that is not laid out yet
        self.version = 0
        """The number of the map version."""
        self.serve(RecalibrationMap(version=0), 0)

    @property
    def base(self) -> RecalibrationMap:
        """h; its own version and weights do not count."""
        if self._mixed is not None:
            self._lay_out(self._mixed.map)
        return self._base

    @property
    def shifts(self) -> bool:
        """Whether g is applied on top of h, so that every label moves the map."""
        return self._priors is not None

    @property
    def weights(self) -> tuple[float, float]:
        """(w₀, w₁) of g, as of the latest label."""
        if self._priors is None:
            return NO_SHIFT
        if self._weights is None:
            self._weights = self._priors.weights()
        return self._weights

    @property
    def map(self) -> RecalibrationMap:
        """The map as users see it: h with its version and the weights of g."""
        return self.base.model_copy(update={"version": self.version, "weights": self.weights})

    def serve(self, base: RecalibrationMap | Mixed, version: int) -> None:
        """Serve another h from now on. A mixed one is laid out when it is first asked for."""
        self.version, self._weights = version, None
        if isinstance(base, Mixed):
            self._mixed = base
        else:
            self._lay_out(base)

    def _lay_out(self, base: RecalibrationMap) -> None:
        self._base, self._mixed = base, None
        # To read a field of a pydantic model takes as long as to search for a bin.
        self._inner_edges, self._values = base.edges[1:-1], base.values
        self._curve = base.curve  # neither: the identity

    def forget_weights(self) -> None:
        """Work the weights out anew when they are next needed: the priors have moved."""
        self._weights = None

    def predict_one(self, score: float) -> float:
        """Return the probability of one score; see `Recalibrator.predict_one`."""
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = checks.check_score(score)
        if self._mixed is not None:
            self._lay_out(self._mixed.map)
        if values := self._values:
            probability = values[bisect_right(self._inner_edges, score)]
        else:
            probability = score if self._curve is None else self._curve(score)
        if self._priors is None:
            return probability
        return shift_correction_one(probability, self._weights or self.weights)

    def predict_many(self, scores: Scores) -> Scores:
        """Return the probabilities of checked scores, float64[n]."""
        return self.base.apply_checked(scores, self.weights)

    def predict_ahead(self, scores: Scores, weights: Scores) -> Scores:
        """Return the probabilities of checked scores, float64[n], each under weights of its own, [n, 2]."""
        base = self.base.apply_checked(scores, NO_SHIFT)
        return shift_corrections(base, weights)
