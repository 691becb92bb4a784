"""Options of a run: those of the engine and the join, of the keys, and of connectors."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from streamcal.engine.config import RecalibratorConfig
from streamcal.join.join import JoinConfig

__all__ = ["KeysConfig", "RunConfig", "read_config"]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


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
