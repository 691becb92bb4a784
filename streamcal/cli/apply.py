"""``streamcal apply``: apply maps from elsewhere to a stream of predictions."""

# ruff: noqa: RUF009  # `option` gives a field

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import typer

from streamcal.cli.opening import added_types, begin, ending, open_sink, open_source, read_map, refuse_damaged
from streamcal.cli.options import CommonOptions, ReadingOptions, option, takes_options
from streamcal.cli.progress import Meter
from streamcal.cli.terminal import Exit, RejectLog, fail, failing, set_up_logging
from streamcal.quality.decision_sums import DecisionSums
from streamcal.run.added import added_fields
from streamcal.run.apply import Maps, apply_maps
from streamcal.run.connectors import public_url
from streamcal.run.outputs import Outputs
from streamcal.run.ports import SinkOptions, TableSource
from streamcal.run.rows import RejectRow

log = logging.getLogger("streamcal")


@dataclass(frozen=True, kw_only=True)
class _ApplyOptions(ReadingOptions, CommonOptions):
    map_file: Path | None = option("A map, as JSON.", flag="--map", role="read")
    follow: str | None = option("The --maps of a run: always apply the newest map of each key.", role="read")
    events: str = option("Predictions to recalibrate.", "-", role="read")
    output: str = option("Where the recalibrated predictions go.", "-", role="written")
    rejects: str | None = option("Where rejected input goes, one line each.", role="written")


@takes_options
def apply(given: _ApplyOptions) -> None:
    """Apply maps from elsewhere to a stream of predictions, without learning."""
    set_up_logging(as_json=given.log_json, quiet=given.quiet)
    if (given.map_file is None) == (given.follow is None):
        fail("give either --map or --follow", Exit.USAGE)
    options, stop, connectors = begin(given)
    with ExitStack() as stack:
        found = None if given.map_file is None else read_map(given.map_file)
        classes: tuple[str, ...] = getattr(found, "classes", ())
        if options.columns.classes not in ((), classes):
            fail(f"classes: the map has {', '.join(classes) or 'none'}; leave them out", Exit.USAGE)
        positive = None if classes else 1  # labels do not matter: any will do
        columns = options.columns.model_copy(update={"classes": classes, "positive": positive})
        if found is not None:
            maps = Maps(found)
        else:
            with failing(Exit.USAGE, OSError, ValueError, text="cannot read the maps: "):
                feed = connectors.feed(str(given.follow))
            stack.callback(feed.close)
            maps = Maps(feed)
        opened = open_source(
            connectors, given.events, "events", columns, stack, given, labels_apart=True, carry=True
        )
        kept: Sequence[str] = columns.keep
        if isinstance(opened, TableSource):
            kept = tuple(opened.kept) or kept
        decide = None
        if (rule := options.decision.rule) is not None:
            if classes:
                fail("[decision] is for two classes, and the map has many: leave it out", Exit.USAGE)
            decide = DecisionSums(rule).take
        added = added_fields(kept, decide, None, intervals=False)
        types = added_types(added, [opened])
        outputs = Outputs(
            open_sink(connectors, given.output, stack, SinkOptions(kept=types, classes=classes))
        )
        if given.rejects:
            outputs.rejects = open_sink(connectors, given.rejects, stack, SinkOptions(rows="rejects"))
        refused, processed = RejectLog(), 0
        meter = Meter(lambda: processed, [opened], live=not (given.log_json or given.quiet))

        def after(events: int, rows: list[RejectRow]) -> None:
            nonlocal processed
            processed += events
            meter.show()
            if given.rejects is None:
                refused.take(rows)

        with meter.line, ending(stop):
            count, refusals = apply_maps(maps, opened, outputs, stop, after, added, classes)
    log.info("%s", f"{count:,} predictions recalibrated with {maps.description}, {refusals:,} rejected")
    if not stop() and not count:
        fail(f"no event could be read from {public_url(given.events)}", Exit.NOTHING_READ)
    refuse_damaged([opened])
    if stop.status:
        raise typer.Exit(stop.status)
