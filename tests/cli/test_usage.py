"""How the command line is called: help, version, completion, wrong options, 80 columns."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import msgspec
import pytest

from streamcal.mixture.forecasts_c import compiled
from streamcal.monitor.latest_status import Live
from tests.command_line import FLIGHTS, GOOD, read_lines, streamcal, wait_for
from tests.forks import Fork

pytestmark = pytest.mark.slow  # each test calls the command line


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def test_version_and_help() -> None:
    how = "compiled" if compiled else "not compiled, so slower"
    assert streamcal("--version").stdout == f"streamcal {version('streamcal-engine')} ({how})\n"
    for command in ((), ("run",), ("show",)):
        short, long = streamcal(*command, "-h"), streamcal(*command, "--help")
        assert (short.returncode, short.stdout) == (0, long.stdout)
        assert "Usage: streamcal" in short.stdout


def test_several_events_and_labels_are_read_in_the_order_given(tmp_path: Path) -> None:
    """At equal times, the source that is named first comes first, and predictions come before labels."""
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(lines({"id": name, "score": 0.5, "time": 7}))
        (tmp_path / f"{name}-labels.jsonl").write_text(lines({"id": name, "label": 1, "time": 7}))
    for order in ("ab", "ba"):
        arguments = [part for name in order for part in ("--events", tmp_path / f"{name}.jsonl")]
        arguments += [part for name in order for part in ("--labels", tmp_path / f"{name}-labels.jsonl")]
        streamcal(
            "run", *arguments, "--output", tmp_path / "o.jsonl", "--summary", tmp_path / "s.json", status=0
        )
        assert [row["id"] for row in read_lines(tmp_path / "o.jsonl")] == list(order)
        join = json.loads((tmp_path / "s.json").read_bytes())["join"]
        assert (join["joined"], join["early"]) == (2, 0)


def test_the_files_of_the_demo(tmp_path: Path) -> None:
    done = streamcal("demo", "--files", tmp_path / "made" / "flights", status=0)
    for name in ("labels.jsonl.gz", "predictions.jsonl.gz", "source.jsonl.gz"):
        whole = gzip.decompress((FLIGHTS / name).read_bytes()).splitlines()
        shipped = gzip.decompress((tmp_path / "made" / "flights" / name).read_bytes()).splitlines()
        assert shipped == [line for line in whole if b'-JFK"' in line]
    (tmp_path / "file").touch()
    done = streamcal("demo", "--files", tmp_path / "file" / "x", status=2)
    assert "--files: cannot write to" in done.stderr


# ``streamcal run --page``: where it may listen, and that it ends with the run


@pytest.fixture
def files(tmp_path: Path) -> list[object]:
    (tmp_path / "e.jsonl").write_bytes(GOOD)
    return ["run", "--events", tmp_path / "e.jsonl", "--output", tmp_path / "o.jsonl"]


def test_another_address_is_refused_before_anything_is_read(files: list[object]) -> None:
    done = streamcal(*files, "--page", "0.0.0.0:0", status=2)
    assert "'0.0.0.0:0'" in done.stderr
    assert "no password" in done.stderr
    assert not Path(str(files[-1])).exists()


def test_viewers_get_the_last_record_and_the_run_ends(tmp_path: Path) -> None:
    """Standard input stays open until a viewer is there."""
    run = ["run", "--events", "-", "--output", tmp_path / "o.jsonl", "--page", "0"]
    with Fork(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        url = process.stderr.readline().split()[-1].decode()
        with urllib.request.urlopen(f"{url}page/events") as events:
            process.stdin.write(GOOD)
            process.stdin.close()
            lines = [line for line in events if line.startswith(b"data: ")]
        assert process.wait(60.0) == 0
    last = msgspec.json.decode(lines[-1].removeprefix(b"data: "), type=Live)
    assert (last.state, last.status.events) == ("ended", 1)


# Inputs that are not what they were, not whole yet, or no files: as a user meets them


def answered(path: Path) -> list[str]:
    return [row["id"] for row in read_lines(path)]


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


# Not whole


def test_a_torn_last_line_waits_for_its_end(tmp_path: Path, base: list[object]) -> None:
    events, out = tmp_path / "e.csv", tmp_path / "out.jsonl"
    events.write_text("id,score\na,0.25\nb,0.5")
    done = streamcal(*base, events, status=0)
    assert f"the last line of {events} (line 3) has no line end and was not taken: --final" in done.stderr
    assert answered(out) == ["a"]
    events.write_text("id,score\na,0.25\nb,0.57\n")
    streamcal(*base, events, status=0)
    assert [(row["id"], row["score"]) for row in read_lines(out)] == [("a", 0.25), ("b", 0.57)]


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
