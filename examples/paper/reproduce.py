"""Reproduce the paper's figures and tables with the streaming engine: ``python examples/paper/reproduce.py``.

Writes results/*.csv (re-used on the next run), docs/paper/*.png and the tables of docs/paper.md. Under 15
minutes on two cores from nothing; a few seconds from the cache.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from experiments import results
from figures import draw_all
from page_tables import all_tables, splice

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(description="reproduce the paper's figures and tables")
    parser.add_argument("--fresh", action="store_true", help="compute anew what results/ already holds")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    options = parser.parse_args()
    start = time.perf_counter()
    found = results(HERE / "results", options.fresh, options.jobs)
    draw_all(found, DOCS / "paper")
    tables = all_tables(found)
    page = DOCS / "paper.md"
    page.write_text(splice(page.read_text("utf-8"), tables), "utf-8")
    print(tables["summary"])
    print(f"{page} and {DOCS / 'paper'} are up to date, after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
