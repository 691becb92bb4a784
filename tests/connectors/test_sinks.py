"""Files and streams that rows go to: nothing foreign is cut, nothing of ours is lost, no wait has no end."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from streamcal_connectors.files import FileConnector

from streamcal import Recalibrator
from streamcal.base.errors import OutputError
from streamcal.run.ports import RowKind, SinkOptions
from streamcal.run.rows import Recalibrated
from tests.command_line import STREAMCAL, read_lines, streamcal
from tests.forks import Fork

FOREIGN = [b"something else\n", b'{"id":"a","score":0.5}\n{"id":"b","score":0.5}\n', b"\xff\xfe\n", b"\n"]


def answer(id_: str) -> Recalibrated:
    return Recalibrated(id_, 0.5, 0.25, 3, (1.0, 1.0))


def events(folder: Path, count: int, first: int = 0) -> Path:
    path = folder / "e.jsonl"
    with path.open("a") as file:
        file.writelines(f'{{"id":"{i}","score":0.5,"time":{i}}}\n' for i in range(first, first + count))
    return path


def opened(path: Path, rows: RowKind = "answers", **options: Any) -> Any:
    return FileConnector().sink(str(path), SinkOptions(rows=rows, **options))


@contextmanager
def resumed(path: Path, job: str = "", position: Any = None, **options: Any) -> Iterator[Any]:
    with closing(opened(path, **options)) as sink:
        sink.resume(job, position)
        yield sink


def in_bash(command: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a folder, in which ``"$@"`` is the command line."""
    arguments = ["bash", "-c", command, "bash", *STREAMCAL]
    return subprocess.run(arguments, cwd=folder, capture_output=True, timeout=60, check=False)


# What is at the place of an output


@pytest.mark.parametrize("content", FOREIGN, ids=range(len(FOREIGN)))
def test_without_a_store_what_is_not_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    for name in ("o.jsonl", "o.csv", "o.jsonl.gz"):
        path = tmp_path / name
        path.write_bytes(content)
        message = "which are no answers of a run of streamcal: move it away"
        with nullcontext() if content == b"\n" else pytest.raises(ValueError, match=message), resumed(path):
            pass
        assert path.read_bytes() == content


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv.gz"])
def test_without_a_store_our_rows_of_the_same_kind_are_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for count in (3, 0, 2):
        with resumed(path) as sink:
            sink.write([answer(str(i)) for i in range(count)])
            sink.commit({})
        data = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
        assert len(data.splitlines()) == count + (count > 0 and ".csv" in name)
    with pytest.raises(ValueError, match="which are no rejects"), resumed(path, rows="rejects"):
        pass


@pytest.mark.slow
def test_a_run_that_is_refused_changes_none_of_its_outputs(tmp_path: Path) -> None:
    out, notes = tmp_path / "o.jsonl", tmp_path / "notes"
    notes.write_text("mine\n")
    with resumed(out) as sink:
        sink.write([answer("a")])
        sink.commit({})
    before = out.read_bytes()
    (tmp_path / "map.json").write_text(Recalibrator().map.model_dump_json())
    for command, kind in (
        (["run", "--output", out, "--rejects", notes], "rejects"),
        (["apply", "--map", tmp_path / "map.json", "--output", notes], "answers"),
    ):
        done = streamcal(*command, "--events", events(tmp_path, 5), status=3)
        assert f"notes has 5 bytes, which are no {kind}" in done.stderr
        assert (out.read_bytes(), notes.read_text()) == (before, "mine\n")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["moved", "other store", "other content", "copied over"])
def test_a_store_never_cuts_what_it_does_not_know(tmp_path: Path, how: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    arguments = ["--events", events(home, 1000), "--store", home / "s.db", "--output", home / "o.jsonl"]
    streamcal("run", *arguments, status=0)
    out = home / "o.jsonl"
    before = out.read_bytes()
    events(home, 1, 5000)
    if how == "moved":
        home = home.rename(tmp_path / "away")
        arguments = ["--events", home / "e.jsonl", "--store", home / "s.db", "--output", home / "o.jsonl"]
    elif how == "other store":
        arguments[3] = home / "new.db"
    elif how == "other content":
        before = before.replace(b'"score":0.5', b'"score":0.4')
        out.write_bytes(before)
    else:
        before = b'{"a":"larger file, and none of ours"}\n' * 100_000
        out.write_bytes(before)
    done = streamcal("run", *arguments, status=3)
    assert "o.jsonl" in done.stderr
    assert "move" in done.stderr
    assert (home / "o.jsonl").read_bytes() == before


def test_rows_of_a_commit_that_never_came_are_cut_off(tmp_path: Path) -> None:
    """From the very first commit on: the store knows where the output began."""
    path = tmp_path / "o.jsonl"
    sink = opened(path)
    sink.resume("job", None)
    position = json.loads(json.dumps(sink.position))
    for round_ in range(3):
        sink.write([answer(f"lost {round_}")])
        sink.close()  # without a commit
        with path.open("ab") as file:
            file.write(b'{"id":"to')  # a write that was cut short
        sink = opened(path)
        sink.resume("job", position)
        sink.write([answer(f"{round_}")])
        position = sink.commit({})
        assert [row["id"] for row in read_lines(path)] == [str(each) for each in range(round_ + 1)]
    sink.close()


def test_something_else_that_writes_during_the_run_is_noticed_or_locked_out(tmp_path: Path) -> None:
    path, link = tmp_path / "o.jsonl", tmp_path / "link"
    link.symlink_to(path)
    with resumed(path, "job") as sink:
        with pytest.raises(OutputError, match="link is in use by another process"):
            opened(link)
        sink.write([answer("a")])
        with path.open("a") as other:
            other.write("and another thing\n")
        with pytest.raises(OSError, match="something else wrote to it during the run"):
            sink.commit({})
    opened(link).close()


# CSV


TEXTS = ["=1+1", "+x", "-x", "@x", "\tx", "\rx", "\nx", "'x", "''y", "'", "plain", "a=1", "", "-5", "+1.5e3"]


def test_csv_keeps_ids_as_they_are(tmp_path: Path) -> None:
    with resumed(tmp_path / "o.csv") as sink:
        sink.write([Recalibrated(text, -0.5, 0.25, 3, (1.0, 1.0)) for text in TEXTS])
        sink.commit({})
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["score"] for row in rows} == {"-0.5"}
    assert [row["id"] for row in rows] == TEXTS


