"""Arrows one way, a clean public surface, and a core without I/O or optional parts."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import streamcal

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "streamcal"

# Every module may import those on lines above its own, and its neighbours on the same line.
LAYERS = [
    {"errors", "grid", "schedule", "priors", "bounds", "adwin", "prior_scores"},
    {"sketch", "binning", "maps", "refutation", "prior_source", "prior_waiting", "prior_panes"},
    {"platt", "roster", "tracking", "windows"},
    {"panes", "prior_tracker", "candidates"},
    {"hindsight", "tabulation", "mixture_state"},
    {"ring", "weighing"},
    {"mixture"},
    {"config", "batch", "testing", "bin_limits", "certify", "drift"},
    {"certify_target", "certificate"},
    {"claims"},
    {"types"},
    {"tables", "certifier"},
    {"join"},
    {"labels", "forming", "state"},
    {"traffic", "adaptive"},
    {"serving"},
    {"engine"},
    {"keyed"},
    {"river", "sklearn"},
    {"codec", "rows"},
    {"ports"},
    {"merge"},
    {"pipeline"},
    {"runner"},
    {"report", "metrics", "inspecting", "applying"},
    {"demo", "terminal"},
    {"cli"},
]
IMPURE = {"cli", "demo", "config", "report", "ports", "applying", "terminal"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")


def test_every_module_has_its_layer() -> None:
    assert sorted(set().union(*LAYERS)) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_arrows_point_one_way(module: str) -> None:
    allowed: set[str] = set()
    for layer in LAYERS:
        allowed |= layer
        if module in layer:
            break
    used = {
        name.split(".")[1]
        for name in imports(PACKAGE / f"{module}.py")
        if name.startswith("streamcal.") and name.split(".")[1] in MODULES
    }
    assert used <= allowed - {module}
    assert not any(name.startswith("streamcal_connectors") for name in imports(PACKAGE / f"{module}.py"))


@pytest.mark.parametrize("module", sorted(set(MODULES) - IMPURE))
def test_the_core_has_no_clock_files_or_randomness(module: str) -> None:
    text = (PACKAGE / f"{module}.py").read_text()
    names = imports(PACKAGE / f"{module}.py")
    assert not names & {"time", "os", "random", "socket", "sqlite3", "pathlib", "io", "logging"}
    assert "open(" not in text
    assert "np.random.seed" not in text
    assert "print(" not in text


def test_the_public_names_resolve() -> None:
    for module in [streamcal, *(importlib.import_module(f"streamcal.{name}") for name in MODULES)]:
        assert all(hasattr(module, name) for name in module.__all__), module.__name__


def test_importing_the_core_pulls_in_no_optional_part() -> None:
    optional = {"kafka", "matplotlib", "pandas", "sklearn", "typer", "rich"}
    check = f"import sys, streamcal; print(*{optional} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
