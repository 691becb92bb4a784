"""What may be claimed of one map version: the `Certificate`, its figures beside the paper's.

A certificate is a frozen record that round-trips through JSON. The figures come from
`streamcal.certify`, `streamcal.certify_target` and `streamcal.bounds`; here they get their assumptions.
"""

from __future__ import annotations

import math
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from streamcal.certificates.source import RiskBound
from streamcal.certificates.theorems import TheoremBound, theorem1, theorem2
from streamcal.events import Domain

__all__ = [
    "COMPOSITE_ASSUMPTIONS",
    "LABEL_SHIFT_REFUTED",
    "MONOTONE_REFUTED",
    "SOURCE_ASSUMPTIONS",
    "Certificate",
    "PaperBound",
    "PaperPremise",
    "make_certificate",
]

SOURCE_ASSUMPTIONS: Final = (
    "the labelled scores are independent and identically distributed",
    "P[Y=1 | score] does not decrease with the score",
)
"""What the streaming certificate rests on."""

COMPOSITE_ASSUMPTIONS: Final = (
    "label shift: the scores given the label have the same law in source and target",
    "target scores and labels are independent and identically distributed, and independent of the source",
)
"""What the target certificate rests on besides."""

WINDOW_ASSUMPTION: Final = (
    "the labelled scores in the window of any one version are independent and identically distributed"
)
"""What takes the place of the first of them under a window."""

MONOTONE_REFUTED: Final = "P[Y=1 | score] does not decrease with the score"
LABEL_SHIFT_REFUTED: Final = COMPOSITE_ASSUMPTIONS[0]

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]


class PaperPremise(BaseModel):
    """A premise of a theorem: ``available >= required``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    required: float
    available: float
    met: bool


class PaperBound(BaseModel):
    """A theorem of the paper at this version: a promise only if every premise is ``met``.

    Each figure is the theorem's own, cut at 1 (no risk exceeds 1), so that it is finite.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    theorem: str
    calibration_risk: Probability
    sharpness_risk: Probability
    risk: Probability
    smoothness: float | None
    """K of assumption A3, or None: then the bound that needs no K."""
    premises: tuple[PaperPremise, ...]

    @property
    def met(self) -> bool:
        """Whether every premise holds."""
        return all(premise.met for premise in self.premises)

    @classmethod
    def of(cls, theorem: str, bound: TheoremBound, smoothness: float | None) -> PaperBound:
        """Return a theorem's evaluation as a record."""
        return cls(
            theorem=theorem,
            calibration_risk=min(1.0, bound.calibration),
            sharpness_risk=min(1.0, bound.sharpness),
            risk=min(1.0, bound.risk),
            smoothness=smoothness,
            premises=tuple(
                PaperPremise(name=p.name, required=p.required, available=p.available, met=p.met)
                for p in bound.premises
            ),
        )


class Certificate(BaseModel):
    """An upper bound on a map version's risk, and all it rests on.

    With probability at least 1 − ``delta`` the figures of *all* versions of a stream are true together,
    as long as the ``assumptions`` hold. A figure of 1 says nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Count
    """The map version, from 0."""
    time: float | None
    """Event time of the version, seconds; None if the events carry none."""
    domain: Domain
    """The domain whose labels h was formed from; ``calibration_risk``, ``sharpness_risk`` and ``risk`` are
    risks in it."""
    n_source: Count
    """Labelled source scores that h was formed from; 0 if it was formed from the target's."""
    n_target: Count
    """Labelled target scores that h was formed from, or so far if it was formed from the source's."""
    bins: Count
    """B of the served map; 0 for the identity."""
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    """The failure probability for the whole life of the stream."""
    delta_spent: Annotated[float, Field(gt=0.0, lt=1.0)]
    """This version's share of it."""
    calibration_risk: Probability
    """Bound on R^cal of h in ``domain``, bin by bin: E[(h − P[Y=1 | bin])²]."""
    sharpness_risk: Probability
    """Bound on R^sha of h in ``domain``, bin by bin: E[(P[Y=1 | bin] − h*)²]."""
    risk: Probability
    """Bound on R = R^cal + R^sha of h in ``domain``."""
    target_risk: Probability | None
    """Bound on the served map's R under Q; None without a target."""
    paper: PaperBound
    """Theorem 1 for the labels and bins of h."""
    paper_target: PaperBound | None
    """Theorem 2 at the estimated priors; None without labels of both classes in both domains."""
    assumptions: tuple[str, ...]
    refuted: tuple[str, ...]
    """Those assumptions the data contradict: their figures are withdrawn (set to 1)."""
    on_schedule: bool
    """False for a certificate carried over to a map formed off schedule: it is that of ``version``."""


def make_certificate(
    *,
    version: int,
    time: float | None,
    bound: RiskBound,
    labels: tuple[int, int],
    delta: float,
    domain: Domain = "source",
    smoothness: float | None = None,
    target_labels: tuple[int, int] = (0, 0),
    target_risk: float | None = None,
    by_label_shift: bool = True,
    label_shift_refuted: bool = False,
    windowed: bool = False,
    served_bins: int | None = None,
    on_schedule: bool = True,
) -> Certificate:
    """Return the certificate of a version from its figures.

    Parameters
    ----------
    version, time
        of the map.
    bound
        the streaming certificate of the served map.
    labels
        (positives, labels) that h was formed from.
    domain
        where they are from.
    target_labels
        (positives, labels) of the target so far.
    delta
        δ of the whole life, in (0, 1); the paper's bounds are evaluated at it, for one fixed time.
    smoothness
        K, if the user vouches for it.
    target_risk
        from `streamcal.certify_target`, or None without a target.
    by_label_shift
        whether ``target_risk`` follows from the source by label shift.
    label_shift_refuted
        whether the e-process has alarmed: withdraws a ``target_risk`` that follows by label shift.
    served_bins
        B of the served map, if it is not the one that ``bound`` was computed for.
    windowed
        whether the labels are those of a window.
    on_schedule
        False for a certificate that is carried over.
    """
    positives, n = labels
    target_positives, n_target = target_labels
    paper_target = None
    bins = max(1, bound.bins)
    if domain == "source" and 0 < positives < n and 0 < target_positives < n_target:
        priors = positives / n, target_positives / n_target
        values = theorem2(n, n_target, bins, delta, smoothness, *priors)
        paper_target = PaperBound.of("Theorem 2", values, smoothness)
    refuted = []
    if not bound.monotone:
        refuted.append(MONOTONE_REFUTED)
    if label_shift_refuted:
        refuted.append(LABEL_SHIFT_REFUTED)
    shifts = target_risk is not None and by_label_shift
    if target_risk is not None and (not bound.monotone or (shifts and label_shift_refuted)):
        target_risk = 1.0
    assumptions = SOURCE_ASSUMPTIONS + (COMPOSITE_ASSUMPTIONS if shifts else ())
    if windowed:
        assumptions = (WINDOW_ASSUMPTION, *assumptions[1:])
    return Certificate(
        version=version,
        time=None if time is None or math.isnan(time) else time,
        domain=domain,
        n_source=n if domain == "source" else 0,
        n_target=n_target if domain == "source" else n,
        bins=bound.bins if served_bins is None else served_bins,
        delta=delta,
        delta_spent=bound.delta,
        calibration_risk=bound.calibration,
        sharpness_risk=bound.sharpness,
        risk=bound.risk,
        target_risk=target_risk,
        paper=PaperBound.of("Theorem 1", theorem1(n, bins, delta, smoothness), smoothness),
        paper_target=paper_target,
        assumptions=assumptions,
        refuted=tuple(refuted),
        on_schedule=on_schedule,
    )
