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
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


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
    assert made[2].name == f"streamcal_engine-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(made[2]) as wheel:
        names = wheel.namelist()
        (listed,) = (name for name in names if ".dist-info/sboms/" in name)
        (uplot,) = json.loads(wheel.read(listed))["components"]
        assert {name for name in names if ".min." in name} == {file["name"] for file in uplot["components"]}
        for file in uplot["components"]:
            assert hashlib.sha256(wheel.read(file["name"])).hexdigest() == file["hashes"][0]["content"]
        assert not any(name.endswith((".so", ".pyd")) for name in names)
