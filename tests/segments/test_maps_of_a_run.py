"""Maps of a run with segments: they say so, and nobody answers with them by mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamcal.cli.app import app
from tests.segments.test_run import run, stream, written

INSTEAD = ("segments by country", "map_for", "segmented_query", "take the field segments out")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with events, and the maps of a run that has segments by country."""
    predictions, labels = stream(600)
    written(predictions, tmp_path / "p.jsonl", 9e9)
    written(labels, tmp_path / "l.jsonl", 9e9)
    (tmp_path / "c.toml").write_text('[segments]\nfields = ["country"]\n')
    run(tmp_path, "--maps", str(tmp_path / "maps.jsonl"), "--map", str(tmp_path / "map.json"))
    return tmp_path


def applied(folder: Path, *options: str) -> tuple[int, str]:
    inputs = ["--events", str(folder / "p.jsonl"), "--output", str(folder / "applied.jsonl")]
    result = CliRunner().invoke(app, ["apply", *inputs, *options])
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    "call",
    [
        lambda folder: applied(folder, "--map", str(folder / "map.json")),
        lambda folder: applied(folder, "--follow", str(folder / "maps.jsonl")),
    ],
    ids=["map", "follow"],
)
def test_apply_refuses_them(folder: Path, call: Callable[[Path], tuple[int, str]]) -> None:
    status, said = call(folder)
    assert status != 0
    assert all(words in said for words in INSTEAD), said
    assert not (folder / "applied.jsonl").exists() or not (folder / "applied.jsonl").read_bytes()
