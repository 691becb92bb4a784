"""CertificateTarget: what the certificates of an engine are about, assume, and may spend."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, NamedTuple

from streamcal.certificates.bounds import ErrorBudget, VersionData
from streamcal.certificates.inequalities import version_delta
from streamcal.certificates.record import (
    ARRIVAL,
    ARRIVAL_OF_DRAWN,
    ARRIVAL_OF_SOURCE,
    LABEL_SHIFT_REFUTED,
    MONOTONE_REFUTED,
    identically_distributed,
    implied_zeros,
)
from streamcal.events import Domain
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import NO_SHIFT

# Shares of δ if a claim on the target follows from the source by label shift: for versions formed from the
# source, for the priors of both, and for versions formed from the target.
_SOURCE, _PRIORS, _TARGET = 0.6, 0.2, 0.2
# Of these, half goes to the limits of bins, a quarter to masses, and a quarter to the likelihood sets.
_LIMITS, _MASSES, _SETS = 0.5, 0.25, 0.25
_OBSERVED: Final = 0.125  # of what the target's masses spend, on masses by all observed scores

_IDENTITY: Final = RecalibrationMap(version=0)


_IDENTICAL_IN_WINDOW: Final = (
    "the labelled scores of the {} in the window of any one version are independent and identically"
    " distributed, which no test checks: a window forgets"
)
_IDENTICAL_PREDICTED: Final = (
    "the predicted scores and their labels, come or not, are independent and identically distributed, which"
    " no test checks"
)
_SAME_LAW: Final = (
    "the scores with labels have the law of all observed scores, which are independent and identically"
    " distributed"
)
_INDEPENDENT: Final = "source and target are independent"


class CertificateTarget(NamedTuple):
    """Subject of an engine's certificates, as its options say, and the error probability of each part."""

    subject: Literal["formed", "identity", "served"]
    """Map whose risk is certified in the domain of its labels: the one that was formed, the identity, or the
    served map."""
    by_label_shift: bool
    """Whether the target risk is certified by label shift. If so, δ covers both domains, and the target's
    labels are tested for label shift."""
    delta: float = 0.1
    """δ in (0, 1), for the whole life of the stream."""
    windowed: Collection[Domain] = ()
    """Domains whose labels are those of a sliding window."""
    matured: bool = False
    """Whether the target's labels are those of matured cohorts of predictions (lemma 19)."""
    implied: float | None = None
    """Seconds after which a prediction of the target without a label counts as 0; None: it does not count."""

    def map_of(self, served: RecalibrationMap) -> RecalibrationMap:
        """Return the map whose risk is bounded in the domain of its labels."""
        if self.subject == "formed":  # h, without the shift to the target: of the bins, or a curve
            return served.model_copy(update={"weights": NO_SHIFT})
        return served if self.subject == "served" else _IDENTITY

    @property
    def implied_zeros(self) -> tuple[str, ...]:
        """Assumption that a prediction without a label in time is a 0, if it is made."""
        return () if self.implied is None else (implied_zeros(self.implied),)

    def is_partial(self, domain: Domain) -> bool:
        """Whether bounds rest on some of a domain's labels only: those of a window, or of matured cohorts."""
        return domain in self.windowed or self.is_matured(domain)

    def is_matured(self, domain: Domain) -> bool:
        """Whether bounds rest on matured cohorts of a domain: they need no weights of labels."""
        return self.matured and domain == "target"

    def observes(self, domain: Domain) -> bool:
        """Whether bounds of a domain may rest on all its observed scores: those of the target are known."""
        return domain == "target" and not self.is_partial(domain)

    @property
    def counts_target(self) -> bool:
        """Whether claims by label shift rest on the target's labels in its window or cohorts."""
        return self.by_label_shift and self.is_partial("target")

    @property
    def delta_of_shift(self) -> float:
        """Error probability of the priors of both domains, if claims on the target follow by label shift."""
        return _PRIORS * self.delta

    def assumptions(
        self, domain: Domain, *, by_label_shift: bool, observed: bool, drawn: bool = False
    ) -> tuple[str, ...]:
        """Return the assumptions of a certificate, in words.

        Parameters
        ----------
        domain
            domain of the labels that the version was formed from.
        by_label_shift
            whether the target risk follows from the source by label shift.
        observed
            whether masses are those of all observed scores, labelled or not (lemma 16).
        drawn
            whether labels were drawn by scores and earlier labels (lemma 22).
        """
        if drawn:
            return _IDENTICAL_PREDICTED, ARRIVAL_OF_DRAWN, MONOTONE_REFUTED
        by_target = domain == "target"
        arrival: tuple[str, ...] = (ARRIVAL,)
        if self.matured and (by_target or by_label_shift):
            arrival = (ARRIVAL_OF_SOURCE,) if by_label_shift else ()
        same_law = (_SAME_LAW,) if observed else ()
        zeros = self.implied_zeros if by_target or by_label_shift else ()
        formed = (self._identical(domain), *same_law, *arrival, *zeros, MONOTONE_REFUTED)
        if not by_label_shift:
            return formed
        return (
            *formed,
            LABEL_SHIFT_REFUTED,
            self._identical("source" if by_target else "target"),
            _INDEPENDENT,
        )

    def _identical(self, domain: Domain) -> str:
        """Return the assumption that the labels of a domain, as far as bounds rest on them, have one law."""
        if self.is_matured(domain):
            return _IDENTICAL_PREDICTED
        if domain in self.windowed:
            return _IDENTICAL_IN_WINDOW.format(domain)
        return identically_distributed(domain)

    def budget(self, data: VersionData) -> ErrorBudget:
        """Return the error probabilities of the bounds of a version."""
        domain, share = data.domain, 1.0
        if self.by_label_shift:
            share = _SOURCE if domain == "source" else _TARGET
        delta, j = share * self.delta, data.versions_before
        if self.is_matured(domain):
            return ErrorBudget(version_delta(delta, j))
        observed = _OBSERVED if self.observes(domain) else 0.0
        return ErrorBudget(
            version_delta(_LIMITS * delta, j),
            version_delta((1.0 - observed) * _MASSES * delta, j),
            version_delta(_SETS * delta, j) if domain in self.windowed else _SETS * delta,
            observed * _MASSES * delta,
        )
