"""Contents of a report as plain data: the JSON of ``streamcal report --json`` (docs/report.schema.json)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Literal

import msgspec

from streamcal.monitor.status import Status
from streamcal.monitor.summary import closing_rows
from streamcal.run.connectors import public_url

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


def make_report(status: Status, made_from: Iterable[str]) -> Report:
    """Return the report of a run.

    Parameters
    ----------
    status
        of the run, with its views.
    made_from
        names of the store or of the inputs; of URLs, secrets are left out.
    """
    return Report(
        1,
        version("streamcal-engine"),
        datetime.now(UTC).isoformat(timespec="seconds"),
        [public_url(name) for name in made_from],
        [Figure(*row) for row in closing_rows(status)],
        status,
    )
