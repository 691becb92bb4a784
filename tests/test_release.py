"""What a release ships: the same bytes each time, and a list of what is in it of others."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SBOM = json.loads((ROOT / "streamcal.cdx.json").read_text())


def build(source: Path, target: str, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    settings = {"STREAMCAL_COMPILE": "0", "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=source, env=os.environ | settings, capture_output=True, check=True)
    (made,) = out.iterdir()
    return made


@pytest.mark.slow
def test_the_same_files_give_the_same_bytes_wherever_they_are(tmp_path: Path) -> None:
    """`make release-check` does it with compiled modules, too."""
    made = [build(ROOT, "sdist", tmp_path / "sdist")]
    for place in ("one", "another"):
        with tarfile.open(made[0]) as archive:
            archive.extractall(tmp_path / place, filter="data")
        (source,) = (tmp_path / place).iterdir()
        made += [build(source, kind, tmp_path / f"{place}-{kind}") for kind in ("sdist", "wheel")]
    sdist, one_sdist, one_wheel, another_sdist, another_wheel = (each.read_bytes() for each in made)
    assert sdist == one_sdist == another_sdist
    assert one_wheel == another_wheel
    assert made[2].name == f"streamcal_engine-{PROJECT['version']}-py3-none-any.whl"
    with zipfile.ZipFile(made[2]) as wheel:
        names = wheel.namelist()
        (listed,) = (name for name in names if ".dist-info/sboms/" in name)
        assert json.loads(wheel.read(listed)) == SBOM
        assert not any(name.endswith((".so", ".pyd")) for name in names)


def test_what_is_shipped_of_others_is_listed() -> None:
    component = SBOM["metadata"]["component"]
    assert (component["name"], component["version"]) == (PROJECT["name"], PROJECT["version"])
    assert component["purl"] == f"pkg:pypi/{PROJECT['name']}@{PROJECT['version']}"
    listed = {
        file["name"]: file["hashes"][0]["content"] for one in SBOM["components"] for file in one["components"]
    }
    others = [*ROOT.glob("streamcal/**/*.min.*")]
    assert listed == {
        path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in others
    }
    (uplot,) = SBOM["components"]
    assert f"(v{uplot['version']})" in others[0].read_text() + others[1].read_text()
