"""Several files as one source: in order, each row once, wherever a run goes on; changes are noticed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamcal_connectors.files import FileConnector

from streamcal.run.ports import SourceOptions

NAMES = ("a.jsonl", "b.csv", "c.parquet", "d.arrow", "e.jsonl.gz", "f.parquet")
EACH = 5


def write(path: Path, ids: Iterable[str]) -> None:
    ids = list(ids)
    if path.suffix == ".csv":
        path.write_text("id,score\n" + "".join(f"{id_},0.5\n" for id_ in ids))
    elif path.suffix in (".parquet", ".arrow"):
        table = pa.table(
            {"id": pa.array(ids, pa.string()), "score": pa.array([0.5] * len(ids), pa.float64())}
        )
        if path.suffix == ".parquet":
            pq.write_table(table, path, row_group_size=2)
        else:
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table)
    else:
        text = "".join(f'{{"id":"{id_}","score":0.5}}\n' for id_ in ids).encode()
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def fill(folder: Path) -> list[str]:
    """Write a file of each format, one of them empty; return the ids in order."""
    for name in NAMES:
        write(folder / name, (f"{name}{i}" for i in range(0 if name == "f.parquet" else EACH)))
    write(folder / "g.jsonl", ["last"])
    return [f"{name}{i}" for name in NAMES[:-1] for i in range(EACH)] + ["last"]


def opened(what: Path | str, position: Any = None, **options: Any) -> Any:
    source = FileConnector().source(str(what), SourceOptions(**options))
    try:
        source.seek({} if position is None else {"": position})
    except BaseException:
        source.close()
        raise
    return source


def ids(source: Any, positions: list[Any] | None = None) -> list[str]:
    """Return the ids of what is left; after each, the position there."""
    found = []
    while not source.ended:
        for batch in source.poll(3, 0.0):
            found += [event.id for event in batch.events]
            if positions is not None:
                positions += [batch.position(count + 1) for count in range(len(batch.events))]
    return found


def test_a_pattern_is_read_in_order_and_goes_on_at_any_row(tmp_path: Path) -> None:
    expected, positions = fill(tmp_path), list[Any]()
    with closing(opened(tmp_path / "*")) as source:
        assert ids(source, positions) == expected
        assert source.lag() == {"": 0.0}
        assert source.name == str(tmp_path / "*")
    for count, position in enumerate(json.loads(json.dumps(positions)), 1):
        with closing(opened(tmp_path / "*", position)) as source:
            source.limit({"": positions[20]})
            assert ids(source) == expected[count:21]
            source.limit(None)
            assert ids(source) == expected[max(count, 21) :]


def test_a_directory_is_its_files_but_not_what_is_hidden(tmp_path: Path) -> None:
    expected = fill(tmp_path)
    for name in ("_SUCCESS", ".part.crc", "_metadata"):
        (tmp_path / name).write_text("no events")
    with closing(opened(tmp_path)) as source:
        assert ids(source) == expected
    (tmp_path / "key=DE").mkdir()
    with pytest.raises(OSError, match=r"holds others, such as key=DE: give a pattern .*\*\*/\*\.parquet"):
        opened(tmp_path)


@pytest.mark.parametrize("change", ["added before", "grown", "rewritten"])
def test_what_changed_before_a_position_is_noticed(tmp_path: Path, change: str) -> None:
    positions = list[Any]()
    for number in (1, 2, 3):
        write(tmp_path / f"{number}.parquet", f"{number}{number}")
    with closing(opened(tmp_path / "*.parquet")) as source:
        ids(source, positions)
    position = positions[-2]  # in the last file
    if change == "added before":
        write(tmp_path / "0.parquet", "x")
    elif change == "removed":
        (tmp_path / "1.parquet").unlink()
    elif change == "grown":
        write(tmp_path / "1.parquet", [str(number) for number in range(9)])
    elif change == "renamed":
        (tmp_path / "3.parquet").rename(tmp_path / "4.parquet")
    else:
        write(tmp_path / "3.parquet", "yz")
    with pytest.raises(
        ValueError, match=r"are not those that were read|not the file of which 1 rows were read"
    ):
        opened(tmp_path / "*.parquet", position)


def test_nothing_behind_a_line_that_may_be_torn_is_read(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,score\na,0.5\nb,0.2")
    (tmp_path / "2.csv").write_text("id,score\nc,0.5\n")
    positions = list[Any]()
    with closing(opened(tmp_path / "*.csv")) as source:
        assert ids(source, positions) == ["a"]
        assert "the last line of" in source.unfinished
    (tmp_path / "1.csv").write_text("id,score\na,0.5\nb,0.25\n")
    with closing(opened(tmp_path / "*.csv", positions[-1])) as source:
        assert ids(source) == ["b", "c"]
        assert source.unfinished is None
    (tmp_path / "1.csv").write_text("id,score\na,0.5\nb,0.2")
    with closing(opened(tmp_path / "*.csv", final=True)) as source:
        assert ids(source) == ["a", "b", "c"]
