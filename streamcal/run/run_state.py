"""RunState: join, engines, counts and quality of one run; made, kept in snapshots, and restored.

One engine a ``key``; one join for all, since a label names only its prediction's id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from streamcal.base.errors import DamagedStateError
from streamcal.base.values import class_name
from streamcal.engine.config import unlike
from streamcal.engine.emissions import MapPublished
from streamcal.engine.engine import Engine
from streamcal.engine.multiclass.classes_engine import NUMBER_BYTES
from streamcal.engine.recalibrator import engine_of
from streamcal.engine.segments.corrections_c import names_of
from streamcal.engine.segments.stored_rows import Row, SegmentId, StoredRows
from streamcal.events.codes import Code
from streamcal.join.join import Join
from streamcal.join.packs import Pack
from streamcal.quality.decision_sums import DecisionSums
from streamcal.quality.delays import Delay
from streamcal.quality.figures import RATED_KEYS, Quality, Raised, Unrated
from streamcal.quality.verdict import Arrival
from streamcal.run.config import RunConfig
from streamcal.run.engines import KeyedEngines
from streamcal.run.kinds import kind_of
from streamcal.run.outcome import Outcome, PipelineState, RunCounts
from streamcal.run.rows import alarm_rows, forecast_alarm_row, version_of
from streamcal.sketch.decoding import restoring


class RunState:
    """Join, engines and counts of one run; `streamcal.run.pipeline.Pipeline` has the parameters."""

    def __init__(self, options: RunConfig, *, publishes_maps: bool, keeps_answers: bool) -> None:
        self.options = options.engines
        """Options of the engines."""
        self.columns = columns = options.columns
        """Columns of events."""
        self._config = self.options.config
        self.kind = kind_of(columns.classes)
        """Kind of the run."""
        self._publishes_maps = publishes_maps and self.kind.has_maps
        self.label_delay_limit = self._config.delay_limit_seconds
        """Seconds after which a prediction without a label counts as 0; None: it never does."""
        self._keeps_answers = keeps_answers
        self.join = self._join(Join(options.join))
        """Predictions that wait for their label; replaced by `restore`."""
        self._keys = options.keys
        self.engines: KeyedEngines = KeyedEngines(self._keys, self._make)
        """Engine of every key, in the order of their first event."""
        self._unpublished: dict[str | None, None] = {}
        self._stored = False
        self._unrated = Unrated()
        self._quality = self.kind.quality(self.options.fields, matures=self.label_delay_limit is not None)
        self.sampler = options.sampling.sampler
        """Sampler of predictions to be labelled; None: there is none."""
        self._quality.draws = self.sampler is not None
        self._quality.samples = columns.samples or self._quality.draws
        self._interval = options.intervals.probability
        rule = options.decision.rule
        self.decisions = None if rule is None else DecisionSums(rule)
        """Decisions, and what they cost; None: nothing is decided."""
        self._raised = list[Raised]()
        self._published = list[tuple[MapPublished, float | None]]()
        self._positive_class = "1" if columns.positive is None else class_name(columns.positive)
        self._rows: StoredRows | None = None  # of segments, where there is a store
        named = {"join", "keys", "columns", "segments", "sampling", "intervals", "decision"}
        tables = options.model_dump(mode="json", include=named)
        del tables["keys"]["memory"]
        self.batch_options: dict[str, Any] = tables
        """Options on which the outcome of a micro-batch depends, beside those of engines, by table."""
        self.tally = RunCounts()
        self.reasons: dict[Code, int] = {}
        """Number of events rejected, by the kind of the reason (`streamcal.run.outcome`)."""

    @property
    def delay(self) -> Delay:
        """Delays of the labels, and the number that may yet come."""
        join = self.join
        return self.quality.delays.figures(join.counts.predictions, join.pending, join.longest_wait)

    @property
    def quality(self) -> Quality:
        """Quality of the forecasts by joined labels."""
        self._rate()
        return self._quality

    def first_engines(self, count: int) -> dict[str | None, Engine]:
        """Return the engines of the first so many keys: what can be shown where there are many."""
        return {key: self.engines[key] for key in islice(self.engines, count)}

    # To keep

    def snapshot(self) -> tuple[PipelineState, dict[str | None, bytes]]:
        """Return the state but for entries of the join: its own, and that of engines changed since last time.

        It is to be written before the next event. With a store, `changed_segments` then gives what engines
        have of segments.
        """
        if self._rows is not None:
            self._rows.share(len(self.options.fields) * self.engines.in_memory)
        own = PipelineState(
            self.options,
            self.join.state,
            self.tally,
            list(self._unpublished),
            self.reasons,
            self.quality,
            self._positive_class,
            self.sampler,
            self._raised,
            self.decisions,
        )
        return own, self.engines.snapshot()

    def changed_segments(self) -> dict[SegmentId, Row]:
        """Return the corrections of segments that have changed, to be committed with a snapshot."""
        return {} if self._rows is None else self._rows.changes()

    def restore(
        self,
        state: PipelineState | None,
        engines: Mapping[str | None, bytes],
        segments: Mapping[SegmentId, Row] | None = None,
        packs: Iterable[Pack] = (),
    ) -> None:
        """Go on from what snapshots gave.

        Parameters
        ----------
        state
            the state beside engines and entries; None at the very beginning.
        engines
            their states by key, each asked for when it is needed; for as long as this pipeline is used, it
            has to show what was committed last.
        segments
            corrections of segments, in the same way; None: they are in the states of engines.
        packs
            entries of the join.

        Raises
        ------
        DamagedStateError
            if the bytes are no such state.
        ValueError
            if the state is that of other options than this pipeline's; it names them.
        """
        if state is not None:
            learned = state.join.counts.labels + state.tally.source_labels
            if learned and state.positive != self._positive_class:
                raise ValueError(
                    f"the labels so far were learned with {state.positive!r} as the positive one, now it is"
                    f" {self._positive_class!r}"
                )
            if differences := unlike(state.options, self.options):
                raise ValueError(
                    f"the store was begun with other options: {differences}; give the former, or begin with a"
                    " new store"
                )
            if self.sampler and (was := state.sampler) and was.seed != self.sampler.seed:
                raise ValueError(
                    f"the store was begun with [sampling] seed = {was.seed}, by which it asked for labels:"
                    " keep it, or begin with a new store"
                )
            self.join = self._join(Join(self.join.config, state.join))
            self.tally = state.tally
            self.reasons = state.reasons
            self._unpublished = dict.fromkeys(state.unpublished)
            self._quality, self._raised = state.quality, state.raised
            if self.decisions is not None:
                self.decisions.restore(state.decisions, self.join.time)
            self._quality.matures = self.label_delay_limit is not None
            self._quality.draws = self.sampler is not None
            self._quality.samples |= self.columns.samples or self._quality.draws
            if self.sampler is not None and state.sampler is not None:
                budget = ("share", "labels_per_day", "even")
                changed = {name: getattr(self.sampler, name) for name in budget}
                self.sampler = msgspec.structs.replace(state.sampler, **changed)
        with restoring("not the state of a run"):
            self.join.load(packs)
        self._rows = None if segments is None else StoredRows(segments)
        self.engines.restore(engines)
        if not self._unpublished.keys() <= self.engines.known.keys():
            raise DamagedStateError(
                "not the state of a run: it has maps to publish of keys without an engine"
            )
        self._stored = True

    # Inside

    def _join(self, join: Join) -> Join:
        """Return a join that keeps what this run needs."""
        join.keeps_answers, join.classes = self._keeps_answers, len(self.columns.label_values)
        join.answer_size = 2 * len(self.options.classes) * NUMBER_BYTES
        return join

    def _make(self, key: str | None, data: bytes | None) -> Engine:
        engine = engine_of(self.options, key, data, self._rows)
        if self.sampler is not None and not self.options.classes:
            engine.draw_labels(plain=self.sampler.even == 1.0 and self.sampler.share is not None)
        if self._interval is not None:
            engine.keep_limits(self._interval)
        return engine

    def _rate(self) -> None:
        """Rate the forecasts whose labels have come, and count the predictions."""
        unrated, self._unrated = self._unrated, Unrated()
        count = len(self.options.fields)
        names = [names_of(unrated.memos, count, field) for field in range(count)]
        rated = (key for key in dict.fromkeys([*self._quality.by_key, *unrated.keys]) if key is not None)
        for key in (None, *islice(rated, RATED_KEYS)):
            if self.engines.changed(key):  # with labels or without, whenever they are rated
                self._see_arrival(key)
        self._raised += self._quality.add(unrated, names)
        if self.decisions is not None:
            self.decisions.add(unrated)

    def _see_arrival(self, key: str | None) -> None:
        """Take note of whether one class comes later, as the engine of a key has found."""
        delays = self.engines[key].label_delays
        arrivals = [each for each in self._quality.arrivals if each[0] != key]
        if delays is not None and not delays.fair:
            arrivals.append((key, Arrival(delays.late, delays.complete_at, fair=False)))
        self._quality.arrivals = sorted(arrivals, key=lambda each: (each[0] is not None, each[0] or ""))

    def _emit_raised(self, outcome: Outcome) -> None:
        """Add the alarms of the watch over forecasts to an outcome.

        That is done where a look is due, so that it depends on the micro-batches alone, not on when they were
        stored.
        """
        outcome.alarms += [forecast_alarm_row(each, self.join.time) for each in self._raised]
        self._raised = []

    def _certifies(self, key: str | None) -> bool:
        return self._publishes_maps and (key is None or len(self.engines) <= self._keys.certified)

    def _publish(self, outcome: Outcome) -> None:
        """Add the rows of versions that began in this micro-batch to an outcome, and what they refute."""
        published, self._published = self._published, []
        for emission, clock in published:
            key = emission.key
            if emission.claim is not None and not self._certifies(key):
                emission.claim = None
            if emission.claim is not None:
                engine = self.engines.of(key)
                alarms = len(engine.alarms)
                engine.publish(emission.claim)
                outcome.alarms += alarm_rows(key, engine.alarms, clock, alarms)
            outcome.versions.append(version_of(emission, clock, self.options.fields))
