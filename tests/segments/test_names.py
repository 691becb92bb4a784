"""One name of a value in every format: CSV, JSON, Parquet, Arrow, Avro, frames, HTTP, programs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from streamcal_connectors.kafka.values import Values
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal import Recalibrator
from streamcal.events.columns import Columns
from streamcal.frames import backtest
from streamcal.segments.fields_c import name_of
from tests.connectors.kafka.registry import decoded, schema_registry
from tests.segments.test_run import run
from tests.serve.servers import LINES, Served

MORNING = datetime(2026, 1, 31, 8, 0)
KINDS: dict[str, tuple[Any, str]] = {
    "true": (True, "true"),
    "decimal": (Decimal("1.50"), "1.50"),
    "in UTC": (MORNING.replace(tzinfo=UTC), "2026-01-31 08:00:00"),
}
AVRO = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    Decimal: {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    date: {"type": "int", "logicalType": "date"},
}


def rows_of(value: Any) -> list[dict[str, Any]]:
    """Return 70 events, enough to be read as columns; every second has the value."""
    return [
        {"id": f"a{each}", "score": 0.5, "label": each % 2, "seg": None if each % 2 else value}
        for each in range(70)
    ]


def names_in(folder: Path) -> set[str | None]:
    store = SqliteStore(folder / "s.db", read_only=True)
    found = {name for _, _, name in store.load().segments}
    store.close()
    return found


def as_json(rows: list[dict[str, Any]]) -> bytes:
    """Return JSON lines as programs write them; a decimal is a text there."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def by_file(write: Callable[[list[dict[str, Any]], Path], None], suffix: str) -> Any:
    def names(rows: list[dict[str, Any]], folder: Path) -> set[str | None]:
        write(rows, folder / f"e.{suffix}")
        (folder / "c.toml").write_text('[segments]\nfields = ["seg"]\n[recalibrator]\nmode = "target"\n')
        run(folder, events=f"e.{suffix}")
        return names_in(folder)

    return names


def of_backtest(frame: Callable[[list[dict[str, Any]]], Any]) -> Any:
    def names_of(rows: list[dict[str, Any]], folder: Path) -> set[str | None]:
        del folder
        done = backtest(frame(rows), segments="seg", mode="target").by_segment
        column = done["segment"]
        names = column.to_pylist() if isinstance(done, pa.Table) else column.to_list()
        return {name if isinstance(name, str) else None for name in names}

    return names_of


def of_avro(rows: list[dict[str, Any]], folder: Path) -> set[str | None]:
    del folder
    value = rows[0]["seg"]
    kind = AVRO.get(type(value)) or {
        "type": "long",
        "logicalType": "timestamp-micros" if value.tzinfo else "local-timestamp-micros",
    }
    fields = [("id", "string"), ("score", "double"), ("label", "int"), ("seg", ["null", kind])]
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]}
    raws = []
    for row in rows:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
        raws.append(b"\0\0\0\0\x11" + data.getvalue())
    with schema_registry() as registry:
        registry.register({"schema": json.dumps(schema)})
        events = decoded(Values({"url": registry.url}, "target", Columns().with_segments(["seg"])), raws)
    return {name_of(event.kept[0]) for event in events}


def of_a_program(rows: list[dict[str, Any]], folder: Path) -> set[str | None]:
    del folder
    engine = Recalibrator(segments="seg", own_engines=0)
    labels, names = [row["label"] for row in rows], [row["seg"] for row in rows]
    engine.learn_many([0.5] * 70, labels, segments=names)
    assert engine.by_segment is not None
    return {row.segment for row in engine.by_segment.corrections()}


FORMATS: dict[str, Callable[[list[dict[str, Any]], Path], set[str | None]]] = {
    "CSV of polars": by_file(lambda rows, path: pl.DataFrame(rows).write_csv(path), "csv"),
    "JSON lines": by_file(lambda rows, path: void(path.write_bytes(as_json(rows))), "jsonl"),
    "Parquet": by_file(lambda rows, path: pq.write_table(pa.Table.from_pylist(rows), path), "parquet"),
    "Avro": of_avro,
    "pandas": of_backtest(pd.DataFrame),
    "a program": of_a_program,
}


def void(_: object) -> None:
    """Return nothing."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format_", FORMATS)
def test_a_value_has_one_name(format_: str, kind: str, tmp_path: Path) -> None:
    value, name = KINDS[kind]
    assert FORMATS[format_](rows_of(value), tmp_path) == {None, name}


@pytest.mark.slow
def test_a_value_has_the_same_name_over_http(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[segments]\nfields = ["seg"]\n')
    served = Served(tmp_path / "s.db", "--config", tmp_path / "c.toml")
    for kind, (value, _) in KINDS.items():
        rows = [{**row, "id": f"{kind} {row['id']}"} for row in rows_of(value)]
        status, answers = served.ask("POST", "/v1/predictions", as_json(rows), LINES)
        assert status == 200
        assert all("probability" in each for each in answers), answers[:2]
    assert served.stop()[0] == 0
    assert names_in(tmp_path) == {None, *(name for _, name in KINDS.values())}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("2026-01-31T13:30:00+05:30", "2026-01-31 08:00:00"),
        (np.datetime64("NaT"), None),
        (np.str_("3.0"), "3"),
        (10**400, "1" + "0" * 400),
    ],
)
def test_values_of_programs(value: object, name: str | None) -> None:
    assert name_of(value) == name
    assert name is None or name_of(name) == name


def test_files_in_which_a_column_has_another_type(tmp_path: Path) -> None:
    """A column without any value has a type of its own; nothing is written of it."""
    for number, value in enumerate((True, None, "x")):
        rows = [{**row, "id": f"{number} {row['id']}"} for row in rows_of(value)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{number}.parquet")
    (tmp_path / "c.toml").write_text('[segments]\nfields = ["seg"]\n')
    run(tmp_path, events="?.parquet")
    assert names_in(tmp_path) == {None, "true", "x"}


def test_columns_to_keep_may_change_while_labels_are_out(tmp_path: Path) -> None:
    """Places among what passes through change, segments do not."""
    answers = []
    for keeps in (["[]", "[]"], ['["seg", "b"]', '["b"]'], ['["b"]', '["a", "seg"]']):
        folder = tmp_path / "".join(keeps)
        folder.mkdir()
        rows = [
            {"id": str(each), "score": 0.4, "time": each, "a": each, "b": "b", "seg": each % 3 == 1}
            for each in range(600)
        ]
        labels = [{"id": str(each), "label": int(each % 3 == 1), "time": each + 90} for each in range(600)]
        for until, keep in zip((300, 9e9), keeps, strict=True):
            (folder / "c.toml").write_text(f'[columns]\nkeep = {keep}\n[segments]\nfields = ["seg"]\n')
            (folder / "p.jsonl").write_bytes(as_json([row for row in rows if row["time"] < until]))
            (folder / "l.jsonl").write_bytes(as_json([row for row in labels if row["time"] < until]))
            run(folder)
        out = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        answers.append([row["probability"] for row in out])
        assert names_in(folder) == {"true", "false"}
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][598] > 0.9


@pytest.fixture(autouse=True)
def _no_server_left() -> Iterator[None]:
    before = tuple(Served.running)
    yield
    for served in tuple(Served.running):
        if served not in before:
            served.process.kill()
            served.stop()
