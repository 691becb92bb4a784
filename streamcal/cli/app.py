"""The command line: ``streamcal run``, ``apply``, ``show``, ``replay``, ``demo``.

Exit status: 0 if a run reached its end, with or without rejects, or was ended by SIGTERM; 1 if nothing could
be read, or a replay differs; 2 on a usage error; 3 if the store or an output cannot be used; 130 if
interrupted. In every case, the micro-batches processed so far are written. If an output is away when SIGTERM
or an interruption arrives, the micro-batch that waits for it is not written; the next run reads it again.
"""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from streamcal.cli import demo as flights
from streamcal.cli.apply import apply
from streamcal.cli.opening import (
    ConfigFile,
    EventsUrl,
    LabelsUrl,
    Named,
    SourceUrl,
    open_source,
    open_store,
    read_options,
    refuse_same,
)
from streamcal.cli.run import run
from streamcal.cli.show import replay_table, served, show_table
from streamcal.cli.terminal import (
    EXIT_NOTHING_READ,
    EXIT_UNUSABLE,
    EXIT_USAGE,
    Stop,
    fail,
    give_up_standard_output,
    hold_standard_streams,
    set_up_logging,
    stopped,
)
from streamcal.errors import StoreError
from streamcal.run.ports import Connectors, StoppedError
from streamcal.run.runner import Inputs

__all__ = ["main"]

log = logging.getLogger("streamcal")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

app.command()(run)
app.command()(apply)


@app.command()
def show(
    store: Annotated[str, typer.Argument(help="The store of a run, which may still be running.")],
    key: Annotated[
        list[str] | None, typer.Option(help="A key to show, instead of the first ones; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print what a store serves now, and the history of its maps and certificates."""
    set_up_logging(as_json=False)
    with ExitStack() as stack:
        kept = open_store(Connectors(), store, stack, read_only=True)
        try:
            found = served(kept, key or ())
        except (StoreError, ValueError) as error:
            fail(str(error), EXIT_UNUSABLE)
    if as_json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        sys.stdout.buffer.flush()
    else:
        Console().print(show_table(found))


@app.command()
def replay(
    store: Annotated[str, typer.Option(help="The store to check; it is not changed.")],
    events: EventsUrl,
    labels: LabelsUrl = None,
    source: SourceUrl = None,
    config: ConfigFile = None,
) -> None:
    """Rebuild a store's state from its sources, and compare: exit status 0 if equal, 1 if not.

    Reads the sources from the beginning up to the positions in the store, and rebuilds the state in memory.
    """
    set_up_logging(as_json=False)
    options = read_options(config)
    stop = Stop()
    connectors = Connectors(options.connectors, stop)
    refuse_same(
        connectors,
        [
            Named("--store", store, "store"),
            Named("--events", events),
            Named("--labels", labels),
            Named("--source", source),
            Named("--config", config),
        ],
    )
    with ExitStack() as stack:
        kept = open_store(connectors, store, stack, read_only=True)
        deployment = [open_source(connectors, url, "target", stack) for url in (events, labels) if url]
        calibration = [open_source(connectors, source, "source", stack)] if source else []
        try:
            table, equal = replay_table(kept, options, Inputs(calibration, deployment), stop)
        except StoppedError as error:
            stopped(stop, error)
        except StoreError as error:
            fail(str(error), EXIT_UNUSABLE)
        except (OSError, ValueError) as error:
            fail(str(error), EXIT_NOTHING_READ)
    Console().print(table)
    if not equal:
        fail("the state in the store differs from the state that the sources give", EXIT_NOTHING_READ)


@app.command()
def demo(
    picture: Annotated[Path, typer.Option(help="Where the picture goes, as PNG.")] = Path("flights.png"),
) -> None:
    """Run the shipped example: late flights from New York in 2013, labels at the actual arrival."""
    set_up_logging(as_json=False)
    data = [Named("the shipped data", path) for path in sorted(flights.data_folder().iterdir())]
    refuse_same(Connectors(), [Named("--picture", picture, "written"), *data])
    if picture.is_file() and picture.read_bytes()[:4] not in (b"", b"\x89PNG"):
        fail(f"{picture} is no picture: move it away, or give another --picture", EXIT_USAGE)
    flights.run(picture, Console())


def main() -> None:
    """Run the command line."""
    hold_standard_streams()
    try:
        try:
            app()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where it can still be told
    except OSError as error:
        give_up_standard_output()
        log.error("streamcal: cannot write the report: %s", error)  # noqa: TRY400  # no traceback
        sys.exit(EXIT_UNUSABLE)
