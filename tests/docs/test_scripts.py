"""Scripts outside the package: the names that they import exist, and what the docs say is what one prints."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("benchmarks", "docs", "examples")
SCRIPTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_names_of_the_package_exist() -> None:
    nodes = [node for path in SCRIPTS for node in ast.walk(ast.parse(path.read_text()))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    given = {(node.module or "", each.name) for node in imports for each in node.names}
    for module, name in sorted(each for each in given if each[0].startswith("streamcal")):
        try:
            found = importlib.import_module(module)
            assert hasattr(found, name) or importlib.import_module(f"{module}.{name}")
        except ModuleNotFoundError as error:  # of an extra that is not installed
            if str(error.name).startswith("streamcal"):
                raise


@pytest.mark.nightly
def test_late_labels_are_seen_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this seed. Of 30,000 labels the standard error is 0.2 points, of exposure some 2."""
    monkeypatch.syspath_prepend(DOCS / "figures")
    late = importlib.import_module("late_labels")
    both, ones, some = found = late.cases(np.random.default_rng(16))
    day, end = late.LOOK - 1, late.DAYS - 1
    for rate, days in ((0.1, slice(30, late.DOUBLED)), (0.2, slice(90, late.DAYS))):
        assert both["as told"][days].min() < 0.3 * rate
        assert both["as told"][days].max() > 1.3 * rate
        assert both["held"][days] == pytest.approx(rate, abs=0.12 * rate)
    assert ones["matured"][day] == pytest.approx(0.1, abs=0.01)
    assert ones["matured"][end] == pytest.approx(0.2, abs=0.01)
    assert ones["early positives"][day] == pytest.approx(0.2, abs=0.03)
    assert some["labels alone"][end] > 2 * some["every label"][end]
    assert some["weighted"][end] == pytest.approx(some["every label"][end], abs=0.015)
    assert late.tables(found)["cases"] in (DOCS / "late-labels.md").read_text()
