"""docs/architecture.md: each function that it names, for a question or a formula of the paper, exists."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
PLACES = [
    name
    for section in ("Where to look", "Where a formula of the paper lives")
    for name in re.findall(r"`(streamcal[\w.]+)`", PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0])
]


@pytest.mark.parametrize("name", PLACES)
def test_the_place_exists(name: str) -> None:
    assert resolve_name(name) is not None
