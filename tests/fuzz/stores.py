"""Stores whose content is wrong though their checksums are right: a run goes on, or says what to do."""

from __future__ import annotations

import atexit
import json
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from streamcal_connectors.sqlite.database import Database, with_sum
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal import JoinConfig
from streamcal.cli.show import served
from streamcal.engine.config import RecalibratorConfig
from streamcal.errors import DamagedStateError, OutputError, StoreError
from streamcal.events.columns import Columns
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.fuzz.harness import RefusedError
from tests.fuzz.mutate import change_scalar, change_text, change_tree
from tests.fuzz.states import change_state

__all__ = ["prepared", "prepared_classes", "try_class_store", "try_store"]

_EVENTS = [
    line
    for i in range(150)
    for line in (
        b'{"id":"%d","score":0.%02d,"time":%d,"key":%s}' % (i, i % 97, i, b'"k"' if i % 4 else b"null"),
        b'{"id":"%d","label":%d,"time":%d}' % (i - 9, i % 3 == 0, i),
        b'{"id":"e%d","label":1,"time":%d}' % (i, i),
    )
]


_CLASSES = ("cat", "dog", "fox")
_CLASS_EVENTS = [
    line
    for i in range(150)
    for line in (
        b'{"id":"%d","scores":[0.%02d,%.2f,0],"time":%d,"key":%s}'
        % (i, i % 97, 1.0 - i % 97 / 100, i, b'"k"' if i % 4 else b"null"),
        b'{"id":"%d","label":"%b","time":%d}' % (i - 9, _CLASSES[i % 3].encode(), i),
        b'{"id":"e%d","label":"fox","time":%d}' % (i, i),
    )
]


def prepared_classes() -> Path:
    """Return such a folder, of events of many classes."""
    return prepared(_CLASSES)


@cache
def prepared(classes: tuple[str, ...] = ()) -> Path:
    """Return a folder with a store, its input and its output, made by a run."""
    events = _CLASS_EVENTS if classes else _EVENTS
    memory = Path("/dev/shm")  # to wait for no disk
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, folder)
    work = folder / "work"
    work.mkdir()
    (work / "events.jsonl").write_bytes(b"\n".join(events[:300]) + b"\n")
    _run(work, classes)
    work.rename(folder / "whole")
    (folder / "whole" / "events.jsonl").write_bytes(b"\n".join(events) + b"\n")
    return folder


def try_class_store(rng: random.Random) -> int:
    """Do the same with a store of many classes."""
    return try_store(rng, _CLASSES)


def try_store(rng: random.Random, classes: tuple[str, ...] = ()) -> int:
    """Change a few values in a store; run on from it, and look at it."""
    folder = prepared(classes) / "work"  # always the same name: positions are by path
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared(classes) / "whole", folder)
    with closing(Database(folder / "state.db", "mode=rw")) as db:
        for _ in range(rng.choice((1, 1, 2))):
            rng.choice((_engines, _meta, _meta, _packs, _packs, _packs, _rows))(db, rng)
    try:
        _look(folder)
        _run(folder, classes)
        _look(folder)
    except (StoreError, OutputError, DamagedStateError) as error:
        raise RefusedError(str(error).replace(str(folder), "")) from None
    except (OSError, ValueError) as error:  # of a source that holds no such position
        if not re.search("were read|with other options|Invalid argument|was begun with", str(error)):
            raise
        raise RefusedError(str(error)) from None
    return len(_EVENTS) - 300


def _run(folder: Path, classes: tuple[str, ...]) -> None:
    columns = Columns(classes=classes)
    connectors = Connectors()
    store = SqliteStore(folder / "state.db")
    try:
        pipeline = Pipeline(
            RunConfig(
                recalibrator=RecalibratorConfig(),
                join=JoinConfig(label_ttl=40.0, max_pending=60),
                columns=columns,
            ),
        )
        source = connectors.source(str(folder / "events.jsonl"), SourceOptions(columns=columns))
        sink = connectors.sink(str(folder / "out.jsonl"))
        try:
            ticks = iter(range(10**9))
            Runner(
                pipeline, Inputs([], [source]), Outputs(sink), store, clock=lambda: next(ticks) * 0.06
            ).run()
        finally:
            source.close()
            sink.close()
    finally:
        store.close()


def _look(folder: Path) -> None:
    store = SqliteStore(folder / "state.db", read_only=True)
    try:
        served(store, [])
        list(store.rejects())
    finally:
        store.close()


def _engines(db: Database, rng: random.Random) -> None:
    number, key, state = rng.choice(db.execute("SELECT number, key, state FROM engines").fetchall())
    if rng.random() < 0.8:
        state = change_state(state, rng)
    elif rng.random() < 0.5:
        state = rng.choice((1 << 40, "text", b"", 2.5))
    else:
        key = rng.choice((b"\xff", "other", '"other"'))
    db.execute(
        "UPDATE OR REPLACE engines SET key = ?, state = ?, crc = ? WHERE number = ?",
        (*with_sum((key, state)), number),
    )


def _meta(db: Database, rng: random.Random) -> None:
    found = db.execute("SELECT name, value FROM meta").fetchall()
    name, text = rng.choice([row for row in found if row[0] != "job" or rng.random() < 0.2])
    if rng.random() < 0.15:
        text = rng.choice((b"\xff", 5, "", "[" * 20_000, "null", "[]", '"x"'))
    elif name in ("job", "streamcal_version") or rng.random() < 0.2:
        text = change_text(text.encode(), rng).decode("utf-8", "replace")
    else:
        text = _changed(text, rng)
    db.execute("REPLACE INTO meta VALUES (?, ?, ?)", with_sum((name, text)))


def _packs(db: Database, rng: random.Random) -> None:
    found = db.execute("SELECT * FROM packs").fetchall()
    if found:
        seq, kind, text, _ = rng.choice(found)
        if rng.random() < 0.8:
            text = _changed(text, rng)
        elif rng.random() < 0.5:
            kind = rng.choice(("pending", "early", "settled", "x", 5))
        else:
            _, _, text, _ = rng.choice(found)  # its ids come twice
        try:
            db.execute("REPLACE INTO packs VALUES (?, ?, ?, ?)", with_sum((seq, kind, text)))
        except sqlite3.IntegrityError:
            raise RefusedError("the table has no room for it") from None


def _rows(db: Database, rng: random.Random) -> None:
    table = rng.choice(("maps", "rejects"))
    found = db.execute(f"SELECT * FROM {table}").fetchall()
    if found:
        row = list(rng.choice(found)[:-1])
        at = rng.randrange(1, len(row))
        text = isinstance(row[at], str) and row[at][:1] == "{" and rng.random() < 0.7
        row[at] = _changed(row[at], rng) if text else rng.choice((None, 5, -1, b"\xff", "x", 1e300, 2.5))
        marks = ", ".join("?" * (len(row) + 1))
        try:
            db.execute(f"REPLACE INTO {table} VALUES ({marks})", with_sum(tuple(row)))
        except sqlite3.IntegrityError:
            raise RefusedError("the table has no room for it") from None


def _changed(text: str, rng: random.Random) -> str:
    tree: Any = [json.loads(text)]
    leaf: Callable[[Any, random.Random], Any] = change_scalar
    change_tree(tree, rng, leaf)
    try:
        return json.dumps(tree[0] if tree else None)
    except (TypeError, ValueError):
        raise RefusedError("cannot be written as JSON") from None
