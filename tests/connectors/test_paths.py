"""The ending of a name tells the format; an unknown one is refused, with those that are known."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from streamcal_connectors.files import FileConnector
from streamcal_connectors.paths import format_of

from streamcal.run.ports import SinkOptions, SourceOptions
from tests.command_line import GOOD, read_lines, streamcal


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((f"e{ending}", "jsonl") for ending in (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".gz", "")),
        *((f"e.csv{ending}", "csv") for ending in ("", ".gz")),
        *((f"a.b{ending}", "parquet") for ending in (".parquet", ".pq")),
        *((f"e{ending}", "arrow") for ending in (".arrow", ".feather", ".ipc")),
    ],
)
def test_the_ending_tells_the_format(name: str, kind: str) -> None:
    assert format_of(name, read=False) == format_of(name, read=True) == kind


@pytest.mark.parametrize("name", ["e.josnl", "e.txt", "e.parq", "e.csv.bz2", "e.jsonl.part"])
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


def test_a_packed_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in \.parquet\.gz: unpack it"):
        FileConnector().sink(str(tmp_path / "o.parquet.gz"), SinkOptions())


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


def test_a_pipe_and_other_rows_than_answers_are_no_table(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.parquet")
    with pytest.raises(ValueError, match="a pipe can be JSON lines or CSV only"):
        FileConnector().sink(str(tmp_path / "p.parquet"), SinkOptions())
    with pytest.raises(OSError, match="no regular file"):
        FileConnector().source(str(tmp_path / "p.parquet"), SourceOptions())
    with pytest.raises(ValueError, match="rejects can be JSON lines or CSV only"):
        FileConnector().sink(str(tmp_path / "r.parquet"), SinkOptions(rows="rejects"))


@pytest.mark.slow
def test_without_pyarrow_the_message_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_bytes(GOOD)
    code = "import sys; sys.modules['pyarrow'] = None; from streamcal.cli.app import main; main()"
    command = [sys.executable, "-c", code, "run", "--events", "e.jsonl", "--output", "o.arrow"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert 'pip install "streamcal-engine[parquet]"' in done.stderr


@pytest.mark.slow
def test_pyarrow_is_imported_for_tables_only(tmp_path: Path) -> None:
    events, out = tmp_path / "e.jsonl", tmp_path / "o.jsonl"
    events.write_bytes(GOOD)
    code = (
        "import sys\nfrom streamcal.cli.app import main\n"
        "try: main()\nexcept SystemExit as end: assert not end.code\nassert 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, "run", "--events", events, "--output", out], check=True)
    assert len(read_lines(out)) == 1
