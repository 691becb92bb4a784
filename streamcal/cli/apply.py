"""``streamcal apply``: apply maps from elsewhere to a stream of predictions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from streamcal.cli.opening import (
    Final,
    InputFormat,
    JsonLog,
    Named,
    RejectsUrl,
    kept_types,
    open_sink,
    open_source,
    read_map,
    refuse_damaged,
    refuse_same,
)
from streamcal.cli.options import Given, read_options, takes_options
from streamcal.cli.terminal import (
    EXIT_NOTHING_READ,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    RejectLog,
    Stop,
    fail,
    set_up_logging,
    stop_status,
    stopped,
)
from streamcal.errors import OutputError
from streamcal.run.apply import FixedMap, FollowedMaps, apply_maps
from streamcal.run.connectors import Connectors, public_url
from streamcal.run.ports import StoppedError, TableSource
from streamcal.run.rows import RejectRow
from streamcal.run.runner import Outputs

__all__ = ["apply"]

log = logging.getLogger("streamcal")


@takes_options("label_column", "positive", "mode", "window", "label_ttl", "unlabelled", "matured_after")
def apply(
    map_file: Annotated[Path | None, typer.Option("--map", help="A map, as JSON.")] = None,
    follow: Annotated[
        str | None, typer.Option(help="The --maps of a run: always apply the newest map of each key.")
    ] = None,
    events: Annotated[str, typer.Option(help="Predictions to recalibrate.")] = "-",
    output: Annotated[str, typer.Option(help="Where the recalibrated predictions go.")] = "-",
    rejects: RejectsUrl = None,
    final: Final = False,
    form: InputFormat = None,
    config: Annotated[Path | None, typer.Option(help="Options of connectors, as a TOML file.")] = None,
    log_json: JsonLog = False,
    *,
    given: Given,
) -> None:
    """Apply maps from elsewhere to a stream of predictions, without learning."""
    set_up_logging(as_json=log_json)
    if (map_file is None) == (follow is None):
        fail("give either --map or --follow", EXIT_USAGE)
    stop = Stop()
    columns = {**given["columns"], "positive": 1}  # labels do not matter: any will do
    options = read_options(config, {"columns": columns})
    connectors = Connectors(options.connectors, stop)
    refuse_same(
        connectors,
        [
            Named("--map", map_file),
            Named("--follow", follow),
            Named("--events", events),
            Named("--config", config),
            Named("--output", output, "written"),
            Named("--rejects", rejects, "written"),
        ],
    )
    with ExitStack() as stack:
        maps: FixedMap | FollowedMaps
        if map_file is not None:
            maps = FixedMap(read_map(map_file))
        else:
            try:
                feed = connectors.feed(str(follow))
            except (OSError, ValueError) as error:
                fail(f"cannot read the maps: {error}", EXIT_USAGE)
            stack.callback(feed.close)
            maps = FollowedMaps(feed)
        opened = open_source(
            connectors,
            events,
            "events",
            options.columns,
            stack,
            labels_apart=True,
            final=final,
            form=form,
            carry=True,
        )
        kept: Sequence[str] = options.columns.keep
        if isinstance(opened, TableSource):
            kept = tuple(opened.kept) or kept
        outputs = Outputs(
            open_sink(connectors, output, stack, kept=kept_types(kept, [opened])),
            open_sink(connectors, rejects, stack, "rejects") if rejects else None,
        )
        refused = RejectLog()

        def after(rows: list[RejectRow]) -> None:
            if rejects is None:
                refused.take(rows)

        try:
            count, refusals = apply_maps(maps, opened, outputs, stop, after, kept)
        except StoppedError as error:
            stopped(stop, error)
        except OutputError as error:
            fail(str(error), EXIT_UNUSABLE)
        except (OSError, ValueError) as error:
            fail(str(error), EXIT_NOTHING_READ)
    log.info("%s", f"{count:,} predictions recalibrated with {maps.description}, {refusals:,} rejected")
    if stop():
        refuse_damaged([opened])
        raise typer.Exit(stop_status(stop))
    if not count:
        fail(f"no event could be read from {public_url(events)}", EXIT_NOTHING_READ)
    refuse_damaged([opened])
