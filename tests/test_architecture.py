"""The facade of the package, and the cost of its import; `make lint` checks the layers."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import streamcal


def test_the_facade_resolves_its_names_and_no_other() -> None:
    assert all(hasattr(streamcal, name) for name in streamcal.__all__)
    assert streamcal.__version__ == version("streamcal-engine")
    with pytest.raises(AttributeError, match="module 'streamcal' has no attribute 'nonsense'"):
        _ = streamcal.nonsense


# What importing the core must not cost: extras, and what only some calls need.
NOT_IMPORTED = [
    "kafka",
    "matplotlib",
    "narwhals",
    "pandas",
    "prometheus_client",
    "rich",
    "river",
    "scipy",
    "scipy.optimize",
    "sklearn",
    "typer",
]


def test_importing_the_core_imports_no_more_than_it_needs() -> None:
    check = f"import sys, streamcal; print(*sorted(set({NOT_IMPORTED}) & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""
