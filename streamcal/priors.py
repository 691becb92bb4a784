"""Running class priors, and the weights of the label-shift correction that follow from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

__all__ = ["LabelWindow", "class_prior", "shift_weights"]


class LabelWindow:
    """The latest labels of a stream and how many of them are 1; exact, ``size`` labels of memory.

    Parameters
    ----------
    size
        how many labels count.
    """

    __slots__ = ("_labels", "positives")

    def __init__(self, size: int) -> None:
        self._labels: deque[int] = deque(maxlen=size)
        self.positives = 0

    @property
    def labels(self) -> list[int]:
        """The labels, oldest first."""
        return list(self._labels)

    @property
    def n(self) -> int:
        """How many labels there are, at most ``size``."""
        return len(self._labels)

    def append(self, label: int) -> None:
        """Take one label, 0 or 1, and forget the oldest if there are more than ``size``."""
        if len(self._labels) == self._labels.maxlen:
            self.positives -= self._labels[0]
        self._labels.append(label)
        self.positives += label

    def extend(self, labels: Iterable[int]) -> None:
        """Take labels in turn."""
        self._labels.extend(labels)
        self.positives = sum(self._labels)


def class_prior(positives: int, n: int, smoothing: float) -> float | None:
    """Return the estimate (S + s) / (N + 2s) of the probability of class 1, None where undefined.

    ``smoothing`` ½ is the Krichevsky–Trofimov estimate, which is never 0 or 1; 0 is the paper's plug-in.
    """
    total = n + 2.0 * smoothing
    return (positives + smoothing) / total if total > 0.0 else None


def shift_weights(source: tuple[int, int], target: tuple[int, int], smoothing: float) -> tuple[float, float]:
    """Return (w₀, w₁), w_k = Q̂[Y=k] / P̂[Y=k] (eq. 13).

    Parameters
    ----------
    source, target
        (positives, labels) of each domain.
    smoothing
        see `class_prior`.

    Returns
    -------
    (1, 1), no correction, until there are labels of both domains; and without smoothing until the source
    has shown both classes, since the weight of an unseen class is undefined.
    """
    if not source[1] or not target[1]:
        return (1.0, 1.0)
    p = class_prior(*source, smoothing)
    q = class_prior(*target, smoothing)
    if p is None or q is None or not 0.0 < p < 1.0:
        return (1.0, 1.0)
    return ((1.0 - q) / (1.0 - p), q / p)
