"""The package as a whole: typed options, what an import costs, its name, and texts side by side."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import Recalibrator, RecalibratorConfig, RecalibratorOptions
from streamcal.base.string_column import StringColumn, gathered


def test_the_typed_options_are_those_of_the_config() -> None:
    of_config = get_type_hints(RecalibratorConfig)
    assert get_type_hints(RecalibratorOptions) == {
        name: of_config[name] for name in RecalibratorConfig.model_fields
    }
    assert list(get_type_hints(RecalibratorOptions)) == list(RecalibratorConfig.model_fields)


def test_the_signature_names_every_option_with_its_default() -> None:
    parameters = inspect.signature(Recalibrator).parameters
    options = {name: parameters[name].default for name in RecalibratorConfig.model_fields}
    assert options == RecalibratorConfig().model_dump()
    assert set(parameters) - set(options) == {"config", "classes", "segments", "own_engines", "join"}


# The facade of the package, and the cost of its import; `make lint` checks the layers


# What importing the core must not cost: extras, and what only some calls need.
NOT_IMPORTED = [
    *("kafka", "matplotlib", "narwhals", "pandas", "prometheus_client", "rich", "river", "scipy"),
    *("scipy.optimize", "sklearn", "typer"),
]


def test_importing_the_core_imports_no_more_than_it_needs() -> None:
    check = f"import sys, streamcal; print(*sorted(set({NOT_IMPORTED}) & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


# Another project's package has the same name: whichever was installed last, one clear error says so


ROOT = Path(__file__).parents[1]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Return a folder with this package installed, and with the other project's metadata."""
    for name in ("streamcal", "streamcal_connectors"):
        source = ROOT / "connectors" / name if name.endswith("connectors") else ROOT / name
        (tmp_path / name).mkdir()
        for each in source.iterdir():
            (tmp_path / name / each.name).symlink_to(each)
    (tmp_path / "streamcal_engine-0.1.0.dist-info").mkdir()
    (tmp_path / "streamcal_engine-0.1.0.dist-info" / "METADATA").write_text(
        "Name: streamcal-engine\nVersion: 0.1.0\n"
    )
    return tmp_path


def run(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    settings = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=site, env=settings, capture_output=True, text=True
    )


COMMAND = (
    "import sys; sys.argv = ['streamcal-engine', '--version']; from streamcal.cli.app import main; main()"
)


@pytest.mark.parametrize(("code", "last"), [("import streamcal", "this one"), (COMMAND, "the other")])
def test_where_both_are_installed_one_error_says_so(site: Path, code: str, last: str) -> None:
    (site / "streamcal-1.4.dist-info").mkdir()
    if last == "the other":
        (site / "streamcal" / "__init__.py").unlink()
        (site / "streamcal" / "__init__.py").write_text("")
    done = run(site, code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {site} has two projects")
    assert "streamcal 1.4" in done.stderr.splitlines()[-1]


def test_alone_it_runs_under_both_names(site: Path) -> None:
    done = run(site, COMMAND)
    assert done.stdout.startswith("streamcal 0.1.0 ("), done.stderr


# Texts side by side: the same as a list of them


IDS = st.none() | st.text(min_size=1, max_size=40) | st.sampled_from(["a", "b" * 8, "c" * 9, "é" * 12])


@given(st.lists(IDS, max_size=12), st.data())
def test_they_are_the_list_whatever_is_taken_of_them(values: list[str | None], data: st.DataObject) -> None:
    texts = StringColumn.of(values)
    packed = StringColumn(texts.data, texts.starts, texts.sizes)  # without the list that it was made of
    assert packed.tolist() == list(texts) == values == [packed[index] for index in range(len(values))]
    where = np.array(data.draw(st.permutations(range(len(values)))), np.intp)
    start = data.draw(st.integers(0, len(values)))
    for each in (texts, packed):
        part = each.take(where)[start:]
        wanted = [values[index] for index in where[start:]]
        assert part.tolist() == wanted
        assert b"".join((value or "").encode() for value in wanted) == gathered(part)[0].tobytes()
        assert StringColumn.joined([part, each]).tolist() == wanted + values
