"""The order of events from several sources: by event time, the same in every run.

Each partition of each source is a lane, and the events of a lane keep their order. An event without a time, a
malformed one, or one with an earlier time than its predecessor follows directly behind its predecessor. Of
events with equal times, that of the lane added first comes first.

If all sources are finite, the order is that of the whole inputs: `Merge.take` returns the events that no
later one can precede. Otherwise it returns all events that were read, in an order that depends on them alone,
and one lane may be read far ahead of another. `watermark` then says up to which event time all lanes have
been read.
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

__all__ = ["LaneName", "Merge", "MicroBatch", "watermark"]

_BEGINNING: Final = float("-inf")
_END: Final = float("inf")

LaneName = tuple[str, str]
"""The names of a source and of one of its partitions."""


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
        """By source and partition: the positions after this batch, of the partitions that moved."""
        self.times = times
        """By source and partition: the event time that the lane has reached; `Merge` resumes there."""
        self.watermark = watermark
        """Predictions due by this event time may expire; inf: due by the time of each event."""
        self._chunks = chunks
        self._starts = starts
        self._order = order

    def origin(self, index: int) -> Origin:
        """Return where the event at an index came from."""
        read = index if self._order is None else int(self._order[index])
        which = bisect_right(self._starts, read) - 1
        batch, first = self._chunks[which]
        return batch.origin(first + read - self._starts[which])


class _Lane:
    """One partition: its events that were read but not taken yet."""

    def __init__(self, reached: float) -> None:
        self.open = True
        self.reached = reached  # the latest time among the events taken
        self.read = reached  # … and among those read
        self.chunks: list[tuple[Batch, int, npt.NDArray[np.float64]]] = []

    def __len__(self) -> int:
        return sum(len(keys) for *_, keys in self.chunks)

    def end(self) -> None:
        """Mark it as ended: it has no more events."""
        self.open = False

    def forget_times(self) -> None:
        """Order the next events by their own times, not behind those read before."""
        self.read = _BEGINNING

    def add(self, batch: Batch) -> None:
        times: list[Any] = [event.time for event in batch.events]
        keys = np.array([self.read, *times], np.float64)  # None becomes NaN
        np.fmax.accumulate(keys, out=keys)
        self.read = float(keys[-1])
        self.chunks.append((batch, 0, keys[1:]))

    def take(self, until: float, *, inclusive: bool) -> list[tuple[Batch, int, npt.NDArray[np.float64]]]:
        """Remove and return the events before the time ``until``; if inclusive, also those at it."""
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
        the name of each lane and the event time it has reached, -inf at its beginning.
    whole
        whether the inputs are finite, and are merged as a whole.
    """

    def __init__(self, lanes: Iterable[tuple[LaneName, float]], *, whole: bool) -> None:
        self._lanes = {name: _Lane(reached) for name, reached in lanes}
        self.whole = whole
        if not whole:
            for lane in self._lanes.values():
                lane.forget_times()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def waits_for(self, source: str) -> bool:
        """Whether no event can be taken until more of this source is read."""
        return any(lane.open and not lane.chunks for (name, _), lane in self._lanes.items() if name == source)

    def add(self, source: str, batches: Iterable[Batch], *, ended: bool = False) -> int:
        """Add batches that were read from a source; return how many events wait in all.

        Once it has ``ended``, it has no more events.
        """
        for batch in batches:
            if batch.events:
                lane = self._lanes.setdefault((source, batch.partition), _Lane(_BEGINNING))
                lane.add(batch)
        if ended:
            for (name, _), lane in self._lanes.items():
                if name == source:
                    lane.end()
        return len(self)

    def take(self, watermark: float = _END) -> MicroBatch | None:
        """Return the events that come next, or None if that cannot be told yet.

        Inputs that are merged as a whole come in the order of time and ignore the watermark.
        """
        bound, holder = self._bound()
        pieces: list[tuple[Batch, int, npt.NDArray[np.float64]]] = []
        positions: dict[str, dict[str, Position]] = {}
        times: dict[str, dict[str, float]] = {}
        for rank, (name, lane) in enumerate(self._ordered()):
            taken = lane.take(bound, inclusive=rank <= holder)
            if not taken:
                continue
            pieces += taken
            source, partition = name
            batch, first, keys = taken[-1]
            positions.setdefault(source, {})[partition] = batch.position(first + len(keys))
            times.setdefault(source, {})[partition] = lane.reached
            if not self.whole:
                lane.forget_times()
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
            events = [unordered[index] for index in order.tolist()]
        return MicroBatch(events, positions, times, chunks, starts, order, _END if self.whole else watermark)

    def _ordered(self) -> list[tuple[LaneName, _Lane]]:
        """Return the lanes by source, and within a source by partition name."""
        rank = {source: index for index, (source, _) in reversed(list(enumerate(self._lanes)))}
        return sorted(self._lanes.items(), key=lambda item: (rank[item[0][0]], item[0][1]))

    def _bound(self) -> tuple[float, int]:
        """Return the time before which no unread event can come, and the rank of the lane that sets it.

        The open lane with the earliest time read sets it. Its next event may have just that time; it would
        then precede events of that time in lanes of higher rank.
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
    """Return the event time up to which every lane has been read, or -inf if that is unknown.

    It is the minimum of the times that the lanes have reached. A lane that has been read to its end does not
    count; if all have, the watermark is the clock. If each lane is in the order of time, every available
    event up to the watermark has been read.

    Parameters
    ----------
    sources
        are asked for their lag. A finite source counts until it has ended; one that cannot tell its lag never
        counts.
    times
        by source and partition: the latest event time read, if any.
    clock
        the latest event time of all, None before the first.
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
