"""Measure streamcal against its yardsticks, side by side in one run; see README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# ruff: noqa: E402  # numpy reads these when it is imported
# One thread for everything: no yardstick gets cores that streamcal does not use.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from measure import Row, spread
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

GROUPS = ("arrays", "events", "mixture", "costs", "columns", "kafka_pipeline", "serve")
"""Modules with ``rows()``, in the order of the table."""

HERE = Path(__file__).parent
README = HERE / "README.md"
BEGIN, END = "<!-- begin results -->", "<!-- end results -->"
WIDTHS = {
    "n": 10,
    "streamcal": 14,
    "its yardstick": 14,
    "ratio [min, max]": 16,
    "budget": 9,
    "outcome": 6,
}
"""The columns on a terminal."""
HEADINGS = ("operation", "n", "streamcal", "yardstick", "its figure", "ratio [min, max]", "budget", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=HERE / "results.json", help="where the JSON goes")
    parser.add_argument("--write-readme", action="store_true", help="put the table into README.md")
    parser.add_argument("--only", default="", choices=["", *GROUPS], help=f"one of {', '.join(GROUPS)}")
    options = parser.parse_args()
    if options.only in ("", "serve") and shutil.which("wrk") is None:
        parser.error("wrk, which loads the server, is not installed: apt install wrk, or brew install wrk")
    console = Console()
    start = time.perf_counter()
    rows = []
    for row in measured(options.only):
        rows.append(row)
        line = " · ".join(cell for cell in cells(row) if cell)
        console.print(escape(line), highlight=False, soft_wrap=True)
    taken = time.perf_counter() - start
    about = machine() | {"seconds": round(taken, 1)}
    console.print(table(rows))
    console.print(f"{taken:.0f} s; {caption(about)}", highlight=False)
    results = {"about": about, "rows": [row.as_json() for row in rows]}
    options.output.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if options.write_readme:
        write_readme(rows, about)


def measured(only: str) -> Iterator[Row]:
    for name in GROUPS:
        if only in ("", name):
            yield from import_module(name).rows()


def machine() -> dict[str, Any]:
    """Return where and with what this was measured."""
    versions = {}
    for package in (
        "streamcal-engine",
        "numpy",
        "scikit-learn",
        "datasketches",
        "river",
        "msgspec",
        "polars",
    ):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cells(row: Row) -> tuple[str, ...]:
    """Return a row as text, one cell for each of `HEADINGS`."""
    ratio = ""
    if row.ratios:
        low, middle, high = spread(row.ratios)
        range_ = f" [{number(low)}, {number(high)}]" if low != high else ""
        ratio = f"{number(middle)}{range_} {row.ratio}"
    return (
        row.operation,
        "" if row.n is None else f"{row.n:,}",
        f"{number(spread(row.ours)[1])} {row.unit}" if row.ours else row.note,
        row.yardstick,
        f"{number(spread(row.theirs)[1])} {row.unit}" if row.theirs else "",
        ratio,
        row.budget,
        "" if row.met is None else "met" if row.met else "missed",
    )


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(rows: list[Row]) -> Group:
    """Return the results for a terminal of 80 columns: what is measured as headings, its figures below."""
    parts: list[Text | Table] = [Text(f"Columns: {', '.join(WIDTHS)}", "bold")]
    headed = ""
    for row in rows:
        what = f"{row.operation}, against {row.yardstick}" if row.yardstick else row.operation
        what += f": {row.ratio}" if row.ratio else ""
        if what != headed:
            headed = what
            out = Table(show_header=False, box=None, padding=(0, 1, 0, 0), pad_edge=False)
            for name, width in WIDTHS.items():
                left = name in ("budget", "outcome")
                out.add_column(min_width=width, justify="left" if left else "right")
            parts += [Text(), Text(what), out]
        _, n, ours, _, theirs, ratio, budget, met = cells(row)
        shown = (n, ours, theirs, ratio.removesuffix(f" {row.ratio}"), budget, met)
        out.add_row(*map(escape, shown), style="" if row.met is not False else "red")
    return Group(*parts)


def caption(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    return f"{about['date']}, {about['machine']}, Python {about['python']}; {versions}"


def write_readme(rows: list[Row], about: dict[str, Any]) -> None:
    """Replace what is between the markers of README.md."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in rows]
    text = README.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    README.write_text(f"{before}{BEGIN}\n{caption(about)}.\n\n" + "\n".join(lines) + f"\n{END}{after}")


if __name__ == "__main__":
    main()
