"""Many events through join and engine at once: a stretch in which nothing is due.

The rules are those of `streamcal.engine.stepping`, and stay there: a stretch ends before the first event that
may begin a map version, raise an alarm, expire a label or be rejected. What comes out of it and what state it
leaves are those of `step` for each of its events in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from streamcal.blocks import NO_LABEL, Block
from streamcal.engine.engine import Engine
from streamcal.events import Domain
from streamcal.join.join import Join
from streamcal.join.stretches import Answered, Indices, Stretch
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
    predicted_at: Scores
    """Event times of the predictions; NaN where unknown."""


_NO_JOINS: Final = Joins(np.zeros(0), np.zeros(0), np.zeros(0, np.int8), np.zeros(0, np.int64), np.zeros(0))


class Stretched(NamedTuple):
    """What comes out of a stretch."""

    events: Stretch
    """Which events they are."""
    answered: Answered
    versions: list[int]
    """Those of the maps that answered; one for each of the weights."""
    weights: Scores
    """Those of the shift correction, float64[m, 2]."""
    which: Indices
    """Of each prediction, the number of its version and weights."""
    joined: Joins
    learned: dict[str | None, Indices]
    """By key: the numbers of its joined labels."""


def stretch(
    block: Block,
    join: Join,
    engine_of: Callable[[str | None], Engine],
    known: Container[str | None],
) -> Stretched | None:
    """Take the stretch that a block begins with; None if there is none.

    Parameters
    ----------
    block
        events in the order of arrival, none of them of another kind, all of one domain.
    join
        matches labels with predictions.
    engine_of
        gives the engine of a key that is known; what it gave may be put away when another is asked for.
    known
        the keys that have an engine.
    """
    domain, scores = block.domain, block.scores
    predicted, labelled = ~np.isnan(scores), block.labels != NO_LABEL

    def alike(waiting: Sequence[Pending | None]) -> int:
        for number, each in enumerate(waiting):
            if each is not None and each.domain != domain:
                return number
        return len(waiting)

    def looked(size: int) -> Stretch:
        return join.look(block.ids[:size], predicted[:size], labelled[:size], block.times[:size], alike)

    size = len(block)
    if block.keys is None and None in known:  # most often all is of one key: its engine says how far to look
        size = _end(engine_of(None).room(domain), np.flatnonzero(predicted), np.flatnonzero(labelled), size)
    found = looked(size) if size else None
    if found is None or not found.size:
        return None
    groups, size = _grouped(found, block.keys, engine_of, known, domain)
    if size < found.size:
        found = looked(size) if size else None
        if found is None or not found.size:
            return None
        groups, _ = _grouped(found, block.keys, engine_of, known, domain)
    at, ends = found.at, found.ends
    labels, times, given = block.labels[ends], block.times[at], scores[at]
    probabilities, seen = np.empty(len(at)), np.empty(len(at), np.int64)
    which, versions, weights = np.empty(len(at), np.intp), list[int](), list[Scores]()
    for key, (asked, learned) in groups.items():
        before = np.searchsorted(ends[learned], at[asked])
        ones = np.concatenate(([0], np.cumsum(labels[learned], dtype=np.int64)))[before]
        answers = engine_of(key).answer_many(given[asked], domain, before, ones)
        probabilities[asked], seen[asked] = answers.probabilities, answers.seen
        which[asked] = answers.which + len(versions)
        versions += [answers.version] * len(answers.weights)
        weights.append(answers.weights)
    moments = times.tolist()
    if np.isnan(times).any():
        moments = [None if moment != moment else moment for moment in moments]
    keys = [None] * len(at) if block.keys is None else [block.keys[index] for index in at.tolist()]
    answered = Answered(given.tolist(), probabilities.tolist(), moments, seen.tolist(), domain, keys)
    join.take(found, answered, labels.tolist())
    joined = _joins(found, answered, labels) if len(ends) else _NO_JOINS
    for key, (_, learned) in groups.items():
        if len(learned):
            latest = float(np.fmax.reduce(block.times[ends[learned]]))
            engine_of(key).learn_joined(
                joined.scores[learned],
                labels[learned],
                domain,
                None if latest != latest else latest,
                joined.seen[learned],
            )
    pairs = np.concatenate(weights) if weights else np.zeros((0, 2))
    learned_by = {key: learned for key, (_, learned) in groups.items() if len(learned)}
    return Stretched(found, answered, versions, pairs, which, joined, learned_by)


def _grouped(
    found: Stretch,
    keys: list[str | None] | None,
    engine_of: Callable[[str | None], Engine],
    known: Container[str | None],
    domain: Domain,
) -> tuple[dict[str | None, tuple[Indices, Indices]], int]:
    """Return the numbers of the predictions and labels of each key; and how many events may be taken."""
    own = found.own or [-1] * len(found.ends)
    asked: dict[str | None, Indices | list[int]] = {}
    learned: dict[str | None, list[int]] = {}
    if keys is None:
        asked[None] = np.arange(len(found.at))
    else:
        for number, index in enumerate(found.at.tolist()):
            asked.setdefault(keys[index], []).append(number)  # type: ignore[union-attr]
    for number, (mine, waiting) in enumerate(zip(own, found.waiting, strict=True)):
        key = waiting.key if waiting is not None else None if keys is None else keys[found.at[mine]]
        learned.setdefault(key, []).append(number)
    groups, size = dict[str | None, tuple[Indices, Indices]](), found.size
    for key in {**asked, **learned}:
        group = np.array(asked.get(key, ()), np.intp), np.array(learned.get(key, ()), np.intp)
        if key in known:
            at, ends = found.at[group[0]], found.ends[group[1]]
            size = min(size, _end(engine_of(key).room(domain), at, ends, size))
            groups[key] = group
        elif len(group[0]):
            size = min(size, int(found.at[group[0][0]]))
    return groups, size


def _end(room: tuple[int, int | None], at: Indices, ends: Indices, size: int) -> int:
    """Return how many events may come before something is due, by the predictions and labels of a key."""
    labels, predictions = room
    size = min(size, int(ends[labels])) if len(ends) > labels else size
    return min(size, int(at[predictions])) if predictions is not None and len(at) > predictions else size


def _joins(found: Stretch, answered: Answered, labels: Labels) -> Joins:
    """Return the labels with what was forecast of their predictions."""
    if found.own is None:
        met: Sequence[Any] = found.waiting
        return Joins(
            np.array([each.score for each in met]),
            np.array([each.probability for each in met]),
            labels,
            np.array([each.seen for each in met]),
            np.array([each.time for each in met], np.float64),
        )
    scores, probabilities, times, seen, *_ = answered
    rows = [
        (each.score, each.probability, each.seen, each.time)
        if each is not None
        else (scores[own], probabilities[own], seen[own], times[own])
        for own, each in zip(found.own, found.waiting, strict=True)
    ]
    forecasts, given, observed, moments = zip(*rows, strict=True)
    return Joins(
        np.array(forecasts), np.array(given), labels, np.array(observed), np.array(moments, np.float64)
    )
