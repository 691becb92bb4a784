"""examples/paper: it runs at small sizes, and what is committed says what the page claims."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.nightly

Modules = dict[str, ModuleType]

ROOT = Path(__file__).resolve().parents[2]
PAPER = ROOT / "examples" / "paper"
PAGE = ROOT / "docs" / "paper.md"


@pytest.fixture(scope="module", name="modules")
def import_example() -> Modules:
    sys.path.insert(0, str(PAPER))
    try:
        names = ("experiments", "analysis", "page_tables", "figures")
        return {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(PAPER))


@pytest.fixture(scope="module", name="committed")
def read_committed(modules: Modules) -> tuple:
    experiments = modules["experiments"]
    kinds = {
        "risks": experiments.RiskRow,
        "cells": experiments.CellRow,
        "table1": experiments.TableRow,
        "curves": experiments.CurveRow,
        "grid": experiments.GridRow,
    }
    folder = PAPER / "results"
    return experiments.Results(
        *(experiments.read_rows(folder / f"{name}.csv", kind) for name, kind in kinds.items())
    )


def test_committed_exponents_agree_with_the_paper(modules: Modules, committed: tuple) -> None:
    analysis = modules["analysis"]
    found = analysis.exponents(committed.risks)
    assert found.calibration_n == pytest.approx(-0.97, abs=0.1)
    assert found.calibration_bins == pytest.approx(0.93, abs=0.1)
    assert found.sharpness_bins == pytest.approx(-1.75, abs=0.2)
    best = analysis.optima(committed.risks)
    assert analysis.optimum_exponent(best).slopes[0] == pytest.approx(1 / 3, abs=0.05)
    assert all(one.bins < max(modules["experiments"].BINS) for one in best)  # not at the edge of the grid


def test_the_page_is_what_the_script_writes(modules: Modules, committed: tuple) -> None:
    tables, figures = modules["page_tables"], modules["figures"]
    page = PAGE.read_text("utf-8")
    assert page == tables.splice(page, tables.all_tables(committed))
    for name in figures.PICTURES:
        assert f"(paper/{name})" in page
        assert 0 < (PAGE.parent / "paper" / name).stat().st_size < 150_000
