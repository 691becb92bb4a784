"""The ledger of one engine's certificates: the data of each version, and the refuted assumptions.

A `Claim` notes what a certificate rests on, from the cells as they were when the version was formed: these
take the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Self

import msgspec

from streamcal.certificates.bounds import Bounds, TargetData, VersionData
from streamcal.certificates.certificate_target import CertificateTarget
from streamcal.certificates.claim import Claim
from streamcal.certificates.exchangeability import ExchangeabilityTest
from streamcal.certificates.inequalities import prior_limits
from streamcal.certificates.prequential import Forecasts
from streamcal.certificates.record import (
    DRIFT_OF,
    LABEL_SHIFT_REFUTED,
    MONOTONE_REFUTED,
    DriftAlarm,
    DriftCode,
    identically_distributed,
)
from streamcal.certificates.shift_watch import LabelShiftWatch
from streamcal.certificates.target import LabelCounts
from streamcal.events import DOMAINS, Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.decoding import Count, Number, Part
from streamcal.sketch.score_sketch import MAX_CELLS, ScoreSketch

_NO_FORECASTS: Final = Forecasts()  # of every new engine: a value does not change
_ALPHA: Final = 0.1  # α of each test of an assumption, over δ; it is not part of δ


class Ledger(Part, dict=True):
    """Certificates of an engine: made, remembered, and their assumptions tested.

    Its fields are its state, once `settle` was called; `of` must follow.
    """

    formed: dict[Domain, VersionData] = msgspec.field(default_factory=dict)
    """Data of the last version formed from each domain on schedule."""
    version: Number = 0
    """Number of the map version that is certified."""
    on_schedule: bool = True
    """Whether the served map was formed on schedule."""
    alarms: tuple[DriftAlarm, ...] = ()
    """Alarms raised so far, oldest first: by a test, or with a published certificate."""
    watch: LabelShiftWatch | None = None
    """Watch that must count target labels; None if nothing is claimed by label shift."""
    forecasts: dict[Domain, Forecasts] = msgspec.field(default_factory=dict)
    """Forecasts of the labels of each domain, where bounds rest on all of them."""
    tests: dict[Domain, ExchangeabilityTest] = msgspec.field(default_factory=dict)
    """Tests of identical distribution, where bounds rest on all labels in the order in which they came."""
    contradicted: Count = 0
    """Number of target predictions that were learned as 0 for want of a label, and had label 1 later."""

    @classmethod
    def begun(cls, about: CertificateTarget) -> Self:
        """Return the new ledger of certificates of this subject."""
        alpha, watches = _ALPHA * about.delta, about.by_label_shift and not about.matured
        # A likelihood of some of a domain's labels proves nothing.
        whole = [domain for domain in DOMAINS if not about.is_partial(domain)]
        return cls(
            watch=LabelShiftWatch.begun(alpha, MAX_CELLS) if watches else None,
            forecasts=dict.fromkeys(whole, _NO_FORECASTS),
            tests={domain: ExchangeabilityTest.begun(alpha, MAX_CELLS) for domain in whole},
        ).of(about)

    def of(self, about: CertificateTarget) -> Self:
        """Return this as the ledger of certificates of this subject."""
        self.about = about
        self._bounds = {domain: self._bounds_of(data) for domain, data in self.formed.items()}
        return self

    def alarms_now(self, claim: Claim | None, target_labels: int) -> tuple[DriftAlarm, ...]:
        """Return the alarms, and those that recording the certificate of a claim would raise.

        Asking raises none: otherwise the state and the next emissions would depend on who asks.
        """
        return (*self.alarms, *self._new_alarms(() if claim is None else claim.refuted, target_labels))

    def forecasts_due(self, domain: Domain) -> int | None:
        """Return the scheduled number of labels from which on `score` must be called; None: never."""
        forecasts = self.forecasts.get(domain)
        return None if forecasts is None else forecasts.due

    def score(self, domain: Domain, sketch: ScoreSketch) -> None:
        """Score the forecasts of the labels of a domain so far, and make new ones from these labels.

        The sketch must not change.
        """
        self.forecasts[domain] = self.forecasts[domain].updated(sketch)

    def settle(self) -> None:
        """Work out what is pending, so that the fields are the state."""
        for forecasts in self.forecasts.values():
            forecasts.settle()

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
            self.alarms += (
                DriftAlarm(DRIFT_OF[domain], identically_distributed(domain), reason, target_labels),
            )

    def form(self, data: VersionData) -> None:
        """Record the labels and bins of a map formed on schedule."""
        self.count(data)
        self.on_schedule = True

    def count(self, data: VersionData) -> None:
        """Record the labels of a scheduled version without a map."""
        self.formed = dict(sorted({**self.formed, data.domain: data}.items()))
        self._bounds[data.domain] = self._bounds_of(data)

    def serve(self, version: int) -> None:
        """Record the number of a version that begins, unless its map was formed off schedule."""
        if self.on_schedule:
            self.version = version

    def look(self, source: ScoreSketch, target: ScoreSketch, target_labels: int) -> bool:
        """Return whether the target's labels refute label shift at this look, see `LabelShiftWatch.look`."""
        if self.watch is None or not self.watch.look(source, target):
            return False
        reason = f"log e-value {self.watch.log_e:.1f} of the label-shift test"
        self.alarms += (DriftAlarm("label_shift", LABEL_SHIFT_REFUTED, reason, target_labels),)
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

    def claim(
        self, served: Callable[[], RecalibrationMap], target: TargetData, time: float | None
    ) -> Claim | None:
        """Return what may be claimed of the served map; None before the first version.

        The bounds of the last scheduled version hold for any map (lemma 9), so also for a map formed off
        schedule. Its certificate has the number and the labels of that version, and ``on_schedule`` False.

        Parameters
        ----------
        served
            function that returns the served map with its weights.
        target
            scores and labels of the target now. Bounds use counts, and claim nothing of a domain whose labels
            have weights (`UNWEIGHTED`), except by drawn labels and by matured cohorts: these need none.
        time
            event time now, in seconds; None or NaN if there is none.
        """
        by_target = self.about.subject == "served" or not self.about.by_label_shift
        bounds = (self._bounds.get("target") if by_target else None) or self._bounds.get("source")
        if bounds is None:
            return None
        if target.drawn and bounds.domain == "target" and not self.about.is_partial("target"):
            bounds = bounds.by_draws
        latest: LabelCounts | None = target.labels
        if self.about.counts_target:
            latest = self._bounds["target"].labels if "target" in self._bounds else None
        return Claim(
            self.about,
            self.version,
            self.on_schedule,
            served,
            time,
            bounds,
            self._bounds.get("source"),
            target,
            latest,
            self._drifting,
            self.watch is not None and self.watch.refuted,
            self._least_contradicted(target.labels.n),
        )

    def publish(self, claim: Claim) -> None:
        """Work out the certificate of a claim, and raise alarms for the assumptions that it refutes."""
        self.alarms += self._new_alarms(claim.certificate.refuted, claim.target.labels.n)

    def _bounds_of(self, data: VersionData) -> Bounds:
        """Return bounds by these labels; the forecasts are as of the version, or of an earlier one."""
        return Bounds(
            data,
            self.about.budget(data),
            self.forecasts.get(data.domain),
            windowed=data.domain in self.about.windowed,
        )

    def _new_alarms(self, refuted: Collection[str], target_labels: int) -> tuple[DriftAlarm, ...]:
        """Return an alarm for each refuted assumption of a certificate for which none was raised."""
        late = f"{self.contradicted:,} labels of 1 came after their predictions had been learned as 0"
        reasons: dict[str, tuple[DriftCode, str]] = dict.fromkeys(
            self.about.implied_zeros, ("implied_zeros", late)
        )
        reasons[MONOTONE_REFUTED] = "monotone", "two bins have certain rates in the wrong order"
        raised = {alarm.assumption for alarm in self.alarms}
        return tuple(
            DriftAlarm(reasons[each][0], each, reasons[each][1], target_labels)
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
