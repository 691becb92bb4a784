"""Contents of a report as plain data: the JSON of ``streamcal report --json`` (docs/report.schema.json)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec

from streamcal.run.closing import closing_words
from streamcal.run.connectors import public_url
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Source
from streamcal.run.run_history import RunHistory
from streamcal.run.status import Status
from streamcal.run.summary import closing_rows

__all__ = ["DelayQuantile", "Figure", "Report", "count_unknown", "make_report"]

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
    made_from: Iterable[str],
    options: Mapping[str, Any],
    sources: Sequence[Source] | None = None,
) -> Report:
    """Return the report of a run, between two micro-batches or at its end.

    Parameters
    ----------
    made_from
        names of the inputs, or of the store; of URLs, secrets are left out.
    options
        options of the run, as far as they are known, without secrets.
    sources
        inputs of the run. None: they are not known, as for a store.
    """
    delays = pipeline.quality.delays
    shares = _SHARES if delays.labels else ()
    unknown = None if sources is None else count_unknown(sources)
    return Report(
        1,
        version("streamcal-engine"),
        datetime.now(UTC).isoformat(timespec="seconds"),
        [public_url(name) for name in made_from],
        [Figure(*row) for row in closing_rows(pipeline, unknown)],
        [DelayQuantile(share, delays.quantile(share)) for share in shares],
        history.status(pipeline, closing_words(pipeline, sources or ()), options),
    )


def count_unknown(sources: Iterable[Source]) -> int:
    """Return how often sources ignored an unknown field."""
    return sum(sum(each.unknown_fields.values()) for each in sources)
