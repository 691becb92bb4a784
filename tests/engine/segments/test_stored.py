"""Corrections in a store: read and written exactly, however few are in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal.engine.segments import stored_rows
from streamcal.run.ports import Change, SegmentId
from tests.engine.segments.test_run import run, stream, written
from tests.memory import stores


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    stores.clear()
    yield
    stores.clear()


def changed(store: SqliteStore, rows: dict[SegmentId, bytes]) -> None:
    store.commit(Change({None: b"e"}, b"{}", {}, {}, [], [], rows))


def test_what_was_committed_of_segments_is_there_again(tmp_path: Path) -> None:
    """With names of any kind."""
    rng = np.random.default_rng(1)
    names = [None, "", "ü", "NL", '"', *map(str, range(300))]
    expected: dict[SegmentId, bytes] = {}
    for _ in range(10):
        store = SqliteStore(tmp_path / "s.db")
        assert dict(store.load().segments) == expected
        for _ in range(3):
            some = rng.choice(len(names), 12).tolist()
            rows = {(None if at % 3 else "k", at % 2, names[at]): rng.bytes(64) for at in some}
            changed(store, rows)
            expected |= rows
            assert all(store.load().segments[each] == row for each, row in rows.items())
        assert len(store.load().segments) == len(expected)
        assert store.load().segments.get(("nobody", 0, "x")) is None
        store.close()
    with sqlite3.connect(tmp_path / "s.db") as db:
        shown = dict(db.execute("SELECT segment, row FROM segments"))
    db.close()
    assert {msgspec.json.decode(each, type=SegmentId): row for each, row in shown.items()} == expected


@pytest.mark.slow
def test_few_rows_in_memory_give_the_same_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that were dropped are read again to the last bit, in one run and in one that resumes."""
    predictions, labels = stream(2500)
    predictions = predictions.with_columns(
        country=predictions["device"].cast(str) + predictions["id"].str.slice(-2)
    )
    found = []
    for most in (1 << 20, 8):
        monkeypatch.setattr(stored_rows, "_MOST", most)
        monkeypatch.setattr(stored_rows, "_FEWEST", 4)
        folder = tmp_path / str(most)
        folder.mkdir()
        (folder / "c.toml").write_text('[segments]\nfields = ["country"]\n')
        for until in (600.0, 900.0, 2000.0, 9e9):
            written(predictions, folder / "p.jsonl", until)
            written(labels, folder / "l.jsonl", until)
            run(folder)
        store = SqliteStore(folder / "s.db", read_only=True)
        checkpoint = store.load()
        found.append(
            ((folder / "out.jsonl").read_bytes(), dict(checkpoint.segments), dict(checkpoint.engines))
        )
        store.close()
    assert found[0] == found[1]
    assert len(found[0][1]) > 200
