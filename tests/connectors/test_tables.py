"""Parquet and Arrow files: the events that JSON lines give, from any type of column, and from any row on."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import ipc
from streamcal_connectors import tables

from streamcal import LabelledEvent, PredictionEvent
from streamcal.events import table_codec
from streamcal.events.codec import JsonDecoder, Malformed
from streamcal.events.columns import Columns
from streamcal.run.ports import PositionError
from tests.connectors.sources import opened, read, read_all


@pytest.fixture(autouse=True)
def columns_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_codec, "FEWEST", 1)


def write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def write_file(table: pa.Table, path: Path) -> None:
    with ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


WRITERS: dict[str, tuple[str, Callable[[pa.Table, Path], None]]] = {
    "parquet": ("t.parquet", lambda table, path: pq.write_table(table, path, row_group_size=7)),
    "arrow": ("t.arrow", write_file),
    "stream": ("t.feather", write_stream),
    "polars parquet": ("t.pq", lambda table, path: pl.DataFrame(table).write_parquet(path)),
    "polars arrow": ("t.ipc", lambda table, path: pl.DataFrame(table).write_ipc(path)),
    "pandas": ("t.parquet", lambda table, path: table.to_pandas().to_parquet(path)),
}


def table_of(columns: dict[str, Any], path: Path) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_gives_the_same_events(tmp_path: Path, writer: str) -> None:
    name, write = WRITERS[writer]
    table = pa.table(
        {
            "id": [f"é{i}" for i in range(30)],
            "score": [i / 30 for i in range(30)],
            "time": pa.array([1_700_000_000_000_000 + i for i in range(30)], pa.timestamp("us", "UTC")),
            "key": pa.array([None if i % 3 else "k" for i in range(30)]).dictionary_encode(),
            "label": [None if i % 2 else i % 4 // 2 for i in range(30)],
        }
    )
    if writer == "pandas":  # its whole numbers with gaps would become floats, which are labels as well
        assert table.to_pandas()["label"].dtype == "float64"
    write(table, tmp_path / name)
    expected = [
        PredictionEvent(f"é{i}", i / 30, 1.7e9 + i / 1e6, None if i % 3 else "k")
        if i % 2
        else LabelledEvent(i / 30, i % 4 // 2, f"é{i}", 1.7e9 + i / 1e6, None if i % 3 else "k")
        for i in range(30)
    ]
    assert read_all(tmp_path / name).events == expected
    assert read_all(tmp_path / name, 4).events == expected


@pytest.mark.parametrize(
    ("name", "kind", "values", "expected"),
    [
        ("id", pa.uint64(), [1, 2**64 - 1], ["1", str(2**64 - 1)]),
        ("id", pa.decimal128(25, 0), [Decimal(1), Decimal(10**24)], ["1", str(10**24)]),
        ("id", pa.dictionary(pa.int32(), pa.large_string()), ["a", "b"], ["a", "b"]),
        ("score", pa.float16(), [0.5, 0.125], [0.5, 0.125]),
        ("score", pa.decimal256(50, 3), [Decimal("0.5"), Decimal("0.125")], [0.5, 0.125]),
        ("label", pa.bool_(), [True, False], [1, 0]),
        ("label", pa.decimal128(2, 1), [Decimal(1), Decimal(0)], [1, 0]),
        ("label", pa.decimal128(38, 29), [Decimal(1), Decimal(0)], [1, 0]),
        ("label", pa.string(), ["Yes", "no"], [1, 0]),
        ("label", pa.dictionary(pa.int8(), pa.string()), ["1", "false"], [1, 0]),
    ],
    ids=str,
)
def test_values_of_every_type(
    tmp_path: Path, name: str, kind: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    columns = {"id": ["a", "b"], name: pa.array(values, kind)}
    write_file(pa.table({"score": [0.5, 0.5], **columns} if name == "id" else columns), tmp_path / "t.arrow")
    assert [getattr(event, name) for event in read_all(tmp_path / "t.arrow").events] == expected


def test_decimals_are_exact(tmp_path: Path) -> None:
    """A cast gives 0.701 as 0.7010000000000001, and at some scales 1 as 0.9999999999999999."""
    given = [Decimal(number) / 1000 for number in range(1001)]
    scores = pa.array(given, pa.decimal128(4, 3)).cast(pa.decimal256(70, 40))
    columns = {"id": [f"{i}" for i in range(1001)], "score": scores, "time": scores}
    events = read_all(table_of(columns, tmp_path / "t.parquet"), 2000).events
    assert [event.score for event in events] == [event.time for event in events] == list(map(float, given))


MOMENT = dt.datetime(2023, 11, 14, 22, 13, 20, 250_000, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        *(
            (pa.array([MOMENT, None], pa.timestamp(unit, zone)), 1_700_000_000.25)
            for unit in ("ms", "us", "ns")
            for zone in ("UTC", "Asia/Tokyo", "+03:30")
        ),
        (pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("us")), 1_700_000_000.25),
        (pa.array([MOMENT.date(), None], pa.date32()), 1_699_920_000.0),
        (pa.array([1_700_000_000_250, None]), 1_700_000_000_250.0),
    ],
)
def test_times_of_every_unit_and_zone(tmp_path: Path, times: pa.Array, seconds: float) -> None:
    path = tmp_path / "t.arrow"
    write_file(pa.table({"id": ["a", "b"], "score": [0.5, 0.5], "time": times}), path)
    assert read_all(path).events == [PredictionEvent("a", 0.5, seconds), PredictionEvent("b", 0.5)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1.0], "score": [0.5]}, "an id must be a text or a whole number, but column 'id' is of"),
        ({"id": ["a"], "score": [[0.5]]}, "column 'score' is of type list<element: double>"),
        ({"id": ["a"], "prob": [0.5]}, "a table must name score or label, and each column once, got 'id'")
    ]
)  # fmt: skip
def test_a_column_of_a_wrong_type_is_refused_by_name(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=rf"t\.parquet: .*{re.escape(message)}"):
        read_all(table_of(columns, tmp_path / "t.parquet"))


def test_columns_by_other_names_missing_and_to_keep(tmp_path: Path) -> None:
    path = table_of(
        {"req": ["a"], "p": [0.5], "n": pa.array([3], pa.int8()), "at": [MOMENT], "l": [[1]]},
        tmp_path / "t.parquet",
    )
    columns = Columns(id="req", score="p", keep=("n", "at"))
    kept = (3, "2023-11-14 22:13:20.250000Z")
    assert read_all(path, columns=columns).events == [PredictionEvent("a", 0.5, kept=kept)]
    with pytest.raises(ValueError, match="the table has no column 'when'; it has 'req', 'p', 'n'"):
        read_all(path, columns=columns, required=frozenset({"p", "when"}))
    with pytest.raises(ValueError, match=r"a column to keep must hold .* but column 'l' is of type list"):
        read_all(path, columns=Columns(id="req", score="p", keep=("l",)))
    with opened(path, columns=columns) as source:
        read(source)
        assert source.unknown_fields == {"l": 1}


def test_a_reject_names_file_row_and_column(tmp_path: Path) -> None:
    """Of a text that is no UTF-8, too."""
    ends = pa.py_buffer(b"".join(end.to_bytes(4, "little") for end in (0, 1, 1, 2, 4)))
    ids = pa.Array.from_buffers(pa.string(), 4, [pa.py_buffer(b"\x0d"), ends, pa.py_buffer(b"acb\xff")])
    path = table_of({"req": ids, "p": [0.5, 0.5, 1.5, 0.5]}, tmp_path / "t.parquet")
    found = read_all(path, columns=Columns(id="req", score="p"))
    assert found.ids[:3] == [
        "a",
        "missing field: a prediction or a label needs an id",
        "a score must be a number in [0, 1], got 1.5, in column 'p'",
    ]
    assert "in column 'req'" in str(found.ids[3])
    batch, _ = found.places[0]
    origin = batch.origin(2)
    assert (origin.source, origin.line, origin.raw) == (str(path), 3, b'{"req":"c","p":1.5}')
    assert b"0.5" in batch.origin(3).raw


@pytest.mark.parametrize("content", [b"no table at all\n" * 9, "cut"])
@pytest.mark.parametrize("name", ["t.parquet", "stream.arrow"])
def test_what_is_no_table_is_told(tmp_path: Path, name: str, content: bytes | str) -> None:
    path = tmp_path / name
    if isinstance(content, str):
        table = pa.table({"id": ["a"] * 100, "score": [0.5] * 100})
        write = {"t.parquet": pq.write_table, "t.arrow": write_file, "stream.arrow": write_stream}[name]
        write(table, path)
        content = path.read_bytes()[: -8 if write is write_stream else -20]
    path.write_bytes(content)
    message = rf"{name} \({len(content):,} bytes\) is no (Parquet|Arrow) file: .*cut off"
    with pytest.raises(OSError, match=message):
        read_all(path)


def test_a_damaged_row_group_ends_the_file_and_a_mended_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"id": [str(i) for i in range(40)], "score": [0.5] * 40})
    pq.write_table(table, path, row_group_size=10, write_page_checksum=True, use_dictionary=False)
    whole = path.read_bytes()
    at = pq.ParquetFile(path).metadata.row_group(2).column(0).data_page_offset
    path.write_bytes(whole[: at + 60] + bytes(8) + whole[at + 68 :])
    with opened(path) as source:
        found = read(source, 10)
        assert "cannot be read beyond row 20" in source.damage
    assert len(found.places) == found.position(-1)["row"] == 20


def test_rows_that_expand_are_decoded_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that comes 3,000 times takes its room once in the file: then only what fits is decoded."""
    path, keys = tmp_path / "t.parquet", ["x" * 10_000] * 3_000
    rows = {"id": [str(i) for i in range(len(keys))], "score": [0.5] * len(keys), "key": keys}
    pq.write_table(pa.table(rows), path, row_group_size=len(keys))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(tables, "_MOST_BYTES", 1 << 20)
    with opened(path) as source:
        found = read(source, 65_536)
    assert [line for _, line in found.lines] == [*range(1, len(keys) + 1)]
    assert max(batch.piece.batch.nbytes for batch, _ in found.places) < 3 << 20


