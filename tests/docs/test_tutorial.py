"""The tutorial's script and commands run in their order, in one folder, and print what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [language for language, _ in blocks] == ["python", "sh", "", "sh", "", "sh"]
    printed: list[str] = []
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for language, code in blocks:
        if not language:  # lines that the block before has printed, in this order
            places = [printed.index(line) for line in code.splitlines()]
            assert places == sorted(places)
            continue
        command = [sys.executable, "-c", code] if language == "python" else ["bash", "-euc", code]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        printed = [line.rstrip() for line in done.stdout.splitlines()]
    assert (tmp_path / "report.html").stat().st_size
    assert (tmp_path / "again.csv").stat().st_size
