"""No line ends a run, at its first read or at a restart; what store and outputs keep of it is bounded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.command_line import read_lines, streamcal, table

pytestmark = pytest.mark.slow  # each test calls the command line

POISON = [
    "[" * 100_000,
    '{"id":"p","score":' + "9" * 310 + "}",
    '{"id":"p","score":0.5,"time":1e25}',
    '{"id":"p","score":0.5,"time":"' + "9" * 400 + '"}',
    '{"id":"p","score":0.5,"time":' + "9" * 400 + "}",
    '{"id":"p","label":' + "9" * 310 + "}",
    '{"id":"p","score":0.5,"key":"' + "k" * 500_000 + '"}',
    '{"id":"p\\nq","score":0.5}',
    '{"id":"p","score":0.5,"x":' + "[" * 2000 + "]" * 2000 + "}",
    '{"id":"early","label":1,"time":15,"x":"' + "e" * 100_000 + '"}',
]


@pytest.mark.parametrize("name", ["events.jsonl", "events.csv"])
def test_poison_ends_as_rejects_also_at_a_restart(tmp_path: Path, name: str) -> None:
    events, out, rejects = tmp_path / name, tmp_path / "out.jsonl", tmp_path / "rejects.jsonl"
    if name.endswith("csv"):
        lines = ["id,score,time,key", "a,0.5,10,", "p," + "9" * 400 + ",,", "p,0.5,1e25,", "p,0.5,1,"]
        lines = [*lines[:-1], "p,0.5,1," + "k" * 100_000, "p,0_1,,"]
        count = 4
    else:
        lines, count = ['{"id":"a","score":0.5,"time":10}', *POISON], len(POISON) - 1
    (tmp_path / "run.toml").write_text('[recalibrator]\nwindow = "P1D"\n')
    for last in ("b", "c"):
        row = f"{last},0.5,20," if name.endswith("csv") else f'{{"id":"{last}","score":0.5,"time":20}}'
        lines.append(row)
        events.write_text("\n".join(lines) + "\n")
        done = streamcal(
            "run", "--events", events, "--output", out, "--rejects", rejects, "--store", tmp_path / "s.db",
            "--config", tmp_path / "run.toml",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert table(done)["rejected"] == str(count)
    assert [row["id"] for row in read_lines(out)] == ["a", "b", "c"]
    assert len(read_lines(rejects)) == count
    for row in read_lines(rejects):
        assert len(row["raw"]) <= 4096
        assert len(row["reason"]) <= 400
    with sqlite3.connect(tmp_path / "s.db") as store:
        kept = "SELECT max(length(raw)), max(length(reason)) FROM rejects"
        raw, reason = store.execute(kept).fetchone()
        (early,) = store.execute("SELECT coalesce(max(length(raw)), 0) FROM early").fetchone()
    assert raw <= 4096
    assert reason <= 400
    assert early <= 4096 * 4 / 3 + 4  # base64
