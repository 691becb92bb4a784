"""The end of a run on a terminal: its figures as a table; and whether a file is such a summary."""

from __future__ import annotations

import msgspec
from rich.table import Table
from rich.text import Text

from streamcal.monitor.status import Status
from streamcal.monitor.summary import closing_rows

__all__ = ["is_summary", "run_table"]


def run_table(status: Status) -> Table:
    """Return the table at the end of a run."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    for row in closing_rows(status):
        table.add_row(*map(Text, row))  # Text: a key is not markup
    return table


def is_summary(data: bytes) -> bool:
    """Whether a file has the content of a summary."""
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return False
    return {"events", "remarks"} <= set(found)
