"""Guard: a test, as labels come, of whether the map's forecasts are worse than the score itself.

Compiled where there is a C compiler; `guard_c.pxd` has the types.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

import msgspec
import numpy as np

from streamcal.sketch.decoding import Count, Finite, require

__all__ = ["Guard", "GuardState"]

ALPHA: Final = 0.05
"""Bound on the probability that the guard ever changes sides without a reason."""

BETS: Final = 16
MOST_CHANGES: Final = 64

# As C has them.
_ALPHA, _BETS, _MOST_CHANGES = ALPHA, BETS, MOST_CHANGES
_LEAST_BET = 2.0**-4  # the largest is 2¹¹: differences may be as small as rare positives make them
_STARTS = 2.1097428012  # ∑ 1 / (n ln² n) over n ≥ 2

_Wealth = Annotated[list[Finite], msgspec.Meta(min_length=BETS, max_length=BETS)]


class GuardState(msgspec.Struct, array_like=True):
    """All of a `Guard`."""

    changes: Annotated[list[Count], msgspec.Meta(max_length=MOST_CHANGES)]
    labels: Count
    wealth: _Wealth


class Guard:
    """Decides whether the map's forecasts are served, or the score in their place.

    The score is served once it is sure that the Brier score of the map's forecasts is worse, from some label
    on; the map's forecasts are served again once it is sure that they are better, from some later label on.
    Each is an e-process (docs/proofs/verdict.md): of wealth that begins at each label anew with a share of 1,
    and bets on the next difference of the squared errors. With probability 1 − `ALPHA`, there is never a
    change while no label's expected difference speaks for it. After 64 changes there are no more.
    """

    def __init__(self) -> None:
        self.raw = False
        """Whether the score is served."""
        self._changes = list[int]()  # numbers of target scores that had been observed at each change
        self._labels = 0  # since the last change
        self._wealth = np.zeros(_BETS)

    @property
    def since(self) -> int | None:
        """Number of target scores that had been observed when the score was first served; None: it is not."""
        return self._changes[len(self._changes) - 1] if self.raw else None

    def was_raw(self, prediction_index: int) -> bool:
        """Whether a prediction was answered with its score, given the number of target scores before it."""
        at = len(self._changes)
        while at and self._changes[at - 1] > prediction_index:
            at -= 1
        return at % 2 == 1

    def take(self, score: float, forecast: float, label: int, weight: float, observed: int) -> None:
        """Take a label of the target, the forecast of the map for its prediction, and the label's weight.

        Parameters
        ----------
        observed
            number of target scores that have been observed so far.
        """
        most = weight * abs(forecast - score) * max(forecast + score, 2.0 - forecast - score)
        if most <= 0.0 or len(self._changes) >= _MOST_CHANGES:
            return
        difference = weight * (forecast - score) * (forecast + score - 2.0 * label)
        if self.raw:
            difference = -difference
        self._labels += 1
        share = math.log(self._labels + 1.0)
        share = 1.0 / (_STARTS * _BETS * (self._labels + 1.0) * share * share)
        total, bet = 0.0, _LEAST_BET
        for each in range(_BETS):
            # Each bet is known before the label, and never stakes more than half.
            wealth = (self._wealth[each] + share) * (1.0 + min(bet, 0.5 / most) * difference)
            self._wealth[each] = wealth
            total += wealth
            bet *= 2.0
        count = len(self._changes) + 1
        if total * _ALPHA >= count * (count + 1.0):
            self._changes.append(observed)
            self.raw = not self.raw
            self._labels = 0
            for each in range(_BETS):
                self._wealth[each] = 0.0

    def to_state(self) -> GuardState:
        """Return the state."""
        return GuardState(list(self._changes), self._labels, np.asarray(self._wealth).tolist())

    def restore(self, state: GuardState) -> None:
        """Go on from a state; raise ValueError if there cannot be such a one."""
        changes, wealth = state.changes, np.array(state.wealth)
        require(changes == sorted(changes), "changes of a guard in their order")
        require(bool((wealth >= 0.0).all()), "wealth of a guard that is not negative")
        self._changes, self._labels, self._wealth = changes, state.labels, wealth
        self.raw = len(changes) % 2 == 1
