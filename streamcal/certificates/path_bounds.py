"""Bounds on the risk of any map, from the likelihood set of one version (lemmas 15 to 17).

They hold for all maps at once, so the map may be chosen by the same labels: steps, lines, Platt scaling, or a
mixture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from streamcal.certificates.likelihood_set import LikelihoodSet, likelihood_set, usable_level
from streamcal.certificates.monotone_maximum import NO_SHIFT, MassLimits, Shift, largest_risk
from streamcal.certificates.prequential import LEVELS, MOST_CELLS
from streamcal.certificates.target import Counted, odds_limits
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["PathBounds", "Ranges", "shift_limits"]

Reals = npt.NDArray[np.float64]

Ranges = Callable[[Reals], tuple[Reals, Reals]]
"""Returns the smallest and largest value of a map between edges, float64[m−1], and the ends 0 and 1."""


class PathBounds:
    """Bounds on the risk of any map.

    Parameters
    ----------
    sketch
        the labels of a version, at least one.
    log_likelihoods
        of the forecasts of these labels, see `Prequential`.
    once
        δ of the likelihood sets of all versions together, in (0, 1).
    delta
        what this version may spend on masses, in (0, 1).
    """

    __slots__ = ("_edges", "_known", "_masses")

    def __init__(
        self, sketch: ScoreSketch, log_likelihoods: Sequence[float], once: float, delta: float
    ) -> None:
        level = usable_level(sketch, MOST_CELLS)
        self._known: LikelihoodSet | None = None
        if level is not None:
            cells = sketch.at_level(level)
            self._known = likelihood_set(cells, log_likelihoods[LEVELS.index(level)], once)
            self._edges = grid.left_edges(cells.cells[:-1] + np.int32(1), level)
            self._masses = MassLimits.of(cells.totals, cells.n, delta)

    @property
    def monotone(self) -> bool:
        """Whether the likelihood set does not refute that h* is non-decreasing."""
        return self._known is None or self._known.monotone

    def risk(self, ranges: Ranges, shift: Shift = NO_SHIFT) -> float:
        """Return a bound in [0, 1] on the risk of a map (lemma 17), or on that in another domain (lemma 18).

        Parameters
        ----------
        ranges
            of the map that is to be served there.
        shift
            to that domain; by default there is none.
        """
        if self._known is None or not self._known.monotone:
            return 1.0
        return largest_risk(self._known, *ranges(self._edges), self._masses, shift)


def shift_limits(source: Counted, target: Counted, delta: float) -> Shift | None:
    """Return limits on the label shift that hold at all numbers of labels together (lemma 12).

    Parameters
    ----------
    source, target
        the labels of each domain.
    delta
        in (0, 1), spent once, half of it on each domain.

    Returns
    -------
    None if the priors may be 0 or 1, so that nothing is known of the shift.
    """
    low, high = odds_limits(source, target, delta)
    if low <= 0.0 or not math.isfinite(high):
        return None
    largest, smallest = source.prior_limits(delta / 2)[1], target.prior_limits(delta / 2)[0]
    return Shift(low, high, (1.0 - smallest) / (1.0 - largest))
