"""Engine: what answers predictions and learns labels, for one key of a run or behind a `Recalibrator`.

A label is counted and buffered when it comes (`DomainLabels`). At the label counts where something is due,
and only there, the engine lets each part read what is new, always in the same order: the estimate of the
prior, the map version that the count begins, the mixture, the test of label shift. So the outcome does not
depend on whether labels come one by one or many at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.certificates.claims import Formed, Target
from streamcal.certificates.ledger import Ledger, Scope
from streamcal.certificates.record import Certificate
from streamcal.engine.auto import Auto
from streamcal.engine.class_priors import ClassPriors
from streamcal.engine.config import Mode, RecalibratorConfig
from streamcal.engine.domain_labels import BUFFERED, DomainLabels
from streamcal.engine.emissions import DriftAlarm, Emission, MapPublished, Mixing, Recalibrated
from streamcal.engine.schedule import NEVER, Schedule, Versions
from streamcal.engine.served_map import ServedMap
from streamcal.engine.state import pack, unpack
from streamcal.errors import DamagedStateError
from streamcal.events import Domain, LabelledEvent, PredictionEvent
from streamcal.join.join import Joined
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.uniform_mass import form
from streamcal.priors.tracker import BLOCK
from streamcal.sketch.label_log import LabelLog
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.traffic import Traffic

__all__ = ["DomainSummary", "Engine"]

_MOVED: Final = 0.1  # log odds: mode auto mixes anew when scores have moved the prior by so much

_SCOPES: Final[dict[Mode, Scope]] = {
    "auto": Scope("served", by_label_shift=True, replaces_source=True),
    "source": Scope("formed", by_label_shift=False),
    "label_shift": Scope("identity", by_label_shift=True),
    "target": Scope("formed", by_label_shift=False),
    "composite": Scope("formed", by_label_shift=True),
}

_DOMAINS: Final[tuple[Domain, ...]] = ("source", "target")

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


class DomainSummary(msgspec.Struct, frozen=True):
    """What is known of one domain."""

    labels: int
    """Number of labelled scores, those that a window has dropped among them."""
    positives: int
    """Those of them with label 1."""
    prior: float | None
    """Smoothed estimate of the probability of class 1 now, None before the first label."""
    scores: int
    """Number of scores observed without regard to their label (target only)."""


class _State(msgspec.Struct):
    time: float | None
    off_schedule: int
    begun: dict[Domain, int]
    base: bytes | None
    source: bytes
    target: bytes
    ledger: bytes
    auto: bytes | None
    traffic: bytes
    priors: bytes
    mixed_prior: float | None


class Engine:
    """One engine.

    Parameters
    ----------
    config
        its options.
    key
        of the events it is for; what it emits says so.
    certifies
        asked, whenever it publishes a map, whether with the certificate: one takes as long to work out as
        thousands of events.
    """

    __slots__ = (
        "_auto",
        "_certifies",
        "_key",
        "_ledger",
        "_mixed_prior",
        "_priors",
        "_shifts",
        "_source",
        "_stops",
        "_target",
        "_time",
        "_traffic",
        "_versions",
        "_watched",
        "config",
        "served",
    )

    def __init__(
        self,
        config: RecalibratorConfig,
        key: str | None = None,
        certifies: Callable[[], bool] = lambda: True,
    ) -> None:
        self.config = config
        self._key, self._certifies = key, certifies
        cells, mode = config.max_cells, config.mode
        self._source = DomainLabels(LabelLog(cells, config.window_of("source")))
        self._target = DomainLabels(LabelLog(cells, config.window_of("target")))
        self._priors = ClassPriors(config, self._source, self._target)
        self._traffic = Traffic(cells, BLOCK if self._priors.takes_scores else 0)
        self._shifts = mode in ("composite", "label_shift")  # whether g is applied on top of the formed map
        self.served = ServedMap(self._priors if self._shifts else None)
        """The map that is served now."""
        self._auto = Auto(cells, self._target) if mode == "auto" else None
        self._ledger = Ledger(config.delta, cells, _SCOPES[mode], windowed=config.window is not None)
        counted = (mode,) if mode == "source" or mode == "target" else _DOMAINS
        strides = {"source": self._source.log.stride, "target": self._target.log.stride}
        self._versions = Versions(
            {domain: Schedule(config.growth, strides[domain]) for domain in counted},
            ("source",) if mode == "auto" else counted,
        )
        self._mixed_prior: float | None = None  # the prior from scores, as of the last mix
        self._watched = 0  # number of the first target label that the test of label shift has not counted
        self._time: float | None = None  # the latest event time of a label
        self._stops: dict[Domain, int] = {}  # label counts at which something is due
        self._set_stops()

    # What it knows

    @property
    def seen(self) -> int:
        """How many target scores were observed so far."""
        return self._traffic.n

    @property
    def map(self) -> RecalibrationMap:
        """The map that is served now, with the current weights of the shift correction."""
        return self.served.map

    @property
    def version(self) -> int:
        """The number of the served map version."""
        return self.served.version

    @property
    def mixing(self) -> Mixing | None:
        """How the map is mixed; None but in mode ``auto``, and before its first step."""
        return None if self._auto is None else self._auto.mixing

    @property
    def source(self) -> DomainSummary:
        """Counts and prior of the source."""
        return DomainSummary(self._source.n, self._source.positives, self._priors.of("source"), 0)

    @property
    def target(self) -> DomainSummary:
        """Counts and prior of the target."""
        prior = self._priors.of("target")
        return DomainSummary(self._target.n, self._target.positives, prior, self._traffic.n)

    @property
    def certificate(self) -> Certificate | None:
        """What may be claimed of the served map now; None before the first version."""
        labels = self._target.positives, self._target.n
        return self._ledger.certificate(self.map, Target(self._target_scores, labels), self._time)

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates that were asked for or emitted so far, thinned."""
        return self._ledger.history

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """The assumptions refuted so far."""
        return self._ledger.alarms

    @property
    def log_e_value(self) -> float | None:
        """The log of the e-value against label shift, as of the last look; None before there is one."""
        watch = self._ledger.watch
        return None if watch is None else watch.log_e

    def sketch_of(self, what: Literal["source", "target", "traffic"]) -> ScoreSketch:
        """Return the labelled scores of a domain, or all observed target scores; not to be changed."""
        if what == "traffic":
            return self._traffic.sketch
        self._settle(what)
        return (self._source if what == "source" else self._target).log.sketch

    # Events

    def answer(self, event: PredictionEvent | LabelledEvent) -> tuple[Emission, ...]:
        """Answer a prediction, and take note of its score if it is of the target.

        Returns
        -------
        The answer, and behind it the map version that the score has begun, if it has: scores alone can move
        the prior. That map comes without a certificate, which uses labels only.
        """
        served = self.served
        score = event.score
        answer = Recalibrated(event.id, score, served.predict_one(score), served.version, served.weights)
        if event.domain == "target" and self.observe_one(float(score)):
            return answer, MapPublished(self.map, None, self._key, self.mixing)
        return (answer,)

    def learn(self, joined: Joined) -> tuple[Emission, ...]:
        """Learn from a prediction that met its label.

        Returns
        -------
        The map version that the label has begun, if it has, and the alarms that it raised.
        """
        time = joined.labelled_at
        if time is None:
            time = self._time or 0.0  # a window of event time takes it for as late as the latest
        elif self._time is None or time > self._time:
            self._time = time
        version, alarms = self.served.version, len(self._ledger.alarms)
        self.learn_one(joined.score, joined.label, joined.domain, time, joined.seen)
        published: tuple[Emission, ...] = ()
        if self.served.version != version:
            certificate = self.certificate if self._certifies() else None
            published = (MapPublished(self.map, certificate, self._key, self.mixing),)
        raised = self._ledger.alarms[alarms:]
        if self._key is not None:
            raised = tuple(msgspec.structs.replace(alarm, key=self._key) for alarm in raised)
        return published + raised

    # Learning

    def learn_one(
        self, score: float, label: int, domain: Domain, time: float | None, seen: int | None
    ) -> None:
        """Learn one checked score with its label; see `Recalibrator.learn_one`."""
        labels = self._target if domain == "target" else self._source
        if labels.windowed:
            self._turn(domain, labels, time)
        labels.append(score, label, seen)
        if self._shifts:
            self.served.forget_weights()
        if labels.n >= self._stops[domain]:
            self._catch_up(domain)

    def learn_many(
        self, scores: Scores, labels: Labels, domain: Domain, times: Scores | None, seen: int | None
    ) -> None:
        """Learn checked scores with their labels; see `Recalibrator.learn_many`."""
        known = self._target if domain == "target" else self._source
        size, start = len(scores), 0
        # Maps of the versions in between would be served to nobody: they are counted, and the last is formed.
        last = self._versions.last_due(domain, known.n, size)
        if self._auto is not None and self._auto.begun and domain == "source":
            last = 0  # but the mixture takes a step with each of them
        for cut in known.pane_cuts(size, times):
            if known.windowed and self._turn(domain, known, None if times is None else float(times[start])):
                last = min(last, known.n + 1)
            while start < cut:
                end = min(cut, start + max(1, self._stops[domain] - known.n))
                part, start = slice(start, end), end
                if end - part.start > BUFFERED and self._read_by_log_only(domain):
                    self._settle(domain)
                    known.add(scores[part], labels[part])
                else:
                    known.extend(scores[part], labels[part], seen)
                if known.n >= self._stops[domain]:
                    self._catch_up(domain, forms=known.n >= last)
        if self._shifts:
            self.served.forget_weights()

    def observe_one(self, score: float) -> bool:
        """Take a checked target score, its label not known; return whether that began a version."""
        return self._traffic.append(score) and self._settle_scores()

    def observe_many(self, scores: Scores) -> None:
        """Take checked target scores, their labels not known."""
        if len(scores) > BUFFERED and not self._priors.takes_scores:
            self._traffic.add(scores)
            return
        start = 0
        while start < len(scores):
            end = start + self._traffic.room
            if self._traffic.extend(scores[start:end]):
                self._settle_scores()
            start = end

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        self._versions.begin_off_schedule()
        if self._auto is None:
            self._form("target" if self.config.mode == "target" else "source")
            self._ledger.form_off_schedule()
            self._serve(self.served.base)
        else:
            self._form("source")
            self._mix(self._auto)
        self._set_stops()

    def merge(self, others: list[Self]) -> None:
        """Add what others have learned, and re-form the map: a new version."""
        for other in others:
            for domain in _DOMAINS:
                self._settle(domain)
                other._settle(domain)
            self._priors.read_scores(self._traffic.merge(other._traffic))
            self._priors.merge(other._priors)
            if self._auto is not None and other._auto is not None:
                if other._auto.begun and not self._auto.begun:
                    self._begin_to_mix(self._auto, self._target.end)
                self._auto.merge(other._auto)
            self._source.merge(other._source)
            self._target.merge(other._target)
            counts: dict[Domain, int] = {"source": self._source.n, "target": self._target.n}
            self._versions.merge(other._versions, counts)
        self.refresh()

    # State

    def to_bytes(self) -> bytes:
        """Return the state; equal states give equal bytes."""
        for domain in _DOMAINS:
            self._settle(domain)
        state = _State(
            self._time,
            self._versions.off_schedule,
            self._versions.begun,
            self.served.base.model_dump_json().encode() if self._auto is None else None,
            self._source.to_bytes(),
            self._target.to_bytes(),
            self._ledger.to_bytes(),
            None if self._auto is None else self._auto.to_bytes(),
            self._traffic.to_bytes(),
            self._priors.to_bytes(),
            self._mixed_prior,
        )
        return pack([self.config.model_dump_json().encode(), msgspec.msgpack.encode(state)])

    @classmethod
    def from_bytes(
        cls, data: bytes, key: str | None = None, certifies: Callable[[], bool] = lambda: True
    ) -> Self:
        """Restore an engine from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        options, body = unpack(data, 2)
        try:
            engine = cls(RecalibratorConfig.model_validate_json(options), key, certifies)
            engine._restore(msgspec.msgpack.decode(body, type=_State))
        except DamagedStateError:
            raise
        except ValueError as error:  # those of msgspec and of pydantic alike
            raise DamagedStateError(f"engine state is damaged: {error}") from None
        return engine

    def _restore(self, state: _State) -> None:
        self._time, self._mixed_prior = state.time, state.mixed_prior
        self._source.restore(state.source)
        self._target.restore(state.target)
        self._watched = self._target.end
        self._versions.restore(state.off_schedule, state.begun, self._source.n, self._target.n)
        self._ledger.restore(state.ledger)
        self._traffic.restore(state.traffic)
        self._priors.restore(state.priors)
        if self._auto is None:
            self._serve(RecalibrationMap.model_validate_json(state.base or b""))
        else:
            self._serve(self._auto.restore(state.auto or b"").served)
        self._set_stops()

    # Inside: what is due

    def _catch_up(self, domain: Domain, *, forms: bool = True) -> None:
        """Do what is due at this label count; without ``forms``, a version that begins is only counted."""
        labels = self._target if domain == "target" else self._source
        if labels.room <= 0:
            self._settle(domain)
        if self._priors.room <= 0:
            self._priors.read_labels()
        if labels.n >= self._versions.due[domain]:
            self._begin_version(domain, forms=forms)
        if domain == "target":
            if self._auto is not None and (self._auto.room <= 0 or not self._auto.begun):
                self._mix_on_time(self._auto)
            if self._watch_room <= 0:
                self._look()
        self._set_stops()

    def _set_stops(self) -> None:
        """Work out at which label counts something is due next."""
        source, target = self._source, self._target
        self._stops["source"] = min(source.n + source.room, self._versions.due["source"])
        room = min(target.room, self._priors.room, self._watch_room)
        if self._auto is not None:
            room = min(room, self._auto.room)
        self._stops["target"] = min(target.n + room, self._versions.due["target"])

    @property
    def _watch_room(self) -> int:
        """How many target labels may come before the test of label shift is due."""
        watch = self._ledger.watch
        return NEVER if watch is None else watch.next_look - watch.labels - (self._target.end - self._watched)

    def _turn(self, domain: Domain, labels: DomainLabels, time: float | None) -> bool:
        """Make ready for a label under a window; return whether the window slides by event time with it."""
        pane = labels.next_pane(time)
        if pane is None:
            return False
        self._settle(domain)
        slides = labels.open_pane(pane)
        if slides:
            self._versions.hasten(domain, labels.n + 1)
            self._set_stops()
        return slides

    def _settle(self, domain: Domain) -> None:
        """Let everybody but the mixture read the labels that wait; drop what everybody has read."""
        if domain == "source":
            self._source.settle()
            self._source.drop(self._source.end)
            return
        target, watch = self._target, self._ledger.watch
        if watch is not None and self._watched < target.end:
            run = target.since(self._watched)
            watch.count(run.scores, run.labels)
        self._watched = target.end
        self._priors.read_labels()
        target.settle()
        if self._auto is not None:
            self._auto.gather()
        target.drop(target.end if self._auto is None else self._auto.read)

    def _read_by_log_only(self, domain: Domain) -> bool:
        if domain == "source":
            return True
        return self._auto is None and self._ledger.watch is None and not self._priors.reads_labels

    def _settle_scores(self) -> bool:
        """Make room for scores; return whether the prior has moved by so much that a version begins."""
        block = self._traffic.settle()
        if block is None:
            return False
        self._priors.read_scores(block)
        self.served.forget_weights()
        prior, before = self._priors.fused, self._mixed_prior
        begins = (
            self._auto is not None
            and prior is not None
            and self._source.n > 0
            and (before is None or abs(_log_odds(prior) - _log_odds(before)) >= _MOVED)
        )
        if begins and self._auto is not None:
            self._versions.begin_off_schedule()
            self._mix(self._auto)
        self._set_stops()
        return begins

    def _look(self) -> None:
        """Look whether the target's labels refute label shift."""
        self._settle("source")
        self._settle("target")
        refuted = self._ledger.look(self._source.log.sketch, self._target.log.sketch, self._target.n)
        if refuted and self._auto is not None:
            self._auto.refute_label_shift()
            self._versions.begin_off_schedule()
            self._mix(self._auto)

    # Inside: map versions

    def _begin_version(self, domain: Domain, *, forms: bool) -> None:
        """Begin the version that is due by the labels of a domain."""
        self._versions.begin(domain, self._target.n if domain == "target" else self._source.n)
        mode = self.config.mode
        if forms and (mode == "auto" or domain == ("target" if mode == "target" else "source")):
            self._form_on_schedule(domain)
        if self._auto is not None and domain == "source":
            self._mix(self._auto)
            return
        self._serve(self.served.base)
        self._ledger.serve(self.served.version)

    def _form_on_schedule(self, domain: Domain) -> None:
        formed = self._form(domain)
        if formed is not None:
            self._ledger.form(formed)

    def _form(self, domain: Domain) -> Formed | None:
        """Form h from the labels of a domain so far; None if there are none."""
        labels = self._target if domain == "target" else self._source
        if not labels.n:
            return None
        self._settle(domain)
        sketch = labels.log.sketch
        formed = form(sketch, self.config.bins)
        if domain == "source":
            self._priors.set_source(formed.map)
        if self._auto is None:
            if self.config.mode != "label_shift":
                self.served.serve(formed.map, self.served.version)
        elif domain == "source":
            # Of the target the mixture keeps its own windows; what is formed there only certifies it.
            self._auto.set_source(formed.map, sketch)
        version = self._versions.begun[domain] - 1
        return Formed(sketch.to_bytes(), formed.splits, formed.choices, version, domain)

    def _serve(self, base: RecalibrationMap) -> None:
        steps = 0 if self._auto is None else self._auto.steps
        self.served.serve(base, self._versions.number + steps)

    # Inside: mode auto

    def _begin_to_mix(self, auto: Auto, first: int) -> None:
        self._settle("source")
        auto.begin(self._source.log.sketch, self._traffic.n, self._mixed_prior, first)

    def _mix_on_time(self, auto: Auto) -> None:
        """Do what the count of target labels has made due for the mixture; that may begin a version."""
        if not auto.begun:
            self._begin_to_mix(auto, self._target.end - 1)
            return
        if auto.step_due:
            self._mix(auto)
        elif auto.reweigh():
            self._serve_mixed(auto)

    def _mix(self, auto: Auto) -> None:
        """Mix the map of mode ``auto`` anew: a new version."""
        generation = auto.take_generation()
        if generation is not None:
            self._versions.begin_generation(generation.n)
            self._source.replace(generation)
            self._ledger.replace_source()
            self._watched = max(self._target.end - 1, 0)
            self._form_on_schedule("source")
        self._mixed_prior = self._priors.fused
        auto.step(self._traffic.n, self._mixed_prior)
        self._serve_mixed(auto)

    def _serve_mixed(self, auto: Auto) -> None:
        self._serve(auto.served)
        self._ledger.serve(self.served.version)

    def _target_scores(self) -> ScoreSketch:
        if self._traffic.n >= self._target.n:
            return self._traffic.sketch
        self._settle("target")
        return self._target.log.sketch


def _log_odds(prior: float) -> float:
    return math.log(prior / (1.0 - prior))
