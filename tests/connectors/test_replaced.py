"""Replaced and truncated files: never read on in silence."""

from __future__ import annotations

import gzip
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
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


@pytest.mark.parametrize("alive", [False, True])
def test_a_rotated_file_is_read_to_its_end_and_the_next_is_refused(tmp_path: Path, alive: bool) -> None:
    log, positions = tmp_path / "log", list[Any]()
    write(log, 0, 50)
    source = opened(log)
    assert ids(source, positions) == numbers(0, 50)
    log.rename(tmp_path / "log.1")
    if alive:
        write(tmp_path / "log.1", 50, 60)  # the writer has not noticed yet
        assert ids(source, positions) == numbers(50, 60)
    write(log, 100, 200)
    with pytest.raises(ValueError, match=r"is not the file that was read before.*log shipper"):  # noqa: PT012
        if not alive:
            source.close()
            source = opened(log, positions[-1])
        ids(source)
    source.close()


# Truncated


@pytest.mark.parametrize("new", [5, 500])
@pytest.mark.parametrize("alive", [False, True])
def test_copytruncate_is_refused(tmp_path: Path, new: int, alive: bool) -> None:
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
    assert "move it to a new name" in str(error.value)


# Replaced


@pytest.mark.parametrize("where", ["head", "tail"])
def test_another_file_at_the_path_is_refused(tmp_path: Path, where: str) -> None:
    path, positions = tmp_path / "e.jsonl.gz", list[Any]()

    def put(rows: list[str]) -> None:
        data = "".join(f'{{"id":"{row}","score":0.5}}\n' for row in rows).encode()
        path.write_bytes(gzip.compress(data))

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


# Read back


def test_a_feed_starts_anew_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "maps.jsonl"
    with closing(FileConnector().feed(str(path))) as feed:
        assert feed.poll(0.0) == ()
        write(path, 0, 2)
        assert len(feed.poll(0.0)) == 2
        write(path, 2, 5, "w")
        assert not feed.poll(0.0)
        assert [msgspec.json.decode(row)["id"] for row in feed.poll(0.0)] == ["2", "3", "4"]
