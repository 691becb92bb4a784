"""The interfaces that connectors implement: sources of events, sinks of rows, stores of state (stable).

A connector is found by the scheme of a URL through the entry-point group ``streamcal.connectors``; a bare
path is a ``file`` (a ``sqlite`` store), and ``-`` is ``stdio``. It is a class without arguments that has
some of the methods of `Connector`; one instance serves all URLs of its scheme in a run, so that sinks of one
scheme may share a transaction.

Exactly once
------------
A run takes a micro-batch, processes it in an order that depends on its content alone, and commits in these
steps. Whatever step the process dies at, the restart gives what the run that never stopped gives:

1. `Sink.write` of every row to every sink.
2. `Sink.commit` of every sink, with the input positions after the batch. *Before the store*, because a
   store that is ahead of a sink would have lost output, while a sink that is ahead can be caught up with:

   * one that can be cut back (a file) returns its length, which step 3 records; on restart `Sink.resume`
     is given the length recorded last and cuts off what is beyond it. Where it begins is recorded before
     the first step 1 (`CutBackSink`), so that what it finds on restart is known to be its own;
   * one that cannot (a log with transactions) keeps the input positions in its own transaction; on restart
     `Sink.resume` returns them. When they are not the store's, the sink is ahead by exactly one batch: that
     from the store's positions to the sink's. It is read again (`Source.limit`) and processed again as one
     batch, its rows for that sink suppressed. Only where the store is an older copy, there are more
     (`TransactionalSink.lead`).

   A sink that delivers at its own pace (`OutboxSink`) is at least once: step 3 records what it has not
   delivered, and on restart `Sink.resume` is given that.

3. `Store.keep` of the positions after the batch, those of sinks, and the events of a `PushSource`. From here
   on the batch is done. Now and then it is `Store.commit` instead: states, join, positions, sink positions,
   maps and rejects in one transaction, which empties the journal. A restart takes the state of the last
   commit and processes the batches of the journal again, without output (`streamcal.run.journal`).

Positions are JSON: what was handed out comes back equal, though from another process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from streamcal.engine.segments.stored_rows import Row, SegmentId
from streamcal.events import Domain, Event, Origin
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed
from streamcal.join.packs import Pack, PackChanges
from streamcal.run.rows import RejectRow, VersionRow

__all__ = [
    "KEPT_REJECTS",
    "REQUESTS",
    "Batch",
    "Change",
    "Checkpoint",
    "Connector",
    "CutBackSink",
    "Feed",
    "FileSource",
    "Format",
    "OutboxSink",
    "PartitionedSource",
    "Position",
    "PositionError",
    "Positions",
    "PushSource",
    "Role",
    "Row",
    "RowKind",
    "SegmentId",
    "Shard",
    "ShardedSource",
    "Sink",
    "SinkOptions",
    "Source",
    "SourceOptions",
    "StoppedError",
    "Store",
    "TableSource",
    "TransactionalSink",
]

Position: TypeAlias = Any
"""A position in a partition, or the length of an output: any JSON value that its connector understands."""

Positions: TypeAlias = Mapping[str, Position]
"""Partition to position: the next event to deliver."""

KEPT_REJECTS: Final = 10_000
"""Number of the latest rejects that a store keeps; the ``--rejects`` output has all of them."""

REQUESTS: Final = "http"
"""Name of the source of a server's requests, in positions and rejects."""

RowKind = Literal["answers", "rejects", "maps", "alarms"]
"""Kind of the rows that a sink takes: `Recalibrated`, `RejectRow`, `MapRow` or `AlarmRow`."""

Format = Literal["jsonl", "csv"]
"""Format of lines where no name tells it: JSON lines, or CSV."""

Role = Literal["read", "written", "store"]
"""Use that a command makes of what a URL names."""


class Shard(NamedTuple):
    """One of several runs that divide the partitions of their inputs among them."""

    number: int
    """From 0 on: the run has the partitions whose own number, modulo ``of``, is this."""
    of: int
    """Number of runs."""

    def __str__(self) -> str:
        """Return the form of the command line, such as ``0/12``."""
        return f"{self.number}/{self.of}"


class PositionError(ValueError):
    """A connector never gave this position: the store is not what a run wrote."""


