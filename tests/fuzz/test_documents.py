"""States, maps, options and lines: whatever they hold, only documented errors come out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamcal import RecalibrationMap, Recalibrator
from streamcal.run.apply import Maps
from streamcal.run.config import read_config
from tests.fuzz.states import OPTIONS, make
from tests.memory import Log, MemoryFeed


@pytest.mark.slow
def test_only_documented_errors_come_out() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--factor", "0.05", "--verbose"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = 9" + "9" * 5000, "a = '\x00'", "[x"], ids=len)
def test_options_that_are_no_options_are_refused_with_the_name_of_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"options\.toml: "):
        read_config(path)


@pytest.mark.parametrize("line", [b'{"key":"\xff"}', b'{"a":' + b"[" * 5000], ids=["UTF-8", "nesting"])
def test_a_line_of_maps_that_is_no_map_is_passed_over(line: bytes) -> None:
    log = Log()
    log.partitions[""] = [line, b'{"version":1,"key":null,"time":null,"map":{"version":1}}']
    maps = Maps(MemoryFeed(log))
    assert maps.update(0.0)
    assert maps.get(None) == RecalibrationMap(version=1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_whatever_was_learned_or_refreshed_can_be_restored(options: dict[str, object]) -> None:
    rng = np.random.default_rng(4)
    engine = make(options, 60, rng)
    for n in (1, 30, 90, 300):
        engine.observe_many(rng.random(n))
        engine = Recalibrator.from_bytes(engine.to_bytes())
        engine.refresh()
        state = engine.to_bytes()
        assert Recalibrator.from_bytes(state).to_bytes() == state
