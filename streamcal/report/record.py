"""Contents of a report as plain data: the JSON of ``streamcal report --json`` (docs/report.schema.json)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal

import msgspec

from streamcal.monitor.status import Status
from streamcal.monitor.summary import closing_rows

__all__ = ["Figure", "Report", "make_report"]


class Figure(msgspec.Struct):
    """A row of the table at the end of a run."""

    name: str
    value: str


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
    status: Status
    """Status of the run."""


def make_report(status: Status, made_from: Sequence[str], made: str | None = None) -> Report:
    """Return the report of a run.

    Parameters
    ----------
    status
        of the run, with its views.
    made_from
        store or inputs of the run, without secrets.
    made
        moment of the report, as ISO 8601; now if not given.
    """
    return Report(
        1,
        version("streamcal-engine"),
        made or datetime.now(UTC).isoformat(timespec="seconds"),
        list(made_from),
        [Figure(*row) for row in closing_rows(status)],
        status,
    )