class StoppedError(OSError):
    """The run is to stop while a connector waits; what was not committed will be read again."""


class Batch(Protocol):
    """Consecutive events of one partition, in its order; bad input is included as `Malformed`.

    Events have no ``origin``; `origin` returns it when an event is rejected.
    """

    @property
    def partition(self) -> str:
        """Name of the partition, unique in its source; ``""`` if the source has only one."""

    @property
    def events(self) -> Sequence[Event | Malformed]:
        """The events."""

    def origin(self, index: int) -> Origin:
        """Return where the event at an index came from, with its text.

        Its ``source`` names the partition too where there are several; its ``line`` is an offset there.
        """

    def position(self, count: int) -> Position:
        """Return the partition's position after the first ``count`` events, 0 ≤ count ≤ len(events)."""


class Source(Protocol):
    """A finite or endless set of partitions, each a sequence of events.

    Resumes at any position that one of its batches gave, in this process or another. Delivers every event
    from there on exactly once and, of each partition, in order.
    """

    @property
    def name(self) -> str:
        """Name in positions and rejects: the same in every run, and without secrets."""

    @property
    def endless(self) -> bool:
        """Whether more may come at any time.

        Finite sources are merged by event time as wholes; when one is endless, only within each
        micro-batch.
        """

    @property
    def unknown_fields(self) -> Mapping[str, int]:
        """Counts of fields that were ignored so far because events have no such field, by name."""

    def seek(self, positions: Positions) -> Positions:
        """Go to positions, before the first `poll`; return where every partition now stands.

        A partition that is not named stands at its beginning, so ``{}`` is the beginning of all.

        Raises
        ------
        OSError, ValueError
            if a position does not exist, for instance because a file is shorter than what was read of it.
        """

    def limit(self, positions: Positions | None) -> None:
        """Deliver nothing at or beyond these positions until it is called again; None lifts the limit.

        A partition that is not named delivers nothing. A source that has reached its limit has `ended`.
        """

    def poll(self, max_events: int, timeout: float) -> Sequence[Batch]:
        """Return what there is, about ``max_events`` in all, waiting at most ``timeout`` seconds for some.

        Raises
        ------
        OSError, ValueError
            if nothing can be read from here at all. What may pass, such as a broker that is away, is waited
            for, with one line of log: the source then returns nothing after ``timeout`` as when idle.
        """

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""

    def lag(self) -> Mapping[str, float]:
        """Return how much of each partition is there to be read: records, or bytes of a file.

        Empty if it never can tell; NaN of a partition of which it cannot tell now. An endless source is asked
        after each micro-batch: a partition holds the join's clock back unless this is 0, so 0 means that all
        that was there when it was asked has been delivered. May take as long as one short request.
        """

    def close(self) -> None:
        """Release; may be called twice."""


@runtime_checkable
class PushSource(Source, Protocol):
    """A source that cannot be read again: the journal of the store keeps its events."""

    def taken(self) -> bytes:
        """Return the events that `poll` returned last."""

    def again(self, events: bytes) -> Batch:
        """Return events as `poll` did, from what `taken` gave, after those of all calls before."""


@runtime_checkable
class FileSource(Protocol):
    """Further state of a source of files."""

    @property
    def unfinished(self) -> str | None:
        """Rest at the end that may not be complete, and what to do; a later run reads it."""

    @property
    def damage(self) -> str | None:
        """Why the source ended early, and what to do: its data cannot be read beyond there."""


@runtime_checkable
class ShardedSource(Protocol):
    """Further state of a source that honours `SourceOptions.shard`."""

    @property
    def shard(self) -> Shard | None:
        """Shard of the options: the partitions of others are not read."""


@runtime_checkable
class PartitionedSource(Protocol):
    """Further state of a finite source: its other partitions do not wait for one that has ended."""

    @property
    def ended_partitions(self) -> Collection[str]:
        """Partitions of which nothing more will come."""


@runtime_checkable
class TableSource(Protocol):
    """Further state of a source of tables, whose columns have types."""

    @property
    def kept(self) -> Mapping[str, Any]:
        """The columns that pass through, in the order of `Kept`, with the type of each.

        Only a sink of tables understands such a type.
        """


