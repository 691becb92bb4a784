"""One name of a value in every format: CSV, JSON, Parquet, frames, programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal import Recalibrator
from streamcal.engine.segments.corrections_c import name_of
from streamcal.frames import backtest
from tests.command_line import in_process
from tests.engine.segments.test_run import run, stream, written
from tests.inside import corrections_of

MORNING = datetime(2026, 1, 31, 8, 0)
KINDS: dict[str, tuple[Any, str]] = {
    "true": (True, "true"),
    "decimal": (Decimal("1.50"), "1.50"),
    "in UTC": (MORNING.replace(tzinfo=UTC), "2026-01-31 08:00:00"),
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


def of_a_program(rows: list[dict[str, Any]], folder: Path) -> set[str | None]:
    del folder
    engine = Recalibrator(segments="seg", own_engines=0)
    labels, names = [row["label"] for row in rows], [row["seg"] for row in rows]
    engine.learn_many([0.5] * 70, labels, segments=names)
    return set(corrections_of(engine).to_state().names)


FORMATS: dict[str, Callable[[list[dict[str, Any]], Path], set[str | None]]] = {
    "CSV of polars": by_file(lambda rows, path: pl.DataFrame(rows).write_csv(path), "csv"),
    "JSON lines": by_file(lambda rows, path: void(path.write_bytes(as_json(rows))), "jsonl"),
    "Parquet": by_file(lambda rows, path: pq.write_table(pa.Table.from_pylist(rows), path), "parquet"),
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


# Maps of a run with segments: they say so, and nobody answers with them by mistake


INSTEAD = ("segments by country", "map_for", "take the field segments out")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with events, and the maps of a run that has segments by country."""
    predictions, labels = stream(600)
    written(predictions, tmp_path / "p.jsonl", 9e9)
    written(labels, tmp_path / "l.jsonl", 9e9)
    (tmp_path / "c.toml").write_text('[segments]\nfields = ["country"]\n')
    run(tmp_path, "--maps", str(tmp_path / "maps.jsonl"), "--map", str(tmp_path / "map.json"))
    return tmp_path


def applied(folder: Path, *options: object) -> tuple[int, str]:
    inputs = ["--events", folder / "p.jsonl", "--output", folder / "applied.jsonl"]
    result = in_process("apply", *inputs, *options)
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(("option", "file"), [("--map", "map.json"), ("--follow", "maps.jsonl")])
def test_apply_refuses_them(folder: Path, option: str, file: str) -> None:
    status, said = applied(folder, option, folder / file)
    assert status != 0
    assert all(words in said for words in INSTEAD), said
    assert not (folder / "applied.jsonl").exists() or not (folder / "applied.jsonl").read_bytes()
