"""Stretches: runs of events whose case is the common one, taken many at a time.

The common case is a prediction whose id is new, and a label whose prediction waits for it. What else there is
(a label that is early, late or a duplicate, a prediction whose id is known, a label that expires) is for
`Join`, one event at a time. So `look` ends a stretch before the first event that may be anything else, and
within a stretch no rule but this one applies: the oldest leave a table that is full, or whose time is up.

What the tables hold is asked of `BulkTables`: columns in memory, or the objects of a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from streamcal.events import Domain
from streamcal.join.clock import ExpiryClock
from streamcal.join.tables import Early, Table
from streamcal.texts import Texts, same_bytes

__all__ = [
    "Answered",
    "BulkTables",
    "Floats",
    "Indices",
    "Labels",
    "Mask",
    "Settling",
    "Stretch",
    "Waiting",
    "look",
    "take",
]

_FRONT: Final = 256  # entries at the old end of a table that are looked at first
_WAITED: Final = -1

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.int8]


class Answered(NamedTuple):
    """The predictions of a stretch, answered; one of each."""

    scores: Floats
    probabilities: Floats
    times: Floats
    """NaN: none."""
    seen: npt.NDArray[np.int64]
    """How many target scores had been observed before each."""
    domain: Domain
    """Of all of them."""
    keys: Sequence[str | None] | None
    """None: none has one."""


class Waiting(NamedTuple):
    """The predictions that wait for some labels; what is said of one that does not wait means nothing."""

    found: Mask
    """Of each label, whether its prediction waits."""
    rows: Any
    """Where the tables have them: int64[k], or a list."""
    scores: Floats
    probabilities: Floats
    seen: npt.NDArray[np.int64]
    times: Floats
    """Of the predictions; NaN: none."""
    keys: Sequence[str | None] | None
    """None: none has one."""
    alike: int
    """How many, from the first on, are of the domain of the stretch, if they wait."""

    def cut(self, size: int) -> Waiting:
        """Return the first so many."""
        keys = None if self.keys is None else self.keys[:size]
        return Waiting(
            self.found[:size],
            self.rows[:size],
            self.scores[:size],
            self.probabilities[:size],
            self.seen[:size],
            self.times[:size],
            keys,
            min(self.alike, size),
        )


class Stretch(NamedTuple):
    """Events of the common case, from some event on."""

    size: int
    at: Indices
    """Which of the events are predictions."""
    names: Texts
    """Their ids."""
    ends: Indices
    """Which of the events are labels; an event may be both."""
    labelled: Texts
    """Their ids."""
    waiting: Waiting
    """Of each label, its prediction, if that waited before."""
    own: Indices | None
    """Of each label, the number of its prediction in the stretch, or −1; None: all of them waited before."""
    clock: Floats | None
    """The clock at each event; None: it does not move."""
    expired: Indices | None
    """How many pending predictions expire up to each event; None: none."""
    forgotten: int
    """How many settled ids are forgotten."""

    def cut(self, size: int) -> Stretch:
        """Return its beginning, of so many events."""
        at, ends = int(np.searchsorted(self.at, size)), int(np.searchsorted(self.ends, size))
        return Stretch(
            size,
            self.at[:at],
            self.names[:at],
            self.ends[:ends],
            self.labelled[:ends],
            self.waiting.cut(ends),
            self.own if self.own is None else self.own[:ends],
            self.clock if self.clock is None else self.clock[:size],
            self.expired if self.expired is None else self.expired[:size],
            self.forgotten,
        )


class Settling(NamedTuple):
    """When and how predictions end in a stretch."""

    expiries: int
    """So many of those that waited longest expire."""
    expired_by: Indices
    """Of each of them, the event before whose label, if any, it does."""
    expired_at: Floats
    """… and the clock then; NaN: none."""
    labels: Labels
    labelled_at: Floats
    """The clock at each label; NaN: none."""


class BulkTables(Protocol):
    """The join's tables for many events at a time."""

    in_portions: bool
    """Whether what expires by time has to be flushed in portions, which no stretch does."""

    @property
    def early(self) -> Table[Early]:
        """Labels that wait for their prediction."""

    def counts(self) -> tuple[int, int]:
        """Return how many predictions wait, and how many have ended."""

    def new(self, names: Texts) -> int:
        """Return how many predictions, from the first on, have an id that no table has, or none.

        Whether an id comes twice among them is not asked here.
        """

    def waiting(self, marked: Texts, domain: Domain) -> Waiting:
        """Return the predictions that wait for labels with these ids; None waits for none."""

    def since(self, count: int, *, ended: bool) -> Floats:
        """Return since when the first so many that wait, or have ended, do; of fewer all. NaN: no time."""

    def leave(self, marked: Texts, waiting: Waiting, count: int) -> Mask:
        """Return which labels are for one of the first so many that wait, at least one, bool[k]."""

    def take(self, made: Stretch, answered: Answered, since: Floats, settling: Settling) -> None:
        """Let the tables be as after a stretch.

        Parameters
        ----------
        made
            what `look` gave; nothing was changed since.
        answered
            its predictions, which wait ``since`` these times (NaN: no time), float64[m].
        settling
            when they, and others, end.
        """


