"""Journal of a store: micro-batches are kept one by one, and the whole state is committed now and then.

A micro-batch in the journal is done: its rows are out, and its positions and those of the sinks are written.
A run that resumes takes the state of the last commit, and processes again what the journal has, without
output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from streamcal.base.errors import StoreError
from streamcal.run.ports import Position, Positions, Store

AGAIN: Final = "micro-batches since the last commit, processed again after a kill: %s"
"""Line of log of a run that was resumed from its journal."""

_SECONDS: Final = 0.5  # between two commits of the whole state …
_SHARE: Final = 20  # … or more, so that they take one part in so many of the time
_MOST_EVENTS: Final = 1 << 18  # between two such commits …
_MOST_BYTES: Final = 16 << 20  # … and bytes of the journal

AllPositions = dict[str, dict[str, Position]]
"""Positions by source and partition."""


class KeptBatch(msgspec.Struct, array_like=True):
    """A micro-batch in the journal."""

    options: dict[str, dict[str, Any]]
    """Options on which its outcome depends, beside those of the engines, by table and name."""
    positions: AllPositions
    """Positions after it, of the partitions that moved."""
    sinks: dict[str, Position]
    """Positions of all sinks after it."""
    watermark: float
    """Watermark of the next micro-batch."""
    events: dict[str, bytes] = {}
    """Its events, by name of the source, of sources that cannot be read again."""


class Journal:
    """The journal of a run.

    Parameters
    ----------
    store
        None: nothing is kept.
    options
        Options on which the outcome of a micro-batch depends, beside those of the engines, by table and name.
    clock
        Monotonic time in seconds.
    """

    def __init__(
        self, store: Store | None, options: dict[str, dict[str, Any]], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self.options = options
        self._clock = clock
        self._events = self._bytes = 0  # since the last commit
        self._commit_at = float("-inf")

    @property
    def due(self) -> bool:
        """Whether the time has come to commit the whole state."""
        return self._clock() >= self._commit_at

    def takes(self, events: int) -> bool:
        """Whether so many more events are to be kept; if not, the whole state is to be committed."""
        full = self._events + events > _MOST_EVENTS or self._bytes >= _MOST_BYTES
        return self._store is not None and not (full or self.due)

    def keep(self, batch: KeptBatch, events: int) -> None:
        """Make a micro-batch last that `takes` allows."""
        assert self._store is not None  # noqa: S101  # `takes` says so
        data = msgspec.msgpack.encode(batch)
        self._events += events
        self._bytes += len(data)
        self._store.keep(data)

    def committed(self, began: float) -> None:
        """Take note of a commit of the whole state that began at a time of the clock."""
        now = self._clock()
        self._commit_at = now + max(_SECONDS, _SHARE * (now - began))
        self._events = self._bytes = 0

    def read(self, sources: Iterable[str]) -> list[KeptBatch]:
        """Return the micro-batches since the last commit, to be processed again.

        Raises
        ------
        StoreError
            If they cannot be read, or were processed under other options, or need other sources.
        """
        decode = msgspec.msgpack.Decoder(KeptBatch).decode
        kept = [] if self._store is None else [decode(data) for data in self._store.kept()]
        for batch in kept:
            for name in batch.positions.keys() - set(sources):
                raise StoreError(
                    f"the store holds micro-batches of {name} that were processed before a run was killed:"
                    + (" start `streamcal serve`" if name in batch.events else " run")
                    + " once more with that source, then go on"
                )
            changed = [
                f"[{table}] {name} was {value!r}, now it is {self.options[table].get(name)!r}"
                for table, options in batch.options.items()
                for name, value in options.items()
                if self.options[table].get(name) != value
            ]
            if changed:
                raise StoreError(
                    "the store holds micro-batches that were processed before a run was killed, under other"
                    f" options: {'; '.join(changed)}. Start once with the former, then change them"
                )
        return kept


def moved(positions: Mapping[str, Positions], by: Mapping[str, Positions]) -> AllPositions:
    """Return positions after those of some partitions have moved."""
    after = {name: dict(partitions) for name, partitions in positions.items()}
    for name, partitions in by.items():
        after.setdefault(name, {}).update(partitions)
    return after
