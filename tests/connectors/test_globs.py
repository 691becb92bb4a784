"""Several files as one source: in order, each row once, wherever a run goes on; changes are noticed."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.sources import opened, read, read_all

NAMES = ("a.jsonl", "b.csv", "c.parquet", "d.arrow", "e.jsonl.gz", "f.parquet")


def write(path: Path, ids: Iterable[str]) -> None:
    ids = list(ids)
    table = pa.table({"id": pa.array(ids, pa.string()), "score": pa.array([0.5] * len(ids), pa.float64())})
    text = "".join(f'{{"id":"{id_}","score":0.5}}\n' for id_ in ids).encode()
    if path.suffix == ".csv":
        path.write_text("id,score\n" + "".join(f"{id_},0.5\n" for id_ in ids))
    elif path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=2)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def test_a_pattern_or_directory_is_read_in_order_and_goes_on_at_any_row(tmp_path: Path) -> None:
    """One of the files is empty; hidden ones are none of them."""
    expected = [f"{name}{i}" for name in NAMES[:-1] for i in range(5)] + ["last"]
    for name in NAMES:
        write(tmp_path / name, (id_ for id_ in expected if id_.startswith(name)))
    write(tmp_path / "g.jsonl", ["last"])
    with opened(tmp_path / "*") as source:
        found = read(source, 3)
        assert found.ids == expected
        assert source.lag() == {"": 0.0}
        assert source.name == str(tmp_path / "*")
    for count in range(1, len(expected) + 1):
        with opened(tmp_path / "*", found.position(count - 1)) as source:
            source.limit({"": found.position(20)})
            assert read(source, 3).ids == expected[count:21]
            source.limit(None)
            assert read(source, 3).ids == expected[max(count, 21) :]
    for name in ("_SUCCESS", ".part.crc"):
        (tmp_path / name).write_text("no events")
    assert read_all(tmp_path).ids == expected
    (tmp_path / "key=DE").mkdir()
    with pytest.raises(OSError, match=r"holds others, such as key=DE: give a pattern .*\*\*/\*\.parquet"):
        read_all(tmp_path)


@pytest.mark.parametrize(("name", "ids"), [("0", "x"), ("1", "012345678"), ("3", "yz")])
def test_what_changed_before_a_position_is_noticed(tmp_path: Path, name: str, ids: str) -> None:
    """A file that was added before it, has grown, or was rewritten."""
    for number in "123":
        write(tmp_path / f"{number}.parquet", number * 2)
    position = read_all(tmp_path / "*.parquet").position(-2)  # in the last file
    write(tmp_path / f"{name}.parquet", ids)
    message = r"are not those that were read|not the file of which 1 rows were read"
    with pytest.raises(ValueError, match=message), opened(tmp_path / "*.parquet", position):
        pass


def test_nothing_behind_a_line_that_may_be_torn_is_read(tmp_path: Path) -> None:
    torn, pattern = tmp_path / "1.csv", tmp_path / "*.csv"
    torn.write_text("id,score\na,0.5\nb,0.2")
    (tmp_path / "2.csv").write_text("id,score\nc,0.5\n")
    assert read_all(pattern, final=True).ids == ["a", "b", "c"]
    with opened(pattern) as source:
        found = read(source)
        assert found.ids == ["a"]
        assert "the last line of" in source.unfinished
    torn.write_text("id,score\na,0.5\nb,0.25\n")
    with opened(pattern, found.position(-1)) as source:
        assert read(source).ids == ["b", "c"]
        assert source.unfinished is None
