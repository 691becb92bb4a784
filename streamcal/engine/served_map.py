"""Serving: the map that an engine serves, re-formed as labels come in, and what is known of it.

In the modes of the paper's estimators, h is formed anew at scheduled counts of labels and g follows every
target label. In mode ``auto`` the map is a tracked mixture, mixed anew at its own counts.
"""

from __future__ import annotations

import math
from array import array
from typing import Any, Final, Self

import msgspec
import numpy as np

from streamcal.certificates.claims import Formed, Target
from streamcal.certificates.ledger import Ledger, Scope
from streamcal.certificates.record import Certificate
from streamcal.engine.auto import Adaptive
from streamcal.engine.config import Mode, RecalibratorConfig
from streamcal.engine.emissions import DriftAlarm, Mixing
from streamcal.engine.schedule import Schedule
from streamcal.errors import DamagedStateError
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import class_prior, shift_weights
from streamcal.maps.uniform_mass import form
from streamcal.priors.factory import make_tracker
from streamcal.priors.tracker import BLOCK, PriorTracker
from streamcal.sketch import checks
from streamcal.sketch.label_log import LabelLog, Labels, Scores
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.traffic import Traffic

__all__ = ["Serving"]

_NEVER: Final = 1 << 62
_MOVED: Final = 0.1  # in log odds: mode auto mixes anew when scores have moved the prior by so much
_LEAST: Final = 1e-6  # what a prior from scores is kept inside of

_SCOPES: Final[dict[Mode, Scope]] = {
    "auto": Scope("served", by_label_shift=True, replaces_source=True),
    "source": Scope("formed", by_label_shift=False),
    "label_shift": Scope("identity", by_label_shift=True),
    "target": Scope("formed", by_label_shift=False),
    "composite": Scope("formed", by_label_shift=True),
}


class _State(msgspec.Struct):
    refreshes: int
    base: bytes | None
    source: bytes
    target: bytes
    certifier: bytes
    adaptive: bytes | None
    traffic: bytes
    tracker: bytes | None
    fresh: bytes
    mixed_prior: float | None


