"""Drives sources through a pipeline into sinks and a store, exactly once; see `streamcal.run.ports`.

The positions in the store are those of the last event processed, not of the last one read. So the next run
reads again what was still in memory when a run stopped or was killed. An entry in the store's journal commits
a micro-batch; the whole state is committed now and then (`streamcal.run.journal`).

The watermark of a micro-batch, up to which predictions expire in it, is computed when the batch before is
committed, and is part of that commit. So a batch that is processed again gives the same result, even if more
events have arrived meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from streamcal.base.errors import DamagedStateError, OutputError, StoreError
from streamcal.events.guard import GuardState
from streamcal.run.journal import AllPositions, Journal, KeptBatch, moved
from streamcal.run.order import Merge, MicroBatch, watermark
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import Outputs, writing
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import (
    KEPT_REJECTS,
    Change,
    Checkpoint,
    CutBackSink,
    OutboxSink,
    PartitionedSource,
    PositionError,
    Positions,
    PushSource,
    Shard,
    Sink,
    Source,
    StoppedError,
    Store,
    TransactionalSink,
)
from streamcal.run.rows import Answers, RejectRow, VersionRow
from streamcal.run.stored import StoredRun, stored_run
from streamcal.sketch.decoding import encoded

MAX_EVENTS: Final = 65_536
"""The approximate maximum number of events in a micro-batch."""
LINGER: Final = 0.1
"""Seconds that the first events of a micro-batch wait for more, if nothing else is said."""
PATIENCE: Final = 0.2
"""Seconds to wait for an idle source before checking whether to stop."""

_BEGINNING: Final = float("-inf")
_NO_SOURCE: Final = ""
"""The name under which sinks keep, beside the input positions, the number of calibrations published."""

Process = Callable[[MicroBatch], Outcome]


class Inputs(msgspec.Struct):
    """Where a run's events come from."""

    calibration: Sequence[Source]
    """Labelled events, learned first; at most one source."""
    deployment: Sequence[Source]
    """Predictions and labels, merged by event time; of equal times, the first source comes first."""
    shard: Shard | None = None
    """Which part of their partitions it is; None: all."""

    @property
    def sources(self) -> list[Source]:
        """All of them, in the order in which they are read."""
        return [*self.calibration, *self.deployment]


