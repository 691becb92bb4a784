"""``streamcal sql``: print a map as a query of a database."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from streamcal.cli.opening import read_map
from streamcal.cli.terminal import EXIT_USAGE, fail, set_up_logging
from streamcal.sql import Dialect, query

__all__ = ["sql"]


def sql(
    map_file: Annotated[Path, typer.Argument(metavar="MAP", help="A map, as JSON.")],
    dialect: Annotated[Dialect, typer.Option(help="Of which database.")],
    table: Annotated[str, typer.Option(help="Where the scores are.")] = "predictions",
    score_column: Annotated[str, typer.Option(help="The column of scores.")] = "score",
) -> None:
    """Print a query that recalibrates a table: its columns, and `probability`, NULL where a score is none."""
    set_up_logging(as_json=False)
    try:
        text = query(read_map(map_file), dialect, table, score_column)
    except ImportError as error:
        fail(str(error), EXIT_USAGE)
    sys.stdout.write(text + ";\n")
