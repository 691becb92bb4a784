"""``kafka://host:9092[,host2:9092]/topic``: sources, sinks and feeds; see docs/kafka.md.

Needs the extra: ``pip install '.[kafka]'`` in a checkout.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from streamcal.run.ports import Positions, Role, SinkOptions, SourceOptions
from streamcal_connectors.kafka.client import Chunk, Consumer, Partition
from streamcal_connectors.kafka.cluster import Cluster, require
from streamcal_connectors.kafka.config import KafkaUrl, read_kafka_config
from streamcal_connectors.kafka.errors import KafkaError, brief, is_out_of_range
from streamcal_connectors.kafka.feed import KafkaFeed
from streamcal_connectors.kafka.positions import offset_of, position_at, topic_id_of
from streamcal_connectors.kafka.records import Records
from streamcal_connectors.kafka.registry import open_registry
from streamcal_connectors.kafka.sink import KafkaSink
from streamcal_connectors.kafka.transactions import Transactions
from streamcal_connectors.kafka.values import FramedValues, JsonValues, Values

__all__ = ["KafkaConnector", "KafkaFeed", "KafkaSource"]

log = logging.getLogger("streamcal_connectors")

_LOOK_SECONDS: Final = 1.0  # between two checks for new and for stalled partitions
_ASK_SECONDS: Final = 2.0  # without records, after which to check that the cluster is there
_LAG_SECONDS: Final = 1.0  # time limit of asking the cluster where partitions end
_FEWEST: Final = 1024  # records of a poll, however little is left
_SETTLE_SECONDS: Final = 10.0  # a broker that has just started may show fewer records than it has for so long


class KafkaConnector:
    """``kafka:`` URLs. All sinks of a run on one cluster share one producer and its transactions."""

    def __init__(self) -> None:
        require()
        self._clusters: dict[tuple[object, ...], Cluster] = {}
        self._transactions: dict[int, Transactions] = {}
        self._inputs: list[tuple[Cluster, str]] = []
        self._table: Mapping[str, Any] = {}
        self._sources: list[KafkaSource] = []
        self._stop: Callable[[], bool] = lambda: False

    def set_up(self, options: Mapping[str, Any], stop: Callable[[], bool]) -> None:
        """Take the table ``[kafka]`` of the run's configuration; see `Connector.set_up`."""
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
        opened = KafkaSource(cluster, parsed, options, self._sources, until_end=until_end)
        self._sources.append(opened)
        self._shared(cluster).add_source(opened.name, parsed.topic)
        self._inputs.append((cluster, parsed.topic))
        return opened

    def identities(self, url: str, role: Role) -> set[str]:
        """Return the topic as every host of its cluster knows it, and its name; see `Connector.identities`.

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
        cluster = self._cluster(parsed)
        self._inputs.append((cluster, parsed.topic))
        return KafkaFeed(cluster, parsed)

    def _cluster(self, url: KafkaUrl) -> Cluster:
        key = (*sorted(url.hosts), url.config_file)
        if key not in self._clusters:
            config = read_kafka_config(url.config_file, table=self._table)
            self._clusters[key] = Cluster(url.hosts, config, self._stop)
        return self._clusters[key]

    def _shared(self, cluster: Cluster) -> Transactions:
        return self._transactions.setdefault(id(cluster), Transactions(cluster, self._inputs))


class KafkaSource:
    """Reads the events of a topic; see `streamcal.run.ports.Source`. Positions are offsets.

    Resumes at the offsets that it is given; offsets of consumer groups play no part. Delivers every committed
    record once, in the order of its partition, and aborted records never (``read_committed``). It finds new
    partitions within ``refresh_seconds`` and reads them from their beginning.

    While the cluster is away it is idle, and logs that once. It reports once if a partition has records but
    makes no progress: then a producer has left a transaction open, or the partition has no leader.
    """

    def __init__(
        self,
        cluster: Cluster,
        url: KafkaUrl,
        options: SourceOptions,
        siblings: Sequence[KafkaSource],
        *,
        until_end: bool,
    ) -> None:
        self.name = url.name
        self.endless = not until_end
        self._cluster = cluster
        self._topic = url.topic
        self._topic_id: str | None = None
        self._from_latest = url.start == "latest"
        self._values = _values(cluster, options)
        self._waits = False  # for a schema
        self._siblings = siblings
        self._before = 0.0  # what was left before the last poll
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
        self._missing: float | None = None  # since when there is no such topic

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """How often a field was ignored so far because events have no such field, by its name."""
        return self._values.unknown_fields

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
        self._topic_id = consumer.topic_id(self._topic)
        self._check_id(topic_id_of(positions))
        partitions = [self._partition(number) for number in numbers]
        first = self._cluster.call(lambda: consumer.beginnings(partitions), patient=False)
        fresh = not positions and self._from_latest
        while True:
            ends = self._cluster.call(lambda: consumer.ends(partitions), patient=False)
            found = {}
            for partition in partitions:
                start = ends[partition] if fresh else first[partition]
                found[partition] = offset_of(positions.get(str(partition.partition), start))
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
        if self._cluster.topic_settings([self._topic])[self._topic].compacted:
            log.warning(
                "topic %s is compacted: an event is lost if another of the same key comes before it is read."
                " Set its cleanup.policy to delete",
                self._topic,
            )
        consumer.assign(found)
        self._next = {partition.partition: offset for partition, offset in found.items()}
        self._ends = {partition.partition: ends[partition] for partition in partitions}
        if not self.endless:
            self._last = dict(self._ends)
        self._heard = time.monotonic()
        return self._positions()

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing at or beyond these offsets; see `streamcal.run.ports.Source`.

        Raises
        ------
        ValueError
            if they belong to another topic of that name.
        """
        self._limit = None
        if positions is not None:
            self._limit = {int(number): offset_of(position) for number, position in positions.items()}
        if self._consumer is None:
            return
        self._check_id(topic_id_of(positions or {}))
        for number in self._paused:
            self._consumer.resume(self._partition(number))
        self._paused.clear()
        for number, offset in self._next.items():
            self._consumer.seek(self._partition(number), offset)  # records fetched beyond a limit come again

    def poll(self, max_events: int, timeout: float) -> Sequence[Records]:
        """Return the next events; see `streamcal.run.ports.Source`.

        Raises
        ------
        OSError
            if the cluster refuses.
        ValueError
            if the next records were deleted.
        """
        consumer = self._opened()
        self._check_id(consumer.topic_id(self._topic))
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
            found = consumer.poll(timeout, self._share(max_events))
        except KafkaError as error:
            if is_out_of_range(error):
                self._cluster.topic_partitions(consumer, self._topic)
                self._check_id(consumer.topic_id(self._topic))
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
        found = {partition: self._within(partition.partition, chunk) for partition, chunk in found.items()}
        self._waits = not self._values.prepare(found)
        if self._waits:
            for partition in found:
                consumer.seek(partition, self._next[partition.partition])
            time.sleep(timeout)
            return ()
        batches = [self._take(partition.partition, found[partition]) for partition in sorted(found)]
        return [batch for batch in batches if batch.events]

    @property
    def left(self) -> float:
        """How many offsets are still to be read, as far as is known."""
        return 0.0 if self._consumer is None else sum(map(self._left, self._next))

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

    def _positions(self) -> Positions:
        return {
            str(number): position_at(number, offset, self._topic_id) for number, offset in self._next.items()
        }

    def _check_id(self, topic_id: str | None) -> None:
        """Refuse another topic of the same name: its offsets have another meaning."""
        if topic_id is not None and self._topic_id is not None and topic_id != self._topic_id:
            raise ValueError(
                f"topic {self._topic} is not the one that was read before: it was deleted and created again,"
                f" or {self._cluster} is another cluster (topic ids {topic_id} and {self._topic_id}). Its"
                " offsets have another meaning: start with a new store to read it from its beginning"
            )

    def _left(self, number: int) -> float:
        """Return how many offsets are still to be read, as far as is known."""
        consumer, partition = self._opened(), self._partition(number)
        end = max(self._ends.get(number, 0), consumer.high_water(partition) or 0)
        if self._last is not None:
            end = min(end, self._last.get(number, 0))
        return float(max(end - consumer.position(partition), 0))

    def _share(self, most: int) -> int:
        """Return how many records to read now: in proportion to what is left, beside the other topics.

        So a run that catches up comes to the ends of its topics at the same time. A topic of few labels, read
        as fast as that of the predictions, would be far ahead: all its labels would be early, and early
        labels are taken one by one. Topics take turns in one order; what is left is that before each turn.
        """
        self._before = self.left
        turn = self._siblings.index(self)
        left = [each._before for each in self._siblings[:turn]]
        left += [each.left for each in self._siblings[turn:]]
        behind = max(left)
        return most if behind <= _FEWEST else max(int(most * self._before / behind), _FEWEST)

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

    def _within(self, number: int, records: Chunk) -> Chunk:
        """Return those records that are before the bound."""
        bound = self._bound(number)
        if bound is None or records.offsets[-1] < bound:
            return records
        count = bisect_left(records.offsets, bound)
        return Chunk(records.offsets[:count], records.values[:count])

    def _take(self, number: int, records: Chunk) -> Records:
        start = self._next[number]
        if records.offsets:
            self._next[number] = records.offsets[-1] + 1
        return Records(self._topic, self._topic_id, number, start, records, self._values)

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
            moved = self._moved.get(number, (-1, now))[0] != position
            if moved or self._waits or end is None or end <= position:
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
        self._cluster.check(self._request_ends)
        self._heard = time.monotonic()

    def _request_ends(self) -> None:
        """Ask where the partitions end, to hear from the cluster.

        Raises
        ------
        KafkaError
            if it does not answer.
        ValueError
            if it answers that there is no such topic any more.
        """
        consumer = self._opened()
        try:
            consumer.ends([self._partition(number) for number in self._next], _ASK_SECONDS)
        except KafkaError:
            if consumer.partitions(self._topic, refresh=True):
                self._missing = None
                raise
            now = time.monotonic()
            self._missing = now if self._missing is None else self._missing
            if now - self._missing > _SETTLE_SECONDS:
                raise ValueError(
                    f"topic {self._topic} is not there any more: it was deleted while it was read"
                ) from None
            raise
        self._missing = None

    def _gone(self, what: str) -> ValueError:
        return ValueError(
            f"topic {self._topic} no longer has the records that come next ({what}): they were deleted before"
            " they were read. Raise the retention of the topic, and start with a new store"
        )


def _values(cluster: Cluster, options: SourceOptions) -> Values:
    registry = open_registry(cluster.config)
    if registry is None:
        return JsonValues(options.domain, options.columns)
    return FramedValues(registry, options.domain, options.columns)
