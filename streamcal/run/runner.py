"""Drives sources through a pipeline into sinks and a store, exactly once; see `streamcal.run.ports`.

The positions in the store are those of the last event processed, not of the last one read. So the next run
reads again what was still in memory when a run stopped or was killed.

The watermark of a micro-batch, up to which predictions expire in it, is computed when the batch before is
committed, and is part of that commit. So a batch that is processed again gives the same result, even if more
events have arrived meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from streamcal.errors import DamagedStateError, OutputError, StoreError
from streamcal.events.guard import GuardState
from streamcal.run.order import Merge, MicroBatch, watermark
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import (
    Change,
    Checkpoint,
    CutBackSink,
    JournalStore,
    OutboxSink,
    Position,
    PositionError,
    Positions,
    Sink,
    Source,
    StoppedError,
    Store,
)
from streamcal.run.rows import MapRow, RejectRow
from streamcal.run.stored import StoredRun
from streamcal.sketch.decoding import decoded

__all__ = ["Inputs", "NullSink", "Outputs", "Runner", "writing"]

MAX_EVENTS: Final = 65_536
"""The approximate maximum number of events in a micro-batch."""
LINGER: Final = 0.1
"""Seconds that the first events of a micro-batch wait for more, if nothing else is said."""
PATIENCE: Final = 0.2
"""Seconds to wait for an idle source before checking whether to stop."""

_BEGINNING: Final = float("-inf")
_NO_SOURCE: Final = ""
"""The name under which sinks keep, beside the input positions, the number of calibrations published."""

AllPositions = dict[str, dict[str, object]]
Process = Callable[[MicroBatch], Outcome]


class Inputs(msgspec.Struct):
    """Where a run's events come from."""

    calibration: Sequence[Source]
    """Labelled events, learned first; at most one source."""
    deployment: Sequence[Source]
    """Predictions and labels, merged by event time; of equal times, the first source comes first."""

    @property
    def sources(self) -> list[Source]:
        """All of them, in the order in which they are read."""
        return [*self.calibration, *self.deployment]


class Outputs(msgspec.Struct):
    """Where a run's rows go."""

    answers: Sink
    rejects: Sink | None = None
    maps: Sink | None = None
    alarms: Sink | None = None

    @property
    def sinks(self) -> list[Sink]:
        """The sinks that are given."""
        given = self.answers, self.rejects, self.maps, self.alarms
        return [sink for sink in given if sink is not None]


