"""Block: many events as columns, in the place of a list of them.

A block is a sequence of events, each made when it is asked for. Who can work on columns does so, and makes no
object an event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, Self, overload

import numpy as np
import numpy.typing as npt

from streamcal.base.string_column import StringColumn
from streamcal.base.values import Floats, Labels
from streamcal.events import Domain, Kept, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.fields import with_time

FEWEST: Final = 64
"""Fewer events than so many are taken one by one: columns would cost more."""

NO_LABEL: Final = -1
"""In the place of a label: a prediction alone."""


class Block(Sequence[Any]):
    """Consecutive events as columns.

    Parameters
    ----------
    ids
        of the events.
    scores
        float64[n]; NaN: a label alone.
    labels
        int8[n], 0 or 1; `NO_LABEL`: a prediction alone.
    times
        float64[n]; NaN: none.
    domain
        of all events but those of ``others``.
    keys, kept
        one for each event; None: all have no key, keep nothing.
    others
        by index: what no column can hold, such as an event of another domain or with a weight, in the place
        of the event there.
    """

    __slots__ = ("domain", "ids", "kept", "keys", "labels", "others", "scores", "times")

    def __init__(
        self,
        ids: Sequence[str | None],
        scores: Floats,
        labels: Labels,
        times: Floats,
        domain: Domain,
        keys: list[str | None] | None = None,
        kept: list[Kept] | None = None,
        others: Mapping[int, object] | None = None,
    ) -> None:
        self.ids = StringColumn.of(ids)
        self.scores, self.labels, self.times = scores, labels, times
        self.keys, self.domain, self.kept = keys, domain, kept
        self.others: Mapping[int, object] = others or {}

    @classmethod
    def of(cls, events: Sequence[Any], domain: Domain) -> Self:
        """Return events as a block: itself, if they are one of this domain already."""
        if isinstance(events, cls) and events.domain == domain:
            return events
        ids: list[str | None] = [getattr(event, "id", None) for event in events]
        others = {index: event for index, event in enumerate(events) if not _is_plain(event, domain)}
        if others:  # what they would tell is for the one who takes them
            events = [None if index in others else event for index, event in enumerate(events)]
        scores = np.array([getattr(event, "score", None) for event in events], np.float64)
        labels = np.array([getattr(event, "label", NO_LABEL) for event in events], np.float64)
        times = np.array([getattr(event, "time", None) for event in events], np.float64)
        keys = [getattr(event, "key", None) for event in events]
        kept = [getattr(event, "kept", ()) for event in events]
        return cls(
            ids,
            scores,
            labels.astype(np.int8),
            times,
            domain,
            keys if any(key is not None for key in keys) else None,
            kept if any(kept) else None,
            others,
        )

    @classmethod
    def joined(cls, parts: Sequence[Sequence[Any]]) -> Self:
        """Return parts one behind the other, at least one of them a block."""
        domain = next(part.domain for part in parts if isinstance(part, Block))
        blocks = [cls.of(part, domain) for part in parts]
        if len(blocks) == 1:
            return blocks[0]
        others, start = dict[int, object](), 0
        for block in blocks:
            others.update({start + index: other for index, other in block.others.items()})
            start += len(block)
        keys = kept = None
        if any(block.keys is not None for block in blocks):
            keys = [key for block in blocks for key in block.keys or [None] * len(block)]
        if any(block.kept is not None for block in blocks):
            kept = [each for block in blocks for each in block.kept or [()] * len(block)]
        return cls(
            StringColumn.joined([block.ids for block in blocks]),
            np.concatenate([block.scores for block in blocks]),
            np.concatenate([block.labels for block in blocks]),
            np.concatenate([block.times for block in blocks]),
            domain,
            keys,
            kept,
            others,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._part(self.ids[index], index, range(*index.indices(len(self))))
        index = range(len(self))[index]
        return next(iter(self[index : index + 1]))

    def __iter__(self) -> Iterator[Any]:
        others, domain = self.others, self.domain
        columns = zip(
            self.ids.tolist(),
            self.scores.tolist(),
            self.labels.tolist(),
            self.times.tolist(),
            self.keys or repeat(None),
            self.kept or repeat(()),
            strict=False,
        )
        for index, (id_, score, label, time, key, kept) in enumerate(columns):
            moment = None if time != time else time  # NaN
            if others and index in others:
                yield others[index]
            elif label == NO_LABEL:
                yield PredictionEvent(id_, score, moment, key, domain, None, kept)
            elif score != score:
                yield LabelEvent(id_, label, moment)
            else:
                yield LabelledEvent(score, label, id_, moment, key, domain, None, kept)

    def take(self, order: npt.NDArray[np.intp]) -> Block:
        """Return the events in another order: those at these indices, each once."""
        return self._part(self.ids.take(order), order, order.tolist())

    def with_times(self, times: Floats, others: Mapping[int, object]) -> Block:
        """Return the events with other times, and more of what no column holds."""
        ids: Sequence[str | None] = self.ids
        scores, labels = self.scores, self.labels
        if others:
            listed, scores, labels = list(self.ids), scores.copy(), labels.copy()
            for index in others:
                listed[index], scores[index], labels[index] = None, np.nan, NO_LABEL
            ids = listed
        moved = {index: with_time(other, float(times[index])) for index, other in self.others.items()}
        others = {**moved, **others}
        return Block(ids, scores, labels, times, self.domain, self.keys, self.kept, others)

    def _part(self, ids: StringColumn, where: slice | npt.NDArray[np.intp], indices: Sequence[int]) -> Self:
        """Return the events at some indices, given in two forms."""
        others = {}
        if self.others:
            others = {now: self.others[at] for now, at in enumerate(indices) if at in self.others}
        return type(self)(
            ids,
            self.scores[where],
            self.labels[where],
            self.times[where],
            self.domain,
            self.keys and [self.keys[at] for at in indices],
            self.kept and [self.kept[at] for at in indices],
            others,
        )


def _is_plain(event: Any, domain: Domain) -> bool:
    plain = isinstance(event, PredictionEvent | LabelEvent | LabelledEvent) and event.weight is None
    return plain and (isinstance(event, LabelEvent) or event.domain == domain)
