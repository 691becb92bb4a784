"""Each row of the table of mistakes in docs/operations.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(
    r"\| `(tests/\S+\.py)::(\w+)` \|$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE
)


def test_there_are_enough_rows() -> None:
    assert len(NAMED) >= 30
    assert len(set(NAMED)) == len(NAMED)


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_the_test_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
