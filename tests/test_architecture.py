"""The public API is exact, and the core has no I/O and no optional parts. `make lint` checks the layers."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import streamcal

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "streamcal"

# The modules that may read the clock, files or the environment. All others are pure.
IMPURE = {
    "cli/app",
    "cli/apply",
    "cli/demo",
    "cli/map_files",
    "cli/opening",
    "cli/options",
    "cli/page",
    "cli/progress",
    "cli/report",
    "cli/run",
    "cli/serve",
    "cli/sql",
    "cli/terminal",
    "cli/whole",
    "page/latest_status",
    "page/server",
    "run/apply",
    "run/config",
    "run/endpoint",
    "run/connectors",
    "run/reliability",
    "serve/request_queue",
    "serve/queries",
    "serve/server",
}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix()
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__"
)


@pytest.mark.parametrize("module", sorted(set(MODULES) - IMPURE))
def test_the_core_has_no_clock_files_or_randomness(module: str) -> None:
    text = (PACKAGE / f"{module}.py").read_text()
    names = imports(PACKAGE / f"{module}.py")
    assert not names & {"time", "os", "random", "socket", "sqlite3", "pathlib", "io", "logging"}
    assert "open(" not in text
    assert "np.random.seed" not in text
    assert "print(" not in text


API = {
    "Certificate",
    "DamagedStateError",
    "Domain",
    "DomainSummary",
    "DriftAlarm",
    "Emission",
    "Event",
    "JoinConfig",
    "LabelEvent",
    "LabelledEvent",
    "MapPublished",
    "Mixing",
    "Mode",
    "Origin",
    "OutputError",
    "PaperBound",
    "PredictionEvent",
    "PriorKind",
    "Recalibrated",
    "RecalibrationMap",
    "Recalibrator",
    "RecalibratorConfig",
    "RecalibratorOptions",
    "Rejected",
    "ScoreSketch",
    "StoreError",
    "StreamcalError",
    "__version__",
    "backtest",
    "compiled",
}


def test_the_facade_exports_exactly_the_api() -> None:
    assert set(streamcal.__all__) == API
    assert len(streamcal.__all__) == len(API)
    assert streamcal.__version__ == version("streamcal-engine")
    with pytest.raises(AttributeError, match="module 'streamcal' has no attribute 'nonsense'"):
        _ = streamcal.nonsense


def test_the_public_names_resolve() -> None:
    for module in [
        streamcal,
        *(importlib.import_module(f"streamcal.{name.replace('/', '.')}") for name in MODULES),
    ]:
        assert all(hasattr(module, name) for name in module.__all__), module.__name__


# What importing the core must not cost: extras, and what only some calls need.
NOT_IMPORTED = [
    "kafka",
    "matplotlib",
    "narwhals",
    "pandas",
    "prometheus_client",
    "rich",
    "river",
    "scipy.optimize",
    "sklearn",
    "typer",
]


def test_importing_the_core_imports_no_more_than_it_needs() -> None:
    check = f"import sys, streamcal; print(*sorted(set({NOT_IMPORTED}) & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
