"""Lines of files and pipes: each event once, in order, however the bytes come and wherever a run restarts."""

from __future__ import annotations

import gzip
import os
import random
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from streamcal_connectors.files import FileConnector
from streamcal_connectors.line_decoder import MAX_LINE_BYTES

from streamcal.events.blocks import Block
from streamcal.events.columns import Columns
from streamcal.run.ports import SinkOptions
from tests.command_line import GOOD, streamcal
from tests.connectors.sources import opened, read, read_all


@contextmanager
def piped(data: bytes) -> Iterator[Path]:
    """Give the path of a pipe that holds some bytes, and whose writer is gone."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    yield Path(f"/dev/fd/{reading}")
    os.close(reading)


def lines(start: int, stop: int, *, csv: bool = False) -> bytes:
    pattern = b"%d,0.5\n" if csv else b'{"id":"%d","score":0.5}\n'
    return b"".join(pattern % number for number in range(start, stop))


def numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


# Growing files

OVERLONG = b"y" * 10  # stands for a line that is too long
line = st.one_of(
    st.integers(0, 10**12).map(lambda number: b'{"id":"%d","score":0.25}' % number),
    st.sampled_from([b"", b"  ", b"junk", b"\xff\xfe", b'{"id":"\xc3\xa9","score":1}\r', b"{}", b"x" * 5000]),
    st.just(OVERLONG),
)


@pytest.mark.slow
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
    expected = read_all(whole)
    behind = {at["offset"]: at for at in map(expected.position, range(len(expected.places)))}

    path = folder / ("grown.jsonl.gz" if packed else "grown.jsonl")
    path.touch()
    packer = zlib.compressobj(wbits=31)
    found: list[Any] = []
    at: Any = None
    left = data
    while True:
        size = rng.choice([1, 7, 100, 4000, 1 << 20])
        piece, left = left[:size], left[size:]
        if packed:
            ends = not left or rng.random() < 0.3
            piece = packer.compress(piece) + packer.flush(zlib.Z_FINISH if ends else zlib.Z_SYNC_FLUSH)
            packer = zlib.compressobj(wbits=31) if ends else packer
        with path.open("ab") as growing:
            growing.write(piece)
        if left and rng.random() < 0.5:
            continue
        with opened(path, at, follow=bool(left) or rng.random() < 0.5) as source:
            new = read(source, polls=rng.choice([1, 3, 100]) if left else 10_000)
        count = len(new.places)  # the rest was read, but not committed
        count = rng.randrange(count + 1) if left else count
        found += new.lines[:count]
        at = new.position(count - 1) if count else at
        # Of the same bytes, the same position; it may lie behind empty lines that had been written by then.
        assert at is None or at == behind.get(at["offset"], at)
        if not left:
            break
    assert found == expected.lines


# Last lines without a line end


@pytest.mark.parametrize(
    ("name", "last", "final", "is_taken"),
    [
        ("e.jsonl", b'{"id":"b","score":0.5}', False, True),
        ("e.jsonl", b'{"id":"b","score":0.5,"x":{}', False, False),
        ("e.jsonl", b'{"id":"b","score":0.5,"x":{}', True, True),
        ("e.csv", b"b,0.5", False, False),
        ("e.csv.gz", b"b,0.5", False, False),
        ("e.csv", b"b,0.5", True, True),
        ("e.csv", b"x" * (MAX_LINE_BYTES + 1), True, True),
    ],
)
def test_a_torn_last_line_is_left_until_it_is_whole(
    tmp_path: Path, name: str, last: bytes, final: bool, is_taken: bool
) -> None:
    """A line end that comes later is no line of its own; up to a limit, what was taken is taken again."""
    path, csv = tmp_path / name, "csv" in name
    text = b"id,score\n" * csv + lines(0, 3, csv=csv) + last

    def write(data: bytes) -> None:
        path.write_bytes(gzip.compress(data, mtime=0) if name.endswith("gz") else data)

    write(text)
    with opened(path, final=final) as source:
        found = read(source)
        assert len(found.places) == 3 + is_taken
        assert (source.unfinished is None) == is_taken
        assert is_taken or source.unfinished == (
            f"the last line of {path} (line {4 + csv}) has no line end and was not taken: --final takes it"
        )
    more = b"" if is_taken else b"7\n" if csv else b"}\n"
    write(text + more + b"\n" * is_taken + lines(7, 8, csv=csv))
    with opened(path, found.position(-1), final=final) as source:
        assert read(source).ids == (["7"] if is_taken else ["b", "7"])
        assert source.unfinished is None
    with opened(path, final=final) as source:
        source.limit({"": found.position(-1)})
        assert read(source).lines == found.lines


def test_a_pipe_can_be_replayed_but_what_it_held_before_a_crash_is_gone() -> None:
    until = {"": {"offset": len(lines(0, 2)), "line": 2}}
    with piped(lines(0, 3)) as path, opened(path) as source:
        source.limit(until)
        assert read(source).lines == [("0", 1), ("1", 2)]
    with piped(lines(0, 3)) as path, opened(path, {"offset": 0, "line": 0}) as source:
        source.limit(until)
        assert source.ended
        source.limit(None)
        assert read(source).ids == numbers(0, 3)


# Gzip


@pytest.mark.slow
@pytest.mark.parametrize("flaw", ["cut", "block", "checksum"])
def test_all_before_a_cut_or_damage_is_taken_and_a_mended_file_is_read_on(tmp_path: Path, flaw: str) -> None:
    rng = random.Random(2)
    text = b"".join(b'{"id":"%d","score":%r}\n' % (i, rng.random()) for i in range(5_000))
    whole = gzip.compress(text, mtime=0)
    broken = bytearray(whole[: int(len(whole) * 0.6)] if flaw == "cut" else whole)
    if flaw != "cut":
        at = len(broken) // 2 if flaw == "block" else len(broken) - 8
        broken[at : at + 4] = b"\xff\xff\xff\xff" if flaw == "block" else bytes(4)
    path = tmp_path / "e.jsonl.gz"
    path.write_bytes(broken)
    for final in (False, True):
        with opened(path, final=final) as source:
            found = read(source)
            why = source.unfinished if flaw == "cut" and not final else source.damage
        reason = "it ends within a gzip member" if flaw == "cut" else "the gzip data are damaged"
        assert f"cannot be read beyond line {len(found.places)}: {reason}" in why
    assert found.ids
    for index in (0, 500):
        with opened(path, found.position(index)) as source:
            assert read(source).lines == found.lines[index + 1 :]
    path.write_bytes(whole)
    with opened(path, found.position(-1)) as source:
        assert found.ids + read(source).ids == numbers(0, 5000)
        assert source.unfinished is None


# Replaced and truncated files: never read on in silence


@pytest.mark.parametrize("change", ["rotated", "shorter", "longer", "copied"])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_followed_file_that_is_replaced_or_truncated_is_refused(
    tmp_path: Path, change: str, is_open: bool
) -> None:
    """Though not before all that its writer has still written, or if a copy with more takes its place."""
    log, other = tmp_path / "log", tmp_path / "log.1"
    log.write_bytes(lines(0, 50))
    with opened(log, follow=True) as source:
        found = read(source)
        assert found.ids == numbers(0, 50)
        if change == "rotated":
            log.rename(other)
            with other.open("ab") as late:
                late.write(lines(50, 60))  # the writer has not noticed yet
            assert not is_open or read(source).ids == numbers(50, 60)
        elif change == "copied":
            other.write_bytes(lines(0, 60))
            other.replace(log)
            assert not is_open or read(source).ids == numbers(50, 60)
            log.unlink()
        log.write_bytes(lines(1000, 1000 + (5 if change == "shorter" else 500)))
        with pytest.raises(ValueError, match=r"is not the file that was read before.*log shipper") as error:  # noqa: PT012
            if is_open:
                read(source)
            with opened(log, found.position(-1), follow=True):
                pass
    last = 60 if is_open and change in ("rotated", "copied") else 50
    assert f"line {last}; what came after" in str(error.value)
    assert "move it to a new name" in str(error.value)


@pytest.mark.parametrize("where", ["head", "tail"])
def test_another_file_at_the_path_is_refused(tmp_path: Path, where: str) -> None:
    path = tmp_path / "e.jsonl.gz"
    rows = [b'{"id":"%06d","score":0.5}\n' % number for number in range(1000)]
    path.write_bytes(gzip.compress(b"".join(rows)))
    position = read_all(path).position(-1)
    path.write_bytes(gzip.compress(b"".join(rows) + lines(7, 8)))
    with opened(path, position) as source:
        assert read(source).ids == ["7"]
    rows[0 if where == "head" else 995] = rows[1]
    path.write_bytes(gzip.compress(b"".join(rows) + lines(7, 8)))
    with pytest.raises(ValueError, match="its first 28000 bytes are not those that were read before"):
        opened(path, position).__enter__()


def test_a_feed_starts_anew_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "maps.jsonl"
    with closing(FileConnector().feed(str(path))) as feed:
        assert feed.poll(0.0) == ()
        path.write_bytes(lines(0, 2))
        assert len(feed.poll(0.0)) == 2
        path.write_bytes(lines(2, 5))
        assert not feed.poll(0.0)
        assert [msgspec.json.decode(row)["id"] for row in feed.poll(0.0)] == ["2", "3", "4"]


# CSV


def test_a_header_is_checked_when_it_is_there_and_waited_for(tmp_path: Path) -> None:
    path, options = tmp_path / "e.csv", {"columns": Columns(score="prob"), "required": frozenset({"prob"})}
    path.write_bytes(b"\n\nid,score\na,0.5\n")
    with pytest.raises(ValueError, match=r"e\.csv, line 3: the CSV header has no column 'prob'; it has 'id'"):
        opened(path, **options).__enter__()
    path.write_bytes(b"id,pr")
    with opened(path, follow=True, **options) as source:
        assert not source.poll(10, 0.0)
        path.write_bytes(b"id,prob\na,0.5\n")
        assert read(source).ids == ["a"]


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
    text = "\r\n".join(["\ufeff\n" + columns, *rows, *filter(None, [flaw]), *rows]) + "\n"
    path.write_text(text, newline="")
    options = {"columns": Columns(keep=("more", "none"))} if "more" in columns else {}
    ways = []
    for way in ("columns", "rows"):
        if way == "rows":
            monkeypatch.setitem(sys.modules, "streamcal_connectors.csv_columns", None)
        with opened(path, **options) as source:
            found = read(source, 10_000)
            assert isinstance(found.places[0][0].events, Block) == (way == "columns" and not flaw)
            at = [found.position(index) for index in range(len(found.places))]
            ways.append([found.events, found.lines, at, dict(source.unknown_fields)])
        assert len(found.places) == 600 + bool(flaw)
    assert ways[0] == ways[1]


# Formats


@pytest.mark.parametrize("name", ["e.josnl", "e.csv.bz2"])
def test_an_unknown_ending_is_refused_and_nothing_is_made(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(ValueError, match=r"unknown ending, '\.\w+': known are \.jsonl, .*\.csv .*\.parquet"):
        FileConnector().sink(str(path), SinkOptions())
    assert not path.exists()
    path.write_bytes(GOOD)
    with pytest.raises(ValueError, match=r"unknown ending.*--format jsonl or csv reads it"):
        opened(path).__enter__()
    assert read_all(path, format="jsonl").ids == ["good"]


def test_standard_input_may_be_csv(tmp_path: Path) -> None:
    labels = tmp_path / "labels.jsonl"  # its name tells
    labels.write_text('{"id":"a","label":1}\n')
    out = tmp_path / "o.csv"
    command = ["run", "--events", "-", "--format", "csv", "--labels", labels, "--score", "p", "--output", out]
    streamcal(*command, stdin=b"id,p\na,0.5\nb,0.25\n", status=0)
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["id", "a", "b"]


def test_many_short_lines_are_taken_a_part_at_a_time(tmp_path: Path) -> None:
    """Else one read would hold a reject of each of two million lines; a restart goes on at any of them."""
    path = tmp_path / "short.jsonl"
    path.write_bytes(b"{}\n" * 9_999 + lines(0, 2))
    with opened(path) as source:
        (first,) = source.poll(1000, 0.0)
        assert len(first.events) == 4_000
        assert source.lag()[""] > 18_000
        position = first.position(3_000)
        found = read(source)
        assert [line for _, line in found.lines] == [*range(4_001, 10_002)]
        source.seek({"": position})
        source.limit({"": found.position(5_999)})
        again = read(source)
        assert [line for _, line in again.lines] == [*range(3_001, 10_001)]
        source.limit(None)
        assert read(source).ids == ["1"]
