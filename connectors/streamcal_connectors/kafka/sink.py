"""Writes rows to topics, exactly once, in transactions that include the input positions.

One micro-batch is one transaction, however many topics it is written to. Its commit has these steps:

1. Begin. Nothing is sent before `Sink.commit`: rows wait in memory, so that they can be sent again.
2. Send every row, and keep its future.
3. Add the input positions to the same transaction: they become visible with the rows, or not at all.
4. Flush, and check *every* future. kafka-python's ``commit_transaction`` returns normally even if a record
   expired, or if the broker timed the transaction out while a batch was in flight.
5. Commit, with a time limit: a request that is lost is never answered.

If any step fails, including step 5, the outcome is in doubt. The producer is discarded, and a new one ends
the open transaction. The number of the last transaction, which is stored with the positions, then tells
whether it was committed. If not, everything is sent again.

Fencing: when a run begins, it writes its mark into a group named like its transactional id. The broker
refuses the transactions of a run whose transactional id another run has taken over. Such a run finds the
other run's mark, and stops. If it finds its own mark, the broker had only timed its transaction out.
"""

from __future__ import annotations

import base64
import gc
import logging
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_ATTEMPTS: Final = 20  # to commit one micro-batch, while the cluster can be reached
_PACKED_FROM: Final = 2048  # characters; a broker accepts 4096 by default
_REJECT_BYTES: Final = 1 << 19  # a broker accepts records of 1 MiB by default
_REJECT_KEPT: Final = 4096  # characters that are kept of a longer rejected text


class _Mark(msgspec.Struct):
    """What a transaction stores as the metadata of an offset."""

    number: int
    """The number of the transaction in its job."""
    positions: dict[str, dict[str, Position]]


_Row: TypeAlias = tuple[str, bytes | None, bytes]
"""Topic, key and value."""


