"""examples/conda: the recipe says what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RECIPE: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "conda" / "recipe.yaml").read_text())
WHOLE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = WHOLE["project"]


def needed(requirements: list[Any]) -> dict[str, str]:
    """Return versions by name, as pip writes it."""
    pairs = (re.fullmatch(r"([\w-]+) ?(.*)", each) for each in requirements if isinstance(each, str))
    return {pair[1].replace("_", "-"): pair[2] for pair in pairs if pair}


def test_name_version_and_licences() -> None:
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["context"]["version"] == PROJECT["version"]
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["about"]["license"].startswith(PROJECT["license"])
    assert RECIPE["about"]["license_file"] == PROJECT["license-files"]
    (least,) = re.findall(r'"<(\d+\.\d+)"', RECIPE["build"]["skip"])
    assert PROJECT["requires-python"] == f">={least}"


def test_requirements() -> None:
    ours = {"python": "", "pip": ""}
    assert needed(RECIPE["requirements"]["run"]) == {"python": ""} | needed(PROJECT["dependencies"])
    assert needed(RECIPE["requirements"]["host"]) == ours | needed(WHOLE["build-system"]["requires"])


def test_what_its_tests_call_is_there() -> None:
    python, script = RECIPE["tests"]
    for name in python["python"]["imports"]:
        import_module(name)
    programs = {line.split()[0] for line in script["script"]} - {"python"}
    assert programs == set(PROJECT["scripts"])
