"""Lines of files and pipes: each event once, in order, however the bytes come and wherever a run restarts."""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from streamcal_connectors.files import FileConnector
from streamcal_connectors.lines import MAX_LINE_BYTES, LineSource

from streamcal.events import PredictionEvent
from streamcal.events.blocks import Block
from streamcal.events.codec import Malformed
from streamcal.events.columns import Columns
from streamcal.run.ports import PositionError, SourceOptions

Found = tuple[str, int]


@contextmanager
def opened(path: Path, position: Any = None, **options: Any) -> Iterator[LineSource]:
    """Open a file at a position."""
    with closing(FileConnector().source(str(path), SourceOptions(**options))) as source:
        source.seek({} if position is None else {"": position})
        yield source


@contextmanager
def piped(data: bytes) -> Iterator[Path]:
    """Give the path of a pipe that holds some bytes, and whose writer is gone."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    yield Path(f"/dev/fd/{reading}")
    os.close(reading)


def show(event: Any) -> str:
    return event.reason if isinstance(event, Malformed) else event.id


def read(source: LineSource, *, polls: int = 10_000) -> tuple[list[Found], list[Any]]:
    """Return each event with its line, and the position behind it, until the source is at its end."""
    found, positions = [], []
    for _ in range(polls):
        batches = source.poll(1000, 0.0)
        for batch in batches:
            for index, event in enumerate(batch.events):
                found.append((show(event), batch.origin(index).line))
                positions.append(json.loads(json.dumps(batch.position(index + 1))))
        if source.ended or (source.endless and not batches and not source.lag()[""]):
            break
    return found, positions


def lines(start: int, count: int, *, csv: bool = False) -> bytes:
    pattern = b"%d,0.5\n" if csv else b'{"id":"%d","score":0.5}\n'
    return b"".join(pattern % number for number in range(start, start + count))


# Growing files

OVERLONG = b"y" * 10  # stands for a line that is too long
line = st.one_of(
    st.integers(0, 10**12).map(lambda number: b'{"id":"%d","score":0.25}' % number),
    st.sampled_from([b"", b"  ", b"junk", b"\xff\xfe", b'{"id":"\xc3\xa9","score":1}\r', b"{}", b"x" * 5000]),
    st.just(OVERLONG),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(line, max_size=40), st.booleans(), st.booleans(), st.integers(0, 10**9))
@example([b'{"id":"0","score":0.25}'] * 5 + [b"", b"x" * 5000], False, False, 0)
def test_any_way_of_growing_and_restarting_gives_the_same_events_once_each(
    tmp_path_factory: pytest.TempPathFactory, texts: list[bytes], bom: bool, packed: bool, seed: int
) -> None:
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("growing")
    data = (b"\xef\xbb\xbf" if bom else b"") + b"".join(text + b"\n" for text in texts)
    data = data.replace(OVERLONG, b"y" * (MAX_LINE_BYTES + 1))
    whole = folder / "whole.jsonl"
    whole.write_bytes(data)
    with opened(whole) as source:
        expected, positions = read(source)
        assert source.ended
    behind = {at["offset"]: at for at in positions}

    path = folder / ("grown.jsonl.gz" if packed else "grown.jsonl")
    path.touch()
    packer = zlib.compressobj(wbits=31)
    found: list[Found] = []
    at: Any = None
    left = data
    while True:
        size = rng.choice([1, 7, 100, 4000, 1 << 20])
        piece, left = left[:size], left[size:]
        with path.open("ab") as growing:
            if packed:
                ends = not left or rng.random() < 0.3
                growing.write(
                    packer.compress(piece) + packer.flush(zlib.Z_FINISH if ends else zlib.Z_SYNC_FLUSH)
                )
                packer = zlib.compressobj(wbits=31) if ends else packer
            else:
                growing.write(piece)
        if left and rng.random() < 0.5:
            continue
        follow = bool(left) or rng.random() < 0.5
        with opened(path, at, follow=follow) as source:
            new, reached = read(source, polls=rng.choice([1, 3, 100]) if left else 10_000)
        keep = len(new) if not left else rng.randrange(len(new) + 1)  # the rest was read, but not committed
        found += new[:keep]
        at = reached[keep - 1] if keep else at
        # Of the same bytes, the same position; it may lie behind empty lines that had been written by then.
        assert at is None or at == behind.get(at["offset"], at)
        if not left:
            break
    assert found == expected


def test_a_line_end_that_comes_later_is_no_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(lines(0, 2).rstrip(b"\n"))
    with opened(path) as source:
        found, positions = read(source)
    assert found == [("0", 1), ("1", 2)]
    with path.open("ab") as growing:
        growing.write(b"\n" + lines(2, 2))
    with opened(path, positions[-1]) as source:
        assert read(source)[0] == [("2", 3), ("3", 4)]


# Last lines without a line end


@pytest.mark.parametrize("packed", [False, True])
def test_a_torn_last_line_is_left_until_it_is_whole(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("e.csv.gz" if packed else "e.csv")

    def write(data: bytes) -> None:
        path.write_bytes(gzip.compress(data, mtime=0) if packed else data)

    write(b"id,score\na,0.25\nb,0.5")
    with opened(path) as source:
        found, positions = read(source)
        assert source.ended
        assert source.unfinished == (
            f"the last line of {path} (line 3) has no line end and was not taken: --final takes it"
        )
    assert found == [("a", 2)]
    write(b"id,score\na,0.25\nb,0.57\n")
    with opened(path, positions[-1]) as source:
        (batch,) = source.poll(1000, 0.0)
        assert batch.events == [PredictionEvent("b", 0.57)]
        assert source.poll(1000, 0.0) == []
        assert source.unfinished is None


@pytest.mark.parametrize(
    ("name", "last", "final", "taken"),
    [
        ("e.jsonl", b'{"id":"b","score":0.5}', False, True),
        ("e.jsonl", b'{"id":"b","score":0.5,"x":{}', False, False),
        ("e.jsonl", b'{"id":"b","score":0.5,"x":{}', True, True),
        ("e.csv", b"b,0.5", False, False),
        ("e.csv", b"x" * (MAX_LINE_BYTES + 1), True, True),
    ],
)
def test_which_last_line_is_taken(tmp_path: Path, name: str, last: bytes, final: bool, taken: bool) -> None:
    path = tmp_path / name
    csv = name.endswith("csv")
    path.write_bytes((b"id,score\n" if csv else b"") + lines(0, 3, csv=csv) + last)
    with opened(path, final=final) as source:
        found, _ = read(source)
        assert len(found) == 3 + taken
        assert (source.unfinished is None) == taken


def test_a_pipe_can_be_replayed_but_what_it_held_before_a_crash_is_gone() -> None:
    until = {"": {"offset": len(lines(0, 2)), "line": 2}}
    with piped(lines(0, 3)) as path, opened(path) as source:
        source.limit(until)
        assert read(source)[0] == [("0", 1), ("1", 2)]
    with piped(lines(0, 3)) as path, opened(path, {"offset": 0, "line": 0}) as source:
        source.limit(until)
        assert source.ended
        source.limit(None)
        assert read(source)[0] == [("0", 1), ("1", 2), ("2", 3)]


# Limits: what was read before is read again


def test_a_line_without_an_end_that_was_taken_is_taken_again_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "e.csv"
    path.write_bytes(b"id,score\na,0.25\nb,0.5")
    with opened(path, final=True) as source:
        found, positions = read(source)
    with path.open("ab") as growing:
        growing.write(b"\nc,0.5\n")
    with opened(path, final=True) as source:
        source.limit({"": positions[-1]})
        assert read(source)[0] == found
        assert source.ended
        source.limit(None)
        assert read(source)[0] == [("c", 3 + 1)]


# Gzip


def test_cut_gzip_is_read_on_once_it_is_whole(tmp_path: Path) -> None:
    rng = random.Random(1)
    text = b"".join(b'{"id":"%d","score":%r}\n' % (i, rng.random()) for i in range(5000))
    whole = gzip.compress(text, mtime=0)
    path = tmp_path / "e.jsonl.gz"
    path.write_bytes(whole[: int(len(whole) * 0.6)])
    with opened(path) as source:
        before, positions = read(source)
        assert source.ended
        assert f"cannot be read beyond line {len(before)}" in str(source.unfinished)
        assert source.damage is None
    assert before
    with opened(path, final=True) as source:
        read(source)
        assert f"cannot be read beyond line {len(before)}: it ends within a gzip member" in str(source.damage)
    path.write_bytes(whole)
    with opened(path, positions[-1]) as source:
        after, _ = read(source)
        assert source.unfinished is None
    assert before + after == [(str(i), i + 1) for i in range(5000)]


@pytest.mark.slow
@pytest.mark.parametrize("place", ["block", "checksum"])
def test_all_before_damage_is_taken_however_it_is_read(tmp_path: Path, place: str) -> None:
    rng = random.Random(2)
    text = b"".join(b'{"id":"%d","score":%r}\n' % (i, rng.random()) for i in range(5_000))
    packed = bytearray(gzip.compress(text, mtime=0))
    at = len(packed) // 2 if place == "block" else len(packed) - 8
    packed[at : at + 4] = b"\xff\xff\xff\xff" if place == "block" else bytes(4)
    path = tmp_path / "e.jsonl.gz"
    path.write_bytes(packed)
    with opened(path) as source:
        found, positions = read(source)
        assert f"cannot be read beyond line {found[-1][1]}: the gzip data are damaged" in str(source.damage)
        assert source.ended
    for index in (0, 500, len(found) - 1):
        with opened(path, positions[index]) as source:
            assert read(source)[0] == found[index + 1 :]
            assert source.damage
    path.write_bytes(gzip.compress(text, mtime=0))
    with opened(path, positions[0]) as source:
        assert len(read(source)[0]) == 4_999


# What is kept, and told


@pytest.mark.parametrize("position", [{"offset": "7"}, 7])
def test_what_is_no_position_is_refused(tmp_path: Path, position: Any) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(lines(0, 3))
    with (
        closing(FileConnector().source(str(path), SourceOptions())) as source,
        pytest.raises(PositionError, match="is no position in a file"),
    ):
        source.seek({"": position})


@pytest.mark.parametrize("columns", ["id, label ,time", "score,label", "id,score,time,key,more"])
@pytest.mark.parametrize("flaw", ["", "u7,high,3"])
def test_csv_is_read_the_same_as_columns_and_row_by_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, flaw: str
) -> None:
    cells = {
        "id": "u{}",
        "score": "0.{}",
        "label": "1",
        "time": "2023-11-14T22:13:25Z",
        "key": " k",
        "more": "é",
    }
    rows = [",".join(cells[name.strip()].format(i) for name in columns.split(",")) for i in range(300)]
    path = tmp_path / "events.csv"
    path.write_text(
        "\ufeff\n" + columns + "\r\n" + "\r\n".join([*rows, *([flaw] if flaw else []), *rows]) + "\n"
    )
    kept = {"columns": Columns(keep=("more", "none"))} if "more" in columns else {}
    found = {}
    for way in ("columns", "rows"):
        if way == "rows":
            monkeypatch.setitem(sys.modules, "streamcal_connectors.csv_columns", None)
        with opened(path, **kept) as source:
            batches = source.poll(10_000, 0.0)
            events = [event for batch in batches for event in batch.events]
            found[way] = [
                (event, batch.origin(index).line, batch.position(index + 1))
                for batch in batches
                for index, event in enumerate(batch.events)
            ]
            assert isinstance(batches[0].events, Block) == (way == "columns" and not flaw)
            found[way].append(dict(source.unknown_fields))
        assert len(events) == 600 + bool(flaw)
    assert found["columns"] == found["rows"]