class Sink(Protocol):
    """Takes rows, each as one record.

    Resumes at the last `commit`. Delivers every row written before a commit exactly once, provided that
    the next run calls `resume` with what the store recorded.
    """

    @property
    def name(self) -> str:
        """Name in the store and in messages: the same in every run, and without secrets."""

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:
        """Get ready, once, before the first `write`.

        Parameters
        ----------
        job
            names the store; what was committed under another is none of this run's. ``""`` without a store.
        position
            what `commit` returned last of what the store recorded; None if it recorded nothing. A sink that
            can be cut back is, from the first row written, as long as it was at that commit (None: empty).

        Returns
        -------
        None, or, of a transactional sink, the ``positions`` of its own last commit for this job.

        Raises
        ------
        StoppedError
            if the run is to stop while this waits.
        OSError, ValueError
            if it cannot be written, holds less than it did at that commit, or holds what no run wrote that
            this store, or a run without one, may replace. Nothing is changed then.
        """

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Take rows: `Recalibrated`, `RejectRow`, `MapRow` or `AlarmRow`, all of one kind."""

    def commit(self, positions: Mapping[str, Positions]) -> Position:
        """Make what was written since the last commit last, all or nothing.

        All sinks have been written to before the first of them is committed; those that share a transaction
        may end it at the first call, and do nothing at the others.

        Parameters
        ----------
        positions
            by name of the source: the input positions after what was written; they may have moved though
            nothing was written. Under the name ``""``: what else tells this commit from the one before. A
            transactional sink keeps all of it in its transaction.

        Returns
        -------
        What `resume` is to be called with; None if it needs nothing.

        Raises
        ------
        StoppedError
            if the run is to stop while this waits: whether it was committed, `resume` will tell.
        OSError
            if it cannot be written.
        """

    def close(self) -> None:
        """Release without a commit; may be called twice."""


@runtime_checkable
class CutBackSink(Sink, Protocol):
    """A sink that can be cut back to a commit."""

    @property
    def position(self) -> Position:
        """Where it stands after `Sink.resume`, as `Sink.commit` would return it."""


@runtime_checkable
class OutboxSink(Sink, Protocol):
    """A sink that delivers at its own pace: the rows that it has not delivered are its position."""

    def drain(self) -> Position:
        """At the end of a run, after the last commit: wait a moment for a delivery; return the position."""


@runtime_checkable
class TransactionalSink(Sink, Protocol):
    """A sink whose `Sink.resume` returns positions."""

    @property
    def lead(self) -> int:
        """Number of commits, as of `Sink.resume`, since the one that the store has recorded.

        More than one, if the store is an older copy: what comes next is then processed in parts.
        """


class Feed(Protocol):
    """The rows that a sink wrote, read back, from the first on: how a scoring service gets its maps."""

    def poll(self, timeout: float) -> Sequence[bytes]:
        """Return rows as JSON, those there are now; if there are none, wait for at most ``timeout`` seconds.

        Of a compacted topic, the rows that it still holds.
        """

    def close(self) -> None:
        """Release; may be called twice."""


class Checkpoint(msgspec.Struct):
    """The last commit of a store; that of a new store is empty."""

    engines: Mapping[str | None, bytes] = {}
    """State of the engine of every key. A run asks for one at a time, when it needs it: for as long as the
    store is open, this shows what was committed last."""
    run: bytes = b""
    """State of the pipeline apart from engines and the join's entries: JSON, opaque to the store."""
    positions: dict[str, dict[str, Position]] = {}
    """By name of the source."""
    sinks: dict[str, Position] = {}
    """The result of every sink's last commit, by name of the sink."""
    segments: Mapping[SegmentId, Row] = {}
    """Corrections of segments, each asked for as the engines are."""
    packs: Iterable[Pack] = ()
    """Rows of the join, by number of the pack; to be read once, before the next commit."""


class Change(msgspec.Struct):
    """Changes since the last commit."""

    engines: dict[str | None, bytes]
    """New states of the engines that learned or observed."""
    run: bytes
    positions: dict[str, dict[str, Position]]
    sinks: dict[str, Position]
    versions: Sequence[VersionRow]
    """Map versions served since the last commit."""
    rejects: Sequence[RejectRow]
    segments: Mapping[SegmentId, Row] = {}
    """Corrections of segments that have changed."""
    packs: PackChanges = PackChanges()
    """Changes of the join's rows."""


