"""``kafka://host:9092[,host2:9092]/topic``: sources, sinks and feeds; see docs/kafka.md.

Needs the extra: ``pip install 'streamcal-engine[kafka]'``.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from streamcal.events import Domain, Event, Origin
from streamcal.run.codec import JsonDecoder, Malformed
from streamcal.run.ports import Position, Positions, Role, SinkOptions, SourceOptions
from streamcal_connectors.kafka.client import Consumer, KafkaError, Partition, Record, brief, is_out_of_range
from streamcal_connectors.kafka.cluster import Cluster, require
from streamcal_connectors.kafka.config import KafkaUrl, read_kafka_config
from streamcal_connectors.kafka.sink import KafkaSink, Transactions

__all__ = ["KafkaConnector", "KafkaFeed", "KafkaSource"]

log = logging.getLogger("streamcal_connectors")

_LOOK_SECONDS: Final = 1.0  # between two checks for new and for stalled partitions
_ASK_SECONDS: Final = 2.0  # without records, after which to check that the cluster is there
_LAG_SECONDS: Final = 1.0  # time limit of asking the cluster where partitions end
_FEED_RECORDS: Final = 10_000
_SETTLE_SECONDS: Final = 10.0  # a broker that has just started may show fewer records than it has for so long


class KafkaConnector:
    """``kafka:`` URLs. All sinks of a run on one cluster share one producer and its transactions."""

    def __init__(self) -> None:
        require()
        self._clusters: dict[tuple[object, ...], Cluster] = {}
        self._transactions: dict[int, Transactions] = {}
        self._table: Mapping[str, Any] = {}
        self._stop: Callable[[], bool] = lambda: False

    def set_up(self, options: Mapping[str, Any], stop: Callable[[], bool]) -> None:
        """Take the table ``[kafka]`` of the run's configuration; see `TunableConnector`."""
        self._table, self._stop = options, stop

    def source(self, url: str, options: SourceOptions) -> KafkaSource:
        """Open a topic to read; a source of calibration ends where the topic ends when the run starts.

        Raises
        ------
        ValueError
            if the URL or an option of the connection is wrong.
        """
        parsed = KafkaUrl(url)
        cluster = self._cluster(parsed)
        until_end = parsed.until_end or options.domain == "source"
        opened = KafkaSource(cluster, parsed, options.domain, until_end=until_end)
        self._shared(cluster).add_source(opened.name, parsed.topic)
        return opened

    def identities(self, url: str, role: Role) -> set[str]:
        """Return the topic as every host of its cluster knows it, and its name; see `IdentifyingConnector`.

        Two inputs, or two outputs, of one name could not be told apart in a store.
        """
        parsed = KafkaUrl(url)
        return {f"{role} {parsed.name}"} | {f"kafka://{host.lower()}/{parsed.topic}" for host in parsed.hosts}

    def sink(self, url: str, options: SinkOptions | None = None) -> KafkaSink:  # noqa: ARG002  # any rows
        """Open a topic to write; see `source`."""
        parsed = KafkaUrl(url)
        return KafkaSink(self._shared(self._cluster(parsed)), parsed)

    def feed(self, url: str) -> KafkaFeed:
        """Open a topic that a sink writes, to read back; see `source`."""
        parsed = KafkaUrl(url)
        return KafkaFeed(self._cluster(parsed), parsed)

    def _cluster(self, url: KafkaUrl) -> Cluster:
        key = (*sorted(url.hosts), url.config_file)
        if key not in self._clusters:
            config = read_kafka_config(url.config_file, table=self._table)
            self._clusters[key] = Cluster(url.hosts, config, self._stop)
        return self._clusters[key]

    def _shared(self, cluster: Cluster) -> Transactions:
        return self._transactions.setdefault(id(cluster), Transactions(cluster))


class _Records:
    """Events of consecutive records of a partition; see `streamcal.run.ports.Batch`."""

    def __init__(
        self, topic: str, partition: int, start: int, records: Sequence[Record], decoder: JsonDecoder
    ) -> None:
        self.partition = str(partition)
        self._topic = topic
        self._start = start
        # Not the records: the garbage collector would visit all of them.
        self._offsets = [record.offset for record in records]
        self._values = [record.value for record in records]
        self.events = _decode(self._values, decoder)

    def origin(self, index: int) -> Origin:
        """Return the origin of the event at an index: topic and partition, offset."""
        return Origin(f"{self._topic}/{self.partition}", self._offsets[index], self._values[index] or b"")

    def position(self, count: int) -> Position:
        """Return the offset after the first ``count`` events."""
        return self._offsets[count - 1] + 1 if count else self._start


