"""The transactions in which a run writes rows and input positions to a cluster, exactly once.

One micro-batch is one transaction, however many topics it is written to. Its commit has these steps:

1. Begin. Nothing is sent before `Sink.commit`: rows wait in memory, so that they can be sent again.
2. Send every row.
3. Add the input positions to the same transaction: they become visible with the rows, or not at all.
4. Flush: wait until the broker has accepted *every* row.
5. Commit, with a time limit: a request that is lost is never answered.

If any step fails, including step 5, the outcome is in doubt. The producer is discarded, and a new one ends
the open transaction. The number of the last transaction, which is stored with the positions, then tells
whether it was committed. If not, everything is sent again. What the broker would refuse every time ends the
run instead, as does a transaction that the broker neither commits nor aborts.

Fencing: when a run begins, it writes its mark into a group named like its transactional id. The broker
refuses the transactions of a run whose transactional id another run has taken over. Such a run finds the
other run's mark, and stops. If it finds its own mark, the broker had only timed its transaction out. The
mark also names the store whose rows were committed last: a run of another store is refused, as it would write
the same rows again, however often it is restarted.

Shards write to one output side by side, each with a transactional id, and so a mark, of its own. Under the id
that a run of all partitions would have, the first shard leaves the number of shards in the place of a store:
a run that is none of them is refused.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from typing import Final

from streamcal.run.ports import Position, Positions, Shard, StoppedError
from streamcal_connectors.kafka import limits
from streamcal_connectors.kafka.client import OffsetAndMetadata, Producer, Row, TopicPartition, worst
from streamcal_connectors.kafka.cluster import Cluster, RefusedError
from streamcal_connectors.kafka.errors import KafkaError, brief, error_names
from streamcal_connectors.kafka.kafka_python import Consumer, TopicSettings
from streamcal_connectors.kafka.positions import Mark, offset_of, pack, unpack

log = logging.getLogger("streamcal_connectors")

_ATTEMPTS: Final = 20  # to commit one micro-batch, while the cluster can be reached
_SHARDS: Final = "--shard I/"
_SIGN_SECONDS: Final = 3600.0  # between two marks: a broker forgets one after offsets.retention.minutes
# A broker aborts what a dead producer left open after the limit, and looks every 10 s. Whatever is open for
# much longer, while the broker answers, stays open.
_PENDING_SECONDS: Final = 2 * limits.TRANSACTION_SECONDS


class _PendingError(OSError):
    """A transaction has not ended yet."""


class Transactions:
    """The producer that all sinks of a run on one cluster share, and the rows it has to commit.

    Parameters
    ----------
    cluster
        where to write.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = ""
        """Transactional id, and the group of the owner's mark; set by the first sink."""
        self._common = ""  # the transactional id of a run of all partitions
        self._shards = ""  # of how many shards this is one; as shown, and as left under the common id
        self.sources: dict[str, str] = {}
        """Topics of sources on this cluster, by name of the source: their offsets are committed as such, too,
        for tools that show lag."""
        self.rows: list[Row] = []
        """Rows to send with the next commit."""
        self.settings: Mapping[str, TopicSettings] = {}
        """Settings of the sinks' topics as they were at `open`."""
        self._outputs: list[str] = []  # topics of the sinks
        self._anchor: TopicPartition  # under which the groups store their marks; of the first sink
        self._owner = uuid.uuid4().hex
        self._job = ""
        self._writer: str | None = None  # the job whose rows were committed last under the transactional id
        self._sign_at = 0.0  # when the owner's mark is due again
        self._group = ""  # of the marks of this job; named at `open`
        self._producer: Producer | None = None
        self._pending: dict[str, float] = {}  # since when a transaction is open, by the group it writes to
        self._last = Mark(0, {})  # number 0: no transaction yet

    def join(self, topic: str, transactional_id: str | None, shard: Shard | None) -> None:
        """Add a sink. The transactional id is the option's, or else named after the first sink's topic.

        That of a ``shard`` ends in its index and count.
        """
        if transactional_id is not None and self._outputs and self._common != transactional_id:
            raise ValueError(
                f"the outputs of a run on one cluster share one transactional id, got {self._common!r} and"
                f" {transactional_id!r}: give it with the first output"
            )
        if not self._outputs:
            self._common = self.name = transactional_id or f"streamcal.{topic}"
            if shard is not None:
                self.name += f".{shard.number}-of-{shard.of}"
                self._shards = f"{_SHARDS}{shard.of}"
            self._anchor = TopicPartition(topic, 0)
        self._outputs.append(topic)

    def open(self, job: str, *, append: bool = False, resumes: bool = False) -> Mark | None:
        """Fence other runs and end their open transactions; return the last mark of this job.

        A job that begins leaves a mark of number 0 before its first row: so what a run that is killed has
        begun to write is known to be its own.

        Raises
        ------
        OSError, ValueError
            if the cluster stays away or refuses, or a topic does not exist; or, unless it may ``append``, if
            another job wrote last, or a topic holds records and the job is new and not one that ``resumes``;
            or if other shards write, or shards and this is none. Nothing is changed then.
        """
        if not self._group:
            self._job, self._group = job, f"{self.name}.{job or f'once.{self._owner}'}"
            topics = {*self._outputs}
            with closing(self.cluster.consumer()) as consumer:
                places = [
                    place for topic in topics for place in self.cluster.topic_partitions(consumer, topic)
                ]
                if job and not append and not resumes and self.cluster.call(self._is_new):
                    self._refuse_records(consumer, places)
            self.settings = self.cluster.topic_settings(topics)
            self._producer, found = self.cluster.call(lambda: self._take_over(append=append))
            if found is not None:
                self._last = unpack(found.metadata)
        return self._last if self._last.number else None

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Commit all rows and the positions, unless that is done already; return what the store is to record.

        Raises
        ------
        StoppedError
            if it failed and the run is to stop; the next run finds out whether it was committed.
        OSError
            if the run is fenced, or the cluster refuses.
        """
        mark = Mark(self._last.number + 1, {name: dict(each) for name, each in positions.items()})
        if not self.rows and mark.positions == self._last.positions:
            return {"transaction": self._last.number}
        for attempt in count(1):
            try:
                if self._producer is None:
                    self._producer, done = self.cluster.call(self._recover, patient=True)
                    if done == mark.number:
                        break
                self._transact(self._producer, mark)
                break
            except KafkaError as error:
                self._discard()
                self._refused(error, mark)
                if self.cluster.stop():
                    raise StoppedError(f"transaction {mark.number} of {self.name}: {brief(error)}") from None
                if attempt == _ATTEMPTS:
                    raise OSError(
                        f"{self.name}: {attempt} attempts at one transaction failed; the last: {brief(error)}"
                    ) from None
                log.info("%s: transaction %s in doubt (%s)", self.name, mark.number, brief(error))
        self.rows = []
        self._last, self._writer = mark, self._job or self._writer
        return {"transaction": mark.number}

    def close(self) -> None:
        """Release without a commit; may be called twice."""
        self.rows = []
        self._discard()

    # Inside

    def _transact(self, producer: Producer, mark: Mark) -> None:
        """Do steps 1 to 5 of the module's docstring."""
        try:
            producer.begin()
            producer.send(self.rows)
            producer.send_offsets(self._group, self._offsets(mark))
            if self._job not in ("", self._writer) or time.monotonic() > self._sign_at:
                self._sign(producer, self._job or self._writer)
            producer.flush()
        except KafkaError as error:
            raise worst(producer.failures(), error) from None
        producer.commit()

    def _refused(self, error: Exception, mark: Mark) -> None:
        """Raise RefusedError if the broker would refuse the transaction every time, with what to do."""
        names = error_names(error)
        advice = ""
        if names & {"MessageSizeTooLargeError", "RecordListTooLargeError"}:
            size, topic = max((len(key or b"") + len(value), topic) for topic, key, value in self.rows)
            advice = (
                f". The largest record has {size:,} bytes, for the topic {topic!r}, whose max.message.bytes"
                f" was {self.settings[topic].max_bytes:,} when the run began: raise it"
            )
        elif "OffsetMetadataTooLargeError" in names:
            advice = (
                f". The input positions take {len(pack(mark)):,} characters: raise offset.metadata.max.bytes"
                " of the brokers, which is 4,096 by default, or read fewer partitions in one run"
            )
        elif "InvalidRecordError" in names:
            advice = (
                ". A compacted topic takes no record without a key, and the answer to an event without id has"
                " none: give every event an id, or set cleanup.policy=delete for the output's topic"
            )
        self.cluster.refused(error, advice)

    def _offsets(self, mark: Mark) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to store: the mark and, for tools that show lag, those of the sources."""
        offsets = {
            TopicPartition(self.sources[name], int(partition)): OffsetAndMetadata(offset_of(position), "")
            for name, each in mark.positions.items()
            if name in self.sources
            for partition, position in each.items()
        }
        offsets[self._anchor] = OffsetAndMetadata(mark.number, pack(mark))
        return offsets

    def _take_over(self, *, append: bool) -> tuple[Producer, OffsetAndMetadata | None]:
        """Make the producer, and write the mark of this run; return the last of its job, None if it is new.

        Refuse if another job wrote last: before its run is fenced, so that one that is restarted forever does
        not disturb it; and after that, as it may have written meanwhile. So do shards under the common name.
        """
        name, common, shards = self.name, self._common, self._shards
        if shards and self._find_writer(common, stable=False, append=append) != shards:
            with self._made(common) as producer:  # from here on, no run of all partitions commits
                if self._find_writer(common, append=append) != shards:
                    producer.begin()
                    producer.send_offsets(common, {self._anchor: self._mark(shards)})
                    producer.commit()
                producer.discard()
        self._find_writer(name, stable=False, append=append)
        with self._made(name) as producer:  # from here on, no other run commits
            self._writer = self._find_writer(name, append=append)
            found = self._committed(self._group)
            producer.begin()
            self._sign(producer, self._writer)
            if found is None and self._job:
                producer.send_offsets(self._group, {self._anchor: OffsetAndMetadata(0, pack(self._last))})
            producer.commit()
        return producer, found

    def _find_writer(self, name: str, *, stable: bool = True, append: bool) -> str | None:
        """Return the job, or shards, whose rows were committed last under a transactional id, if any.

        Raise ValueError if this run may not follow them.
        """
        owner = self._committed(name, stable=stable)
        writer: str | None = None if owner is None else owner.metadata.partition(" ")[2] or None
        if writer is None or writer == (self._job if name == self.name else self._shards):
            return writer
        of_shards = writer.startswith(_SHARDS)
        theirs, mine = f"another store ({writer})", f"whose store is {self._job}"
        if of_shards or name != self.name:
            theirs = f"runs with {writer if of_shards else 'no --shard'}"
            mine = f"with {self._shards or 'no --shard'}"
        elif not self._job:
            return writer
        if of_shards or not append:
            raise ValueError(
                f"the rows of {theirs} were written to {self._outputs} at {self.cluster} with the"
                f" transactional id {name!r}: this run, {mine}, would write the same again. Let only the"
                " former go on, or give another output"
                + ("" if of_shards else "; or write behind those rows with --append")
            )
        return writer

    def _sign(self, producer: Producer, writer: str | None) -> None:
        """Write the mark of this run into the open transaction, with the job that wrote last."""
        self._sign_at = time.monotonic() + _SIGN_SECONDS
        producer.send_offsets(self.name, {self._anchor: self._mark(writer)})
        if self._shards:
            producer.send_offsets(self._common, {self._anchor: self._mark(self._shards)})

    def _mark(self, writer: str | None) -> OffsetAndMetadata:
        return OffsetAndMetadata(0, f"{self._owner} {writer or ''}")

    def _is_new(self) -> bool:
        """Whether the job has no mark, not even one that an open transaction will replace."""
        with closing(self.cluster.new_consumer(self._group, stable=False)) as consumer:
            return consumer.committed(self._anchor) is None

    def _refuse_records(self, consumer: Consumer, places: Sequence[TopicPartition]) -> None:
        """Refuse topics that hold records."""
        first = self.cluster.call(lambda: consumer.beginnings(places))
        ends = self.cluster.call(lambda: consumer.ends(places))
        held = Counter[str]()
        for place in places:
            held[place.topic] += ends[place] - first[place]
        find = partial(self._find_writer, self._common, stable=False, append=False)
        if self._shards and held.total() and self.cluster.call(find) == self._shards:
            return  # they are those of other shards
        for topic, records in held.items():
            if records:
                raise ValueError(
                    f"the topic {topic!r} at {self.cluster} has up to {records:,} records that this store"
                    " knows nothing of: give another output, or write behind them with --append"
                )

    def _recover(self) -> tuple[Producer, int]:
        """Make a new producer after an error; return it with the number of the last transaction committed.

        The owner's mark is read first, since ending the transactions of another run would fence that run in
        turn: as it was committed last, while a transaction of this run is still open. It is read again, since
        another run may have taken over meanwhile.
        """
        self._check_owner(stable=False)
        with self._made(self.name) as producer:
            self._check_owner()
            found = self._committed(self._group)
        return producer, 0 if found is None else unpack(found.metadata).number

    def _check_owner(self, *, stable: bool = True) -> None:
        """Raise RefusedError unless the mark under the transactional id is that of this run."""
        owner = self._committed(self.name, stable=stable)
        if owner is None:
            raise RefusedError(
                f"Kafka at {self.cluster} no longer has the group {self.name!r} with the mark of this run: it"
                f" was deleted, or the topic {self._anchor.topic!r} was. It is unknown whether the last"
                " micro-batch was written; start with a new store"
            )
        if owner.metadata.partition(" ")[0] != self._owner:
            raise RefusedError(
                f"another run writes with the transactional id {self.name!r}, so this run stops. Let only one"
                " go on: with an id of its own, by the URL's option transactional_id, each would write every"
                " row of what it reads"
            )

    @contextmanager
    def _made(self, name: str) -> Iterator[Producer]:
        """Make a producer that has fenced all others; discard it if the block fails."""
        batch_bytes = min(self.settings[topic].max_bytes for topic in self._outputs)
        producer = self.cluster.new_producer(name, batch_bytes)
        try:
            producer.init()
            yield producer
        except BaseException:
            producer.discard()
            raise

    def _committed(self, group: str, *, stable: bool = True) -> OffsetAndMetadata | None:
        """Return the mark in a group; a ``stable`` one waits for the transaction that writes one.

        Raises
        ------
        KafkaError, OSError
            if the cluster does not answer, or the transaction has not ended yet.
        RefusedError
            if the transaction will not end any more.
        """
        with closing(self.cluster.new_consumer(group, stable=stable)) as consumer:
            try:
                found = consumer.committed(self._anchor)
            except KafkaError:
                self._raise_if_pending(group)
                raise
        if stable:
            self._pending.pop(group, None)
        return found

    def _raise_if_pending(self, group: str) -> None:
        """Raise if a group's mark cannot be read because of an open transaction, for all else is well."""
        since = self._pending.pop(group, time.monotonic())
        with closing(self.cluster.new_consumer(group, stable=False)) as consumer:
            last = consumer.committed(self._anchor)
        self._pending[group] = since
        number = 0 if last is None else last.offset
        if time.monotonic() - since < _PENDING_SECONDS:
            raise _PendingError(f"the transaction behind number {number} of {self.name} has not ended yet")
        raise RefusedError(
            f"Kafka at {self.cluster} answers, but has neither committed nor aborted a transaction of"
            f" {self.name!r} for {_PENDING_SECONDS:.0f} s. It writes to the group {group!r}, under the topic"
            f" {self._anchor.topic!r}, partition 0; the last one completed there is number {number}. The"
            " broker has probably lost it when it was killed. Waiting does not help: abort it with"
            " kafka-transactions.sh on all partitions where it is still open, then start the run again (see"
            " docs/kafka.md, 'A transaction that the broker lost')"
        )

    def _discard(self) -> None:
        if self._producer is not None:
            self._producer.discard()
            self._producer = None
