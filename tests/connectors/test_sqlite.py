"""The SQLite store when things go wrong: a clear error, exit status 3, and nothing lost."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import pytest
from streamcal_connectors.sqlite import access
from streamcal_connectors.sqlite import store as sqlite_store
from streamcal_connectors.sqlite.store import SCHEMA_VERSION, SqliteConnector, SqliteStore

from streamcal import JoinConfig
from streamcal.base.errors import StoreError
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import Change, Checkpoint
from streamcal.run.rows import RejectRow, VersionRow
from streamcal.run.runner import Inputs, Runner
from tests.command_line import STREAMCAL, streamcal, synthetic
from tests.join.recorder import stored_entries


def opened(path: Path, *, read_only: bool = False) -> SqliteStore:
    return SqliteConnector().store(str(path), read_only=read_only)


def loaded(store: SqliteStore) -> Checkpoint:
    found = store.load()
    return msgspec.structs.replace(found, packs=tuple(found.packs))


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute(statement).rowcount


def options(folder: Path, *more: object) -> list[object]:
    source, events, labels = folder / "source.jsonl", folder / "events.csv", folder / "labels.jsonl.gz"
    if not source.exists():
        synthetic(folder)
    return [
        *("run", "--calibration", source, "--events", events, "--labels", labels),
        *("--output", folder / "out.jsonl", "--store", folder / "state.db", *more),
    ]


def test_a_file_that_a_run_has_just_made_is_no_store_of_another_application(tmp_path: Path) -> None:
    (tmp_path / "s.db").touch()
    with pytest.raises(StoreError, match="holds nothing yet: a run that is starting makes its tables"):
        opened(tmp_path / "s.db", read_only=True)


def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "s.db")
    assert loaded(store) == Checkpoint({}, b"", {}, {})
    reject = RejectRow("f", 3, "malformed", "no", "raw")
    positions = {"a": {"": {"offset": 3}, "1": 7}}
    row = VersionRow(2, "k", 1.5, (0.5, 2.0), b'{"c":2}')
    store.commit(Change({None: b"e", "": b"f", "k": b"g"}, b"{}", positions, {"o": 5}, [row], [reject]))
    job = store.job
    store.close()
    store.close()
    again = opened(tmp_path / "s.db")
    assert loaded(again) == Checkpoint({None: b"e", "": b"f", "k": b"g"}, b"{}", positions, {"o": 5})
    assert [(each.weights, bytes(each.certificate)) for each in again.versions()] == [
        ((0.5, 2.0), b'{"c":2}')
    ]
    assert again.job == job
    again.close()
    with sqlite3.connect(tmp_path / "s.db") as db:
        assert db.execute("SELECT source, line, code, reason, raw FROM rejects").fetchall() == [
            ("f", 3, "malformed", "no", "raw")
        ]
    db.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["symlink", "hard link", "same process"])
def test_one_run_at_a_time_however_it_names_the_store(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "state.db", tmp_path / "link.db"
    with closing(opened(path)) as store:
        if how == "same process":
            with pytest.raises(StoreError, match=r"state\.db is in use"):
                opened(path)
        else:
            (other.symlink_to if how == "symlink" else other.hardlink_to)(path)
            (tmp_path / "e").write_text("{}")
            done = streamcal(
                "run", "--events", tmp_path / "e", "--store", other, "--output", tmp_path / "o", status=3
            )
            expected = "has 2 names (hard links)" if how == "hard link" else "is in use by another process"
            assert f"{other} {expected}" in done.stderr
        opened(path, read_only=True).close()
        store.commit(Change({None: b"e"}, b"{}", {}, {}, (), ()))
        assert sqlite_locks(path)  # SQLite's own are still held
    assert not sqlite_locks(path)
    if how != "hard link":
        opened(path).close()


def test_a_store_on_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's table of mounts, where the type of this directory's system is changed."""
    device = tmp_path.stat().st_dev
    number, mounts = f"{os.major(device)}:{os.minor(device)}", access._MOUNTS.read_text()
    lines = [line for line in mounts.splitlines() if line.split()[2] == number]
    assert lines
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"{line.partition(' - ')[0]} - nfs4 host:/ rw\n" for line in lines))
    monkeypatch.setattr(access, "_MOUNTS", table)
    with pytest.raises(StoreError, match=r"state\.db lies on a network file system \(nfs4\)"):
        opened(tmp_path / "state.db")
    assert not (tmp_path / "state.db").exists()


