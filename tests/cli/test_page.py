"""``streamcal run --page``: where it may listen, and that it ends with the run."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

import msgspec
import pytest

from streamcal.monitor.latest_status import Live
from tests.command_line import GOOD, streamcal
from tests.forks import Fork

pytestmark = pytest.mark.slow  # each test calls the command line


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    (tmp_path / "e.jsonl").write_bytes(GOOD)
    return ["run", "--events", tmp_path / "e.jsonl", "--output", tmp_path / "o.jsonl"]


def test_another_address_is_refused_before_anything_is_read(files: list[object]) -> None:
    done = streamcal(*files, "--page", "0.0.0.0:0")
    assert done.returncode == 2, done.stderr
    assert "'0.0.0.0:0'" in done.stderr
    assert "no password" in done.stderr
    assert not Path(str(files[-1])).exists()


def test_viewers_get_the_last_record_and_the_run_ends(tmp_path: Path) -> None:
    """Standard input stays open until a viewer is there."""
    run = ["run", "--events", "-", "--output", tmp_path / "o.jsonl", "--page", "0"]
    with Fork(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1].decode()
        with urllib.request.urlopen(f"{url}page/events") as events:
            process.stdin.write(GOOD)
            process.stdin.close()
            lines = [line for line in events if line.startswith(b"data: ")]
        assert process.wait(60.0) == 0
    last = msgspec.json.decode(lines[-1].removeprefix(b"data: "), type=Live)
    assert (last.state, last.status.events) == ("ended", 1)
