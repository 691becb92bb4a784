"""Quality of forecasts over time.

What is kept is bounded, and depends on the order of the labels alone, as in `streamcal.quality.figures`: sums
are of multiples of `GRAIN`, and so are the same however labels come in parts.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.sketch.decoding import Count, require
from streamcal.values import Counts, Floats

__all__ = ["GRAIN", "LIMITS", "MOST_WINDOWS", "WIDTH", "Curve", "History", "HistoryState", "Totals"]

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

# Of a window: its positives; of both sides the squares, the log losses, and by bins forecast − label. Sums.
_SQUARES, _LOSSES, _EXCESS = slice(1, 3), slice(3, 5), slice(5, 5 + 2 * _BINS)
_COLUMNS: Final = _EXCESS.stop

F = TypeVar("F", bound=npt.NDArray[Any])


class Curve(NamedTuple):
    """Quality of one side, before or after recalibration: a value for each window."""

    forecast: Floats
    """Mean forecast."""
    brier: Floats
    log_loss: Floats
    ece: Floats
    """Mean |mean forecast − rate of label 1| over the bins between `LIMITS`, each counted with its labels."""


class Totals(NamedTuple):
    """Sums of one side over all labels, for each bin between `LIMITS` that has labels, and in all."""

    labels: Floats
    forecasts: Floats
    """Their sums."""
    positives: Floats
    brier: float
    log_loss: float

    @property
    def ece(self) -> float:
        """The expected calibration error over these bins."""
        return float(np.abs(self.forecasts - self.positives).sum() / self.labels.sum())

    @property
    def gap(self) -> float:
        """Mean forecast − mean label."""
        return float((self.forecasts - self.positives).sum() / self.labels.sum())


class HistoryState(msgspec.Struct):
    """All of a `History`."""

    width: Annotated[int, msgspec.Meta(ge=WIDTH, multiple_of=WIDTH)]
    labels: Count
    windows: npt.NDArray[np.float32]
    """Sums of the full windows, [m, 25]."""
    times: Floats
    """Time of the latest label of each, [m]."""
    open: Floats
    """Sums of the window that is not full, [25], then its time."""
    totals: Floats
    """Labels, forecasts and positives: [2, 3, bins]."""
    losses: Floats
    """Squares and log losses, [2, 2]."""


class History:
    """Quality of the forecasts of one stream, over time.

    Examples
    --------
    >>> history = History()
    >>> forecasts, losses = np.full((2, 600), 0.25), np.full((2, 600), 0.2877)
    >>> history.add(forecasts, losses, np.zeros(600), np.arange(600.0))
    >>> history.ends.tolist(), history.times.tolist(), history.curves[0].brier.tolist()
    ([256, 512], [255.0, 511.0], [0.0625, 0.0625])
    """

    def __init__(self) -> None:
        self.width = WIDTH
        """Labels of a full window."""
        self.labels = 0
        """Number of labels."""
        self.times: Floats = np.empty(0)
        """Latest event time of the labels of each full window; NaN where none has one."""
        self._windows = np.empty((0, _COLUMNS), np.float32)
        self._open, self._open_time = np.zeros(_COLUMNS), float("nan")
        self._totals = np.zeros((2, 3, _BINS))
        self._losses = np.zeros((2, 2))  # squares and log losses

    @property
    def ends(self) -> Counts:
        """Number of labels up to the end of each full window."""
        return np.arange(1, len(self._windows) + 1, dtype=np.int64) * self.width

    @property
    def rates(self) -> Floats:
        """Rate of label 1 in each full window."""
        return self._windows[:, 0] / np.float64(self.width)

    @property
    def curves(self) -> tuple[Curve, Curve]:
        """Both sides of the full windows: before and after."""
        means = self._windows / np.float64(self.width)
        excess = means[:, _EXCESS].reshape(-1, 2, _BINS)
        forecast, ece = excess.sum(axis=2) + means[:, :1], np.abs(excess).sum(axis=2)
        columns = (forecast, means[:, _SQUARES], means[:, _LOSSES], ece)
        before, after = (Curve(*(each[:, side] for each in columns)) for side in (0, 1))
        return before, after

    @property
    def totals(self) -> tuple[Totals, Totals]:
        """Both sides of all labels, before and after; there has to be one."""
        before, after = (
            Totals(*sums[:, sums[0] > 0.0], *(losses / self.labels).tolist())
            for sums, losses in zip(self._totals, self._losses.T, strict=True)
        )
        return before, after

    def add(self, forecasts: Floats, losses: Floats, labels: Floats, times: Floats) -> None:
        """Add forecasts with their labels, in the order in which the labels came.

        Parameters
        ----------
        forecasts
            before and after: float64[2, n] in [0, 1].
        losses
            their log losses: float64[2, n].
        labels, times
            each of them 0 or 1, and their event times, NaN where unknown: float64[n].
        """
        at, n = 0, len(labels)
        while at < n:  # windows become wider in between
            end = min(n, at + MOST_WINDOWS * self.width - self.labels)
            self._add(forecasts[:, at:end], losses[:, at:end], labels[at:end], times[at:end])
            at = end

    @property
    def state(self) -> HistoryState:
        """All of it, to be stored."""
        return HistoryState(
            self.width,
            self.labels,
            self._windows,
            self.times,
            np.append(self._open, self._open_time),
            self._totals,
            self._losses,
        )

    @classmethod
    def restore(cls, state: HistoryState) -> Self:
        """Go on from a state; raise ValueError if it is none."""
        made, full = cls(), state.labels // state.width
        require(full < MOST_WINDOWS, f"no history has {state.labels:,} labels in windows of {state.width:,}")
        made.width, made.labels = state.width, state.labels
        made._windows = _finite(state.windows).reshape(full, _COLUMNS)
        made.times = state.times.reshape(full)
        *_, made._open_time = state.open.tolist()
        made._open = _finite(state.open[:-1]).reshape(_COLUMNS)
        made._totals = totals = _finite(state.totals).reshape(2, 3, _BINS)
        right = (totals[:, 0].sum(axis=1) == state.labels).all() and (totals >= 0.0).all()
        right = right and (totals[:, 1:] <= totals[:, :1]).all()
        require(right, f"the sums of a history are not those of {state.labels:,} labels")
        made._losses = _finite(state.losses).reshape(2, 2)
        return made

    def _add(self, forecasts: Floats, losses: Floats, labels: Floats, times: Floats) -> None:
        """Add as many as there is room for before windows become wider."""
        rounded = np.rint(forecasts / GRAIN) * GRAIN
        squares, losses = (np.rint(each / GRAIN) * GRAIN for each in ((forecasts - labels) ** 2, losses))
        which = np.searchsorted(LIMITS, forecasts, side="right")
        window = (self.labels % self.width + np.arange(len(labels))) // self.width
        begun = int(window[-1]) + 1
        first = np.searchsorted(window, np.arange(begun))
        sums = np.empty((begun, _COLUMNS))
        sums[:, 0] = np.add.reduceat(labels, first)
        sums[:, _SQUARES] = np.add.reduceat(squares, first, axis=1).T
        sums[:, _LOSSES] = np.add.reduceat(losses, first, axis=1).T
        cells = ((2 * window + [[0], [1]]) * _BINS + which).ravel()
        excess = np.bincount(cells, (rounded - labels).ravel(), begun * 2 * _BINS)
        sums[:, _EXCESS] = excess.reshape(begun, -1)
        sums[0] += self._open
        latest = np.fmax.reduceat(times, first)
        latest[0] = np.fmax(latest[0], self._open_time)

        self.labels += len(labels)
        self._losses += np.stack([squares.sum(axis=1), losses.sum(axis=1)])
        for side in (0, 1):
            for total, weights in zip(self._totals[side], (None, rounded[side], labels), strict=True):
                total += np.bincount(which[side], weights, _BINS)
        full = begun - bool(self.labels % self.width)
        self._open = sums[full] if full < begun else np.zeros(_COLUMNS)
        self._open_time = float(latest[full]) if full < begun else float("nan")
        self._windows = np.concatenate([self._windows, sums[:full].astype(np.float32)])
        self.times = np.concatenate([self.times, latest[:full]])
        if len(self._windows) == MOST_WINDOWS:
            self.width *= 2
            self._windows = self._windows[::2] + self._windows[1::2]
            self.times = np.fmax(self.times[::2], self.times[1::2])


def _finite(values: F) -> F:
    require(np.isfinite(values).all(), "the sums of a history are not finite")
    return values