class Serving:
    """The served map of one engine.

    Parameters
    ----------
    config
        of the engine.
    """

    __slots__ = (
        "_adaptive",
        "_certifier",
        "_config",
        "_counted",
        "_fresh",
        "_mixed_prior",
        "_refreshes",
        "_schedules",
        "_tracker",
        "_uncounted",
        "_watch",
        "_weights",
        "base",
        "logs",
        "steps",
        "traffic",
        "version",
    )

    def __init__(self, config: RecalibratorConfig) -> None:
        self._config = config
        cells, mode = config.max_cells, config.mode
        self.traffic = Traffic(cells)
        """The target's scores, labelled or not."""
        self.logs = {
            "source": LabelLog(cells, config.window_of("source")),
            "target": LabelLog(cells, config.window_of("target")),
        }
        """The labels of each domain."""
        self._schedules = {domain: Schedule(config.growth, log.stride) for domain, log in self.logs.items()}
        self._counted: frozenset[str] = frozenset(
            (mode,) if mode in ("source", "target") else ("source", "target")
        )
        self._adaptive = Adaptive(cells) if mode == "auto" else None
        self._certifier = Ledger(config.delta, cells, _SCOPES[mode], windowed=config.window is not None)
        self._watch = self._certifier.watch
        self._uncounted = array("d"), bytearray()  # target scores and labels that the watch did not count yet
        self._tracker: PriorTracker | None = None
        if config.prior != "labels" or config.prior_window is not None:
            # What scores told before a change would outweigh all that comes after it for long.
            window = config.prior_window or ("adwin" if config.prior != "labels" else None)
            self._tracker = make_tracker(config.prior, window, config.prior_smoothing)
        self._fresh = array("d")  # scores that the tracker was not shown yet
        self._mixed_prior: float | None = None  # the prior from scores as of the last mix
        self._refreshes = 0
        self._weights: tuple[float, float] | None = None
        self.base = RecalibrationMap(version=0)
        """The map but for its version and the weights of the shift correction."""
        self._settle()

    @property
    def map(self) -> RecalibrationMap:
        """The map that is served now."""
        return self.base.model_copy(update={"version": self.version, "weights": self.weights})

    @property
    def weights(self) -> tuple[float, float]:
        """(w₀, w₁) of the shift correction on top of `base`, as of the latest label."""
        if self._weights is None:
            self._weights = (
                shift_weights(self.prior("source"), self.prior("target"))
                if self._config.mode in ("composite", "label_shift")
                else (1.0, 1.0)
            )
        return self._weights

    def prior(self, domain: Domain) -> float | None:
        """Return the current estimate of a domain's P[Y=1]; None where nothing is known."""
        if domain == "target" and self._tracker is not None:
            return self._tracker.prior
        return self._prior_of(self.logs[domain])

    def _prior_of(self, log: LabelLog) -> float | None:
        """Return the prior by the labels that a log remembers, see `class_prior`; None before the first."""
        positives, n = log.prior_counts
        return class_prior(positives, n, self._config.prior_smoothing) if n else None

    @property
    def mixing(self) -> Mixing | None:
        """How the map is mixed; None but in mode ``auto``, and before its first step."""
        return None if self._adaptive is None else self._adaptive.mixing

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Those that were asked for, thinned."""
        return self._certifier.history

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """The assumptions refuted so far."""
        return self._certifier.alarms

    @property
    def log_e_value(self) -> float | None:
        """The log of the e-value against label shift, as of the last look; None before there is one."""
        self._count()
        return None if self._watch is None else self._watch.log_e

    def certificate(self, time: float | None) -> Certificate | None:
        """Return what may be claimed of the served map now, at this event time."""
        target = self.logs["target"]
        labels = target.positives, target.n
        return self._certifier.certificate(self.map, Target(self._target_scores, labels), time)

    def learn(self, score: float, label: int, domain: Domain, time: float | None, seen: int | None) -> None:
        """Learn one checked score with its label; see `Recalibrator.learn_one`."""
        log = self.logs[domain]
        log.append(score, label, time)
        if domain == "target" and self._tracker is not None:
            came = np.array([-1 if seen is None else seen])
            self._tracker.take_labels(np.array([label], np.int8), np.array([score]), came)
        self._weights = None
        if log.n >= log.due:
            self._reform(domain)
        if domain == "target" and self._watch is not None:
            if self._adaptive is not None:
                if not self._adaptive.begun:
                    self._begin(self._adaptive)
                if self._adaptive.learn(score, label, seen):
                    self._mix_due(self._adaptive)
            self._uncounted[0].append(score)
            self._uncounted[1].append(label)
            if self._watch.labels + len(self._uncounted[1]) >= self._watch.next_look:
                self._look()

    def learn_many(
        self, scores: Scores, labels: Labels, domain: Domain, times: Scores | None, seen: int | None
    ) -> None:
        """Learn checked scores with their labels; see `Recalibrator.learn_many`."""
        log, schedule = self.logs[domain], self._schedules[domain]
        passed = schedule.passed(log.n + len(scores))
        split = 0
        if domain in self._counted and passed > schedule.passed(log.n):
            # Maps of the versions in between would be served to nobody: only the last is formed.
            split = schedule.count(passed - 1) - log.n
            log.extend(scores[:split], labels[:split], None if times is None else times[:split])
            self._reform(domain)
        log.extend(scores[split:], labels[split:], None if times is None else times[split:])
        if log.n >= log.due:
            self._reform(domain)
        if domain == "target" and self._tracker is not None:
            self._tracker.take_labels(labels, scores, np.full(len(labels), -1 if seen is None else seen))
        self._weights = None
        if domain == "target" and self._watch is not None:
            if self._adaptive is not None:
                self._mix_many(self._adaptive, scores, labels, seen)
            self._count()
            self._watch.count(scores, labels)
            if self._watch.labels >= self._watch.next_look:
                self._look()

    def observe(self, score: float) -> bool:
        """Take a checked target score, its label not known; return whether that began a version."""
        self.traffic.append(score)
        if self._config.prior == "labels":
            return False
        self._fresh.append(score)
        return not self.traffic.n % BLOCK and self._show_fresh()

    def observe_many(self, scores: Scores) -> None:
        """Take checked target scores, their labels not known."""
        start = 0
        if self._config.prior != "labels":
            while start < len(scores):
                end = start + BLOCK - self.traffic.n % BLOCK
                self.traffic.extend(scores[start:end])
                self._fresh.frombytes(scores[start:end].tobytes())
                if not self.traffic.n % BLOCK:
                    self._show_fresh()
                start = end
        self.traffic.extend(scores[start:])

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        self._refreshes += 1
        if self._adaptive is None:
            self._form("target" if self._config.mode == "target" else "source")
            self._certifier.form_off_schedule()
            self._settle()
        else:
            self._form("source")
            self._mix(self._adaptive)

    def merge(self, others: list[Self]) -> None:
        """Add what others have learned, and re-form the map: a new version."""
        for other in others:
            self.traffic.merge(other.traffic)
            if self._tracker is not None and other._tracker is not None:
                self._tracker.take_scores(np.frombuffer(self._fresh))
                self._tracker.merge(other._tracker)
                self._fresh = other._fresh[:]
            for domain, log in self.logs.items():
                log.flush()
                other.logs[domain].flush()
                log.merge(other.logs[domain])
            self._refreshes += other._refreshes
            if self._adaptive is not None and other._adaptive is not None:
                if other._adaptive.begun and not self._adaptive.begun:
                    self._begin(self._adaptive)
                self._adaptive.merge(other._adaptive)
        for domain, log in self.logs.items():
            if domain in self._counted:
                log.versions = max(log.versions, self._schedules[domain].passed(log.n))
        self.refresh()

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        self._count()
        return msgspec.msgpack.encode(
            _State(
                self._refreshes,
                self.base.model_dump_json().encode() if self._adaptive is None else None,
                self.logs["source"].to_bytes(),
                self.logs["target"].to_bytes(),
                self._certifier.to_bytes(),
                None if self._adaptive is None else self._adaptive.to_bytes(),
                self.traffic.to_bytes(),
                None if self._tracker is None else self._tracker.to_bytes(),
                self._fresh.tobytes(),
                self._mixed_prior,
            )
        )

    def restore(self, data: bytes) -> Self:
        """Take on the state that `to_bytes` gave.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state.
        """
        try:
            state = msgspec.msgpack.decode(data, type=_State)
            if self._adaptive is None:
                self.base = RecalibrationMap.model_validate_json(state.base or b"")
        except ValueError as error:  # those of msgspec and of pydantic alike
            raise DamagedStateError(f"engine state is damaged: {error}") from None
        if self._adaptive is not None:
            self.base = self._adaptive.restore(state.adaptive or b"").served
        if self._tracker is not None:
            self._tracker.restore(state.tracker or b"")
        if len(state.fresh) % 8:
            raise DamagedStateError(f"engine state is damaged: {len(state.fresh)} bytes of scores")
        self._fresh = array("d", checks.as_scores(np.frombuffer(state.fresh)).tolist())
        self._mixed_prior = state.mixed_prior
        self.traffic.restore(state.traffic)
        self._refreshes = state.refreshes
        self.logs["source"].restore(state.source)
        self.logs["target"].restore(state.target)
        self._certifier.restore(state.certifier)
        self._watch = self._certifier.watch
        self._uncounted = array("d"), bytearray()
        self._settle()
        return self

    def _show_fresh(self) -> bool:
        """Let the tracker see the scores that gathered; mix anew if they have moved the prior."""
        tracker = self._tracker
        if tracker is None:
            return False
        tracker.take_scores(np.frombuffer(self._fresh))
        self._fresh = array("d")
        self._weights = None
        prior, before = self._fused_prior, self._mixed_prior
        if self._adaptive is None or prior is None or not self.logs["source"].n:
            return False
        if before is not None and abs(_log_odds(prior) - _log_odds(before)) < _MOVED:
            return False
        self._refreshes += 1
        self._mix(self._adaptive)
        return True

    @property
    def _fused_prior(self) -> float | None:
        """The target's prior as far as scores tell of it, inside (0, 1); None if they are not asked."""
        prior = None if self._tracker is None or self._config.prior == "labels" else self._tracker.prior
        return None if prior is None else min(max(prior, _LEAST), 1.0 - _LEAST)

    def _target_scores(self) -> ScoreSketch:
        target = self.logs["target"]
        if self.traffic.n >= target.n:
            return self.traffic.sketch
        target.flush()
        return target.sketch

    def _count(self) -> None:
        """Let the watch count the labels that gathered."""
        scores, labels = self._uncounted
        self._uncounted = array("d"), bytearray()
        if self._watch is not None and labels:
            self._watch.count(np.frombuffer(scores), np.frombuffer(labels, np.int8))

    def _look(self) -> None:
        """Look whether the target's labels refute label shift."""
        self._count()
        source, target = self.logs["source"], self.logs["target"]
        source.flush()
        target.flush()
        refuted = self._certifier.look(source.sketch, target.sketch, target.n)
        if refuted and self._adaptive is not None:
            self._adaptive.refute_label_shift()
            self._refreshes += 1
            self._mix(self._adaptive)

    def _reform(self, domain: Domain) -> None:
        """Form from a domain whose labels have reached a scheduled count; this is a new version."""
        log = self.logs[domain]
        if domain not in self._counted:
            log.due = _NEVER
            return
        # Where it is event time that slides a window, a version begins without a count being passed.
        log.versions = max(log.versions + 1, self._schedules[domain].passed(log.n))
        mode = self._config.mode
        if mode == "auto" or domain == ("target" if mode == "target" else "source"):
            self._form_on_schedule(domain)
        if self._adaptive is not None and domain == "source":
            self._mix(self._adaptive)
            return
        self._settle()
        self._certifier.serve(self.version)

    def _form_on_schedule(self, domain: Domain) -> None:
        formed = self._form(domain)
        if formed is not None:
            self._certifier.form(formed)

    def _form(self, domain: Domain) -> Formed | None:
        """Form h from the labels of a domain so far; None if there are none."""
        log = self.logs[domain]
        if not log.n:
            return None
        log.flush()
        sketch = log.sketch
        formed = form(sketch, self._config.bins)
        if domain == "source" and self._tracker is not None:
            prior = self._prior_of(log)
            self._tracker.set_source(formed.map.edges, formed.map.values, 0.5 if prior is None else prior)
        if self._adaptive is not None:
            # Of the target the mixture keeps its own windows; what is formed here only certifies it.
            if domain == "source":
                self._adaptive.set_source(formed.map, sketch)
        elif self._config.mode != "label_shift":
            self.base = formed.map
        return Formed(sketch.to_bytes(), formed.splits, formed.choices, log.versions - 1, domain)

    def _mix(self, adaptive: Adaptive) -> None:
        """Mix the map of mode ``auto`` anew: a new version."""
        next_source = adaptive.take_next_source()
        if next_source is not None:
            next_source.versions = self.logs["source"].versions + 1
            self.logs["source"] = next_source
            self._count()
            self._certifier.replace_source()
            self._watch = self._certifier.watch
            self._form_on_schedule("source")
        self._mixed_prior = self._fused_prior
        adaptive.step(self.traffic.n, self._mixed_prior)
        self._serve_mixed(adaptive)

    def _mix_due(self, adaptive: Adaptive) -> None:
        """Do what is due by the count of target labels, which may begin a version."""
        if adaptive.step_due:
            self._mix(adaptive)
        elif adaptive.reweigh():
            self._serve_mixed(adaptive)

    def _serve_mixed(self, adaptive: Adaptive) -> None:
        self.base = adaptive.served
        self._settle()
        self._certifier.serve(self.version)

    def _begin(self, adaptive: Adaptive) -> None:
        source = self.logs["source"]
        source.flush()
        adaptive.begin(source.sketch, self.traffic.n, self._mixed_prior)

    def _mix_many(self, adaptive: Adaptive, scores: Scores, labels: Labels, seen: int | None) -> None:
        start = 0
        if len(scores) and not adaptive.begun:
            self._begin(adaptive)
        while start < len(scores):
            # By the state that it was restored from, anything may be overdue.
            end = start + max(1, adaptive.room)
            if adaptive.learn_many(scores[start:end], labels[start:end], seen):
                self._mix_due(adaptive)
            start = end

    def _settle(self) -> None:
        """Work out, from the counts, the version and when the next is due."""
        # Laid out for predict_one: to read a field of a pydantic model takes as long as to search for a bin.
        self.steps: tuple[Any, Any] = self.base.edges[1:-1], self.base.values
        """The edges between the bins of `base`, and their values."""
        self.version = self._refreshes + (0 if self._adaptive is None else self._adaptive.steps)
        """The number of the served map version."""
        for domain, log in self.logs.items():
            log.due = _NEVER
            if domain in self._counted:
                # In mode auto those of the target are only certified: it is its own steps that are served.
                self.version += log.versions if self._adaptive is None or domain == "source" else 0
                log.due = self._schedules[domain].count(self._schedules[domain].passed(log.n))
        self._weights = None


def _log_odds(prior: float) -> float:
    return math.log(prior / (1.0 - prior))
