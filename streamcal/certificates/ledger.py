"""The ledger of one engine's certificates: the claims of each version, and the refuted assumptions.

A certificate is made when it is asked for, from the cells as they were when the version was formed. Memory:
those cells, compressed, and at most `MOST_CERTIFICATES` certificates.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Annotated, Final, Literal, NamedTuple, Self

import msgspec
import numpy as np

from streamcal.certificates.claims import Claims, Formed, Spending, Target
from streamcal.certificates.first_claim import NO_CLAIM, doubled, first_claim
from streamcal.certificates.inequalities import prior_limits
from streamcal.certificates.prequential import LEVELS, LogLikelihood, Prequential, PrequentialState
from streamcal.certificates.record import (
    IMPLIED,
    LABEL_SHIFT_REFUTED,
    MONOTONE_REFUTED,
    UNWEIGHTED,
    Certificate,
    PaperBound,
    assumptions,
    implied_zeros,
)
from streamcal.certificates.shift_watch import LabelShiftWatch, WatchState
from streamcal.certificates.source import version_delta
from streamcal.certificates.target import Counted
from streamcal.certificates.theorems import theorem1, theorem2
from streamcal.events import DOMAINS, Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT
from streamcal.sketch.decoding import Count, Number, Positive, ascending, require
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = ["MOST_CERTIFICATES", "DriftAlarm", "Ledger", "LedgerState", "Scope"]

MOST_CERTIFICATES: Final = 64
"""Number of certificates that the history keeps. When there are more, every second one is dropped."""

# Shares of δ if a claim on the target follows from the source by label shift: for versions formed from the
# source, for the target's priors and masses, and for versions formed from the target.
_SOURCE, _TARGET, _TARGET_VERSIONS = 0.6, 0.2, 0.2
# Of these, half goes to the limits of bins, a quarter to masses, and a quarter to the likelihood sets.
_LIMITS, _MASSES, _ONCE = 0.5, 0.25, 0.25
_OBSERVED: Final = 0.125  # of what the target's masses spend, on masses by all observed scores
_ALPHA: Final = 0.1  # α of the label-shift test, and of that of implied zeros, over δ; it is not part of δ
_TOLERATED: Final = 0.25  # of what is claimed: more implied zeros that are wrong refute (lemma 20)

_IDENTITY: Final = RecalibrationMap(version=0)


class Scope(NamedTuple):
    """Subject of an engine's certificates. The engine derives it from its mode."""

    subject: Literal["formed", "identity", "served"]
    """Map whose risk is certified in the domain of its labels: the one that was formed, the identity, or the
    served map."""
    by_label_shift: bool
    """Whether the target risk is certified by label shift. If so, δ covers both domains, and the target's
    labels are tested for label shift."""
    replaces_source: bool = False
    """Whether the source is replaced after label shift is refuted."""


class DriftAlarm(msgspec.Struct, frozen=True):
    """Alarm: an assumption behind the certificates is refuted. Each alarm is raised once."""

    assumption: str
    """Assumption, worded as in the certificates."""
    reason: str
    """Evidence that refuted it, in words."""
    target_labels: Count
    """Number of labelled target scores at that time."""
    key: str | None = None


class _FormedState(msgspec.Struct, omit_defaults=True):
    cells: bytes
    splits: list[Count]
    choices: Positive
    versions_before: Number
    domain: Domain
    log_likelihoods: Annotated[list[LogLikelihood], msgspec.Meta(max_length=len(LEVELS))]
    predictions: bytes | None = None


class LedgerState(msgspec.Struct):
    """The state of a `Ledger`."""

    formed: list[_FormedState]
    version: Number
    on_schedule: bool
    alarms: list[DriftAlarm]
    generation: Count
    watch: WatchState | None
    forecasts: dict[Domain, PrequentialState]
    contradicted: Count = 0


