"""Stretches: runs of events whose case is the common one, taken many at a time.

The common case is a prediction whose id is new, and a label whose prediction waits for it. What else there is
(a label that is early, late or a duplicate, a prediction whose id is known, a label that expires) is for
`Join`, one event at a time. So `look` ends a stretch before the first event that may be anything else, and
within a stretch no rule but this one applies: the oldest leave a table that is full, or whose time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from streamcal.events import Domain
from streamcal.join.clock import ExpiryClock
from streamcal.join.tables import MemoryTables, Pending, Settled, Table, Tables

__all__ = ["Answered", "Stretch", "look", "take"]

_FRONT: Final = 256  # entries at the old end of a table that are looked at first
_WAITED: Final = -1

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]

E = TypeVar("E", Pending, Settled)


class Answered(NamedTuple):
    """The predictions of a stretch, answered; one of each."""

    scores: Sequence[float]
    probabilities: Sequence[float]
    times: Sequence[float | None]
    seen: Sequence[int]
    """How many target scores had been observed before each."""
    domain: Domain
    """Of all of them."""
    keys: Sequence[str | None]


class Stretch(NamedTuple):
    """Events of the common case, from some event on."""

    size: int
    at: Indices
    """Which of the events are predictions."""
    names: list[str | None]
    """Their ids."""
    ends: Indices
    """Which of the events are labels; an event may be both."""
    labelled: list[str | None]
    """Their ids."""
    waiting: list[Pending | None]
    """Of each label, its prediction, if that waited before."""
    own: list[int] | None
    """Of each label, the number of its prediction in the stretch, or −1; None: all of them waited before."""
    clock: Floats | None
    """The clock at each event; None: it does not move."""
    expired: Indices | None
    """How many pending predictions expire up to each event; None: none."""
    forgotten: int
    """How many settled ids are forgotten."""

    def cut(self, size: int) -> Stretch:
        """Return its beginning, of so many events."""
        at, ends = np.searchsorted(self.at, size), np.searchsorted(self.ends, size)
        return Stretch(
            size,
            self.at[:at],
            self.names[:at],
            self.ends[:ends],
            self.labelled[:ends],
            self.waiting[:ends],
            self.own if self.own is None else self.own[:ends],
            self.clock if self.clock is None else self.clock[:size],
            self.expired if self.expired is None else self.expired[:size],
            self.forgotten,
        )


def look(
    ids: list[str | None],
    predicted: Mask,
    labelled: Mask,
    times: Floats,
    tables: Tables,
    clock: ExpiryClock,
    max_pending: int,
    alike: Callable[[Sequence[Pending | None]], int],
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
    alike
        how many of the predictions that labels meet, from the first on, may be in one stretch; None stands
        for one of the events.
    """
    moved, size = _moved(times, clock)
    at, ends = np.flatnonzero(predicted[:size]), np.flatnonzero(labelled[:size])
    names, whole = _new(_chosen(ids, at), tables)
    if whole < len(at):
        size = int(at[whole])
    ends = ends[: np.searchsorted(ends, size)]
    marked = _chosen(ids, ends)
    waiting, own, whole = _met(marked, ends, names, at, tables)
    whole = min(whole, alike(waiting))
    if whole < len(ends):
        size = int(ends[whole])
    made = Stretch(size, at, names, ends, marked, waiting, own, moved, None, 0).cut(size)
    return _bounded(made, tables, clock, max_pending)


def _chosen(ids: list[str | None], where: Indices) -> list[str | None]:
    """Return the ids at some indices."""
    return ids if len(where) == len(ids) else [ids[index] for index in where.tolist()]


def _new(names: list[str | None], tables: Tables) -> tuple[list[str | None], int]:
    """Return the ids of predictions, and how many of them, from the first on, are new."""
    known = [table.entries for table in (tables.pending, tables.settled, tables.early) if table.entries]
    each = set(names)
    anonymous = names.count(None) - 1 if None in each else 0
    if len(each) + anonymous == len(names) and all(table.keys().isdisjoint(each) for table in known):
        return names, len(names)
    seen = set[str]()
    for number, id_ in enumerate(names):
        if id_ is not None:
            if id_ in seen or any(id_ in table for table in known):
                return names, number
            seen.add(id_)
    return names, len(names)


def _moved(times: Floats, clock: ExpiryClock) -> tuple[Floats | None, int]:
    """Return the clock at each event, None if it does not move; and for how many events that can be told."""
    timed = ~np.isnan(times)
    if not timed.any():
        return None, len(times)
    if clock.time is None or clock.start is None:  # the first time is a rule of its own
        return None, int(timed.argmax())
    moved = np.fmax.accumulate(np.concatenate(([clock.time], times)))[1:]
    return moved, len(times)


