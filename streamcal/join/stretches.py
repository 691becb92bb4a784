"""Stretches: runs of events whose case is the common one, taken many at a time.

The common case is a prediction whose id is new, and a label whose prediction waits for it. What else there is
(a label that is early, late or a duplicate, a prediction whose id is known, a label that expires) is for
`Join`, one event at a time. So `look` ends a stretch before the first event that may be anything else, and
within a stretch no rule but this one applies: the oldest leave a table that is full, or whose time is up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.events import Domain
from streamcal.join.clock import ExpiryClock
from streamcal.join.tables import MemoryTable, Pending, Settled, Table, Tables

__all__ = ["Answered", "Matches", "Stretch", "look", "take"]

_FRONT: Final = 256  # entries at the old end of a table that are looked at first
_WAITED: Final = -1

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


class Matches(NamedTuple):
    """Labels that meet their predictions, in order."""

    own: list[int]
    """The number of the prediction among those of the stretch; −1: it waited before."""
    waiting: list[Pending | None]
    """The prediction, if it waited before."""


class Answered(NamedTuple):
    """The predictions of a stretch, answered; a list each."""

    scores: list[float]
    probabilities: list[float]
    times: list[float | None]
    seen: Sequence[int]
    """How many target scores had been observed before each."""
    domain: Domain
    """Of all of them."""
    key: str | None
    """Of all of them."""


class Stretch(NamedTuple):
    """Events of the common case, from some event on."""

    size: int
    ids: list[str | None]
    predictions: Indices
    """Which of the events are predictions."""
    labels: Indices
    """Which are labels; an event may be both."""
    matches: Matches
    """What the labels meet."""
    clock: Floats | None
    """The clock at each event; None: it does not move."""
    expired: Indices | None
    """How many pending predictions expire up to each event; None: none."""
    forgotten: int
    """How many settled ids are forgotten."""


def look(
    ids: list[str | None],
    predicted: Mask,
    labelled: Mask,
    times: Floats,
    tables: Tables,
    clock: ExpiryClock,
    max_pending: int,
) -> Stretch:
    """Return the stretch that these events begin with; nothing changes.

    Parameters
    ----------
    ids
        of the events, in order; None only where prediction and label come together.
    predicted, labelled
        bool[n]: which events are predictions, and which are labels.
    times
        float64[n], NaN: none.
    tables, clock, max_pending
        of the join.
    """
    moved, size = _moved(times, clock)
    ids = ids[:size]
    at, labels = np.flatnonzero(predicted[:size]), np.flatnonzero(labelled[:size])
    pending, settled, early = tables.pending.entries, tables.settled.entries, tables.early.entries
    named = [ids[index] for index in at.tolist()] if len(at) < size else ids
    number = dict(zip(named, range(len(named)), strict=True))
    known = [table for table in (pending, settled, early) if table]
    anonymous = named.count(None) if None in number else 0
    if len(number) - (anonymous > 0) + anonymous < len(named) or not all(
        table.keys().isdisjoint(number) for table in known
    ):
        seen = set[str]()
        for index, id_ in zip(at.tolist(), named, strict=True):
            if id_ is None:
                continue
            if id_ in seen or any(id_ in table for table in known):
                size = index
                break
            seen.add(id_)
        labels = labels[: np.searchsorted(labels, size)]
    matches, end = _matched(ids, at, labels, number, tables)
    size = min(size, end)
    ids, at = ids[:size], at[: np.searchsorted(at, size)]
    count = int(np.searchsorted(labels, size))
    labels, matches = labels[:count], Matches(matches.own[:count], matches.waiting[:count])
    if moved is not None:
        moved = moved[:size]
    made = Stretch(size, ids, at, labels, matches, moved, None, 0)
    return _bounded(made, tables, clock, max_pending)


def _moved(times: Floats, clock: ExpiryClock) -> tuple[Floats | None, int]:
    """Return the clock at each event, None if it does not move; and for how many events that can be told."""
    timed = ~np.isnan(times)
    if not timed.any():
        return None, len(times)
    if clock.time is None or clock.start is None:  # the first time is a rule of its own
        return None, int(timed.argmax())
    moved = np.fmax.accumulate(np.concatenate(([clock.time], times)))[1:]
    return moved, len(times)


def _matched(
    ids: list[str | None],
    at: Indices,
    labels: Indices,
    number: dict[str | None, int],
    tables: Tables,
) -> tuple[Matches, int]:
    """Return what labels meet, up to the first that meets nothing; and where that one is."""
    pending = tables.pending.entries
    own, waiting = list[int](), list[Pending | None]()
    taken = set[str]()
    for index in labels.tolist():
        id_ = ids[index]
        if id_ is None:  # with its prediction
            own.append(int(np.searchsorted(at, index)))
            waiting.append(None)
            continue
        found = pending.get(id_)
        mine = _WAITED if found is not None else number.get(id_, len(at))
        if id_ in taken or (found is None and (mine >= len(at) or at[mine] > index)):
            return Matches(own, waiting), index
        taken.add(id_)
        own.append(mine)
        waiting.append(found)
    return Matches(own, waiting), len(ids)


def _bounded(made: Stretch, tables: Tables, clock: ExpiryClock, most: int) -> Stretch:
    """Return the stretch with what leaves the tables in it; cut off where that is not only the oldest."""
    pending, settled = tables.pending, tables.settled
    held, remembered = len(pending), len(settled)
    due = made.clock is not None and len(made.clock) > 0 and made.clock[-1] > clock.next_look
    if not due and held + len(made.predictions) <= most and remembered + len(made.labels) <= most:
        return made
    if held > most or remembered > most:  # the option was lowered
        return _cut(made, 0)
    put, gone = np.zeros(made.size, np.intp), np.zeros(made.size, np.intp)
    put[made.predictions] = gone[made.labels] = 1
    for index in made.labels.tolist():
        if made.ids[index] is None:  # it never waits
            put[index] = gone[index] = 0
    settling = np.cumsum(gone)
    expired = np.maximum.accumulate(np.maximum(held + np.cumsum(put) - (settling - gone) - most, 0))
    reached = None
    if due and made.clock is not None:
        reached = np.minimum(made.clock, clock.watermark)
        early = tables.early.oldest()
        ends = [made.clock[0] + clock.ttl]  # of what arrives in the stretch itself
        if early is not None:
            ends.append(clock.end_of(early[1].since))
        whole = int(np.searchsorted(reached, min(ends), "right"))
        if whole < made.size:
            return _bounded(_cut(made, whole), tables, clock, most)
    front = _front(pending, int(expired[-1]), clock, reached)
    if reached is not None:
        passed = np.searchsorted([clock.end_of(entry.since) for _, entry in front], reached)
        expired = np.maximum.accumulate(np.maximum(expired, passed))
    last = _front(settled, int(remembered + expired[-1] + settling[-1] - most), clock, reached)
    forgotten = np.maximum(remembered + expired + settling - most, 0)
    if reached is not None:
        passed = np.searchsorted([clock.end_of(entry.since) for _, entry in last], reached)
        forgotten = np.maximum(forgotten, passed)
    whole = int(np.searchsorted(expired, held, "right"))
    whole = min(whole, int(np.searchsorted(np.maximum.accumulate(forgotten), remembered, "right")))
    leaving = {id_ for id_, _ in front[: int(expired[-1])]}
    for index in made.labels.tolist():
        if made.ids[index] in leaving:  # it may be late, or its prediction leaves in another way
            whole = min(whole, index)
            break
    if not isinstance(pending, MemoryTable) or not isinstance(settled, MemoryTable):
        whole = min(whole, int(np.searchsorted(np.maximum.accumulate(expired + forgotten), 0, "right")))
    if whole < made.size:
        return _bounded(_cut(made, whole), tables, clock, most)
    return made._replace(expired=expired, forgotten=int(forgotten.max()))


def _front(
    table: Table[Pending] | Table[Settled], least: int, clock: ExpiryClock, reached: Floats | None
) -> list[tuple[str, Pending | Settled]]:
    """Return the oldest entries of a table: so many, and all whose time is up in the stretch."""
    if not isinstance(table, MemoryTable):
        oldest = table.oldest()
        return [] if oldest is None else [oldest]
    count = max(least, _FRONT)
    while True:
        front = table.first(count)
        if len(front) < count or reached is None or clock.end_of(front[-1][1].since) >= reached[-1]:
            return front
        count *= 2


def _cut(made: Stretch, size: int) -> Stretch:
    """Return the beginning of a stretch."""
    labels = int(np.searchsorted(made.labels, size))
    return made._replace(
        size=size,
        ids=made.ids[:size],
        predictions=made.predictions[: np.searchsorted(made.predictions, size)],
        labels=made.labels[:labels],
        matches=Matches(made.matches.own[:labels], made.matches.waiting[:labels]),
        clock=None if made.clock is None else made.clock[:size],
    )


def take(
    made: Stretch,
    answered: Answered,
    labels: list[int],
    tables: Tables,
    now: float | None,
) -> None:
    """Let the tables be as after the events of a stretch.

    Parameters
    ----------
    made
        what `look` gave; nothing was changed since.
    answered
        its predictions.
    labels
        one for each of its labels.
    tables
        of the join.
    now
        the clock before the stretch.
    """
    pending, settled = tables.pending, tables.settled
    expiries = 0 if made.expired is None else int(made.expired[-1])
    leaving = [pending.pop_oldest()[0] for _ in range(expiries)]
    for _ in range(made.forgotten):
        settled.pop_oldest()
    moved = made.clock
    since = repeat(now) if moved is None else moved[made.predictions].tolist()
    ids = [made.ids[index] for index in made.predictions.tolist()]
    entries = map(
        Pending,
        since,
        answered.scores,
        answered.probabilities,
        repeat(answered.domain),
        repeat(answered.key),
        answered.times,
        answered.seen,
    )
    waits = dict(zip(ids, entries, strict=False))
    names = [made.ids[index] for index in made.labels.tolist()]
    for id_, own in zip(names, made.matches.own, strict=True):
        if own == _WAITED:
            del pending.entries[str(id_)]
        elif id_ is not None:
            del waits[id_]
    waits.pop(None, None)
    pending.entries.update(waits)
    ends = made.labels
    outcomes: list[int | None] = list(labels)
    if made.expired is not None and expiries:
        steps = np.diff(made.expired, prepend=0)
        both = np.concatenate((np.repeat(np.arange(made.size), steps), ends))
        order = np.argsort(both, kind="stable")
        ends = both[order]
        names, outcomes = [*leaving, *names], [*repeat(None, expiries), *labels]
        names = [names[index] for index in order.tolist()]
        outcomes = [outcomes[index] for index in order.tolist()]
    moments = repeat(now) if moved is None else moved[ends].tolist()
    settled.entries.update(
        (id_, Settled(moment, outcome))
        for id_, moment, outcome in zip(names, moments, outcomes, strict=False)
        if id_ is not None
    )