# Streams


def ids(data: bytes) -> list[str]:
    return [json.loads(line)["id"] for line in data.splitlines()]


def commanded(folder: Path, command: str) -> list[object]:
    """Return the command line of a run of 20,000 events, or of the same with a map."""
    (folder / "m.json").write_text(Recalibrator().map.model_dump_json())
    options = ["--map", folder / "m.json"] if command == "apply" else []
    return [command, *options, "--events", events(folder, 20_000), "--output"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "apply", "run --follow"])
def test_standard_output_loses_nothing(tmp_path: Path, command: str) -> None:
    """Unbuffered, through a pipe that does not block, to a slow reader; stopped in between, or by SIGTERM."""
    name, *follows = command.split()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    arguments = [*commanded(tmp_path, name), "-", *follows]
    unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = Fork(arguments, stdout=writing, stderr=subprocess.PIPE, env=unbuffered)
    os.close(writing)
    data = b""
    while some := os.read(reading, 1 << 14):
        data += some
        if len(data) < 1 << 17:
            if follows:
                process.terminate()
            process.send_signal(signal.SIGSTOP)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
    os.close(reading)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert ids(data) == [str(i) for i in range(20_000)]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "apply"])
def test_a_reader_that_went_away_and_a_full_device(tmp_path: Path, command: str) -> None:
    arguments, pipe = commanded(tmp_path, command), subprocess.PIPE
    for to, says in (("-", "Broken pipe"), ("/dev/stdout", "Broken pipe"), ("/dev/full", "No space left")):
        process = Fork([*arguments, to], stdout=pipe, stderr=pipe)
        process.stdout.close()
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 3
        assert stderr.decode().splitlines()[-1].startswith(f"streamcal: cannot write {to}: ")
        assert says in stderr.decode()
        assert b"Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirections", "status", "says"), [(">&-", 3, b"standard output is closed"), ("<&- 2>&-", 0, b"")]
)
def test_closed_streams(tmp_path: Path, redirections: str, status: int, says: bytes) -> None:
    """No file of the run is opened in the place of a standard stream, where messages would go into it."""
    events(tmp_path, 3)
    command = f'"$@" run --events e.jsonl --output - --rejects r --store s.db {redirections}'
    done = in_bash(command, tmp_path)
    assert (done.returncode, says in done.stderr) == (status, True), done.stderr
    assert b"Traceback" not in done.stderr
    if not status:
        assert ids(done.stdout) == ["0", "1", "2"]
        assert (tmp_path / "r").read_bytes() == b""


def test_a_named_pipe_waits_for_its_reader(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.csv.gz"
    os.mkfifo(fifo)
    asked: list[bool] = []
    sink = opened(fifo, stop=lambda: len(asked.append(True) or asked) > 1000)
    opening = threading.Thread(target=sink.resume, args=("", None))
    opening.start()
    read: list[bytes] = []
    reading = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reading.start()
    opening.join()
    sink.write([answer(str(i)) for i in range(50_000)])
    sink.commit({})
    sink.close()
    reading.join()
    assert len(gzip.decompress(read[0]).splitlines()) == 50_001


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv.gz"])
@pytest.mark.parametrize("job", ["job", ""])
def test_append_writes_behind_what_is_there_and_is_cut_back_to_it(
    tmp_path: Path, name: str, job: str
) -> None:
    path = tmp_path / name
    for id_ in "abc":  # each of a new store, or of none
        with resumed(path, job, append=True) as sink:
            sink.write([answer(id_)])
            begun = sink.commit({})
            sink.write([answer("torn")] if job else [])
        if job:
            with resumed(path, job, begun) as sink:
                sink.write([answer(f"{id_}2")])
                sink.commit({})
    whole = gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()
    found = [line for line in whole.decode().splitlines() if not line.startswith("id,")]
    ids = [line.split(",")[0] if ".csv" in name else json.loads(line)["id"] for line in found]
    assert ids == (["a", "a2", "b", "b2", "c", "c2"] if job else ["a", "b", "c"])
