"""Weights of the candidates for K classes: those of mode ``auto`` (`streamcal.mixture.weights`), by log loss.

A candidate is scored by the probability that it gave to the class of the label: what it forecast when the
prediction was made, and what it forecasts when the label arrives. Two trackers move weights by either, and
are weighed in turn. The recursion and its theorems (docs/proofs/mixture.md) only know losses, so they hold
for K classes as they stand.
"""

from __future__ import annotations

import math
from typing import Final, Self

import numpy as np

from streamcal.base.values import Bytes, Flags, Floats
from streamcal.engine.multiclass.softmax_c import log_losses
from streamcal.mixture.forecasts_c import Rates, move
from streamcal.mixture.weights import Credit, pay
from streamcal.sketch.decoding import Count, Finite, Part

_RATE: Final = 0.1
"""η times the mixture's mean loss a label, where η is below its maximum of 1: candidates for K classes differ
by more than maps of one score."""

_LATE: Final = 250.0
"""Delay, in predictions, at which the rate is half as large: late labels tell of what was right then.

Labels in bulk all count as late as the first of them: else those of the last predictions would decide what is
served until the next bulk."""

_EARLY: Final = 100.0
"""Increase of the rate at the beginning, a tenth of that of mode ``auto``: the first labels judge candidates
with many parameters while these begin. A delay does not lessen it."""

_SHARE: Final = 1e-4
"""Part of the weights that goes back at a label as uncertain as a coin toss."""

_NEW: Final = 1000.0
"""Increase of the share at the beginning: candidates that learn more slowly come back."""

_LEAD_RATE: Final = 0.01
_TRUST: Final = 0.8
_RATES: Final = Rates(_RATE, _EARLY, _SHARE, _LEAD_RATE, _TRUST)
_COMPOSITES: Final = 0.5  # of the first weight, with a source: they need few labels
_FIRST_LABELS: Final = 100.0  # as uncertain as coin tosses, from which the mean loss starts


class ClassWeights(Part, dict=True):
    """The weights of M candidates; its fields are its state, and `of` must follow."""

    served: Floats
    """Weights of the candidates, and behind them the weights by each tracker, float64[3, M]."""
    loss: Floats
    """Discounted sums of the log loss by each tracker, and of labels, float64[3]."""
    lead: Finite
    """Lead of the first tracker, in log odds of its weight."""
    credit: Credit = 0.0
    """See `streamcal.mixture.weights.Weights`."""
    late: Finite = 0.0
    """Delay of the labels of a bulk that came first, less the predictions made since."""
    observed: Count = 0
    """Number of scores observed before the latest labels."""

    @classmethod
    def begun(cls, first: Floats, shift: Flags) -> Self:
        """Return the first weights; parameters are those of `of`."""
        loss = _FIRST_LABELS * np.array((_RATES.coin, _RATES.coin, 1.0))
        lead = math.log(_TRUST / (1.0 - _TRUST))
        return cls(np.tile(first, (3, 1)), loss, lead).of(first, shift)

    def of(self, first: Floats, shift: Flags | Bytes) -> Self:
        """Return these as the weights of candidates; raise ValueError if they are those of others.

        Parameters
        ----------
        first
            The first weights, float64[M], and what they go back to.
        shift
            mask of the candidates that assume label shift, bool[M]: they sleep on labels of the source.
        """
        self.served, self.loss = self.served.reshape(3, len(first)), self.loss.reshape(3)
        self._first, self._shift = first, shift.astype(np.uint8)
        return self

    def track(
        self, given: Floats, shares: Floats, late: float, *, earlier: int | None, observed: int | None
    ) -> None:
        """Move the weights by log losses.

        Parameters
        ----------
        given
            probabilities of the labels' classes by each candidate, as of the prediction, and on arrival; and
            by the two trackers' mixtures as of the prediction: float64[n, 2 M + 2].
        shares
            what each label counts for, float64[n].
        late
            how many scores have been observed since the prediction, on average.
        earlier
            number of target labels that came before; None: labels of the source.
        observed
            number of scores observed by now; None: it is not known when the labels were predicted.
        """
        n, width = given.shape
        lost: Floats = np.empty((width, n))
        log_losses(given, shares, 0.5 / (1.0 + (earlier or 0) + n), lost)
        losses, tracked = lost[:-2].reshape(2, -1, n), lost[-2:]
        asleep = self._shift if earlier is None else np.zeros_like(self._shift)
        before = -1.0 if earlier is None else float(earlier)
        made = None if observed is None else observed - self.observed
        self.credit, part = pay(self.credit, made, n)
        self.late = late if made is None else max(late, self.late - made)
        if observed is not None:
            self.observed = observed
        slower = 1.0 + self.late / _LATE
        newer = part if earlier is None else part * (1.0 + _NEW / (earlier + 32.0))
        # However late, the first labels teach as fast.
        rates = _RATES._replace(rate=_RATE / slower, early=_EARLY * slower, share=_SHARE * newer)
        sums, first = self.loss, self._first
        self.lead = move(self.served, sums, self.lead, losses, tracked, shares, first, asleep, before, rates)

    def admit_shift(self) -> None:
        """Let the candidates that assume label shift take part: they get their share from the others."""
        shift = self._shift.astype(np.float64)
        self._first = (1.0 - _COMPOSITES) * self._first + _COMPOSITES * shift / shift.sum()
        self.served = (1.0 - _COMPOSITES) * self.served + _COMPOSITES * shift / shift.sum()
