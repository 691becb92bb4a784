"""Rows onto topics, exactly once, in transactions that carry the input positions.

One micro-batch is one transaction, whatever number of topics it goes to. Its commit:

1. Begin. Nothing is sent before `Sink.commit`: rows wait in memory, so that they can be sent again.
2. Send every row, and keep what the client says will become of each.
3. Send the input positions into the same transaction: they become visible with the rows, or not at all.
4. Flush, and look at *every* future. kafka-python's ``commit_transaction`` returns normally although a
   record expired, or although the broker had timed the transaction out with a batch in flight.
5. Commit, and wait for a limited time: a request that is lost is never answered.

Whatever fails, and be it step 5, the outcome is in doubt: the producer is discarded, a new one ends what
the old one left open, and the number of the last transaction, which goes with the positions, tells whether
it was committed. If not, all is sent again.

Fencing: a run writes its mark into a group of its transactional id when it begins. The broker refuses the
transactions of a run whose id another has taken over; such a run finds the other's mark, and stops. If it
finds its own, it was only the broker that timed its transaction out.
"""

from __future__ import annotations

import base64
import gc
import logging
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

import msgspec

from streamcal.run.ports import Position, Positions, StoppedError
from streamcal.run.rows import MapRow, Recalibrated, RejectRow
from streamcal_connectors.kafka.client import Committed, KafkaError, Partition, Producer, brief
from streamcal_connectors.kafka.cluster import Cluster
from streamcal_connectors.kafka.config import KafkaUrl

__all__ = ["KafkaSink", "Transactions"]

log = logging.getLogger("streamcal_connectors")

_ATTEMPTS: Final = 20  # at one commit, while the cluster is there
_PACKED_FROM: Final = 2048  # characters; a broker takes 4096 by default
_REJECT_BYTES: Final = (
    1 << 19
)  # of a longer one, only the beginning of the text is kept: a record holds 1 MiB
_REJECT_KEPT: Final = 4096


class _Mark(msgspec.Struct):
    """What a transaction carries as the text of an offset."""

    number: int
    """Of the transaction, in its job."""
    positions: dict[str, dict[str, Position]]


_Row: TypeAlias = tuple[str, bytes | None, bytes]
"""Topic, key and value."""


class Transactions:
    """The producer that all sinks of a run on one cluster share, and what it has to commit."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topics: dict[str, str] = {}
        """By name: the topics of sources on this cluster; their offsets are committed as such, too."""
        self.name = ""
        """The transactional id, and group of the mark; set by the first sink."""
        self.rows: list[_Row] = []
        self._sinks: list[KafkaSink] = []
        self._owner = uuid.uuid4().hex
        self._job: str | None = None
        self._producer: Producer | None = None
        self._keyed: set[str] = set()  # topics of several partitions, where the key says which
        self._number = 0
        self._positions: dict[str, dict[str, Position]] | None = None

    def join(self, sink: KafkaSink, transactional_id: str | None) -> None:
        """Take a sink in; the first one's topic gives the transactional id, unless an option does."""
        if transactional_id is not None and self._sinks and self.name != transactional_id:
            raise ValueError(
                f"the outputs of a run on one cluster share one transactional id: {self.name!r}, and now"
                f" {transactional_id!r}; give it with the first"
            )
        if not self._sinks:
            self.name = transactional_id or f"streamcal.{sink.topic}"
        self._sinks.append(sink)

    @property
    def _anchor(self) -> Partition:
        """The partition under whose name the groups keep their texts."""
        return Partition(self._sinks[0].topic, 0)

    @property
    def _group(self) -> str:
        return f"{self.name}.{self._job}"

    def open(self, job: str) -> _Mark | None:
        """Fence other runs, end what they left open; return what was last committed for this job.

        Raises
        ------
        OSError, ValueError
            if the cluster stays away, or refuses, or has not the topics.
        """
        if self._job is None:
            self._job = job or f"once.{self._owner}"
            consumer = self.cluster.consumer(self._group)
            try:
                for topic in {sink.topic for sink in self._sinks}:
                    if len(self.cluster.topic_partitions(consumer, topic)) > 1:
                        self._keyed.add(topic)
                self._producer = self.cluster.call(self._claim, patient=False)
                found = self.cluster.call(lambda: consumer.committed(self._anchor), patient=False)
            finally:
                consumer.close()
            mark = None if found is None else _unpack(found.metadata)
            if mark is not None:
                self._number, self._positions = mark.number, mark.positions
        return None if self._positions is None else _Mark(self._number, self._positions)

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Commit all rows and the positions, unless that is done; return what the store is to record.

        Raises
        ------
        StoppedError
            if it failed, and the run is to stop: whether it was done, the next run finds out.
        OSError
            if that cannot be done: fenced, or refused.
        """
        wanted = {name: dict(each) for name, each in positions.items()}
        if not self.rows and wanted == (self._positions or {}):
            return {"transaction": self._number}
        mark = _Mark(self._number + 1, wanted)
        failed = 0
        while True:
            try:
                if self._producer is None:
                    self._producer, done = self.cluster.call(self._recover, patient=True)
                    if done == mark.number:
                        break
                with _uncollected():
                    self._transact(self._producer, mark)
            except KafkaError as error:
                self._discard()
                self.cluster.refused(error)
                if self.cluster.stop():
                    raise StoppedError(f"transaction {mark.number} of {self.name}: {brief(error)}") from None
                failed += 1
                if failed >= _ATTEMPTS:
                    raise OSError(
                        f"{self.name}: {failed} transactions failed, lastly: {brief(error)}"
                    ) from None
                log.info("%s: transaction %s in doubt (%s)", self.name, mark.number, brief(error))
            else:
                break
        self.rows = []
        self._number, self._positions = mark.number, wanted
        return {"transaction": mark.number}

    def close(self) -> None:
        """Release without a commit; may be called twice."""
        self.rows = []
        self._discard()

    # Inside

    def _transact(self, producer: Producer, mark: _Mark) -> None:
        """Do steps 1 to 5 of the module."""
        producer.begin()
        send, keyed = producer.send, self._keyed
        futures = [
            send(topic, value, key) if topic in keyed else send(topic, value, key, None, 0)
            for topic, key, value in self.rows
        ]
        producer.send_offsets(self._group, self._offsets(mark))
        producer.flush()
        for future in futures:
            if not future.succeeded():
                raise future.exception or KafkaError("a record was neither taken nor refused")
        producer.commit()

    def _offsets(self, mark: _Mark) -> dict[Partition, Committed]:
        """Return what the group is to keep: the text, and for tools that show lag, offsets as such."""
        offsets = {
            Partition(self.topics[name], int(partition)): Committed(offset, "")
            for name, each in mark.positions.items()
            if name in self.topics
            for partition, offset in each.items()
        }
        offsets[self._anchor] = Committed(mark.number, _pack(mark))
        return offsets

    def _claim(self) -> Producer:
        """Make the producer, and write this run's mark."""
        producer = self._make()
        try:
            producer.begin()
            producer.send_offsets(self.name, {self._anchor: Committed(0, self._owner)})
            producer.commit()
        except BaseException:
            producer.discard()
            raise
        return producer

    def _recover(self) -> tuple[Producer, int]:
        """Make the producer anew after an error; return it with the number of the last transaction.

        The mark is read first: to end another run's transactions would be to fence it in turn.
        """
        owner = self._committed(self.name)
        if owner is None or owner.metadata != self._owner:
            raise _FencedError(
                f"another run writes with the transactional id {self.name!r} since then: this one stops."
                " If both are wanted, give one of them the option transactional_id"
            )
        producer = self._make()
        try:
            found = self._committed(self._group)
        except BaseException:
            producer.discard()
            raise
        return producer, 0 if found is None else _unpack(found.metadata).number

    def _make(self) -> Producer:
        producer = self.cluster.producer(self.name)
        try:
            producer.init()
        except BaseException:
            producer.discard()
            raise
        return producer

    def _committed(self, group: str) -> Committed | None:
        consumer = self.cluster.consumer(group)
        try:
            return consumer.committed(self._anchor)
        finally:
            consumer.close()

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.discard()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Hold the garbage collector off: it would walk through the futures of all records again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _FencedError(Exception):
    """Another run has taken over."""


