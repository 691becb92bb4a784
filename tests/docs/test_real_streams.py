"""The clinic and the judges: their files are what their pages say, and their notebooks run and show it."""

from __future__ import annotations

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
