"""A budget of labels: people look at 3% of the answers, chosen by the run: ``python budget.py``."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from simulate import A_DAY, DAY, DAYS, GOOD, JUDGES, chances, judged

FILES = ["--events", "graded.csv", "--labels", "asked.csv", "--output", "rows.csv", "--summary", "said.json"]
RUN = ["streamcal", "run", "--quiet", "--append", "--config", "budget.toml", "--store", "budget.db", *FILES]
WEEK = 7 * A_DAY


def append(path: str, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Append rows to a CSV file, which begins with these names."""
    is_new = not Path(path).exists()
    with Path(path).open("a", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows] if is_new else rows)


Path("budget.toml").write_text("[sampling]\nshare = 0.03\n", encoding="utf-8")
judges = np.repeat(list(JUDGES), DAYS * A_DAY // 2)  # after half of the days another model judges
stream = judged(np.random.default_rng(0), judges, {judge: chances(judge) for judge in JUDGES}, GOOD)
times, scores = stream.times.round(), stream.scores.round(4)
append("asked.csv", ["id", "time", "label"], [])
asked = 0
for begin in range(0, 12 * WEEK, WEEK):
    week = range(begin, begin + WEEK)
    append("graded.csv", ["id", "time", "score"], [(n, times[n], scores[n]) for n in week])
    subprocess.run(RUN, check=True)  # noqa: S603  # grades this week's answers, learns last week's reviews
    with Path("rows.csv").open(encoding="utf-8") as file:
        ask = [int(row["id"]) for row in [*csv.DictReader(file)][begin:] if row["ask"] == "True"]
    append("asked.csv", [], [(n, times[n] + DAY, stream.labels[n]) for n in ask])
    asked += len(ask)
    print(f"{week.stop:,} answers, {asked:,} reviews: {json.loads(Path('said.json').read_text())['verdict']}")
