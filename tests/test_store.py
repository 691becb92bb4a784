"""The SQLite store when things go wrong: a clear error, exit status 3, and nothing lost."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from streamcal_connectors.sqlite import SCHEMA_VERSION, SqliteConnector, SqliteStore

from streamcal import DamagedStateError, Recalibrator
from streamcal.errors import StoreError
from streamcal.ports import Change, Checkpoint
from streamcal.rows import MapRow, RejectRow
from tests.test_cli import STREAMCAL, read_lines, streamcal, synthetic


def opened(path: Path, *, read_only: bool = False) -> SqliteStore:
    return SqliteConnector().store(str(path), read_only=read_only)


def options(folder: Path, *more: object) -> list[object]:
    source, events, labels = folder / "source.jsonl", folder / "events.csv", folder / "labels.jsonl.gz"
    if not source.exists():
        synthetic(folder)
    return [
        *("run", "--source", source, "--events", events, "--labels", labels),
        *("--output", folder / "out.jsonl", "--store", folder / "state.db", *more),
    ]


def test_what_was_committed_is_there_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "s.db")
    assert store.load() == Checkpoint({}, b"", {}, {})
    reject = RejectRow("f", 3, "no", "raw")
    positions = {"a": {"": {"offset": 3}, "1": 7}}
    row = MapRow(2, "k", 1.5, b'{"v":1}', b'{"c":2}')  # type: ignore[arg-type]
    store.commit(Change({None: b"e", "": b"f", "k": b"g"}, b"{}", positions, {"o": 5}, [row], [reject]))
    job = store.job
    store.close()
    store.close()
    again = opened(tmp_path / "s.db")
    assert again.load() == Checkpoint({None: b"e", "": b"f", "k": b"g"}, b"{}", positions, {"o": 5})
    assert [(each.version, bytes(each.map)) for each in again.maps()] == [(2, b'{"v":1}')]
    assert again.job == job
    again.close()
    with sqlite3.connect(tmp_path / "s.db") as db:
        assert db.execute("SELECT source, line, reason, raw FROM rejects").fetchall() == [
            ("f", 3, "no", "raw")
        ]
    db.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = opened(tmp_path / "state.db")
    done = streamcal(*options(tmp_path))
    assert done.returncode == 3
    assert "state.db is in use by another process" in done.stderr
    store.close()
    assert streamcal(*options(tmp_path)).returncode == 0


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "state.db").close()
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    before = (tmp_path / "state.db").read_bytes()
    done = streamcal(*options(tmp_path))
    assert done.returncode == 3
    assert f"has schema version {SCHEMA_VERSION + 1}" in done.stderr
    assert "upgrade it" in done.stderr
    assert (tmp_path / "state.db").read_bytes() == before


def test_the_database_of_something_else_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    done = streamcal(*options(tmp_path))
    assert done.returncode == 3
    assert "is no store of streamcal" in done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the full disk; then there is room again, and the run goes on."""
    whole = tmp_path / "whole"
    whole.mkdir()
    assert streamcal(*options(whole)).returncode == 0
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
    done = streamcal(*options(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == (whole / "out.jsonl").read_bytes()


def _ignore_sigxfsz() -> None:
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def test_an_output_on_a_full_disk(tmp_path: Path) -> None:
    arguments = options(tmp_path)
    arguments[arguments.index("--output") + 1] = Path("/dev/full")
    done = streamcal(*arguments)
    assert done.returncode == 3
    assert "cannot write: [Errno 28] No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert streamcal(*options(tmp_path)).returncode == 0
    assert len(read_lines(tmp_path / "out.jsonl")) == 400


def test_a_full_database(tmp_path: Path) -> None:
    store = opened(tmp_path / "s.db")
    store.commit(Change({None: b"old"}, b"{}", {}, {}, (), ()))
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"s\.db cannot be written: the disk is full"):
        store.commit(Change({None: b"new" * 100_000}, b'{"a":1}', {}, {}, (), ()))
    store.close()
    again = opened(tmp_path / "s.db")
    assert again.load() == Checkpoint({None: b"old"}, b"{}", {}, {})
    again.close()


def test_a_store_that_can_only_be_read(tmp_path: Path) -> None:
    assert streamcal(*options(tmp_path)).returncode == 0
    (tmp_path / "state.db").chmod(0o444)
    out = (tmp_path / "out.jsonl").read_bytes()
    # Root may write what is read-only, unless it gives that up.
    humbly = (
        ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override"]
        if os.geteuid() == 0
        else []
    )
    done = subprocess.run(
        [*humbly, *STREAMCAL, *map(str, options(tmp_path))], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 3, done.stderr
    assert b"state.db cannot be opened" in done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == out


def test_flipped_bytes(tmp_path: Path) -> None:
    """A flip is noticed, or it is in free space or in the number of one row; never is it a crash."""
    assert streamcal(*options(tmp_path)).returncode == 0
    store, out = tmp_path / "state.db", tmp_path / "out.jsonl"
    good, answers = store.read_bytes(), out.read_bytes()
    rng = random.Random(5)
    noticed = 0
    for _ in range(60):
        place = rng.randrange(len(good))
        store.write_bytes(good[:place] + bytes([good[place] ^ (1 << rng.randrange(8))]) + good[place + 1 :])
        for name in ("state.db-wal", "state.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        try:
            kept = opened(store)
            try:
                for state in kept.load().engines.values():
                    Recalibrator.from_bytes(state)
                list(kept.maps())
            finally:
                kept.close()
        except StoreError as error:
            noticed += 1
            assert str(store) in str(error)  # noqa: PT017
        except DamagedStateError:
            noticed += 1
    print(f"\n{noticed} of 60 flipped bits noticed")
    assert noticed >= 10
    store.write_bytes(good[:100] + b"\0" * 200 + good[300:])
    done = streamcal(*options(tmp_path))
    assert done.returncode == 3
    assert "is damaged" in done.stderr
    assert "Restore it from a copy" in done.stderr
    assert out.read_bytes() == answers


def test_a_flip_in_an_engine_or_in_a_position_is_noticed(tmp_path: Path) -> None:
    assert streamcal(*options(tmp_path)).returncode == 0
    good = tmp_path / "good.db"
    shutil.copy(tmp_path / "state.db", good)
    for statement, message in [
        (
            "UPDATE engines SET state = CAST(substr(state, 1, 99) || x'00' || substr(state, 101) AS BLOB)",
            "checksum",
        ),
        ("UPDATE positions SET position = replace(position, '4', '5')", "does not match its checksum"),
        (
            "UPDATE meta SET value = replace(value, '\"clock\":', '\"clock\":1') WHERE name = 'run'",
            "checksum",
        ),
    ]:
        shutil.copy(good, tmp_path / "state.db")
        with sqlite3.connect(tmp_path / "state.db") as db:
            db.execute(statement)
        db.close()
        done = streamcal(*options(tmp_path))
        assert done.returncode == 3, (statement, done.stderr)
        assert message in done.stderr


def test_other_options_are_refused(tmp_path: Path) -> None:
    assert streamcal(*options(tmp_path)).returncode == 0
    (tmp_path / "c.toml").write_text("[recalibrator]\nbins = 7\n")
    done = streamcal(*options(tmp_path, "--config", tmp_path / "c.toml"))
    assert done.returncode == 3
    assert "the stored engine was made with other options: bins ('auto', now 7)" in done.stderr


def test_an_output_that_was_cut_is_refused_and_one_moved_away_begun_anew(tmp_path: Path) -> None:
    assert streamcal(*options(tmp_path)).returncode == 0
    out = tmp_path / "out.jsonl"
    content = out.read_bytes()
    out.write_bytes(content[:-10])
    done = streamcal(*options(tmp_path))
    assert done.returncode == 3
    assert f"out.jsonl has {len(content) - 10} bytes, but {len(content)} were written to it" in done.stderr
    out.unlink()
    with (tmp_path / "events.csv").open("a") as events:
        events.write("new,9999,0.5\n")
    assert streamcal(*options(tmp_path)).returncode == 0
    assert [row["id"] for row in read_lines(out)] == ["new"]


def test_an_input_that_shrank_is_refused(tmp_path: Path) -> None:
    assert streamcal(*options(tmp_path)).returncode == 0
    (tmp_path / "events.csv").write_text("id,time,score\n1,1,0.5\n")
    done = streamcal(*options(tmp_path))
    assert done.returncode == 1
    assert "events.csv is not the file that was read before" in done.stderr
