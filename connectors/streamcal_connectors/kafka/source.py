"""``kafka://host:9092[,host2:9092]/topic``: sources, sinks and feeds; see docs/kafka.md.

Needs the extra: ``pip install '.[kafka]'`` in a checkout.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from streamcal.run.ports import Position, Positions, Shard, SinkOptions, SourceOptions
from streamcal_connectors.kafka.client import Chunk, TopicPartition
from streamcal_connectors.kafka.cluster import Cluster, hold_log_back
from streamcal_connectors.kafka.config import KafkaUrl, read_kafka_config
from streamcal_connectors.kafka.errors import KafkaError, brief
from streamcal_connectors.kafka.feed import KafkaFeed
from streamcal_connectors.kafka.kafka_python import Consumer
from streamcal_connectors.kafka.positions import offset_of, position_at, topic_id_of
from streamcal_connectors.kafka.records import LostRecords, Records
from streamcal_connectors.kafka.sink import KafkaSink
from streamcal_connectors.kafka.transactions import Transactions
from streamcal_connectors.kafka.values import Values

log = logging.getLogger("streamcal_connectors")

_LOOK_SECONDS: Final = 1.0  # between two checks for new and for stalled partitions
_ENDS_SECONDS: Final = 2.0  # time limit of asking, after some silence, whether the cluster is there
_LAG_SECONDS: Final = 1.0  # time limit of asking the cluster where partitions end
_AHEAD: Final = 8_192  # records that a partition may be ahead of its part, if its topic has an end
_FEWEST: Final = 1024  # records of a poll, however little is left
_START_SECONDS: Final = 10.0  # a broker that has just started may show fewer records than it has for so long
_SKIP: Final = (
    "Or go on behind them with --skip-lost, which keeps the engine and pending labels: what was not read is"
    " neither answered nor learned, and labels of predictions among it are rejected"
)


class KafkaConnector:
    """``kafka:`` URLs. All sinks of a run on one cluster share one producer and its transactions."""

    def __init__(self) -> None:
        hold_log_back()
        self._shared: dict[tuple[object, ...], Transactions] = {}  # by hosts and options
        self._names: set[tuple[str, str]] = set()
        self._partitions: dict[str, int] = {}  # how many, by source, of a shard
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
            if the URL or an option of the connection is wrong; or, of a shard, if the topic has fewer
            partitions than there are shards, or another number than the topics before it.
        OSError
            of a shard, which asks for that number, if the cluster stays away or refuses.
        """
        parsed = KafkaUrl(url)
        self._claim("input", parsed.name)
        transactions = self._transactions(parsed)
        if options.shard is not None:
            self._check_partitions(transactions.cluster, parsed, options.shard)
        opened = KafkaSource(transactions.cluster, parsed, options, self._sources)
        self._sources.append(opened)
        transactions.sources[opened.name] = parsed.topic
        return opened

    def sink(self, url: str, options: SinkOptions | None = None) -> KafkaSink:
        """Open a topic to write, any rows; see `source`."""
        parsed = KafkaUrl(url)
        self._claim("output", parsed.name)
        return KafkaSink(self._transactions(parsed), parsed, options or SinkOptions())

    def feed(self, url: str) -> KafkaFeed:
        """Open a topic that a sink writes, to read back; see `source`."""
        parsed = KafkaUrl(url)
        return KafkaFeed(self._transactions(parsed).cluster, parsed.topic)

    def _claim(self, role: str, name: str) -> None:
        """Refuse two inputs, or two outputs, of one name: a store could not tell them apart."""
        if (role, name) in self._names:
            raise ValueError(
                f"two of the {role}s are {name}: name their clusters by the URL's option cluster"
            )
        self._names.add((role, name))

    def _check_partitions(self, cluster: Cluster, url: KafkaUrl, shard: Shard) -> None:
        with closing(cluster.consumer()) as consumer:
            self._partitions[url.name] = len(cluster.topic_partitions(consumer, url.topic))
        numbers = set(self._partitions.values())
        if len(numbers) > 1 or min(numbers) < shard.of:
            found = ", ".join(f"{name} has {number}" for name, number in self._partitions.items())
            raise ValueError(
                f"--shard {shard}: {found} partitions. A prediction and its label must be in partitions of"
                f" one number: let all topics have equally many, {shard.of} or more, and write by one key"
            )

    def _transactions(self, url: KafkaUrl) -> Transactions:
        key = (*sorted(url.hosts), url.options.config)
        if key not in self._shared:
            config = read_kafka_config(url.options.config, table=self._table)
            self._shared[key] = Transactions(Cluster(url.hosts, config, self._stop))
        return self._shared[key]


