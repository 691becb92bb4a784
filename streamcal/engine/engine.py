"""Engine: answers predictions and learns labels, for one key of a run or behind a `Recalibrator`.

A label is counted and buffered when it comes (`DomainLabels`). At the label counts where something is due,
and only there, the engine lets each part read what is new, always in the same order: the map version that
the count begins, the mixture, the test of label shift. So the outcome does not depend on whether labels come
one by one or many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Counts, Floats, Labels
from streamcal.certificates.record import Certificate
from streamcal.delayed.label_delays import LabelDelays, label_delays
from streamcal.engine.calls import BinaryCalls, Calls
from streamcal.engine.config import EngineOptions, RecalibratorConfig
from streamcal.engine.emissions import DriftAlarm, Emission, Mixing
from streamcal.engine.event_rules_c import EventRules
from streamcal.engine.map_versions import VersionsState
from streamcal.engine.schedule import FIRST_LABELS, parts_of_call
from streamcal.engine.state import EngineState, compressed, expanded, pack, unpack
from streamcal.events import DOMAINS, Domain, LabelledEvent
from streamcal.join.outcomes import Contradicted, EarlyPositive
from streamcal.maps.rate_limits import RateLimits
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.counts_c import AT_ONCE, IN_CALL
from streamcal.sketch.decoding import decoded, encoded, restoring
from streamcal.sketch.score_sketch import ScoreSketch

_YOUNG: Final = 12 << 10  # bytes of an engine, and what is added as its labels double
_OLDER: Final = 5 << 10
_SCORES: Final = 16  # without a label, which take as much as one

# Of a state, which engines share.
_written_options = lru_cache(16)(RecalibratorConfig.model_dump_json)
_read_options = lru_cache(16)(RecalibratorConfig.model_validate_json)


class DomainSummary(msgspec.Struct, frozen=True):
    """Counts and prior of one domain."""

    labels: int
    """Number of labelled scores, including those that a window has dropped, or that are still held."""
    positives: int
    """Number of labelled scores with label 1."""
    prior: float | None
    """Smoothed estimate of the current probability of class 1; None before the first label."""
    scores: int
    """Number of scores observed without regard to their label (target only)."""


class Engine(EventRules):
    """One engine; its parameters are those of `EventRules`."""

    __slots__ = ()

    by_class: Any = None
    """Names, priors, weights and certificates of many classes; None: there are two."""
    by_segment: Any = None
    """Corrections of segments; None: there are none."""

    # What it knows

    @property
    def memory(self) -> int:
        """Bytes that it takes in memory: an estimate, off by a factor of two at most."""
        rows = int(self._source.n + self._target.n + self._unlabelled.n // _SCORES)
        return _YOUNG + _OLDER * rows.bit_length() ** 2

    @property
    def prediction_count(self) -> int:
        """Number of target scores observed so far."""
        count: int = self._unlabelled.n
        return count

    @property
    def map(self) -> RecalibrationMap:
        """Served map, with the current weights of the shift correction."""
        return self.served.map

    @property
    def version(self) -> int:
        """Number of the served map version."""
        return self.served.version

    @property
    def mixing(self) -> Mixing | None:
        """Weights of the candidates; None in other modes than ``auto``, and before its first step."""
        mixed = self._versions.mixed
        return None if mixed is None else mixed.mixing

    @property
    def source(self) -> DomainSummary:
        """Counts and prior of the source."""
        return DomainSummary(self._source.n, self._source.positives, self._priors.of("source"), 0)

    @property
    def target(self) -> DomainSummary:
        """Counts and prior of the target."""
        prior = self._priors.of("target")
        labels, positives = self._target.n, self._target.positives
        if self.release is not None:
            more = self.release.beyond(1)
            labels, positives = labels + self.release.beyond(0) + more, positives + more
        return DomainSummary(labels, positives, prior, self._unlabelled.n)

    @property
    def lacks_source(self) -> bool:
        """Whether the score is served unchanged for lack of source labels, with enough target labels."""
        return self.config.needs_source and not self._source.n and self._target.n >= FIRST_LABELS

    @property
    def certificate(self) -> Certificate | None:
        """Certificate of the served map now, see `Recalibrator.certificate`."""
        claim = self._versions.claim(self._time)
        return None if claim is None else claim.foreseen()

    def draw_labels(self, *, plain: bool) -> None:
        """Note that a sampler draws which labels come, see `ask_label`; ``plain``: all with one chance."""
        self._versions.draw_labels(plain=plain)
        if self.release is not None:
            self.release.drawn, self.release.excludes = True, False

    def ask_label(self, score: float) -> None:
        """Note that the label of the latest prediction, which has this score, is drawn."""
        self._versions.asked = (self._versions.asked or 0) + 1
        if self.release is not None:
            self.release.ask()
            if self.release.unsettled:
                self.release.expect(self.served.forecast(score))

    def rate_limits(self, probability: float) -> RateLimits:
        """Return limits of the rate of label 1 at a score, which hold with this probability."""
        return self._versions.rate_limits(probability)

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """Alarms raised so far."""
        return self._versions.alarms

    @property
    def alarms_now(self) -> tuple[DriftAlarm, ...]:
        """Assumptions refuted so far, see `Recalibrator.alarms`."""
        return self._versions.alarms_now

    @property
    def log_e_value(self) -> float | None:
        """Log of the e-value against label shift, as of the last look; None before there is one."""
        return self._versions.log_e_value

    @property
    def label_delays(self) -> LabelDelays | None:
        """Delays of labels by class, and labels held; None where labels are learned whenever they come."""
        return None if self.release is None else label_delays(self.release)

    @property
    def why_unsketched(self) -> str | None:
        """Reason why no sketch can be learned; None if one can."""
        return self.config.why_ordered

    @property
    def why_unweighted(self) -> str | None:
        """Reason why labels must not have weights; None if they may."""
        return self.config.why_unweighted

    def calls(self) -> Calls[Any]:
        """Return what checks the calls of a user."""
        return BinaryCalls(self)

    @property
    def portable_map(self) -> Any:
        """Map by which the engine answers, to take elsewhere: `map`, of many classes a `MulticlassMap`."""
        return self.map

    # Events

    def observe_early(self, positive: EarlyPositive) -> tuple[Emission, ...]:
        """Note a positive that comes before its label is final, under ``label_delay_limit``.

        Returns
        -------
        The map version that this has begun, if it has, as in `answer`.
        """
        if not self._delayed or positive.domain != "target":
            return ()
        if not self._versions.observe_early(positive.score, positive.predicted_at, positive.labelled_at):
            return ()
        self._set_stops()
        return (self._published(None),)

    def contradict(self, contradicted: Contradicted) -> None:
        """Note a label 1 of a prediction that was learned as 0 for want of one.

        The certificates assume that there are none: from the next version on, they may be withdrawn.
        """
        if contradicted.domain == "target":
            self._versions.contradict()

    # Learning

    def learn_many(
        self,
        scores: Floats,
        labels: Labels,
        domain: Domain,
        times: Floats | None,
        prediction_index: Counts | None,
        weights: Floats | None = None,
    ) -> None:
        """Learn checked scores with their labels.

        Parameters
        ----------
        scores, labels, domain, times
            n of them, of one domain; times in seconds, None: they have none.
        prediction_index
            of the target, the number of scores observed before each prediction; None: just before this call.
        weights
            weights of the labels; None: all are 1.
        """
        known = self._target if domain == "target" else self._source
        size = len(scores)
        if size == 1:  # in a tenth of the time
            time = None if times is None else float(times[0])
            index = None if prediction_index is None else int(prediction_index[0])
            weight = 1.0 if weights is None else float(weights[0])
            self.learn_one(float(scores[0]), int(labels[0]), domain, time, index, weight)
            return
        weights = np.ones(size) if weights is None else weights
        before = prediction_index
        if before is None and self.config.mode == "auto":
            before = seen_in_call(size, known.n)
        if domain == "target" and before is not None and self.release is not None:
            passed = self._pass_many(scores, labels, times, before, weights)
            if not passed.all():
                scores, labels, before, weights = (each[passed] for each in (scores, labels, before, weights))
                times = None if times is None else times[passed]
        self._learn_many(scores, labels, domain, times, before, weights)

    def learn_events(
        self, events: Sequence[LabelledEvent], times: Floats | None, weights: Floats | None
    ) -> None:
        """Learn checked events of one domain, predicted just before; see `learn_many`."""
        scores, labels = [event.score for event in events], [event.label for event in events]
        self.learn_many(np.array(scores), np.array(labels, np.int8), events[0].domain, times, None, weights)

    def learn_sketch(self, sketch: ScoreSketch, domain: Domain) -> None:
        """Learn labels that were counted elsewhere; see `Recalibrator.learn_sketch`."""
        if sketch.n:
            self._versions.add_sketch(domain, sketch)
            self.served.forget_weights()
            self._catch_up(domain)

    def observe_sketch(self, sketch: ScoreSketch) -> None:
        """Take target scores that were counted elsewhere; see `Recalibrator.observe_sketch`."""
        self._unlabelled.add_sketch(sketch)

    def observe_many(self, scores: Floats) -> None:
        """Take checked target scores, their labels not known."""
        release, start = self.release, 0
        if release is None:
            self._observe_many(scores)
            return
        while start < len(scores):
            count = release.remaining()
            if release.unsettled and self._priors.takes_scores:
                count = min(count, self._unlabelled.remaining)  # a map may begin behind it
            part = scores[start : start + count]
            if release.unsettled:
                for score in part.tolist():
                    release.expect(self.served.forecast(score))
            self._observe_many(part)
            if release.holds:
                release.note_many(part)
            if self._complete is not None:
                for score in part.tolist():
                    self._complete.predict(score)
            if release.predict_many(len(part)):
                some = release.end()
                if release.on and self._complete is None:
                    self._begin_cohorts()
                if some:
                    self._learn_released()
            start += len(part)

    def _observe_many(self, scores: Floats) -> None:
        if len(scores) > self._unlabelled.remaining and not self._priors.takes_scores:
            self._unlabelled.add(scores)
            return
        start = 0
        while start < len(scores):
            end = start + self._unlabelled.remaining
            if self._unlabelled.extend(scores[start:end]):
                self._drain_scores()
            start = end

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        self._versions.refresh()
        self._set_stops()

    # State

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        return pack(self.parts())

    def parts(self) -> list[bytes]:
        """Return the parts of the state."""
        for domain in DOMAINS:
            self._versions.flush(domain)
        sketch, unread = self._unlabelled.state
        state = EngineState(
            self._source.state,
            self._target.state,
            sketch,
            unread,
            self._priors.tracker,
            self._priors.matched,
            self._time,
            None if self.release is None else self.release.to_state(),
            limits=self.limits,
        )
        versions = self._versions.state
        body = encoded(state), b"" if versions is None else encoded(versions)
        return [_written_options(self.config).encode(), pack([*map(compressed, body)])]

    @classmethod
    def make(
        cls, options: EngineOptions, key: str | None, data: bytes | None = None, rows: Any = None
    ) -> Self:
        """Return the engine of a key of a run.

        Parameters
        ----------
        options
            All options of the run's engines.
        key
            Key of its events; None if they have none.
        data
            State of such an engine; None: a new one.
        rows
            Store of what it has apart from its state, if it has such; None: there is no store.

        Raises
        ------
        DamagedStateError
            If the bytes are no such state.
        """
        del rows
        return cls(options.config, key) if data is None else cls.from_bytes(data, key)

    @classmethod
    def from_bytes(cls, data: bytes, key: str | None = None) -> Self:
        """Restore an engine from `to_bytes`; bytes from anywhere run no code.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        options, body, *_ = unpack(data, 2, more=True)  # the others are those of segments
        own, versions = map(expanded, unpack(body, 2))
        state = decoded(own, EngineState, "an engine")
        state.versions = decoded(versions, VersionsState, "map versions") if versions else None
        with restoring("not the state of an engine"):
            return cls(_read_options(options), key, state)


def seen_in_call(size: int, known: int) -> Counts:
    """Return the number of scores observed before each prediction of one call's labels, int64[size].

    All predictions are taken as made before the call, if it brings no more labels than were ``known``. A
    longer call is taken in parts, each as long as all labels before it: its predictions then knew at least
    half of the labels that came before them.
    """
    prediction_index = np.full(size, IN_CALL)
    prediction_index[parts_of_call(size, known)] = AT_ONCE
    return prediction_index
