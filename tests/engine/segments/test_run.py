"""Segments in a run: served as by `Recalibrator`, resumed, refused, and summed up."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import streamcal
from streamcal.engine.segments.own import WORTH, OwnEngines
from streamcal.frames import backtest
from streamcal.quality.groups import group_figures
from streamcal.sketch.counts_c import add_labels
from tests.command_line import in_process, write_lines
from tests.crash import crashed

FIELDS = ("country", "device")


def stream(count: int = 3000, seed: int = 1) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return predictions and late labels of a stream whose countries differ."""
    rng = np.random.default_rng(seed)
    country, device = rng.integers(0, 6, count), rng.integers(0, 3, count)
    logit = rng.normal(0.0, 1.5, count)
    truth = 0.8 * logit - 0.5 + np.linspace(-1.0, 1.0, 6)[country] + np.array([0.0, 0.3, -0.3])[device]
    labels = (rng.random(count) < 1.0 / (1.0 + np.exp(-truth))).astype(int)
    times = np.arange(count, dtype=float)
    ids = [f"a{index}" for index in range(count)]
    known = times + rng.exponential(200.0, count)
    order = np.argsort(known, kind="stable")
    predictions = pl.DataFrame(
        {
            "id": ids,
            "score": 1.0 / (1.0 + np.exp(-logit)),
            "time": times,
            "country": [None if each == 5 else f"c{each}" for each in country],
            "device": device,
        }
    )
    told = pl.DataFrame({"id": ids, "label": labels, "time": known})[order]
    return predictions, told


@pytest.mark.slow
@pytest.mark.parametrize("fields", [FIELDS, FIELDS[:1]], ids=["two fields", "own engines"])
def test_a_run_serves_what_the_engine_in_memory_serves(fields: tuple[str, ...]) -> None:
    """Each label is judged by the forecast as of its prediction, however late it comes."""
    predictions, labels = stream()
    done = backtest(predictions, labels, segments=fields)
    engine = streamcal.Recalibrator(segments=fields)
    memos, served, place = dict[str, bytes](), [], {id_: index for index, id_ in enumerate(predictions["id"])}
    segments = list(predictions.select(fields).iter_rows())
    scores = predictions["score"].to_list()
    waiting = list(labels.iter_rows())[::-1]
    for index, (id_, time) in enumerate(predictions.select("id", "time").iter_rows()):
        while waiting and waiting[-1][2] < time:
            told, label, _ = waiting.pop()
            at = place[told]
            engine.learn_one(scores[at], label, memo=memos[told])
        probability, memos[id_] = engine.answer_one(scores[index], segments[index])
        served.append(probability)
    np.testing.assert_array_equal(done.frame["probability"].to_numpy(), served)


@pytest.mark.slow
def test_segments_are_better_than_one_engine_for_all() -> None:
    predictions, labels = stream(8000)
    pooled, shared = backtest(predictions, labels), backtest(predictions, labels, segments=FIELDS)
    assert shared.summary["brier_after"] < 0.97 * pooled.summary["brier_after"]
    assert not shared.by_segment["deviates"].any()
    assert pooled.by_key["key"].to_list() == [None]


def test_intervals_of_groups_hold_at_every_look() -> None:
    """Of 300 groups, at most 15 + 4 sd = 30 are missed at δ = .05 (chance < 10⁻⁴)."""
    rng = np.random.default_rng(2)
    missed = np.zeros(300, np.bool_)
    sums = np.zeros((300, 6))
    for _ in range(1, 41):
        forecasts = rng.uniform(0.05, 0.4, (300, 50))
        labels = (rng.random((300, 50)) < forecasts).astype(int)
        at = np.repeat(np.arange(300), 50)
        add_labels(sums, at, np.stack([forecasts.ravel()] * 2), labels.ravel().astype(float))
        figures = group_figures(sums.copy())
        missed |= (figures.low > 0.0) | (figures.high < 0.0)
    assert missed.sum() <= 30


def run(folder: Path, *more: object, events: str = "") -> None:
    """Run on predictions and labels in a folder; or on labelled events, in these files."""
    files = {"config": "c.toml", "store": "s.db", "output": "out.jsonl", "events": events or "p.jsonl"}
    files |= {} if events else {"labels": "l.jsonl"}
    in_process("run", *(f"--{name}={folder / file}" for name, file in files.items()), *more, status=0)


def written(frame: pl.DataFrame, path: Path, until: float) -> None:
    write_lines(path, (row for row in frame.iter_rows(named=True) if row["time"] < until))


def test_a_state_of_own_engines_restores_them() -> None:
    """However many labels came since each was written as a whole; all at the latest 128 labels ago."""
    rng, since = np.random.default_rng(3), set[int]()
    engines, logs = OwnEngines(2), OwnEngines(2, logs=True)
    while len(since) < 30:
        segment, scores = (0, "ab"[int(2.0 * rng.random() ** 2)]), rng.random(30).tolist()
        for score in scores[: int(rng.integers(30))]:
            label = int(rng.random() < score)
            for each in (engines, logs):
                each.learn(segment, score, label, WORTH)
        state, restored = logs.to_state(), OwnEngines(2)
        since |= {len(each.since) for each in state}
        restored.restore(state)
        assert restored.to_state() == engines.to_state()
        again = OwnEngines(2, logs=True)
        again.restore(state)
        assert again.to_state() == state
        if len(since) % 3 == 0:
            logs = again
    assert max(since) > 100


@pytest.mark.crash
def test_killed_and_yet_the_same(tmp_path: Path) -> None:
    """Answers and states are those of a run that went through."""
    predictions, labels = stream(1_000)
    predictions.write_csv(tmp_path / "p.csv")
    labels.write_parquet(tmp_path / "l.parquet")
    (tmp_path / "c.toml").write_text('[segments]\nfields = ["country"]\n')
    given = [
        "--events",
        tmp_path / "p.csv",
        "--labels",
        tmp_path / "l.parquet",
        "--config",
        tmp_path / "c.toml",
    ]
    outputs, found, seconds = {"output": "o.jsonl", "rejects": "r.jsonl", "maps": "m.jsonl"}, [], 0.0
    for kills in (0, 4):
        folder = tmp_path / str(kills)
        folder.mkdir()
        made = [f"--{name}={folder / file}" for name, file in (outputs | {"store": "s.db"}).items()]
        seconds = crashed(["run", *given, *made], kills, seconds / 4)
        with closing(sqlite3.connect(folder / "s.db")) as db:
            engines = db.execute("SELECT key, state FROM engines ORDER BY key").fetchall()
        found.append([engines, *[(folder / name).read_bytes() for name in outputs.values()]])
    assert found[0] == found[1]
    assert found[0][1].count(b"\n") == 1_000