class KafkaSource:
    """Reads the events of a topic; see `streamcal.run.ports.Source`. Positions are offsets.

    Resumes at the offsets that it is given; offsets of consumer groups play no part. Delivers every committed
    record once, in the order of its partition, and aborted records never (``read_committed``). It finds new
    partitions within ``refresh_seconds`` and reads them from their beginning.

    While the cluster is away it is idle, and logs that once. It reports once if a partition has records but
    makes no progress: then a producer has left a transaction open, or the partition has no leader.
    """

    def __init__(self, cluster: Cluster, url: KafkaUrl, domain: Domain, *, until_end: bool) -> None:
        self.name = url.name
        self.endless = not until_end
        self._cluster = cluster
        self._topic = url.topic
        self._from_latest = url.start == "latest"
        self._decoder = JsonDecoder(domain)
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}  # by partition: the next offset to deliver
        self._last: dict[int, int] | None = None  # where a finite source ends
        self._limit: dict[int, int] | None = None
        self._ends: dict[int, int] = {}  # by partition: its end when the cluster was asked
        self._asked = False  # whether it was asked since the last poll
        self._paused: set[int] = set()
        self._looked = self._heard = time.monotonic()
        self._moved: dict[int, tuple[int, float]] = {}  # by partition: its position, and since when
        self._stalled: set[int] = set()

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """How often a field was ignored so far because events have no such field, by its name."""
        return self._decoder.unknown_fields

    def seek(self, positions: Positions) -> Positions:
        """Go to offsets; see `streamcal.run.ports.Source`. Waits for the cluster.

        Raises
        ------
        OSError
            if the cluster stays away or refuses.
        ValueError
            if the topic does not exist, or no longer has those offsets.
        """
        if self._consumer is None:
            self._consumer = self._cluster.consumer()
        consumer, settle = self._consumer, time.monotonic() + _SETTLE_SECONDS
        numbers = sorted(self._cluster.topic_partitions(consumer, self._topic))
        partitions = [self._partition(number) for number in numbers]
        first = self._cluster.call(lambda: consumer.beginnings(partitions), patient=False)
        fresh = not positions and self._from_latest
        while True:
            ends = self._cluster.call(lambda: consumer.ends(partitions), patient=False)
            found = {}
            for partition in partitions:
                start = ends[partition] if fresh else first[partition]
                found[partition] = int(positions.get(str(partition.partition), start))
            beyond = [
                partition
                for partition in partitions
                if found[partition] > max(ends[partition], first[partition])
            ]
            if not beyond or time.monotonic() > settle:
                break
            time.sleep(_LOOK_SECONDS / 4)
        lost = sorted(set(positions) - {str(number) for number in numbers})
        if lost:
            raise ValueError(
                f"topic {self._topic} has no partition {', '.join(lost)} any more:"
                " it was deleted and created again"
            )
        for partition in beyond:
            raise ValueError(
                f"topic {self._topic}, partition {partition.partition} ends at offset {ends[partition]},"
                f" but was read up to {found[partition]}:"
                " it was deleted and created again, or has lost records"
            )
        for partition in partitions:
            if found[partition] < first[partition]:
                raise self._gone(
                    f"partition {partition.partition} begins at {first[partition]}, not {found[partition]}"
                )
        consumer.assign(found)
        self._next = {partition.partition: offset for partition, offset in found.items()}
        self._ends = {partition.partition: ends[partition] for partition in partitions}
        if not self.endless:
            self._last = dict(self._ends)
        self._heard = time.monotonic()
        return self._positions()

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing at or beyond these offsets; see `streamcal.run.ports.Source`."""
        self._limit = None if positions is None else {int(p): int(offset) for p, offset in positions.items()}
        if self._consumer is None:
            return
        for number in self._paused:
            self._consumer.resume(self._partition(number))
        self._paused.clear()
        for number, offset in self._next.items():
            self._consumer.seek(self._partition(number), offset)  # records fetched beyond a limit come again

    def poll(self, max_events: int, timeout: float) -> Sequence[_Records]:
        """Return the next events; see `streamcal.run.ports.Source`.

        Raises
        ------
        OSError
            if the cluster refuses.
        ValueError
            if the next records were deleted.
        """
        consumer = self._opened()
        self._asked = False
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._look(now)
        if self._limit is not None or self._last is not None:
            for number in self._next:
                if number not in self._paused and self._reached(number):
                    consumer.pause(self._partition(number))
                    self._paused.add(number)
        if not self._next or self.ended:
            return ()
        try:
            found = consumer.poll(timeout, max_events)
        except KafkaError as error:
            if is_out_of_range(error):
                raise self._gone(brief(error)) from None
            self._cluster.refused(error)
            self._cluster.away(error)
            time.sleep(timeout)
            return ()
        if not found:
            self._ask()
            return ()
        self._heard = time.monotonic()
        self._cluster.back()
        batches = [self._take(partition.partition, found[partition]) for partition in sorted(found)]
        return [batch for batch in batches if batch.events]

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        if self._limit is None and self.endless:
            return False
        return self._consumer is not None and all(self._reached(number) for number in self._next)

    def lag(self) -> Mapping[str, float]:
        """Return how many offsets of each partition were not read yet; see `streamcal.run.ports.Source`.

        Open transactions count. If a partition seems to have been read to its end, the cluster is asked
        whether it has; the lag is NaN if it does not answer.
        """
        if self._consumer is None:
            return {}
        lags = {number: self._left(number) for number in self._next}
        ended = [number for number, left in lags.items() if not left]
        if ended and not self._asked and self._last is None:
            if self._ask_ends(ended):
                lags |= {number: self._left(number) for number in ended}
            else:
                lags |= dict.fromkeys(ended, math.nan)
        return {str(number): left for number, left in lags.items()}

    def close(self) -> None:
        """Release; may be called twice."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # Inside

    def _opened(self) -> Consumer:
        if self._consumer is None:
            raise ValueError(f"{self.name} is not open: call seek before poll")
        return self._consumer

    def _partition(self, number: int) -> Partition:
        return Partition(self._topic, number)

    def _positions(self) -> dict[str, int]:
        return {str(number): offset for number, offset in self._next.items()}

    def _left(self, number: int) -> float:
        """Return how many offsets are still to be read, as far as is known."""
        consumer, partition = self._opened(), self._partition(number)
        end = max(self._ends.get(number, 0), consumer.high_water(partition) or 0)
        if self._last is not None:
            end = min(end, self._last.get(number, 0))
        return float(max(end - consumer.position(partition), 0))

    def _ask_ends(self, numbers: Sequence[int]) -> bool:
        """Ask the cluster where partitions end; return whether it has answered."""
        if self._cluster.is_away:
            return False
        try:
            ends = self._opened().ends([self._partition(number) for number in numbers], _LAG_SECONDS)
        except KafkaError as error:
            self._cluster.away(error)
            return False
        self._asked = True
        self._ends |= {partition.partition: end for partition, end in ends.items()}
        return True

    def _bound(self, number: int) -> int | None:
        """Return the offset at which to stop, or None."""
        bounds = []
        if self._limit is not None:
            bounds.append(self._limit.get(number, 0))
        if self._last is not None:
            bounds.append(self._last.get(number, 0))
        return min(bounds, default=None)

    def _reached(self, number: int) -> bool:
        bound = self._bound(number)
        if bound is None:
            return False
        # The last offsets before the end may be markers: only the position passes those.
        return self._next[number] >= bound or self._opened().position(self._partition(number)) >= bound

    def _take(self, number: int, records: Sequence[Record]) -> _Records:
        bound = self._bound(number)
        if bound is not None and records[-1].offset >= bound:
            records = [record for record in records if record.offset < bound]
        start = self._next[number]
        if records:
            self._next[number] = records[-1].offset + 1
        return _Records(self._topic, number, start, records, self._decoder)

    def _look(self, now: float) -> None:
        """Add new partitions, and report partitions that make no progress."""
        consumer = self._opened()
        try:
            added = consumer.partitions(self._topic) - set(self._next)
            if added and self.endless:
                first = consumer.beginnings([self._partition(number) for number in sorted(added)])
                self._next |= {partition.partition: offset for partition, offset in first.items()}
                consumer.assign({self._partition(number): offset for number, offset in self._next.items()})
                for number in self._paused:
                    consumer.pause(self._partition(number))
                log.info("topic %s has new partitions: %s", self._topic, sorted(added))
        except KafkaError as error:
            self._cluster.away(error)
            return
        for number in self._next:
            partition = self._partition(number)
            position, end = consumer.position(partition), consumer.high_water(partition)
            if self._moved.get(number, (-1, now))[0] != position or end is None or end <= position:
                self._moved[number] = position, now
                if number in self._stalled:
                    self._stalled.remove(number)
                    log.info("topic %s, partition %s moves again", self._topic, number)
            elif (
                now - self._moved[number][1] > self._cluster.config.stall_seconds
                and number not in self._stalled | self._paused
                and not self._cluster.is_away
            ):
                self._stalled.add(number)
                log.warning(
                    "topic %s, partition %s is stalled: no progress for %.0f s at offset %s, though it"
                    " ends at %s; perhaps a producer has left a transaction open",
                    *(self._topic, number, now - self._moved[number][1], position, end),
                )

    def _ask(self) -> None:
        """After some time without records, check that the cluster is there."""
        if time.monotonic() - self._heard < _ASK_SECONDS:
            return
        partitions = [self._partition(number) for number in self._next]
        self._cluster.check(lambda: self._opened().ends(partitions, _ASK_SECONDS))
        self._heard = time.monotonic()

    def _gone(self, what: str) -> ValueError:
        return ValueError(
            f"topic {self._topic} no longer has the records that come next ({what}): they were deleted before"
            " they were read. Raise the retention of the topic, and start with a new store"
        )


