"""A stream of delayed positives through an engine, in the order in which a join will give it."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np

from streamcal.engine.config import RecalibratorConfig
from streamcal.engine.emissions import Emission
from streamcal.engine.engine import Engine
from streamcal.events import PredictionEvent
from streamcal.join.outcomes import EarlyPositive, Joined
from tests.delayed.simulation import MATURED, Drawn

DAY = 86_400.0


def events_of(drawn: Drawn) -> list[tuple[int, int]]:
    """Return what happens until the last prediction, in order: 0 is a prediction, 1 a positive that is told,
    2 a label that is final; each with the number of the prediction.
    """
    seconds, n = drawn.times * DAY, len(drawn.scores)
    moments = np.concatenate((seconds, drawn.told_at * DAY, seconds + MATURED * DAY))
    order = moments.argsort(kind="stable")
    return [divmod(event, n) for event in order[moments[order] <= seconds[-1]].tolist()]


class Stream:
    """A stream on its way through an engine, as a join with ``missing_labels = "negative"`` will give it.

    A positive is told when it comes; the label of a prediction, 1 or 0, is learned once it is matured, in the
    order of predictions.
    """

    def __init__(self, drawn: Drawn, *, delayed: bool) -> None:
        self.engine = Engine(
            RecalibratorConfig(mode="auto", label_delay_limit=timedelta(days=MATURED) if delayed else None)
        )
        self.served = np.zeros(len(drawn.scores))
        """What was served for each prediction, float64[n]."""
        self._seen = [0] * len(drawn.scores)
        columns = drawn.scores, drawn.times * DAY, drawn.told_at * DAY
        self._rows = list(zip(*(column.tolist() for column in columns), strict=True))

    def take(self, events: list[tuple[int, int]]) -> list[Emission]:
        """Take these events; return what they began."""
        emissions: list[Emission] = []
        for kind, place in events:
            score, time, told_at = self._rows[place]
            if kind == 0:
                answer, self._seen[place], _, begun = self.engine.answer(
                    PredictionEvent(str(place), score, time)
                )
                self.served[place] = answer.probability
            elif kind == 1:
                begun = self.engine.observe_early(EarlyPositive(score, time, told_at, "target", None))
            else:
                seen, served = self._seen[place], float(self.served[place])
                label, at = int(told_at < math.inf), time + MATURED * DAY
                begun = self.engine.learn(Joined(score, served, label, "target", time, at, seen))
            emissions += begun
        return emissions
