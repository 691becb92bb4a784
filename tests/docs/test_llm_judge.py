"""docs/llm-judge.md: its commands run, and its simulation has the truth that it says."""

from __future__ import annotations

import csv
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "llm-judge.md").read_text()


@pytest.fixture(scope="module", name="figure")
def importer() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs" / "figures"))
    try:
        return importlib.import_module("llm_judge")
    finally:
        sys.path.remove(str(ROOT / "docs" / "figures"))


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


def test_the_truth_of_the_simulation_is_its_rate(figure: ModuleType) -> None:
    """The rate of each score and group is within 5 standard errors of the truth."""
    simulate = figure.simulate
    for stream in (simulate.answers(np.random.default_rng(5)), simulate.pairs(np.random.default_rng(5))):
        assert (np.diff(stream.times) >= 0).all()
        for group in np.unique(stream.groups):
            for score in np.unique(stream.scores):
                these = (stream.groups == group) & (stream.scores == score)
                if not these.any():
                    continue
                truth = stream.truth[these][0]
                assert (stream.truth[these] == truth).all()
                margin = 5.0 * np.sqrt(max(truth * (1.0 - truth), 1.0 / these.sum()) / these.sum())
                assert abs(stream.labels[these].mean() - truth) < margin
        by_weight = np.average(stream.labels[stream.told], weights=1.0 / stream.propensities[stream.told])
        assert abs(by_weight - stream.labels.mean()) < 0.1
