"""Each test that the threat model names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(tests/\S+?\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())


def test_every_row_of_the_threat_model_names_a_test() -> None:
    table = re.findall(r"^\| .*$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert len(table) > 15
    assert all("`tests/" in row for row in table[1:])


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_the_test_exists(path: str, name: str) -> None:
    assert re.search(rf"^ *def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
