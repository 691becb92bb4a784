"""Own data as users have it: what a new user writes first gives the plain figures, or says what to write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

import streamcal
from streamcal.sklearn import StreamingCalibratedClassifier
from tests.command_line import streamcal as command

N = 600
RNG = np.random.default_rng(5)
SCORES = RNG.random(N) ** 2
LABELS = (RNG.random(N) < SCORES**1.5).astype(int)
NAMES = [f"tx{number}" for number in range(N)]
TIMES = pd.date_range("2026-01-01", periods=N, freq="15min", unit="us")
FEW_MAPS: dict[str, Any] = {"mode": "target"}


def brier(scores: Any, labels: Any) -> Any:
    return pytest.approx(float(np.mean((np.asarray(scores) - np.asarray(labels)) ** 2)))


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"score": SCORES, "label": LABELS, "time": TIMES, **columns}, index=NAMES)


@pytest.mark.parametrize("name", [None, "id", "order"])
def test_a_frame_whose_index_is_the_id_with_labels_that_never_came(name: str | None) -> None:
    came = np.arange(N) % 4 != 0
    rows = frame(label=np.where(came, LABELS, np.nan)).rename_axis(name)
    done = streamcal.backtest(rows, **FEW_MAPS)
    assert done.summary["join"]["joined"] == came.sum()
    assert done.summary["brier_before"] == brier(SCORES[came], LABELS[came])
    frame_of_answers: Any = done.frame
    assert rows.join(frame_of_answers["probability"]).notna()["probability"].all()
    assert len(streamcal.backtest(rows, label_delay="1d", **FEW_MAPS).frame) == N
    with pytest.raises(ValueError, match="index 0: a label must equal 0 or 1, got nan: leave out rows"):
        streamcal.evaluate(rows["label"], rows["score"])
    left = rows.dropna()
    assert streamcal.evaluate(left["label"], left["score"]).brier == brier(SCORES[came], LABELS[came])


def test_two_frames_are_joined_by_their_indices() -> None:
    rows = frame()
    labels = rows[["label"]].assign(time=TIMES + pd.Timedelta("1h")).sample(frac=1, random_state=0)
    done = streamcal.backtest(rows.drop(columns="label"), labels, **FEW_MAPS)
    assert done.summary["brier_before"] == brier(SCORES, LABELS)
    with pytest.raises(ValueError, match=r"no column 'id'.*reset_index\(names='id'\) makes the index the id"):
        streamcal.backtest(rows.drop(columns="label").reset_index(drop=True), labels.reset_index(drop=True))


def test_rows_with_their_labels_need_no_ids() -> None:
    rows = frame().reset_index(drop=True)
    for each in (rows, pl.from_pandas(rows)):
        assert streamcal.backtest(each, **FEW_MAPS).summary["brier_before"] == brier(SCORES, LABELS)
    with pytest.raises(ValueError, match=r"columns=\{'id': 'request_id'\}"):
        streamcal.backtest(rows.assign(request_id=NAMES))


def test_a_model_and_a_test_set() -> None:
    x, y = make_classification(1_200, flip_y=0.2, random_state=0)
    model = GaussianNB().fit(x[:400], y[:400])
    answers, labels = model.predict_proba(x[400:]), y[400:]
    with pytest.raises(ValueError, match=r"predict_proba\(X\)\[:, 1\]"):
        streamcal.evaluate(labels, answers)
    assert streamcal.evaluate(labels, answers[:, 1]).brier == brier(answers[:, 1], labels)
    with pytest.warns(UserWarning, match="as of predict: give those of predict_proba"):
        streamcal.evaluate(labels, model.predict(x[400:]))
    texts = np.where(labels, "spam", "ham")
    with pytest.raises(ValueError, match=r"'ham'.*; positive= names the one that counts as 1"):
        streamcal.evaluate(texts, answers[:, 1])
    assert streamcal.evaluate(texts, answers[:, 1], positive="spam").brier == brier(answers[:, 1], labels)
    calibrated = StreamingCalibratedClassifier(FrozenEstimator(model)).fit(x[400:800], y[400:800])
    found = streamcal.evaluate(y[800:], calibrated.predict_proba(x[800:])[:, 1], baseline=answers[400:, 1])
    assert found.brier_gain is not None
    assert found.brier_gain > 0.0


def test_columns_of_pandas_in_two_orders_are_refused() -> None:
    rows = frame()
    mixed = rows["score"].sample(frac=1, random_state=0)
    with pytest.raises(ValueError, match=r"same index in another order: probabilities.loc\[labels.index\]"):
        streamcal.evaluate(rows["label"], mixed)
    engine = streamcal.Recalibrator()
    with pytest.raises(ValueError, match="scores and labels have the same index in another order"):
        engine.learn_many(mixed, rows["label"])
    assert streamcal.evaluate(rows["label"], mixed.loc[rows.index]).brier == brier(SCORES, LABELS)
    part = rows["label"].sample(100, random_state=0)
    assert streamcal.evaluate(part, pd.Series(rows["score"].loc[part.index].to_numpy())).labels == 100


def test_csv_of_a_german_excel(tmp_path: Path) -> None:
    times = TIMES.strftime("%d.%m.%Y %H:%M")
    paths = [tmp_path / f"{name}.csv" for name in ("predictions", "labels")]
    for path, name, values in zip(paths, ("score", "label"), (SCORES, LABELS), strict=True):
        rows = pd.DataFrame({"id": NAMES, name: values, "time": times})
        rows.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    summary = tmp_path / "summary.json"
    done = command("run", "--events", paths[0], "--labels", paths[1], "--output", "-", "--summary", summary)
    assert done.returncode == 0
    assert "'01.01.2026 00:00' in column 'time' is read as 2026-01-01T00:00" in done.stderr
    assert json.loads(summary.read_text())["brier_before"] == brier(SCORES, LABELS)
    with pytest.raises(ValueError, match=r"read the file with sep=';' and decimal=','"):
        streamcal.backtest(*map(pd.read_csv, paths))
    frames = [pd.read_csv(path, sep=";", decimal=",") for path in paths]
    assert streamcal.backtest(*frames, **FEW_MAPS).summary["brier_before"] == brier(SCORES, LABELS)


CLASSES = ["cat", "dog", "fox"]


def test_three_classes_with_text_labels() -> None:
    scores = RNG.dirichlet(np.ones(3), N)
    labels = np.array(CLASSES)[(RNG.random(N)[:, None] > scores.cumsum(axis=1)).sum(axis=1)]
    accuracy = np.mean(np.array(CLASSES)[scores.argmax(axis=1)] == labels)
    with pytest.raises(ValueError, match=r"got 'cat'|got 'dog'|got 'fox'") as refused:
        streamcal.evaluate_classes(labels, scores)
    refused.match("classes= names the columns in their order")
    assert streamcal.evaluate_classes(labels, scores, classes=CLASSES).accuracy == accuracy
    rows = pd.DataFrame(scores, columns=CLASSES).assign(id=NAMES, label=labels)
    named: Mapping[str, Any] = {"classes": CLASSES, "prefix": ""}
    for options in ({}, {"columns": {"classes": CLASSES}}):
        with pytest.raises(ValueError, match=r"columns=\{'classes': \['cat', 'dog', 'fox'\], 'prefix': ''\}"):
            streamcal.backtest(rows, **options)
    with pytest.raises(ValueError, match=r"classes is one of columns: columns=\{'classes': …\}"):
        streamcal.backtest(rows, classes=CLASSES)  # type: ignore[call-overload]
    assert streamcal.backtest(rows, columns=named).summary["classes"]["before"]["accuracy"] == accuracy


def test_a_lazy_frame_is_computed() -> None:
    rows = pl.from_pandas(frame(id=NAMES))
    done = streamcal.backtest(rows.lazy().filter(pl.col("score") > 0.1), **FEW_MAPS)
    some = SCORES > 0.1
    assert done.summary["brier_before"] == brier(SCORES[some], LABELS[some])
    with pytest.raises(ValueError, match=r"shape \(600, 1\): give one column"):
        streamcal.evaluate(rows.select("label"), rows.select("score"))


def test_parquet_by_day(tmp_path: Path) -> None:
    rows = pl.from_pandas(frame(id=NAMES)).with_columns(day=pl.col("time").dt.date())
    for (day,), part in rows.group_by("day", maintain_order=True):
        folder = tmp_path / f"days/day={day}"
        folder.mkdir(parents=True)
        part.drop("day").write_parquet(folder / "part-0.parquet")
    run, pattern = ("run", "--mode", "target", "--output", tmp_path / "out.jsonl", "--events"), "/*/*.parquet"
    refused = command(*run, tmp_path / "days")
    assert refused.returncode == 1
    assert "give a pattern of the files" in refused.stderr
    files = sorted((tmp_path / "days").glob("*/*.parquet"))
    assert "put a pattern of several files in quotes" in command(*run, *files).stderr
    done = command(*run, f"{tmp_path}/days{pattern}", "--summary", tmp_path / "summary.json")
    assert done.returncode == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["brier_before"] == brier(SCORES, LABELS)
    lazy = pl.scan_parquet(f"{tmp_path}/days{pattern}")
    assert streamcal.backtest(lazy, **FEW_MAPS).summary["brier_before"] == brier(SCORES, LABELS)
