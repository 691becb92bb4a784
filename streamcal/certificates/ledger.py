"""The ledger of one engine's certificates: the data of each version, and the refuted assumptions.

A certificate is made when it is asked for, from the cells as they were when the version was formed. Memory:
those cells, compressed, and at most `MOST_CERTIFICATES` certificates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import msgspec

from streamcal.certificates.bounds import Bounds, TargetData, VersionData, doubled
from streamcal.certificates.certificate_target import CertificateTarget
from streamcal.certificates.exchangeability import ExchangeabilityTest
from streamcal.certificates.inequalities import prior_limits
from streamcal.certificates.prequential import Prequential
from streamcal.certificates.record import (
    LABEL_SHIFT_REFUTED,
    MONOTONE_REFUTED,
    NO_CLAIM,
    UNWEIGHTED,
    Certificate,
    DriftAlarm,
    PaperBound,
    identically_distributed,
)
from streamcal.certificates.shift_watch import LabelShiftWatch
from streamcal.certificates.target import LabelCounts
from streamcal.certificates.theorems import theorem1, theorem2
from streamcal.events import DOMAINS, Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.decoding import Count, Number, require
from streamcal.sketch.score_sketch import MAX_CELLS, ScoreSketch

__all__ = ["MOST_CERTIFICATES", "Ledger", "LedgerState", "labels_needed"]

MOST_CERTIFICATES: Final = 64
"""Number of certificates that the history keeps. When there are more, every second one is dropped."""

_ALPHA: Final = 0.1  # α of each test of an assumption, over δ; it is not part of δ
_DOUBLINGS: Final = 10  # a claim that needs over a thousand times as many labels is not foreseen
_TOLERATED: Final = 0.25  # of what is claimed: more implied zeros that are wrong refute (lemma 20)


class LedgerState(msgspec.Struct):
    """The state of a `Ledger`, by its fields."""

    formed: dict[Domain, VersionData]
    version: Number
    on_schedule: bool
    alarms: tuple[DriftAlarm, ...]
    watch: LabelShiftWatch | None
    forecasts: dict[Domain, Prequential]
    tests: dict[Domain, ExchangeabilityTest]
    contradicted: Count


@dataclass(slots=True)
class Ledger:
    """Certificates of an engine: made, remembered, and their assumptions tested."""

    about: CertificateTarget
    """Subject of the certificates, and what they may spend."""
    formed: dict[Domain, VersionData] = field(init=False, default_factory=dict)
    """Data of the last version formed from each domain on schedule."""
    version: int = field(init=False, default=0)
    """Number of the map version that is certified."""
    on_schedule: bool = field(init=False, default=True)
    """Whether the served map was formed on schedule."""
    alarms: tuple[DriftAlarm, ...] = field(init=False, default=())
    """Alarms raised so far, oldest first: by a test, or with a published certificate."""
    watch: LabelShiftWatch | None = field(init=False)
    """Watch that must count target labels; None if nothing is claimed by label shift."""
    forecasts: dict[Domain, Prequential] = field(init=False)
    """Forecasts of the labels of each domain, where bounds rest on all of them."""
    tests: dict[Domain, ExchangeabilityTest] = field(init=False)
    """Tests of identical distribution, where bounds rest on all labels in the order in which they came."""
    contradicted: int = field(init=False, default=0)
    """Number of target predictions that were learned as 0 for want of a label, and had label 1 later."""
    history: list[Certificate] = field(init=False, default_factory=list)
    """Certificates so far, thinned out, oldest first."""
    _bounds: dict[Domain, Bounds] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.watch = self._new_watch()
        # Of a window and of cohorts some labels are missing, and a likelihood of the others proves nothing.
        whole = [domain for domain in DOMAINS if not self.about.is_partial(domain)]
        self.forecasts = {domain: Prequential() for domain in whole}
        alpha = _ALPHA * self.about.delta
        self.tests = {domain: ExchangeabilityTest.begun(alpha, MAX_CELLS) for domain in whole}

    def alarms_now(self, served: RecalibrationMap, target: TargetData) -> tuple[DriftAlarm, ...]:
        """Return the alarms, and those that a certificate asked for now would raise.

        Asking raises none: otherwise the state and the next emissions would depend on who asks.
        """
        data = self._certifying
        if data is None:
            return self.alarms
        refuted: tuple[str, ...] = ()
        if self._least_contradicted(target.labels.n) > 0.0:
            refuted = self._certified(data, served, target, None, foresees=False).refuted
        elif not self._is_blind(data.domain, target) and data.domain not in self._drifting:
            monotone = not self._bounds_of(data).refutes_monotone(self.about.map_of(served))
            refuted = () if monotone else (MONOTONE_REFUTED,)
        return (*self.alarms, *self._new_alarms(refuted, target.labels.n))

    def forecasts_due(self, domain: Domain) -> int | None:
        """Return the scheduled number of labels from which on `score` must be called; None: never."""
        forecasts = self.forecasts.get(domain)
        return None if forecasts is None else forecasts.due

    def score(self, domain: Domain, sketch: ScoreSketch) -> None:
        """Score the forecasts of the labels of a domain so far, and make new ones from these labels."""
        self.forecasts[domain].update(sketch)

    def check_forecasts(self, domain: Domain, labels: int) -> None:
        """Raise ValueError, after `restore`, if a domain has fewer labels than were forecast."""
        scored = self.forecasts[domain].labels if domain in self.forecasts else 0
        require(scored <= labels, f"forecasts of {scored} labels, of which there are {labels}")

    def test_due(self, domain: Domain) -> int | None:
        """Return the scheduled number of labels from which on `test` must be called; None: never."""
        test = self.tests.get(domain)
        return None if test is None or test.refuted else test.due

    def test(self, domain: Domain, sketch: ScoreSketch, target_labels: int) -> None:
        """Test whether all labels of a domain so far, in the sketch, are identically distributed."""
        if sketch.level > self.tests[domain].level:  # a coarser sketch was added: bins are lost
            del self.tests[domain]
            return
        log_e = self.tests[domain].look(sketch)
        if log_e is not None:
            reason = f"log e-value {log_e:.1f} of the test of identical distribution"
            self.alarms += (DriftAlarm(identically_distributed(domain), reason, target_labels),)

    def check_tests(self, domain: Domain, sketch: ScoreSketch) -> None:
        """Raise ValueError, after `restore`, if a domain does not have the labels that were tested."""
        if domain in self.tests:
            self.tests[domain].check_labels(sketch)

    def form(self, data: VersionData) -> None:
        """Record the labels and bins of a map formed on schedule."""
        self.count(data)
        self.on_schedule = True

    def count(self, data: VersionData) -> None:
        """Record the labels of a scheduled version without a map."""
        self.formed[data.domain] = data
        self._bounds.pop(data.domain, None)

    def serve(self, version: int) -> None:
        """Record the number of a version that begins, unless its map was formed off schedule."""
        if self.on_schedule:
            self.version = version

    def look(self, source: ScoreSketch, target: ScoreSketch, target_labels: int) -> bool:
        """Return whether the target's labels refute label shift at this look, see `LabelShiftWatch.look`."""
        if self.watch is None or not self.watch.look(source, target):
            return False
        reason = f"log e-value {self.watch.log_e:.1f} of the label-shift test"
        self.alarms += (DriftAlarm(LABEL_SHIFT_REFUTED, reason, target_labels),)
        return True

    def rest_on_cohorts(self) -> None:
        """Let claims about the target rest on matured cohorts from now on.

        Labels that come later for their value are no sample of one law: what was counted of them claims
        nothing any more. Later claims may spend δ anew: those made before fail more often only if one class
        comes later, and then none of them held.
        """
        self.about = self.about._replace(matured=True)
        self.forecasts.pop("target", None)
        self.tests.pop("target", None)
        self.formed.pop("target", None)
        self._bounds.pop("target", None)
        self.watch = None

    def certificate(
        self, served: RecalibrationMap, target: TargetData, time: float | None, *, publish: bool
    ) -> Certificate | None:
        """Return the certificate of the served map, and remember it; None before the first version.

        The bounds of the last scheduled version hold for any map (lemma 9), so also for a map formed off
        schedule. Its certificate has the number and the labels of that version, and ``on_schedule`` False.

        Parameters
        ----------
        served
            the served map with its weights.
        target
            scores and labels of the target now. Bounds use counts, and claim nothing of a domain whose labels
            have weights (`UNWEIGHTED`), except by matured cohorts, which need no weights.
        time
            event time now, in seconds; None or NaN if there is none.
        publish
            whether it is published with a version: it then raises alarms for refuted assumptions, and does
            not say how many labels a first claim needs.
        """
        data = self._certifying
        if data is None:
            return None
        certificate = self._certified(data, served, target, time, foresees=not publish)
        if publish:
            self.alarms += self._new_alarms(certificate.refuted, target.labels.n)
        if self.history and self.history[-1].version == certificate.version:
            self.history.pop()
        self.history.append(certificate)
        if len(self.history) > MOST_CERTIFICATES:
            self.history = self.history[-1::-2][::-1]
        return certificate

    def _certified(
        self,
        data: VersionData,
        served: RecalibrationMap,
        target: TargetData,
        time: float | None,
        *,
        foresees: bool,
    ) -> Certificate:
        """Return the certificate of the served map, see `certificate`, and change nothing.

        ``foresees`` is whether it says how many labels a first claim needs: that takes tens of milliseconds.
        """
        contradicted = self._least_contradicted(target.labels.n)
        bounds, certified = self._bounds_of(data), self.about.map_of(served)
        by_target = data.domain == "target"
        blind, weighted = self._is_blind(data.domain, target), target.weighted
        drifting, scores = self._drifting, None
        # The bound in the domain whose labels formed the version.
        unsampled = not (target.sampled or self.about.matured)
        if blind or data.domain in drifting or (unsampled and by_target):
            bound = bounds.by_limits(certified).withdrawn()
        else:
            scores = target.scores() if self.about.observes(data.domain) else None
            bound = bounds.bound_of(certified, scores=scores)
        # The risk in the target: by its own labels, or from the source by label shift if that is smaller.
        label_shift_refuted = self.watch is not None and self.watch.refuted
        target_risk, by_label_shift = bound.risk if by_target else None, False
        source = self.formed.get("source")
        if source is not None and self.about.by_label_shift and target.labels.n:
            shifted, latest = 1.0, self._shifted_target(target)
            unshifted = any(self._is_blind(domain, target) for domain in DOMAINS)
            blind |= unshifted
            if latest is not None and not (label_shift_refuted or unshifted or drifting or unsampled):
                shifted = self._bounds_of(source).target_risk(served, latest, delta=self.about.delta_of_shift)
            if target_risk is None or shifted < target_risk:
                target_risk, by_label_shift = shifted, True
            if self.about.matured:
                target = latest or target._replace(labels=LabelCounts(0, 0))
        # What the data refute withdraws every bound that rests on it.
        if target_risk is not None and not bound.monotone:
            target_risk = 1.0
        wrong_zeros: tuple[str, ...] = ()
        if target_risk is not None and contradicted > _TOLERATED * min(target_risk, NO_CLAIM):
            wrong_zeros = self.about.implied_zeros
        if wrong_zeros:
            target_risk = 1.0
            bound = bound.withdrawn(monotone=bound.monotone) if by_target else bound
        if target_risk is not None and by_target:
            # The risk of one map in one domain, so one bound.
            calibration, sharpness = min(bound.calibration, target_risk), min(bound.sharpness, target_risk)
            bound = bound._replace(calibration=calibration, sharpness=sharpness, risk=target_risk)
        refuted = (
            *map(identically_distributed, drifting),
            *(() if bound.monotone else (MONOTONE_REFUTED,)),
            *((LABEL_SHIFT_REFUTED,) if label_shift_refuted else ()),
            *wrong_zeros,
            *((UNWEIGHTED,) if blind else ()),
        )
        needed = None
        if (
            foresees
            and not (refuted or unsampled)
            and (bound.risk if target_risk is None else target_risk) >= NO_CLAIM
        ):
            shifts = not by_target and target_risk is not None
            needed = self._labels_needed(bounds, served, target if shifts else None, scores)
        matured = self.about.matured and (by_target or by_label_shift)
        of_target = bounds.labels if by_target else target.labels
        (positives, n), (target_positives, n_target) = bounds.labels[:2], target.labels[:2]
        bins, delta, paper_target = max(1, bound.bins), self.about.delta, None
        if not by_target and 0 < positives < n and 0 < target_positives < n_target:
            priors = positives / n, target_positives / n_target
            theorem = theorem2(n, n_target, bins, delta, None, *priors)
            paper_target = PaperBound.of("Theorem 2", theorem, weighted=bool(weighted))
        return Certificate(
            version=self.version,
            time=None if time is None or math.isnan(time) else time,
            domain=data.domain,
            n_source=0 if by_target else n,
            n_target=n if by_target else n_target,
            bins=bound.bins if self.about.subject == "formed" else served.bins,
            delta=delta,
            delta_spent=bound.delta,
            calibration_risk=bound.calibration,
            sharpness_risk=bound.sharpness,
            risk=bound.risk,
            target_risk=target_risk,
            paper=PaperBound.of(
                "Theorem 1", theorem1(max(n, 1), bins, delta), weighted=data.domain in weighted
            ),
            paper_target=paper_target,
            assumptions=self.about.assumptions(
                data.domain, by_label_shift=by_label_shift, observed=bounds.reads(scores)
            ),
            refuted=refuted,
            on_schedule=self.on_schedule,
            labels_needed=needed,
            cohorts="matured" if matured else "arrived",
            pending=of_target.pending if matured else 0,
        )

    def to_state(self) -> LedgerState:
        """Return the state.

        The history is not part of it: it depends on when certificates were asked for.
        """
        values = {name: getattr(self, name) for name in LedgerState.__struct_fields__}
        ordered = {name: dict(sorted(values[name].items())) for name in ("formed", "tests")}
        return LedgerState(**values | ordered)

    def restore(self, state: LedgerState) -> None:
        """Replace the state by another."""
        for domain, data in state.formed.items():
            require(data.domain == domain, f"the version of {domain} is that of {data.domain}")
            data.check(matured=self.about.is_matured(domain))
        require(state.forecasts.keys() <= self.forecasts.keys(), "forecasts under a window")
        require(state.tests.keys() <= self.tests.keys(), "a test of the labels of a window")
        for domain, test in state.tests.items():
            test.check(self.tests[domain])
        for name in LedgerState.__struct_fields__:
            setattr(self, name, getattr(state, name))
        self.forecasts = {domain: each.restored() for domain, each in sorted(state.forecasts.items())}
        fresh = self._new_watch()
        if fresh is None:
            self.watch = None
        elif self.watch is not None:
            self.watch.check(fresh)

    def _new_watch(self) -> LabelShiftWatch | None:
        if not self.about.by_label_shift:
            return None
        return LabelShiftWatch.begun(_ALPHA * self.about.delta, MAX_CELLS)

    def _bounds_of(self, data: VersionData) -> Bounds:
        if data.domain not in self._bounds:
            self._bounds[data.domain] = Bounds(
                data,
                self.about.budget(data),
                self.forecasts.get(data.domain),
                windowed=data.domain in self.about.windowed,
            )
        return self._bounds[data.domain]

    @property
    def _certifying(self) -> VersionData | None:
        """Data of the version that the certificate rests on; None before the first version."""
        by_target = self.about.subject == "served" or not self.about.by_label_shift
        return (self.formed.get("target") if by_target else None) or self.formed.get("source")

    def _new_alarms(self, refuted: Collection[str], target_labels: int) -> tuple[DriftAlarm, ...]:
        """Return an alarm for each refuted assumption of a certificate for which none was raised."""
        late = f"{self.contradicted:,} labels of 1 came after their predictions had been learned as 0"
        reasons = dict.fromkeys(self.about.implied_zeros, late)
        reasons[MONOTONE_REFUTED] = "two bins have certain rates in the wrong order"
        raised = {alarm.assumption for alarm in self.alarms}
        return tuple(
            DriftAlarm(each, reasons[each], target_labels)
            for each in refuted
            if each in reasons and each not in raised
        )

    def _least_contradicted(self, labels: int) -> float:
        """Return a lower limit on the share of predictions that are 1 and were learned as 0 (lemma 20).

        ``labels`` is the number of target labels learned.
        """
        if not self.contradicted:
            return 0.0
        return prior_limits(self.contradicted, max(labels, self.contradicted), _ALPHA * self.about.delta)[0]

    @property
    def _drifting(self) -> tuple[Domain, ...]:
        """Domains whose labels are refuted to be identically distributed."""
        return tuple(domain for domain in DOMAINS if domain in self.tests and self.tests[domain].refuted)

    def _is_blind(self, domain: Domain, target: TargetData) -> bool:
        """Whether nothing can be claimed of a domain, as its labels have weights."""
        return domain in target.weighted and not self.about.is_matured(domain)

    def _shifted_target(self, target: TargetData) -> TargetData | None:
        """Return the target that claims by label shift rest on: of its last version, if that is counted."""
        if not self.about.counts_target:
            return target
        data = self.formed.get("target")
        return None if data is None else TargetData(lambda: data.scores, self._bounds_of(data).labels)

    def _labels_needed(
        self, bounds: Bounds, served: RecalibrationMap, target: TargetData | None, scores: ScoreSketch | None
    ) -> int | None:
        """Return the number of labels at which a claim is expected, by label shift to a target or without.

        For matured cohorts it is None: the number of pending labels cannot be foreseen.
        """
        latest = None if target is None else self._shifted_target(target)
        if self.about.matured or (latest is None and target is not None):
            return None

        def risk_after(doublings: int) -> float:
            if latest is not None:
                return bounds.target_risk(served, latest.doubled(doublings), delta=self.about.delta_of_shift)
            many, observed = bounds.doubled(doublings), None if scores is None else doubled(scores, doublings)
            return many.bound_of(self.about.map_of(served), scores=observed).risk

        return labels_needed((bounds if latest is None else latest).labels.n, risk_after)


def labels_needed(labels: int, risk_after: Callable[[int], float]) -> int | None:
    """Return the number of labels at which a first claim is expected; None if none is foreseen.

    It is an estimate for people, not a claim. Twice, four times, … as many labels with the same scores and
    rates are assumed, until the bound computed from them claims something.

    Parameters
    ----------
    labels
        number of labels now.
    risk_after
        the bound with 2^d times as many labels, by d ≥ 1.
    """
    doublings = range(1, _DOUBLINGS + 1)
    if not labels or risk_after(_DOUBLINGS) >= NO_CLAIM:
        return None
    at = bisect_left(doublings[:-1], True, key=lambda d: risk_after(d) < NO_CLAIM)
    return labels << doublings[at]
