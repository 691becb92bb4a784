"""Writes rows to topics; how they are committed is in `transactions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec

from streamcal.run.ports import Position, Positions, SinkOptions
from streamcal.run.rows import AlarmRow, Answers, MapRow, RejectRow
from streamcal_connectors.kafka.config import KafkaUrl
from streamcal_connectors.kafka.transactions import Transactions
from streamcal_connectors.readers import read_position


class _Position(msgspec.Struct):
    transaction: int


class KafkaSink:
    """Writes rows to a topic; see `streamcal.run.ports.Sink`.

    With a new store, it refuses a topic that holds records, unless it may ``append``: they may be the same
    rows. Resumes at the last transaction, whose input positions it returns. If the run has a store, it
    delivers every row exactly once to readers with ``read_committed``; without a store, exactly once during
    the life of the process. The key of a record is the id of a prediction, the key of a map or an alarm
    (empty if it has none, so that a compacted topic keeps the newest), or topic and partition of a reject.

    A row that is larger than the topic's ``max.message.bytes`` ends the run: it could be neither written nor
    left out.
    """

    def __init__(self, transactions: Transactions, url: KafkaUrl, options: SinkOptions) -> None:
        self.name = url.name
        self.topic = url.topic
        self._transactions = transactions
        self._encode = msgspec.json.Encoder().encode
        self._append = options.append
        self.lead = 0
        transactions.join(self.topic, url.options.transactional_id, options.shard)

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Get ready, and return the positions of the last transaction; see `streamcal.run.ports.Sink`."""
        mark = self._transactions.open(job, append=self._append, resumes=position is not None)
        number = 0 if position is None else read_position(position, _Position, "a topic").transaction
        if mark is None and job and number and not self._append:
            raise ValueError(
                f"{self.name}: the store has committed transaction {number}, but the cluster"
                f" knows of none under {self._transactions.name!r}. Either the topic or the transactional id"
                " has changed, or the run was down for longer than offsets.retention.minutes. It is unknown"
                " whether the last micro-batch was written. Go on with --append, which may write it twice if"
                " the topic is the same; or start with a new store"
            )
        self.lead = 0 if mark is None else mark.number - number
        return None if mark is None or not job else mark.positions

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Hold rows, which are sent at the commit; OSError if the topic would not keep all of them."""
        if rows and isinstance(rows[0], RejectRow) and self._transactions.settings[self.topic].compacted:
            raise OSError(
                f"{self.name}: the topic is compacted, and would keep only the last reject of each partition:"
                " set its cleanup.policy to delete"
            )
        values = rows.text().splitlines() if isinstance(rows, Answers) else list(map(self._encode, rows))
        self._transactions.rows += zip(repeat(self.topic), _keys(rows), values, strict=False)

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Commit the run's transaction, unless another sink has done so."""
        return self._transactions.commit(positions)

    def close(self) -> None:
        """Release without a commit; may be called twice."""
        self._transactions.close()


def _keys(rows: Sequence[Any]) -> list[bytes | None]:
    """Return the keys of the records of rows, all of one kind."""
    if isinstance(rows, Answers):
        return [None if id_ is None else id_.encode() for part in rows.parts for id_ in part.ids]
    kind = type(rows[0]) if rows else None
    if kind is RejectRow:
        return [row.source.encode() for row in rows]
    if kind in {MapRow, AlarmRow}:
        return [(row.key or "").encode() for row in rows]
    return [None if row.id is None else row.id.encode() for row in rows]
