"""Pieces of work timed side by side, and their tables."""

from __future__ import annotations

import argparse
import gc
import json
import re
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["compared", "options", "publish", "resident", "seconds", "spread"]

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

Work = Callable[[], object]


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all scripts have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the least that shows that it works")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    return parser


def compared(losses: Mapping[str, float], save: Path | None, against: Path | None) -> None:
    """Write losses by case to a file of JSON, and print them over those of another such file.

    Cases that the other file lacks are left out.
    """
    if save:
        save.write_text(json.dumps(losses, indent=1) + "\n")
    if against:
        before = json.loads(against.read_text())
        ratios = {name: loss / before[name] for name, loss in losses.items() if name in before}
        ends = {"mean": statistics.fmean(ratios.values()), "largest": max(ratios.values())}
        publish("against", ("case", "ratio"), [(a, f"{b:.5f}") for a, b in (ratios | ends).items()])


def seconds(*works: Work, repeats: int, before: Work | None = None) -> list[list[float]]:
    """Return the times of each piece of work, one for every repeat, after one round to warm up.

    The works take turns, so that what else the machine does falls on all of them; every other round goes
    backwards, so that none always runs in the wake of the same neighbour. ``before``, not timed, comes
    before each piece of work.
    """
    times: list[list[float]] = [[] for _ in works]
    gc.disable()
    try:
        for repeat in range(-1, repeats):
            turns = list(enumerate(works))
            for place, work in reversed(turns) if repeat % 2 else turns:
                if before is not None:
                    before()
                start = time.process_time()
                work()
                taken = time.process_time() - start
                if repeat >= 0:
                    times[place].append(taken)
            gc.collect()
    finally:
        gc.enable()
    return times


def spread(values: Sequence[float], digits: str = ",.3g") -> str:
    """Return the median of some figures, and the least and the greatest if there are more than one."""

    def text(value: float) -> str:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:{digits}}"

    middle = text(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{text(min(values))}, {text(max(values))}]"


def resident() -> float:
    """Return this process's resident memory, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def publish(name: str, header: Sequence[str], rows: Iterable[Sequence[str]], *, write: bool = False) -> None:
    """Print a Markdown table, row by row as they come; ``write`` puts it into the page.

    The page has it between ``<!-- table: NAME -->`` and ``<!-- end -->``.

    Raises
    ------
    ValueError
        if the page has not exactly one such place, and the table is to be written.
    """
    pattern = rf"(?<=<!-- table: {re.escape(name)} -->\n).*?(?=<!-- end -->)"
    places = len(re.findall(pattern, PAGE.read_text("utf-8"), flags=re.DOTALL))
    if write and places != 1:  # known before anything is measured
        raise ValueError(
            f"{PAGE.name} must have one table {name} to write to, has {places}: leave out --write"
        )
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---", *["---:"] * (len(header) - 1)])]
    print(f"\n{name}\n\n" + "\n".join(lines), flush=True)
    for cells in rows:
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if write:
        table = "\n".join(lines) + "\n"
        page = re.sub(pattern, lambda _: table, PAGE.read_text("utf-8"), flags=re.DOTALL)
        PAGE.write_text(page, "utf-8")
