"""Short streams, and a pipeline that takes them."""

from __future__ import annotations

import numpy as np

from streamcal.events import Event, LabelEvent, PredictionEvent
from streamcal.run.order import MicroBatch, TimesRead
from streamcal.run.pipeline import Outcome, Pipeline


def labelled(count: int, prefix: str = "", key: str | None = None) -> list[Event]:
    """Return so many predictions, each with its label a minute later; the scores are too high."""
    rng = np.random.default_rng(5)
    scores = rng.random(count)
    labels = rng.random(count) < scores**2
    events: list[Event] = []
    for number, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        time = 1.7e9 + 100.0 * number
        events.append(PredictionEvent(f"{prefix}{number}", score, key=key, time=time))
        events.append(LabelEvent(f"{prefix}{number}", int(label), time=time + 60.0))
    return events


def processed(pipeline: Pipeline, events: list[Event]) -> Outcome:
    """Let a pipeline take them as one micro-batch."""
    return pipeline.process(MicroBatch(events, {}, {}, {}, TimesRead(), (), (), None))
