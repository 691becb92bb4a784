"""Inputs that are not what they were, not whole yet, or no files: as a user meets them."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_line import GOOD, read_lines, streamcal, wait_for
from tests.forks import Fork

pytestmark = pytest.mark.slow  # each test calls the command line


def lines(start: int, stop: int) -> str:
    return "".join(f'{{"id":"{number}","score":0.5}}\n' for number in range(start, stop))


def answered(path: Path) -> list[str]:
    return [row["id"] for row in read_lines(path)]


def numbers(start: int, stop: int) -> list[str]:
    return [str(number) for number in range(start, stop)]


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command line; end it, if it still runs, with the block."""
    pipe = subprocess.PIPE
    process = Fork([*arguments], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def base(tmp_path: Path) -> list[object]:
    return ["run", "--output", tmp_path / "out.jsonl", "--store", tmp_path / "s.db", "--events"]


# Replaced


# Not whole


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path, base: list[object]) -> None:
    events, out = tmp_path / "e.csv", tmp_path / "out.jsonl"
    events.write_text("id,score\na,0.25\nb,0.5")
    done = streamcal(*base, events)
    assert done.returncode == 0
    assert f"the last line of {events} (line 3) has no line end and was not taken: --final" in done.stderr
    assert answered(out) == ["a"]
    events.write_text("id,score\na,0.25\nb,0.57\n")
    assert streamcal(*base, events).returncode == 0
    assert [(row["id"], row["score"]) for row in read_lines(out)] == [("a", 0.25), ("b", 0.57)]


@pytest.mark.slow
def test_damaged_gzip_ends_with_an_error_after_all_that_could_be_read(tmp_path: Path) -> None:
    events, out = tmp_path / "e.jsonl.gz", tmp_path / "out.jsonl"
    whole = bytearray(gzip.compress(lines(0, 20_000).encode()))
    whole[len(whole) // 2 : len(whole) // 2 + 8] = b"\xff" * 8
    events.write_bytes(whole)
    arguments = ["--events", events, "--output", out]
    done = streamcal("run", *arguments)
    assert done.returncode == 1
    found = answered(out)
    assert found[:1000] == numbers(0, 1000)
    assert f"{events} cannot be read beyond line" in done.stderr
    assert "the gzip data are damaged" in done.stderr


# Pipes, and what is no file


@pytest.mark.slow
def test_a_pipe_without_a_writer_can_be_stopped(tmp_path: Path) -> None:
    pipe, out = tmp_path / "pipe", tmp_path / "out.jsonl"
    os.mkfifo(pipe)
    with started("run", "--events", pipe, "--output", out) as process:
        wait_for(out.exists)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr


@pytest.mark.slow
def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    absent, empty = tmp_path / "absent", tmp_path / "empty"
    for path, why in ((empty, "there is no file in the directory"), (absent, "No such file or directory")):
        for name in ("--events", "--labels", "--calibration"):
            good = tmp_path / "good.jsonl"
            good.write_bytes(GOOD)
            events = [] if name == "--events" else ["--events", good]
            done = streamcal("run", *events, name, path, "--output", tmp_path / "out.jsonl")
            assert done.returncode == 1
            (said,) = done.stderr.splitlines()
            assert why in said
            assert str(path) in said
            assert not (tmp_path / "out.jsonl").exists()


# What a reject keeps