def _met(
    marked: list[str | None], ends: Indices, names: list[str | None], at: Indices, tables: Tables
) -> tuple[list[Pending | None], list[int] | None, int]:
    """Return what labels meet, and how many of them, from the first on, meet something."""
    pending = tables.pending.entries
    waiting: list[Pending | None] = list(map(pending.get, marked))  # type: ignore[arg-type]
    twice = len(set(marked)) < len(marked)
    if not twice and not any(found is None for found in waiting):
        return waiting, None, len(marked)
    number = dict(zip(names, range(len(names)), strict=True))
    own, taken = list[int](), set[str]()
    for index, id_, found in zip(ends.tolist(), marked, waiting, strict=True):
        if id_ is None:  # with its prediction
            own.append(int(np.searchsorted(at, index)))
            continue
        mine = _WAITED if found is not None else number.get(id_, len(at))
        if id_ in taken or (found is None and (mine >= len(at) or at[mine] > index)):
            break
        taken.add(id_)
        own.append(mine)
    return waiting, own, len(own)


def _bounded(made: Stretch, tables: Tables, clock: ExpiryClock, most: int) -> Stretch:
    """Return the stretch with what leaves the tables in it; cut off where that is not only the oldest."""
    pending, settled = tables.pending, tables.settled
    held, remembered = len(pending), len(settled)
    due = made.clock is not None and len(made.clock) > 0 and made.clock[-1] > clock.next_look
    if not due and held + len(made.at) <= most and remembered + len(made.ends) <= most:
        return made
    if not made.size or held > most or remembered > most:  # the option was lowered
        return made.cut(0)
    put, gone = np.zeros(made.size, np.intp), np.zeros(made.size, np.intp)
    put[made.at] = gone[made.ends] = 1
    if None in made.labelled:  # these never wait
        alone = [index for index, id_ in zip(made.ends, made.labelled, strict=True) if id_ is None]
        put[alone] = gone[alone] = 0
    settling = np.cumsum(gone)
    expired = np.maximum.accumulate(np.maximum(held + np.cumsum(put) - (settling - gone) - most, 0))
    reached = None
    if due and made.clock is not None:
        if not isinstance(tables, MemoryTables):  # what expires by time is flushed in portions
            whole = int(np.searchsorted(made.clock, clock.next_look, "right"))
            return _bounded(made.cut(whole), tables, clock, most)
        reached = np.minimum(made.clock, clock.watermark)
        early = tables.early.oldest()
        ends = [made.clock[0] + clock.ttl]  # of what arrives in the stretch itself
        if early is not None:
            ends.append(clock.end_of(early[1].since))
        whole = int(np.searchsorted(reached, min(ends), "right"))
        if whole < made.size:
            return _bounded(made.cut(whole), tables, clock, most)
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
    if not leaving.isdisjoint(made.labelled):  # it may be late, or its prediction leaves in another way
        first = next(number for number, id_ in enumerate(made.labelled) if id_ in leaving)
        whole = min(whole, int(made.ends[first]))
    if whole < made.size:
        return _bounded(made.cut(whole), tables, clock, most)
    return made._replace(expired=expired, forgotten=int(forgotten.max()))


def _front(table: Table[E], least: int, clock: ExpiryClock, reached: Floats | None) -> list[tuple[str, E]]:
    """Return the oldest entries of a table: so many, and all whose time is up in the stretch."""
    count = max(least, _FRONT)
    while True:
        front = table.first(count)
        if len(front) < count or reached is None or clock.end_of(front[-1][1].since) >= reached[-1]:
            return front
        count *= 2


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
    leaving = pending.pop_first(expiries)
    settled.pop_first(made.forgotten)
    moved = made.clock
    since: Iterable[float | None] = repeat(now)
    if moved is not None:
        since = moved[made.at].tolist()
        since = answered.times if since == answered.times else since  # the usual: no number is held twice
    entries = map(
        Pending,
        since,
        answered.scores,
        answered.probabilities,
        repeat(answered.domain),
        answered.keys,
        answered.times,
        answered.seen,
    )
    if made.own is None:
        for id_ in made.labelled:
            del pending.entries[id_]  # type: ignore[arg-type]  # each has waited
        pending.entries.update(zip(made.names, entries, strict=False))  # type: ignore[arg-type]
    else:
        waits = dict(zip(made.names, entries, strict=False))
        for id_, own in zip(made.labelled, made.own, strict=True):
            (pending.entries if own == _WAITED else waits).pop(id_, None)  # type: ignore[arg-type]
        pending.entries.update(waits)  # type: ignore[arg-type]
    ends, names, outcomes = made.ends, made.labelled, list[int | None](labels)
    if made.expired is not None and expiries:
        steps = np.diff(made.expired, prepend=0)
        both = np.concatenate((np.repeat(np.arange(made.size), steps), ends))
        order = np.argsort(both, kind="stable")
        names, outcomes = [*leaving, *names], [*repeat(None, expiries), *outcomes]
        ends, where = both[order], order.tolist()
        names = [names[index] for index in where]
        outcomes = [outcomes[index] for index in where]
    moments = repeat(now) if moved is None else moved[ends].tolist()
    ended = dict(zip(names, map(Settled, moments, outcomes), strict=False))
    ended.pop(None, None)
    settled.entries.update(ended)  # type: ignore[arg-type]
