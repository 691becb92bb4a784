"""docs/architecture.md: every formula of the paper has the place in the code that its table names."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
TABLE = PAGE.split("\n## Where a formula of the paper lives\n", 1)[1].split("\n## ", 1)[0]
PLACES = re.findall(r"`(streamcal[\w.]+)`", TABLE)


@pytest.mark.parametrize("name", PLACES)
def test_the_place_of_a_formula_exists(name: str) -> None:
    assert resolve_name(name) is not None
