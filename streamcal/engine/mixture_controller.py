"""MixtureController: decides in mode ``auto`` when the tracked mixture is mixed anew.

Maps that follow from the source's by label shift are candidates. An alarm that label shift is refuted
withdraws what is claimed by it; in the mixture, their losses decide how much these candidates count.
"""

from __future__ import annotations

from typing import Final

from streamcal.delayed.estimate import LEVEL
from streamcal.delayed.feedback import DelayedFeedback
from streamcal.engine.domain_labels import DomainLabels
from streamcal.engine.unlabelled_scores import UnlabelledScores
from streamcal.mixture.evidence import Evidence
from streamcal.mixture.mixture import Mixture
from streamcal.mixture.snapshots import next_step
from streamcal.mixture.table import Mixed
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

_FIRST_STEP: Final = next_step(0, at_once=False)


class MixtureController:
    """The mixture of an engine in mode ``auto``, with its source and its evidence.

    Parameters
    ----------
    source, target
        the labels of each domain, which the mixture reads.
    unlabelled
        the target's scores.
    label_delay_limit
        seconds after its prediction at which a label is final, and before which positives come; None: labels
        are learned when they come.
    mixture, feedback
        the state to start from: `mixture` and `feedback` of another, whose labels are those given. ValueError
        if they do not fit the other arguments. None: they are new.
    """

    def __init__(
        self,
        source: DomainLabels,
        target: DomainLabels,
        unlabelled: UnlabelledScores,
        label_delay_limit: float | None = None,
        mixture: Mixture | None = None,
        feedback: DelayedFeedback | None = None,
    ) -> None:
        self._source, self._target, self._unlabelled = source, target, unlabelled
        if feedback is None and label_delay_limit is not None:
            feedback = DelayedFeedback(label_delay_limit)
        self.feedback = feedback
        """Counts of positives that come before a label is final; None: there are none."""
        self.mixture = mixture
        """Mixture; None before the first step without a source, as of many keys most have few labels."""
        self.begun = source.newest is None
        """Whether the mixture learns target labels: from the first on, or the first turn of the engine."""
        self.mixed: Mixed | None = None if mixture is None else mixture.mixed
        """The map as it was last mixed; None before the first step."""
        self._counted = target.start  # number of the first target label that is not in the mixture

    @property
    def steps(self) -> int:
        """Number of map versions that counts of target labels have begun."""
        return 0 if self.mixture is None else self.mixture.steps

    @property
    def labels_until_due(self) -> int:
        """Number of target labels that may come before `begin` or `step` is due."""
        learned, due = 0, _FIRST_STEP if self.begun else 1
        if self.mixture is not None and self.begun:
            learned, due = self.mixture.n, self.mixture.next_step
        return due - learned - (self._target.end - self._counted)

    @property
    def read(self) -> int:
        """The number of the first target label that is still to be read."""
        return self._counted

    def begin(self) -> None:
        """Begin to learn target labels; the source's must be flushed."""
        newest, self._source.newest = self._source.newest, None
        if newest:
            mixture = self.mixture = self.mixture or self._new_mixture()
            mixture.continue_from(*newest.latest(len(newest)))
        self.begun = True

    def set_source(self, sketch: ScoreSketch) -> None:
        """Take this sketch of the source's labels for the candidates that follow from the source."""
        mixture = self.mixture = self.mixture or self._new_mixture()
        mixture.set_source(sketch)

    def step(self, prior: float | None, evidence: Evidence | None = None, odds: float | None = None) -> None:
        """Learn the labels since the last step, fit what is due, and mix anew.

        Parameters
        ----------
        prior
            the target's prior as estimated with scores; None if the estimate does not use scores.
        evidence
            evidence of early positives from a pane that has closed; None: unchanged.
        odds
            κ of the shift of the classes, if it is known; None: it is not.
        """
        if self.mixture is None and (self.begun or evidence is not None or odds is not None):
            self.mixture = self._new_mixture()
        if self.mixture is not None:
            self._learn(self.mixture)
            self.mixed = self.mixture.step(self._unlabelled.n, prior, evidence, odds)

    # Positives that come before a label is final

    def predict(self, score: float, time: float) -> bool:
        """Count a prediction of this event time; return whether there may be new `evidence`."""
        return self.feedback is not None and self.feedback.predict(score, time)

    def observe_early(self, score: float, predicted_at: float, labelled_at: float) -> bool:
        """Count a positive that comes before its label is final; return the same as `predict`."""
        delayed = self.feedback
        return delayed is not None and delayed.observe_early(score, predicted_at, labelled_at)

    def evidence(self) -> Evidence | None:
        """Return the evidence of early positives as of the last closed pane; None if they are too few."""
        estimate = None if self.feedback is None else self.feedback.estimate()
        if estimate is None:
            return None
        seen = estimate.exposures[1] > 0.0
        cells = estimate.cells[seen]
        scores = grid.middles(cells, LEVEL)
        exposures, positives = estimate.exposures[1, seen], estimate.positives[1, seen]
        return Evidence(estimate.platt.ravel(), scores, exposures, positives, estimate.trust, estimate.scales)

    # Inside

    def _new_mixture(self) -> Mixture:
        return Mixture.begun(delayed=self.feedback is not None)

    def _learn(self, mixture: Mixture) -> None:
        if self.begun and self._counted < self._target.end:
            mixture.learn(*self._target.since(self._counted), self._unlabelled.n)
            self._counted = self._target.end