class Store(Protocol):
    """Keeps the state of a run.

    Resumes at the last `commit` that returned, or, of one that was cut short, at it or the one before, with
    what `keep` took since. Delivers all of a commit, or of an entry, or nothing of it. Open in one process at
    a time.
    """

    @property
    def job(self) -> str:
        """A name that no other store has, given when it was made."""

    def load(self) -> Checkpoint:
        """Return the last commit.

        Raises
        ------
        StoreError
            if it cannot be read, or is damaged.
        """

    def commit(self, change: Change) -> None:
        """Commit changes, all or nothing.

        Raises
        ------
        StoreError
            if that cannot be done; the store is then as after the commit before.
        """

    def keep(self, batch: bytes) -> None:
        """Make the entry of a micro-batch last until the next `commit`.

        Raises
        ------
        StoreError
            if it cannot be written.
        """

    def kept(self) -> Sequence[bytes]:
        """Return what was kept since the last commit, in order.

        Raises
        ------
        StoreError
            if it cannot be read, or is damaged.
        """

    def versions(self) -> Iterable[VersionRow]:
        """Return every map version that was served, in order."""

    def rejects(self) -> Iterable[RejectRow]:
        """Return the latest rejects, in order."""

    def close(self) -> None:
        """Release without a commit; may be called twice."""


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a source."""

    domain: Domain = "target"
    """Domain of events that name none."""
    follow: bool = False
    """Whether to wait for more where a finite source would end; one of endless streams always does."""
    final: bool = False
    """Whether a finite source is complete as it is: a last line without a line end is then a whole one."""
    skip_lost: bool = False
    """Whether to go on where records are gone: a source that notices then delivers a `Malformed` of code
    ``lost_records`` in their place."""
    columns: Columns = Columns()
    """The names of columns or fields; for decoders."""
    required: frozenset[str] = frozenset()
    """Columns that a header must have."""
    format: Format | None = None
    """Format of an input whose name tells none; None: JSON lines."""
    carry: bool = False
    """Whether a table's columns all pass through that the rows of the output have not, kept or not."""
    shard: Shard | None = None
    """Which partitions to read, of a `ShardedSource`; None: all."""


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a sink."""

    rows: RowKind = "answers"
    """Kind of rows that it will take; it may replace rows of that kind alone."""
    kept: Mapping[str, Any] | None = None
    """The type of each column that passes through, as `TableSource.kept` gives it; None where it is unknown.
    Only a sink of tables needs it."""
    append: bool = False
    """Whether it may write behind what no run wrote that its store knows."""
    classes: tuple[str, ...] = ()
    """Names of many classes: answers are `ClassRow`. Only a sink of tables needs it; empty: two."""
    stop: Callable[[], bool] | None = None
    """Whether the run is to stop: a sink that waits for its reader then ends its waiting, before long."""
    shard: Shard | None = None
    """Which shard writes; the others write to the same output. Only a sink with transactions needs it."""


class Connector(Protocol):
    """Opens what URLs of one scheme name; it has those of these methods that it can do."""

    def source(self, url: str, options: SourceOptions) -> Source:
        """Open a source."""

    def sink(self, url: str, options: SinkOptions) -> Sink:
        """Open a sink; nothing is changed before `Sink.resume`, except that a new one may be made.

        Raises
        ------
        OutputError
            if another process is writing it.
        OSError, ValueError
            if it cannot be written.
        """

    def store(self, url: str, *, read_only: bool) -> Store:
        """Open a store, made if there is none; ``read_only`` neither makes, locks nor changes it.

        Raises
        ------
        StoreError
            if it cannot be used: another process has it, it is damaged, or of a newer version.
        """

    def feed(self, url: str) -> Feed:
        """Open what a sink of this URL has written and will write."""

    def set_up(self, options: Mapping[str, Any], stop: Callable[[], bool]) -> None:
        """Take what the run says, once, before anything is opened.

        Parameters
        ----------
        options
            the table of the run's ``--config`` that is named like the scheme; empty if there is none.
        stop
            whether the run is to stop: whatever waits then raises `StoppedError`, before long.

        Raises
        ------
        ValueError
            on a wrong option; it shows no value that may be secret.
        """
