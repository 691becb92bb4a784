"""Answers as Parquet or Arrow: whole or not at all, and never what a run could not finish."""

from __future__ import annotations

import datetime as dt
import subprocess
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from streamcal_connectors import table_sink
from streamcal_connectors.files import FileConnector

from streamcal import RecalibrationMap
from streamcal.run.ports import SinkOptions
from streamcal.run.rows import AnswerColumns, Answers, Recalibrated
from tests.command_line import STREAMCAL, read_lines, streamcal, synthetic, wait_for
from tests.forks import Fork

NAMES = ["o.parquet", "o.arrow"]


def answer(id_: str | None) -> Recalibrated:
    return Recalibrated(id_, 0.5, 0.25, 3, (1.0, 1.0))


def answers(*ids: str | None) -> Answers:
    return Answers(AnswerColumns.of(list(map(answer, ids))))


def opened(path: Path, **options: Any) -> Any:
    return FileConnector().sink(str(path), SinkOptions(**options))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(path: Path, *rows: Recalibrated) -> None:
    with closing(opened(path)) as sink:
        sink.resume("", None)
        sink.write(Answers(*([AnswerColumns.of(rows)] if rows else [])))


def read(path: Path) -> pa.Table:
    return pq.read_table(path) if path.suffix == ".parquet" else feather.read_table(path)


@pytest.mark.parametrize("name", NAMES)
def test_it_appears_whole_at_the_end(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_sink, "_GROUP_ROWS", 4)
    sink = opened(tmp_path / name)
    sink.resume("", None)
    for number in range(3):
        sink.write(answers(*(f"{number}-{index}" for index in range(3))))
        assert sink.commit({}) is None
        assert not (tmp_path / name).exists()
    sink.write(answers(None))
    sink.close()
    sink.close()
    assert names(tmp_path) == [name]
    table = read(tmp_path / name)
    assert table["id"].to_pylist() == [*(f"{i}-{j}" for i in range(3) for j in range(3)), None]
    assert table.schema.names == ["id", "score", "probability", "map_version", "weights", "key", "time"]
    assert pl.DataFrame(table).row(0) == ("0-0", 0.5, 0.25, 3, [1.0, 1.0], None, None)
    if name == "o.parquet":  # small commits make no small groups
        assert pq.ParquetFile(tmp_path / name).metadata.num_row_groups == 2


@pytest.mark.parametrize("name", NAMES)
def test_what_is_there_is_replaced_only_by_rows_and_only_if_it_is_ours(tmp_path: Path, name: str) -> None:
    path, foreign = tmp_path / name, tmp_path / "e.parquet"
    for rows in ([], [answer("a")], [answer("b")], []):
        before = path.read_bytes() if path.exists() else None
        put(path, *rows)
        if rows:
            assert read(path)["id"].to_pylist() == [rows[0].id]
        else:
            assert before is None or path.read_bytes() == before
    pl.DataFrame({"id": ["a"], "score": [0.5]}).write_parquet(foreign)
    for place, content in (
        (path, b"something else"),
        (path, b'{"id":"a","probability":0.5,"map_version":0}\n'),
        (foreign, foreign.read_bytes()),
    ):
        place.write_bytes(content)
        with pytest.raises(ValueError, match="which are no answers of a run of streamcal: move it away"):
            put(place)
        assert place.read_bytes() == content
    assert names(tmp_path) == ["e.parquet", name]


def test_a_run_gives_the_rows_that_json_lines_give_but_not_with_a_store(tmp_path: Path) -> None:
    source, events, labels = synthetic(tmp_path)
    run = ["run", "--calibration", source, "--events", events, "--labels", labels, "--output"]
    done = streamcal(*run, tmp_path / "o.parquet", "--store", tmp_path / "s.db", status=3)
    assert "a run that is killed would lose rows that its store counts as written" in done.stderr
    assert "give an output that can be continued (.jsonl, .csv, Kafka)" in done.stderr
    assert not (tmp_path / "o.parquet").exists()
    streamcal(*run, tmp_path / "o.jsonl", "--store", tmp_path / "s.db", status=0)
    streamcal(*run, tmp_path / "o.parquet", status=0)
    assert len(read(tmp_path / "o.parquet")) == 400  # the refused run had read nothing
    assert read(tmp_path / "o.parquet").to_pylist() == read_lines(tmp_path / "o.jsonl")