class NullSink:
    """A sink that drops its rows."""

    name = "nowhere"

    def resume(self, job: str, position: Position | None) -> Mapping[str, Positions] | None:  # noqa: ARG002
        """Do nothing."""
        return None

    def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Do nothing."""

    def commit(self, positions: Mapping[str, Positions]) -> Position:  # noqa: ARG002
        """Do nothing."""
        return None

    def close(self) -> None:
        """Do nothing."""


class Runner:
    """One run, from where the store says to the end of its sources.

    Parameters
    ----------
    pipeline
        a new one, with the store's tables if there is a store.
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
    due
        asked after each micro-batch whether to commit it to the store; if not, its source gives it again to a
        run that resumes (`streamcal.run.ports.JournalStore`). The run's end always commits.
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
        due: Callable[[], bool] | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._inputs = inputs
        self._outputs = outputs
        self._store = store
        self._clock = clock
        self._stop = stop
        self._after = after
        self._linger = linger
        self._due = due
        self._maps: list[MapRow] = []  # of the micro-batches that are not committed yet
        self._rejects: list[RejectRow] = []
        self._ends_uncommitted = False
        self._positions: AllPositions = {}
        self._times: dict[str, dict[str, float]] = {}
        self._guards: dict[str, dict[str, GuardState]] = {}
        self._watermark = _BEGINNING
        self._calibrations = 0
        self._opened: set[str] = set()  # names of sources
        self._ahead: Mapping[str, Positions] | None = None  # input positions of sinks ahead of the store
        self._suppressed: list[Sink] = []  # those sinks
        self._lengths: dict[str, object] = {}  # of sinks, by name, at their last commit

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
        self._resume()
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

    def _resume(self) -> None:
        """Restore pipeline and sinks to the last commit of the store."""
        checkpoint = Checkpoint() if self._store is None else self._store.load()
        if self._due is None and isinstance(self._store, JournalStore) and (left := self._store.kept()):
            raise StoreError(
                f"the store holds {len(left)} micro-batches that `streamcal serve` answered before it was"
                " killed, and that are not part of its state yet: start `streamcal serve` on it once, and"
                " stop it"
            )
        if self._store is not None:
            try:
                state = StoredRun(msgspec.Raw(b""), {})
                if checkpoint.run:
                    state = decoded(checkpoint.run, StoredRun, "a run", json=True)
                self._pipeline.restore(bytes(state.pipeline), checkpoint.engines, checkpoint.segments)
            except DamagedStateError as error:
                raise _unusable(error) from error
            except ValueError as error:
                raise StoreError(f"cannot resume from the state in the store: {error}") from error
            self._times = state.times
            self._guards = state.guards
            self._watermark = _BEGINNING if state.watermark is None else state.watermark
            self._calibrations = state.calibrations
        self._positions = {name: dict(each) for name, each in checkpoint.positions.items()}
        self._lengths = dict(checkpoint.sinks)
        job = "" if self._store is None else self._store.job
        for sink in self._outputs.sinks:
            try:
                with writing(sink):
                    reached = sink.resume(job, checkpoint.sinks.get(sink.name))
            except PositionError as error:
                raise _unusable(f"{sink.name}: {error}") from error
            if reached is None or reached == self._marked():
                continue
            if self._ahead is not None and reached != self._ahead:
                raise OutputError(
                    f"{sink.name} and {self._suppressed[0].name} are at different micro-batches"
                )
            self._ahead = reached
            self._suppressed.append(sink)
        known = _names([*self._inputs.calibration, *self._inputs.deployment])
        for name, position in (self._ahead or {}).items():
            if name and position != self._positions.get(name, {}) and name not in known:
                raise OutputError(
                    f"{self._suppressed[0].name} is one micro-batch of {name} ahead of the store:"
                    " run once more with that source first"
                )
        self._begin_outputs()

    def _begin_outputs(self) -> None:
        """Record where the sinks stand before the first row, so that the next run knows them as its own."""
        begun = {sink.name: sink.position for sink in self._outputs.sinks if isinstance(sink, CutBackSink)}
        if any(self._lengths.get(name) != position for name, position in begun.items()):
            self._lengths |= begun
            self._record()

    def _catch_up(self) -> None:
        """Process again, before anything else, the batch that sinks have and the store has not."""
        ahead = self._ahead or {}
        if ahead.get(_NO_SOURCE) != self._marked().get(_NO_SOURCE):
            self._publish()
        for sources, process in (
            (self._inputs.calibration, self._pipeline.calibrate),
            (self._inputs.deployment, self._pipeline.process),
        ):
            if any(name in ahead and ahead[name] != self._positions.get(name) for name in _names(sources)):
                self._seek(sources)
                self._close_gap(sources, process)
        self._suppressed = []

    def _publish(self) -> None:
        """Publish the maps of a calibration."""
        outcome = self._pipeline.calibrated()
        if outcome.maps:
            self._calibrations += 1
            self._commit(outcome, None)
            self._after(outcome, 0.0)

    def _seek(self, sources: Sequence[Source]) -> None:
        """Move sources to the positions in the store, and record new partitions."""
        moved = False
        for source in sources:
            if source.name in self._opened:
                continue
            self._opened.add(source.name)
            before = self._positions.get(source.name, {})
            try:
                now = dict(source.seek(before))
            except PositionError as error:
                raise _unusable(f"{source.name}: {error}") from error
            moved |= now != before
            self._positions[source.name] = now
        if moved:
            self._record()

    def _phase(self, sources: Sequence[Source], process: Process) -> bool:
        """Process sources to their end; return False if stopped earlier."""
        if not sources:
            return True
        self._seek(sources)
        merge = self._merge(sources)
        while not self._stop():
            batch = self._collect(merge, sources)
            if batch is None:
                if _at_end(sources, merge):
                    self._pipeline.end()
                    return True
                if self._ends_uncommitted and self._due is not None and self._due():
                    self._record()
                self._after(Outcome([], [], []), 0.0)
                continue
            start = self._clock()
            outcome = _processed(process, batch)
            if outcome.doubtful and _at_end(sources, merge):
                self._pipeline.end()
            self._commit(outcome, batch)
            self._after(outcome, self._clock() - start)
        return False

    def _close_gap(self, sources: Sequence[Source], process: Process) -> None:
        """Process again the one batch by which sinks are ahead, without writing to those sinks."""
        ahead = self._ahead or {}
        merge = self._merge(sources)
        for source in sources:
            source.limit(ahead.get(source.name, {}))
            while not source.ended:
                merge.add(source.name, source.poll(MAX_EVENTS, PATIENCE))
                if self._stop():
                    return
            merge.add(source.name, (), ended=True)
        batch = merge.take(self._watermark)
        for source in sources:
            source.limit(None)
        if batch is not None:
            self._commit(_processed(process, batch), batch)

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
                return merge.take(self._watermark)
            before = held
            for source in list(wanted):
                batches = source.poll(share, max(left, 0.0) / len(wanted))
                ended = source.ended
                held = merge.add(source.name, batches, ended=ended)
                if ended:
                    reading.remove(source)
            if not before and held:
                deadline = self._clock() + self._linger

    def _commit(self, outcome: Outcome, batch: MicroBatch | None) -> None:
        """Commit a micro-batch, in the steps of `streamcal.run.ports`."""
        if batch is not None:
            self._move(batch)
        rows = (
            (self._outputs.answers, outcome.answers),
            (self._outputs.rejects, outcome.rejects),
            (self._outputs.maps, outcome.maps),
            (self._outputs.alarms, outcome.alarms),
        )
        for sink, written in rows:
            if sink is not None and written and sink not in self._suppressed:
                with writing(sink):
                    sink.write(written)
        for sink in self._outputs.sinks:
            if sink not in self._suppressed:
                with writing(sink):
                    self._lengths[sink.name] = sink.commit(self._marked())
        self._maps += outcome.maps
        self._rejects += outcome.rejects
        if self._due is None or self._due():
            self._record()
        else:
            self._ends_uncommitted = True
        self._suppressed = []

    def _move(self, batch: MicroBatch) -> None:
        """Record the positions after a batch, and the watermark of the next one."""
        for name, each in batch.positions.items():
            self._positions.setdefault(name, {}).update(each)
        for name, reached in batch.times.items():
            self._times.setdefault(name, {}).update(
                {partition: time for partition, time in reached.items() if time > _BEGINNING}
            )
        for name, guards in batch.guards.items():
            self._guards.setdefault(name, {}).update(guards)
        deployment = self._inputs.deployment
        if any(name in self._opened for name in _names(deployment)) and not _whole(deployment):
            self._watermark = watermark(deployment, self._times, self._pipeline.join.clock)

    def _drain(self) -> bool:
        """Let sinks that deliver at their own pace end; return whether their positions have moved."""
        before = dict(self._lengths)
        for sink in self._outputs.sinks:
            if isinstance(sink, OutboxSink):
                self._lengths[sink.name] = sink.drain()
        return self._lengths != before

    def _marked(self) -> AllPositions:
        """Return what sinks keep with a commit: the input positions, and the number of calibrations."""
        if not self._calibrations:
            return self._positions
        return self._positions | {_NO_SOURCE: {_NO_SOURCE: self._calibrations}}

    def _record(self) -> None:
        """Commit to the store, if there is one, all that was processed since the last commit."""
        maps, rejects = self._maps, self._rejects
        self._maps, self._rejects, self._ends_uncommitted = [], [], False
        if self._store is None:
            return
        own, engines = self._pipeline.snapshot()
        self._store.commit(
            Change(
                engines=engines,
                run=msgspec.json.encode(
                    StoredRun(
                        msgspec.Raw(own),
                        self._times,
                        self._watermark if self._watermark > _BEGINNING else None,
                        self._calibrations,
                        self._guards,
                    )
                ),
                positions=self._positions,
                sinks=self._lengths,
                maps=maps,
                rejects=rejects,
                segments=self._pipeline.changed_segments(),
            )
        )


@contextmanager
def writing(sink: Sink) -> Iterator[None]:
    """Let what a sink raises be an `OutputError` that names it."""
    try:
        yield
    except StoppedError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise OutputError(
            f"cannot write {sink.name}: {reason}" if reason else f"cannot write: {error}"
        ) from error


def _processed(process: Process, batch: MicroBatch) -> Outcome:
    """Process a micro-batch; the engines of a store are decoded when an event of their key comes."""
    try:
        return process(batch)
    except DamagedStateError as error:
        raise _unusable(error) from error


def _unusable(why: object) -> StoreError:
    return StoreError(
        f"cannot resume from the state in the store: {why}. Restore it from a copy, or move it away and run"
        " again from the beginning of the sources"
    )


def _names(sources: Sequence[Source]) -> list[str]:
    return [source.name for source in sources]


def _at_end(sources: Sequence[Source], merge: Merge) -> bool:
    return all(source.ended for source in sources) and not len(merge)


def _whole(sources: Sequence[Source]) -> bool:
    return not any(source.endless for source in sources)