def look(
    ids: Texts,
    predicted: Mask,
    labelled: Mask,
    times: Floats,
    domain: Domain,
    tables: BulkTables,
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
    domain
        of the predictions, and of those that labels may meet.
    tables, clock, max_pending
        of the join.
    """
    moved, size = _moved(times, clock)
    at, ends = np.flatnonzero(predicted[:size]), np.flatnonzero(labelled[:size])
    ids.hashes()  # once for all its parts
    names = _chosen(ids, at)
    whole = min(tables.new(names), _distinct(names))
    if whole < len(at):
        size = int(at[whole])
    ends = ends[: np.searchsorted(ends, size)]
    marked = _chosen(ids, ends)
    waiting = tables.waiting(marked, domain)
    own, whole = _met(marked, ends, names, at, waiting.found)
    whole = min(whole, waiting.alike)
    if whole < len(ends):
        size = int(ends[whole])
    made = Stretch(size, at, names, ends, marked, waiting, own, moved, None, 0).cut(size)
    return _bounded(made, tables, clock, max_pending)


def _chosen(ids: Texts, where: Indices) -> Texts:
    """Return the ids at some indices."""
    return ids if len(where) == len(ids) else ids.take(where)


def _distinct(ids: Texts) -> int:
    """Return how many ids, from the first on, are distinct, as far as hashes tell; None is none."""
    hashes = ids.hashes()
    named = ids.sizes > 0
    alone = bool(named.all())
    ordered = np.sort(hashes if alone else hashes[named])
    if not (ordered[1:] == ordered[:-1]).any():
        return len(ids)
    order = np.argsort(hashes, kind="stable")
    again = order[1:][hashes[order[1:]] == hashes[order[:-1]]]
    return int(again[named[again]].min(initial=len(ids)))


def _moved(times: Floats, clock: ExpiryClock) -> tuple[Floats | None, int]:
    """Return the clock at each event, None if it does not move; and for how many events that can be told."""
    timed = ~np.isnan(times)
    if not timed.any():
        return None, len(times)
    if clock.time is None or clock.start is None:  # the first time is a rule of its own
        return None, int(timed.argmax())
    moved = np.fmax.accumulate(np.concatenate(([clock.time], times)))[1:]
    return moved, len(times)


def _met(marked: Texts, ends: Indices, names: Texts, at: Indices, found: Mask) -> tuple[Indices | None, int]:
    """Return the numbers of the predictions that labels meet, and how many labels meet something."""
    whole = _distinct(marked)
    if found.all():
        return None, whole
    own = np.full(len(marked), _WAITED, np.intp)
    alone = marked.sizes == 0  # with its prediction
    own[alone] = np.searchsorted(at, ends[alone])
    missing = np.flatnonzero(~(found | alone))
    if len(missing) and len(at):
        hashes, known = marked.hashes()[missing], names.hashes()
        order = np.argsort(known)
        place = np.minimum(np.searchsorted(known, hashes, sorter=order), len(order) - 1)
        mine = order[place]
        met = (known[mine] == hashes) & (at[mine] <= ends[missing])
        met &= names.sizes[mine] == marked.sizes[missing]
        some = np.flatnonzero(met)
        asked, here = missing[some], mine[some]
        met[some] = same_bytes(
            names.data, names.starts[here], marked.data, marked.starts[asked], names.sizes[here]
        )
        own[missing[met]] = mine[met]
        missing = missing[~met]
    return own, min(whole, int(missing[0])) if len(missing) else whole


def _bounded(made: Stretch, tables: BulkTables, clock: ExpiryClock, most: int) -> Stretch:
    """Return the stretch with what leaves the tables in it; cut off where that is not only the oldest."""
    held, remembered = tables.counts()
    due = made.clock is not None and len(made.clock) > 0 and made.clock[-1] > clock.next_look
    if not due and held + len(made.at) <= most and remembered + len(made.ends) <= most:
        return made
    if not made.size or held > most or remembered > most:  # the option was lowered
        return made.cut(0)
    put, gone = np.zeros(made.size, np.intp), np.zeros(made.size, np.intp)
    put[made.at] = gone[made.ends] = 1
    alone = made.ends[made.labelled.sizes == 0]  # these never wait
    put[alone] = gone[alone] = 0
    settling = np.cumsum(gone)
    expired = np.maximum.accumulate(np.maximum(held + np.cumsum(put) - (settling - gone) - most, 0))
    reached = None
    if due and made.clock is not None:
        if tables.in_portions:
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
    if reached is not None:
        front = _ends(tables, int(expired[-1]), clock, reached, ended=False)
        expired = np.maximum.accumulate(np.maximum(expired, np.searchsorted(front, reached)))
    forgotten = np.maximum(remembered + expired + settling - most, 0)
    if reached is not None:
        last = _ends(tables, int(forgotten[-1]), clock, reached, ended=True)
        forgotten = np.maximum(forgotten, np.searchsorted(last, reached))
    whole = int(np.searchsorted(expired, held, "right"))
    whole = min(whole, int(np.searchsorted(np.maximum.accumulate(forgotten), remembered, "right")))
    if expired[-1] and len(made.ends) and held:
        leaving = tables.leave(made.labelled, made.waiting, min(int(expired[-1]), held))
        if leaving.any():  # it may be late, or its prediction leaves in another way
            whole = min(whole, int(made.ends[leaving.argmax()]))
    if whole < made.size:
        return _bounded(made.cut(whole), tables, clock, most)
    return made._replace(expired=expired, forgotten=int(forgotten.max()))


def _ends(tables: BulkTables, least: int, clock: ExpiryClock, reached: Floats, *, ended: bool) -> Floats:
    """Return when the time of the oldest is up: of so many, and of all for which it is in the stretch."""
    count = max(least, _FRONT)
    while True:
        since = tables.since(count, ended=ended)
        ends = np.where(np.isnan(since), clock.end_of(None), since + clock.ttl)
        if len(ends) < count or ends[-1] >= reached[-1]:
            return ends
        count *= 2


def take(made: Stretch, answered: Answered, labels: Labels, tables: BulkTables, now: float | None) -> None:
    """Let the tables be as after the events of a stretch; ``now``: the clock before it; see `BulkTables`."""
    moved = made.clock
    if moved is None:
        moved = np.full(made.size, np.nan if now is None else now)
    steps = np.zeros(0, np.intp) if made.expired is None else np.diff(made.expired, prepend=0)
    by = np.repeat(np.arange(len(steps)), steps)
    tables.take(made, answered, moved[made.at], Settling(len(by), by, moved[by], labels, moved[made.ends]))
