"""The clinic and the judges: their files are what their pages say, and their notebooks run and show it."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LARGEST = 150_000  # bytes


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.parent.name, path)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clinic", "judge"])
def test_the_notebook_runs_and_shows_what_it_says(name: str) -> None:
    notebook = nbformat.read(EXAMPLES / "notebooks" / f"{name}.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("brier_gain" in output.get("text", "") for output in shown)
    assert not [output for output in shown if output.get("name") == "stderr"]


def test_the_clinic_has_what_its_page_says() -> None:
    page = (EXAMPLES / "clinic" / "README.md").read_text()
    events = {}
    for name in ("predictions", "labels"):
        path = EXAMPLES / "clinic" / f"{name}.jsonl.gz"
        assert path.stat().st_size < LARGEST
        with gzip.open(path, "rt") as lines:
            events[name] = [json.loads(line) for line in lines]
        assert f"{len(events[name]):,}" in page
        times = [event["time"] for event in events[name]]
        assert times == sorted(times)
    died = sum(event["label"] for event in events["labels"])
    assert f"of whom {died} died" in page
    asked = {event["id"]: event["time"] for event in events["predictions"]}
    days = [(event["time"] - asked[event["id"]]) / 86_400 for event in events["labels"]]
    assert all(0 <= day <= 730 for day in days)
    assert all(day == 730 for day, event in zip(days, events["labels"], strict=True) if event["label"] == 0)


def test_the_verdicts_are_what_their_page_says() -> None:
    page = (EXAMPLES / "answers" / "README.md").read_text()
    with (EXAMPLES / "answers" / "verdicts.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["pair"]) for row in rows] == list(range(len(rows)))
    assert f"{len(rows)} pairs" in page
    assert f"{sum(len(row['votes']) for row in rows):,} votes" in page
    assert all(re.fullmatch("[lrt]+", row["votes"] + row["gpt4"] + row["gpt35"]) for row in rows)
    assert Counter(row["question"] for row in rows) == {"8": 168, "5": 111}


def test_the_verdicts_come_from_three_files(tmp_path: Path) -> None:
    head = "id,prompt,model_x,model_y,winner,left,right\n"
    (tmp_path / "gpt4-crowd-comparisons.csv").write_text(f"{head}0,8,1,2,left,a,b\n1,8,1,3,tie,a,c\n")
    (tmp_path / "gpt3-crowd-comparisons.csv").write_text(f"{head}0,8,1,2,right,a,b\n1,8,1,3,left,a,c\n")
    (tmp_path / "llmfao.csv").write_text(
        "id,prompt,model_x,model_y,worker,winner,left,right\n"
        "0,8,1,2,5,tie,a,b\n0,8,1,2,6,right,a,b\n1,8,1,3,5,left,a,c\n999,8,1,3,5,left,a,c\n"
    )
    assert module(EXAMPLES / "answers" / "prepare.py").table(tmp_path) == [
        {"pair": "0", "question": "8", "gpt4": "l", "gpt35": "r", "votes": "tr"},
        {"pair": "1", "question": "8", "gpt4": "t", "gpt35": "l", "votes": "l"},
    ]
