"""CONTRIBUTING.md and SECURITY.md name files and make targets that exist."""

from __future__ import annotations

import re
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
    for target in re.findall(r"\bmake ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text()):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
