"""Tables of objects, for many events at a time: those of a store, of which the batch's part is at hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamcal.events import Domain
from streamcal.join.stretches import Answered, Floats, Mask, Settling, Stretch, Waiting
from streamcal.join.tables import Early, Pending, Settled, Table, Tables
from streamcal.texts import Texts

__all__ = ["EntryTables", "optional"]

_NOBODY = Pending(None, 0.0, 0.0, "target", None)


class EntryTables:
    """See `streamcal.join.stretches.BulkTables`.

    Parameters
    ----------
    tables
        with all that is asked for prefetched.
    """

    in_portions = True

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @property
    def early(self) -> Table[Early]:
        """Labels that wait for their prediction."""
        return self._tables.early

    def counts(self) -> tuple[int, int]:
        """Return how many predictions wait, and how many have ended."""
        return len(self._tables.pending), len(self._tables.settled)

    def new(self, names: Texts) -> int:
        """Return how many predictions have an id that no table has."""
        tables, ids = self._tables, names.tolist()
        known = [each.entries for each in (tables.pending, tables.settled, tables.early) if each.entries]
        if all(entries.keys().isdisjoint(ids) for entries in known):
            return len(ids)
        return next(number for number, id_ in enumerate(ids) if any(id_ in entries for entries in known))

    def waiting(self, marked: Texts, domain: Domain) -> Waiting:
        """Return the predictions that wait for labels."""
        entries: Any = self._tables.pending.entries
        rows = [entries.get(id_) for id_ in marked.tolist()]
        found = np.array([row is not None for row in rows], np.bool_)
        known = [_NOBODY if row is None else row for row in rows]
        keys = [row.key for row in known]
        strange = (
            number
            for number, row in enumerate(rows)
            if row is not None and (row.domain != domain or row.weight is not None)
        )
        return Waiting(
            found,
            rows,
            np.array([row.score for row in known], np.float64),
            np.array([row.probability for row in known], np.float64),
            np.array([row.seen for row in known], np.int64),
            np.array([row.time for row in known], np.float64),  # None becomes NaN
            None if keys.count(None) == len(keys) else keys,
            next(strange, len(rows)),
        )

    def since(self, count: int, *, ended: bool) -> Floats:
        """Return since when the first so many are there."""
        table: Table[Any] = self._tables.settled if ended else self._tables.pending
        return np.array([entry.since for _, entry in table.first(count)], np.float64)

    def leave(self, marked: Texts, waiting: Waiting, count: int) -> Mask:  # noqa: ARG002
        """Return which labels are for one of the first so many that wait."""
        first = {id_ for id_, _ in self._tables.pending.first(count)}
        return np.array([id_ in first for id_ in marked.tolist()], np.bool_)

    def take(self, made: Stretch, answered: Answered, since: Floats, settling: Settling) -> None:
        """Let the tables be as after a stretch."""
        pending, settled = self._tables.pending, self._tables.settled
        names: list[Any] = pending.pop_first(settling.expiries)
        settled.pop_first(made.forgotten)
        scores, probabilities = answered.scores.tolist(), answered.probabilities.tolist()
        domains = [answered.domain] * len(scores)
        keys = answered.keys or [None] * len(scores)
        entries = map(
            Pending,
            optional(since),
            scores,
            probabilities,
            domains,
            keys,
            optional(answered.times),
            answered.seen.tolist(),
        )
        waits: dict[Any, Pending] = dict(zip(made.names.tolist(), entries, strict=True))
        marked: list[Any] = made.labelled.tolist()
        own = [-1] * len(marked) if made.own is None else made.own.tolist()
        for id_, number in zip(marked, own, strict=True):
            (pending.entries if number < 0 else waits).pop(id_, None)
        waits.pop(None, None)
        pending.entries.update(waits)
        ends = np.concatenate((settling.expired_by, made.ends))
        moments = np.concatenate((settling.expired_at, settling.labelled_at))
        order = np.argsort(ends, kind="stable")
        names += marked
        outcomes = [None] * settling.expiries + settling.labels.tolist()
        where = order.tolist()
        ended = map(Settled, optional(moments[order]), [outcomes[index] for index in where])
        last = dict(zip([names[index] for index in where], ended, strict=True))
        last.pop(None, None)
        settled.entries.update(last)


def optional(values: Floats) -> list[float | None]:
    """Return numbers, None in the place of NaN."""
    numbers: list[float | None] = values.tolist()
    if np.isnan(values).any():
        return [None if value != value else value for value in numbers]
    return numbers
