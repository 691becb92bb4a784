"""Recalibrator: the public engine. It learns labelled scores, re-forms the map on schedule, and applies it.

It checks what users hand in; the work is done by `streamcal.engine.engine`. State: one labelled sketch a
domain, one sketch of unlabelled target scores, the map h as it was last formed, and the join of
`Recalibrator.step`. Memory is bounded by that of sketches and by ``max_pending``.

More than half of this file is the documentation of the public methods, which belong to one class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self, Unpack

import msgspec

from streamcal.certificates.record import Certificate
from streamcal.engine.checked_c import checked, lacks_time, refuses_weight
from streamcal.engine.config import (
    RecalibratorConfig,
    RecalibratorOptions,
    names_options,
    with_join,
)
from streamcal.engine.emissions import DriftAlarm, Emission, Mixing, Rejected
from streamcal.engine.engine import DomainSummary, Engine
from streamcal.engine.state import pack, unpack
from streamcal.engine.stepping_c import emitted, step
from streamcal.events import Domain, Event
from streamcal.events.codes import Refusal
from streamcal.join.join_c import Join, JoinConfig
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.release.label_delays import LabelDelays
from streamcal.sketch import checks
from streamcal.sketch.decoding import restoring
from streamcal.sketch.score_sketch import MAX_CELLS, ScoreSketch
from streamcal.sketch.weighing import ONE, as_units, check_weight, units_of
from streamcal.times import Time, as_times, check_time
from streamcal.values import Floats, check_domain, shown

__all__ = ["DomainSummary", "Recalibrator"]


class Recalibrator:
    """Turn scores into probabilities, and keep doing so while labels arrive.

    Parameters
    ----------
    config
        all options in one object.
    join
        options of the join that `step` uses.
    **options
        instead of ``config``: the options of `RecalibratorConfig` by name.

    Raises
    ------
    ValueError
        if an option is unknown or out of range (pydantic.ValidationError), or if both ``config`` and
        options are given.
    TypeError
        if ``config`` is anything else.

    Examples
    --------
    >>> engine = Recalibrator(mode="target", bins=2)
    >>> engine.predict_one(0.7)
    0.7
    >>> engine.learn_many([0.2, 0.4, 0.7, 0.9] * 32, [0, 0, 0, 1] * 32)
    >>> engine.version, engine.predict_one(0.7)
    (8, 0.5)
    """

    @names_options
    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        *,
        join: JoinConfig | None = None,
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        _check_config(config)
        if config is not None and options:
            raise ValueError(f"give either a config or options, got both: {sorted(options)}")
        join = join or JoinConfig()
        config = config or RecalibratorConfig(**options)
        config.check_binary()
        self._use(Engine(with_join(config, join)), Join(join))

    def _use(self, engine: Engine, join: Join) -> None:
        self._engine, self._join = engine, join
        self._engine_of = lambda _: engine
        self._served = engine.served
        self._seeks_source = engine.config.needs_source
        self._may_refuse = engine.config.why_unweighted is not None or not join.takes_blocks

    def __repr__(self) -> str:
        source, target = self.source, self.target
        return (
            f"Recalibrator(mode={self.config.mode!r}, version={self.version}, "
            f"source={source.labels:,} labels, "
            f"target={target.labels:,} labels, predictions={target.scores:,})"
        )

    # What it knows

    @property
    def config(self) -> RecalibratorConfig:
        """Options of the engine."""
        return self._engine.config

    @property
    def map(self) -> RecalibrationMap:
        """Served map, with the current weights of the shift correction."""
        return self._engine.map

    @property
    def version(self) -> int:
        """Number of the served map version: 0 before the first."""
        return self._engine.version

    @property
    def mixing(self) -> Mixing | None:
        """Weights of the candidates; None in other modes than ``auto``, and before its first step."""
        return self._engine.mixing

    @property
    def source(self) -> DomainSummary:
        """Counts and prior of the source domain."""
        return self._engine.source

    @property
    def target(self) -> DomainSummary:
        """Counts and prior of the target domain."""
        return self._engine.target

    @property
    def prediction_count(self) -> int:
        """Number of target scores observed so far; see `learn_one`."""
        return self._engine.prediction_count

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the served map now; None before the first version.

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
        score: float,
        label: int,
        domain: Domain = "target",
        *,
        time: Time | None = None,
        prediction_index: int | None = None,
        weight: float | None = None,
        positive: object = None,
    ) -> None:
        """Learn one score with its label.

        Parameters
        ----------
        score, label
            a number in [0, 1]; 0 or 1, or any label if ``positive`` is given.
        domain
            where they come from. ``"target"``: the deployment. ``"source"``: from before, such as the model's
            calibration set; the modes ``source``, ``label_shift`` and ``composite`` need such labels.
        time
            event time of the label; needed only for a ``window`` of event time. Seconds since the epoch (from
            1e11 on, milliseconds, microseconds or nanoseconds, by magnitude), a datetime, a date, or ISO 8601
            text; UTC if it has no zone.
        prediction_index
            for a target score: the `prediction_count` when it was predicted; None: its label came at once, so
            it tells nothing of delays, and is not held though one class comes later.
        weight
            number of predictions that the label stands for, from 1/256 to 10,000: one over the chance that it
            was seen. It is rounded to a multiple of 1/256. None: 1. See docs/events.md.
        positive
            the label that counts as 1, a number or a text; any other counts as 0.

        Raises
        ------
        ValueError
            if the score is not a number in [0, 1], the label does not equal 0 or 1, the domain is neither
            ``"source"`` nor ``"target"``, a time is missing or invalid, or the weight is out of range, or not
            for these options (the message says which); nothing is learned then.

        Warns
        -----
        UserWarning
            once, if the mode needs source labels and has none, but 64 of the target: it serves the score
            unchanged.
        """
        if not self._engine.learn_usual(score, label, domain, time, prediction_index, weight, positive):
            score, label = checks.check_score(score), checks.check_label(label, positive)
            check_domain(domain)
            self._learn_one(score, label, domain, time, prediction_index, weight, None)
        elif self._seeks_source:
            self._seek_source()

    def _learn_one(
        self,
        score: float,
        label: int,
        domain: Domain,
        time: Time | None,
        prediction_index: int | None,
        weight: float | None,
        memo: bytes | None,
    ) -> None:
        """Learn a checked score with its label, and what is kept with it."""
        moment = check_time(time)
        units = ONE if weight is None else units_of(check_weight(weight))
        if units != ONE:
            self._check_weighs()
        self._engine.learn_one(score, label, domain, moment, prediction_index, units, memo)
        if self._seeks_source:
            self._seek_source()

    def learn_many(
        self,
        scores: Any,
        labels: Any,
        domain: Domain = "target",
        *,
        times: Any = None,
        prediction_index: int | None = None,
        weights: Any = None,
        positive: object = None,
    ) -> None:
        """Learn n scores with their labels, as n calls of `learn_one` would.

        The outcome is the same: map, certificate and alarms. Maps that no prediction could be served with are
        not formed. Only in mode ``auto``, and without ``prediction_index``, labels of the target differ:
        those of one call were predicted before that call, and no map that has learned from the first of them
        is judged by the others. A call that brings more labels than there were is taken in parts, each as
        long as all before.

        Parameters
        ----------
        scores, labels
            array-likes of length n: numpy, lists, pandas, polars or Arrow columns.
        domain
            where they come from, as in `learn_one`.
        times
            event times as in `learn_one`, all in one unit: an array-like of length n (numpy, lists, pandas,
            polars or Arrow columns), or one for all.
        prediction_index
            for target scores: the `prediction_count` when they were predicted; None: just before this call.
        weights
            weight of each label, as in `learn_one`: an array-like of length n; None: all are 1.
        positive
            the label that counts as 1, a number or a text; the one other label in ``labels`` counts as 0.

        Raises
        ------
        ValueError
            as `learn_one`, with the index of the first bad value, or if the lengths differ, or with
            ``positive`` if there is a third label; nothing is learned then.

        Warns
        -----
        UserWarning
            as `learn_one`.
        """
        values, classes = checks.as_scores(scores), checks.as_labels(labels, positive)
        if len(values) != len(classes):
            raise ValueError(f"{len(values)} scores but {len(classes)} labels")
        check_domain(domain)
        moments = None if times is None else as_times(times, len(values))
        units = None if weights is None else as_units(weights, len(values))
        if units is not None:
            self._check_weighs()
        self._engine.learn_many(values, classes, domain, moments, prediction_index, units)
        if self._seeks_source:
            self._seek_source()

    def observe_one(self, score: float) -> None:
        """Observe a target score whose label is not known (yet).

        Raises
        ------
        ValueError
            if it is not a number in [0, 1].
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = checks.check_score(score)
        self._engine.observe_one(score)

    def observe_many(self, scores: Any) -> None:
        """Observe n target scores, as n calls of `observe_one` would.

        Raises
        ------
        ValueError
            as `observe_one`, with the index of the first bad value; nothing is noted then.
        """
        self._engine.observe_many(checks.as_scores(scores))

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
            windows, a prior that follows scores; or if the sketch has no labels or another ``max_cells``.
        """
        self._check_sketch(sketch, labelled=True)
        check_domain(domain)
        self._engine.learn_sketch(sketch, domain)

    def observe_sketch(self, sketch: ScoreSketch) -> None:
        """Observe target scores, labels not known (yet), that were counted elsewhere.

        Raises
        ------
        ValueError
            as `learn_sketch`; or if the sketch has labels.
        """
        self._check_sketch(sketch, labelled=False)
        self._engine.observe_sketch(sketch)

    def _check_sketch(self, sketch: ScoreSketch, *, labelled: bool) -> None:
        why = self.config.why_ordered
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
        self._engine.refresh()

    # Predicting

    def predict_one(self, score: float) -> float:
        """Return the probability in [0, 1] of one score; before the first map, the score itself.

        Raises
        ------
        ValueError
            if it is not a number in [0, 1].
        """
        return self._served.predict_one(score)

    def predict_many(self, scores: Any) -> Floats:
        """Return the probability of every score, float64[n], as n calls of `predict_one` would.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad value.
        """
        return self._served.predict_many(checks.as_scores(scores))

    # Events

    def step(self, event: Event) -> tuple[Emission, ...]:
        """Take one event of a stream: answer a prediction, join a label, learn.

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
        event = checked(event)
        given = event.time
        refused = None if given is not None else lacks_time(event, self.config)
        if refused is None and self._may_refuse:
            refused = self._join.refuses(event) or refuses_weight(event, self.config)
        if refused is not None:
            raise ValueError(refused.reason)
        if given is not None:
            time = self._join.guard.take(given)
            if isinstance(time, Refusal):
                return (Rejected(time.code, time.fields, event=event),)
            if time != given:
                event = msgspec.structs.replace(event, time=time)
        outcomes = step(event, self._join, self._engine_of)
        if self._seeks_source:
            self._seek_source()
        return emitted(outcomes)

    def _check_weighs(self) -> None:
        """Check that these options take labels with weights."""
        why = self.config.why_unweighted
        if why is not None:
            raise ValueError(f"labels must not have weights other than 1: {why}")

    def _seek_source(self) -> None:
        """Warn of a mode that has no source to form its map from, once; a source ends the search."""
        engine = self._engine
        if engine.lacks_source:
            self._seeks_source = False
            warnings.warn(
                f"mode {self.config.mode!r} has learned {engine.target.labels:,} labels of the target and"
                " none of the source: it serves the score unchanged. Learn labels from before the deployment"
                " with domain='source', or take mode='auto' or mode='target'",
                stacklevel=3,
            )
        elif engine.source.labels:
            self._seeks_source = False

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        join = self._join.config.model_dump_json().encode(), self._join.to_bytes()
        return pack([self._engine.to_bytes(), *join])

    def __reduce__(self) -> tuple[Callable[[bytes], Recalibrator], tuple[bytes]]:
        """Copy and pickle by way of `to_bytes`."""
        return type(self).from_bytes, (self.to_bytes(),)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore an engine from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        engine, join_options, join = unpack(data, 3)
        with restoring("not the state of a recalibrator"):
            join_config = JoinConfig.model_validate_json(join_options)
        restored = cls.__new__(cls)
        restored._use(Engine.from_bytes(engine), Join.from_bytes(join, join_config))
        return restored


def _check_config(config: object) -> None:
    if not isinstance(config, RecalibratorConfig | None):
        hint = f"Recalibrator(mode={config!r})" if isinstance(config, str) else "Recalibrator(mode=...)"
        raise TypeError(
            f"config must be a RecalibratorConfig, got {shown(config)}; options go by name: {hint}"
        )
