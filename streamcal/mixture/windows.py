"""The windows of target labels, and which of them are due to be fitted.

Memory: counts per class and cell at about 40 boundaries, up to 4 kB each.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from streamcal.errors import DamagedStateError
from streamcal.mixture.fits import Cells, Counts, Fit, cell_logits, fit_windows
from streamcal.mixture.names import ALL, WINDOWS
from streamcal.mixture.partition import quantile_edges
from streamcal.sketch.nested_windows import STEPS_PER_WINDOW, NestedWindows, WindowState

__all__ = ["Windows"]

_MAX_CELLS: Final = 512
_RECENT: Final = WINDOWS[3]  # the window whose quantiles the partition of the table follows


class Windows:
    """Counts of labels for all windows, and the latest fit to each.

    A window is fitted again after an eighth of its length in labels, and that of all labels after a sixteenth
    of them.
    """

    __slots__ = ("_counts", "_fitted_at", "_logits", "fits")

    def __init__(self) -> None:
        self._counts = NestedWindows(WINDOWS, _MAX_CELLS)
        self._fitted_at = [0] * (ALL + 1)  # the label count at which each was fitted
        self._logits = self._counts.cells, np.empty(0)  # of these cells
        self.fits: tuple[Fit, ...] = ()
        """One fit per window, then that of all labels, which also stands for windows that are not full yet.
        Empty before the first labels."""

    @property
    def n(self) -> int:
        """The number of labels."""
        return self._counts.n

    def add(self, cells: Cells, labels: npt.NDArray[np.int8]) -> None:
        """Add labels, int8[n], with the cells of their scores on the finest grid, as the latest."""
        self._counts.add(cells, labels)

    def fit(self) -> bool:
        """Fit the windows that are due, of at least one label; return whether that of all labels was due."""
        n, counts, fitted_at = self.n, self._counts, self._fitted_at
        old: tuple[Fit | None, ...] = self.fits or (None,) * (ALL + 1)
        due: list[tuple[int, Counts, Fit | None]] = []
        for window, length in enumerate(WINDOWS):
            first = fitted_at[window] < length
            if n >= length and (first or n - fitted_at[window] >= length // STEPS_PER_WINDOW):
                due.append((window, counts.window(length), old[window]))
        all_due = not self.fits or n - fitted_at[ALL] >= n // (2 * STEPS_PER_WINDOW)
        if all_due:
            due.append((ALL, counts.counts, old[ALL]))
        if self._logits[0] is not counts.cells:
            self._logits = counts.cells, cell_logits(counts.cells, counts.level)
        new = iter(fit_windows(counts.cells, counts.level, self._logits[1], due) if due else ())
        fits = dict(enumerate(self.fits))
        for window, _, _ in due:
            fits[window] = next(new)
            fitted_at[window] = n
        self.fits = tuple(
            fits[window if window == ALL or n >= WINDOWS[window] else ALL] for window in range(ALL + 1)
        )
        counts.mark()
        return all_due

    def recent_edges(self) -> Cells:
        """Return the `quantile_edges` of the scores of the last 4,000 labels; there must be labels."""
        recent = self._counts.window(_RECENT).sum(axis=0)
        return quantile_edges(self._counts.cells, self._counts.level, recent)

    def merge(self, other: Windows) -> None:
        """Add the labels of the other as later ones; all windows are then due. The fits stay until then."""
        self._counts.merge(other._counts)
        self._fitted_at = [-1] * (ALL + 1)

    def to_state(self) -> tuple[WindowState, list[int]]:
        """Return the state without the fits: the counts, and the label counts of the fits."""
        return self._counts.to_state(), list(self._fitted_at)

    def restore(self, counts: WindowState, fitted_at: list[int], fits: tuple[Fit, ...]) -> None:
        """Set the state.

        Raises
        ------
        DamagedStateError
            If the counts are none, or the fits are to other labels.
        """
        self._counts.restore(counts)
        if (fits and not self.n) or not all(-1 <= at <= self.n for at in fitted_at):
            raise DamagedStateError(f"windows of {self.n} labels were fitted at {fitted_at}")
        self._fitted_at, self.fits = list(fitted_at), fits
