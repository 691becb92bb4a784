"""The windows of labels, and the maps fitted to each.

Memory: counts per class and cell at about 30 boundaries, up to 4 kB each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.mixture.fits import Cells, Line, Steps, cell_logits, fit_isotonic, fit_uniform_mass
from streamcal.mixture.names import WINDOWS
from streamcal.mixture.partition import quantile_edges
from streamcal.sketch.nested_windows import STEPS_PER_WINDOW, NestedWindows, WindowState

__all__ = ["Windows"]

_MAX_CELLS: Final = 512
_RECENT: Final = WINDOWS[1]  # the window whose quantiles the partition of the table follows


class Windows:
    """Counts of labels for all windows, and the latest map of each.

    A map is fitted again after an eighth of its labels, and that of all labels after a sixteenth.
    """

    __slots__ = ("_counts", "_fitted_at", "_logits", "isotonic", "uniform")

    def __init__(self) -> None:
        self._counts = NestedWindows(WINDOWS, _MAX_CELLS)
        self._fitted_at = [0] * (len(WINDOWS) + 1)  # the label count at which each map was fitted
        self._logits = self._counts.cells, np.empty(0)  # of these cells
        self.isotonic: tuple[Line, ...] = ()
        """The isotonic map of each window; none before the first `fit`."""
        self.uniform: Steps | None = None
        """The uniform-mass map of all labels."""

    @property
    def n(self) -> int:
        """The number of labels."""
        return self._counts.n

    def add(self, cells: Cells, labels: npt.NDArray[np.int8]) -> None:
        """Add labels, int8[n], with the cells of their scores on the finest grid, as the latest."""
        self._counts.add(cells, labels)
        self._counts.mark()

    def fit(self) -> bool:
        """Fit the maps that are due, to at least one label; return whether that of all labels was."""
        n, counts, fitted_at = self.n, self._counts, self._fitted_at
        if self._logits[0] is not counts.cells:
            self._logits = counts.cells, cell_logits(counts.cells, counts.level)
        lines = list(self.isotonic) or [Line(np.empty(0), np.empty(0))] * len(WINDOWS)
        for window, length in enumerate(WINDOWS):
            if n - fitted_at[window] < max(1, min(n, length) // STEPS_PER_WINDOW):
                continue
            if window and n <= WINDOWS[window - 1]:
                lines[window] = lines[window - 1]  # neither is full: both hold all labels
            else:
                lines[window] = fit_isotonic(self._logits[1], counts.window(length))
            fitted_at[window] = n
        self.isotonic = tuple(lines)
        if n - fitted_at[-1] < max(1, n // (2 * STEPS_PER_WINDOW)):
            return False
        self.uniform, _ = fit_uniform_mass(counts.cells, counts.level, counts.counts)
        fitted_at[-1] = n
        return True

    def recent_edges(self) -> Cells:
        """Return the `quantile_edges` of the scores of the last 4,000 labels; there must be labels."""
        recent = self._counts.window(_RECENT).sum(axis=0)
        return quantile_edges(self._counts.cells, self._counts.level, recent)

    def merge(self, other: Windows) -> None:
        """Add the labels of the other as later ones; all maps are then due, and stay until then."""
        self._counts.merge(other._counts)
        self._fitted_at = [-self.n] * len(self._fitted_at)

    def to_state(self) -> tuple[WindowState, list[int]]:
        """Return the state without the maps: the counts, and the label counts of the maps."""
        return self._counts.to_state(), list(self._fitted_at)

    def restore(
        self, counts: WindowState, fitted_at: list[int], isotonic: tuple[Line, ...], uniform: Steps | None
    ) -> None:
        """Set the state.

        Raises
        ------
        DamagedStateError
            If the counts are none, or the maps are of other labels.
        """
        self._counts.restore(counts)
        n = self.n
        if len(fitted_at) != len(self._fitted_at) or not all(-n <= at <= n for at in fitted_at):
            raise DamagedStateError(f"windows of {n} labels were fitted at {fitted_at}")
        if (uniform is None) != (not isotonic) or (isotonic and not n):
            raise DamagedStateError(f"{len(isotonic)} maps of windows of {n} labels")
        self._fitted_at, self.isotonic, self.uniform = list(fitted_at), isotonic, uniform
