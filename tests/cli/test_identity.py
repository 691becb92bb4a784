"""One thing named by two options of a command: refused with exit status 2, and not a byte of it changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from streamcal import Recalibrator
from tests.command_line import STREAMCAL, in_process, read_lines, streamcal
from tests.forks import Fork

EVENTS = b'{"id":"a","score":0.5}\n{"id":"b","score":0.25}\n{"id":"a","label":1}\n'
LABELLED = b'{"score":0.5,"label":1}\n{"score":0.25,"label":0}\n'

NEEDED = {
    "run": ["events", "output"],
    "apply": ["map", "events", "output"],
    "apply --follow": ["follow", "events", "output"],
}

PAIRS = [
    ("run", "events", "output"),
    ("run", "labels", "maps"),
    ("run", "config", "map"),
    ("run", "output", "rejects"),
    ("run", "output", "store"),
    ("apply", "map", "output"),
    ("apply --follow", "follow", "rejects"),
]


def same(path: Path) -> Path:
    return path


def symlink(path: Path) -> Path:
    link = path.with_name("symlink")
    link.symlink_to(path.name)
    return link


def hard_link(path: Path) -> Path:
    link = path.with_name("hard-link")
    link.hardlink_to(path)
    return link


def spelled_otherwise(path: Path) -> str:
    (path.parent / "sub").mkdir()
    return f"{path.parent}/./sub/../{path.name}"


WAYS = [same, symlink, hard_link, spelled_otherwise]


def given(folder: Path, name: str) -> Path:
    """Return a file that is right for an option; outputs do not exist."""
    content = {
        "events": EVENTS,
        "labels": EVENTS,
        "calibration": LABELLED,
        "config": b"# defaults\n",
        "follow": b'{"version":1,"key":null,"time":null,"map":{}}\n',
        "map": Recalibrator().map.model_dump_json().encode(),
    }
    path = folder / f"own-{name}"
    if name in content:
        path.write_bytes(content[name])
    return path


@pytest.mark.parametrize(
    ("command", "one", "other", "way"),
    [(*pair, same) for pair in PAIRS] + [("run", "events", "output", way) for way in WAYS[1:]],
)
def test_one_file_for_two_options(
    tmp_path: Path, command: str, one: str, other: str, way: Callable[[Path], Path | str]
) -> None:
    shared = tmp_path / "shared"
    name = "config" if "config" in (one, other) else "map" if "map" in (one, other) else one
    own = given(tmp_path, name)
    shared.write_bytes(own.read_bytes() if own.exists() else EVENTS)
    before = shared.read_bytes()
    arguments: list[object] = []
    for name in dict.fromkeys([*NEEDED[command], one, other]):
        path = shared if name == one else way(shared) if name == other else given(tmp_path, name)
        arguments += [f"--{name}", path]
    done = in_process(command.split()[0], *arguments, status=2)
    assert "are one and the same" in done.stderr
    assert shared.read_bytes() == before
    assert not (tmp_path / "own-output").exists()


def shell(folder: Path, command: str) -> subprocess.CompletedProcess[bytes]:
    """Call the command line with redirections, in a folder with ``e`` (events)."""
    (folder / "e").write_bytes(EVENTS)
    return subprocess.run(
        ["bash", "-c", f'"$@" {command}', "bash", *STREAMCAL],
        cwd=folder,
        capture_output=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["run --events - --output e < e", "run --events e --output /dev/fd/7 7>> e"]
)
def test_redirections(tmp_path: Path, command: str) -> None:
    done = shell(tmp_path, command)
    assert done.returncode == 2, done.stderr
    assert b"are one and the same" in done.stderr
    assert (tmp_path / "e").read_bytes() == EVENTS
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_no_answer_meets_the_closing_table(tmp_path: Path) -> None:
    """Also where standard output has another name."""
    for name in ("-", "/dev/fd/1"):
        done = shell(tmp_path, f"run --events e --output {name}")
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 2
        assert b"predictions" in done.stderr
    done = shell(tmp_path, "run --events e --output o 1<> o")
    assert done.returncode == 0, done.stderr
    assert len(read_lines(tmp_path / "o")) == 2


@pytest.mark.slow
def test_two_runs_with_one_output(tmp_path: Path) -> None:
    """The second is refused, whatever its store, and however it spells the path."""
    (tmp_path / "e").write_bytes(EVENTS)
    out = tmp_path / "o.jsonl"
    (tmp_path / "other").symlink_to(out)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = ["run", "--events", tmp_path / "fifo", "--output", out, "--store", tmp_path / "1.db"]
    first = Fork([*command], stderr=subprocess.PIPE)
    with fifo.open("wb") as feed:
        feed.write(EVENTS)
        feed.flush()
        while not out.exists() or len(out.read_bytes().splitlines()) < 2:
            assert first.poll() is None
        before = out.read_bytes()
        for more in (["--store", tmp_path / "2.db"], []):
            done = streamcal(
                "run", "--events", tmp_path / "e", "--output", tmp_path / "other", *more, status=3
            )
            assert "other is in use by another process" in done.stderr
        assert out.read_bytes() == before
    assert first.wait(60) == 0
    assert first.stderr
    first.stderr.close()
    assert len(read_lines(out)) == 2
