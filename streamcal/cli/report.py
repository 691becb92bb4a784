"""``streamcal report``: a report of a store."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from streamcal.base.errors import StoreError
from streamcal.cli.opening import open_store, refuse_same
from streamcal.cli.options import Named
from streamcal.cli.output_files import as_json, has_fields, refuse_unwritable, write_file
from streamcal.cli.progress import busy
from streamcal.cli.terminal import Exit, fail, failing, set_up_logging
from streamcal.monitor.build import build_status
from streamcal.monitor.report import MARK, Report, as_html, make_report
from streamcal.monitor.run_history import stored_history
from streamcal.run.connectors import Connectors
from streamcal.run.ports import Store
from streamcal.run.stored import stored_pipeline

_HEAD_BYTES: Final = 4096  # in which a report says what it is


def report(
    store: Annotated[str, typer.Argument(help="The store of a run, which may still be running.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Where the report goes: report.html if not given; with --json, standard output.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a page.")] = False,
) -> None:
    """Write a report: how good the forecasts are, what is certified, what is doubtful, in one HTML file.

    It is that of the store's last commit. `streamcal run --report` writes one of a run.
    """
    set_up_logging(as_json=False)
    path = output if output is not None or json else Path("report.html")
    refuse_same([Named("the store", store, "store"), Named("--output", path, "written")])
    if path is not None:
        refuse_unwritable("--output", path, "a report", is_report)
    with ExitStack() as stack, busy("reading the store"):
        made = _of_store(open_store(Connectors(), store, stack, read_only=True), store)
    if path is None:
        sys.stdout.buffer.write(as_json(made))
        sys.stdout.buffer.flush()
        return
    if json:
        write_file("--output", path, as_json(made))
    else:
        write_report("--output", path, made)
    Console().print(f"report: {path}", markup=False, highlight=False, soft_wrap=True)


def is_report(data: bytes) -> bool:
    """Whether a file has the content of a report, as HTML or as JSON."""
    html = f'<meta name="generator" content="{MARK}'.encode() in data[:_HEAD_BYTES]
    return html or has_fields(data, Report.__struct_fields__)


def write_report(option: str, path: Path, made: Report) -> None:
    """Write a report as HTML."""
    write_file(option, path, as_html(made).encode())


def _of_store(kept: Store, url: str) -> Report:
    with failing(Exit.UNUSABLE, StoreError, ValueError):
        pipeline = stored_pipeline(kept)
        if pipeline is None:
            fail(f"{url} holds nothing yet: no run has committed an event to it", Exit.NOTHING_READ)
        # The join's options are not in a store: they may change from run to run.
        options = {"recalibrator": pipeline.options.config.model_dump(mode="json")}
        status = build_status(pipeline, None, history=stored_history(kept), options=options)
        return make_report(status, [url])
