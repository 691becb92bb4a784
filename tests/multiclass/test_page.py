"""What the page of many classes shows in a shell runs as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "multiclass.md"


def test_runs_of_the_page(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    found = []
    for code in re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL):
        done = subprocess.run(
            ["bash", "-ec", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        found.append([json.loads(line) for line in done.stdout.splitlines()])
    classes, (learned, applied), keys = found
    assert [row["probabilities"] for row in classes] == [
        pytest.approx({"cat": 0.7, "dog": 0.2, "fox": 0.1}),
        pytest.approx({"cat": 0.1, "dog": 0.6, "fox": 0.3}),
    ]
    assert learned["probabilities"] == pytest.approx({"cat": 0.7, "dog": 0.2, "fox": 0.1})
    assert applied["map_version"] == 1
    assert applied["probabilities"] == pytest.approx({"cat": 0.6, "dog": 0.3, "fox": 0.1})
    assert [(row["key"], row["probability"]) for row in keys] == [("drama", 0.9), ("comedy", 0.4)]
