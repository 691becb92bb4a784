"""Another project's package has the same name: whichever was installed last, one clear error says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_both_commands_are_the_same() -> None:
    folder = Path(sys.executable).parent
    said = {
        subprocess.run([folder / name, "--version"], capture_output=True, text=True, check=True).stdout
        for name in ("streamcal", "streamcal-engine")
    }
    assert len(said) == 1
