"""docs/architecture.md says what is there: its formulas, its rooms, its layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from pkgutil import resolve_name

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def table(heading: str) -> list[list[str]]:
    """Return the rows of the first table under a heading, without its header."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([\w.]+)`", cell)


FORMULAS = [
    (row[0], row[1], name) for row in table("Where a formula of the paper lives") for name in code(row[2])
]


@pytest.mark.parametrize("name", [name for _, _, name in FORMULAS])
def test_the_place_of_a_formula_exists(name: str) -> None:
    assert resolve_name(name) is not None


def test_a_formula_has_one_place() -> None:
    assert len(FORMULAS) == len(table("Where a formula of the paper lives"))
    said = [(where, what) for where, what, _ in FORMULAS]
    assert len(said) == len(set(said))


def test_every_module_has_its_room() -> None:
    for rooms, _, modules in table("Rooms"):
        for room in code(rooms):
            folder = ROOT / "connectors" / room if "connectors" in room else ROOT / "streamcal" / room
            if folder.is_dir():
                paths = [path for path in folder.iterdir() if path.name[0] not in "_." and path.stem != "py"]
                found = {path.name.partition(".")[0] for path in paths}
                assert set(code(modules)) == found, room
            else:
                assert folder.with_suffix(".py").is_file()


def test_the_layers_are_those_that_lint_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert [set(code(row[1])) for row in table("Imports")] == [
        set(re.findall(r"\w+", layer)) for layer in layers
    ]
