"""``memory:NAME``: sources, sinks and stores within one process. Importing this module makes them known.

The sink is transactional: it cannot be truncated, and keeps the input positions of its last commit itself
(see `streamcal.run.ports`).
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Final

import msgspec

from streamcal.events import Event, Origin
from streamcal.events.codec import JsonDecoder, Malformed
from streamcal.join.packs import Pack, PackChanges
from streamcal.run import connectors
from streamcal.run.ports import (
    Change,
    Checkpoint,
    Position,
    Positions,
    Row,
    SegmentId,
    SinkOptions,
    SourceOptions,
)
from streamcal.run.rows import RejectRow, VersionRow


class Log:
    """Records by partition, and the input positions of the last commit by job."""

    def __init__(self) -> None:
        self.partitions: defaultdict[str, list[bytes]] = defaultdict(list)
        self.committed: dict[str, dict[str, dict[str, Position]]] = {}


logs: Final[defaultdict[str, Log]] = defaultdict(Log)
"""All logs of this process, by name."""

stores: Final[dict[str, MemoryStore]] = {}
"""All stores of this process, by name."""


class MemoryConnector:
    """``memory:`` URLs."""

    def source(self, url: str, options: SourceOptions) -> MemorySource:
        """Open a log to read; with ``follow`` it never ends."""
        return MemorySource(url, logs[_name(url)], options)

    def sink(self, url: str, options: SinkOptions) -> MemorySink:  # it takes any rows
        """Open a log to write."""
        return MemorySink(url, logs[_name(url)])

    def feed(self, url: str) -> MemoryFeed:
        """Open the first partition of a log to read back."""
        return MemoryFeed(logs[_name(url)])

    def store(self, url: str, *, read_only: bool) -> MemoryStore:  # there is one process
        """Open a store."""
        return stores.setdefault(_name(url), MemoryStore(_name(url)))


class _Records:
    """Consecutive records of a partition; see `streamcal.run.ports.Batch`."""

    def __init__(self, source: MemorySource, partition: str, start: int, raw: Sequence[bytes]) -> None:
        self.partition = partition
        self.events: list[Event | Malformed] = [source.decoder.decode(each) for each in raw]
        name = f"{source.name}/{partition}" if partition else source.name
        self.origin = lambda index: Origin(name, start + index, raw[index])
        self.position = lambda count: start + count


class MemorySource:
    """Records of a log; see `streamcal.run.ports.Source`. Positions are offsets."""

    def __init__(self, name: str, log: Log, options: SourceOptions) -> None:
        self.name = name
        self.endless = options.follow
        self.decoder = JsonDecoder(options.domain, options.columns)
        self._log = log
        self._next: dict[str, int] = {}
        self._until: Positions | None = None

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of fields that were ignored so far because events have no such field, by name."""
        return self.decoder.unknown_fields

    def seek(self, positions: Positions) -> Positions:
        """Go to offsets."""
        self._next = {partition: positions.get(partition, 0) for partition in sorted(self._log.partitions)}
        return dict(self._next)

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing at or beyond these offsets."""
        self._until = positions

    def poll(self, max_events: int, timeout: float) -> Sequence[_Records]:  # all records are there
        """Return the next records of every partition."""
        batches = []
        for partition, records in sorted(self._log.partitions.items()):
            start = self._next.setdefault(partition, 0)
            stop = min(start + max_events, self._end(partition, len(records)))
            if stop > start:
                batches.append(_Records(self, partition, start, records[start:stop]))
                self._next[partition] = stop
        return batches

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        if self.endless and self._until is None:
            return False
        return all(
            self._next.get(partition, 0) >= self._end(partition, len(records))
            for partition, records in self._log.partitions.items()
        )

    def lag(self) -> Mapping[str, float]:
        """Return how many records of each partition were not read yet."""
        return {
            partition: float(len(records) - self._next.get(partition, 0))
            for partition, records in self._log.partitions.items()
        }

    def close(self) -> None:
        """Do nothing."""

    def _end(self, partition: str, length: int) -> int:
        return length if self._until is None else min(length, self._until.get(partition, 0))


@dataclass
class MemorySink:
    """Writes rows to a log; see `streamcal.run.ports.Sink`."""

    name: str
    log: Log
    _job: str = ""
    _rows: list[bytes] = field(default_factory=list)

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Return the positions of the last commit for a job."""
        self._job = job
        return self.log.committed.get(job)

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Hold rows until the commit."""
        self._rows += map(msgspec.json.encode, rows)

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Append the rows, and keep the positions."""
        self.log.partitions[""] += self._rows
        self._rows = []
        self.log.committed[self._job] = {name: dict(each) for name, each in positions.items()}
        return None

    def close(self) -> None:
        """Drop rows that were not committed."""
        self._rows = []


@dataclass
class MemoryFeed:
    """Reads back the rows of a log; see `streamcal.run.ports.Feed`."""

    log: Log
    _next: int = 0

    def poll(self, timeout: float) -> Sequence[bytes]:  # all records are there
        """Return the rows that are new."""
        rows = self.log.partitions[""][self._next :]
        self._next += len(rows)
        return rows

    def close(self) -> None:
        """Do nothing."""


def write(packs: dict[int, Pack], changes: PackChanges) -> None:
    """Write changes of the join's rows, as a store has to."""
    for number in changes.removed:
        del packs[number]
    assert not packs.keys() & {pack.number for pack in changes.added}
    packs |= {pack.number: pack for pack in changes.added}
    packs |= {number: packs[number]._replace(present=present) for number, present in changes.marks.items()}


class MemoryStore:
    """The state of a run; see `streamcal.run.ports.Store`."""

    def __init__(self, name: str) -> None:
        self.job = f"memory {name}"
        self._engines: dict[str | None, bytes] = {}
        self._segments: dict[SegmentId, Row] = {}
        self._packs: dict[int, Pack] = {}
        self._checkpoint = Checkpoint(self._engines, segments=self._segments)
        self._versions: list[VersionRow] = []
        self._rejects: list[RejectRow] = []
        self._journal: list[bytes] = []

    def load(self) -> Checkpoint:
        """Return the last commit."""
        return msgspec.structs.replace(self._checkpoint, packs=sorted(self._packs.values()))

    def commit(self, change: Change) -> None:
        """Commit the changes of a micro-batch."""
        self._engines.update(change.engines)
        self._segments.update(change.segments)
        write(self._packs, change.packs)
        positions = copy.deepcopy(change.positions)
        sinks = dict(change.sinks)
        self._checkpoint = Checkpoint(self._engines, change.run, positions, sinks, self._segments)
        self._journal = []
        self._versions += change.versions
        self._rejects += change.rejects

    def keep(self, batch: bytes) -> None:
        """Keep the entry of a micro-batch."""
        self._journal.append(batch)

    def kept(self) -> Sequence[bytes]:
        """Return the entries since the last commit."""
        return list(self._journal)

    def versions(self) -> Iterable[VersionRow]:
        """Return every map version that was served."""
        return list(self._versions)

    def rejects(self) -> Iterable[RejectRow]:
        """Return every reject."""
        return list(self._rejects)

    def close(self) -> None:
        """Do nothing."""


def _name(url: str) -> str:
    return url.removeprefix("memory:")


connectors._installed()["memory"] = EntryPoint(
    "memory", f"{__name__}:MemoryConnector", "streamcal.connectors"
)
