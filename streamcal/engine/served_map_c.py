"""ServedMap: the map that an engine serves now, arranged to answer one score quickly, and its class priors.

The map is g∘h: h changes with a map version, the weights of g with every label.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from streamcal.engine.domain_labels import DomainLabels
from streamcal.events import Domain
from streamcal.maps import functions_c
from streamcal.maps.functions_c import LinearFunction, StepFunction
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT
from streamcal.mixture.forecasts_c import MixedSteps
from streamcal.mixture.mixture import Mixed
from streamcal.priors.score_tracker import ScoreTracker
from streamcal.sketch import checks
from streamcal.values import Floats

__all__ = ["ClassPriors", "ServedMap"]


class ClassPriors:
    """Estimates of P[Y=1] and Q[Y=1] as of the latest label.

    Parameters
    ----------
    tracker
        tracker of the target's prior by its scores; None: the prior follows from its labels.
    source, target
        the labels of each domain.
    """

    def __init__(self, tracker: ScoreTracker | None, source: DomainLabels, target: DomainLabels) -> None:
        self._source, self._target = source, target
        self.tracker = tracker

    @property
    def takes_scores(self) -> bool:
        """Whether the target's prior is estimated from its scores."""
        return self.tracker is not None

    def of(self, domain: Domain) -> float | None:
        """Return the estimate for a domain, in (0, 1); None if nothing is known."""
        if domain == "target" and self.tracker is not None:
            return self.tracker.prior
        labels = self._target if domain == "target" else self._source
        positives, n = float(labels.positives), float(labels.n)
        if labels.windowed or labels.weighted:
            positives, n = labels.remembered
        return functions_c.class_prior(positives, n)

    @property
    def from_scores(self) -> float | None:
        """The target's prior, if scores are evidence for it; else None."""
        return None if self.tracker is None else self.tracker.prior

    def weights(self) -> tuple[float, float]:
        """Return (w₀, w₁) of the shift correction (eq. 13)."""
        return functions_c.shift_weights(self.of("source"), self.of("target"))

    def read_scores(self, scores: Floats) -> None:
        """Read the scores of the latest predictions, float64[k], where they are evidence."""
        if self.tracker is not None:
            self.tracker.take_scores(scores)

    def set_source(self, formed: RecalibrationMap) -> None:
        """Replace the source map, through which scores are evidence of the target's prior."""
        if self.tracker is not None:
            prior = self.of("source")
            self.tracker.set_source(formed.edges, formed.values, 0.5 if prior is None else prior)


class ServedMap:
    """The function from scores to probabilities that is served.

    Parameters
    ----------
    priors
        class priors, which give the weights of the shift correction g; None: h is served without correction.
    first
        map to serve before the first version, of version 0.
    """

    def __init__(self, priors: ClassPriors | None, first: RecalibrationMap) -> None:
        self._priors = priors
        self.shifts = priors is not None
        """Whether g is applied on top of h, so that every label moves the map."""
        self._weights: tuple[float, float] | None = NO_SHIFT
        self._mixed: Mixed | None = None  # a map that nobody has asked for yet
        self._mixture: MixedSteps | None = None  # what it says of single scores
        self._steps: StepFunction | None = None
        self._line: LinearFunction | None = None
        self.version = 0
        """Number of the map version."""
        self.serve(first, 0)

    @property
    def base(self) -> RecalibrationMap:
        """The map h; its own version and weights are ignored."""
        if self._mixed is not None:
            self._use(self._mixed.map)
        return self._base

    @property
    def map(self) -> RecalibrationMap:
        """Map for users: h with its version and the weights of g."""
        return self.base.model_copy(update={"version": self.version, "weights": self.weights_now()})

    def snapshot(self) -> Callable[[], RecalibrationMap]:
        """Return a function that returns `map` as it is now, formed when it is first asked for."""
        base = self._base if self._mixed is None else self._mixed
        return cache(partial(_formed, base, {"version": self.version, "weights": self.weights_now()}))

    def serve(self, base: RecalibrationMap | Mixed, version: int) -> None:
        """Serve another h from now on. A mixed one is evaluated when it is first asked for."""
        self.version = version
        self.forget_weights()
        if isinstance(base, Mixed):
            self._mixed, self._mixture = base, base.steps
        else:
            self._use(base)

    def _use(self, base: RecalibrationMap) -> None:
        self._base, self._mixed, self._mixture = base, None, None
        function = base.function
        self._steps = function if isinstance(function, StepFunction) else None
        self._line = function if isinstance(function, LinearFunction) else None

    def weights_now(self) -> tuple[float, float]:
        """Return (w₀, w₁) of g, as of the latest label."""
        if self._weights is None and self._priors is not None:
            self._weights = self._priors.weights()
        return self._weights  # type: ignore[return-value]

    def forget_weights(self) -> None:
        """Compute the weights anew when they are next needed: the priors have moved."""
        if self.shifts:
            self._weights = None

    def predict_one(self, score: object) -> float:
        """Return the probability of one score; see `Recalibrator.predict_one`."""
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = checks.check_score(score)
        return self.forecast(score)

    def forecast(self, score: float) -> float:
        """Return the probability of one checked score."""
        probability = score
        if self._mixture is not None:
            probability = self._mixture.one(score)
        elif self._steps is not None:
            probability = self._steps.one(score)
        elif self._line is not None:
            probability = self._line.one(score)
        if not self.shifts:
            return probability
        return functions_c.shift_correction_one(probability, self.weights_now())

    def predict_many(self, scores: Floats) -> Floats:
        """Return the probabilities of checked scores, float64[n]."""
        return self.base.apply_checked(scores, self.weights_now())


def _formed(base: RecalibrationMap | Mixed, update: dict[str, Any]) -> RecalibrationMap:
    """Return a map with its version and weights."""
    return (base.map if isinstance(base, Mixed) else base).model_copy(update=update)
