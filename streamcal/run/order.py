"""The order of events from several sources: by event time, the same in every run.

Each partition of each source is a lane. An event without a time, or malformed, keeps its place behind its
predecessor in its lane; one that is behind its predecessor in time is taken right after it. Of equal times
the lane added first comes first.

Where all sources are finite, the order is that of the whole inputs: `Merge.take` gives what cannot be
overtaken any more. Otherwise it gives all there is, in an order that depends on that alone, and one lane may
be read far ahead of another. A watermark then says up to which event time all have been read: see
`watermark`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamcal.events import Event, Origin
from streamcal.run.codec import Malformed
from streamcal.run.ports import Batch, Position, Source

__all__ = ["Merge", "MicroBatch", "Place", "watermark"]

_BEGINNING: Final = float("-inf")
_END: Final = float("inf")

Place = tuple[str, str]
"""Name of a source, and of a partition of it."""


class MicroBatch:
    """Events in the order in which they are processed."""

    def __init__(
        self,
        events: Sequence[Event | Malformed],
        positions: dict[str, dict[str, Position]],
        times: dict[str, dict[str, float]],
        chunks: Sequence[tuple[Batch, int]],
        starts: Sequence[int],
        order: npt.NDArray[np.intp] | None,
        watermark: float = _END,
    ) -> None:
        self.events = events
        self.positions = positions
        """By source and partition, those that moved: where they stand after it."""
        self.times = times
        """Likewise: the event time that the lane has reached; `Merge` goes on from it."""
        self.watermark = watermark
        """What is due by this event time may expire; inf: by the time of each event."""
        self._chunks = chunks
        self._starts = starts
        self._order = order

    def origin(self, index: int) -> Origin:
        """Return where the event at an index came from."""
        place = index if self._order is None else int(self._order[index])
        which = bisect_right(self._starts, place) - 1
        batch, first = self._chunks[which]
        return batch.origin(first + place - self._starts[which])


class _Lane:
    """One partition: what was read of it and not taken yet."""

    def __init__(self, reached: float) -> None:
        self.open = True
        self.reached = reached  # the time that taken events have come to
        self.read = reached  # … that read ones have
        self.chunks: list[tuple[Batch, int, npt.NDArray[np.float64]]] = []

    def __len__(self) -> int:
        return sum(len(keys) for *_, keys in self.chunks)

    def add(self, batch: Batch) -> None:
        times: list[Any] = [event.time for event in batch.events]
        keys = np.array([self.read, *times], np.float64)  # None becomes NaN
        np.fmax.accumulate(keys, out=keys)
        self.read = float(keys[-1])
        self.chunks.append((batch, 0, keys[1:]))

    def take(self, until: float, *, inclusive: bool) -> list[tuple[Batch, int, npt.NDArray[np.float64]]]:
        """Remove and return what comes before ``until``, or at it."""
        taken = []
        while self.chunks:
            batch, first, keys = self.chunks[0]
            count = int(np.searchsorted(keys, until, "right" if inclusive else "left"))
            if not count:
                break
            taken.append((batch, first, keys[:count]))
            self.reached = max(self.reached, float(keys[count - 1]))
            if count < len(keys):
                self.chunks[0] = (batch, first + count, keys[count:])
                break
            del self.chunks[0]
        return taken


class Merge:
    """Puts the batches of several lanes into one order.

    Parameters
    ----------
    lanes
        source and partition of each, and the time it had reached, -inf at its beginning.
    whole
        whether the inputs are finite, and merged as wholes.
    """

    def __init__(self, lanes: Iterable[tuple[Place, float]], *, whole: bool) -> None:
        self._lanes = {place: _Lane(reached) for place, reached in lanes}
        self.whole = whole
        if not whole:
            for lane in self._lanes.values():
                lane.read = _BEGINNING

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def waits_for(self, source: str) -> bool:
        """Whether nothing can be taken before more of this source is read."""
        return any(lane.open and not lane.chunks for (name, _), lane in self._lanes.items() if name == source)

    def add(self, source: str, batches: Iterable[Batch]) -> None:
        """Take what was read of a source."""
        for batch in batches:
            if batch.events:
                lane = self._lanes.setdefault((source, batch.partition), _Lane(_BEGINNING))
                lane.add(batch)

    def end(self, source: str) -> None:
        """Nothing more will come of a source."""
        for (name, _), lane in self._lanes.items():
            if name == source:
                lane.open = False

    def take(self, watermark: float = _END) -> MicroBatch | None:
        """Return what can be told to come next, None if nothing can.

        Inputs that are merged as wholes come in the order of time: the watermark is then of no account.
        """
        bound, holder = self._bound()
        pieces: list[tuple[Batch, int, npt.NDArray[np.float64]]] = []
        positions: dict[str, dict[str, Position]] = {}
        times: dict[str, dict[str, float]] = {}
        for rank, (place, lane) in enumerate(self._ordered()):
            taken = lane.take(bound, inclusive=rank <= holder)
            if not taken:
                continue
            pieces += taken
            source, partition = place
            batch, first, keys = taken[-1]
            positions.setdefault(source, {})[partition] = batch.position(first + len(keys))
            times.setdefault(source, {})[partition] = lane.reached
            if not self.whole:
                lane.read = _BEGINNING
        if not pieces:
            return None
        parts = [batch.events[first : first + len(keys)] for batch, first, keys in pieces]
        starts = np.cumsum([0, *map(len, parts)])[:-1].tolist()
        chunks = [(batch, first) for batch, first, _ in pieces]
        events: Sequence[Event | Malformed] = parts[0]
        order = None
        if len(parts) > 1:
            order = np.argsort(np.concatenate([keys for *_, keys in pieces]), kind="stable")
            unordered = list(chain.from_iterable(parts))
            events = [unordered[place] for place in order.tolist()]
        return MicroBatch(events, positions, times, chunks, starts, order, _END if self.whole else watermark)

    def _ordered(self) -> list[tuple[Place, _Lane]]:
        """Return the lanes, those of a source by name of the partition."""
        rank = {source: index for index, (source, _) in reversed(list(enumerate(self._lanes)))}
        return sorted(self._lanes.items(), key=lambda item: (rank[item[0][0]], item[0][1]))

    def _bound(self) -> tuple[float, int]:
        """Return the time up to which nothing can be overtaken, and the last lane that may give it itself.

        The open lane that has been read least far holds the others up: what is still to come of it may have
        the very time it has come to, and then comes before those of that time in the lanes behind it.
        """
        lanes = self._ordered()
        if self.whole:
            held = [(lane.read, rank) for rank, (_, lane) in enumerate(lanes) if lane.open]
            if held:
                return min(held)
        return _END, len(lanes)


def watermark(
    sources: Iterable[Source], times: Mapping[str, Mapping[str, float]], clock: float | None
) -> float:
    """Return the event time up to which every lane has been read, -inf if that cannot be told.

    It is the least of the times that the lanes have reached; but a lane that has been read to its end holds
    nothing back, and if all have, it is the clock. Up to this time nothing that is there is still to be read,
    as far as each lane is in the order of time.

    Parameters
    ----------
    sources
        as they stand: asked for their lag. A finite one holds back until it has ended; one that cannot
        tell its lag, never.
    times
        by source and partition: the latest event time read, if there was any.
    clock
        the latest of all, None before the first.
    """
    held = [_BEGINNING if clock is None else clock]
    for source in sources:
        if source.ended:
            continue
        reached = times.get(source.name, {})
        held += [
            reached.get(partition, _BEGINNING)
            for partition, left in source.lag().items()
            if left != 0.0 or not source.endless
        ]
    return min(held)
