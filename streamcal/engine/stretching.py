"""Many events through join and engine at once: a stretch in which nothing is due.

The rules are those of `streamcal.engine.stepping`, and stay there: a stretch ends before the first event that
may begin a map version, raise an alarm, expire a label or be rejected. What comes out of it and what state it
leaves are those of `step` for each of its events in turn.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.blocks import NO_LABEL, Block
from streamcal.engine.engine import Engine
from streamcal.join.join import Join
from streamcal.join.stretches import Answered, Matches
from streamcal.sketch.arrays import Counts, Labels, Scores

__all__ = ["Stretched", "stretch"]

_NOTHING: Final = np.zeros(0)


class Stretched(NamedTuple):
    """What comes out of a stretch."""

    size: int
    """How many events it has; 0: the first event is one for `step`."""
    predictions: npt.NDArray[np.intp]
    """Which of them are predictions."""
    answered: Answered
    version: int
    """Of the map that answered them."""
    weights: list[tuple[float, float]]
    """Of the shift correction, at each prediction."""
    joined: Joins


class Joins(NamedTuple):
    """The labels of a stretch with their predictions; an array each."""

    scores: Scores
    probabilities: Scores
    labels: Labels
    predicted_at: Scores
    """NaN: without a time."""
    labelled_at: Scores
    """NaN: without a time."""
    seen: Counts


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
    found = join.look(block.ids[:size], predicted[:size], labelled[:size], block.times[:size])
    size = _first_of_another(found.matches, found.labels.tolist(), found.size, domain, key)
    if size < found.size:
        found = join.look(block.ids[:size], predicted[:size], labelled[:size], block.times[:size])
    if not found.size:
        return None
    at, ends = found.predictions, found.labels
    labels, times = block.labels[ends], block.times[at]
    before = np.searchsorted(ends, at)
    ones = np.concatenate(([0], np.cumsum(labels, dtype=np.int64)))[before]
    answers = engine.answer_many(scores[at], domain, before, ones)
    moments = times.tolist()
    if np.isnan(times).any():
        moments = [None if moment != moment else moment for moment in moments]
    answered = Answered(
        scores[at].tolist(),
        answers.probabilities.tolist(),
        moments,
        answers.seen.tolist(),
        domain,
        key,
    )
    join.take(found, answered, labels.tolist())
    joined = _joins(found.matches, answered, labels, block.times[ends])
    latest = float(np.fmax.reduce(joined.labelled_at)) if len(labels) else np.nan
    engine.learn_joined(joined.scores, labels, domain, None if latest != latest else latest, joined.seen)
    return Stretched(found.size, at, answered, answers.version, answers.weights, joined)


def _first(mask: npt.NDArray[np.bool_], room: int | None) -> int:
    """Return how many events may come with so many of the mask among them."""
    if room is None or len(mask) <= room:
        return len(mask)
    where = np.flatnonzero(mask)
    return len(mask) if len(where) <= room else int(where[room])


def _first_of_another(matches: Matches, labels: list[int], size: int, domain: str, key: str | None) -> int:
    """Return where the first label is whose prediction has another domain or key."""
    for index, waiting in zip(labels, matches.waiting, strict=True):
        if waiting is not None and (waiting.domain != domain or waiting.key != key):
            return index
    return size


def _joins(matches: Matches, answered: Answered, labels: Labels, labelled_at: Scores) -> Joins:
    """Return the labels with what was forecast of their predictions."""
    rows = [
        (waiting.score, waiting.probability, waiting.time, waiting.seen)
        if waiting is not None
        else (answered.scores[own], answered.probabilities[own], answered.times[own], answered.seen[own])
        for own, waiting in zip(matches.own, matches.waiting, strict=True)
    ]
    if not rows:
        return Joins(_NOTHING, _NOTHING, labels, _NOTHING, labelled_at, np.zeros(0, np.int64))
    scores, probabilities, predicted_at, seen = zip(*rows, strict=True)
    return Joins(
        np.array(scores, np.float64),
        np.array(probabilities, np.float64),
        labels,
        np.array(predicted_at, np.float64),
        labelled_at,
        np.array(seen, np.int64),
    )
