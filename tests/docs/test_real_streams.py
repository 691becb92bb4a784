"""The clinic and the judges: their files are what their pages say, and their notebooks run and show it."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clinic", "judge"])
def test_the_notebook_runs_and_shows_what_it_says(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("brier_gain" in output.get("text", "") for output in shown)
    assert not [output for output in shown if output.get("name") == "stderr"]


def test_the_verdicts_are_what_their_page_says() -> None:
    page = (EXAMPLES / "answers" / "README.md").read_text()
    with (EXAMPLES / "answers" / "verdicts.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["pair"]) for row in rows] == list(range(len(rows)))
    assert f"{len(rows)} pairs" in page
    assert f"{sum(len(row['votes']) for row in rows):,} votes" in page
    assert all(re.fullmatch("[lrt]+", row["votes"] + row["gpt4"] + row["gpt35"]) for row in rows)
    assert Counter(row["question"] for row in rows) == {"8": 168, "5": 111}
