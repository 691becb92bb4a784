"""Tables in a page of docs/: each stands between ``<!-- table: NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "fill", "markdown", "write"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, the first column left and the rest right aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def fill(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables at their marks; other marks are left as they are.

    Raises
    ------
    ValueError
        if a table has not exactly one mark.
    """
    for name, table in tables.items():
        mark = f"<!-- table: {name} -->"
        pattern = re.escape(mark) + r"\n.*?<!-- end -->"
        if len(re.findall(pattern, page, re.DOTALL)) != 1:
            raise ValueError(f"the page must have one mark {mark} with its end, has {page.count(mark)}")
        filled = f"{mark}\n{table}\n<!-- end -->"
        page = re.sub(pattern, lambda _, text=filled: text, page, flags=re.DOTALL)
    return page


def write(tables: Mapping[str, str], page: Path = PAGE) -> None:
    """Put the tables into a page."""
    page.write_text(fill(page.read_text("utf-8"), tables), "utf-8")