class Runner:
    """One run, from where the store says to the end of its sources.

    Parameters
    ----------
    pipeline
        a new one.
    inputs, outputs, store
        open; the caller closes them.
    clock
        monotonic time in seconds.
    stop
        whether to stop; asked between micro-batches.
    after
        called after each micro-batch with its outcome and its duration in seconds; when idle, with an empty
        outcome.
    linger
        seconds that the first events of a micro-batch wait for more, so that a trickle of events is not
        committed one by one.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        inputs: Inputs,
        outputs: Outputs,
        store: Store | None,
        *,
        clock: Callable[[], float],
        stop: Callable[[], bool] = lambda: False,
        after: Callable[[Outcome, float], None] = lambda _, __: None,
        linger: float = LINGER,
    ) -> None:
        self._pipeline = pipeline
        self._inputs = inputs
        self._outputs = outputs
        self._store = store
        self._clock = clock
        self._stop = stop
        self._after = after
        self._linger = linger
        follow = not _whole(inputs.deployment)  # which orders events otherwise
        self._journal = Journal(store, pipeline.batch_options | {"run": {"follow": follow}}, clock)
        self._versions: list[VersionRow] = []  # of the micro-batches that are not committed yet
        self._rejects: list[RejectRow] = []
        self._ends_uncommitted = False
        self._positions: AllPositions = {}
        self._times: dict[str, dict[str, float]] = {}
        self._guards: dict[str, dict[str, GuardState]] = {}
        self._watermark = _BEGINNING
        self._calibrations = 0
        self._opened: set[str] = set()  # names of sources
        self._resumed = self._repeating = False
        self._ahead: Mapping[str, Positions] | None = None  # input positions of sinks ahead of the store
        self._lead = 1  # by how many micro-batches
        self._suppressed: list[Sink] = []  # those sinks
        self._lengths: dict[str, object] = {}  # of sinks, by name, at their last commit
        self._shard = None if inputs.shard is None else str(inputs.shard)

    def resume(self) -> int:
        """Go to where the store says; `run` does so if it was not called before, and has the errors.

        Returns
        -------
        Number of micro-batches since the last commit of the state that were processed again.
        """
        self._resumed = True
        kept = self._restore()
        self._repeat(kept)
        return len(kept)

    def run(self) -> bool:
        """Run to the end of all sources; return False if stopped earlier.

        Raises
        ------
        StoreError, OutputError
            if the store or a sink fails; what was committed before is kept.
        StoppedError
            if the run was to stop and could not commit; what was committed before is kept.
        OSError, ValueError
            if a source cannot be read at all.
        """
        if not self._resumed:
            self.resume()
        calibration, deployment = self._inputs.calibration, self._inputs.deployment
        if self._suppressed:
            self._catch_up()
        finished = self._phase(calibration, self._pipeline.calibrate)
        if finished:
            self._publish()
            finished = self._phase(deployment, self._pipeline.process)
        if finished and self._store is None:
            outcome = self._pipeline.close()  # with a store, labels keep waiting
            self._commit(outcome, None)
            self._after(outcome, 0.0)
        if self._drain() or self._ends_uncommitted:
            self._record()
        return finished

    def _restore(self) -> list[KeptBatch]:
        """Restore the pipeline to the last commit of the state, and sinks to the end of the journal.

        Returns
        -------
        The journal: what the pipeline has to process again.
        """
        checkpoint = Checkpoint() if self._store is None else self._store.load()
        known = _names(self._inputs.sources)
        kept = self._journal.read(known)
        if self._store is not None:
            try:
                state = stored_run(checkpoint)
                if state is not None and state.shard != self._shard:
                    raise _other_shard(state.shard, self._shard)
                before = None if state is None else state.pipeline
                self._pipeline.restore(before, checkpoint.engines, checkpoint.segments, checkpoint.packs)
            except DamagedStateError as error:
                raise _unusable(error) from error
            except ValueError as error:
                raise StoreError(f"cannot resume from the state in the store: {error}") from error
            if state is not None:
                self._times, self._guards, self._calibrations = state.times, state.guards, state.calibrations
                self._watermark = _BEGINNING if state.watermark is None else state.watermark
        self._positions = {name: dict(each) for name, each in checkpoint.positions.items()}
        reached, ends = self._positions, checkpoint.sinks
        for batch in kept:
            reached, ends = moved(reached, batch.positions), batch.sinks
        self._lengths = dict(ends)
        job = "" if self._store is None else self._store.job
        for sink in self._outputs.sinks:
            try:
                with writing(sink):
                    own = sink.resume(job, ends.get(sink.name))
            except PositionError as error:
                raise _unusable(f"{sink.name}: {error}") from error
            if own is None or not _differing(own, self._marked(reached)):
                continue
            if self._ahead is not None and own != self._ahead:
                raise OutputError(
                    f"{sink.name} and {self._suppressed[0].name} are at different micro-batches"
                )
            self._ahead = own
            self._lead = sink.lead if isinstance(sink, TransactionalSink) else 1
            self._suppressed.append(sink)
        for name in _differing(self._ahead or {}, reached):
            if name and name not in known:
                raise OutputError(
                    f"{self._suppressed[0].name} is one micro-batch of {name} ahead of the store:"
                    " run once more with that source first"
                )
        return kept

    def _repeat(self, kept: Sequence[KeptBatch]) -> None:
        """Process again what the journal has; then record where sinks begin, before their first row."""
        self._repeating = bool(kept)
        for batch in kept:
            for sources, process in self._phases():
                if not batch.positions.keys().isdisjoint(_names(sources)):
                    self._seek(sources)
                    (again,) = self._read_again(sources, batch.positions, batch.events)
                    outcome = _processed(process, again)
                    self._move(again)
                    self._versions += [each.row for each in outcome.versions]
                    self._add_rejects(outcome)
            self._watermark = batch.watermark
        self._repeating = False
        begun = {sink.name: sink.position for sink in self._outputs.sinks if isinstance(sink, CutBackSink)}
        unknown = any(self._lengths.get(name) != position for name, position in begun.items())
        self._lengths |= begun
        if kept or unknown:
            self._record()

    def _catch_up(self) -> None:
        """Process again, before anything else, the batch that sinks have and the store has not."""
        ahead = self._ahead or {}
        if ahead.get(_NO_SOURCE) != self._marked(self._positions).get(_NO_SOURCE):
            self._publish()
        for sources, process in self._phases():
            if not _differing(ahead, self._positions).isdisjoint(_names(sources)):
                self._seek(sources)
                sinks = self._suppressed
                for batch in self._read_again(sources, ahead, in_parts=self._lead > 1):
                    self._suppressed = sinks
                    self._commit(_processed(process, batch), batch)
        self._suppressed = []

    def _phases(self) -> Iterator[tuple[Sequence[Source], Process]]:
        """Yield the sources of calibration and of deployment, and what processes their events."""
        yield self._inputs.calibration, self._pipeline.calibrate
        yield self._inputs.deployment, self._pipeline.process

    def _read_again(
        self,
        sources: Sequence[Source],
        until: Mapping[str, Positions],
        pushed: Mapping[str, bytes] | None = None,
        *,
        in_parts: bool = False,
    ) -> Iterator[MicroBatch]:
        """Read one micro-batch again, up to the positions after it; or several, as that many ``in_parts``.

        Raises
        ------
        StoreError
            if a source no longer has all of it.
        StoppedError
            if the run is to stop meanwhile.
        """
        merge, reading = self._merge(sources), list[Source]()
        for source in sources:
            if isinstance(source, PushSource):
                merge.add(source.name, [source.again((pushed or {})[source.name])], ended=True)
                continue
            source.limit(until.get(source.name, {}))
            reading.append(source)
        while reading:
            for source in [*reading]:
                if source.ended:
                    source.limit(None)
                    merge.add(source.name, (), ended=True)
                    reading.remove(source)
                    continue
                if self._stop():
                    raise StoppedError("stopped before it had read again what came before")
                batches = source.poll(MAX_EVENTS, PATIENCE)
                merge.add(source.name, batches, ended=_ended(source))
                while in_parts and len(merge) >= MAX_EVENTS:
                    if (part := merge.take(self._watermark, MAX_EVENTS)) is None:
                        break
                    yield part
        batch = merge.take(self._watermark)
        reached = moved(self._positions, batch.positions if batch else {})
        for name in _names(sources):
            for partition, position in until.get(name, {}).items():
                if reached[name].get(partition) != position:
                    where = f"{name}, partition {partition}" if partition else name
                    raise StoreError(
                        f"{where} was read up to {position} before, and now ends at"
                        f" {reached[name].get(partition)}: give it as it was, or move store and outputs away,"
                        " and run again from the beginning"
                    )
        if batch is not None:
            yield batch

    def _publish(self) -> None:
        """Publish the maps of a calibration."""
        outcome = self._pipeline.calibrated()
        if outcome.versions:
            self._calibrations += 1
            self._commit(outcome, None)
            self._after(outcome, 0.0)

    def _seek(self, sources: Sequence[Source]) -> None:
        """Move sources to the positions in the store, and record new partitions."""
        found = False
        for source in sources:
            if source.name in self._opened:
                continue
            self._opened.add(source.name)
            before = self._positions.get(source.name, {})
            try:
                now = dict(source.seek(before))
            except PositionError as error:
                raise _unusable(f"{source.name}: {error}") from error
            found |= now != before
            self._positions[source.name] = now
        if found and not self._repeating:
            self._record()

    def _phase(self, sources: Sequence[Source], process: Process) -> bool:
        """Process sources to their end; return False if stopped earlier."""
        if not sources:
            return True
        self._seek(sources)
        merge = self._merge(sources)
        for source in sources:
            if source.ended:  # it was read again, and to its end
                merge.add(source.name, (), ended=True)
        while not self._stop():
            batch = self._collect(merge, sources)
            if batch is None:
                if _at_end(sources, merge):
                    self._pipeline.end()
                    return True
                if self._ends_uncommitted and self._journal.due:
                    self._record()
                self._after(Outcome(Answers(), [], []), 0.0)
                continue
            start = self._clock()
            self._begin(batch)
            outcome = _processed(process, batch)
            if outcome.doubtful and _at_end(sources, merge):
                self._pipeline.end()
            self._commit(outcome, batch)
            self._after(outcome, self._clock() - start)
        return False

    def _begin(self, batch: MicroBatch) -> None:
        """Record how partitions begin, before the output of their first events.

        More of them was read to judge their first times than is read again if this batch is.
        """
        for name, guards in batch.begun.items():
            self._guards.setdefault(name, {}).update(guards)
        if batch.begun:
            self._record()

    def _merge(self, sources: Sequence[Source]) -> Merge:
        lanes = [
            ((source.name, partition), self._times.get(source.name, {}).get(partition, _BEGINNING))
            for source in sources
            for partition in self._positions[source.name]
        ]
        whole = _whole(sources)
        return Merge(
            lanes,
            whole=whole,
            max_jump=self._pipeline.join.max_jump,
            tolerance=self._pipeline.join.shortest_wait,
            guards=self._guards,
            trickling=[
                source.name for source in sources if whole and not source.lag()
            ],  # its length is unknown
        )

    def _collect(self, merge: Merge, sources: Sequence[Source]) -> MicroBatch | None:
        """Read for a while; return the next micro-batch, or None if there is none yet."""
        share = max(MAX_EVENTS // len(sources), 1)
        deadline = self._clock() + PATIENCE
        reading = [source for source in sources if not source.ended]
        held = len(merge)
        while True:
            wanted = reading
            if held >= MAX_EVENTS // 2:
                wanted = [source for source in reading if merge.whole and merge.waits_for(source.name)]
            left = deadline - self._clock()
            if not wanted or left <= 0.0:
                return merge.take(self._watermark, MAX_EVENTS)
            before = held
            for source in list(wanted):
                batches = source.poll(share, max(left, 0.0) / len(wanted))
                held = merge.add(source.name, batches, ended=_ended(source))
                if source.ended:
                    reading.remove(source)
            if not before and held:
                deadline = self._clock() + self._linger

    def _commit(self, outcome: Outcome, batch: MicroBatch | None) -> None:
        """Commit a micro-batch, in the steps of `streamcal.run.ports`."""
        if batch is not None:
            self._move(batch)
            deployment = self._inputs.deployment
            if any(name in self._opened for name in _names(deployment)) and not _whole(deployment):
                self._watermark = watermark(deployment, self._times, self._pipeline.join.time)
        maps = [each.with_map() for each in outcome.versions] if self._outputs.maps else []
        rows = (
            (self._outputs.answers, outcome.answers),
            (self._outputs.rejects, outcome.rejects),
            (self._outputs.maps, maps),
            (self._outputs.alarms, outcome.alarms),
        )
        for sink, written in rows:
            if sink is not None and written and sink not in self._suppressed:
                with writing(sink):
                    sink.write(written)
        for sink in self._outputs.sinks:
            if sink not in self._suppressed:
                with writing(sink):
                    self._lengths[sink.name] = sink.commit(self._marked(self._positions))
        self._versions += [each.row for each in outcome.versions]
        self._add_rejects(outcome)
        self._suppressed = []
        self._ends_uncommitted = batch is not None and self._keep(batch)
        if not self._ends_uncommitted:
            self._record()

    def _add_rejects(self, outcome: Outcome) -> None:
        """Hold rejects until the state is committed, as many as a store keeps."""
        self._rejects += outcome.rejects[-KEPT_REJECTS:]
        del self._rejects[:-KEPT_REJECTS]

    def _move(self, batch: MicroBatch) -> None:
        """Record the positions after a batch."""
        self._positions = moved(self._positions, batch.positions)
        for name, reached in batch.times.items():
            self._times.setdefault(name, {}).update(
                {partition: time for partition, time in reached.items() if time > _BEGINNING}
            )
        for name, guards in batch.guards.items():
            self._guards.setdefault(name, {}).update(guards)

    def _drain(self) -> bool:
        """Let sinks that deliver at their own pace end; return whether their positions have moved."""
        before = dict(self._lengths)
        for sink in self._outputs.sinks:
            if isinstance(sink, OutboxSink):
                self._lengths[sink.name] = sink.drain()
        return self._lengths != before

    def _keep(self, batch: MicroBatch) -> bool:
        """Write a micro-batch to the journal; return False if the whole state is to be committed instead."""
        if not self._journal.takes(len(batch.events)):
            return False
        pushed = {
            source.name: source.taken()
            for source in self._inputs.deployment
            if isinstance(source, PushSource) and source.name in batch.positions
        }
        options = self._journal.options
        entry = KeptBatch(options, batch.positions, self._lengths, self._watermark, pushed)
        self._journal.keep(entry, len(batch.events))
        return True

    def _marked(self, positions: AllPositions) -> AllPositions:
        """Return what sinks keep with a commit: the input positions, and the number of calibrations."""
        if not self._calibrations:
            return positions
        return positions | {_NO_SOURCE: {_NO_SOURCE: self._calibrations}}

    def _record(self) -> None:
        """Commit to the store, if there is one, all that was processed since the last commit."""
        versions, rejects = self._versions, self._rejects
        self._versions, self._rejects, self._ends_uncommitted = [], [], False
        if self._store is None:
            return
        began = self._clock()
        own, engines = self._pipeline.snapshot()
        self._store.commit(
            Change(
                engines=engines,
                run=encoded(
                    StoredRun(
                        own,
                        self._times,
                        self._watermark if self._watermark > _BEGINNING else None,
                        self._calibrations,
                        self._guards,
                        self._shard,
                    ),
                    json=True,
                ),
                positions=self._positions,
                sinks=self._lengths,
                versions=versions,
                rejects=rejects,
                segments=self._pipeline.changed_segments(),
                packs=self._pipeline.join.changes(),
            )
        )
        self._journal.committed(began)


def _processed(process: Process, batch: MicroBatch) -> Outcome:
    """Process a micro-batch; the engines of a store are decoded when an event of their key comes."""
    try:
        return process(batch)
    except DamagedStateError as error:
        raise _unusable(error) from error


def _differing(positions: Mapping[str, Positions], others: Mapping[str, Positions]) -> set[str]:
    """Return the sources some of whose positions are not among others.

    These may have more: the store takes note of new partitions before a sink commits.
    """
    return {name for name, each in positions.items() if not each.items() <= others.get(name, {}).items()}


def _other_shard(before: str | None, now: str | None) -> StoreError:
    said, mine = (f"--shard {each}" if each else "no --shard" for each in (before, now))
    return StoreError(
        f"the store is of a run with {said}, and this run has {mine}: it would answer what other stores have"
        f" answered. Start it with {said}; another N takes new stores and new outputs"
    )


def _unusable(why: object) -> StoreError:
    return StoreError(
        f"cannot resume from the state in the store: {why}. Restore it from a copy, or move it away and run"
        " again from the beginning of the sources"
    )


def _names(sources: Sequence[Source]) -> list[str]:
    return [source.name for source in sources]


def _ended(source: Source) -> bool | Collection[str]:
    """Whether a source has ended, or which of its partitions have."""
    return source.ended or (source.ended_partitions if isinstance(source, PartitionedSource) else False)


def _at_end(sources: Sequence[Source], merge: Merge) -> bool:
    return all(source.ended for source in sources) and not len(merge)


def _whole(sources: Sequence[Source]) -> bool:
    return not any(source.endless for source in sources)
