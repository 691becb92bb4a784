"""The site: notebooks are kept without outputs, versions are listed, the citation names this one.

`make docs` runs the notebooks.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_asserts_what_it_shows(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    for cell in cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert "assert " in code[-1], "the last cell asserts what the notebook shows"
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)#:\s]+)", text)
    assert links
    assert all((path.parent / link).exists() for link in links), links


def test_the_site_lists_its_versions(tmp_path: Path) -> None:
    """In a copy of what `.ci/site` reads, beside versions that were there before."""
    for name in ("build/site", ".ci"):
        (tmp_path / "repository" / name).mkdir(parents=True)
    repository, site = tmp_path / "repository", tmp_path / "site"
    (repository / ".ci" / "site").write_bytes((ROOT / ".ci" / "site").read_bytes())
    (repository / "build" / "site" / "README.html").touch()
    (repository / "build" / "site" / "index.html").write_text((ROOT / "docs/site/index.html").read_text())
    for old in ("0.0.9", "0.0.10"):
        (site / old).mkdir(parents=True)
        (site / old / "README.html").touch()
    for _ in range(2):  # a version that is there is replaced
        subprocess.run(
            ["bash", repository / ".ci" / "site", site],
            env=os.environ | {"PYTHON": sys.executable},
            check=True,
            capture_output=True,
        )
    assert json.loads((site / "versions.json").read_text()) == [VERSION, "0.0.10", "0.0.9"]
    assert f'href="{VERSION}/README.html"' in (site / "index.html").read_text()
    assert (site / VERSION / "README.html").exists()


def test_the_citation_names_this_version() -> None:
    cited = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == [VERSION]
