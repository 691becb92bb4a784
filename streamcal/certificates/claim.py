"""Claim: the premises of a certificate at one moment, and the certificate that follows from them.

Premises are cheap to note, and a certificate takes milliseconds. So a claim is noted with the event that
begins a map version, and worked out later, when somebody asks for its certificate. It does not change
meanwhile.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from streamcal.certificates.bounds import Bounds, TargetData, doubled
from streamcal.certificates.certificate_target import CertificateTarget
from streamcal.certificates.record import (
    LABEL_SHIFT_REFUTED,
    MONOTONE_REFUTED,
    NO_CLAIM,
    UNWEIGHTED,
    Certificate,
    PaperBound,
    identically_distributed,
)
from streamcal.certificates.source import RiskBound
from streamcal.certificates.target import LabelCounts
from streamcal.certificates.theorems import theorem1, theorem2
from streamcal.events import DOMAINS, Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.sketch.score_sketch import ScoreSketch

_DOUBLINGS: Final = 10  # a claim that needs over a thousand times as many labels is not foreseen
_TOLERATED: Final = 0.25  # of what is claimed: more implied zeros that are wrong refute (lemma 20)


@dataclass(frozen=True, eq=False)
class Claim:
    """Bounds that may be claimed of a served map, worked out when they are first asked for.

    Its fields are the premises: records and refuted assumptions, as of one moment.
    """

    about: CertificateTarget
    """Subject of the certificate, and what it may spend."""
    version: int
    """Number of the map version."""
    on_schedule: bool
    """Whether the served map was formed on schedule."""
    served: Callable[[], RecalibrationMap]
    """Function that returns the served map with its weights, and does not work it out again."""
    time: float | None
    """Event time in seconds; None or NaN if there is none."""
    bounds: Bounds
    """Bounds of the version, from the labels that it was formed from."""
    source: Bounds | None
    """Bounds from the source's labels; None if there are none."""
    target: TargetData
    """Scores and labels of the target."""
    latest: LabelCounts | None
    """Labels of the target that claims by label shift rest on; None if there are none yet."""
    drifting: tuple[Domain, ...]
    """Domains whose labels are refuted to be identically distributed."""
    label_shift_refuted: bool
    contradicted: float
    """Lower limit on the share of predictions that are 1 and were learned as 0 (lemma 20)."""

    @cached_property
    def certificate(self) -> Certificate:
        """Certificate of the map, without the number of labels that a first claim needs."""
        return self._certificate(foresees=False)

    def foreseen(self) -> Certificate:
        """Return the certificate with the number of labels that a first claim needs: tens of milliseconds."""
        return self._certificate(foresees=True)

    @property
    def refuted(self) -> tuple[str, ...]:
        """Assumptions that the certificate says are refuted, among those that only certificates test."""
        if self.contradicted > 0.0:
            return self.certificate.refuted
        if self._is_blind or self._domain in self.drifting:
            return ()
        return (MONOTONE_REFUTED,) if self.bounds.refutes_monotone else ()

    # The bounds

    @property
    def _domain(self) -> Domain:
        return self.bounds.domain

    @property
    def _certified(self) -> RecalibrationMap:
        """Map whose risk is bounded in the domain of the version's labels."""
        return self.about.map_of(self.served())

    @property
    def _withdrawn(self) -> bool:
        """Whether the labels of the version claim nothing of their domain."""
        unsampled = self._unsampled and self._domain == "target"
        return self._is_blind or self._domain in self.drifting or unsampled

    @cached_property
    def _scores(self) -> ScoreSketch | None:
        """All observed scores of the version's domain, where its bound rests on them."""
        observes = self.about.observes(self._domain) and not self._withdrawn
        return self.target.scores() if observes else None

    @property
    def _unsampled(self) -> bool:
        """Whether labels of the target, as they came, may be no sample."""
        return not (self.target.sampled or self.about.matured)

    @property
    def _shifts(self) -> bool:
        """Whether a claim about the target may follow from the source by label shift."""
        return self.source is not None and self.about.by_label_shift and self.target.labels.n > 0

    @property
    def _is_blind(self) -> bool:
        """Whether nothing can be claimed of the version's domain, as its labels have unequal weights."""
        return self._is_uneven(self._domain) and not self.bounds.drawn

    def _is_uneven(self, domain: Domain) -> bool:
        """Whether the labels that claims of a domain rest on have unequal weights."""
        return domain in self.target.weighted and not self.about.is_matured(domain)

    @cached_property
    def _own(self) -> RiskBound:
        """Bound in the domain of the version's labels."""
        if self._withdrawn:
            return RiskBound(1.0, monotone=True)
        return self.bounds.bound_of(self._certified, scores=self._scores)

    @property
    def _by_shift(self) -> float | None:
        """Bound on the risk in the target by label shift (lemma 18); None if none may follow."""
        if not self._shifts or self.source is None:
            return None
        refuted = self.label_shift_refuted or self.drifting or self._unsampled
        if self.latest is None or refuted or any(map(self._is_uneven, DOMAINS)):
            return 1.0
        return self.source.target_risk(self.served(), self.latest, delta=self.about.delta_of_shift)

    # The certificate

    def _certificate(self, *, foresees: bool) -> Certificate:
        bound, by_target = self._own, self._domain == "target"
        # The risk in the target: by its own labels, or from the source by label shift if that is smaller.
        shifted, target_risk, by_label_shift = self._by_shift, bound.risk if by_target else None, False
        if shifted is not None and (target_risk is None or shifted < target_risk):
            target_risk, by_label_shift = shifted, True
        # What the data refute withdraws every bound that rests on it.
        wrong_zeros: tuple[str, ...] = ()
        if target_risk is not None:
            target_risk = target_risk if bound.monotone else 1.0
            if self.contradicted > _TOLERATED * min(target_risk, NO_CLAIM):
                wrong_zeros = self.about.implied_zeros
        if wrong_zeros:
            target_risk = 1.0
            bound = bound._replace(risk=1.0) if by_target else bound
        if target_risk is not None and by_target:
            bound = bound._replace(risk=target_risk)  # the risk of one map in one domain, so one bound
        uneven = self._shifts and any(map(self._is_uneven, DOMAINS)) and not self.bounds.drawn
        refuted = (
            *map(identically_distributed, self.drifting),
            *(() if bound.monotone else (MONOTONE_REFUTED,)),
            *((LABEL_SHIFT_REFUTED,) if self.label_shift_refuted else ()),
            *wrong_zeros,
            *((UNWEIGHTED,) if self._is_blind or uneven else ()),
        )
        needed, risk = None, bound.risk if target_risk is None else target_risk
        if foresees and not (refuted or self._unsampled) and risk >= NO_CLAIM:
            needed = self._labels_needed(shifts=not by_target and target_risk is not None)
        about, bounds = self.about, self.bounds
        matured = about.matured and (by_target or by_label_shift)
        n, bins, labels = bounds.labels.n, bounds.bins, self._target_labels
        return Certificate(
            version=self.version,
            time=None if self.time is None or math.isnan(self.time) else self.time,
            domain=self._domain,
            n_source=0 if by_target else n,
            n_target=n if by_target else labels.n,
            bins=bins if about.subject == "formed" else self.served().bins,
            delta=about.delta,
            delta_spent=bounds.delta,
            risk=bound.risk,
            target_risk=target_risk,
            paper=PaperBound.of(
                "Theorem 1",
                theorem1(max(n, 1), bins, about.delta),
                weighted=self._domain in self.target.weighted,
            ),
            paper_target=None if by_target else self._theorem2(bins, labels),
            assumptions=about.assumptions(
                self._domain,
                by_label_shift=by_label_shift,
                observed=bounds.reads(self._scores),
                drawn=bounds.drawn,
            ),
            refuted=refuted,
            on_schedule=self.on_schedule,
            labels_needed=needed,
            cohorts="matured" if matured else "arrived",
            pending=(bounds.labels if by_target else labels).pending if matured else 0,
        )

    @property
    def _target_labels(self) -> LabelCounts:
        """Labels of the target that the certificate names: those of matured cohorts, if it rests on them."""
        if not (self._shifts and self.about.matured):
            return self.target.labels
        return self.latest or LabelCounts(0, 0)

    def _theorem2(self, bins: int, target: LabelCounts) -> PaperBound | None:
        """Return Theorem 2 of the paper for these labels; None if one class is missing somewhere."""
        (positives, n), (target_positives, n_target) = self.bounds.labels[:2], target[:2]
        if not (0 < positives < n and 0 < target_positives < n_target):
            return None
        priors = positives / n, target_positives / n_target
        theorem = theorem2(n, n_target, bins, self.about.delta, None, *priors)
        return PaperBound.of("Theorem 2", theorem, weighted=bool(self.target.weighted))

    def _labels_needed(self, *, shifts: bool) -> int | None:
        """Return the number of labels at which a claim is expected, by label shift to a target or without.

        For matured cohorts it is None: the number of pending labels cannot be foreseen.
        """
        scores, bounds, latest = self._scores, self.bounds, self.latest if shifts else None
        if self.about.matured or (shifts and latest is None):
            return None

        def risk_after(doublings: int) -> float:
            if latest is not None:
                return bounds.target_risk(
                    self.served(), latest.doubled(doublings), delta=self.about.delta_of_shift
                )
            observed = None if scores is None else doubled(scores, doublings)
            return bounds.doubled(doublings).bound_of(self._certified, scores=observed).risk

        return labels_needed((bounds.labels if latest is None else latest).n, risk_after)


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
