"""Recalibrator: the public engine. It learns labelled scores, re-forms the map on schedule, and applies it.

One class for two classes, segments and many classes: `engine_of` makes the engine, `streamcal.engine.calls`
checks what users hand in. State: the engine, and the join of `Recalibrator.step`. Memory is bounded.

More than half of this file is the documentation of the public methods, which belong to one class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any, Self, Unpack, overload

import msgspec
import numpy as np

from streamcal.base.errors import DamagedStateError
from streamcal.base.times import Time, as_times, check_time, date_like
from streamcal.base.values import Floats, check_domain, check_order, shown
from streamcal.certificates.record import Certificate
from streamcal.delayed.label_delays import LabelDelays
from streamcal.engine.calls import Answer, Answers, Calls, Intervals
from streamcal.engine.config import (
    EngineOptions,
    RecalibratorConfig,
    RecalibratorOptions,
    every_option,
    names_options,
    with_join,
)
from streamcal.engine.emissions import DriftAlarm, Emission, Mixing, Rejected
from streamcal.engine.engine import DomainSummary, Engine
from streamcal.engine.multiclass.calls import ClassView
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.engine.multiclass.classes import Classes
from streamcal.engine.multiclass.classes_engine import ClassesEngine
from streamcal.engine.segments.calls import SegmentView
from streamcal.engine.segments.segmented_engine import SegmentedEngine
from streamcal.engine.segments.segments import check_fields, check_own_engines
from streamcal.engine.segments.stored_rows import StoredRows
from streamcal.engine.state import pack, unpack
from streamcal.engine.stepping_c import emitted, refused, step
from streamcal.events import Domain, Event
from streamcal.events.codes import Refusal
from streamcal.join.config import JoinConfig
from streamcal.join.join import Join
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.decoding import decoded, encoded, restoring
from streamcal.sketch.score_sketch import MAX_CELLS, ScoreSketch
from streamcal.sketch.weighing import as_weights, check_weight


class Recalibrator:
    """Turn scores into probabilities, and keep doing so while labels arrive.

    Calls that change the state, from several threads, wait for one another; `predict_one` and `predict_many`
    wait for none.

    Parameters
    ----------
    config
        all options in one object.
    classes
        Names of the classes, 2 to 1,000, in the order of the scores. A score is then a row of K numbers, one
        for each class, in [0, 1] and with sum 1, give or take 10⁻⁶. A label is a name, or its place from 0
        on; if names are numbers such as 10, 20 and 30, it is a name. The options are those of K binary
        engines, each for one class against all others; ``delta`` is shared out among them. None: two classes,
        of which a score is the probability of the second.
    segments
        Names of the fields that make segments, at most 64, such as ``("country", "device")``: their
        corrections add up on the logit, and share what they learn. A value is a text, a number or a boolean;
        None, NaN and an empty text are one value: the field is missing. None: there are no segments.
    own_engines
        Number of segments, those with most labels, that may have an engine of their own: 0 to 65,536. Each
        takes up to a MiB of memory, and learning takes some ten times as long. With several fields there is
        none.
    join
        options of the join that `step` uses.
    **options
        instead of ``config``: the options of `RecalibratorConfig` by name.

    Raises
    ------
    ValueError
        if an option is out of range (pydantic.ValidationError), or not for this kind of engine; if
        both ``config`` and options, or both ``classes`` and ``segments`` are given; or if names are not
        distinct texts.
    TypeError
        if ``config`` is anything else, or an option is unknown.

    Examples
    --------
    >>> engine = Recalibrator(mode="target", bins=2)
    >>> engine.predict_one(0.7)
    0.7
    >>> engine.learn_many([0.2, 0.4, 0.7, 0.9] * 32, [0, 0, 0, 1] * 32)
    >>> engine.version, engine.predict_one(0.7)
    (8, 0.5)

    >>> engine = Recalibrator(classes=["cat", "dog", "fox"])
    >>> engine.predict_one({"cat": 0.5, "dog": 0.25, "fox": 0.25})
    {'cat': 0.5, 'dog': 0.25, 'fox': 0.25}
    >>> engine.learn_many([[0.5, 0.25, 0.25]] * 600, ["dog", "dog", "cat"] * 200)
    >>> bool(engine.predict_one([0.5, 0.25, 0.25])[1] > 0.5)
    True

    >>> engine = Recalibrator(segments=("country", "device"))
    >>> engine.learn_many([0.3, 0.7] * 500, [0, 1] * 500, segments=[("NL", "phone"), ("PL", None)] * 500)
    >>> engine.predict_one(0.7, ("PL", None)) > 0.9
    True
    """

    @names_options
    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        *,
        classes: Sequence[str | int] | None = None,
        segments: Sequence[str] | None = None,
        own_engines: int = 64,
        join: JoinConfig | None = None,
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        _check_config(config)
        if config is not None and options:
            raise ValueError(f"give either a config or options, got both: {sorted(options)}")
        join = join or JoinConfig()
        fields = () if segments is None else check_fields(segments)
        own = check_own_engines(own_engines) if fields else 0
        whole = with_join(config or RecalibratorConfig(**every_option(options)), join)
        names = () if classes is None else Classes(classes).names
        self._use(EngineOptions(whole, names, fields, tuple(range(len(fields))), own), join)

    def _use(self, options: EngineOptions, config: JoinConfig, *states: bytes) -> None:
        """Begin, or go on from the states of engine and join."""
        data, waiting = states or (None, None)
        self._options, self._engine = options, engine_of(options, None, data)
        engine = self._engine
        self._calls = engine.calls()
        self._alone = self._calls.alone
        classes = self._calls.class_count
        join = Join(config) if waiting is None else Join.from_bytes(waiting, config, classes)
        join.classes = classes
        self._join, self._engine_of = join, lambda _: engine
        self._lock = RLock()  # of whatever changes the state
        self._seeks_source = engine.config.needs_source

    def __repr__(self) -> str:
        source, target = self.source, self.target
        return (
            f"Recalibrator(mode={self.config.mode!r}{self._calls}, version={self.version}, "
            f"source={source.labels:,} labels, "
            f"target={target.labels:,} labels, predictions={target.scores:,})"
        )

    # What it knows. With classes, all but the map is of the binary engine of the decision, which learns
    # whether the class with the highest score is right; with segments, all is of the engine that they share.

    @property
    def config(self) -> RecalibratorConfig:
        """Options of the engine."""
        return self._engine.config

    @property
    def map(self) -> RecalibrationMap | MulticlassMap:
        """Served map, with the current weights of the shift correction.

        With segments, it is the map of all, before corrections; with classes, a `MulticlassMap`.
        """
        found: RecalibrationMap | MulticlassMap = self._engine.portable_map
        return found

    @property
    def by_class(self) -> ClassView | None:
        """Names, priors, weights and certificates of the classes; None without ``classes``."""
        found: ClassView | None = self._engine.by_class
        return found

    @property
    def by_segment(self) -> SegmentView | None:
        """Corrections of segments, and the maps of each; None without ``segments``."""
        found: SegmentView | None = self._engine.by_segment
        return found

    @property
    def version(self) -> int:
        """Number of the served map version: 0 before the first; with classes, of the map of the decision."""
        return self._engine.version

    @property
    def mixing(self) -> Mixing | None:
        """Weights of the candidates; None in other modes than ``auto``, and before its first step."""
        return self._engine.mixing

    @property
    def source(self) -> DomainSummary:
        """Counts and prior of the source domain; of many classes the prior that the decision is right."""
        return self._engine.source

    @property
    def target(self) -> DomainSummary:
        """Counts and prior of the target domain; of many classes the prior that the decision is right."""
        return self._engine.target

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the served map now; None before the first version.

        With segments, that of the map of all; of many classes, of the probability that the decision is right.

        No labels after the last scheduled version are read for it. A map that was formed off schedule is
        certified by the labels of that version, and the certificate says so.
        """
        return self._engine.certificate

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """Assumptions refuted so far, each once.

        An assumption that only a certificate tests (that h* is monotone; that a prediction without a label in
        time is a 0) is listed here once the labels of the last version refute it, and `step` emits no alarm
        of it. Reading it changes nothing.
        """
        return self._engine.alarms_now

    @property
    def log_e_value(self) -> float | None:
        """Log of the e-value against label shift, as of the last look; None before there is one."""
        return self._engine.log_e_value

    @property
    def label_delays(self) -> LabelDelays | None:
        """Delays of labels by class, and labels that are held until both classes are equally complete.

        None in other modes than ``auto`` and under a ``label_delay_limit``, where labels are learned in the
        order in which they come.
        """
        return self._engine.label_delays

    @property
    def join(self) -> Join:
        """The join of predictions and labels that `step` uses."""
        return self._join

    # Learning

    def learn_one(
        self,
        score: Any,
        label: Any,
        domain: Domain = "target",
        *,
        segments: Any = None,
        time: Time | None = None,
        weight: float | None = None,
        memo: bytes | None = None,
        positive: object = None,
    ) -> None:
        """Learn one score with its label.

        Parameters
        ----------
        score
            as in `predict_one`.
        label
            0 or 1, or any label if ``positive`` is given; with ``classes``, the name of one, or its place.
        domain
            where they come from. ``"target"``: the deployment. ``"source"``: from before, such as the model's
            calibration set; the modes ``source``, ``label_shift`` and ``composite`` need such labels.
        segments
            as in `predict_one`; with a ``memo``, they are in it. Labels of the source teach the map of all.
        time
            event time of the label; needed only for a ``window`` of event time. Seconds since the epoch (from
            1e11 on, milliseconds, microseconds or nanoseconds, by magnitude), a datetime, a date, or ISO 8601
            text; UTC if it has no zone.
        weight
            number of predictions that the label stands for, from 1e-9 to 10,000: one over the chance that it
            was seen. None: 1. See docs/events.md.
        memo
            of a late label of the target: that of `answer_one` for its prediction. None: the label came at
            once, so it tells nothing of delays, and is not held though one class comes later.
        positive
            the label that counts as 1, a number or a text; any other counts as 0.

        Raises
        ------
        ValueError
            if the score is as `predict_one` refuses it, the label is none, the domain is neither ``"source"``
            nor ``"target"``, a time is missing or invalid, the weight is out of range or not for these
            options, or the memo is none of such an engine (the message says which); nothing is learned then.

        Warns
        -----
        UserWarning
            once, if the mode needs source labels and has none, but 64 of the target: it serves the score
            unchanged.
        """
        self._lock.acquire()  # in half of the time of a with statement
        try:
            if segments is None and self._engine.learn_usual(
                score, label, domain, time, weight, memo, positive
            ):
                if self._seeks_source:
                    self._seek_source()
                return
        finally:
            self._lock.release()
        rows, known = self._calls.one(score, segments, memo), self._calls.label(label, positive)
        check_domain(domain)
        moment, counted = check_time(time), 1.0 if weight is None else check_weight(weight)
        self._learn(
            rows,
            np.array([known]),
            domain,
            None if moment is None else np.array([moment]),
            None if counted == 1.0 else np.array([counted]),
            None if memo is None else [memo],
        )

    def learn_many(
        self,
        scores: Any,
        labels: Any,
        domain: Domain = "target",
        *,
        segments: Any = None,
        times: Any = None,
        weights: Any = None,
        memos: Sequence[bytes] | None = None,
        positive: object = None,
    ) -> None:
        """Learn n scores with their labels, as n calls of `learn_one` would.

        The outcome is the same: map, certificate and alarms. Maps that no prediction could be served with are
        not formed. Only in mode ``auto`` and with segments, and without ``memos``, labels of the target
        differ: those of one call were predicted before that call, and no map that has learned from the first
        of them is judged by the others. A call that brings more labels than there were is taken in parts,
        each as long as all before. With three classes or more, weights and scalings take steps by call.

        Parameters
        ----------
        scores, segments
            as in `predict_many`.
        labels
            array-like of length n: numpy, lists, pandas, polars or Arrow columns. With three classes or more,
            a source that is sorted by them is shuffled.
        domain
            where they come from, as in `learn_one`.
        times
            event times as in `learn_one`, all in one unit: an array-like of length n (numpy, lists, pandas,
            polars or Arrow columns), or one for all.
        weights
            weight of each label, as in `learn_one`: an array-like of length n; None: all are 1.
        memos
            of late labels of the target: those of `answer_many` or `answer_one` for their predictions. None:
            they were predicted just before this call.
        positive
            the label that counts as 1, a number or a text; the one other label in ``labels`` counts as 0.

        Raises
        ------
        ValueError
            as `learn_one`, with the index of the first bad value, or if the lengths differ, or columns of
            pandas have one index in two orders, or with ``positive`` if there is a third label; nothing is
            learned then.

        Warns
        -----
        UserWarning
            as `learn_one`.
        """
        memos = None if memos is None else list(memos)
        check_order(scores=scores, labels=labels, times=times, weights=weights)
        rows, known = self._calls.many(scores, segments, memos), self._calls.labels(labels, positive)
        size = len(rows)
        if size != len(known):
            raise ValueError(f"{size} scores but {len(known)} labels")
        if memos is not None and len(memos) != size:
            raise ValueError(f"{size} scores but {len(memos)} memos")
        check_domain(domain)
        moments = None if times is None else as_times(times, size)
        counted = None if weights is None else as_weights(weights, size)
        self._learn(rows, known, domain, moments, counted, memos)

    def _learn(
        self, rows: Any, labels: Any, domain: Domain, times: Any, weights: Any, memos: list[bytes] | None
    ) -> None:
        """Learn checked rows and labels."""
        with self._lock:
            if weights is not None:
                self._check_weighs()
            if times is not None and len(times) and self.config.needs_time:
                like = date_like(float(times[0]))
                if like and not (self.source if domain == "source" else self.target).labels:
                    raise ValueError(Refusal("bad_time", like).reason)
            self._calls.learn(rows, labels, domain, times, weights, memos)
            if self._seeks_source:
                self._seek_source(stacklevel=4)

    def _check_weighs(self) -> None:
        """Check that labels may have weights."""
        why = self._engine.why_unweighted
        if why is not None:
            raise ValueError(f"labels must not have weights other than 1: {why}")

    def observe_one(self, score: Any, segments: Any = None) -> None:
        """Observe a target score whose label is not known (yet).

        Raises
        ------
        ValueError
            as `predict_one`.
        """
        with self._lock:
            self._calls.observe_one(score, segments)

    def observe_many(self, scores: Any, segments: Any = None) -> None:
        """Observe n target scores, as n calls of `observe_one` would.

        Raises
        ------
        ValueError
            as `predict_many`; nothing is noted then.
        """
        rows = self._calls.many(scores, segments)
        with self._lock:
            self._calls.observe(rows)

    def learn_sketch(self, sketch: ScoreSketch, domain: Domain = "target") -> None:
        """Learn labelled scores that were counted elsewhere, as one batch: their order does not matter.

        If the count of labels has reached one at which a version is due, one begins, formed from all labels.
        Its certificate holds if the batch was not ended for the sake of the labels in it (lemma 0 of
        docs/proofs/certificates.md).

        Parameters
        ----------
        sketch
            the labelled scores, with the default ``max_cells``.
        domain
            where they come from, as in `learn_one`.

        Raises
        ------
        ValueError
            if the state depends on the order of the labels, which the message explains: mode ``auto``,
            windows, a prior that follows scores; if there are segments or many classes; or if the sketch has
            no labels or another ``max_cells``.
        """
        self._check_sketch(sketch, labelled=True)
        check_domain(domain)
        with self._lock:
            self._engine.learn_sketch(sketch, domain)

    def observe_sketch(self, sketch: ScoreSketch) -> None:
        """Observe target scores, labels not known (yet), that were counted elsewhere.

        Raises
        ------
        ValueError
            as `learn_sketch`; or if the sketch has labels.
        """
        self._check_sketch(sketch, labelled=False)
        with self._lock:
            self._engine.observe_sketch(sketch)

    def _check_sketch(self, sketch: ScoreSketch, *, labelled: bool) -> None:
        why = self._engine.why_unsketched
        if why is not None:
            raise ValueError(f"a sketch cannot be learned: {why}")
        if sketch.weighted:
            self._check_weighs()
        if (sketch.max_cells, sketch.labelled) != (MAX_CELLS, labelled):
            raise ValueError(
                f"the sketch must have max_cells={MAX_CELLS} and labelled={labelled}, got {sketch!r}"
            )

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        with self._lock:
            self._engine.refresh()

    # Predicting

    def predict_one(self, score: Any, segments: Any = None) -> Any:
        """Return the probability in [0, 1] of one score; before the first map, the score itself.

        Parameters
        ----------
        score
            a number in [0, 1]; with ``classes``, K numbers in their order, or a mapping of names to numbers.
        segments
            value of each field, as a tuple in their order; of one field, the value alone will do, but for
            None.

        Returns
        -------
        The probability; with ``classes``, that of each: float64[K], or by name if the scores are.

        Raises
        ------
        ValueError
            if a score is not a number in [0, 1], the scores of all classes do not sum to 1, or there are not
            as many values as fields; the message says which.
        """
        return (
            self._alone.predict_one(score) if segments is None else self._calls.predict_one(score, segments)
        )

    @overload
    def predict_many(self, scores: Any, segments: Any = None, *, interval: None = None) -> Floats: ...
    @overload
    def predict_many(self, scores: Any, segments: Any = None, *, interval: float) -> Intervals: ...
    def predict_many(
        self, scores: Any, segments: Any = None, *, interval: float | None = None
    ) -> Floats | Intervals:
        """Return the probability of every score, float64[n], as n calls of `predict_one` would.

        Parameters
        ----------
        scores
            array-like of length n: numpy, lists, pandas, polars or Arrow columns; with ``classes``, rows of
            scores, float64[n, K], or a data frame with a column for each.
        segments
            n values or tuples, as in `predict_one`; or a data frame with a column for each field.
        interval
            probability from 0.5 to 0.99 with which an interval is to hold the rate of label 1 among events of
            one score, not a label (`streamcal.maps.rate_limits`). It takes that rate not to decrease with the
            score, and the labels that the map follows to be like those to come. Not with ``classes`` or
            ``segments``.

        Returns
        -------
        Probabilities, float64[n]; with ``classes``, float64[n, K], whose rows sum to 1. With ``interval``,
        `Intervals`: the probabilities, and the lower and upper ends, float64[n] each.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad value; or if the lengths differ.
        """
        if interval is None:
            return self._calls.predict_many(scores, segments)
        with self._lock:
            return self._calls.intervals(scores, segments, interval)

    def answer_one(self, score: Any, segments: Any = None) -> Answer:
        """Answer a prediction of the target: `predict_one`, `observe_one`, and a memo for its late label.

        The memo is for `learn_one` and `learn_many` of this engine, or of one restored from its later state.

        Raises
        ------
        ValueError
            as `predict_one`; nothing is observed then.
        """
        self._lock.acquire()  # as in learn_one
        try:
            return self._calls.answer_one(score, segments)
        finally:
            self._lock.release()

    def answer_many(self, scores: Any, segments: Any = None, *, observes: bool = True) -> Answers:
        """Answer n predictions of the target, made together: `predict_many`, `observe_many`, and memos.

        Parameters
        ----------
        scores, segments
            as in `predict_many`.
        observes
            whether the scores are observed. If not, nothing changes: a copy answers, and the engine that
            learns observes them before it learns their labels.

        Raises
        ------
        ValueError
            as `predict_many`; nothing is observed then.
        """
        with self._lock:
            return self._calls.answer_many(scores, segments, observes=observes)

    # Events

    def step(self, event: Event) -> tuple[Emission, ...]:
        """Take one event of a stream: answer a prediction, join a label, learn.

        ``event.kept`` of a prediction has the value of each field of segments, or the score of each class:
        its ``score`` is then the largest of these. A label of many classes is a name, or its place.

        Returns
        -------
        `Recalibrated` at once for a prediction, `MapPublished` when a new version is served from now on,
        `Rejected` for an event that changed nothing.

        Raises
        ------
        ValueError
            if a field of the event is invalid (docs/events.md), or a label has no time under a ``window`` of
            event time, or an event has no time under a ``label_delay_limit``; nothing has changed then.

        Warns
        -----
        UserWarning
            as `learn_one`.
        """
        event = self._calls.event(event)
        given, why = event.time, refused(event, self.config, self._join)
        if why is not None:
            raise ValueError(why.reason)
        self._lock.acquire()
        try:
            if given is not None:
                time = self._join.guard.take(given)
                if isinstance(time, Refusal):
                    return (Rejected(time.code, time.fields, event=event),)
                if time != given:
                    event = msgspec.structs.replace(event, time=time)
            outcomes = step(event, self._join, self._engine_of)
            if self._seeks_source:
                self._seek_source()
        finally:
            self._lock.release()
        return emitted(outcomes)

    def _seek_source(self, stacklevel: int = 3) -> None:
        """Warn of a mode that has no source to form its map from, once; a source ends the search."""
        engine = self._engine
        if engine.lacks_source:
            self._seeks_source = False
            warnings.warn(
                f"mode {self.config.mode!r} has learned {engine.target.labels:,} labels of the target and"
                " none of the source: it serves the score unchanged. Learn labels from before the deployment"
                " with domain='source', or take mode='auto' or mode='target'",
                stacklevel=stacklevel,
            )
        elif engine.source.labels:
            self._seeks_source = False

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        with self._lock:
            join = self._join.config.model_dump_json().encode(), self._join.to_bytes()
            return pack([self._engine.to_bytes(), *join, encoded(self._options)])

    def __reduce__(self) -> tuple[Callable[[bytes], Recalibrator], tuple[bytes]]:
        """Copy and pickle by way of `to_bytes`."""
        return type(self).from_bytes, (self.to_bytes(),)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore an engine from `to_bytes`; bytes from anywhere run no code.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        engine, join_options, join, body = unpack(data, 4)
        options = decoded(body, EngineOptions, "a recalibrator")
        with restoring("not the state of a recalibrator"):
            restored = cls.__new__(cls)
            restored._use(options, JoinConfig.model_validate_json(join_options), engine, join)
        return restored


