"""Certificates and alarms as users see them: frozen records, which travel as JSON."""

from __future__ import annotations

from html import escape
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from streamcal.base.times import show_duration
from streamcal.certificates.theorems import Number, Premise, TheoremBound
from streamcal.events import Domain
from streamcal.sketch import decoding

NO_CLAIM: Final = 0.25
"""Bound from which on nothing is claimed: the constant ½ has at most this risk, without a label."""

MONOTONE_REFUTED: Final = "P[Y=1 | score] does not decrease with the score"
LABEL_SHIFT_REFUTED: Final = "label shift: the scores given the label have the same law in source and target"

UNWEIGHTED: Final = "every label counts alike: the bounds are of counts, and claim nothing of weighted labels"
"""Assumption that fails if labels have more than one weight."""

ARRIVAL: Final = "which labels have arrived does not depend on the labels: none comes later for its value"
"""Assumption that only mode ``auto`` tests, by the delays of each class; it then certifies other labels."""

ARRIVAL_OF_SOURCE: Final = ARRIVAL.replace("which labels", "which labels of the source", 1)
"""Assumption about the source alone, if the target's labels are those of matured cohorts."""

ARRIVAL_OF_DRAWN: Final = (
    "which labels are drawn, and when they come, depends on scores, chance and earlier labels alone, and"
    " times tell nothing of labels"
)
"""Assumption about labels that are drawn by scores and earlier labels (lemma 22)."""

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]

RiskField = Literal["risk", "target_risk"]
"""Name of a field of a certificate that bounds a risk."""


def identically_distributed(domain: Domain) -> str:
    """Return the assumption that the labelled scores of a domain are identically distributed, as tested."""
    return f"identical distribution: the labelled scores of the {domain} are independent, and all of one law"


def implied_zeros(seconds: float) -> str:
    """Return the assumption that a prediction without a label within this many seconds is a 0."""
    return f"a prediction without a label within {show_duration(seconds)} is a 0"


DriftCode: TypeAlias = Literal["implied_zeros", "label_shift", "monotone", "source_law", "target_law"]
"""Code of an assumption that may be refuted."""

DRIFT_OF: Final[dict[Domain, DriftCode]] = {"source": "source_law", "target": "target_law"}
"""Codes of the assumptions of `identically_distributed`."""


class DriftAlarm(msgspec.Struct, frozen=True):
    """Alarm: an assumption behind the certificates is refuted. Each alarm is raised once."""

    code: DriftCode
    assumption: str
    """Assumption, worded as in the certificates."""
    reason: str
    """Evidence that refuted it, in words."""
    target_labels: decoding.Count
    """Number of labelled target scores at that time."""
    key: str | None = None


