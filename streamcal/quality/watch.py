"""Watch over served forecasts: looks at their confidence sequences, and raises an alarm when they deviate."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from streamcal.base.values import Floats
from streamcal.quality.label_sums import LabelSums
from streamcal.quality.panes import Panes
from streamcal.quality.sampled_sums import SampledPanes
from streamcal.quality.sequences import STRIDE, Sequences
from streamcal.quality.verdict import Arrival, State, Verdict, judge, may_deviate
from streamcal.sketch.decoding import Count, Finite

_LOOKS: Final = 4  # looks, at least, while the labels double
_WIDEST: Final = 1 << 14  # labels between two looks, at most
_POINTS: Final = 1.25  # labels at a point of the past, over those at the point before


class Point(msgspec.Struct, frozen=True, array_like=True):
    """Confidence sequences over all labels, at one number of labels."""

    labels: Count
    time: Finite | None
    """Event time of the prediction of the last label, in seconds; None: unknown."""
    gap_low: Finite
    gap_high: Finite
    """Ends of the interval of mean forecast − mean label."""
    gain_low: Finite
    gain_high: Finite
    """Ends of the interval of the Brier score of the scores − that of the served probabilities."""


class ForecastWatch(msgspec.Struct):
    """Watch over one stream of forecasts; its fields are its state.

    A look costs as much as some dozens of labels, so looks are `STRIDE` labels apart at first, and later a
    quarter of the labels. Alarms depend on the order of the labels alone.
    """

    sequences: Sequences = msgspec.field(default_factory=Sequences)
    panes: Panes = msgspec.field(default_factory=Panes)
    sampled: SampledPanes | None = None
    """Sums by propensity, of all predictions; None: labels have none."""
    clock: Finite | None = None
    """Latest event time of a label, in seconds; None: unknown."""
    alarms: Count = 0
    """Number of alarms raised."""
    state: State | None = None
    """Deviation that the latest look detected; None: none. An alarm comes when a look detects another one."""
    past: list[Point] = []
    """Confidence sequences of all labels: a point each time that the labels have grown by a quarter."""

    @property
    def until_look(self) -> int:
        """Number of labels until the next look."""
        labels = self.sequences.labels
        stride = min(max(STRIDE, 1 << max((labels // _LOOKS).bit_length() - 1, 0)), _WIDEST)
        return stride - labels % stride

    def add(
        self,
        forecasts: Floats,
        labels: Floats,
        predicted_at: Floats,
        times: Floats,
        arrival: Arrival,
        weights: Floats | None = None,
    ) -> list[tuple[int, Verdict]]:
        """Add forecasts with their labels, and look where a look is due.

        Parameters
        ----------
        forecasts, labels, predicted_at
            those of `Sequences.add`.
        times
            event times of the labels, in seconds; NaN: unknown. float64[n].
        arrival
            what is known of how labels come.
        weights
            weights of the labels, float64[n], for sums by propensity; None: all are 1.

        Returns
        -------
        The alarms that were raised: number of the alarm, and verdict.
        """
        raised, at, looks = list[tuple[int, Verdict]](), 0, False
        while at < len(labels):
            due = self.until_look
            end = min(len(labels), at + due)
            part = forecasts[:, at:end], labels[at:end], predicted_at[at:end]
            self.sequences.add(*part)
            if self.sampled is None:
                self.panes.add(*part)
            else:
                each = np.ones(end - at) if weights is None else weights[at:end]
                self.sampled.label(*part[:2], each, part[2])
            latest = float(np.fmax.reduce(times[at:end]))
            if latest == latest and (self.clock is None or latest > self.clock):
                self.clock = latest
            if end - at == due:
                looks = True
                self._note(float(predicted_at[end - 1]))
            # Which predictions are complete is known of the last label alone.
            if looks and (arrival.fair or end == len(labels)):
                looks = False
                verdict = self._look(arrival)
                if verdict is not None:
                    raised.append((self.alarms, verdict))
            at = end
        return raised

    def sums(self, arrival: Arrival) -> LabelSums:
        """Return the sums that a verdict rests on: of all labels, or of predictions that are complete."""
        if arrival.fair:
            return self.sequences.sums
        until = -math.inf if self.clock is None else self.clock - arrival.age
        return self.panes.matured(until) if self.sampled is None else self.sampled.matured(until)

    def _note(self, time: float) -> None:
        """Add a point of the past if one is due."""
        labels = self.sequences.labels
        if not self.past or labels >= _POINTS * self.past[-1].labels:
            sums = self.sequences.sums
            gaps, gains = sums.gaps("after", main=True), sums.gains(main=True)
            ends = (gaps.low[0, 0], gaps.high[0, 0], gains.low[0], gains.high[0])
            self.past.append(Point(labels, None if time != time else time, *map(float, ends)))

    def _look(self, arrival: Arrival) -> Verdict | None:
        """Look; return the verdict if it is a new alarm."""
        sums = self.sums(arrival)
        verdict = judge(sums, arrival) if may_deviate(sums) else None
        before, self.state = self.state, verdict.state if verdict is not None and verdict.deviates else None
        if self.state is None or self.state == before:
            return None
        self.alarms += 1
        return verdict
