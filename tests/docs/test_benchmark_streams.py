"""The benchmark on real streams: its loaders, its peers, the order of events, its figures and its tables."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import EIGHT
from streamcal.testing import NormalPair

pytestmark = pytest.mark.nightly

SCORES, LABELS = NormalPair(0.4).sample(400, np.random.default_rng(3))
PAIRS = list(zip(SCORES.tolist(), LABELS.tolist(), strict=True))


@pytest.mark.slow
def test_a_stream_and_a_peer_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A CSV file with a source, and a class that is found on the path."""
    from benchmarks import quality  # whose libraries take long to import

    rows = [f"{score},{label},{'source' if i < 200 else 'target'}" for i, (score, label) in enumerate(PAIRS)]
    (tmp_path / "mine.csv").write_text("\n".join(["score,label,domain", *rows]) + "\n")
    (tmp_path / "right.py").write_text(
        "class Half:\n    def predict(self, score): return 0.5\n    def learn(self, score, label): pass\n"
    )
    read = quality.read(tmp_path / "mine.csv")
    assert (len(read.source_scores), len(read.scores)) == (200, 200)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(quality, "PEERS", {})
    quality.main(["--stream", str(tmp_path / "mine.csv"), "--peer", "right:Half"])
    row = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("| mine.csv | at once")
    )
    assert row.split(" | ")[4] == "right:Half"


@pytest.mark.slow
@pytest.mark.parametrize("name", EIGHT)
def test_each_of_the_eight_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"benchmarks.{name}").main(["--quick"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) > 2
    assert all(line.count(" | ") >= 1 for line in lines)
