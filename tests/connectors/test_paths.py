"""The ending of a name tells the format; an unknown one is refused, with those that are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamcal_connectors.files import FileConnector
from streamcal_connectors.paths import format_of

from streamcal.run.ports import SinkOptions, SourceOptions
from tests.command_line import GOOD, streamcal


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("e.ndjson.gz", "jsonl"),
        ("e", "jsonl"),
        ("e.csv.gz", "csv"),
        ("a.b.pq", "parquet"),
        ("e.feather", "arrow"),
    ],
)
def test_the_ending_tells_the_format(name: str, kind: str) -> None:
    assert format_of(name, read=False) == format_of(name, read=True) == kind


@pytest.mark.parametrize("name", ["e.josnl", "e.csv.bz2"])
def test_an_unknown_ending_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(ValueError, match=r"unknown ending, '\.\w+': known are \.jsonl, .*\.csv .*\.parquet"):
        FileConnector().sink(str(path), SinkOptions())
    assert not path.exists()
    path.write_bytes(GOOD)
    with pytest.raises(ValueError, match=r"unknown ending.*--format jsonl or csv reads it"):
        FileConnector().source(str(path), SourceOptions())
    source = FileConnector().source(str(path), SourceOptions(format="jsonl"))
    source.seek({})
    assert len(source.poll(10, 0.0)[0].events) == 1
    source.close()


def test_standard_input_may_be_csv(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"  # its name tells
    labels.write_text('{"id":"a","label":1}\n')
    out = tmp_path / "o.csv"
    done = streamcal(
        "run", "--events", "-", "--format", "csv", "--labels", labels, "--score", "p", "--output", out,
        stdin=b"id,p\na,0.5\nb,0.25\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["id", "a", "b"]
    done = streamcal("run", "--events", "-", "--format", "xml", "--output", "-")
    assert done.returncode == 2
    assert "'xml' is not one of 'jsonl', 'csv'" in " ".join(done.stderr.split())
