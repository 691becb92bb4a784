"""examples/paper: it runs at small sizes, and what is committed says what the page claims."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from streamcal import Recalibrator
from streamcal.maps.uniform_mass import uniform_mass_binning
from streamcal.testing import NormalPair

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


def test_the_committed_results_are_complete_and_small(modules: Modules, committed: tuple) -> None:
    experiments = modules["experiments"]
    assert sum(path.stat().st_size for path in (PAPER / "results").iterdir()) < 300_000
    points = {(row.n, row.bins) for row in committed.risks}
    assert points == {(n, b) for n in experiments.SAMPLE_SIZES for b in experiments.usable_bins(n)}
    settings = {(row.n_source, row.n_target, row.target_prior) for row in committed.grid}
    assert len(settings) == 4 * 3 * 7
    assert len(committed.grid) == 5 * len(settings)
    assert all(row.seeds >= 200 for row in (*committed.grid, *committed.table_1))


def test_committed_exponents_agree_with_the_paper(modules: Modules, committed: tuple) -> None:
    analysis = modules["analysis"]
    found = analysis.exponents(committed.risks)
    assert found.calibration_n == pytest.approx(-0.97, abs=0.1)
    assert found.calibration_bins == pytest.approx(0.93, abs=0.1)
    assert found.sharpness_bins == pytest.approx(-1.75, abs=0.2)
    best = analysis.optima(committed.risks)
    assert analysis.optimum_exponent(best).slopes[0] == pytest.approx(1 / 3, abs=0.05)
    assert all(one.bins < max(modules["experiments"].BINS) for one in best)  # not at the edge of the grid


def test_no_committed_risk_is_above_theorem_1(modules: Modules, committed: tuple) -> None:
    theorem1 = modules["analysis"].theorem1
    met = 0
    for row in committed.risks:
        bound = theorem1(row.n, row.bins, 0.1)
        met += bound.met
        assert row.calibration_max <= bound.calibration
        assert row.sharpness_max <= bound.sharpness
    assert met >= 20


def test_committed_table_1_agrees_with_the_paper(committed: tuple) -> None:
    """R of B = 9 in the ranges of tests/test_statistics.py, MSE = R + E[Var(Y|Z)] as in the paper."""
    mine = {row.method: row for row in committed.table_1 if row.source_bins == 9}
    limits = {"source": 0.002, "target": 0.004, "label_shift": 0.002, "composite": 0.0005}
    expected = {"source": 0.0200, "target": 0.0527, "label_shift": 0.0267, "composite": 0.0035}
    for method, limit in limits.items():
        assert mine[method].total == pytest.approx(expected[method], abs=limit)
    assert mine["composite"].mse == pytest.approx(0.0127, abs=0.0005)


def test_composite_wins_wherever_the_theory_says(modules: Modules, committed: tuple) -> None:
    """No setting that the theory promises is lost or tied, and it promises many."""
    analysis = modules["analysis"]
    rivals = [row for row in committed.grid if row.method in analysis.RIVALS]
    promised = [row for row in rivals if analysis.should_beat(row, row.method)]
    assert len(promised) >= 100
    assert [row for row in promised if analysis.outcome(row) != "wins"] == []


def test_the_page_is_what_the_script_writes(modules: Modules, committed: tuple) -> None:
    tables, figures = modules["page_tables"], modules["figures"]
    page = PAGE.read_text("utf-8")
    assert page == tables.splice(page, tables.all_tables(committed))
    for name in figures.PICTURES:
        assert f"(paper/{name})" in page
        assert 0 < (PAGE.parent / "paper" / name).stat().st_size < 150_000


@pytest.mark.slow
def test_exponents_of_a_small_grid_are_sane(modules: Modules) -> None:
    """Three sample sizes, 2 samples each: far from the paper's grid, so wide limits. Seeded."""
    experiments, analysis = modules["experiments"], modules["analysis"]
    rows = experiments.risk_rows((300, 2000, 12_000), 0.02, jobs=1)
    found = analysis.exponents(rows)
    assert found.calibration_n == pytest.approx(-1.0, abs=0.15)
    assert found.calibration_bins == pytest.approx(0.95, abs=0.15)
    assert found.sharpness_bins == pytest.approx(-1.75, abs=0.25)
    assert analysis.optimum_exponent(analysis.optima(rows)).slopes[0] == pytest.approx(1 / 3, abs=0.15)


