"""The command line: ``streamcal run``, ``serve``, ``report``, ``apply``, ``sql``, ``show`` and others.

Exit status: 0 if a run reached its end, with or without rejects, or was ended by SIGTERM; 1 if nothing could
be read, or an input not to its end; 2 on a usage error; 3 if the store or an output
cannot be used; 4, under ``--strict``, if there are remarks or forecasts deviate; 130 if interrupted. In every
case, the micro-batches processed so far are written. If an output is away when SIGTERM or an interruption
arrives, the micro-batch that waits for it is not written; the next run reads it again.
"""

from __future__ import annotations

import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from streamcal.base.errors import StoreError
from streamcal.cli import demo as flights
from streamcal.cli.apply import apply
from streamcal.cli.opening import open_store, read_map
from streamcal.cli.output_files import as_json
from streamcal.cli.progress import busy
from streamcal.cli.report import report
from streamcal.cli.run import run
from streamcal.cli.serve import serve
from streamcal.cli.show import SHOWN_VERSIONS, served, show_table
from streamcal.cli.terminal import (
    Exit,
    fail,
    failing,
    give_up_standard_output,
    hold_standard_streams,
    set_up_logging,
    version_line,
)
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.run.connectors import Connectors
from streamcal.sql import Dialect, query

log = logging.getLogger("streamcal")


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(run)
app.command()(serve)
app.command()(report)
app.command()(apply)


def _show_version(wanted: bool) -> None:  # the signature of a callback
    if wanted:
        sys.stdout.write(f"{version_line()}\n")
        raise typer.Exit


@app.callback()
def streamcal(
    version: Annotated[  # its callback has done all
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Honest probabilities from a stream of classifier scores, while labels arrive late."""


@app.command()
def show(
    store: Annotated[str, typer.Argument(help="The store of a run, which may still be running.")],
    only: Annotated[
        list[str] | None, typer.Option(help="A key to show, instead of the first ones; may be repeated.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            help=f"Only the newest map versions: {SHOWN_VERSIONS} if not given, all with --json.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Print the history of a store's maps and certificates, and what it serves now."""
    set_up_logging(as_json=False)
    with ExitStack() as stack:
        kept = open_store(Connectors(), store, stack, read_only=True)
        with failing(Exit.UNUSABLE, StoreError, ValueError), busy("reading the store"):
            found = served(kept, only or (), limit if json or limit is not None else SHOWN_VERSIONS)
    if json:
        sys.stdout.buffer.write(as_json(found))
        sys.stdout.buffer.flush()
    else:
        Console().print(show_table(found))


@app.command()
def sql(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="A map, as JSON.")],
    dialect: Annotated[Dialect, typer.Option(help="Of which database.")],
    table: Annotated[str, typer.Option(help="Where the scores are.")] = "predictions",
    score: Annotated[str, typer.Option(help="The column of scores.")] = "score",
) -> None:
    """Print a query that recalibrates a table: its columns, and `probability`, NULL where a score is none."""
    set_up_logging(as_json=False)
    found = read_map(map_file)
    if isinstance(found, MulticlassMap):
        fail(f"{map_file} is a map of many classes, which has no query; streamcal.onnx takes it", Exit.USAGE)
    sys.stdout.write(query(found, dialect, table, score) + ";\n")


@app.command()
def demo(
    report: Annotated[Path, typer.Option(help="Where the report goes, as HTML.")] = Path("report.html"),
    files: Annotated[
        Path | None, typer.Option(help="Write the example's files into this directory, and do no more.")
    ] = None,
) -> None:
    """Run the shipped example: late flights from JFK in 2013, labels at the actual arrival."""
    set_up_logging(as_json=False)
    if files is not None:
        with failing(Exit.USAGE, OSError, text=f"--files: cannot write to {files}: "):
            flights.write_files(files)
        sys.stdout.write(f"{', '.join(flights.FILES)}: in {files}\n")
        return
    Console().print("Late flights from JFK in 2013: calibrated on March and April, then recalibrated …")
    flights.run_example(report)
    Console().print(f"report: {report}", markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line."""
    hold_standard_streams()
    try:
        try:
            app(prog_name="streamcal")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here, where it can still be told
    except OSError as error:
        give_up_standard_output()
        log.error("streamcal: cannot write the report: %s", error)  # noqa: TRY400  # no traceback
        sys.exit(Exit.UNUSABLE)
