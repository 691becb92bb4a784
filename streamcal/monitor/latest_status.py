"""Latest status of a run, which the run's thread writes and any thread reads.

The run writes, between two micro-batches, and never waits for a reader. Readers get the newest record, and
may miss others. So no viewer, however slow, and no number of them holds up the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from streamcal.monitor.build import build_status
from streamcal.monitor.run_history import RunHistory
from streamcal.monitor.shown import Shown, make_shown
from streamcal.monitor.status import Status
from streamcal.run.outcome import Outcome
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Source
from streamcal.run.rows import RejectRow, VersionRow

_EVERY: Final = 1.0  # seconds between two records
_SHARE: Final = 0.01  # of the run's time that may go into them
_HEAD: Final = 300  # characters of a rejected text that are shown


class Live(msgspec.Struct):
    """A record with what a viewer has to know of it."""

    state: Literal["running", "ended"]
    made_at: float
    """Wall-clock time, seconds since the epoch."""
    events_per_second: float | None
    """Since the record before; None in the first."""
    status: Status
    shown: Shown
    """Content of the page."""


class Posted(msgspec.Struct, frozen=True):
    """Newest record, encoded."""

    number: int
    """Rises with every record; begins anew with each process."""
    record: bytes
    """JSON of a `Live`, on one line."""
    rejects: bytes
    """JSON of the latest rejects, with the beginning of their raw text: it may be personal, so it is not part
    of the record."""
    ended: bool


class LatestStatus:
    """Latest status of one run, for any thread to read.

    Parameters
    ----------
    pipeline
        of the run.
    options
        of the run, shown as they are; no secrets.
    sources
        of the run, for remarks on its input.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        options: Mapping[str, Any],
        sources: Sequence[Source] = (),
    ) -> None:
        self._pipeline, self._options, self._sources = pipeline, options, sources
        self._history = RunHistory()
        self._counted: tuple[float, int] | None = None  # moment and events of the latest record
        self._due = 0.0
        self.posted = self._post(0, "running")
        """The newest record; any thread may read it, at any time."""

    def take_versions(self, rows: Iterable[VersionRow]) -> None:
        """Take note of the map versions in the store, which earlier runs have served."""
        self._history.take_versions(rows)

    def take(self, outcome: Outcome) -> None:
        """Take note of a micro-batch; put up a new record if one is due."""
        self._history.take(outcome)
        if time.monotonic() >= self._due:
            self.posted = self._post(self.posted.number + 1, "running")

    def end(self) -> None:
        """Put up the last record: the run has ended."""
        self.posted = self._post(self.posted.number + 1, "ended")

    def _post(self, number: int, state: Literal["running", "ended"]) -> Posted:
        start, busy = time.monotonic(), time.thread_time()
        events, rate = self._pipeline.tally.events, None
        if self._counted is not None:
            rate = (events - self._counted[1]) / max(start - self._counted[0], 1e-9)
        self._counted = start, events
        status = build_status(self._pipeline, self._sources, history=self._history, options=self._options)
        live = Live(state, time.time(), rate, status, make_shown(status))
        rejects = [_shortened(row) for row in reversed(self._history.rejects)]
        posted = Posted(
            number, msgspec.json.encode(live), msgspec.json.encode(rejects), ended=state == "ended"
        )
        self._due = start + max(_EVERY, (time.thread_time() - busy) / _SHARE)
        return posted


def _shortened(row: RejectRow) -> RejectRow:
    raw = row.raw if len(row.raw) <= _HEAD else f"{row.raw[:_HEAD]}…"
    return msgspec.structs.replace(row, raw=raw)
