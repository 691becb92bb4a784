"""The ending of a name tells the format; an unknown one is refused, with those that are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamcal_connectors.files import FileConnector

from streamcal.run.ports import SinkOptions
from tests.command_line import GOOD, streamcal
from tests.connectors.sources import opened, read_all


@pytest.mark.parametrize("name", ["e.josnl", "e.csv.bz2"])
def test_an_unknown_ending_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(ValueError, match=r"unknown ending, '\.\w+': known are \.jsonl, .*\.csv .*\.parquet"):
        FileConnector().sink(str(path), SinkOptions())
    assert not path.exists()
    path.write_bytes(GOOD)
    with pytest.raises(ValueError, match=r"unknown ending.*--format jsonl or csv reads it"):
        opened(path).__enter__()
    assert read_all(path, format="jsonl").ids == ["good"]


def test_standard_input_may_be_csv(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"  # its name tells
    labels.write_text('{"id":"a","label":1}\n')
    out = tmp_path / "o.csv"
    command = ["run", "--events", "-", "--format", "csv", "--labels", labels, "--score", "p", "--output", out]
    done = streamcal(*command, stdin=b"id,p\na,0.5\nb,0.25\n")
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["id", "a", "b"]
