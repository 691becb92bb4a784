"""Options of the engine and of the join, validated once."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from streamcal.priors import PriorKind
from streamcal.schedule import FIRST_LABELS
from streamcal.sketch import MIN_MAX_CELLS

__all__ = ["Domain", "JoinConfig", "KeysConfig", "Mode", "RecalibratorConfig", "RunConfig", "read_config"]

Domain = Literal["source", "target"]
"""``source``: the calibration domain P; ``target``: the deployment domain Q."""

Mode = Literal["auto", "source", "label_shift", "target", "composite"]
"""Which of the paper's estimators is served (section 5 and appendix E)."""


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RecalibratorConfig(_Options):
    """Options of `Recalibrator`.

    Raises
    ------
    pydantic.ValidationError
        on an unknown option or a value out of range; it names both.
    """

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


class JoinConfig(_Options):
    """Options of the join of predictions and labels."""

    label_ttl: Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=False)] = 30 * 86_400.0
    """Seconds of event time after which a prediction stops waiting for its label, and a label for its
    prediction. Events without a time do not expire by time."""

    max_pending: Annotated[int, Field(ge=1)] = 1_000_000
    """How many predictions, how many early labels, and how many settled ids (kept to tell duplicates)
    are remembered at most; beyond it the oldest go first, counted like those that expire."""


class KeysConfig(_Options):
    """Options of a run's keys, each of which has an engine of its own."""

    limit: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """How many keys there may be; an event of a further one is rejected."""

    active: Annotated[int, Field(ge=1, le=10_000_000)] = 1_000
    """How many engines stay in memory between two micro-batches, those used last; the others are parked as
    their bytes: in the store, or in memory where there is none."""

    certified: Annotated[int, Field(ge=0)] = 16
    """So long as there are no more keys than this, every map is published with its certificate; beyond it,
    only maps of events without a key are. A certificate takes as long to work out as thousands of events."""


class RunConfig(_Options):
    """Options of a run: the tables ``[recalibrator]``, ``[join]``, ``[keys]``, and those of connectors."""

    recalibrator: RecalibratorConfig = RecalibratorConfig()
    join: JoinConfig = JoinConfig()
    keys: KeysConfig = KeysConfig()
    connectors: dict[str, dict[str, Any]] = {}
    """By scheme: tables such as ``[kafka]``, which their connectors validate."""


def read_config(path: Path, connectors: Collection[str] = ()) -> RunConfig:
    """Read the options of a run from a TOML file.

    Parameters
    ----------
    path
        of the file.
    connectors
        names of further tables that it may have: those of connectors.

    Raises
    ------
    OSError
        if it cannot be read.
    ValueError
        if it is no TOML, or has an unknown option or a value out of range; it names the file and both.
    """
    try:
        return _run_config(tomllib.loads(path.read_text("utf-8")), connectors)
    except ValueError as error:  # that of TOML, of UTF-8 and of pydantic alike
        raise ValueError(f"{path}: {error}") from error


def _run_config(tables: dict[str, Any], connectors: Collection[str]) -> RunConfig:
    own = [name for name in RunConfig.model_fields if name != "connectors"]
    for name, table in tables.items():
        # By its name only: what is in a table that nobody knows may be secret.
        if name not in own and name not in connectors:
            known = ", ".join([*own, *sorted(connectors)])
            raise ValueError(f"there is no table [{name}]; known: {known}")
        if not isinstance(table, dict):
            raise ValueError(f"{name} must be a table")  # noqa: TRY004  # a wrong file, no wrong call
    mine = {name: table for name, table in tables.items() if name in own}
    others = {name: table for name, table in tables.items() if name not in own}
    return RunConfig.model_validate(mine | {"connectors": others})