class PaperBound(BaseModel):
    """A theorem of the paper, evaluated for this version. It is a guarantee only if every premise is met.

    The figures are those of the theorem, capped at 1: no risk exceeds 1, and so they are finite.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    theorem: str
    calibration_risk: Probability
    sharpness_risk: Probability
    risk: Probability
    smoothness: Number | None
    """Constant K of assumption A3. None: this is the bound that needs no K."""
    premises: tuple[Premise, ...]

    @property
    def met(self) -> bool:
        """Whether every premise holds."""
        return all(premise.met for premise in self.premises)

    @classmethod
    def of(cls, theorem: str, bound: TheoremBound, *, weighted: bool = False) -> PaperBound:
        """Return the record of a theorem that was evaluated without K.

        It is about labels of weight 1: with ``weighted`` labels a premise fails.
        """
        unweighted = (Premise.of("labels without weights", 1.0, 0.0),) if weighted else ()
        return cls(
            theorem=theorem,
            calibration_risk=min(1.0, bound.calibration),
            sharpness_risk=min(1.0, bound.sharpness),
            risk=min(1.0, bound.risk),
            smoothness=None,
            premises=bound.premises + unweighted,
        )


class Certificate(BaseModel):
    """Upper bounds on the risk of a map version, and the assumptions behind them.

    With probability at least 1 − ``delta``, the bounds of *all* versions of a stream hold together, as long
    as the ``assumptions`` hold. A bound of ¼ or more claims nothing, see `in_words`.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    version: Count
    """Number of the map version. The identity, before the first version, is 0."""
    time: Number | None
    """Event time at which the certificate was made, in seconds; None if the events carry none."""
    domain: Domain
    """Domain of the labels that h was formed from; ``risk`` is the risk in this domain."""
    n_source: Count
    """Number of labelled source scores that h was formed from; 0 if it was formed from the target's."""
    n_target: Count
    """Number of labelled target scores: the ones that h was formed from, or all so far if it was formed from
    the source's; with matured ``cohorts``, the number of their predictions."""
    bins: Count
    """Number B of the uniform-mass bins formed from these labels, which the ``paper``'s bounds are about; 0
    for the identity."""
    delta: Annotated[float, Field(gt=0.0, lt=1.0)]
    """Probability δ that any bound fails in the whole life of the stream."""
    delta_spent: Annotated[float, Field(gt=0.0, lt=1.0)]
    """Share of δ that this version spends."""
    risk: Probability
    """Bound on R = E[(h − h*)²] of h in ``domain``."""
    target_risk: Probability | None
    """Bound on R of the served map in the target domain; None without a target."""
    paper: PaperBound
    """Theorem 1 for the labels and bins of h."""
    paper_target: PaperBound | None
    """Theorem 2 at the estimated priors; None unless both domains have labels of both classes."""
    assumptions: tuple[str, ...]
    """Assumptions of the bounds, in words."""
    refuted: tuple[str, ...]
    """Assumptions that the data contradict. Bounds that need them are withdrawn: set to 1."""
    on_schedule: bool
    """False if the served map was formed off schedule. It is then certified by the labels of ``version``, the
    last version before it."""
    labels_needed: Count | None = None
    """Number of labels of its domain at which a bound below ¼ on the served map is expected, if labels go on
    as they are. An estimate; None if there is none, if the bound is below ¼ already, and in certificates that
    are published with maps."""
    cohorts: Literal["arrived", "matured"] = "arrived"
    """Labels of the target that the bounds rest on. ``"matured"``: labels of all predictions that are old
    enough, since one class was found to come later. A pending label counts as 0 or 1, whichever gives the
    larger bound, so nothing is assumed about its arrival. ``"arrived"``: labels that have come, or none of
    the target."""
    pending: Count = 0
    """Number of predictions of matured cohorts whose label has not come."""

    def in_words(self, field: RiskField, form: str = ".4g") -> str:
        """Return a bound as a figure in this form; one that claims nothing, in a sentence.

        A bound of ¼ or more claims nothing: the constant forecast ½ has at most this risk, without a label.
        """
        bound = getattr(self, field)
        if bound is None:
            return "none"
        if bound < NO_CLAIM:
            return format(bound, form)
        if UNWEIGHTED in self.refuted:
            return "no claim: labels have unequal weights"
        if self.refuted:
            return "no claim: an assumption is refuted"
        by_target = field == "target_risk" or self.domain == "target"
        words = f"no claim yet: {self.n_target if by_target else self.n_source:,} labels so far"
        if self.pending and by_target:
            words += f", {self.pending:,} pending"
        if self.labels_needed is not None and by_target == (self.target_risk is not None):
            words += f", first claim expected near {self.labels_needed:,}"
        return words

    def __repr__(self) -> str:
        """Return one line with the figures that matter most."""
        return (
            f"Certificate(version={self.version}, domain={self.domain!r}, risk={self.in_words('risk')}, "
            f"target_risk={self.in_words('target_risk')}, delta={self.delta:g}, refuted={self.refuted!r})"
        )

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """Return a small table, which a notebook shows."""
        rows = {
            "domain": self.domain,
            "labels": f"{self.n_source:,} source, {self.n_target:,} target",
            "labels of the target": "those that have come"
            if self.cohorts == "arrived"
            else f"of matured predictions, {self.pending:,} more pending",
            "bins": f"{self.bins:,}",
            "risk, at most": self.in_words("risk"),
            "target risk, at most": self.in_words("target_risk"),
            "holds with probability": f"{1.0 - self.delta:g}",
            "assumes": "; ".join(self.assumptions),
            "refuted": "; ".join(self.refuted) or "none",
        }
        body = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows.items()
        )
        return f"<table><caption>Certificate of version {self.version}</caption><tbody>{body}</tbody></table>"
