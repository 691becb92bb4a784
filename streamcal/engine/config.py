"""Options of the engine, validated once."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from streamcal.engine.schedule import FIRST_LABELS
from streamcal.events import Domain
from streamcal.priors.tracker import PriorKind
from streamcal.sketch.score_sketch import MIN_MAX_CELLS

__all__ = ["Mode", "RecalibratorConfig"]

Mode = Literal["auto", "source", "label_shift", "target", "composite"]
"""Which of the paper's estimators is served (section 5 and appendix E)."""


class RecalibratorConfig(BaseModel):
    """Options of `Recalibrator`.

    Raises
    ------
    pydantic.ValidationError
        on an unknown option or a value out of range; it names both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    bins: Literal["auto", "cube_root"] | Annotated[int, Field(ge=1, le=65_536)] = "auto"
    """B: ``"auto"`` minimises the leave-one-out Brier score, ``"cube_root"`` is ⌊n^(1/3)⌋, or a number."""

    max_cells: Annotated[int, Field(ge=MIN_MAX_CELLS, le=1 << 20)] = 4096
    """How many cells each sketch may occupy: memory against resolution."""

    growth: Annotated[float, Field(gt=1.0, le=16.0, strict=False)] = 1.1
    """ρ: h is re-formed each time the number of labels has grown by this factor; the mixture of mode ``auto``
    has its own schedule."""

    mode: Mode = "auto"
    """``source`` h_P, ``label_shift`` g, ``target`` h_Q from target labels, ``composite`` g∘h_P; ``auto``
    is h_P until target labels come, then a mixture of all these on windows of several lengths, weighed by
    what they have lost lately (docs/drift.md)."""

    window: Annotated[int, Field(ge=FIRST_LABELS, le=1_000_000_000)] | timedelta | None = None
    """What h is formed from: so many of the latest labels, or those of so long a stretch of event time
    (in TOML an ISO 8601 duration, ``"P30D"``); None: all of them. It slides by a sixteenth of itself. The
    mixture of mode ``auto`` has windows of target labels of its own: there it bounds the source, and what
    certificates are worked out from."""

    window_domain: Literal["source", "target", "both"] = "both"
    """Whose labels the ``window`` forgets."""

    prior_smoothing: Annotated[float, Field(ge=0.0, le=1e6, strict=False)] = 0.5
    """s in the class priors (S+s)/(N+2s): ½ is Krichevsky–Trofimov, 0 the paper's plug-in."""

    prior: PriorKind = "labels"
    """What the target's prior is estimated from: ``labels``; ``scores``, by likelihood under h_P; or
    ``both``, each prediction by its label once that has come, before by its score."""

    prior_window: Annotated[int, Field(ge=1, le=10_000_000)] | Literal["adwin"] | None = None
    """How many of the latest target predictions count for it, or ``"adwin"``: those since its last change.
    None: with scores, as ``"adwin"``; of labels all, or those of the target's ``window``. Mode ``auto`` tries
    several windows of labels in any case; there it is of account with scores only."""

    delta: Annotated[float, Field(gt=0.0, lt=1.0, strict=False)] = 0.1
    """δ: the certificates hold with probability at least 1 − δ over the whole life of the stream."""

    @field_validator("window", mode="before")
    @classmethod
    def _duration(cls, value: object) -> object:
        """Read a duration in text: strict as the options are, they would not take one."""
        return TypeAdapter(timedelta).validate_python(value) if isinstance(value, str) else value

    @field_validator("window")
    @classmethod
    def _is_positive(cls, value: int | timedelta | None) -> int | timedelta | None:
        if isinstance(value, timedelta) and value <= timedelta(0):
            raise ValueError(f"a window must be longer than nothing, got {value}")
        return value

    def window_of(self, domain: Domain) -> int | timedelta | None:
        """Return the window of a domain's labels; None: it has none."""
        return self.window if self.window_domain in (domain, "both") else None
