"""The candidates of mode ``auto``: their names, their order, and what some of them have in common.

A candidate is the identity, or one of the paper's estimators × a window of target labels × a family of maps.
Its name says so: ``estimator/family/window``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "ALL",
    "ALL_OF_FUSED",
    "FAMILIES",
    "FITTED",
    "FUSED",
    "FUSED_OF",
    "NAMES",
    "PRIORS",
    "SHIFTED",
    "TARGET_ONLY",
    "UNIFORM_FROM",
    "WINDOWS",
    "counted_as",
]

WINDOWS: Final = (500, 1000, 2000, 4000, 16_000, 64_000)
"""Lengths of the windows of target labels. One more window, of all labels, follows them."""

ALL: Final = len(WINDOWS)
"""The index of the window of all labels."""

FAMILIES: Final = ("uniform", "isotonic", "platt")
"""How a map is fitted to labels: uniform mass with leave-one-out B, isotonic regression, Platt scaling."""

UNIFORM_FROM: Final = 4
"""The index of the first window with a uniform-mass map, the only family that can follow an h* that is not
monotone.

On shorter windows it would take most of the time, and change the Brier score by half a percent, for better or
for worse (on the real streams of benchmarks/streams.py)."""

FITTED: Final = tuple(
    (family, window) for family, first in enumerate((UNIFORM_FROM, 0, 0)) for window in range(first, ALL + 1)
)
"""(index of the family, index of the window) of each candidate that is fitted to target labels."""

_LABELS: Final = (*map(str, WINDOWS), "all")

PRIORS: Final = (*_LABELS, "fused")
"""What a target prior is estimated from: the labels of a window; fused: all labels and scores together."""

NAMES: Final = (
    "identity",
    *(f"target/{FAMILIES[family]}/{_LABELS[window]}" for family, window in FITTED),
    *(f"source/{family}/all" for family in FAMILIES),
    *(f"composite/{family}/{prior}" for family in FAMILIES for prior in PRIORS),
    *(f"label_shift/{prior}" for prior in PRIORS),
)
"""The names of all K candidates, in their order."""

TARGET_ONLY: Final = 1 + len(FITTED)
"""The number of candidates that need no source; they come first."""

SHIFTED: Final = np.array([name.startswith(("composite", "label_shift")) for name in NAMES])
"""bool[K], the candidates that assume label shift between source and target."""

FUSED: Final = np.array([name.endswith("fused") for name in NAMES])
"""bool[K], the candidates with the fused prior."""

ALL_OF_FUSED: Final = np.array([NAMES.index(name[:-5] + "all") for name in NAMES if name.endswith("fused")])
"""For each candidate with the fused prior, the index of its twin with the prior from all labels."""

FUSED_OF: Final = np.array(
    [NAMES.index(name.rsplit("/", 1)[0] + "/fused") if SHIFTED[i] else i for i, name in enumerate(NAMES)]
)
"""For each candidate that assumes label shift, the index of its twin with the fused prior; else its own."""

_WINDOW: Final = np.array(
    [WINDOWS.index(int(name.rsplit("/", 1)[1])) if name[-1] == "0" else ALL for name in NAMES]
)
_OF_ALL: Final = np.array(
    [NAMES.index(name.rsplit("/", 1)[0] + "/all") if name[-1] == "0" else i for i, name in enumerate(NAMES)]
)
_LENGTHS: Final = np.array((*WINDOWS, 0))


def counted_as(labels: int) -> npt.NDArray[np.int64]:
    """Return the candidate that each candidate equals after so many labels, int64[K].

    A window that is not full yet holds all labels, so its candidates equal those of the window of all labels.
    """
    same: npt.NDArray[np.int64] = np.where(_LENGTHS[_WINDOW] > labels, _OF_ALL, np.arange(len(NAMES)))
    return same
