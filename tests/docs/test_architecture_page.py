"""Each function that docs name as the place of a rule, or of a formula of the paper, exists."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PLACES = [
    name
    for page, section in (("architecture", "Where to look"), ("paper", "Where a formula of the paper lives"))
    for name in re.findall(
        r"`(streamcal[\w.]+)`",
        (DOCS / f"{page}.md").read_text().split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0],
    )
]


@pytest.mark.parametrize("name", PLACES)
def test_the_place_exists(name: str) -> None:
    assert resolve_name(name) is not None