class Transactions:
    """The producer that all sinks of a run on one cluster share, and the rows it has to commit."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = ""
        """The transactional id, and the group of the mark; set by the first sink."""
        self._topics: dict[str, str] = {}  # of sources on this cluster, by name of the source
        self._rows: list[_Row] = []
        self._sinks: list[KafkaSink] = []
        self._owner = uuid.uuid4().hex
        self._job: str | None = None
        self._producer: Producer | None = None
        self._keyed: set[str] = set()  # topics of several partitions, where the key says which
        self._number = 0
        self._positions: dict[str, dict[str, Position]] | None = None

    def add_source(self, name: str, topic: str) -> None:
        """Commit the offsets of a source as such too, for tools that show lag."""
        self._topics[name] = topic

    def add_rows(self, rows: Iterable[_Row]) -> None:
        """Hold rows until the next commit."""
        self._rows += rows

    def join(self, sink: KafkaSink, transactional_id: str | None) -> None:
        """Add a sink. The transactional id is the option's, or else named after the first sink's topic."""
        if transactional_id is not None and self._sinks and self.name != transactional_id:
            raise ValueError(
                f"the outputs of a run on one cluster share one transactional id, got {self.name!r} and"
                f" {transactional_id!r}: give it with the first output"
            )
        if not self._sinks:
            self.name = transactional_id or f"streamcal.{sink.topic}"
        self._sinks.append(sink)

    @property
    def _anchor(self) -> Partition:
        """The partition under which the groups store their marks."""
        return Partition(self._sinks[0].topic, 0)

    @property
    def _group(self) -> str:
        return f"{self.name}.{self._job}"

    def open(self, job: str) -> _Mark | None:
        """Fence other runs and end their open transactions; return the last mark of this job.

        Raises
        ------
        OSError, ValueError
            if the cluster stays away or refuses, or a topic does not exist.
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
        """Commit all rows and the positions, unless that is done already; return what the store is to record.

        Raises
        ------
        StoppedError
            if it failed and the run is to stop; the next run finds out whether it was committed.
        OSError
            if the run is fenced, or the cluster refuses.
        """
        wanted = {name: dict(each) for name, each in positions.items()}
        if not self._rows and wanted == (self._positions or {}):
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
                        f"{self.name}: {failed} attempts at one transaction failed; the last: {brief(error)}"
                    ) from None
                log.info("%s: transaction %s in doubt (%s)", self.name, mark.number, brief(error))
            else:
                break
        self._rows = []
        self._number, self._positions = mark.number, wanted
        return {"transaction": mark.number}

    def close(self) -> None:
        """Release without a commit; may be called twice."""
        self._rows = []
        self._discard()

    # Inside

    def _transact(self, producer: Producer, mark: _Mark) -> None:
        """Do steps 1 to 5 of the module's docstring."""
        producer.begin()
        send, keyed = producer.send, self._keyed
        futures = [
            send(topic, value, key) if topic in keyed else send(topic, value, key, None, 0)
            for topic, key, value in self._rows
        ]
        producer.send_offsets(self._group, self._offsets(mark))
        producer.flush()
        for future in futures:
            if not future.succeeded():
                raise future.exception or KafkaError("a record was neither accepted nor refused")
        producer.commit()

    def _offsets(self, mark: _Mark) -> dict[Partition, Committed]:
        """Return the offsets to store: the mark and, for tools that show lag, those of the sources."""
        offsets = {
            Partition(self._topics[name], int(partition)): Committed(offset, "")
            for name, each in mark.positions.items()
            if name in self._topics
            for partition, offset in each.items()
        }
        offsets[self._anchor] = Committed(mark.number, _pack(mark))
        return offsets

    def _claim(self) -> Producer:
        """Make the producer, and write the mark of this run."""
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
        """Make a new producer after an error; return it with the number of the last transaction committed.

        The mark is read first: ending the transactions of another run would fence that run in turn.
        """
        owner = self._committed(self.name)
        if owner is None or owner.metadata != self._owner:
            raise _FencedError(
                f"another run writes with the transactional id {self.name!r}, so this run stops."
                " To keep both, give one of them another id with the URL's option transactional_id"
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
    """Pause the garbage collector, which would visit the futures of all records again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _FencedError(Exception):
    """Another run has taken over the transactional id."""


class KafkaSink:
    """Writes rows to a topic; see `streamcal.run.ports.Sink`.

    Resumes at the last transaction, whose input positions it returns. If the run has a store, it delivers
    every row exactly once to readers with ``read_committed``; without a store, exactly once during the life
    of the process. The key of a record is the id of a prediction, the key of a map (empty if it has none, so
    that a compacted topic keeps the newest), or topic and partition of a reject.
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
                f" knows of none under {self._transactions.name!r}. Either the topic or the transactional id"
                " has changed, or the run was down for longer than offsets.retention.minutes. It is unknown"
                " whether the last micro-batch was written; start with a new store"
            )
        return None if mark is None or not job else mark.positions

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Hold rows, which are sent at the commit."""
        topic, encode = self.topic, self._encode
        self._transactions.add_rows([(topic, _key(row), encode(_cut(row))) for row in rows])

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Commit the run's transaction, unless another sink has done so."""
        try:
            return self._transactions.commit(positions)
        except _FencedError as error:
            raise OSError(str(error)) from None

    def close(self) -> None:
        """Release without a commit; may be called twice."""
        self._transactions.close()


def _key(row: msgspec.Struct) -> bytes | None:
    if isinstance(row, Recalibrated):
        return None if row.id is None else row.id.encode()
    if isinstance(row, MapRow):
        return (row.key or "").encode()
    return row.source.encode() if isinstance(row, RejectRow) else None


def _cut(row: msgspec.Struct) -> msgspec.Struct:
    """Return a row that fits into a record."""
    if type(row) is RejectRow and len(row.raw) > _REJECT_BYTES // 6:  # JSON escapes may take six times that
        return msgspec.structs.replace(row, raw=row.raw[:_REJECT_KEPT])
    return row


def _pack(mark: _Mark) -> str:
    """Return the mark as a text; a long one is compressed, because brokers limit its length."""
    data = msgspec.json.encode(mark)
    return data.decode() if len(data) < _PACKED_FROM else base64.b85encode(zlib.compress(data)).decode()


def _unpack(text: str) -> _Mark:
    data = text.encode()
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(data, type=_Mark)
    try:
        return msgspec.json.decode(zlib.decompress(base64.b85decode(data)), type=_Mark)
    except (ValueError, zlib.error):
        raise ValueError(f"the metadata of a group was not written by streamcal: {text[:100]!r}") from None
