"""Quality of forecasts over time.

What is kept is bounded, and depends on the order of the labels alone, as in `streamcal.quality.figures`: sums
are of multiples of `GRAIN`, and so are the same however labels come in parts.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import Counts, Floats
from streamcal.sketch.decoding import Count, require

GRAIN: Final = 2.0**-24
"""Grain to which summands are rounded. Sums of such values in [0, 1] are exact in every order up to
2²⁹ of them; of more, the last digits are rounded."""

MOST_WINDOWS: Final = 64
"""Most windows. At this number, every two neighbours become one, of twice the width."""

WIDTH: Final = 256
"""Labels of a window at first."""

LIMITS: Final = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.97)
"""Between the bins of a window: of all windows the same, so that two of them can become one."""

_BINS: Final = len(LIMITS) + 1

# Of a window: its positives; of both sides the squares, and by bins forecast − label. Sums.
_SQUARES, _EXCESS = slice(1, 3), slice(3, 3 + 2 * _BINS)
_COLUMNS: Final = _EXCESS.stop

F = TypeVar("F", bound=npt.NDArray[Any])


class Curve(NamedTuple):
    """Quality of one side, before or after recalibration: a value for each window."""

    forecast: Floats
    """Mean forecast."""
    brier: Floats
    ece: Floats
    """Mean |mean forecast − rate of label 1| over the bins between `LIMITS`, each counted with its labels."""


class Totals(NamedTuple):
    """Sums of one side over all labels, for each bin between `LIMITS` that has labels, and in all."""

    labels: Floats
    forecasts: Floats
    """Their sums."""
    positives: Floats
    brier: float

    @property
    def ece(self) -> float:
        """The expected calibration error over these bins."""
        return float(np.abs(self.forecasts - self.positives).sum() / self.labels.sum())

    @property
    def gap(self) -> float:
        """Mean forecast − mean label."""
        return float((self.forecasts - self.positives).sum() / self.labels.sum())


class History(msgspec.Struct):
    """Quality of the forecasts of one stream, over time; its fields are its state.

    Examples
    --------
    >>> history = History()
    >>> history.add(np.full((2, 600), 0.25), np.zeros(600), np.arange(600.0))
    >>> history.ends.tolist(), history.times.tolist(), history.curves[0].brier.tolist()
    ([256, 512], [255.0, 511.0], [0.0625, 0.0625])
    """

    width: Annotated[int, msgspec.Meta(ge=WIDTH, multiple_of=WIDTH)] = WIDTH
    """Labels of a full window."""
    labels: Count = 0
    """Number of labels."""
    windows: npt.NDArray[np.float32] = msgspec.field(
        default_factory=lambda: np.empty((0, _COLUMNS), np.float32)
    )
    """Sums of the full windows, [m, 23]."""
    times: Floats = msgspec.field(default_factory=lambda: np.empty(0))
    """Latest event time of the labels of each full window, [m]; NaN where none has one."""
    open: Floats = msgspec.field(default_factory=lambda: np.append(np.zeros(_COLUMNS), np.nan))
    """Sums of the window that is not full, [23], then its time."""
    totals: Floats = msgspec.field(default_factory=lambda: np.zeros((2, 3, _BINS)))
    """Labels, forecasts and positives of each bin, before and after: [2, 3, bins]."""
    squares: Floats = msgspec.field(default_factory=lambda: np.zeros(2))
    """Sums of (forecast − label)², before and after: [2]."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        full = self.labels // self.width
        require(full < MOST_WINDOWS, f"no history has {self.labels:,} labels in windows of {self.width:,}")
        self.windows = self.windows.reshape(full, _COLUMNS)  # one row in a state
        self.times, self.open = self.times.reshape(full), self.open.reshape(_COLUMNS + 1)
        self.totals, self.squares = self.totals.reshape(2, 3, _BINS), self.squares.reshape(2)

    @property
    def ends(self) -> Counts:
        """Number of labels up to the end of each full window."""
        return np.arange(1, len(self.windows) + 1, dtype=np.int64) * self.width

    @property
    def rates(self) -> Floats:
        """Rate of label 1 in each full window."""
        return self.windows[:, 0] / np.float64(self.width)

    @property
    def curves(self) -> tuple[Curve, Curve]:
        """Both sides of the full windows: before and after."""
        means = self.windows / np.float64(self.width)
        excess = means[:, _EXCESS].reshape(-1, 2, _BINS)
        forecast, ece = excess.sum(axis=2) + means[:, :1], np.abs(excess).sum(axis=2)
        columns = (forecast, means[:, _SQUARES], ece)
        before, after = (Curve(*(each[:, side] for each in columns)) for side in (0, 1))
        return before, after

    @property
    def sides(self) -> tuple[Totals, Totals]:
        """Totals of all labels, before and after; there has to be one."""
        sides = []
        for sums, squares in zip(self.totals, self.squares.tolist(), strict=True):
            labels, forecasts, positives = sums[:, sums[0] > 0.0]
            sides.append(Totals(labels, forecasts, positives, squares / self.labels))
        return sides[0], sides[1]

    def add(self, forecasts: Floats, labels: Floats, times: Floats) -> None:
        """Add forecasts with their labels, in the order in which the labels came.

        Parameters
        ----------
        forecasts
            before and after: float64[2, n] in [0, 1].
        labels, times
            each of them 0 or 1, and their event times, NaN where unknown: float64[n].
        """
        at, n = 0, len(labels)
        while at < n:  # windows become wider in between
            end = min(n, at + MOST_WINDOWS * self.width - self.labels)
            self._add(forecasts[:, at:end], labels[at:end], times[at:end])
            at = end

    def _add(self, forecasts: Floats, labels: Floats, times: Floats) -> None:
        """Add as many as there is room for before windows become wider."""
        rounded = np.rint(forecasts / GRAIN) * GRAIN
        squares = np.rint((forecasts - labels) ** 2 / GRAIN) * GRAIN
        which = np.searchsorted(LIMITS, forecasts, side="right")
        window = (self.labels % self.width + np.arange(len(labels))) // self.width
        begun = int(window[-1]) + 1
        first = np.searchsorted(window, np.arange(begun))
        sums = np.empty((begun, _COLUMNS))
        sums[:, 0] = np.add.reduceat(labels, first)
        sums[:, _SQUARES] = np.add.reduceat(squares, first, axis=1).T
        cells = ((2 * window + [[0], [1]]) * _BINS + which).ravel()
        excess = np.bincount(cells, (rounded - labels).ravel(), begun * 2 * _BINS)
        sums[:, _EXCESS] = excess.reshape(begun, -1)
        sums[0] += self.open[:-1]
        latest = np.fmax.reduceat(times, first)
        latest[0] = np.fmax(latest[0], self.open[-1])

        self.labels += len(labels)
        self.squares += squares.sum(axis=1)
        for side in (0, 1):
            for total, weights in zip(self.totals[side], (None, rounded[side], labels), strict=True):
                total += np.bincount(which[side], weights, _BINS)
        full = begun - bool(self.labels % self.width)
        rest = (sums[full], latest[full]) if full < begun else (np.zeros(_COLUMNS), np.nan)
        self.open = np.append(*rest)
        self.windows = np.concatenate([self.windows, sums[:full].astype(np.float32)])
        self.times = np.concatenate([self.times, latest[:full]])
        if len(self.windows) == MOST_WINDOWS:
            self.width *= 2
            self.windows = self.windows[::2] + self.windows[1::2]
            self.times = np.fmax(self.times[::2], self.times[1::2])
