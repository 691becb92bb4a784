"""MapVersions: forms the map versions of one engine, serves them, and records their certificates.

In the modes of the paper's estimators, h is formed anew at scheduled label counts, and g follows every target
label. In mode ``auto`` the map is a tracked mixture, which is mixed anew at label counts of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from streamcal.certificates.bounds import TargetData, VersionData
from streamcal.certificates.certificate_target import CertificateTarget
from streamcal.certificates.claim import Claim
from streamcal.certificates.ledger import Ledger
from streamcal.certificates.target import LabelCounts
from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.delayed.feedback import DelayedFeedback
from streamcal.delayed.label_release_c import LabelRelease
from streamcal.engine.complete_cohorts import CompleteCohorts
from streamcal.engine.config import Mode, RecalibratorConfig
from streamcal.engine.domain_labels import DomainLabels
from streamcal.engine.emissions import DriftAlarm
from streamcal.engine.mixture_controller import MixtureController
from streamcal.engine.schedule import GROWTH, NEVER, Schedule, VersionCounts
from streamcal.engine.unlabelled_scores import UnlabelledScores
from streamcal.events import DOMAINS, Domain
from streamcal.maps.curves import fit_curve
from streamcal.maps.rate_limits import RateLimits
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.uniform_mass import form
from streamcal.mixture.evidence import Evidence
from streamcal.mixture.mixture import Mixture
from streamcal.mixture.table import Mixed
from streamcal.sketch.decoding import Count, Part
from streamcal.sketch.score_sketch import ScoreSketch

if TYPE_CHECKING:
    from streamcal.engine.event_rules_c import ClassPriors, ServedMap

_MOVED: Final = 0.1  # log odds: mode auto mixes anew when scores have moved the prior by so much

_CERTIFIED: Final = 8  # of the first versions each is published with its certificate

_CERTIFIED_OF: Final[dict[Mode, CertificateTarget]] = {
    "auto": CertificateTarget("served", by_label_shift=True),
    "source": CertificateTarget("formed", by_label_shift=False),
    "label_shift": CertificateTarget("identity", by_label_shift=True),
    "target": CertificateTarget("formed", by_label_shift=False),
    "composite": CertificateTarget("formed", by_label_shift=True),
}

_schedule = lru_cache(16)(Schedule)


class VersionsState(Part):
    """The state of `MapVersions`."""

    counts: VersionCounts
    ledger: Ledger
    base: bytes | None = None
    """Served map as JSON; None in mode ``auto``."""
    mixture: Mixture | None = None
    feedback: DelayedFeedback | None = None
    mixed_prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)] | None = None
    complete: CompleteCohorts | None = None
    asked: Count | None = None


class MapVersions:
    """The map versions of one engine.

    Parameters
    ----------
    config
        options of the engine.
    source, target, unlabelled, priors
        labels, scores and priors of the engine.
    served
        served map, with the one before the first version.
    state
        the state to start from; None: there is no version. ValueError if it is none of the other arguments.
    """

    def __init__(
        self,
        config: RecalibratorConfig,
        source: DomainLabels,
        target: DomainLabels,
        unlabelled: UnlabelledScores,
        priors: ClassPriors,
        served: ServedMap,
        state: VersionsState | None = None,
    ) -> None:
        self._config = config
        self._source, self._target, self._unlabelled, self._priors = source, target, unlabelled, priors
        self._labels: dict[Domain, DomainLabels] = {"source": source, "target": target}
        mode, limit = config.mode, config.delay_limit_seconds
        self.served, first = served, served.base
        matured = state is not None and state.complete is not None
        windowed = () if config.window is None else DOMAINS
        about = _CERTIFIED_OF[mode]._replace(
            delta=config.delta, windowed=windowed, matured=matured, implied=limit
        )
        if state is None:
            state = VersionsState(VersionCounts(), Ledger.begun(about))
            base: RecalibrationMap | Mixed = first
        else:
            state.ledger.of(about)
            base = first if mode == "auto" else RecalibrationMap.model_validate_json(state.base or b"")
        self._ledger = state.ledger
        counted = (mode,) if mode == "source" or mode == "target" else DOMAINS
        self._versions = state.counts.plan_by(
            dict.fromkeys(counted, _schedule(GROWTH, source.log.pane_size)),
            ("source",) if mode == "auto" else counted,
            {domain: labels.n for domain, labels in self._labels.items()},
        )
        self.release: LabelRelease | None = None
        """Labels in front of the engine; None: all are learned when they come."""
        self.complete = state.complete
        """Predictions since one class was found to come later; None: certificates rest on labels so far."""
        self.asked: int | None = None
        """Number of labels of the target that are to come, if a sampler draws them; None: it is not known."""
        self._asked_before, self._draws_unevenly = state.asked, False
        self._auto = None
        if mode == "auto":
            parts = state.mixture, state.feedback
            self._auto = MixtureController(source, target, unlabelled, limit, *parts)
            base = self._auto.mixed or base
        self._mixed_prior = state.mixed_prior  # the prior from scores, as of the last mix
        # Number of the first target label that the test of label shift has not counted.
        self._watched = target.end
        self._serve(base)

    # What there is

    @property
    def mixed(self) -> Mixed | None:
        """Mixture that is served; None in other modes than ``auto``, and before its first step."""
        return None if self._auto is None else self._auto.mixed

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """Alarms raised so far."""
        return self._ledger.alarms

    @property
    def alarms_now(self) -> tuple[DriftAlarm, ...]:
        """Assumptions refuted so far, see `Ledger.alarms_now`."""
        return self._ledger.alarms_now(self.claim(None), self._target.n)

    @property
    def log_e_value(self) -> float | None:
        """Log of the e-value against label shift, as of the last look; None before there is one."""
        watch = self._ledger.watch
        return None if watch is None or self._weighted else watch.log_e

    @property
    def _weighted(self) -> tuple[Domain, ...]:
        """Domains whose labels have more than one weight: labels of one weight are as those of weight 1."""
        return tuple([domain for domain in DOMAINS if self._is_weighted(domain)])

    def _is_weighted(self, domain: Domain) -> bool:
        labels = self._labels[domain]
        uneven = labels.weighted and not labels.mass.even(labels.n)
        return uneven or (self._draws_unevenly and domain == "target")

    def claim(self, time: float | None) -> Claim | None:
        """Return what may be claimed of the served map at this event time, see `Ledger.claim`.

        Later events do not change it.
        """
        labels = LabelCounts(self._target.positives, self._target.n)
        sampled = self.release is None or self.release.sampled()
        sampled |= self.asked is not None and labels.n >= COMPLETE * self.asked
        weighted = self._weighted
        drawn = self.asked is not None and "target" in weighted
        target = TargetData(self._target_scores(), labels, weighted, sampled, drawn)
        return self._ledger.claim(self.served.snapshot(), target, time)

    def publish(self, claim: Claim) -> None:
        """Work out the certificate of a claim, and raise alarms for the assumptions that it refutes."""
        self._ledger.publish(claim)

    @property
    def is_certified(self) -> bool:
        """Whether the certificate of this version is to be published with it.

        Of many versions not each has one: the labels grow by at most a quarter from one certificate to the
        next. In mode ``auto``, the first 7 steps each have one, then 4 steps each time their number doubles;
        in the other modes the first 8 versions, then every second. A run that was killed publishes the same.
        """
        if self._auto is None:
            return self._versions.number <= _CERTIFIED or self._versions.number % 2 == 0
        return self._auto.steps % max(1, (1 << self._auto.steps.bit_length()) // _CERTIFIED) == 0

    def rate_limits(self, probability: float) -> RateLimits:
        """Return limits of the rate of label 1, by the labels behind the served map."""
        mode, mixture = self._config.mode, None if self._auto is None else self._auto.mixture
        behind = None if mixture is None else mixture.labels_behind()
        if behind is not None:
            return RateLimits.of(*behind, probability)
        of_target = mode in ("target", "label_shift")
        sketch = (self._target if of_target else self._source).log.sketch
        limits = RateLimits.of(sketch.cells, sketch.level, sketch.weighed, probability)
        if of_target or mode == "source":
            return limits
        return limits.shifted(self.served.weights_now() if mixture is None else (1.0, mixture.odds))

    def contradict(self) -> None:
        """Note a label 1 of the target that came after its prediction had been learned as 0."""
        self._ledger.contradicted += 1

    def begin_cohorts(self) -> None:
        """Let certificates of the target rest on the predictions from now on: one class comes later."""
        self.complete = CompleteCohorts(self._unlabelled.n)
        self._ledger.rest_on_cohorts()

    def draw_labels(self, *, plain: bool) -> None:
        """Note that a sampler draws the target's labels; ``plain``: not by scores and earlier labels."""
        self._draws_unevenly, before = not plain, self._asked_before
        self.asked = self._unlabelled.n if before is None else before

    # When something is due

    def labels_until_due(self, domain: Domain) -> int:
        """Return the number of labels of a domain that may come before `catch_up` must be called."""
        if domain == "source":
            return self._versions.due["source"] - self._source.n
        until = min(self._versions.due["target"] - self._target.n, self._labels_until_look)
        return until if self._auto is None else min(until, self._auto.labels_until_due)

    def last_version(self, domain: Domain, more: int) -> int:
        """Return the label count of the last version that the next ``more`` labels of a domain begin.

        A caller that learns them all at once may have the versions before it only counted, not formed: their
        maps would be served to nobody. 0: all must be formed, or there are none.
        """
        if self._auto is not None and self._auto.begun and domain == "source":
            return 0  # the mixture takes a step with each of them
        return self._versions.last_due(domain, self._labels[domain].n, more)

    def schedule_now(self, domain: Domain) -> None:
        """Let the next label of a domain begin a version: a window slides with it."""
        self._versions.schedule_now(domain, self._labels[domain].n + 1)

    def catch_up(self, domain: Domain, *, forms: bool = True) -> None:
        """Do what is due at this label count; without ``forms``, a version that begins is only counted."""
        if self._labels[domain].n >= self._versions.due[domain]:
            self._begin_version(domain, forms=forms)
        if domain == "target":
            if self._auto is not None and not self._auto.begun:
                self.flush("source")
                self._auto.begin()
            if self._auto is not None and self._auto.labels_until_due <= 0:
                self._mix(self._auto)
            if self._labels_until_look <= 0:
                self._look()

    def scores_read(self) -> bool:
        """Note that the prior has read scores; return whether it moved so far that a version begins."""
        self.served.forget_weights()
        prior, before, auto = self._priors.from_scores, self._mixed_prior, self._auto
        if auto is not None and self._priors.matches and not self._source.n:
            self._versions.off_schedule += 1
            self._mix(auto)
            return True
        if auto is None or prior is None or not self._source.n:
            return False
        if before is not None and abs(_log_odds(prior) - _log_odds(before)) < _MOVED:
            return False
        self._versions.off_schedule += 1
        self._mix(auto)
        return True

    def predicted(self, score: float, time: float) -> bool:
        """Note a prediction of the target with this event time; return whether a version begins."""
        auto = self._auto
        return auto is not None and auto.predict(score, time) and self._take_evidence(auto)

    def observe_early(self, score: float, predicted_at: float, labelled_at: float) -> bool:
        """Note a positive that comes before its label is final; return whether a version begins."""
        auto = self._auto
        if auto is None or not auto.observe_early(score, predicted_at, labelled_at):
            return False
        return self._take_evidence(auto)

    def refresh(self) -> None:
        """Re-form the map from all labels so far, off schedule: a new version."""
        self._versions.off_schedule += 1
        if self._auto is None:
            self._form("target" if self._config.mode == "target" else "source")
            self._ledger.on_schedule = False
            self._serve()
        else:
            self._form("source")
            self._mix(self._auto)

    def flush(self, domain: Domain) -> None:
        """Let every reader but the mixture read the buffered labels; drop labels that all have read."""
        if domain == "source":
            self._source.flush()
            self._source.drop(self._source.end)
            return
        target = self._target
        self._watch_labels()
        target.flush()
        target.drop(target.end if self._auto is None else self._auto.read)

    def add_sketch(self, domain: Domain, sketch: ScoreSketch) -> None:
        """Add labels of a domain that were counted elsewhere; `catch_up` must follow."""
        self.flush(domain)
        if domain == "source":
            self._source.add_sketch(sketch)
            return
        self._target.add_sketch(sketch)
        watch = self._ledger.watch
        if watch is not None:
            watch.count_sketch(sketch)
        self._watched = self._target.end

    @property
    def state(self) -> VersionsState | None:
        """The state, all labels flushed; None: as in a new engine."""
        auto, complete = self._auto, self.complete
        feedback = None if auto is None else auto.feedback
        used = self._source.n or self._target.n or self._versions.off_schedule or self._ledger.contradicted
        if not (used or complete or feedback) and self.asked is None:
            return None
        self._ledger.settle()
        if complete is not None:
            complete.count()
        if feedback is not None:
            feedback.count()
        return VersionsState(
            self._versions,
            self._ledger,
            self.served.base.model_dump_json().encode() if auto is None else None,
            None if auto is None else auto.mixture,
            feedback,
            self._mixed_prior,
            complete,
            self.asked,
        )

    # Versions

    def _begin_version(self, domain: Domain, *, forms: bool) -> None:
        """Begin the version that is due by the labels of a domain."""
        labels = self._labels[domain]
        self._versions.begin(domain, labels.n)
        due = self._test_due(domain)
        if due is not None and labels.n >= due:
            self.flush(domain)
            self._ledger.test(domain, labels.log.sketch, self._labels["target"].n)
        if self._forms_by(domain):
            due = self._ledger.forecasts_due(domain)
            if due is not None and labels.n >= due:
                self.flush(domain)
                self._ledger.score(domain, labels.log.sketch.copy())
            if forms:
                self._form_on_schedule(domain)
        elif forms and domain == "target" and self._ledger.about.counts_target:
            self._count_target()
        if self._auto is not None and domain == "source":
            self._mix(self._auto)
            return
        self._serve()
        self._ledger.serve(self.served.version)

    def _test_due(self, domain: Domain) -> int | None:
        """Return the scheduled number of labels from which on identical distribution is to be tested.

        Nothing is claimed of labels with unequal weights, so they are not tested: None.
        """
        return None if self._is_weighted(domain) else self._ledger.test_due(domain)

    def _forms_by(self, domain: Domain) -> bool:
        """Whether h is formed from the labels of a domain."""
        mode = self._config.mode
        return mode == "auto" or domain == ("target" if mode == "target" else "source")

    def _form_on_schedule(self, domain: Domain) -> None:
        formed = self._form(domain)
        if domain == "target" and self.complete is not None:
            formed = self._matured()
        if formed is not None:
            self._ledger.form(formed)

    def _count_target(self) -> None:
        """Record the target's window or cohorts at this version: claims by label shift rest on them."""
        self.flush("target")
        if self.complete is not None:
            matured = self._matured()
            if matured is not None:
                self._ledger.count(matured)
            return
        sketch = self._target.log.sketch
        if sketch.n:
            before = self._versions.begun["target"] - 1
            self._ledger.count(VersionData(sketch.copy(), None, before, "target"))

    def _matured(self) -> VersionData | None:
        """Return the record of the matured cohorts to certify, all labels flushed; None if there are none."""
        if self.complete is None or self.release is None:
            return None
        found = self.complete.matured(self.release.complete_until())
        if found is None:
            return None
        matured, number = found
        labels, predictions = matured.labels.copy(), matured.predictions.copy()
        return VersionData(labels, None, number - 1, "target", predictions=predictions)

    def _form(self, domain: Domain) -> VersionData | None:
        """Form h from the labels of a domain so far; None if there are none."""
        labels = self._labels[domain]
        if not labels.n:
            return None
        self.flush(domain)
        sketch, config = labels.log.sketch.copy(), self._config
        if not sketch.n:  # a window of event time may have let go of them all
            return None
        if domain == "source" and self._priors.takes_scores:
            self._priors.set_source(form(sketch, config.bins).map)
        if self._auto is None:
            if config.mode != "label_shift":
                self.served.serve(self._map_of(sketch), self.served.version)
        elif domain == "source":
            # Of the target the mixture keeps its own windows; what is formed there only certifies it.
            self._auto.set_source(sketch)
        return VersionData(sketch, config.bins, self._versions.begun[domain] - 1, domain)

    def _map_of(self, sketch: ScoreSketch) -> RecalibrationMap:
        """Return h: the paper's map of these bins, or the curve that ``bins="auto"`` chooses."""
        if self._config.bins != "auto":
            return form(sketch, self._config.bins).map
        masses, squares = sketch.weighed
        return fit_curve(sketch.cells, sketch.level, masses, squares=squares).map

    def reform_by(self, growth: float) -> None:
        """Form maps anew each time labels have grown by this factor, from now on."""
        self._versions.reform_by(growth, {domain: labels.n for domain, labels in self._labels.items()})

    def _serve(self, base: RecalibrationMap | Mixed | None = None) -> None:
        """Serve this h, or the same, as the version that has begun."""
        steps = 0 if self._auto is None else self._auto.steps
        self.served.serve(base, self._versions.number + steps)

    # Mode auto

    def _take_evidence(self, auto: MixtureController) -> bool:
        """Mix anew with the early positives of a closed pane; return whether there is such evidence."""
        evidence = auto.evidence()
        if evidence is None:
            return False
        self._versions.off_schedule += 1
        self._mix(auto, evidence)
        return True

    def _mix(self, auto: MixtureController, evidence: Evidence | None = None) -> None:
        """Mix the map of mode ``auto`` anew: a new version."""
        self._mixed_prior = self._priors.from_scores
        auto.step(self._mixed_prior, evidence, self._priors.known_odds())
        if auto.mixed is not None:
            self._serve(auto.mixed)
        self._ledger.serve(self.served.version)

    def _target_scores(self) -> Callable[[], ScoreSketch]:
        """Return a function that returns a sketch of the target's scores until now."""
        if self._unlabelled.n >= self._target.n:
            return self._unlabelled.snapshot()
        self.flush("target")
        return self._target.log.sketch.copy

    # The test of label shift

    @property
    def _labels_until_look(self) -> int:
        """Number of target labels that may come before the test of label shift is due."""
        watch = self._ledger.watch
        return NEVER if watch is None else watch.next_look - watch.labels - (self._target.end - self._watched)

    def _watch_labels(self) -> None:
        """Let the test of label shift count the target's labels that it has not counted."""
        if self._watched < self._target.end:
            watch, run = self._ledger.watch, self._target.since(self._watched)
            if watch is not None:
                watch.count(run.scores, run.labels)
        self._watched = self._target.end

    def _look(self) -> None:
        """Test whether the target's labels refute label shift; labels with unequal weights cannot.

        If the chance to see a label depends on the score, seen scores have another law whether label shift
        holds or not.
        """
        self._watch_labels()
        if self._weighted and self._ledger.watch is not None:
            self._ledger.watch.pass_by()
            return
        if self._source.n and self._ledger.watch is not None and self._ledger.watch.reads_sketches:
            self.flush("source")
            self.flush("target")
        self._ledger.look(self._source.log.sketch, self._target.log.sketch, self._target.n)


def _log_odds(prior: float) -> float:
    return math.log(prior / (1.0 - prior))
