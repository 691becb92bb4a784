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

from tests.command_line import GOOD, STREAMCAL, read_lines, streamcal, wait_for
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


def test_another_file_at_the_path_of_an_input_is_refused(tmp_path: Path, base: list[object]) -> None:
    events, out = tmp_path / "e.jsonl", tmp_path / "out.jsonl"
    events.write_text(lines(0, 200))
    assert streamcal(*base, events).returncode == 0
    events.write_text(lines(1000, 1400))  # as long and longer: its first 200 events were never answered
    done = streamcal(*base, events)
    assert done.returncode == 1
    assert f"{events} is not the file that was read before" in done.stderr
    assert "line 200" in done.stderr
    assert "move it to a new name, or start with a new store" in done.stderr
    assert answered(out) == numbers(0, 200)
    events.rename(tmp_path / "other.jsonl")
    assert streamcal(*base, tmp_path / "other.jsonl").returncode == 0
    assert answered(out) == numbers(0, 200) + numbers(1000, 1400)


@pytest.mark.slow
def test_follow_refuses_a_truncated_file(tmp_path: Path, base: list[object]) -> None:
    log, out = tmp_path / "log", tmp_path / "out.jsonl"
    log.write_text(lines(0, 50))
    with started(*base, log, "--follow") as process:
        wait_for(lambda: out.exists() and len(answered(out)) == 50)
        with log.open("r+") as file:  # in place, as copytruncate does
            file.truncate()
            file.write(lines(50, 150))
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"is not the file that was read before" in stderr
    assert answered(out) == numbers(0, 50)


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
def test_replay_takes_a_last_line_as_the_run_did(tmp_path: Path, base: list[object]) -> None:
    events = tmp_path / "e.csv"
    events.write_text("id,score,label\na,0.25,1\nb,0.5,0")
    assert streamcal(*base, events, "--final").returncode == 0
    done = streamcal("replay", "--store", tmp_path / "s.db", "--events", events, "--final")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_cut_gzip_is_read_on_when_it_is_whole(tmp_path: Path, base: list[object]) -> None:
    events, out = tmp_path / "e.jsonl.gz", tmp_path / "out.jsonl"
    whole = gzip.compress(lines(0, 20_000).encode())
    events.write_bytes(whole[: len(whole) // 2])
    done = streamcal(*base, events)
    assert done.returncode == 0, done.stderr
    half = answered(out)
    assert 1000 < len(half) < 19_000
    assert f"cannot be read beyond line {len(half)}: it ends within a gzip member" in done.stderr
    events.write_bytes(whole)
    assert streamcal(*base, events).returncode == 0
    assert answered(out) == numbers(0, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "apply"])
def test_damaged_gzip_ends_with_an_error_after_all_that_could_be_read(tmp_path: Path, command: str) -> None:
    events, out = tmp_path / "e.jsonl.gz", tmp_path / "out.jsonl"
    whole = bytearray(gzip.compress(lines(0, 20_000).encode()))
    whole[len(whole) // 2 : len(whole) // 2 + 8] = b"\xff" * 8
    events.write_bytes(whole)
    arguments = ["--events", events, "--output", out]
    if command == "apply":
        (tmp_path / "map.json").write_text('{"version": 1}')
        arguments += ["--map", tmp_path / "map.json"]
    done = streamcal(command, *arguments)
    assert done.returncode == 1
    found = answered(out)
    assert found[:1000] == numbers(0, 1000)
    assert f"{events} cannot be read beyond line" in done.stderr
    assert "the gzip data are damaged" in done.stderr


# Pipes, and what is no file


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "apply"])
def test_a_pipe_without_a_writer_can_be_stopped(tmp_path: Path, command: str) -> None:
    pipe, out = tmp_path / "pipe", tmp_path / "out.jsonl"
    os.mkfifo(pipe)
    (tmp_path / "map.json").write_text('{"version": 1}')
    arguments = ["--map", tmp_path / "map.json"] if command == "apply" else []
    with started(command, "--events", pipe, "--output", out, *arguments) as process:
        wait_for(out.exists)
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr


def test_a_pipe_is_read_once_its_writer_comes(tmp_path: Path) -> None:
    pipe, out = tmp_path / "pipe", tmp_path / "out.jsonl"
    os.mkfifo(pipe)
    with started("run", "--events", pipe, "--output", out) as process:
        wait_for(out.exists)
        pipe.write_text(lines(0, 10).rstrip("\n"))
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    assert answered(out) == numbers(0, 10)


@pytest.mark.slow
def test_standard_input_from_another_file_is_refused(tmp_path: Path, base: list[object]) -> None:
    def run(start: int, stop: int) -> subprocess.CompletedProcess[str]:
        (tmp_path / "in").write_text(lines(start, stop))
        with (tmp_path / "in").open() as stdin:
            command = [*STREAMCAL, *map(str, base), "-"]
            return subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)

    assert run(0, 50).returncode == 0
    assert run(0, 60).returncode == 0
    done = run(100, 200)
    assert done.returncode == 1
    assert "- is not the file that was read before" in done.stderr
    assert "send it through a pipe" in done.stderr
    assert answered(tmp_path / "out.jsonl") == numbers(0, 60)


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


def test_standard_input_cannot_be_two_inputs(tmp_path: Path) -> None:
    done = streamcal("run", "--events", "-", "--labels", "-", "--output", tmp_path / "out.jsonl")
    assert done.returncode == 2
    assert "are one and the same" in done.stderr


# What a reject keeps