def engine_of(
    options: EngineOptions, key: str | None, data: bytes | None = None, rows: StoredRows | None = None
) -> Engine:
    """Return the engine of a key: of many classes, with segments, or of two classes alone.

    Parameters are those of `Engine.make`.

    Raises
    ------
    DamagedStateError
        if the bytes are no state of an engine with these options.
    """
    kind = ClassesEngine if options.classes else SegmentedEngine if options.fields else Engine
    engine = kind.make(options, key, data, rows)
    if data is not None and engine.config != options.config:
        raise DamagedStateError(f"the state of the engine of key {key!r} is one of other options")
    return engine


def made_of(options: EngineOptions) -> Recalibrator:
    """Return a new engine with these options, for rooms that make others like it."""
    made = Recalibrator.__new__(Recalibrator)
    made._use(options, JoinConfig())
    return made


def options_of(engine: Recalibrator) -> EngineOptions:
    """Return all options of an engine, for rooms that make others like it."""
    return engine._options


def calls_of(engine: Recalibrator) -> Calls[Any]:
    """Return what checks and takes the calls on an engine, for rooms that speak to it in rows."""
    return engine._calls


def _check_config(config: object) -> None:
    if not isinstance(config, RecalibratorConfig | None):
        hint = f"Recalibrator(mode={config!r})" if isinstance(config, str) else "Recalibrator(mode=...)"
        raise TypeError(
            f"config must be a RecalibratorConfig, got {shown(config)}; options go by name: {hint}"
        )
