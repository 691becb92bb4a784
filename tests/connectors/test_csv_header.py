"""The header of a CSV file: checked when the file is opened, and read again when a run goes on."""

from __future__ import annotations

import gzip
from contextlib import closing
from pathlib import Path

import pytest
from streamcal_connectors.files import FileConnector

from streamcal import PredictionEvent
from streamcal.events.columns import Columns
from streamcal.run.ports import SourceOptions

OPTIONS = SourceOptions(columns=Columns(score="prob"), required=frozenset({"prob"}))


@pytest.mark.parametrize("name", ["e.csv", "e.csv.gz"])
def test_positions_hold_no_header_and_a_run_goes_on_at_any_line(tmp_path: Path, name: str) -> None:
    text = b"\xef\xbb\xbf\r\n  \r\nid,x,prob\r\na,1,0.5\r\nb,1,0.25\r\n"
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with closing(FileConnector().source(str(path), OPTIONS)) as source:
        assert source.seek({}) == {"": {"offset": 0, "line": 0}}
        (batch,) = source.poll(10, 0.0)
        assert batch.events == [PredictionEvent("a", 0.5), PredictionEvent("b", 0.25)]
        position = batch.position(1)
    assert set(position) == {"offset", "line", "fingerprint"}
    with closing(FileConnector().source(str(path), OPTIONS)) as source:
        source.seek({"": position})
        (batch,) = source.poll(10, 0.0)
        assert batch.events == [PredictionEvent("b", 0.25)]
        assert batch.origin(0).line == 5


def test_a_missing_column_is_told_when_the_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(b"\n\nid,score\na,0.5\n")
    with pytest.raises(ValueError, match=r"e\.csv, line 3: the CSV header has no column 'prob'; it has 'id'"):
        FileConnector().source(str(path), OPTIONS)


def test_a_header_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(b"id,pr")
    options = SourceOptions(columns=OPTIONS.columns, required=OPTIONS.required, follow=True)
    with closing(FileConnector().source(str(path), options)) as source:
        source.seek({})
        assert not source.poll(10, 0.0)
        with path.open("ab") as file:
            file.write(b"ob\na,0.5\n")
        (batch,) = source.poll(10, 0.0)
        assert batch.events == [PredictionEvent("a", 0.5)]
