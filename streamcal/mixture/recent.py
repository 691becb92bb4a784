"""The recent losses of the candidates, which explain why another candidate leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from streamcal.mixture.weights_c import add_up
from streamcal.sketch.decoding import MOST, within
from streamcal.values import Floats

__all__ = ["RecentLosses"]

_STRETCH: Final = 256


class RecentLosses:
    """Sums of log losses, in nats, over the last two stretches of labels: the current and the previous.

    A stretch ends at the first call of `add` after 256 labels.

    Parameters
    ----------
    names
        names of the K candidates.
    """

    __slots__ = ("_labels", "_names", "_sums")

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self.clear()

    def clear(self) -> None:
        """Forget all losses."""
        self._sums: Floats = np.zeros((2, len(self._names)))
        self._labels = [0, 0]

    def add(self, losses: Floats) -> None:
        """Add the losses of the candidates on n labels, the first of float64[k, K, n]."""
        if self._labels[1] >= _STRETCH:
            self._sums = np.stack((self._sums[1], np.zeros(len(self._names))))
            self._labels = [self._labels[1], 0]
        add_up(losses, self._sums)
        self._labels[1] += losses.shape[2]

    def compare(self, before: int, leader: int) -> str | None:
        """Return in words how the losses of two candidates differ, by index; None without losses."""
        labels = sum(self._labels)
        if not labels:
            return None
        change = float(self._sums[:, before].sum() - self._sums[:, leader].sum()) / labels
        than = "less" if change >= 0.0 else "more"
        return (
            f"{self._names[leader]} has lost {abs(change):.3g} nats {than} per label than "
            f"{self._names[before]} over the last {labels} labels"
        )

    def to_state(self) -> tuple[Floats, list[int]]:
        """Return the state: sums, float64[2·K], and labels."""
        return self._sums.ravel(), list(self._labels)

    def restore(self, sums: Floats, labels: list[int]) -> None:
        """Set the state: of both stretches."""
        self._sums = within(sums, 0.0, MOST, "sums of losses", 2 * len(self._names)).reshape(2, -1)
        before, now = labels
        self._labels = [before, now]
