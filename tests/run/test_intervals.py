"""The field pair low and high of a row: as of Python, after a kill, and where it is not had."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from streamcal import PredictionEvent, Recalibrator
from tests.command_line import streamcal

OPTIONS = "[intervals]\nprobability = 0.9\n"


def events(n: int) -> bytes:
    rng, lines = np.random.default_rng(5), []
    for number in range(n):
        score = float(rng.random())
        lines.append(
            {"id": f"{number}", "score": score, "label": int(rng.random() < score**2), "time": number}
        )
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def test_rows_have_the_interval_that_python_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "options.toml").write_text(OPTIONS)
    data = events(3_000)
    (tmp_path / "events.jsonl").write_bytes(data)
    whole = ["run", "--config", "options.toml", "--events", "events.jsonl"]
    streamcal(*whole, "--output", "whole.jsonl", status=0)
    rows = [msgspec.json.decode(line) for line in (tmp_path / "whole.jsonl").read_bytes().splitlines()]
    assert rows[0]["low"] == 0.0
    assert rows[0]["high"] == 1.0
    assert all(0.0 <= row["low"] <= row["probability"] <= row["high"] <= 1.0 for row in rows)
    late = rows[-500:]
    assert 0.02 < np.mean([row["high"] - row["low"] for row in late]) < 0.2
    truth = [row["low"] <= row["score"] ** 2 <= row["high"] for row in late]
    assert np.mean(truth) > 0.75  # one stream, of which neighbours share their block
    # In two parts, with a store in between: the same rows.
    lines = data.splitlines(keepends=True)
    parts = [*whole, "--store", "run.db", "--output", "parts.jsonl"]
    for end in (1_234, 3_000):
        (tmp_path / "events.jsonl").write_bytes(b"".join(lines[:end]))
        streamcal(*parts, status=0)
    assert (tmp_path / "parts.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    engine = Recalibrator()
    for line in lines[:10]:
        row = msgspec.json.decode(line)
        engine.step(PredictionEvent(row["id"], row["score"], time=row["time"]))
    assert engine.predict_many([0.5], interval=0.9).high == 1.0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("[segments]\nfields = ['country']\n", "[intervals] is for one score"),
        ("[columns]\nkeep = ['low']\n", "rows get a field 'low' of their own"),
        ("", "less than or equal to 0.99"),
    ],
)
def test_it_is_refused_where_it_is_not_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "options.toml").write_text((OPTIONS if more else OPTIONS.replace("0.9", "90")) + more)
    done = streamcal("run", "--config", "options.toml", "--events", "-", "--output", "-", status=2)
    assert says in " ".join(done.stderr.replace("│", " ").split())
