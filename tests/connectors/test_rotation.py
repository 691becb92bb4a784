"""Rotated, replaced and truncated files: followed where it is sure what follows, refused otherwise."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streamcal_connectors.files import FileConnector
from streamcal_connectors.lines import LineSource

from streamcal.events.codec import Malformed
from streamcal.run.ports import SourceOptions


def opened(path: Path, position: Any = None, *, follow: bool = True) -> LineSource:
    source = FileConnector().source(str(path), SourceOptions(follow=follow))
    source.seek({} if position is None else {"": position})
    return source


def ids(source: LineSource, positions: list[Any] | None = None) -> list[str]:
    """Return the ids of all that can be read now; for a malformed event, its reason."""
    found = []
    while not source.ended:
        batches = source.poll(1000, 0.0)
        for batch in batches:
            found += [each.reason if isinstance(each, Malformed) else each.id for each in batch.events]
            if positions is not None:
                positions += [batch.position(count + 1) for count in range(len(batch.events))]
        if not batches and not source.lag()[""]:
            break
    return [str(each) for each in found]


def numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


def write(path: Path, start: int, stop: int, mode: str = "a") -> None:
    with path.open(mode) as file:
        file.writelines(f'{{"id":"{number}","score":0.5}}\n' for number in range(start, stop))


@pytest.mark.parametrize("rotated", ["log.1", "log-20261122", "log.2026-11-22_10", "log.old"])
@pytest.mark.parametrize("restart", [False, True])
def test_a_renamed_file_is_read_to_its_end_and_then_the_new_one(
    tmp_path: Path, rotated: str, restart: bool
) -> None:
    log, positions = tmp_path / "log", list[Any]()
    write(log, 0, 50)
    source = opened(log)
    found = ids(source, positions)
    write(log, 50, 100)
    log.rename(tmp_path / rotated)
    if restart:
        source.close()
        write(log, 100, 150)
        source = opened(log, positions[-1])
    else:
        found += ids(source, positions)
        write(tmp_path / rotated, 100, 102)  # the writer has not noticed yet
        log.touch()
        found += ids(source, positions)
        write(log, 102, 150)
    with closing(source):
        found += ids(source, positions)
    assert found == numbers(0, 150)
    assert positions[-1]["file"] == 1
    assert positions[-1]["line"] == (50 if restart else 48)
    with closing(opened(log, positions[-1])) as source:
        write(log, 150, 160)
        assert ids(source) == numbers(150, 160)


def test_a_run_without_follow_goes_on_over_a_rotation_too(tmp_path: Path) -> None:
    log, positions = tmp_path / "log", list[Any]()
    write(log, 0, 10)
    with closing(opened(log, follow=False)) as source:
        assert ids(source, positions) == numbers(0, 10)
    write(log, 10, 20)
    log.rename(tmp_path / "log.1")
    write(log, 20, 30)
    with closing(opened(log, positions[-1], follow=False)) as source:
        assert ids(source) == numbers(10, 30)
        assert source.ended


@pytest.mark.parametrize("alive", [False, True])
def test_several_rotations_at_once_and_compression(tmp_path: Path, alive: bool) -> None:
    log, positions = tmp_path / "log", list[Any]()
    write(log, 0, 10)
    source = opened(log)
    found = ids(source, positions)
    for turn in range(1, 4):
        write(log, turn * 10, turn * 10 + 5)
        for old in (2, 1):
            if (tmp_path / f"log.{old}.gz").exists():
                (tmp_path / f"log.{old}.gz").rename(tmp_path / f"log.{old + 1}.gz")
        packed = tmp_path / "log.1.gz"
        packed.write_bytes(gzip.compress(log.read_bytes()))
        os.utime(packed, ns=(log.stat().st_atime_ns, log.stat().st_mtime_ns))
        log.unlink()
        write(log, turn * 10 + 5, turn * 10 + 10)
    if not alive:
        source.close()
        source = opened(log, positions[-1])
    with closing(source):
        found += ids(source)
    assert found == numbers(0, 40)


def test_a_file_being_compressed_is_not_taken_for_the_next_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    write(log, 0, 10)
    with closing(opened(log)) as source:
        assert ids(source) == numbers(0, 10)
        log.rename(tmp_path / "log.1")
        (tmp_path / "log.1.gz").write_bytes(gzip.compress((tmp_path / "log.1").read_bytes())[:-9])
        write(log, 10, 20)
        assert ids(source) == numbers(10, 20)


def test_a_torn_line_of_a_file_that_was_rotated_is_rejected(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("id,score\na,0.25\nb,0.5")
    with closing(opened(log)) as source:
        assert ids(source) == ["a"]
        log.rename(tmp_path / "log.csv.1")
        log.write_text("score,id\n0.5,c\n")
        positions = list[Any]()
        assert ids(source, positions) == ["the last line has no line end, and another file has followed", "c"]
        assert "header" not in positions[-1]
    with closing(opened(log, positions[0])) as source:
        assert ids(source) == ["c"]
    with closing(opened(log, follow=False)) as source:
        source.limit({"": positions[-1]})
        with pytest.raises(
            ValueError, match=r"was read up to byte \d+ of the 1 file that followed it before"
        ):
            ids(source)


# Truncated


@pytest.mark.parametrize("new", [5, 30, 500])
@pytest.mark.parametrize("alive", [False, True])
def test_copytruncate_is_refused_without_the_copy(tmp_path: Path, new: int, alive: bool) -> None:
    log, positions = tmp_path / "log", list[Any]()
    write(log, 0, 100)
    source = opened(log)
    ids(source, positions)
    write(log, 1000, 1000 + new, "w")  # shorter, or longer than what was read: it makes no difference
    with pytest.raises(ValueError, match="is not the file that was read before") as error:  # noqa: PT012
        if not alive:
            source.close()
            source = opened(log, positions[-1])
        ids(source)
    source.close()
    assert f"{log} is not" in str(error.value)
    assert f"up to byte {positions[-1]['offset']}, line 100; what came after was not" in str(error.value)
    assert "move it to a new name, or start with a new store" in str(error.value)


@pytest.mark.parametrize("alive", [False, True])
def test_copytruncate_is_followed_where_the_copy_is(tmp_path: Path, alive: bool) -> None:
    log, positions = tmp_path / "log", list[Any]()
    write(log, 0, 100)
    source = opened(log)
    found = ids(source, positions)
    write(log, 100, 120)
    shutil.copyfile(log, tmp_path / "log.1")
    write(log, 120, 300, "w")
    if not alive:
        source.close()
        source = opened(log, positions[-1])
    with closing(source):
        found += ids(source)
    assert found == numbers(0, 300)


# Replaced


@pytest.mark.parametrize("name", ["e.jsonl", "e.jsonl.gz"])
@pytest.mark.parametrize("where", ["head", "tail"])
def test_another_file_at_the_path_is_refused(tmp_path: Path, name: str, where: str) -> None:
    path, positions = tmp_path / name, list[Any]()

    def put(rows: list[str]) -> None:
        data = "".join(f'{{"id":"{row}","score":0.5}}\n' for row in rows).encode()
        path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)

    rows = [f"{number:06}" for number in range(1000)]
    put(rows)
    with closing(opened(path, follow=False)) as source:
        ids(source, positions)
    put([*rows, "new"])
    with closing(opened(path, positions[-1], follow=False)) as source:
        assert ids(source) == ["new"]
    rows[0 if where == "head" else 995] = "999999"
    put([*rows, "new"])
    with pytest.raises(ValueError, match="its first 28000 bytes are not those that were read before"):
        opened(path, positions[-1], follow=False)
    del positions[-1]["fingerprint"]  # as an older version wrote it
    with closing(opened(path, positions[-1], follow=False)) as source:
        assert ids(source) == ["new"]


def test_while_following_a_copy_is_read_on_and_another_file_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "e.jsonl", tmp_path / "other"
    write(path, 0, 50)
    with closing(opened(path)) as source:
        assert ids(source) == numbers(0, 50)
        write(other, 0, 60)
        other.replace(path)
        assert ids(source) == numbers(50, 60)
        write(other, 100, 200)
        other.replace(path)
        with pytest.raises(ValueError, match="is not the file that was read before"):
            ids(source)


def test_without_follow_a_file_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path, other = tmp_path / "e.jsonl", tmp_path / "other"
    write(path, 0, 50)
    with closing(opened(path, follow=False)) as source:
        write(other, 100, 200)
        other.replace(path)
        assert ids(source) == numbers(0, 50)


# Read back


@pytest.mark.parametrize("how", ["truncated", "replaced"])
def test_a_feed_starts_anew_with_the_file(tmp_path: Path, how: str) -> None:
    path = tmp_path / "maps.jsonl"
    with closing(FileConnector().feed(str(path))) as feed:
        assert feed.poll(0.0) == ()
        write(path, 0, 2)
        assert len(feed.poll(0.0)) == 2
        if how == "replaced":
            path.unlink()
            assert not feed.poll(0.0)
        write(path, 2, 5, "w")
        assert not feed.poll(0.0)
        assert [msgspec.json.decode(row)["id"] for row in feed.poll(0.0)] == ["2", "3", "4"]


def test_a_feed_of_damaged_gzip_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "maps.jsonl.gz"
    path.write_bytes(b"not gzip")
    with (
        closing(FileConnector().feed(str(path))) as feed,
        pytest.raises(ValueError, match=r"maps\.jsonl\.gz: the gzip data are damaged"),
    ):
        feed.poll(0.0)


# Any way


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["write", "rename", "truncate", "read", "restart"]), max_size=30),
    st.integers(0, 10**9),
)
def test_any_rotation_and_restart_gives_every_event_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("rotation")
    log, positions, found, written = folder / "log", list[Any](), list[str](), 1
    write(log, 0, 1)
    source = opened(log)
    found += ids(source, positions)
    for step in [*steps, "write", "read"]:
        if step == "write":
            count = rng.choice([1, 3, 200])
            write(log, written, written + count)
            written += count
        elif step in ("rename", "truncate"):
            for number in range(30, 0, -1):
                if (folder / f"log.{number}").exists():
                    (folder / f"log.{number}").rename(folder / f"log.{number + 1}")
            if step == "rename":
                log.rename(folder / "log.1")
                log.touch()
            else:
                shutil.copy2(log, folder / "log.1")
                write(log, 0, 0, "w")
        else:
            if step == "restart":
                source.close()
                source = opened(log, positions[-1])
            found += ids(source, positions)
            assert found == numbers(0, written)
    source.close()
