"""ClassPriors: the running class priors of both domains, and the weights that follow from them."""

from __future__ import annotations

from typing import Final, Self

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.domain_labels import DomainLabels
from streamcal.events import Domain
from streamcal.maps import shift_c
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.priors.trackers import NO_LIMIT, PriorTracker, TrackerState, make_tracker
from streamcal.values import Floats

__all__ = ["ClassPriors"]

_LEAST: Final = 1e-6  # a prior estimated from scores is kept this far from 0 and 1


class ClassPriors:
    """Estimates of P[Y=1] and Q[Y=1] as of the latest label.

    Parameters
    ----------
    config
        options of the engine.
    source, target
        the labels of each domain.
    """

    def __init__(self, config: RecalibratorConfig, source: DomainLabels, target: DomainLabels) -> None:
        self._smoothing = config.prior_smoothing
        self._source, self._target = source, target
        self._by_scores = config.prior != "labels"
        self._tracker: PriorTracker | None = None
        if self._by_scores or config.prior_window is not None:
            # With scores, all evidence would be too much: what came before a change would outweigh, for long,
            # what came after it.
            window = config.prior_window or "adwin"
            self._tracker = make_tracker(config.prior, window, config.prior_smoothing)
        self._read = 0  # number of the first target label that the tracker has not read

    @property
    def takes_scores(self) -> bool:
        """Whether the target's scores are evidence, too."""
        return self._by_scores

    @property
    def reads_labels(self) -> bool:
        """Whether labels are read one by one, beyond their counts."""
        return self._tracker is not None

    @property
    def labels_until_due(self) -> int:
        """Number of target labels that may come before they must be read."""
        if self._tracker is None:
            return NO_LIMIT
        return self._tracker.labels_until_due - (self._target.end - self._read)

    def of(self, domain: Domain) -> float | None:
        """Return the estimate for a domain, in [0, 1]; None if nothing is known."""
        if domain == "target" and self._tracker is not None:
            self.read_labels()
            return self._tracker.prior
        return self._counted(self._source if domain == "source" else self._target)

    def _counted(self, labels: DomainLabels) -> float | None:
        """Return the estimate by the counts of a domain's labels; None without labels."""
        positives, n = float(labels.positives), float(labels.n)
        if labels.windowed or labels.weighted:
            positives, n = labels.remembered
        return shift_c.class_prior(positives, n, self._smoothing) if n else None

    @property
    def from_scores(self) -> float | None:
        """The target's prior inside (0, 1), if scores are evidence for it; else None."""
        prior = self.of("target") if self._by_scores else None
        return None if prior is None else min(max(prior, _LEAST), 1.0 - _LEAST)

    def weights(self) -> tuple[float, float]:
        """Return (w₀, w₁) of the shift correction (eq. 13)."""
        return shift_c.shift_weights(self.of("source"), self.of("target"))

    def read_labels(self) -> None:
        """Read the target's labels that came since the last time."""
        if self._tracker is not None and self._read < self._target.end:
            run = self._target.since(self._read)
            self._tracker.take_labels(run.labels, run.units)
            self._read = self._target.end

    def read_scores(self, scores: Floats) -> None:
        """Read the scores of the latest predictions, float64[k]."""
        if self._tracker is not None:
            self.read_labels()
            self._tracker.take_scores(scores)

    def set_source(self, formed: RecalibrationMap) -> None:
        """Replace the source map, through which scores are evidence of the target's prior."""
        if self._tracker is not None:
            self.read_labels()
            prior = self.of("source")
            self._tracker.set_source(formed.edges, formed.values, 0.5 if prior is None else prior)

    def to_state(self) -> TrackerState | None:
        """Return the state, all labels read; None where labels are only counted."""
        self.read_labels()
        return None if self._tracker is None else self._tracker.to_state()

    def restore(self, state: TrackerState | None) -> Self:
        """Replace the state by another; the target's labels must be restored before."""
        if self._tracker is not None:
            self._tracker.restore(state)
        elif state is not None:
            raise ValueError("the state of a prior, where labels are only counted")
        self._read = self._target.end
        return self
