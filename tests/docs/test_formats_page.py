"""docs/connectors.md: its commands run on the flights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from streamcal import RecalibrationMap

PAGE = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()


@pytest.mark.nightly
def test_its_commands_run_on_the_flights(tmp_path: Path) -> None:
    (code,) = (each for each in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "demo --files" in each)
    commands = "\n".join(line for line in code.splitlines() if not line.startswith("pip install"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    answers, again = pl.read_parquet(tmp_path / "recalibrated.parquet"), pl.read_ipc(tmp_path / "again.arrow")
    assert len(answers) == len(again) == len(pl.read_parquet(tmp_path / "flights" / "predictions.parquet"))
    served = RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    assert again["probability"].to_numpy() == pytest.approx(
        served.predict_many(again["score"].to_numpy()), abs=0
    )