@pytest.mark.slow
def test_kill_9_leaves_what_was_there(tmp_path: Path) -> None:
    out, rejects = tmp_path / "o.parquet", tmp_path / "r.jsonl"
    put(out, answer("first"))
    command, pipe = ["run", "--events", "-", "--output", out, "--rejects", rejects], subprocess.PIPE
    with Fork(command, stdin=pipe, stdout=subprocess.DEVNULL) as process:
        process.stdin.write(b'{"id":"a","score":0.5}\noops\n')
        process.stdin.flush()
        wait_for(lambda: rejects.exists() and rejects.stat().st_size)
        process.kill()
    assert read(out)["id"].to_pylist() == ["first"]
    assert (tmp_path / ".o.parquet.part").exists()
    put(out, answer("third"))
    assert read(out)["id"].to_pylist() == ["third"]
    assert names(tmp_path) == ["o.parquet", "r.jsonl"]


@pytest.mark.slow
def test_a_disk_that_is_full_is_told_and_the_old_file_stays(tmp_path: Path) -> None:
    out, map_file = tmp_path / "o.parquet", tmp_path / "m.json"
    map_file.write_text(RecalibrationMap(version=1).model_dump_json())
    apply = ["apply", "--map", map_file, "--output", out]
    put(out, answer("a"))
    lines = b"".join(b'{"id":"%d","score":0.5}\n' % index for index in range(3000))
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 4; trap "" XFSZ; exec "$@"', "-", *STREAMCAL, *map(str, apply)],
        input=lines, capture_output=True, check=False
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert b"cannot write" in done.stderr
    assert read(out)["id"].to_pylist() == ["a"]
    assert names(tmp_path) == ["m.json", "o.parquet"]


TYPED = pa.table(
    {
        "id": ["a", "b"],
        "score": [0.5, 0.25],
        "label": [1, 0],
        "probability": [0.1, 0.2],  # of an earlier command: the output has one of its own
        "small": pa.array([1, None], pa.int8()),
        "single": pa.array([0.1, None], pa.float32()),
        "money": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "day": pa.array([dt.date(2020, 2, 29), None], pa.date32()),
        "at": pa.array([1_700_000_000_123_456_789, None], pa.int64()).cast(
            pa.timestamp("ns", "Europe/Paris")
        ),
        "local": pa.array([1_700_000_000_123, None], pa.int64()).cast(pa.timestamp("ms")),
        "clock": pa.array([dt.time(1, 2, 3, 4), None], pa.time64("us")),
        "fine": pa.array([3_723_000_000_004, None], pa.time64("ns")),
        "span": pa.array([5_000_000_001, None], pa.duration("ns")),
        "uuid": pa.uuid().wrap_array(pa.array([bytes(range(16)), None], pa.binary(16))),
        "text": pa.array(["x" * 5000, None], pa.large_string()),
        "category": pa.array(["u", None]).dictionary_encode(),
        "flag": [True, None],
        "raw": pa.array([b"\xff", None], pa.binary()),
        "features": pa.array([[0.5, None], None], pa.list_(pa.float64())),
        "nested": pa.array(
            [{"a": 1, "b": ["x"]}, None], pa.struct({"a": pa.int32(), "b": pa.list_(pa.string())})
        ),
        "nothing": pa.nulls(2),
    }
)


def test_apply_carries_the_other_columns_with_their_types(tmp_path: Path) -> None:
    pq.write_table(TYPED, tmp_path / "e.parquet")
    (tmp_path / "m.json").write_text(RecalibrationMap(version=7).model_dump_json())
    apply = ["apply", "--map", tmp_path / "m.json", "--events", tmp_path / "e.parquet"]
    done = streamcal(*apply, "--output", tmp_path / "o.parquet", status=0)
    assert "not carried through, since the output has a column of the name: probability" in done.stderr
    carried = [each for each in TYPED.schema.names if each not in ("id", "score", "probability")]
    found = read(tmp_path / "o.parquet")
    assert found["map_version"].to_pylist() == [7, 7]
    expected = TYPED.select(carried)
    index = carried.index("category")  # as its values
    expected = expected.set_column(index, "category", expected["category"].cast(pa.string()))
    assert found.select(carried).equals(expected)

    done = streamcal(*apply, "--output", tmp_path / "o.jsonl", status=0)
    row, empty = read_lines(tmp_path / "o.jsonl")
    assert row["money"] == "1.50"
    assert row["at"] == "2023-11-14 22:13:20.123456789Z"
    assert row["text"] == "x" * 5000
    assert row["nested"] == {"a": 1, "b": ["x"]}
    assert row["features"] == [0.5, None]
    assert row["clock"] == "01:02:03.000004"
    assert all(empty[each] is None for each in carried if each != "label")