class KafkaSource:
    """Reads the events of a topic; see `streamcal.run.ports.Source`. Positions are offsets.

    Resumes at the offsets that it is given; offsets of consumer groups play no part. Delivers every committed
    record once, in the order of its partition, and aborted records never (``read_committed``). It finds new
    partitions within ``refresh_seconds`` and reads them from their beginning.

    While the cluster is away it is idle, and logs that once. It reports once if a partition has records but
    makes no progress: then a producer has left a transaction open, or the partition has no leader.
    """

    def __init__(
        self, cluster: Cluster, url: KafkaUrl, options: SourceOptions, siblings: Sequence[KafkaSource]
    ) -> None:
        self.name = url.name
        self.endless = not (url.options.until == "end" or options.domain == "source")
        self._cluster = cluster
        self._topic = url.topic
        self._topic_id: str | None = None
        self._skips = options.skip_lost
        self._lost: dict[TopicPartition, Position] = {}  # where it stands, before the records that are there
        self._until: Positions = {}  # the limit, if there is one
        self.shard = options.shard
        self._from_latest = url.options.start == "latest"
        self._values = Values(cluster.config.registry_options(), options.domain, options.columns)
        self._waits = False  # for a schema
        self._siblings = siblings
        self._before = 0.0  # what was left before the last poll
        self._consumer: Consumer | None = None
        self._next: dict[TopicPartition, int] = {}  # the next offset to deliver
        self._starts: Mapping[TopicPartition, int] = {}  # where they began
        self._last: Mapping[TopicPartition, int] | None = None  # where a finite source ends
        self._limit: Mapping[TopicPartition, int] | None = None
        self._ends: dict[TopicPartition, int] = {}  # the end when the cluster was asked
        self._asked = False  # whether it was asked since the last poll
        self._paused: set[TopicPartition] = set()
        self._looked = time.monotonic()
        self._moved: dict[TopicPartition, tuple[int, float]] = {}  # its position, and since when
        self._stalled: set[TopicPartition] = set()
        self._missing: float | None = None  # since when there is no such topic

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of fields that were ignored so far because events have no such field, by name."""
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
        cluster, topic = self._cluster, self._topic
        consumer = self._consumer = self._consumer or cluster.consumer()
        consumer.with_times = cluster.config.time == "record"
        until = time.monotonic() + _START_SECONDS
        partitions = self._own(cluster.topic_partitions(consumer, topic))
        self._topic_id = consumer.topic_id(topic)
        for position in positions.values():
            self._check_id(topic_id_of(position))
        wanted = self._offsets(positions)
        if missing := sorted(str(partition.partition) for partition in wanted.keys() - set(partitions)):
            raise ValueError(
                f"topic {topic} has no partition {', '.join(missing)} any more: it was deleted and created"
                f" again. Give it {len(wanted)} partitions"
            )
        strange = {p for p in wanted if self._is_other(topic_id_of(positions[str(p.partition)]))}
        first = cluster.call(lambda: consumer.beginnings(partitions))
        while True:
            ends = cluster.call(lambda: consumer.ends(partitions))
            start = ends if self._from_latest and not positions else first
            found = {partition: wanted.get(partition, start[partition]) for partition in partitions}
            beyond = [p for p in partitions if p not in strange and found[p] > max(ends[p], first[p])]
            if not beyond or time.monotonic() > until:
                break
            time.sleep(_LOOK_SECONDS / 4)
        self._lost.clear()
        for partition, offset in found.items():
            if partition in strange or partition in beyond or offset < first[partition]:
                if not self._skips:
                    begins, end = first[partition], ends[partition]
                    raise self._gone(f"partition {partition.partition} has {begins} to {end}, not {offset}")
                self._lost[partition] = positions[str(partition.partition)]
                # The same topic has lost its end; of one whose id is not known, nothing was read.
                same = partition in beyond and self._topic_id is not None
                found[partition] = ends[partition] if same else first[partition]
        if cluster.topic_settings([topic])[topic].compacted:
            log.warning(
                "topic %s is compacted: an event is lost if another of the same key comes before it is read."
                " Set its cleanup.policy to delete",
                topic,
            )
        consumer.assign(found)
        self._paused.clear()
        self._next, self._ends, self._starts = found, ends, dict(found)
        if not self.endless:
            self._last = dict(ends)
        return self._positions()

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing at or beyond these offsets; see `streamcal.run.ports.Source`.

        Raises
        ------
        ValueError
            if they belong to another topic of that name.
        """
        self._until = positions or {}
        self._limit = None if positions is None else self._offsets(positions)
        if self._consumer is None:
            return
        for position in self._until.values():
            self._check_id(topic_id_of(position))
        self._rest(set())
        for partition, offset in self._next.items():
            self._consumer.seek(partition, offset)  # records fetched beyond a limit come again

    def poll(self, max_events: int, timeout: float) -> Sequence[Records | LostRecords]:
        """Return the next events; see `streamcal.run.ports.Source`.

        Raises
        ------
        OSError
            if the cluster refuses.
        ValueError
            if the next records were deleted.
        """
        consumer = self._opened()
        if self._is_other(topic_id := consumer.topic_id(self._topic)):
            self._check_id(topic_id)
            self.seek(self._positions())
        if lost := self._take_lost():
            return lost
        self._asked = False
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._look(now)
        reached = {*filter(self._reached, self._next)}
        self._rest(reached | self._far_ahead(reached))
        if not self._next or self.ended:
            return ()
        most = max_events if self._last is None else min(max_events, _AHEAD)
        try:
            found = self._cluster.poll(consumer, timeout, lambda: self._share(most), self._request_ends)
        except KafkaError as error:  # out of range
            self._cluster.topic_partitions(consumer, self._topic)
            self._check_id(consumer.topic_id(self._topic))
            if not self._skips:
                raise self._gone(brief(error)) from None
            self.seek(self._positions())
            return self._take_lost()
        if not found:
            return ()
        try:
            other = self._skips and self._is_other(consumer.topic_id(self._topic, fresh=True))
        except KafkaError as error:
            self._cluster.away(error)
            other = True
        if other:  # they may be of a topic that was made anew: whoever knows its id reads them again
            for partition in found:
                consumer.seek(partition, self._next[partition])
            return ()
        found = {partition: self._within(partition, found[partition]) for partition in sorted(found)}
        self._waits = not self._values.prepare(found)
        if self._waits:
            for partition in found:
                consumer.seek(partition, self._next[partition])
            time.sleep(timeout)
            return ()
        batches = []
        for partition, chunk in found.items():
            if chunk.offsets:
                batches.append(Records(partition, self._topic_id, self._next[partition], chunk, self._values))
                self._next[partition] = chunk.offsets[-1] + 1
        return batches

    @property
    def left(self) -> float:
        """Number of offsets still to be read, as far as is known."""
        return 0.0 if self._consumer is None else sum(map(self._left, self._next))

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        if self._limit is None and self.endless:
            return False
        return self._consumer is not None and all(map(self._reached, self._next))

    @property
    def ended_partitions(self) -> Collection[str]:
        """Partitions that were read to the end of the topic, or to the limit."""
        finite = self._last is not None or self._limit is not None
        return [str(each.partition) for each in self._next if finite and self._reached(each)]

    def lag(self) -> Mapping[str, float]:
        """Return how many offsets of each partition were not read yet; see `streamcal.run.ports.Source`.

        Open transactions count. If a partition seems to have been read to its end, the cluster is asked
        whether it has; the lag is NaN if it does not answer.
        """
        if self._consumer is None:
            return {}
        lags = {partition: self._left(partition) for partition in self._next}
        ended = [partition for partition, left in lags.items() if not left]
        if ended and not self._asked and self._last is None:
            answered = self._ask_ends(ended)
            lags |= {partition: self._left(partition) if answered else math.nan for partition in ended}
        return {str(partition.partition): left for partition, left in lags.items()}

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

    def _rest(self, resting: set[TopicPartition]) -> None:
        """Let these partitions rest, and no others."""
        consumer = self._opened()
        for partition in resting - self._paused:
            consumer.pause(partition)
        for partition in self._paused - resting:
            consumer.resume(partition)
        self._paused = resting

    def _far_ahead(self, reached: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return what rests until others come near that did not reach their end: they are merged by time.

        Clients give whole partitions in turn, all of which would be held until the last one comes.
        """
        if self._last is None:
            return set()
        sizes = {each: max(self._last[each] - start, 1) for each, start in self._starts.items()}
        done = {each: (self._next[each] - self._starts[each]) / size for each, size in sizes.items()}
        least = min((share for each, share in done.items() if each not in reached), default=1.0)
        return {each for each, size in sizes.items() if (done[each] - least) * size > _AHEAD}

    def _offsets(self, positions: Positions) -> dict[TopicPartition, int]:
        return {TopicPartition(self._topic, int(p)): offset_of(each) for p, each in positions.items()}

    def _own(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return those of the shard, in their order."""
        first, step = self.shard or (0, 1)
        return sorted(each for each in partitions if each.partition % step == first)

    def _positions(self) -> dict[str, Position]:
        """Return where it stands, which may be before records that were lost."""
        return {
            str(place.partition): self._lost.get(place, position_at(offset, self._topic_id))
            for place, offset in self._next.items()
        }

    def _take_lost(self) -> list[LostRecords]:
        """Return what was lost where partitions stand, up to the limit, and go on behind it."""
        taken = []
        for place, start in sorted(self._lost.items()):
            end = self._lost_end(place)
            if end != start:
                taken.append(LostRecords(place, start, end))
                self._lost[place] = end
            if end == position_at(self._next[place], self._topic_id):
                del self._lost[place]
        return taken

    def _lost_end(self, place: TopicPartition) -> Position:
        """Return where the records end that were lost where a partition stands, or the limit before that.

        So a micro-batch that is read again ends where it did, though more of it is lost than was then.
        """
        start, begins = self._lost[place], self._next[place]
        until = self._until.get(str(place.partition), start)
        offset, same = offset_of(until), topic_id_of(until) == topic_id_of(start)
        is_lost = self._is_other(topic_id_of(until)) or offset < begins
        is_lost = is_lost or (same and offset >= offset_of(start) > begins)
        return until if self._limit is not None and is_lost else position_at(begins, self._topic_id)

    def _is_other(self, topic_id: str | None) -> bool:
        """Whether an id is that of another topic of the same name: its offsets have another meaning."""
        return topic_id is not None and self._topic_id is not None and topic_id != self._topic_id

    def _check_id(self, topic_id: str | None) -> None:
        """Refuse another topic of the same name, unless what is lost is skipped."""
        if self._is_other(topic_id) and not self._skips:
            raise ValueError(
                f"topic {self._topic} is not the one that was read before: it was deleted and created again,"
                f" or {self._cluster} is another cluster (topic ids {topic_id} and {self._topic_id}). Its"
                " offsets have another meaning: start with a new store to read it from its beginning."
                f" {_SKIP}"
            )

    def _left(self, partition: TopicPartition) -> float:
        """Return how many offsets are still to be read, as far as is known."""
        consumer = self._opened()
        end = max(self._ends.get(partition, 0), consumer.high_water(partition) or 0)
        if self._last is not None:
            end = min(end, self._last.get(partition, 0))
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

    def _ask_ends(self, partitions: Iterable[TopicPartition]) -> bool:
        """Ask the cluster where partitions end; return whether it has answered."""
        if self._cluster.is_away:
            return False
        try:
            self._ends |= self._opened().ends(partitions, _LAG_SECONDS)
        except KafkaError as error:
            self._cluster.away(error)
            return False
        self._asked = True
        return True

    def _bound(self, partition: TopicPartition) -> float:
        """Return the offset at which to stop; infinite if there is none."""
        return min(
            (bounds.get(partition, 0) for bounds in (self._limit, self._last) if bounds is not None),
            default=math.inf,
        )

    def _reached(self, partition: TopicPartition) -> bool:
        if partition in self._lost:
            return bool(self._lost_end(partition) == self._lost[partition])
        if (bound := self._bound(partition)) == math.inf:
            return False
        # The last offsets before the end may be markers: only the position passes those.
        return self._next[partition] >= bound or self._opened().position(partition) >= bound

    def _within(self, partition: TopicPartition, records: Chunk) -> Chunk:
        """Return those records that are before the bound."""
        bound = self._bound(partition)
        if records.offsets[-1] < bound:
            return records
        count = bisect_left(records.offsets, bound)
        return Chunk(records.offsets[:count], records.values[:count], records.times and records.times[:count])

    def _look(self, now: float) -> None:
        """Add new partitions, and report partitions that make no progress."""
        consumer = self._opened()
        try:
            added = self._own(consumer.partitions(self._topic) - self._next.keys())
            if added and self.endless:
                self._next |= consumer.beginnings(added)
                consumer.assign(self._next)
                for partition in self._paused:
                    consumer.pause(partition)
                numbers = [partition.partition for partition in added]
                log.info("topic %s has new partitions: %s", self._topic, numbers)
        except KafkaError as error:
            self._cluster.away(error)
            return
        for partition in self._next:
            position, end = consumer.position(partition), consumer.high_water(partition)
            before, since = self._moved.get(partition, (-1, now))
            if before != position or self._waits or end is None or end <= position:
                self._moved[partition] = position, now
                if partition in self._stalled:
                    self._stalled.remove(partition)
                    log.info("topic %s, partition %s moves again", *partition)
            elif (
                now - since > self._cluster.config.stall_seconds
                and partition not in self._stalled | self._paused
                and not self._cluster.is_away
            ):
                self._stalled.add(partition)
                log.warning(
                    "topic %s, partition %s is stalled: no progress for %.0f s at offset %s, though it"
                    " ends at %s; perhaps a producer has left a transaction open",
                    *(*partition, now - since, position, end),
                )

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
            consumer.ends(self._next, _ENDS_SECONDS)
        except KafkaError:
            now = time.monotonic()
            if consumer.partitions(self._topic, refresh=True):
                self._missing = None
            elif self._missing is None:
                self._missing = now
            elif now - self._missing > _START_SECONDS:
                raise ValueError(
                    f"topic {self._topic} is not there any more: it was deleted while it was read"
                ) from None
            raise
        self._missing = None

    def _gone(self, what: str) -> ValueError:
        return ValueError(
            f"topic {self._topic} no longer has the records that come next ({what}): they were deleted before"
            " they were read, or the topic was deleted and created again. Raise its retention, and start with"
            f" a new store. {_SKIP}"
        )
