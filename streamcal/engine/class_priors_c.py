"""ClassPriors: the running class priors of both domains, and the weights that follow from them."""

from __future__ import annotations

from typing import Self

from streamcal.engine.domain_labels import DomainLabels
from streamcal.events import Domain
from streamcal.maps import shift_c
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.priors.score_tracker import ScoreState, ScoreTracker
from streamcal.values import Floats

__all__ = ["ClassPriors"]


class ClassPriors:
    """Estimates of P[Y=1] and Q[Y=1] as of the latest label.

    Parameters
    ----------
    takes_scores
        whether the target's prior is estimated from its scores, not from its labels.
    source, target
        the labels of each domain.
    """

    def __init__(self, takes_scores: bool, source: DomainLabels, target: DomainLabels) -> None:
        self._source, self._target = source, target
        self._tracker = ScoreTracker() if takes_scores else None

    @property
    def takes_scores(self) -> bool:
        """Whether the target's prior is estimated from its scores."""
        return self._tracker is not None

    def of(self, domain: Domain) -> float | None:
        """Return the estimate for a domain, in (0, 1); None if nothing is known."""
        if domain == "target" and self._tracker is not None:
            return self._tracker.prior
        labels = self._target if domain == "target" else self._source
        positives, n = float(labels.positives), float(labels.n)
        if labels.windowed or labels.weighted:
            positives, n = labels.remembered
        return shift_c.class_prior(positives, n)

    @property
    def from_scores(self) -> float | None:
        """The target's prior, if scores are evidence for it; else None."""
        return None if self._tracker is None else self._tracker.prior

    def weights(self) -> tuple[float, float]:
        """Return (w₀, w₁) of the shift correction (eq. 13)."""
        return shift_c.shift_weights(self.of("source"), self.of("target"))

    def read_scores(self, scores: Floats) -> None:
        """Read the scores of the latest predictions, float64[k], where they are evidence."""
        if self._tracker is not None:
            self._tracker.take_scores(scores)

    def set_source(self, formed: RecalibrationMap) -> None:
        """Replace the source map, through which scores are evidence of the target's prior."""
        if self._tracker is not None:
            prior = self.of("source")
            self._tracker.set_source(formed.edges, formed.values, 0.5 if prior is None else prior)

    def to_state(self) -> ScoreState | None:
        """Return the state; None where labels are only counted."""
        return None if self._tracker is None else self._tracker.to_state()

    def restore(self, state: ScoreState | None) -> Self:
        """Replace the state by another."""
        if self._tracker is not None and state is not None:
            self._tracker.restore(state)
        elif self._tracker is not None or state is not None:
            raise ValueError("the state of a prior from scores, where labels are counted, or none")
        return self
