"""CONTRIBUTING.md and SECURITY.md name what exists, and the tests keep to what the first says of them."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    paths = re.findall(r"`((?:streamcal|connectors|tests|docs|benchmarks|\.ci)/[\w/.-]*)`", text)
    paths += re.findall(r"\]\(([^)#:]+)\)", text)
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([a-z]+)", (ROOT / "CONTRIBUTING.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_room_and_every_marker_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rooms = {path for path in (ROOT / "streamcal").iterdir() if path.suffix == ".py" or path.is_dir()}
    names = {
        f"streamcal/{path.name}{'/' * path.is_dir()}" for path in rooms if not path.name.startswith("__")
    }
    faces = {"streamcal/testing.py"}  # named where statistical tests are explained
    assert (
        sorted(
            name
            for name in names - faces - {"streamcal/flights/"}
            if f"| `{name}`" not in text and f", `{name}`" not in text
        )
        == []
    )
    with (ROOT / "pyproject.toml").open("rb") as file:
        markers = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
    assert [each for each in markers if f"| `{each.partition(':')[0]}` |" not in text] == []


def test_no_test_imports_from_another_test() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            modules = {name.rsplit(".", 1)[-1] for name in names if name.startswith("tests.")}
            assert not any(module.startswith("test_") for module in modules), path
