"""docs/llm-judge.md: its commands run, and its simulation has the truth that it says."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "llm-judge.md").read_text()


@pytest.mark.nightly
def test_the_commands_run(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    code = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    done = subprocess.run(
        ["bash", "-euc", code], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Cannot tell: labels have weights" in done.stdout
    for judged, served in (("answers.csv", "recalibrated.csv"), ("pairs.csv", "preferred.csv")):
        with (tmp_path / judged).open() as before, (tmp_path / served).open() as after:
            truth = {row["id"]: float(row["truth"]) for row in csv.DictReader(before)}
            rows = list(csv.DictReader(after))
        known, scores, probabilities = (
            np.array(each)
            for each in (
                [truth[row["id"]] for row in rows],
                [float(row["score"]) for row in rows],
                [float(row["probability"]) for row in rows],
            )
        )
        assert len(rows) == 40_000
        assert np.mean((probabilities - known) ** 2) < 0.5 * np.mean((scores - known) ** 2)
