"""Options of the engine and of the join, validated once."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from streamcal.sketch import MIN_MAX_CELLS

__all__ = ["Domain", "JoinConfig", "Mode", "RecalibratorConfig", "RunConfig", "read_config"]

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
    """ρ: the map is re-formed each time the number of labels has grown by this factor."""

    mode: Mode = "auto"
    """``source`` h_P, ``label_shift`` g, ``target`` h_Q from target labels, ``composite`` g∘h_P;
    ``auto`` is the source map, then the composite once there are target labels; with fewer than 64 source
    labels, the map of the target labels."""

    prior_smoothing: Annotated[float, Field(ge=0.0, le=1e6, strict=False)] = 0.5
    """s in the class priors (S+s)/(N+2s): ½ is Krichevsky–Trofimov, 0 the paper's plug-in."""

    prior_window: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """How many of the latest target labels the target's prior is estimated from; None: all of them."""

    delta: Annotated[float, Field(gt=0.0, lt=1.0, strict=False)] = 0.1
    """δ: the certificates hold with probability at least 1 − δ over the whole life of the stream."""


class JoinConfig(_Options):
    """Options of the join of predictions and labels."""

    label_ttl: Annotated[float, Field(gt=0.0, allow_inf_nan=False, strict=False)] = 30 * 86_400.0
    """Seconds of event time after which a prediction stops waiting for its label, and a label for its
    prediction. Events without a time do not expire by time."""

    max_pending: Annotated[int, Field(ge=1)] = 1_000_000
    """How many predictions, how many early labels, and how many settled ids (kept to tell duplicates)
    are remembered at most; beyond it the oldest go first, counted like those that expire."""


class RunConfig(_Options):
    """Options of a run: two tables, ``[recalibrator]`` and ``[join]``."""

    recalibrator: RecalibratorConfig = RecalibratorConfig()
    join: JoinConfig = JoinConfig()


def read_config(path: Path) -> RunConfig:
    """Read the options of a run from a TOML file.

    Raises
    ------
    OSError
        if it cannot be read.
    ValueError
        if it is no TOML, or has an unknown option or a value out of range; it names the file and both.
    """
    try:
        return RunConfig.model_validate(tomllib.loads(path.read_text("utf-8")))
    except ValueError as error:  # that of TOML, of UTF-8 and of pydantic alike
        raise ValueError(f"{path}: {error}") from error