class KafkaFeed:
    """Reads back the values of a topic from its first record on; see `streamcal.run.ports.Feed`.

    Returns nothing until it has read everything that the topic held when it was opened, so that a follower of
    maps begins with the newest ones. A compacted topic holds one row per key, or a few. Returns committed
    rows only. While the cluster is away it waits, and logs that once.
    """

    def __init__(self, cluster: Cluster, url: KafkaUrl) -> None:
        self._cluster = cluster
        self._url = url
        self._consumer: Consumer | None = None
        self._behind: dict[Partition, int] = {}  # by partition: its end at first, until it is reached
        self._rows: list[bytes] = []  # read but not returned yet
        self._heard = time.monotonic()

    def poll(self, timeout: float) -> Sequence[bytes]:
        """Return the rows that are there; see `streamcal.run.ports.Feed`.

        Raises
        ------
        OSError, ValueError
            if the cluster stays away at the start or refuses, or the topic does not exist.
        """
        deadline = time.monotonic() + timeout
        consumer = self._consumer or self._open()
        while True:
            wait = 0.0 if self._rows and not self._behind else max(deadline - time.monotonic(), 0.0)
            try:
                found = consumer.poll(wait, _FEED_RECORDS)
            except KafkaError as error:
                self._cluster.refused(error)
                self._cluster.away(error)
                return ()
            if found:
                self._heard = time.monotonic()
                self._cluster.back()
            elif time.monotonic() - self._heard > _ASK_SECONDS:
                self._cluster.check(lambda: consumer.partitions(self._url.topic, refresh=True))
                self._heard = time.monotonic()
            for partition in sorted(found):
                self._rows += [record.value for record in found[partition] if record.value is not None]
            self._behind = {p: end for p, end in self._behind.items() if consumer.position(p) < end}
            if not found or time.monotonic() > deadline:
                break
        if self._behind:
            return ()
        rows, self._rows = self._rows, []
        return rows

    def close(self) -> None:
        """Release; may be called twice."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self) -> Consumer:
        consumer = self._consumer = self._cluster.consumer()
        numbers = sorted(self._cluster.topic_partitions(consumer, self._url.topic))
        partitions = [Partition(self._url.topic, number) for number in numbers]
        first = self._cluster.call(lambda: consumer.beginnings(partitions), patient=False)
        self._behind = self._cluster.call(lambda: consumer.ends(partitions), patient=False)
        consumer.assign(first)
        return consumer


def _decode(values: Sequence[bytes | None], decoder: JsonDecoder) -> Sequence[Event | Malformed]:
    """Decode every value."""
    if None not in values:
        block = b"\n".join(values)  # type: ignore[arg-type]  # none is None
        if block.count(b"\n") == len(values) - 1:
            events = decoder.decode_lines(block)
            if events is not None and len(events) == len(values):
                return events
    return [
        Malformed("the record has no value") if value is None else decoder.decode(value) for value in values
    ]