class KafkaSink:
    """Rows onto a topic; see `streamcal.run.ports.Sink`.

    Resumes at the last transaction, whose input positions it returns. Delivers every row exactly once to
    readers at ``read_committed``, provided that the run has a store; without one, once as long as the
    process lives. The record's key is the id of a prediction, the engine's key of a map (empty if it has
    none, so that a compacted topic keeps the newest), topic and partition of a reject.
    """

    def __init__(self, transactions: Transactions, url: KafkaUrl) -> None:
        self.name = url.name
        self.topic = url.topic
        self._transactions = transactions
        self._encode = msgspec.json.Encoder().encode
        transactions.join(self, url.transactional_id)

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Get ready, and return the positions of the last transaction; see `streamcal.run.ports.Sink`."""
        mark = self._transactions.open(job)
        if mark is None and job and position is not None and position["transaction"]:
            raise ValueError(
                f"{self.name}: the store has committed transaction {position['transaction']}, but the cluster"
                f" knows of none under {self._transactions.name!r}: the topic or the transactional id is"
                " another, or the run was away for longer than offsets.retention.minutes. Whether the last"
                " micro-batch was written cannot be told; to go on, begin with a new store"
            )
        return None if mark is None or not job else mark.positions

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Take rows, to be sent at the commit."""
        topic, encode = self.topic, self._encode
        self._transactions.rows += [(topic, _key(row), encode(_cut(row))) for row in rows]

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Commit the run's transaction, unless another sink has; see the module."""
        try:
            return self._transactions.commit(positions)
        except _FencedError as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Release without a commit; may be called twice."""
        self._transactions.close()


def _key(row: msgspec.Struct) -> bytes | None:
    if type(row) is Recalibrated:
        return None if row.id is None else row.id.encode()
    if isinstance(row, MapRow):
        return (row.key or "").encode()
    return row.source.encode() if isinstance(row, RejectRow) else None


def _cut(row: msgspec.Struct) -> msgspec.Struct:
    """Return a row that fits a record."""
    if type(row) is RejectRow and len(row.raw) > _REJECT_BYTES // 6:  # JSON escapes may take six times that
        return msgspec.structs.replace(row, raw=row.raw[:_REJECT_KEPT])
    return row


def _pack(mark: _Mark) -> str:
    """Return a text; that of many partitions is packed, since a broker limits it."""
    data = msgspec.json.encode(mark)
    return data.decode() if len(data) < _PACKED_FROM else base64.b85encode(zlib.compress(data)).decode()


def _unpack(text: str) -> _Mark:
    data = text.encode()
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=_Mark)
    try:
        return msgspec.json.decode(zlib.decompress(base64.b85decode(data)), type=_Mark)
    except (ValueError, zlib.error):
        raise ValueError(f"a group's text is none of streamcal's: {text[:100]!r}") from None
