"""MixtureController: decides in mode ``auto`` when the tracked mixture is mixed anew.

Maps that follow from the source's by label shift are candidates. An alarm that label shift is refuted
withdraws what is claimed by it; in the mixture, their losses decide how much these candidates count.
"""

from __future__ import annotations

from typing import Self

import msgspec

from streamcal.delayed.estimate import LEVEL
from streamcal.delayed.feedback import DelayedFeedback, FeedbackState
from streamcal.engine.domain_labels import DomainLabels
from streamcal.engine.unlabelled_scores import UnlabelledScores
from streamcal.mixture.candidates import known_names
from streamcal.mixture.evidence import Evidence
from streamcal.mixture.mixture import Mixed, Mixing, Mixture
from streamcal.sketch import grid
from streamcal.sketch.decoding import Number, require
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["ControllerState", "MixtureController"]


class ControllerState(msgspec.Struct, omit_defaults=True):
    """The state of `MixtureController`."""

    steps: Number
    mixing: Mixing | None
    mixture: Mixture | None
    uncounted: int
    delayed: FeedbackState | None = None


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
    """

    def __init__(
        self,
        source: DomainLabels,
        target: DomainLabels,
        unlabelled: UnlabelledScores,
        label_delay_limit: float | None = None,
    ) -> None:
        self._source, self._target, self._unlabelled = source, target, unlabelled
        self._delayed = None if label_delay_limit is None else DelayedFeedback(label_delay_limit)
        self._mixture: Mixture | None = None  # none before there is a label: of many keys most have few
        self._counted = 0  # number of the first target label that is not in the mixture
        self.begun = False
        """Whether there was a target label: from the first on, the mixture takes steps by their number."""
        self.mixed: Mixed | None = None
        """The map as it was last mixed; None before the first step."""
        self.steps = 0
        """Number of map versions that counts of target labels have begun."""

    @property
    def mixing(self) -> Mixing | None:
        """Weights of the mixture by candidate; None before the first step."""
        return None if self.mixed is None else self.mixed.mixing

    @property
    def labels_until_due(self) -> int:
        """Number of target labels that may come before `begin` or `step` is due."""
        if self._mixture is None or not self.begun:
            return 1
        return self._mixture.next_step - self._mixture.n - (self._target.end - self._counted)

    @property
    def observed(self) -> int:
        """Number of target scores observed before the last step; 0 if there is no mixture."""
        return 0 if self._mixture is None else self._mixture.observed

    @property
    def read(self) -> int:
        """The number of the first target label that is still to be read."""
        return self._counted if self.begun else self._target.end

    def begin(self, first: int) -> None:
        """Begin to learn at the first target label, of this number; the source's must be flushed."""
        mixture = self._mixture = self._mixture or self._new_mixture()
        newest = self._source.take_newest()
        if newest is not None:
            mixture.continue_from(*newest.latest(len(newest)))
        self.begun, self._counted = True, first

    def set_source(self, sketch: ScoreSketch) -> None:
        """Take this sketch of the source's labels for the candidates that follow from the source."""
        mixture = self._mixture = self._mixture or self._new_mixture()
        mixture.set_source(sketch)

    def step(self, prior: float | None, evidence: Evidence | None = None) -> None:
        """Learn the labels since the last step, fit what is due, and mix anew.

        Parameters
        ----------
        prior
            the target's prior as estimated with scores; None if the estimate does not use scores.
        evidence
            evidence of early positives from a pane that has closed; None: unchanged.
        """
        if evidence is not None and self._mixture is None:
            self._mixture = self._new_mixture()
        if self._mixture is not None:
            self.steps += self.begun and self.labels_until_due <= 0
            self._learn(self._mixture)
            self.mixed = self._mixture.step(self._unlabelled.n, prior, evidence)

    # Positives that come before a label is final

    def predict(self, score: float, time: float) -> bool:
        """Count a prediction of this event time; return whether there may be new `evidence`."""
        return self._delayed is not None and self._delayed.predict(score, time)

    def observe_early(self, score: float, predicted_at: float, labelled_at: float) -> bool:
        """Count a positive that comes before its label is final; return the same as `predict`."""
        delayed = self._delayed
        return delayed is not None and delayed.observe_early(score, predicted_at, labelled_at)

    def evidence(self) -> Evidence | None:
        """Return the evidence of early positives as of the last closed pane; None if they are too few."""
        estimate = None if self._delayed is None else self._delayed.estimate()
        if estimate is None:
            return None
        seen = estimate.exposures[1] > 0.0
        cells = estimate.cells[seen]
        scores = grid.middles(cells, LEVEL)
        exposures, positives = estimate.exposures[1, seen], estimate.positives[1, seen]
        return Evidence(estimate.platt.ravel(), scores, exposures, positives, estimate.trust)

    # State

    def to_state(self) -> ControllerState:
        """Return the state."""
        return ControllerState(
            self.steps,
            self.mixing,
            self._mixture,
            self._target.end - self._counted if self.begun else 0,
            None if self._delayed is None else self._delayed.to_state(),
        )

    def restore(self, state: ControllerState) -> Self:
        """Replace the state by another; the target's labels must be restored before."""
        if state.mixing is not None:
            mixed = {state.mixing.leader, *state.mixing.weights}
            require(mixed <= known_names(), "candidates are mixed that do not exist")
        self.steps, self._mixture, expected = state.steps, state.mixture, self._delayed is not None
        require(
            expected == (state.delayed is not None)
            and (self._mixture is None or self._mixture.delayed == expected),
            "delayed feedback does not fit the options",
        )
        if self._delayed is not None and state.delayed is not None:
            self._delayed.restore(state.delayed)
        self.begun = self._target.n > 0
        require(self._mixture or not self.begun, f"nothing is mixed after {self._target.n} labels")
        if state.mixing is not None and self._mixture is not None:
            self.mixed = self._mixture.mixed(state.mixing)
        self._counted = self._target.number_back(state.uncounted)
        return self

    # Inside

    def _new_mixture(self) -> Mixture:
        return Mixture(delayed=self._delayed is not None)

    def _learn(self, mixture: Mixture) -> None:
        if self.begun and self._counted < self._target.end:
            mixture.learn(*self._target.since(self._counted), self._unlabelled.n)
            self._counted = self._target.end
