"""The roster of the candidates of mode ``auto``: their names, and what they have in common.

A candidate is one of the paper's estimators × a window of target labels × a family of maps, or the identity.
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
"""Lengths of the windows of target labels; after them comes one of all labels."""

ALL: Final = len(WINDOWS)
"""The place of the window of all labels among the windows."""

FAMILIES: Final = ("uniform", "isotonic", "platt")
"""How a map is fitted to labels: uniform mass with leave-one-out B, isotonic regression, Platt scaling."""

UNIFORM_FROM: Final = 4
"""The place of the first window with uniform mass, which alone can follow an h* that is not monotone.

Below, it would take most of the time and change the Brier score by half a percent, now up and now down (real
streams of benchmarks/streams.py)."""

FITTED: Final = tuple(
    (family, place) for family, first in enumerate((UNIFORM_FROM, 0, 0)) for place in range(first, ALL + 1)
)
"""(family, window) of the candidates that are fitted to target labels."""

_LABELS: Final = (*map(str, WINDOWS), "all")

PRIORS: Final = (*_LABELS, "fused")
"""What a target prior is estimated from: the labels of a window, or all labels and scores together."""

NAMES: Final = (
    "identity",
    *(f"target/{FAMILIES[family]}/{_LABELS[place]}" for family, place in FITTED),
    *(f"source/{family}/all" for family in FAMILIES),
    *(f"composite/{family}/{prior}" for family in FAMILIES for prior in PRIORS),
    *(f"label_shift/{prior}" for prior in PRIORS),
)
"""All candidates in their order, K of them."""

TARGET_ONLY: Final = 1 + len(FITTED)
"""How many of them, the first ones, need no source."""

SHIFTED: Final = np.array([name.startswith(("composite", "label_shift")) for name in NAMES])
"""bool[K], which assume label shift between source and target."""

FUSED: Final = np.array([name.endswith("fused") for name in NAMES])
"""bool[K], which take the target prior from labels and scores together."""

ALL_OF_FUSED: Final = np.array([NAMES.index(name[:-5] + "all") for name in NAMES if name.endswith("fused")])
"""For each of these the one that takes it from all labels."""

FUSED_OF: Final = np.array(
    [NAMES.index(name.rsplit("/", 1)[0] + "/fused") if SHIFTED[i] else i for i, name in enumerate(NAMES)]
)
"""For each candidate that assumes label shift the one of its kind with the fused prior, else itself."""

_WINDOW: Final = np.array(
    [WINDOWS.index(int(name.rsplit("/", 1)[1])) if name[-1] == "0" else ALL for name in NAMES]
)
_OF_ALL: Final = np.array(
    [NAMES.index(name.rsplit("/", 1)[0] + "/all") if name[-1] == "0" else i for i, name in enumerate(NAMES)]
)
_LENGTHS: Final = np.array((*WINDOWS, 0))


def counted_as(labels: int) -> npt.NDArray[np.int64]:
    """Return for every candidate which it is after so many labels, int64[K].

    Those of windows that are not full yet are the same as of all labels.
    """
    places: npt.NDArray[np.int64] = np.where(_LENGTHS[_WINDOW] > labels, _OF_ALL, np.arange(len(NAMES)))
    return places
