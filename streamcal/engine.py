"""Recalibrator: the engine. It learns labelled scores, re-forms the map on schedule, and applies it.

State: one labelled sketch a domain, one sketch of unlabelled target scores, the map h as it was last formed,
and the join of `Recalibrator.step`. Memory is bounded by ``max_cells`` and ``max_pending``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from streamcal import grid
from streamcal.certificate import Certificate
from streamcal.certifier import Certifier, Formed, Target
from streamcal.config import JoinConfig, RecalibratorConfig
from streamcal.errors import DamagedStateError
from streamcal.forming import form
from streamcal.join import Join, Joined
from streamcal.labels import BLOCK, DomainSummary, LabelLog
from streamcal.maps import RecalibrationMap, shift_correction_one
from streamcal.priors import LabelWindow, shift_weights
from streamcal.schedule import FIRST_LABELS, Schedule
from streamcal.sketch import ScoreSketch
from streamcal.state import pack, unpack
from streamcal.types import (
    Domain,
    DriftAlarm,
    Emission,
    Event,
    LabelledEvent,
    MapPublished,
    PredictionEvent,
    Recalibrated,
)

__all__ = ["Recalibrator"]


class _Meta(msgspec.Struct):
    refreshes: int
    time: float | None
    formed_from: Domain
    recent: list[int]  # the labels of the target's prior_window


class Recalibrator:
    """Turn scores into probabilities, and keep doing so while labels arrive.

    Parameters
    ----------
    config
        all options in one object, or
    **options
        each by its name, see `RecalibratorConfig`.
    join
        options of the join that `step` uses.

    Raises
    ------
    ValueError
        on an option that is unknown or out of range (pydantic.ValidationError), or if both ``config`` and
        options are given.

    Examples
    --------
    >>> engine = Recalibrator(bins=2)
    >>> engine.predict_one(0.7)
    0.7
    >>> engine.learn_many([0.2, 0.4, 0.7, 0.9] * 32, [0, 0, 0, 1] * 32)
    >>> engine.version, engine.predict_one(0.7)
    (8, 0.5)
    """

    def __init__(
        self,
        config: RecalibratorConfig | None = None,
        *,
        join: JoinConfig | None = None,
        **options: Any,
    ) -> None:
        if config is not None and options:
            raise ValueError(f"give either a config or options, got both: {sorted(options)}")
        self._config = config or RecalibratorConfig(**options)
        self._schedule = Schedule(self._config.growth)
        cells = self._config.max_cells
        window = self._config.prior_window
        self._logs = {
            "source": LabelLog(ScoreSketch(cells)),
            "target": LabelLog(ScoreSketch(cells), LabelWindow(window) if window else None),
        }
        self._traffic = ScoreSketch(cells, labelled=False)
        self._observed = array("d")
        self._refreshes = 0
        self._formed_from: Domain = "target" if self._config.mode == "target" else "source"
        self._base = RecalibrationMap(version=0)
        mode = self._config.mode
        self._certifier = Certifier(
            self._config.delta,
            cells,
            shifts=mode not in ("source", "target"),
            identity=mode == "label_shift",
        )
        self._watch = self._certifier.watch
        self._join = Join(join)
        self._time: float | None = None  # the latest event time of a label
        self._weights: tuple[float, float] | None = None
        self._settle()

    # What it knows

    @property
    def config(self) -> RecalibratorConfig:
        """The options."""
        return self._config

    @property
    def map(self) -> RecalibrationMap:
        """The map that is served now, with the current weights of the shift correction."""
        return self._base.model_copy(update={"version": self.version, "weights": self._current_weights()})

    @property
    def version(self) -> int:
        """The number of the served map version: 0 for the identity, before the first."""
        return self._version

    @property
    def source(self) -> DomainSummary:
        """Counts and prior of the source domain."""
        return self._logs["source"].summary(self._config.prior_smoothing, 0)

    @property
    def target(self) -> DomainSummary:
        """Counts and prior of the target domain."""
        scores = self._traffic.n + len(self._observed)
        return self._logs["target"].summary(self._config.prior_smoothing, scores)

    @property
    def certificate(self) -> Certificate | None:
        """What may be claimed of the served map now; None before the first version.

        Of a map formed off schedule nothing is claimed: it is then the certificate of the version before,
        and says so.
        """
        self._flush()
        target = self._logs["target"]
        scores = self._traffic if self._traffic.n >= target.n else target.sketch
        labels = (target.positives, target.n)
        known = Target(scores, labels, self._current_weights())
        return self._certifier.certificate(known, self._time)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates that were asked for or emitted so far, thinned to a bounded number.

        They are not part of the state that `to_bytes` gives; a store keeps those that were emitted.
        """
        return self._certifier.history

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """The assumptions refuted so far, each once."""
        return self._certifier.alarms

    @property
    def log_e_value(self) -> float | None:
        """The log of the e-value against label shift, as of the last look; None before there is one."""
        return None if self._watch is None else self._watch.log_e

    @property
    def join(self) -> Join:
        """The join of predictions and labels that `step` uses."""
        return self._join

    # Learning

    def learn_one(self, score: float, label: int, domain: Domain = "source") -> None:
        """Learn one score in [0, 1] with its label, 0 or 1.

        Raises
        ------
        ValueError
            if the score is no number in [0, 1], the label does not equal 0 or 1, or the domain is neither
            ``"source"`` nor ``"target"``; nothing is learned then.
        """
        # The usual types pass by a glance; what remains is checked, or refused, at length.
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = grid.check_score(score)
        if type(label) is not int or (label != 0 and label != 1):
            label = grid.check_label(label)
        log = self._logs.get(domain) or self._log(domain)
        log.append(score, label)
        self._weights = None
        if log.n >= self._next[domain]:
            self._reform(domain)
        if domain == "target" and self._watch is not None:
            self._watch.add(score, label)
            if self._watch.due:
                self._look()

    def learn_many(self, scores: Any, labels: Any, domain: Domain = "source") -> None:
        """Learn n scores with their labels, as n calls of `learn_one` would.

        Only the test of label shift looks but once, at the end.

        Parameters
        ----------
        scores, labels
            array-likes of length n: numpy, lists, pandas, polars or Arrow columns.
        domain
            where they come from.

        Raises
        ------
        ValueError
            as `learn_one`, with the index of the first bad value, or if the lengths differ; nothing is
            learned then.
        """
        values, classes = grid.as_scores(scores), grid.as_labels(labels)
        if len(values) != len(classes):
            raise ValueError(f"{len(values)} scores but {len(classes)} labels")
        log = self._log(domain)
        end = log.n + len(values)
        passed = self._schedule.passed(end)
        if end >= self._next[domain]:
            # Maps of the versions in between would be served to nobody: only the last is formed.
            split = self._schedule.count(passed - 1) - log.n
            log.extend(values[:split], classes[:split])
            self._reform(domain)
            log.extend(values[split:], classes[split:])
        else:
            log.extend(values, classes)
        self._weights = None
        if domain == "target" and self._watch is not None:
            self._watch.extend(values, classes)
            if self._watch.due:
                self._look()

    def observe_one(self, score: float) -> None:
        """Take note of a target score whose label is not known (yet).

        Raises
        ------
        ValueError
            if it is no number in [0, 1].
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = grid.check_score(score)
        self._observed.append(score)
        if len(self._observed) >= BLOCK:
            self._flush()

    def observe_many(self, scores: Any) -> None:
        """Take note of n target scores, as n calls of `observe_one` would.

        Raises
        ------
        ValueError
            as `observe_one`, with the index of the first bad value; nothing is noted then.
        """
        values = grid.as_scores(scores)
        if len(self._observed) + len(values) <= BLOCK:
            self._observed.frombytes(values.tobytes())
        else:
            self._flush()
            self._traffic._add(values, None)

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        self._refreshes += 1
        self._form(self._domain_to_form_from(), scheduled=False)
        self._settle()

    def merge(self, other: Recalibrator) -> None:
        """Add all that another engine has learned and observed, and re-form the map: a new version.

        Pending predictions of its join stay with the other. Under ``prior_window``, the other's labels count
        as the later ones.

        Raises
        ------
        ValueError
            if the two were made with different options; it names them.
        """
        mine, theirs = self._config.model_dump(), other._config.model_dump()
        unlike = [name for name, value in mine.items() if theirs[name] != value]
        if unlike:
            raise ValueError(f"cannot merge engines that differ in {', '.join(unlike)}")
        self._flush()
        other._flush()
        for domain, log in self._logs.items():
            log.merge(other._logs[domain])
        self._traffic.merge(other._traffic)
        self._refreshes += other._refreshes
        self.refresh()

    # Predicting

    def predict_one(self, score: float) -> float:
        """Return the probability in [0, 1] of one score; before the first map, the score itself.

        Raises
        ------
        ValueError
            if it is no number in [0, 1].
        """
        if type(score) is not float or not 0.0 <= score <= 1.0:
            score = grid.check_score(score)
        inner_edges, values = self._steps
        probability = values[bisect_right(inner_edges, score)] if values else score
        weights = self._weights or self._current_weights()
        return probability if weights[0] == weights[1] else shift_correction_one(probability, weights)

    def predict_many(self, scores: Any) -> npt.NDArray[np.float64]:
        """Return the probability of every score, float64[n], as n calls of `predict_one` would.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad value.
        """
        return self._base._apply(grid.as_scores(scores), self._current_weights())

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
            if the event holds a score or a label that is none; nothing has changed then.
        """
        if isinstance(event, PredictionEvent | LabelledEvent):
            grid.check_score(event.score)
        if not isinstance(event, PredictionEvent):
            grid.check_label(event.label)
        return self._join.step(event, lambda _: self)

    def answer(self, event: PredictionEvent | LabelledEvent) -> Recalibrated:
        """Return the probability of a prediction, and observe its score if it is of the target."""
        probability = self.predict_one(event.score)
        if event.domain == "target":
            self.observe_one(event.score)
        return Recalibrated(event.id, event.score, probability, self._version, self._current_weights())

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a joined label; return the new map if that made one, and the alarms it raised."""
        version, alarms, time = self._version, len(self.alarms), joined.labelled_at
        if time is not None and (self._time is None or time > self._time):
            self._time = time
        self.learn_one(joined.score, joined.label, joined.domain)
        published: tuple[Emission, ...] = ()
        if self._version != version:
            published = (MapPublished(self.map, self.certificate),)
        return published + self.alarms[alarms:]

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        self._flush()
        recent = self._logs["target"].recent
        parts = [
            self._config.model_dump_json().encode(),
            self._join.config.model_dump_json().encode(),
            self._base.model_dump_json().encode(),
            msgspec.json.encode(
                _Meta(self._refreshes, self._time, self._formed_from, recent.labels if recent else [])
            ),
            self._logs["source"].sketch.to_bytes(),
            self._logs["target"].sketch.to_bytes(),
            self._traffic.to_bytes(),
            self._certifier.to_bytes(),
            self._join.to_bytes(),
        ]
        return pack(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore an engine from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        parts = unpack(data, 9)
        try:
            config = RecalibratorConfig.model_validate_json(parts[0])
            join_config = JoinConfig.model_validate_json(parts[1])
            base = RecalibrationMap.model_validate_json(parts[2])
            meta = msgspec.json.decode(parts[3], type=_Meta)
        except (ValidationError, msgspec.DecodeError) as error:
            raise DamagedStateError(f"engine state is damaged: {error}") from None
        source, target, traffic = (ScoreSketch.from_bytes(part) for part in parts[4:7])
        if (source.labelled, target.labelled, traffic.labelled) != (True, True, False) or {
            sketch.max_cells for sketch in (source, target, traffic)
        } != {config.max_cells}:
            raise DamagedStateError("engine state is damaged: its sketches are not those of its options")
        engine = cls(config)
        window = engine._logs["target"].recent
        if window is not None:
            window.extend(map(grid.check_label, meta.recent))
        engine._logs = {"source": LabelLog(source), "target": LabelLog(target, window)}
        engine._traffic, engine._base, engine._refreshes = traffic, base, meta.refreshes
        engine._formed_from, engine._time = meta.formed_from, meta.time
        engine._certifier.restore(parts[7])
        engine._join = Join.from_bytes(parts[8], join_config)
        engine._settle()
        return engine

    # Inside

    def _log(self, domain: str) -> LabelLog:
        try:
            return self._logs[domain]
        except KeyError:
            raise ValueError(f"a domain must be 'source' or 'target', got {domain!r}") from None

    def _look(self) -> None:
        """Look whether the target's labels refute label shift."""
        self._flush()
        self._certifier.look(self._logs["source"].sketch, self._logs["target"].sketch)

    def _flush(self) -> None:
        """Sort all buffers into their sketches."""
        for log in self._logs.values():
            log.flush()
        if self._observed:
            self._traffic._add(np.frombuffer(self._observed), None)
            self._observed = array("d")

    def _current_weights(self) -> tuple[float, float]:
        if self._weights is None:
            self._weights = (
                (1.0, 1.0)
                if self._config.mode == "source" or self._formed_from == "target"
                else shift_weights(
                    self._logs["source"].prior_counts,
                    self._logs["target"].prior_counts,
                    self._config.prior_smoothing,
                )
            )
        return self._weights

    def _reform(self, domain: Domain) -> None:
        """Start the version that is due now that a domain's labels have reached a scheduled count."""
        if domain == self._domain_to_form_from():
            self._form(domain, scheduled=True)
        self._settle()
        self._certifier.serve(self._version)

    def _settle(self) -> None:
        """Work out, from the counts, the version and when the next is due."""
        # Laid out for predict_one: to read a field of a pydantic model takes as long as to search for a bin.
        self._steps = self._base.edges[1:-1], self._base.values
        domains: tuple[Domain, ...] = ("source", "target")
        if self._config.mode in ("source", "target"):
            domains = (self._config.mode,)
        passed = {domain: self._schedule.passed(self._logs[domain].n) for domain in domains}
        self._version = sum(passed.values()) + self._refreshes
        self._next: dict[str, float] = {"source": np.inf, "target": np.inf}
        self._next |= {domain: self._schedule.count(count) for domain, count in passed.items()}
        self._weights = None

    def _domain_to_form_from(self) -> Domain:
        source, target = self._logs["source"], self._logs["target"]
        if self._config.mode == "auto" and source.n < min(FIRST_LABELS, target.n):
            return "target"
        return "target" if self._config.mode == "target" else "source"

    def _form(self, domain: Domain, *, scheduled: bool) -> None:
        """Form h from the labels of a domain so far."""
        log = self._logs[domain]
        if not log.n:
            return
        log.flush()
        formed = form(log.sketch, self._config.bins)
        if self._config.mode != "label_shift":
            self._base, self._formed_from = formed.map, domain
        if not scheduled:
            self._certifier.form_off_schedule()
        else:
            place = self._schedule.passed(log.n) - 1
            cells = log.sketch.to_bytes()
            self._certifier.form(Formed(cells, formed.splits, formed.choices, place, domain))
