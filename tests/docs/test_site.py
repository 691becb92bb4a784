"""The site lists its versions; `make docs` runs the notebooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


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
