"""docs/connectors.md: its commands run on the flights, and its table has the endings that there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from streamcal_connectors.formats import TABLES, format_of

from streamcal import RecalibrationMap

PAGE = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()


def test_the_table_has_every_ending() -> None:
    section = PAGE.split("\n## Formats of files\n", 1)[1]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `.")]
    said = {
        ending: what.split()[0].strip(":,").lower()
        for names, what in rows
        for ending in re.findall(r"\.\w+", names)
    }
    kinds = {"json": "jsonl", "csv": "csv", "parquet": "parquet", "arrow": "arrow"}
    assert {ending: kinds[what] for ending, what in said.items()} == {
        **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"), ".csv": "csv", **TABLES
    }  # fmt: skip
    assert all(format_of(f"e{ending}", read=True) == kinds[what] for ending, what in said.items())


@pytest.mark.slow
def test_its_commands_run_on_the_flights(tmp_path: Path) -> None:
    (code,) = (each for each in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) if "demo --files" in each)
    install, _, commands = code.partition("\n")
    assert install == 'pip install "streamcal-engine[parquet]" polars'  # the tests have them
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
    assert len(answers) == len(again) == 227_657
    served = RecalibrationMap.model_validate_json((tmp_path / "map.json").read_bytes())
    assert again["probability"].to_numpy() == pytest.approx(
        served.predict_many(again["score"].to_numpy()), abs=0
    )