class Ledger:
    """Certificates of an engine: made, remembered, and their assumptions tested.

    Parameters
    ----------
    delta
        δ in (0, 1), for the whole life of the stream.
    max_cells
        the ``max_cells`` of the engine's sketches.
    scope
        subject of the certificates.
    windowed
        the domains whose labels are those of a sliding window.
    matured
        whether the target's labels are those of matured cohorts of predictions (lemma 19).
    implied
        seconds after which a prediction of the target without a label counts as 0; None: it does not count.
    """

    __slots__ = (
        "_alarms",
        "_claims",
        "_delta",
        "_forecasts",
        "_formed",
        "_history",
        "_implied",
        "_matured",
        "_max_cells",
        "_on_schedule",
        "_scope",
        "_version",
        "_windowed",
        "contradicted",
        "generation",
        "watch",
    )

    def __init__(
        self,
        delta: float,
        max_cells: int,
        scope: Scope,
        windowed: Collection[Domain] = (),
        *,
        matured: bool = False,
        implied: float | None = None,
    ) -> None:
        self._delta = delta
        self._implied = implied
        self._max_cells = max_cells
        self._scope = scope
        self._windowed = windowed
        self._matured = matured
        self._formed: dict[Domain, Formed] = {}
        # Of a window and of cohorts some labels are missing, and a likelihood of the others proves nothing.
        self._forecasts = {domain: Prequential() for domain in DOMAINS if not self._in_parts(domain)}
        self._claims: dict[Domain, Claims] = {}
        self._version = 0
        self._on_schedule = True
        self._history: list[Certificate] = []
        self._alarms: list[DriftAlarm] = []
        self.contradicted = 0
        """Number of target predictions that were learned as 0 for want of a label, and were 1 by a later
        label."""
        self.generation = 0
        """Number of times that the source was replaced after label shift had been refuted."""
        self.watch = self._new_watch()
        """Watch that must count target labels; None if nothing is claimed by label shift, or a counted label
        was corrected."""

    @property
    def alarms(self) -> tuple[DriftAlarm, ...]:
        """Alarms raised so far, oldest first: by a test, or with a published certificate."""
        return tuple(self._alarms)

    def alarms_now(
        self, served: RecalibrationMap, target: Target, weighted: Collection[Domain] = ()
    ) -> tuple[DriftAlarm, ...]:
        """Return the alarms, and those that a certificate asked for now would raise.

        ``weighted`` are the domains with weights, whose labels refute nothing. Asking raises none: otherwise
        the state and the next emissions would depend on who asks.
        """
        formed = self._certifying
        if formed is None:
            return self.alarms
        found = self.alarms
        if (
            not self._is_raised(MONOTONE_REFUTED)
            and not self._is_blind(formed.domain, weighted)
            and self._claims_of(formed).refutes_monotone(self._subject(served))
        ):
            found = (*found, _monotone_alarm(target.labels.labels))
        if self._least_contradicted(target.labels.labels) > 0.0:
            certificate = self._certified(formed, served, target, None, weighted=weighted, foresees=False)
            found = (*found, *self._zeros_alarm(certificate, target.labels.labels))
        return found

    @property
    def history(self) -> tuple[Certificate, ...]:
        """Certificates so far, thinned out, oldest first."""
        return tuple(self._history)

    def forecasts_due(self, domain: Domain) -> int | None:
        """Return the scheduled number of labels from which on `score` must be called; None: never."""
        forecasts = self._forecasts.get(domain)
        return None if forecasts is None else forecasts.due

    def score(self, domain: Domain, sketch: ScoreSketch) -> None:
        """Score the forecasts of the labels of a domain so far, and make new ones from these labels."""
        self._forecasts[domain].update(sketch)

    def check_forecasts(self, domain: Domain, sketch: ScoreSketch) -> None:
        """Raise ValueError, after `restore`, if the labels of a domain do not hold those forecast."""
        if domain in self._forecasts:
            self._forecasts[domain].check(sketch)

    def form(self, formed: Formed) -> None:
        """Record the labels and bins of a map formed on schedule."""
        self.count(formed)
        self._on_schedule = True

    def count(self, formed: Formed) -> None:
        """Record the labels of a scheduled version without a map."""
        self._formed[formed.domain] = formed
        self._claims.pop(formed.domain, None)

    @property
    def counts_target(self) -> bool:
        """Whether claims by label shift rest on the target's labels in its window or cohorts, see `count`."""
        return self._scope.by_label_shift and self._in_parts("target")

    def form_off_schedule(self) -> None:
        """Record that a map was formed off schedule. The version before it remains the certified one."""
        self._on_schedule = False

    def serve(self, version: int) -> None:
        """Record the number of a version that begins, unless its map was formed off schedule."""
        if self._on_schedule:
            self._version = version

    def look(self, source: ScoreSketch, target: ScoreSketch, target_labels: int) -> bool:
        """Return whether the target's labels refute label shift at this look, see `LabelShiftWatch.look`."""
        if self.watch is None or not self.watch.look(source, target):
            return False
        reason = f"log e-value {self.watch.log_e:.1f} of the label-shift test"
        if self.generation:
            reason += f", source generation {self.generation}"
        self._alarms.append(DriftAlarm(LABEL_SHIFT_REFUTED, reason, target_labels))
        return True

    def relabel(self, domain: Domain) -> None:
        """Record that a counted label of a domain was corrected.

        An e-process is one only of labels as they came, so those of this domain claim nothing from now on:
        its forecasts, and the test of label shift unless that is refuted. Limits of bins use counts only, and
        stay.
        """
        self._forecasts.pop(domain, None)
        formed = self._formed.get(domain)
        if formed is not None and formed.log_likelihoods:
            self._formed[domain] = formed._replace(log_likelihoods=())
        self._claims.pop(domain, None)
        if self.watch is not None and not self.watch.refuted:
            self.watch = None

    def replace_source(self) -> None:
        """Record that a new source replaces the refuted one, and test label shift anew."""
        self.generation += 1
        self._forecasts.pop("source", None)
        self.watch = self._new_watch(self.watch)

    def merge_forecasts(self, other: Self, sketches: dict[Domain, tuple[ScoreSketch, ScoreSketch]]) -> None:
        """Add the forecasts of another, before the labels are merged.

        Parameters
        ----------
        other
            the ledger to add; its state does not change.
        sketches
            labels so far of each domain: of this one, and of the other.
        """
        self.contradicted += other.contradicted
        for domain in DOMAINS:
            mine, theirs = self._forecasts.get(domain), other._forecasts.get(domain)
            if mine is None or theirs is None:
                self._forecasts.pop(domain, None)
                continue
            formed = self._formed.get(domain)
            if formed is not None:
                likelihoods = self._claims_of(formed).log_likelihoods
                self._formed[domain] = formed._replace(log_likelihoods=likelihoods)
            theirs = theirs.copy()
            mine.score(sketches[domain][0])
            theirs.score(sketches[domain][1])
            mine.merge(theirs)

    def fit_forecasts(self, sketches: dict[Domain, ScoreSketch]) -> None:
        """Make new forecasts from the labels of each domain, after all were merged."""
        for domain, forecasts in self._forecasts.items():
            if forecasts.labels:
                forecasts.fit(sketches[domain])

    def certificate(
        self,
        served: RecalibrationMap,
        target: Target,
        time: float | None,
        *,
        publish: bool,
        weighted: Collection[Domain] = (),
    ) -> Certificate | None:
        """Return the certificate of the served map, and remember it; None before the first version.

        The claims of the last scheduled version bound the risk of any map (lemma 9), so also of a map formed
        off schedule. Its certificate has the number and the labels of that version, and ``on_schedule``
        False.

        Parameters
        ----------
        served
            the served map with its weights.
        target
            scores and labels of the target now.
        time
            event time now, in seconds; None or NaN if there is none.
        publish
            whether it is published with a version: it then raises alarms for refuted assumptions, and does
            not say when a first claim is expected.
        weighted
            the domains with a label whose weight is not 1: bounds use counts, and claim nothing of these
            (`UNWEIGHTED`), except by matured cohorts of the target, which need no weights.
        """
        formed = self._certifying
        if formed is None:
            return None
        certificate = self._certified(formed, served, target, time, weighted=weighted, foresees=not publish)
        if publish:
            if MONOTONE_REFUTED in certificate.refuted and not self._is_raised(MONOTONE_REFUTED):
                self._alarms.append(_monotone_alarm(target.labels.labels))
            self._alarms += self._zeros_alarm(certificate, target.labels.labels)
        self._remember(certificate)
        return certificate

    def _certified(
        self,
        formed: Formed,
        served: RecalibrationMap,
        target: Target,
        time: float | None,
        *,
        weighted: Collection[Domain],
        foresees: bool,
    ) -> Certificate:
        """Return the certificate of the served map, see `certificate`, and change nothing.

        ``foresees`` is whether it says when a first claim is expected: that takes tens of milliseconds.
        """
        contradicted = self._least_contradicted(target.labels.labels)
        claims, subject = self._claims_of(formed), self._subject(served)
        blind = self._is_blind(formed.domain, weighted)
        scores = target.scores() if not blind and self._observes(formed.domain) else None
        if not blind:
            bound = claims.bound_of(subject, scores=scores)
        else:
            bound = claims.by_limits(subject)._replace(
                calibration=1.0, sharpness=1.0, risk=1.0, monotone=True
            )
        label_shift_refuted = self.watch is not None and self.watch.refuted
        target_risk, by_label_shift = bound.risk if formed.domain == "target" else None, False
        source = self._formed.get("source")
        if source is not None and self._scope.by_label_shift and target.labels[1] and not self.generation:
            shifted, latest = 1.0, self._of_window(target)
            unshifted = any(self._is_blind(domain, weighted) for domain in DOMAINS)
            blind |= unshifted
            if latest is not None and not label_shift_refuted and not unshifted:
                shifted = self._claims_of(source).target_risk(served, latest, delta=_TARGET * self._delta)
            if target_risk is None or shifted < target_risk:
                target_risk, by_label_shift = shifted, True
            if self._matured:
                target = latest or target._replace(labels=Counted(0, 0))
        if target_risk is not None and not bound.monotone:
            target_risk = 1.0
        if target_risk is not None and formed.domain == "target":
            # The risk of one map in one domain, so one bound.
            calibration, sharpness = min(bound.calibration, target_risk), min(bound.sharpness, target_risk)
            bound = bound._replace(calibration=calibration, sharpness=sharpness, risk=target_risk)
        wrong_zeros = target_risk is not None and contradicted > _TOLERATED * min(target_risk, NO_CLAIM)
        if wrong_zeros:
            target_risk = 1.0
            if formed.domain == "target":
                bound = bound._replace(calibration=1.0, sharpness=1.0, risk=1.0)
        refuted = (
            *(() if bound.monotone else (MONOTONE_REFUTED,)),
            *((LABEL_SHIFT_REFUTED,) if label_shift_refuted else ()),
            *((implied_zeros(self._implied),) if wrong_zeros and self._implied is not None else ()),
            *((UNWEIGHTED,) if blind else ()),
        )
        expected = None
        if foresees and not refuted and (bound.risk if target_risk is None else target_risk) >= NO_CLAIM:
            by_shift = target if formed.domain == "source" and target_risk is not None else None
            expected = self._first_claim(claims, subject if by_shift is None else served, by_shift, scores)
        matured = self._matured and (formed.domain == "target" or by_label_shift)
        of_target = claims.labels if formed.domain == "target" else target.labels
        (positives, n), (target_positives, n_target) = claims.labels[:2], target.labels[:2]
        bins = max(1, bound.bins)
        paper_target = None
        if formed.domain == "source" and 0 < positives < n and 0 < target_positives < n_target:
            priors = positives / n, target_positives / n_target
            paper_target = PaperBound.of(
                "Theorem 2", theorem2(n, n_target, bins, self._delta, None, *priors), weighted=bool(weighted)
            )
        return Certificate(
            version=self._version,
            time=None if time is None or math.isnan(time) else time,
            domain=formed.domain,
            n_source=n if formed.domain == "source" else 0,
            n_target=n_target if formed.domain == "source" else n,
            bins=bound.bins if self._scope.subject == "formed" else served.bins,
            delta=self._delta,
            delta_spent=bound.delta,
            calibration_risk=bound.calibration,
            sharpness_risk=bound.sharpness,
            risk=bound.risk,
            target_risk=target_risk,
            paper=PaperBound.of(
                "Theorem 1",
                theorem1(max(n, 1), bins, self._delta),
                weighted=formed.domain in weighted,
            ),
            paper_target=paper_target,
            assumptions=assumptions(
                formed.domain,
                self._windowed,
                by_label_shift=by_label_shift,
                matured=matured,
                implied=self._implied,
                observed=claims.reads(scores),
            ),
            refuted=refuted,
            on_schedule=self._on_schedule,
            first_claim=expected,
            cohorts="matured" if matured else "arrived",
            pending=of_target.pending if matured else 0,
        )

    def to_state(self) -> LedgerState:
        """Return the state.

        The history is not part of it: it depends on when certificates were asked for.
        """
        formed = [
            _FormedState(
                each.cells,
                each.splits.tolist(),
                each.choices,
                each.versions_before,
                domain,
                list(each.log_likelihoods),
                each.predictions,
            )
            for domain, each in sorted(self._formed.items())
        ]
        return LedgerState(
            formed,
            self._version,
            self._on_schedule,
            self._alarms,
            self.generation,
            None if self.watch is None else self.watch.to_state(),
            {domain: each.to_state() for domain, each in sorted(self._forecasts.items())},
            self.contradicted,
        )

    def restore(self, state: LedgerState) -> Self:
        """Replace the state by another."""
        for known in state.formed:
            sketch = labels = ScoreSketch.from_bytes(known.cells).checked_as(ScoreSketch(self._max_cells))
            predictions, matured = None, self._matured and known.domain == "target"
            require((known.predictions is not None) == matured, "cohorts do not fit the options")
            if known.predictions is not None:
                sketch = predictions = ScoreSketch.from_bytes(known.predictions)
                sketch.checked_as(ScoreSketch(self._max_cells, labelled=False))
            splits = ascending(np.array(known.splits, np.int64), "bins")
            ends = len(splits) > 1 and (int(splits[0]), int(splits[-1]))
            require(ends == (0, len(sketch.cells)), "the bins do not fit the cells")
            require(len(known.log_likelihoods) in (0, len(LEVELS)), "forecasts of too few levels")
            formed = Formed.of(
                labels, splits, known.choices, known.versions_before, known.domain, predictions=predictions
            )
            self.count(formed._replace(log_likelihoods=tuple(known.log_likelihoods)))
        require(state.forecasts.keys() <= self._forecasts.keys(), "forecasts under a window")
        self._forecasts = {
            domain: Prequential().restore(each) for domain, each in sorted(state.forecasts.items())
        }
        self._version, self._on_schedule, self._alarms = state.version, state.on_schedule, state.alarms
        self.generation, self.contradicted = state.generation, state.contradicted
        watch = self._new_watch(self.watch if self.generation else None)
        self.watch = None if watch is None or state.watch is None else watch.restore(state.watch)
        return self

    def _new_watch(self, before: LabelShiftWatch | None = None) -> LabelShiftWatch | None:
        if not self._scope.by_label_shift:
            return None
        # The shares of all generations of the source sum to α.
        share = 1.0
        if self._scope.replaces_source:
            share = 1.0 / ((self.generation + 1) * (self.generation + 2))
        return LabelShiftWatch(share * _ALPHA * self._delta, self._max_cells, before)

    def _claims_of(self, formed: Formed) -> Claims:
        claims = self._claims.get(formed.domain)
        if claims is None:
            share = 1.0
            if self._scope.by_label_shift:
                share = _SOURCE if formed.domain == "source" else _TARGET_VERSIONS
            delta, j = share * self._delta, formed.versions_before
            windowed, whole = formed.domain in self._windowed, not self._in_parts(formed.domain)
            observed = _OBSERVED if self._observes(formed.domain) else 0.0
            spending = Spending(
                version_delta((_LIMITS if whole else 1.0) * delta, j),
                version_delta((1.0 - observed) * _MASSES * delta, j),
                _ONCE * delta,
                observed * _MASSES * delta,
            )
            claims = Claims(formed, spending, self._forecasts.get(formed.domain), windowed=windowed)
            self._claims[formed.domain] = claims
        return claims

    @property
    def _certifying(self) -> Formed | None:
        """Claims that the certificate rests on; None before the first version."""
        by_target = self._scope.subject == "served" or not self._scope.by_label_shift
        return (self._formed.get("target") if by_target else None) or self._formed.get("source")

    def _is_raised(self, assumption: str) -> bool:
        """Whether the alarm was raised that an assumption is refuted."""
        return any(alarm.assumption == assumption for alarm in self._alarms)

    def _least_contradicted(self, labels: int) -> float:
        """Return a lower limit on the share of predictions that are 1 and were learned as 0 (lemma 20).

        ``labels`` is the number of target labels learned.
        """
        if not self.contradicted:
            return 0.0
        return prior_limits(self.contradicted, max(labels, self.contradicted), _ALPHA * self._delta)[0]

    def _zeros_alarm(self, certificate: Certificate, target_labels: int) -> tuple[DriftAlarm, ...]:
        """Return the alarm that implied zeros are wrong, if a certificate says so and none was raised."""
        zeros = next((each for each in certificate.refuted if each.startswith(IMPLIED)), None)
        if zeros is None or self._is_raised(zeros):
            return ()
        reason = f"{self.contradicted:,} labels of 1 came after their predictions had been learned as 0"
        return (DriftAlarm(zeros, reason, target_labels),)

    def _is_blind(self, domain: Domain, weighted: Collection[Domain]) -> bool:
        """Whether nothing can be claimed of a domain, as its labels have weights."""
        return domain in weighted and not (self._matured and domain == "target")

    def _in_parts(self, domain: Domain) -> bool:
        """Whether claims rest on some of a domain's labels only: those of a window, or of matured cohorts."""
        return domain in self._windowed or (self._matured and domain == "target")

    def _observes(self, domain: Domain) -> bool:
        """Whether claims of a domain may rest on all its observed scores: those of the target are known."""
        return domain == "target" and not self._in_parts(domain)

    def _of_window(self, target: Target) -> Target | None:
        """Return the target that claims by label shift rest on, by the last version if it is counted."""
        if not self.counts_target:
            return target
        formed = self._formed.get("target")
        return None if formed is None else self._claims_of(formed).as_target

    def _first_claim(
        self,
        claims: Claims,
        certified: RecalibrationMap,
        target: Target | None,
        scores: ScoreSketch | None,
    ) -> int | None:
        """Return the number of labels at which a claim is expected, by label shift or by ``claims``.

        For matured cohorts it is None: the number of pending labels cannot be foreseen.
        """
        if self._matured:
            return None
        if target is None:

            def risk_after(doublings: int) -> float:
                many = None if scores is None else doubled(scores, doublings)
                return claims.doubled(doublings).bound_of(certified, scores=many).risk

            return first_claim(claims.labels.labels, risk_after)
        latest, delta = self._of_window(target), _TARGET * self._delta
        if latest is None:
            return None
        return first_claim(
            latest.labels.labels,
            lambda d: claims.target_risk(certified, latest.doubled(d), delta=delta),
        )

    def _subject(self, served: RecalibrationMap) -> RecalibrationMap:
        """Return the map whose risk is bounded in the domain of its labels."""
        if self._scope.subject == "formed":  # h, without the shift to the target: of the bins, or a curve
            return served.model_copy(update={"weights": NO_SHIFT})
        return served if self._scope.subject == "served" else _IDENTITY

    def _remember(self, certificate: Certificate) -> None:
        if self._history and self._history[-1].version == certificate.version:
            self._history.pop()
        self._history.append(certificate)
        if len(self._history) > MOST_CERTIFICATES:
            self._history = self._history[-1::-2][::-1]


def _monotone_alarm(target_labels: int) -> DriftAlarm:
    return DriftAlarm(MONOTONE_REFUTED, "two bins have certain rates in the wrong order", target_labels)
