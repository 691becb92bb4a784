"""The README's and docs' Python runs as it stands there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from streamcal import RecalibrationMap
from streamcal.config import RunConfig

ROOT = Path(__file__).parents[1]


def blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / path).read_text(), re.DOTALL)


@pytest.mark.parametrize("code", blocks("README.md", "python"))
def test_the_readme_runs(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


def test_the_map_of_the_docs_is_applied_as_they_say() -> None:
    (code,) = blocks("docs/maps.md", "python")
    (text,) = blocks("docs/maps.md", "json")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/maps.md", "exec"), names)
    recalibration = RecalibrationMap.model_validate_json(text)
    for score in (0.0, 0.1, 0.25, 0.3, 0.5, 1.0):
        assert names["probability"](recalibration.model_dump(), score) == recalibration.predict_one(score)


def test_the_options_of_the_docs_are_the_defaults() -> None:
    (text,) = blocks("docs/events.md", "toml")
    assert RunConfig.model_validate(tomllib.loads(text)) == RunConfig()


def test_every_link_leads_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
