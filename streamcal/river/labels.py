"""Labels of a river estimator: what a model gives by label, as scores, and answers by label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streamcal.base.values import Floats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from river.base.typing import ClfTarget

UNDECIDED: Final = 0.5
"""The score of a model that gives none, as of river's linear models before they learn."""


class TwoLabels:
    """Two labels: a score is the probability of the second."""

    names = None

    def __init__(self, neg_val: ClfTarget, pos_val: ClfTarget) -> None:
        if pos_val == neg_val:
            raise ValueError(f"pos_val and neg_val must differ, got {pos_val!r} for both")
        self.all: list[ClfTarget] = [neg_val, pos_val]
        self._negative, self._positive = neg_val, pos_val

    def code(self, label: Any) -> int:
        """Return what the engine learns of a label; ValueError if it is none of these."""
        if label == self._positive:
            return 1
        if label == self._negative:
            return 0
        raise ValueError(
            f"a label must be pos_val={self._positive!r} or neg_val={self._negative!r}, got {label!r}"
        )

    def check(self, given: Any) -> None:
        """Raise ValueError if a model gives other labels."""
        other = [label for label in given if label != self._positive and label != self._negative]
        if other:
            raise ValueError(
                f"a class must be pos_val={self._positive!r} or neg_val={self._negative!r}, the wrapped"
                f" model gives {other[0]!r}: classes= names more"
            )

    def score(self, given: dict[Any, Any]) -> float:
        """Return the score of the probabilities that a model gives by label."""
        score = given.get(self._positive)
        if score is None or len(given) != 2:
            self.check(given)
            score = given.get(self._positive, 0.0) if given else UNDECIDED
        return score

    def by_label(self, probability: float) -> dict[ClfTarget, float]:
        """Return an answer by label."""
        return {self._negative: 1.0 - probability, self._positive: probability}


class ManyLabels:
    """Labels of many classes: a score is a row of one number each."""

    def __init__(self, classes: Sequence[ClfTarget]) -> None:
        self.all: list[ClfTarget] = list(classes)
        self.names = [str(label) for label in classes]
        self._codes = {label: code for code, label in enumerate(self.all)}

    def code(self, label: Any) -> str:
        """See `TwoLabels.code`."""
        if label not in self._codes:
            raise ValueError(f"a label must be one of classes={self.all!r}, got {label!r}")
        return self.names[self._codes[label]]

    def check(self, given: Any) -> None:
        """See `TwoLabels.check`."""
        other = [label for label in given if label not in self._codes]
        if other:
            raise ValueError(
                f"a class must be one of classes={self.all!r}, the wrapped model gives {other[0]!r}"
            )

    def score(self, given: dict[Any, Any]) -> Floats:
        """See `TwoLabels.score`."""
        self.check(given)
        row = np.array([given.get(label, 0.0) for label in self.all], np.float64)
        total = row.sum()
        if total == 0.0:
            return np.full(len(row), 1.0 / len(row))
        return row / total if np.isfinite(total) else row  # which is refused later, with the value

    def by_label(self, probabilities: Any) -> dict[ClfTarget, float]:
        """See `TwoLabels.by_label`."""
        return dict(zip(self.all, probabilities.tolist(), strict=True))
