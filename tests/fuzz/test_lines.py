"""Lines of events: whatever they hold, each is an event or has a reason, and runs go on."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("target", ["lines of JSON", "rows of CSV", "runs"])
def test_a_line_is_an_event_or_has_a_reason(target: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--only", target, "--verbose"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
