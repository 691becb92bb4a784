"""benchmarks/event_path.py: what it counts, and that the way of an event becomes no longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TOOL = Path(__file__).parents[2] / "benchmarks" / "event_path.py"
LONGEST = {"prediction": (7, 31), "label": (7, 27)}
"""Files and switches, at most."""


def test_it_follows_one_prediction_and_one_label() -> None:
    done = subprocess.run([sys.executable, TOOL, "--steps"], capture_output=True, text=True, check=True)
    for kind, (files, switches) in LONGEST.items():
        found = re.search(rf"^{kind}: (\d+) files, (\d+) switches\n((?:  .*\n)*)", done.stdout, re.MULTILINE)
        assert found, done.stdout
        steps = found[3].splitlines()
        assert len(steps) == int(found[2]) <= switches
        assert int(found[1]) <= files
        assert steps[0].endswith("JsonDecoder.decode")
        assert any("/join/" in step for step in steps)


def test_the_architecture_page_names_the_same_numbers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    for kind, (files, switches) in LONGEST.items():
        assert re.search(rf"\| a {kind} \|.*\| {files} files, {switches} switches \|", page)
