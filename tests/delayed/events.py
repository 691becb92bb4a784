"""Events of a stream, and engines that take them in blocks of any size."""

from __future__ import annotations

import random
from typing import NamedTuple

from streamcal import Recalibrator
from tests.delayed.streams import Stream
from tests.inside import memo_of, memos_of


class Act(NamedTuple):
    """A prediction; or the label of one, told with the number of the first of its batch."""

    row: int
    first: int | None = None


def acts(stream: Stream, batch: int) -> list[Act]:
    """Return the events of a stream: predictions in batches, and behind each the labels that have come."""
    order, events, j = stream.order(), list[Act](), 0
    for i in range(len(stream.scores)):
        events.append(Act(i))
        if (i + 1) % batch == 0:
            some = []
            while j < len(order) and stream.due[order[j]] <= i:
                some.append(Act(order[j], order[j] // batch * batch))
                j += 1
            events += sorted(some, key=lambda act: act.first or 0)
    return events


def take(engine: Recalibrator, stream: Stream, events: list[Act], seed: int | None = None) -> Recalibrator:
    """Let an engine take events, one by one or, with a seed, in blocks of random sizes; return it."""
    rng, i = random.Random(seed), 0
    scores, labels = stream.scores, stream.labels
    while i < len(events):
        most, end, first = 1 if seed is None else rng.choice((1, 2, 7, 40, 200, 1000)), i + 1, events[i].first
        while end < len(events) and end - i < most and events[end].first == first:
            end += 1
        rows, i = [act.row for act in events[i:end]], end
        if seed is not None and first is None:
            engine.observe_many(scores[rows])
        elif seed is not None:
            engine.learn_many(scores[rows], labels[rows], memos=memos_of(first, len(labels[rows])))
        elif first is None:
            engine.observe_one(float(scores[rows[0]]))
        else:
            engine.learn_one(float(scores[rows[0]]), int(labels[rows[0]]), memo=memo_of(first))
    return engine
