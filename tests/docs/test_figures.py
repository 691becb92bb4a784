"""docs/figures: the scripts run at small sizes on what is known, and what is committed is theirs."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure

pytestmark = pytest.mark.nightly

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LARGEST = 150_000

Modules = Callable[[str], ModuleType]


@pytest.fixture(scope="module", name="script")
def importer() -> Modules:
    """Return what imports a script of docs/figures by its name."""

    def load(name: str) -> ModuleType:
        sys.path.insert(0, str(DOCS / "figures"))
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(str(DOCS / "figures"))

    return load


def drawn(script: Modules, figure: Figure, path: Path) -> str:
    """Save as the scripts do; return the picture."""
    script("drawing").save(figure, path)
    return path.read_text()


def marks(page: str) -> set[str]:
    return set(re.findall(r"<!-- table: (\S+) -->", (DOCS / f"{page}.md").read_text()))


# What is committed


# What they share


# Each of them


def test_late_labels_sees_what_each_way_can_see(script: Modules, tmp_path: Path) -> None:
    """On this seed. Of 30,000 labels the standard error is 0.2 points, of exposure some 2."""
    late = script("late_labels")
    both, ones, some = found = late.cases(np.random.default_rng(16))
    day, end = late.LOOK - 1, late.DAYS - 1
    # After a bulk of thousands of negatives come days of positives alone.
    for rate, days in ((0.1, slice(30, late.DOUBLED)), (0.2, slice(90, late.DAYS))):
        assert both["as told"][days].min() < 0.3 * rate
        assert both["as told"][days].max() > 1.3 * rate
        assert both["held"][days] == pytest.approx(rate, abs=0.12 * rate)
        assert both["held"][days].mean() == pytest.approx(rate, abs=0.03 * rate)
    assert np.isnan(both["held"][: late.WEEK - 1]).all()
    assert ones["matured"][day] == pytest.approx(0.1, abs=0.01)
    assert ones["matured"][end] == pytest.approx(0.2, abs=0.01)
    assert np.isnan(ones["matured"][: late.MATURED - 1]).all()
    assert ones["dropped"][day] == 1.0
    # Ages are uniform over 30 days: F is told of the ones, on average 1 − (10 − 30 e⁻³/(1 − e⁻³))/30.
    told = 1.0 - (10.0 - 30.0 * np.exp(-3.0) / (1.0 - np.exp(-3.0))) / 30.0
    assert ones["0 until told"][late.DOUBLED - 1] == pytest.approx(0.1 * told, abs=0.01)
    assert ones["early positives"][day] == pytest.approx(0.2, abs=0.03)
    assert some["labels alone"][end] > 2 * some["every label"][end]
    assert some["weighted"][end] == pytest.approx(some["every label"][end], abs=0.015)
    table = late.tables(found)
    assert set(table) == marks("late-labels")
    assert f"{ones['early positives'][day]:.1%}" in table["cases"]
    assert table["cases"] in (DOCS / "late-labels.md").read_text()
    assert len(drawn(script, late.draw(found), tmp_path / "late-labels.svg")) < LARGEST
