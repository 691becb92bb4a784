"""docs/scale.md: its tables are what its arithmetic prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()


def test_the_tables_are_what_the_arithmetic_prints(capsys: pytest.CaptureFixture[str]) -> None:
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], {})
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in PAGE.splitlines() if line.startswith("| 10^")] == printed
