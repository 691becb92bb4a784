"""Contents of a report as plain data: the JSON of ``streamcal report --json`` (docs/report.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec

from streamcal.monitor.run_history import RunHistory
from streamcal.monitor.status import Status
from streamcal.monitor.summary import closing_rows
from streamcal.run.pipeline import Pipeline

__all__ = ["DelayQuantile", "Figure", "Report", "make_report"]

_SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


class Figure(msgspec.Struct):
    """A row of the table at the end of a run."""

    name: str
    value: str


class DelayQuantile(msgspec.Struct):
    """A share of the labels came within so many seconds of event time."""

    share: float
    seconds: float


class Report(msgspec.Struct):
    """All that a report says."""

    format: Literal[1]
    streamcal: str
    """The version that made it."""
    made: str
    """When, as ISO 8601."""
    made_from: list[str]
    """Names of the store, or of the inputs of the run."""
    figures: list[Figure]
    """The table at the end of a run."""
    delays: list[DelayQuantile]
    """Empty where no times are known."""
    status: Status
    """Status of the run."""


def make_report(
    pipeline: Pipeline,
    history: RunHistory,
    *,
    made_from: Sequence[str],
    warnings: Sequence[str],
    options: Mapping[str, Any],
    unknown_fields: int | None,
    made: str | None = None,
) -> Report:
    """Return the report of a run, between two micro-batches or at its end.

    Parameters
    ----------
    made_from
        what it is a report of, without secrets.
    warnings
        of `streamcal.monitor.remarks`.
    options
        those of the run, as far as they are known, without secrets.
    unknown_fields
        as for `streamcal.monitor.summary.closing_rows`.
    made
        moment of the report, as ISO 8601; now if not given.
    """
    delays = pipeline.quality.delays
    shares = _SHARES if delays.labels else ()
    return Report(
        1,
        version("streamcal-engine"),
        made or datetime.now(UTC).isoformat(timespec="seconds"),
        list(made_from),
        [Figure(*row) for row in closing_rows(pipeline, unknown_fields)],
        [DelayQuantile(share, delays.quantile(share)) for share in shares],
        history.status(pipeline, warnings, options),
    )