def test_a_power_law_is_found_exactly(modules: Modules) -> None:
    n, b = np.array([10.0, 100.0, 1000.0, 10.0]), np.array([1.0, 2.0, 4.0, 8.0])
    fit = modules["analysis"].power_law(3.0 * n**-0.7 * b**1.3, n, b)
    assert fit.slopes == pytest.approx((-0.7, 1.3))
    assert fit.errors == pytest.approx((0.0, 0.0), abs=1e-12)


def test_the_smallest_k(modules: Modules) -> None:
    """dh*/dF_Z at x = 0 is 1/φ(2), by hand: 4 · ¼ / φ(2); no chord inside the reach is steeper."""
    found = modules["analysis"].smoothness()
    assert found.constant == pytest.approx(np.sqrt(2 * np.pi) * np.exp(2.0), rel=1e-9)
    assert 11.0 < found.reach < 12.0
    assert modules["analysis"].steepness(np.array([found.reach + 1.0]))[0] > 100 * found.constant


def test_risks_by_bin_tell_equal_bins_apart(modules: Modules) -> None:
    """Two bins of one value: their means differ under D(0.5), so given the bin the map is less calibrated."""
    pair = NormalPair(0.5)
    scores, labels = pair.sample(60, np.random.default_rng(1))
    served = uniform_mass_binning(scores, labels, 20)
    assert len(set(served.values)) < served.bins
    apart, merged = pair.risk(modules["experiments"].by_bin(served)), pair.risk(served)
    assert apart.total == pytest.approx(merged.total, rel=1e-9)
    assert apart.calibration > 1.01 * merged.calibration


def test_the_grid_restores_the_engine_that_learned_the_source(modules: Modules) -> None:
    """One setting of the grid equals an engine that learns source and target in one go."""
    experiments = modules["experiments"]
    run = experiments.grid_run(experiments.GridTask(1000, 3, 1, (0.2,), (50,)))
    assert run.shape == (1, 1, 1, 5, 3)
    assert run[..., 2] == pytest.approx(run[..., 0] + run[..., 1])
    engine = Recalibrator(mode="composite", bins="cube_root")
    engine.learn_many(*NormalPair(0.5).sample(1000, np.random.default_rng([4, 1000, 3])), "source")
    engine.learn_many(*NormalPair(0.2).sample(50, np.random.default_rng([5, 0, 50, 1000, 3, 0])), "target")
    engine.refresh()
    plugged_in = experiments.plugged_in(engine)
    assert run[0, 0, 0, experiments.MODES.index("composite"), 2] == NormalPair(0.2).risk(plugged_in).total
    assert run[0, 0, 0, -1, 2] == NormalPair(0.2).risk(engine.map).total


def test_the_cache_is_read_back(modules: Modules, tmp_path: Path) -> None:
    experiments = modules["experiments"]
    rows = experiments.grid_rows({10: (3, 2)}, 1, (0.1,), (10,))
    path = tmp_path / "grid.csv"
    first = experiments.cached(path, experiments.GridRow, lambda: rows, fresh=False)
    again = experiments.cached(path, experiments.GridRow, lambda: pytest.fail("computed again"), fresh=False)
    assert first == again
    assert [row.method for row in first] == [row.method for row in rows]
    assert first[0].total == pytest.approx(rows[0].total, rel=1e-4)
    with pytest.raises(ValueError, match="run with --fresh"):
        experiments.read_rows(path, experiments.CellRow)


def test_a_page_without_a_place_for_a_table_is_refused(modules: Modules) -> None:
    splice = modules["page_tables"].splice
    page = "a\n<!-- table: one -->\nold\n<!-- end -->\nb\n"
    assert splice(page, {"one": "new"}) == "a\n<!-- table: one -->\nnew\n<!-- end -->\nb\n"
    with pytest.raises(ValueError, match="two"):
        splice(page, {"one": "new", "two": "new"})


@pytest.mark.slow
def test_every_picture_is_drawn(modules: Modules, committed: tuple, tmp_path: Path) -> None:
    modules["figures"].draw_all(committed, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(modules["figures"].PICTURES)
