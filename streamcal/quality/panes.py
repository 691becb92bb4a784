"""Sums over labels by the event time of their prediction, for streams on which one class comes later.

There the labels at hand are no fair sample: of the class that comes first, they are too many. They are one of
predictions so old that nearly all of their labels have come, which are in the first panes.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
import numpy as np

from streamcal.base.values import BANDS, Counts, Floats
from streamcal.quality.label_sums import COLUMNS, EDGES, RANGES, LabelSums, share
from streamcal.sketch.counts_c import add_sums
from streamcal.sketch.decoding import Finite

PANES: Final = 32
"""Most panes. When more are needed, every two neighbours become one, of twice the width."""

_WIDEST: Final = 1 << 40  # seconds
_COUNTS: Final = slice(0, 4 * (len(BANDS) + 1), 2)  # columns with numbers of labels


class Panes(msgspec.Struct):
    """Sums over labels in panes of event time; its fields are its state.

    Examples
    --------
    >>> panes = Panes()
    >>> panes.add(np.full((2, 1000), 0.5), np.ones(1000), np.arange(1000.0))
    >>> panes.width, panes.matured(600.0).labels
    (32, 576)
    """

    origin: Finite | None = None
    """Event time of the first prediction with a label, in whole seconds; None: there is none."""
    width: Annotated[int, msgspec.Meta(ge=1, le=_WIDEST)] = 1
    """Width of a pane in seconds, a power of two."""
    numbers: list[Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]] = []
    """Numbers of the panes with a label, ascending: seconds since the origin over the width. Pane 0 has
    earlier predictions, too."""
    sums: Floats = msgspec.field(default_factory=lambda: np.empty((0, COLUMNS)))
    """Sums of `add_sums` of each of these panes, float64[panes, columns]."""

    def __post_init__(self) -> None:
        self.sums = self.sums.reshape(len(self.numbers), self._columns)  # one row in a state

    @property
    def _columns(self) -> int:
        return COLUMNS

    def add(self, forecasts: Floats, labels: Floats, times: Floats) -> None:
        """Add what `Sequences.add` takes. Labels of predictions without an event time are left out."""
        known = np.isfinite(times)
        forecasts, labels, times = forecasts[:, known], labels[known], np.floor(times[known])
        if not len(labels):
            return
        seconds, at = self._seconds(times), 0
        while at < len(labels):  # panes become wider at the same label, however labels come in parts
            beyond = np.flatnonzero(seconds[at:] >= PANES * self.width)
            end = at + int(beyond[0]) if len(beyond) else len(labels)
            if end > at:
                self._add(forecasts[:, at:end], labels[at:end], seconds[at:end])
            at = end
            while end < len(labels) and seconds[end] >= PANES * self.width:
                self._widen()

    def matured(self, until: float) -> LabelSums:
        """Return the sums of the panes that end by an event time, each of which is a start."""
        sums, times, shares = self.ended(until)
        labels = sums[:, _COUNTS].sum(axis=1).round().astype(np.int64)
        return LabelSums(int(labels[:1].sum()), (labels[:1] - labels).tolist(), times, sums, shares)

    def ended(self, until: float) -> tuple[Floats, list[float | None], Floats]:
        """Return sums since each of the panes that end by an event time, their first seconds and shares."""
        begin, width = self.origin or 0.0, self.width
        numbers = [number for number in self.numbers if begin + (number + 1) * width <= until]
        sums = np.cumsum(self.sums[: len(numbers)][::-1], axis=0)[::-1]
        shares = np.array([share(width * number) for number in numbers])
        return sums, [begin + number * width for number in numbers], shares

    def _seconds(self, times: Floats) -> Counts:
        """Return the seconds of predictions since the origin; the first prediction ever sets it."""
        if self.origin is None:
            self.origin = float(times[0])
        return np.clip(times - self.origin, 0.0, float(_WIDEST)).astype(np.int64)

    def _add(self, forecasts: Floats, labels: Floats, seconds: Counts) -> None:
        """Add labels for whose panes there is room."""
        panes = seconds // self.width
        order = np.argsort(panes, kind="stable")
        found, first = np.unique(panes[order], return_index=True)
        forecasts, labels = np.ascontiguousarray(forecasts[:, order]), labels[order]
        ends = [*first[1:].tolist(), len(labels)]
        for row, begin, end in zip(self._rows(found), first.tolist(), ends, strict=True):
            self._count(row, forecasts, labels, begin, end)

    def _count(self, row: int, forecasts: Floats, labels: Floats, begin: int, end: int) -> None:
        """Add the labels of an interval to the sums of a pane."""
        add_sums(self.sums[row], EDGES, RANGES, forecasts, labels, begin, end)

    def _rows(self, panes: Counts) -> Counts:
        """Return the rows of panes, which are made if they are new."""
        new = sorted({*self.numbers, *panes.tolist()})
        if new != self.numbers:
            sums = np.zeros((len(new), self.sums.shape[1]))
            sums[np.searchsorted(new, self.numbers)] = self.sums
            self.numbers, self.sums = new, sums
        return np.searchsorted(new, panes)

    def _widen(self) -> None:
        """Make panes twice as wide."""
        numbers, at = np.unique(np.array(self.numbers, np.int64) // 2, return_inverse=True)
        sums = np.zeros((len(numbers), self.sums.shape[1]))
        np.add.at(sums, at, self.sums)
        self.width, self.numbers, self.sums = 2 * self.width, numbers.tolist(), sums