def sqlite_locks(path: Path) -> list[str]:
    """Return the POSIX locks that this process has on a file."""
    mine = f"{os.getpid()} ", f":{path.stat().st_ino} "
    locks = Path("/proc/locks").read_text().splitlines()
    return [each for each in locks if "POSIX" in each and all(part in each for part in mine)]


def test_a_newer_schema_or_the_database_of_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer, later, foreign = (tmp_path / f"{name}.db" for name in ("newer", "later", "foreign"))
    opened(newer).close()
    opened(later).close()
    with monkeypatch.context() as changes:
        changes.setattr(sqlite_store, "_VERSION", "99.0.1")
        with closing(opened(later)) as store:  # which the next version goes on with
            store.commit(Change({}, b"{}", {}, {}, [], []))
    changed(newer, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    changed(foreign, "CREATE TABLE t (x)")
    for path, message in (
        (newer, f"has schema version {SCHEMA_VERSION + 1}.*go on with that version or a later one"),
        (later, r"was written by streamcal 99\.0\.1; this is streamcal .*or with a copy of the store"),
        (foreign, "is not a store of streamcal"),
    ):
        before = path.read_bytes()
        with pytest.raises(StoreError, match=message):
            opened(path)
        assert path.read_bytes() == before


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the full disk; then there is room again, and the run goes on."""
    whole = tmp_path / "whole"
    whole.mkdir()
    streamcal(*options(whole), status=0)
    arguments = [str(each) for each in options(tmp_path)]
    for limit in (60_000, 150_000):
        done = subprocess.run(
            ["prlimit", f"--fsize={limit}", *STREAMCAL, *arguments],
            capture_output=True,
            check=False,
            timeout=120,
            preexec_fn=_ignore_sigxfsz,
        )
        assert done.returncode == 3, done.stderr
        assert b"Traceback" not in done.stderr
        assert b"cannot be" in done.stderr or b"cannot write" in done.stderr
    done = streamcal(*options(tmp_path), status=0)
    assert (tmp_path / "out.jsonl").read_bytes() == (whole / "out.jsonl").read_bytes()


def _ignore_sigxfsz() -> None:
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def filled(path: Path) -> None:
    """Make a store with rows in every table, on several pages, indices and inner pages among them."""
    rows = [
        f'{{"id":"{i}","score":0.{i % 97:02},"time":{i},"key":{json.dumps("k" if i % 4 else None)}}}\n'
        f'{{"id":"{i - 9}","label":{int(i % 3 == 0)},"time":{i}}}\n{{"id":"e{i}","label":1,"time":{i}}}\n'
        for i in range(100)
    ]
    (path.parent / "events.jsonl").write_text("".join(rows))
    connectors, ticks = Connectors(), count()
    pipeline = Pipeline(RunConfig(join=JoinConfig(label_ttl=40.0, max_pending=60)))
    outputs = Outputs(connectors.sink(str(path.parent / "out.jsonl")))
    with closing(SqliteStore(path)) as store:
        inputs = Inputs([], [connectors.source(str(path.parent / "events.jsonl"))])
        Runner(pipeline, inputs, outputs, store, clock=lambda: next(ticks) * 0.06).run()
    with closing(opened(path)) as store:
        found = store.load()
        rejects = [RejectRow("ü", i, "malformed", "no", "raw" * 50) for i in range(1000)]
        store.commit(Change({}, found.run, found.positions, found.sinks, [], rejects))


def everything(path: Path) -> dict[str, object]:
    """Return all that can be read back from a store."""
    with closing(opened(path)) as store:
        found = store.load()
        return {
            "job": store.job,
            "load": (dict(found.engines), found.run, found.positions, found.sinks),
            "versions": [msgspec.structs.astuple(row) for row in store.versions()],
            "rejects": list(store.rejects()),
            "entries": stored_entries(found),
        }


@pytest.mark.slow
def test_a_flipped_bit_is_noticed_or_does_not_matter(tmp_path: Path) -> None:
    """A bit of each byte of the header, and bits anywhere: nothing read back changes, nothing crashes."""
    path = tmp_path / "s.db"
    filled(path)
    good = path.read_bytes()
    whole = everything(path)
    assert path.read_bytes() == good
    assert len(good) > 20 * 8192
    assert all(whole.values())
    rng = random.Random(5)
    pages = len(good) // 8192
    places = [(byte, rng.randrange(8)) for byte in range(0, 100, 2)]
    places += [(8192 - rng.randrange(1500), rng.choice([7, rng.randrange(8)])) for _ in range(30)]  # schema
    places += [(8192 * rng.randrange(pages) + rng.randrange(40), rng.randrange(8)) for _ in range(30)]
    places += [(rng.randrange(len(good)), rng.randrange(8)) for _ in range(30)]
    noticed = 0
    for place, bit in places:
        path.write_bytes(good[:place] + bytes([good[place] ^ (1 << bit)]) + good[place + 1 :])
        for name in ("s.db-wal", "s.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        try:
            assert everything(path) == whole, (place, bit)
        except StoreError as error:
            noticed += 1
            assert str(path) in str(error), (place, bit)  # noqa: PT017
    print(f"\n{noticed} of {len(places)} flipped bits noticed")


LAST = "WHERE seq = (SELECT max(seq) FROM packs)"
DAMAGE = [
    ("packs", f"UPDATE packs SET content = content || x'00' {LAST}"),
    ("packs", f"UPDATE packs SET kind = iif(kind = 'early', 'settled', 'early') {LAST}"),
    ("packs", f"DELETE FROM packs {LAST}"),
    ("marks", f"UPDATE marks SET present = x'00' {LAST}"),
    ("marks", f"DELETE FROM marks {LAST}"),
    ("rejects", "DELETE FROM rejects WHERE seq = 7"),
    ("no such table", "DROP TABLE versions"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("what", "statement"), DAMAGE, ids=[statement for _, statement in DAMAGE])
def test_what_was_not_written_by_a_run_is_noticed(tmp_path: Path, what: str, statement: str) -> None:
    filled(tmp_path / "s.db")
    changed(tmp_path / "s.db", statement)
    with pytest.raises(StoreError, match=rf"s\.db.*({what}|Could not decode)"):
        everything(tmp_path / "s.db")


@pytest.mark.slow
def test_other_options_are_refused(tmp_path: Path) -> None:
    streamcal(*options(tmp_path), status=0)
    (tmp_path / "c.toml").write_text("[recalibrator]\nbins = 7\n")
    done = streamcal(*options(tmp_path, "--config", tmp_path / "c.toml"), status=3)
    assert "the store was begun with other options: bins ('auto', now 7)" in done.stderr


@pytest.mark.slow
def test_map_versions_are_thinned_alike_however_they_are_committed(tmp_path: Path) -> None:
    rows = [VersionRow(n, None, float(n), (1.0, 1.0)) for n in range(1, 2601)]
    kept = []
    for size in (7, 70, 2600):
        with closing(opened(tmp_path / f"{size}.db")) as store:
            for start in range(0, 2600, size):
                store.commit(Change({}, b"{}", {}, {}, rows[start : start + size], []))
            kept.append([row.version for row in store.versions()])
    assert kept[0] == kept[1] == kept[2]
    assert 750 <= len(kept[0]) <= 1000
    assert kept[0][0] == 1
    assert kept[0][-500:] == list(range(2101, 2601))
    assert np.diff(kept[0]).max() <= 2600 / 10


def test_what_is_kept_lasts_until_the_next_commit(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with closing(opened(path)) as store:
        store.keep(b"one")
        store.keep(b"two")
    with closing(opened(path)) as store:
        assert store.kept() == [b"one", b"two"]
        store.commit(Change({}, b"{}", {}, {}, [], []))
        assert store.kept() == []
        store.keep(b"four")
    changed(path, "UPDATE journal SET batch = x'00'")
    with (
        closing(opened(path)) as store,
        pytest.raises(StoreError, match="table journal does not match its checksum"),
    ):
        store.kept()
