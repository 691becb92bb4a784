"""benchmarks/bench.py: its table on a terminal of 80 columns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import bench
import measure


def test_every_row_is_one_line_of_80_columns() -> None:
    def row(fields: dict[str, Any]) -> measure.Row:
        del fields["repeats"]
        lists = {name: list((fields[name] or {}).values()) for name in ("ours", "theirs", "ratios")}
        return measure.Row(**fields | lists)

    rows = [row(fields) for fields in json.loads((bench.HERE / "results.json").read_bytes())["rows"]]
    console = Console(width=80)
    with console.capture() as shown:
        console.print(bench.table(rows))
    lines = shown.get().splitlines()
    assert len(rows) > 20
    for each in rows:
        ours = bench.cells(each)[2]
        found = [line.split() for line in lines if f" {ours} " in f" {line} "]
        n = [] if each.n is None else [f"{each.n:,}"]
        outcome = [] if each.met is None else ["met" if each.met else "missed"]
        assert any(words[: len(n)] == n and words[len(words) - len(outcome) :] == outcome for words in found)
