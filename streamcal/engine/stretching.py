"""Many events through join and engine at once: a stretch in which nothing is due.

The rules are those of `streamcal.engine.stepping`, and stay there. A stretch ends before the first event that
may expire a label, be rejected, or fill a block of scores, and with the first label with which a map version
may begin or an alarm be raised. What comes out of it and what state it leaves are those of `step` for each of
its events in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from streamcal.blocks import NO_LABEL, Block
from streamcal.engine.emissions import Emission
from streamcal.engine.engine import Engine
from streamcal.events import Domain
from streamcal.join.join import Join
from streamcal.join.outcomes import Joined
from streamcal.join.stretches import Answered, Indices, Stretch
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
    keys: Sequence[str | None]
    """Of the joins."""
    is_due: bool
    """Whether it ended with a label with which something was due …"""
    emissions: tuple[Emission, ...]
    """… and what came of that."""


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

    def looked(size: int) -> Stretch:
        return join.look(block.ids[:size], predicted[:size], labelled[:size], block.times[:size], domain)

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
    keys = None if block.keys is None else [block.keys[index] for index in at.tolist()]
    answered = Answered(given, probabilities, times, seen, domain, keys)
    join.take(found, answered, labels)
    joined = _joins(found, answered, labels) if len(ends) else _NO_JOINS
    is_due, emissions = False, tuple[Emission, ...]()
    for key, (_, learned) in groups.items():
        if not len(learned):
            continue
        engine = engine_of(key)
        count = engine.room(domain)[0]
        free = learned[:count]
        if len(free):
            latest = float(np.fmax.reduce(block.times[ends[free]]))
            time = None if latest != latest else latest
            engine.learn_joined(joined.scores[free], labels[free], domain, time, joined.seen[free])
        if len(learned) > count:  # the last event of all
            is_due, emissions = True, engine.learn(_last(joined, float(block.times[ends[-1]]), domain, key))
    pairs = np.concatenate(weights) if weights else np.zeros((0, 2))
    joined_keys: list[str | None] = [None] * len(ends)
    for key, (_, learned) in groups.items() if groups.keys() != {None} else ():
        for number in learned.tolist():
            joined_keys[number] = key
    return Stretched(found, answered, versions, pairs, which, joined, joined_keys, is_due, emissions)


def _grouped(
    found: Stretch,
    keys: list[str | None] | None,
    engine_of: Callable[[str | None], Engine],
    known: Container[str | None],
    domain: Domain,
) -> tuple[dict[str | None, tuple[Indices, Indices]], int]:
    """Return the numbers of the predictions and labels of each key; and how many events may be taken."""
    waiting, own = found.waiting.keys, found.own
    if keys is None and waiting is None:
        asked: dict[str | None, Indices | list[int]] = {None: np.arange(len(found.at))}
        learned: dict[str | None, Indices | list[int]] = {None: np.arange(len(found.ends))}
    else:
        asked = _numbered([None] * len(found.at) if keys is None else [keys[at] for at in found.at.tolist()])
        mine = [-1] * len(found.ends) if own is None else own.tolist()
        learned = _numbered(
            [
                (None if waiting is None else waiting[number])
                if own_number < 0
                else (None if keys is None else keys[found.at[own_number]])
                for number, own_number in enumerate(mine)
            ]
        )
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
    """Return how many events a stretch may have, by the predictions and labels of a key."""
    labels, predictions = room
    size = min(size, int(ends[labels]) + 1) if len(ends) > labels else size
    return min(size, int(at[predictions])) if predictions is not None and len(at) > predictions else size


def _numbered(keys: Sequence[str | None]) -> dict[str | None, Indices | list[int]]:
    """Return the numbers at which each key stands."""
    numbers: dict[str | None, Any] = {}
    for number, key in enumerate(keys):
        numbers.setdefault(key, []).append(number)
    return numbers


def _last(joined: Joins, time: float, domain: Domain, key: str | None) -> Joined:
    """Return the last of the joins, whose label came at this time; NaN: none."""
    score, probability, label, seen, predicted_at = (column[-1].item() for column in joined)
    before, at = (None if moment != moment else moment for moment in (predicted_at, time))
    return Joined(score, probability, label, domain, before, at, seen, key)


def _joins(found: Stretch, answered: Answered, labels: Labels) -> Joins:
    """Return the labels with what was forecast of their predictions."""
    waiting, own = found.waiting, found.own
    columns = waiting.scores, waiting.probabilities, waiting.seen, waiting.times
    if own is not None and len(found.at):
        here = answered.scores, answered.probabilities, answered.seen, answered.times
        columns = tuple(np.where(own < 0, one, each[own]) for one, each in zip(columns, here, strict=True))  # type: ignore[assignment]
    scores, probabilities, seen, times = columns
    return Joins(scores, probabilities, labels, seen, times)
