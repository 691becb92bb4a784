"""Many events through join and engine at once: a stretch in which nothing is due.

The rules are those of `streamcal.engine.stepping`, and stay there: a stretch ends before the first event that
may begin a map version, raise an alarm, expire a label or be rejected. What comes out of it and what state it
leaves are those of `step` for each of its events in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.blocks import NO_LABEL, Block
from streamcal.engine.engine import Answers, Engine
from streamcal.join.join import Join
from streamcal.join.stretches import Answered, Stretch
from streamcal.join.tables import Pending
from streamcal.sketch.arrays import Counts, Labels, Scores

__all__ = ["Stretched", "stretch"]


class Joins(NamedTuple):
    """The labels of a stretch with what was forecast of their predictions; an array each."""

    scores: Scores
    probabilities: Scores
    labels: Labels
    seen: Counts
    """How many target scores had been observed before each prediction."""


_NO_JOINS: Final = Joins(np.zeros(0), np.zeros(0), np.zeros(0, np.int8), np.zeros(0, np.int64))


class Stretched(NamedTuple):
    """What comes out of a stretch."""

    size: int
    """How many events it has; 0: the first event is one for `step`."""
    events: Stretch
    """Which events they are."""
    answered: Answered
    answers: Answers
    joined: Joins


def stretch(block: Block, join: Join, engine: Engine, key: str | None) -> Stretched | None:
    """Take the stretch that a block begins with; None if there is none.

    Parameters
    ----------
    block
        events in the order of arrival, none of them of another kind, all of one key and domain.
    join
        matches labels with predictions.
    engine
        of the key.
    key
        of all predictions.
    """
    domain, scores = block.domain, block.scores
    predicted, labelled = ~np.isnan(scores), block.labels != NO_LABEL
    most_labels, most_predictions = engine.room(domain)
    size = min(_first(labelled, most_labels), _first(predicted, most_predictions))
    if not size:
        return None

    def alike(waiting: Sequence[Pending | None]) -> int:
        for number, each in enumerate(waiting):
            if each is not None and (each.domain != domain or each.key != key):
                return number
        return len(waiting)

    found = join.look(block.ids[:size], predicted[:size], labelled[:size], block.times[:size], alike)
    if not found.size:
        return None
    at, ends = found.at, found.ends
    labels, times, known = block.labels[ends], block.times[at], scores[at]
    before = np.searchsorted(ends, at)
    ones = np.concatenate(([0], np.cumsum(labels, dtype=np.int64)))[before]
    answers = engine.answer_many(known, domain, before, ones)
    moments = times.tolist()
    if np.isnan(times).any():
        moments = [None if moment != moment else moment for moment in moments]
    answered = Answered(
        known.tolist(), answers.probabilities.tolist(), moments, answers.seen.tolist(), domain, key
    )
    join.take(found, answered, labels.tolist())
    if not len(ends):
        return Stretched(found.size, found, answered, answers, _NO_JOINS)
    joined = _joins(found, answered, labels)
    latest = float(np.fmax.reduce(block.times[ends]))
    engine.learn_joined(joined.scores, labels, domain, None if latest != latest else latest, joined.seen)
    return Stretched(found.size, found, answered, answers, joined)


def _first(mask: npt.NDArray[np.bool_], room: int | None) -> int:
    """Return how many events may come with so many of the mask among them."""
    if room is None or len(mask) <= room:
        return len(mask)
    where = np.flatnonzero(mask)
    return len(mask) if len(where) <= room else int(where[room])


def _joins(found: Stretch, answered: Answered, labels: Labels) -> Joins:
    """Return the labels with what was forecast of their predictions."""
    if found.own is None:
        met: Sequence[Any] = found.waiting
        return Joins(
            np.array([each.score for each in met]),
            np.array([each.probability for each in met]),
            labels,
            np.array([each.seen for each in met]),
        )
    scores, probabilities, _, seen, *_ = answered
    rows = [
        (each.score, each.probability, each.seen)
        if each is not None
        else (scores[own], probabilities[own], seen[own])
        for own, each in zip(found.own, found.waiting, strict=True)
    ]
    columns = zip(*rows, strict=True)
    return Joins(np.array(next(columns)), np.array(next(columns)), labels, np.array(next(columns)))
