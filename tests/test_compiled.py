"""What is compiled gives what the same file gives as Python, to the last bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.uncompiled import classed, joined, learned

ROOT = Path(__file__).parents[1]


UNCOMPILED = """
import sys
from tests.uncompiled import import_uncompiled

import_uncompiled()
import streamcal
from tests.uncompiled import classed, joined, learned

sys.stdout.write(f"{streamcal.compiled} {learned()} {joined()} {classed()}")
"""


@pytest.mark.slow
def test_an_engine_where_nothing_is_compiled() -> None:
    """As after an installation without a C compiler."""
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == f"False {learned()} {joined()} {classed()}"
