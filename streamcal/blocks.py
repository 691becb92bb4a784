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

from streamcal.events import Domain, Kept, LabelEvent, LabelledEvent, PredictionEvent
from streamcal.texts import Texts

__all__ = ["FEWEST", "NO_LABEL", "Block"]

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
        of all events but those of ``domains``.
    keys, domains, kept
        one for each event; None: all have no key, the one domain, keep nothing.
    others
        by index: what no column can hold, in the place of the event there.
    weights
        float64[n], NaN: none; None: no event has one.
    """

    __slots__ = ("domain", "domains", "ids", "kept", "keys", "labels", "others", "scores", "times", "weights")

    def __init__(
        self,
        ids: Sequence[str | None],
        scores: npt.NDArray[np.float64],
        labels: npt.NDArray[np.int8],
        times: npt.NDArray[np.float64],
        domain: Domain,
        keys: list[str | None] | None = None,
        domains: list[Domain] | None = None,
        kept: list[Kept] | None = None,
        others: Mapping[int, object] | None = None,
        weights: npt.NDArray[np.float64] | None = None,
    ) -> None:
        self.ids = Texts.of(ids)
        self.scores, self.labels, self.times = scores, labels, times
        self.keys, self.domain, self.domains, self.kept = keys, domain, domains, kept
        self.others: Mapping[int, object] = others or {}
        self.weights = weights

    @classmethod
    def of(cls, events: Sequence[Any], domain: Domain) -> Self:
        """Return events as a block: itself, if they are one already."""
        if isinstance(events, cls):
            return events
        plain = PredictionEvent | LabelEvent | LabelledEvent
        others = {index: event for index, event in enumerate(events) if not isinstance(event, plain)}
        if others:  # what they would tell is for the one who takes them
            events = [None if index in others else event for index, event in enumerate(events)]
        ids: list[str | None] = [getattr(event, "id", None) for event in events]
        scores = np.array([getattr(event, "score", None) for event in events], np.float64)
        labels = np.array([getattr(event, "label", NO_LABEL) for event in events], np.float64)
        times = np.array([getattr(event, "time", None) for event in events], np.float64)
        keys = [getattr(event, "key", None) for event in events]
        domains = [getattr(event, "domain", domain) for event in events]
        kept = [getattr(event, "kept", ()) for event in events]
        weights = np.array([getattr(event, "weight", None) for event in events], np.float64)
        return cls(
            ids,
            scores,
            labels.astype(np.int8),
            times,
            domain,
            keys if any(key is not None for key in keys) else None,
            domains if any(each != domain for each in domains) else None,
            kept if any(kept) else None,
            others,
            None if np.isnan(weights).all() else weights,
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
        keys = domains = kept = None
        if any(block.keys is not None for block in blocks):
            keys = [key for block in blocks for key in block.keys or [None] * len(block)]
        if any(block.domains is not None or block.domain != domain for block in blocks):
            domains = [each for block in blocks for each in block.domains or [block.domain] * len(block)]
        if any(block.kept is not None for block in blocks):
            kept = [each for block in blocks for each in block.kept or [()] * len(block)]
        weights = None
        if any(block.weights is not None for block in blocks):
            each_of = [
                np.full(len(block), np.nan) if block.weights is None else block.weights for block in blocks
            ]
            weights = np.concatenate(each_of)
        return cls(
            Texts.joined([block.ids for block in blocks]),
            np.concatenate([block.scores for block in blocks]),
            np.concatenate([block.labels for block in blocks]),
            np.concatenate([block.times for block in blocks]),
            domain,
            keys,
            domains,
            kept,
            others,
            weights,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            moved = {
                at - start: other for at, other in self.others.items() if step == 1 and start <= at < stop
            }
            return type(self)(
                self.ids[index],
                self.scores[index],
                self.labels[index],
                self.times[index],
                self.domain,
                self.keys and self.keys[index],
                self.domains and self.domains[index],
                self.kept and self.kept[index],
                moved,
                None if self.weights is None else self.weights[index],
            )
        index = range(len(self))[index]
        return next(iter(self[index : index + 1]))

    def __iter__(self) -> Iterator[Any]:
        others = self.others
        columns = zip(
            self.ids.tolist(),
            self.scores.tolist(),
            self.labels.tolist(),
            self.times.tolist(),
            self.keys or repeat(None),
            self.domains or repeat(self.domain),
            self.kept or repeat(()),
            repeat(None) if self.weights is None else self.weights.tolist(),
            strict=False,
        )
        for index, (id_, score, label, time, key, domain, kept, weight) in enumerate(columns):
            moment = None if time != time else time  # NaN
            weight = None if weight != weight else weight  # NaN
            if others and index in others:
                yield others[index]
            elif label == NO_LABEL:
                yield PredictionEvent(id_, score, moment, key, domain, None, kept, weight)
            elif score != score:
                yield LabelEvent(id_, label, moment, None, weight)
            else:
                yield LabelledEvent(score, label, id_, moment, key, domain, None, kept, weight)

    def take(self, order: npt.NDArray[np.intp]) -> Block:
        """Return the events in another order: those at these indices, each once."""
        where = order.tolist() if self.others or self.keys or self.domains or self.kept else []
        others = {}
        if self.others:
            others = {now: self.others[at] for now, at in enumerate(where) if at in self.others}
        return Block(
            self.ids.take(order),
            self.scores[order],
            self.labels[order],
            self.times[order],
            self.domain,
            self.keys and _taken(self.keys, where),
            self.domains and _taken(self.domains, where),
            self.kept and _taken(self.kept, where),
            others,
            None if self.weights is None else self.weights[order],
        )

    def with_times(self, times: npt.NDArray[np.float64], others: Mapping[int, object]) -> Block:
        """Return the events with other times, and more of what no column holds."""
        ids: Sequence[str | None] = self.ids
        scores, labels = self.scores, self.labels
        if others:
            listed, scores, labels = list(self.ids), scores.copy(), labels.copy()
            for index in others:
                listed[index], scores[index], labels[index] = None, np.nan, NO_LABEL
            ids = listed
        return Block(
            ids,
            scores,
            labels,
            times,
            self.domain,
            self.keys,
            self.domains,
            self.kept,
            {**self.others, **others},
            self.weights,
        )


def _taken(values: list[Any], where: list[int]) -> list[Any]:
    return [values[index] for index in where]