def test_rows_for_which_there_is_no_memory_end_the_file_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"id": ["a"], "score": [0.5]}), path)

    def values_of(column: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(tables, "as_role", lambda role, column: values_of(column))
    with opened(path) as source:
        assert not read(source).places
        assert re.search(r"beyond row 0: too little memory\. Give the process more memory, or", source.damage)


_TEXT = st.none() | st.text(max_size=3)
_FIELDS = {
    "id": _TEXT | st.sampled_from(["a", "b" * 600]),
    "score": st.none() | st.floats(-0.5, 1.5) | st.sampled_from([0.0, 0.5, 1.0]),
    "label": st.none() | st.integers(-1, 2),
    "time": st.none() | st.floats(-1e21, 1e21) | st.just(1.7e9),
    # JSON lines take a label whose key, which is not read, has a control character; CSV does not.
    "key": st.none() | st.text(max_size=2).filter(str.isprintable) | st.just("k" * 600),
    "domain": st.none() | st.sampled_from(["source", "target", "other"]),
}
_ROWS = st.lists(st.fixed_dictionaries(_FIELDS), min_size=1, max_size=5)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=_ROWS, absent=st.sets(st.sampled_from(["id", "label", "time", "key", "domain"])))
def test_a_table_gives_what_json_lines_give(
    tmp_path: Path, rows: list[dict[str, Any]], absent: set[str]
) -> None:
    """Null is an absent field; a reason names the column besides."""
    types = {"score": pa.float64(), "time": pa.float64(), "label": pa.int64()}
    columns = {
        name: pa.array([row[name] for row in rows], types.get(name, pa.string()))
        for name in rows[0]
        if name not in absent
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    lines = [
        {name: value for name, value in row.items() if value is not None and name not in absent}
        for row in rows
    ]
    decoder = JsonDecoder()
    for event, row in zip(read_all(tmp_path / "t.parquet").events, lines, strict=True):
        expected = decoder.decode(json.dumps(row).encode())
        if isinstance(expected, Malformed):
            assert isinstance(event, Malformed)
            assert (event.reason, event.label, event.score) == (
                expected.reason,
                expected.label,
                expected.score,
            )
        else:
            assert event == expected


@pytest.mark.parametrize("writer", ["parquet", "arrow", "stream"])
def test_a_run_goes_on_at_any_row(tmp_path: Path, writer: str) -> None:
    name, write = WRITERS[writer]
    path = tmp_path / name
    write(pa.table({"id": [str(i) for i in range(30)], "score": [0.5] * 30}), path)
    found = read_all(path, 4)
    assert found.ids == [str(i) for i in range(30)]
    positions = [{"row": 0}, *map(found.position, range(30))]
    for row, position in enumerate(positions):
        with opened(path) as source:
            source.limit({"": positions[25]})
            assert source.seek({"": position})[""]["row"] == row
            source.limit({"": positions[25]})
            assert read(source, 3).ids == found.ids[row:25]
            source.limit(None)
            assert read(source, 3).ids == found.ids[max(row, 25) :]
            assert source.lag() == {"": 0.0}


def test_another_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path = table_of({"id": ["a", "b"], "score": [0.5, 0.5]}, tmp_path / "t.parquet")
    position = read_all(path).position(0)
    table_of({"id": ["x", "b"], "score": [0.5, 0.5]}, path)
    with opened(path) as source:
        with pytest.raises(ValueError, match="not the file of which 1 rows were read before"):
            source.seek({"": position})
        with pytest.raises(PositionError, match="no position in a table"):
            source.seek({"": {"row": -1}})


@pytest.mark.parametrize("writer", ["parquet", "stream"])
def test_whatever_bytes_change_a_run_ends_with_an_error_or_not_at_all(tmp_path: Path, writer: str) -> None:
    """Above all, it does not end the process: pyarrow believes the offsets in a file."""
    name, write = WRITERS[writer]
    table = pa.table(
        {
            "id": [f"i{i}" for i in range(30)],
            "score": [i / 30 for i in range(30)],
            "key": pa.array(["k"] * 30).dictionary_encode(),
            "more": [[i] for i in range(30)],
        }
    )
    write(table, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    rng = random.Random(7)
    for _ in range(40):
        changed = bytearray(whole)
        for _ in range(rng.choice([1, 2, 8])):
            changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        (tmp_path / name).write_bytes(changed)
        with suppress(OSError, ValueError):
            read_all(tmp_path / name, carry=True)
