"""`streamcal.backtest`: frames in, the run that files would have given out."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import narwhals
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

import streamcal
from streamcal.events import LabelEvent
from streamcal.events.codec import JsonDecoder, Malformed
from streamcal.events.columns import Columns
from streamcal.frames.sources import FrameSource
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from streamcal.sklearn import StreamingCalibratedClassifier
from tests.command_line import streamcal as command

MODE = "composite"


def streams(count: int = 500) -> dict[str, list[dict[str, Any]]]:
    """Rows of predictions, labels and source."""
    rng = random.Random(1)
    made: dict[str, list[dict[str, Any]]] = {"predictions": [], "labels": [], "source": []}
    late = []
    for number in range(count):
        score = round(rng.random() ** 2, 6)
        made["predictions"].append({"id": f"r{number}", "score": score, "time": float(number)})
        late.append((number + rng.expovariate(0.05), f"r{number}", int(rng.random() < score)))
        made["source"].append({"score": score, "label": int(rng.random() < score**1.5)})
    made["labels"] = [{"id": id_, "label": label, "time": moment} for moment, id_, label in sorted(late)]
    made["predictions"].append(made["predictions"][3])  # a duplicate
    return made


def of_files(folder: Path, made: dict[str, list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], Pipeline]:
    """Run over files, and return the rows of the answers."""
    for name, rows in made.items():
        (folder / f"{name}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))
    connectors = Connectors()
    source = connectors.source(str(folder / "source.jsonl"), SourceOptions(domain="source"))
    sources = [connectors.source(str(folder / f"{name}.jsonl")) for name in ("predictions", "labels")]
    outputs = Outputs(connectors.sink(str(folder / "out.jsonl")))
    pipeline = Pipeline(RunConfig(recalibrator=streamcal.RecalibratorConfig(mode=MODE)))
    Runner(pipeline, Inputs([source], sources), outputs, None, clock=time.monotonic).run()
    outputs.answers.close()
    return [msgspec.json.decode(line) for line in (folder / "out.jsonl").read_bytes().splitlines()], pipeline


@pytest.mark.slow
@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_a_backtest_gives_what_a_run_over_files_gives(tmp_path: Path, library: str) -> None:
    made = streams()
    wanted, pipeline = of_files(tmp_path, made)
    make: Any = {"polars": pl.DataFrame, "pandas": pd.DataFrame}[library]
    with pytest.warns(UserWarning, match=r"1 of 1,501 events were rejected .*duplicate prediction"):
        done = streamcal.backtest(*(make(rows) for rows in made.values()), mode=MODE)
    assert type(done.frame) is type(make(made["labels"]))
    frame: Any = done.frame
    rows = narwhals.from_native(frame, eager_only=True).rows(named=True)
    assert [(row["id"], row["probability"], row["map_version"], row["time"]) for row in rows] == [
        (row["id"], row["probability"], row["map_version"], row["time"]) for row in wanted
    ]
    assert [[row["weight_0"], row["weight_1"]] for row in rows] == [row["weights"] for row in wanted]
    assert done.summary["join"] == msgspec.structs.asdict(pipeline.join.counts)
    assert done.maps[-1].version == pipeline.engines[None].version
    assert done.certificates
    (reject,) = done.rejects
    assert (reject.source, reject.line) == ("predictions", 501)
    assert reject.code == "duplicate_prediction"
    assert done.plot().axes


def test_dates_keys_missing_values_and_other_names() -> None:
    days = [datetime(2024, 1, day, tzinfo=UTC) for day in range(1, 5)]
    frame = pl.DataFrame(
        {"nr": [1, 2, 3, 4], "p": [0.1, None, 0.3, 1.4], "y": ["no", "yes", None, "yes"], "time": days}
    )
    with pytest.raises(ValueError, match=r"predictions has no column 'score': columns=..*'score': 'p'"):
        streamcal.backtest(frame.rename({"nr": "id"}))
    with pytest.warns(UserWarning, match="2 of 4 events were rejected"):
        done = streamcal.backtest(frame, columns={"id": "nr", "score": "p", "label": "y", "positive": "yes"})
    assert done.frame["nr"].to_list() == [1, 3]
    assert done.frame["time"].to_list() == [days[0], days[2]]
    assert [(row.line, row.reason.partition(" id ")[0]) for row in done.rejects] == [
        (4, "a score must be a number in [0, 1], got 1.4, in column 'p'"),
        (2, "unmatched label: no prediction with"),
    ]


def test_labels_known_at_once_and_some_never() -> None:
    scores = np.linspace(0.0, 1.0, 200)
    labels = [int(score > 0.6) if index % 3 else None for index, score in enumerate(scores)]
    frame = pl.DataFrame({"id": range(200), "score": scores, "label": labels, "key": ["a", "b"] * 100})
    done = streamcal.backtest(frame)
    assert done.summary["join"]["joined"] == 133
    assert done.frame["key"].to_list() == ["a", "b"] * 100
    with pytest.warns(UserWarning, match="No labels were given, so nothing is learned"):
        unlabelled = streamcal.backtest(frame.drop("label"))
    with pytest.raises(ValueError, match="nothing to draw"):
        unlabelled.plot()


VALUES: dict[str, tuple[list[Any], list[Any]]] = {
    "score": ([0.5, None, 0.25], ["0.5", 0.5, 1]),
    "label": ([1, None, 0], [True, "no", 0.0]),
    "time": ([5.0, None, 7.0], ["2024-01-01", None, 1e9]),
    "id": (["a", None, "c"], ["a", 2, 2.5]),
    "key": (["x", None, "y"], ["x", 5, "\x01"]),
    "domain": (["source", None, "target"], ["source", "moon", None]),
}


@pytest.mark.parametrize("kind", ["events", "labels"])
@pytest.mark.parametrize("library", ["polars", "nullable", "objects"])
def test_a_frame_holds_the_events_that_json_lines_hold(library: str, kind: Any) -> None:
    """Typed columns with missing values, and columns of objects, among them what is refused."""
    roles = [role for role in VALUES if role != "score" or kind == "events"]
    given = {role: VALUES[role][library == "objects"] for role in roles}
    rows = [dict(zip(roles, row, strict=True)) for row in zip(*given.values(), strict=True)]
    make: Any = {
        "polars": pl.DataFrame,
        "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
        "objects": lambda columns: pd.DataFrame(columns, dtype=object),
    }[library]
    source = FrameSource(make(given), kind, Columns())
    (batch,) = source.poll(10, 0.0)
    rows = [rows[index] for index in source.order.tolist()]
    assert len(rows) == (3 if kind == "events" or library == "objects" else 2)
    decoder = JsonDecoder()
    wanted = [
        decoder.decode(msgspec.json.encode({k: v for k, v in row.items() if v is not None})) for row in rows
    ]
    assert [_reason(event) for event in batch.events] == [_reason(event) for event in wanted]


def _reason(event: Any) -> Any:
    """Return the reason why it is no event; else the event, without the number of its row."""
    if isinstance(event, Malformed):
        return event.reason
    return event if isinstance(event, LabelEvent) else msgspec.structs.replace(event, kept=())


N = 400
TIMES = np.arange(N) * 60.0


def pandas(**columns: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return predictions and labels of which some columns are others; ``label_`` begins those of labels."""
    rng = np.random.default_rng(0)
    scores = rng.random(N)
    labels = (rng.random(N) < scores).astype(int)
    theirs = {
        name.removeprefix("label_"): values for name, values in columns.items() if name.startswith("label_")
    }
    ours = {name: values for name, values in columns.items() if not name.startswith("label_")}
    predictions = {"id": range(N), "score": scores, "time": TIMES, **ours}
    told = {"id": range(N), "label": labels, "time": TIMES + 3600.0, **theirs}
    return tuple(
        pd.DataFrame({name: values for name, values in each.items() if values is not None})
        for each in (predictions, told)
    )


def test_rows_come_back_as_they_were_whatever_their_order() -> None:
    """Under their names, with their types and index; sorted by time, so the answers are the same."""
    predictions, labels = pandas(time=pd.date_range("2024-01-01", periods=N, freq="min"))
    labels = labels.assign(time=predictions["time"] + pd.Timedelta(hours=1))
    predictions = predictions.set_index(pd.Index([f"row {i}" for i in range(N)], name="row"))
    done = streamcal.backtest(predictions, labels)
    order = np.random.default_rng(1).permutation(N)
    again = streamcal.backtest(predictions.iloc[order], labels.iloc[order[::-1]])
    for frame in (done.frame, again.frame):
        pd.testing.assert_frame_equal(frame[predictions.columns.to_list()], predictions)
        assert predictions.join(frame[["probability"]]).notna().all(axis=None)
    pd.testing.assert_frame_equal(done.frame, again.frame)
    assert "400 with a label" in repr(done)
    assert "<td>Brier score</td>" in done._repr_html_()


def test_a_taken_name_is_left_to_its_column() -> None:
    predictions, labels = pandas()
    frame = streamcal.backtest(
        predictions.rename(columns={"score": "probability"}), labels, columns={"score": "probability"}
    ).frame
    assert frame["probability"].to_list() == predictions["score"].to_list()
    assert frame["probability_served"].between(0.0, 1.0).all()


def test_remarks_are_warnings_in_the_words_of_a_caller() -> None:
    predictions, labels = pandas(time=None, label_time=None)
    with pytest.warns(UserWarning, match="No times are known, so all predictions were answered before"):
        done = streamcal.backtest(predictions, labels)
    assert len(done.remarks) == 1
    assert done.summary["remarks"] == done.remarks
    predictions, labels = pandas(label_id=[*range(40), *range(N, 2 * N - 40)])
    with pytest.warns(UserWarning, match=r".") as caught:
        done = streamcal.backtest(predictions, labels)
    assert [str(each.message) for each in caught] == done.remarks
    assert "The attribute `rejects` has each with its reason" in done.remarks[0]
    assert all("--" not in remark and "[" not in remark for remark in done.remarks)


# Own data as users have it: what a new user writes first gives the plain figures, or says what to write


ROWS = 600
RNG = np.random.default_rng(5)
SCORES = RNG.random(ROWS) ** 2
LABELS = (RNG.random(ROWS) < SCORES**1.5).astype(int)
NAMES = [f"tx{number}" for number in range(ROWS)]
QUARTERS = pd.date_range("2026-01-01", periods=ROWS, freq="15min", unit="us")
FEW_MAPS: dict[str, Any] = {"mode": "target"}


def brier(scores: Any, labels: Any) -> Any:
    return pytest.approx(float(np.mean((np.asarray(scores) - np.asarray(labels)) ** 2)))


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"score": SCORES, "label": LABELS, "time": QUARTERS, **columns}, index=NAMES)


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
    """In frames; tests/connectors/test_world_files.py has runs over it."""
    times = QUARTERS.strftime("%d.%m.%Y %H:%M")
    paths = [tmp_path / f"{name}.csv" for name in ("predictions", "labels")]
    for path, name, values in zip(paths, ("score", "label"), (SCORES, LABELS), strict=True):
        rows = pd.DataFrame({"id": NAMES, name: values, "time": times})
        rows.to_csv(path, sep=";", decimal=",", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    with pytest.raises(ValueError, match=r"read the file with sep=';' and decimal=','"):
        streamcal.backtest(*map(pd.read_csv, paths))
    frames = [pd.read_csv(path, sep=";", decimal=",") for path in paths]
    assert streamcal.backtest(*frames, **FEW_MAPS).summary["brier_before"] == brier(SCORES, LABELS)


CLASSES = ["cat", "dog", "fox"]


def test_three_classes_with_text_labels() -> None:
    scores = RNG.dirichlet(np.ones(3), ROWS)
    labels = np.array(CLASSES)[(RNG.random(ROWS)[:, None] > scores.cumsum(axis=1)).sum(axis=1)]
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
        streamcal.backtest(rows, classes=CLASSES)
    assert streamcal.backtest(rows, columns=named).summary["classes"]["before"]["accuracy"] == accuracy


@pytest.mark.parametrize("name", [None, "id", "order"])
def test_a_frame_whose_index_is_the_id_with_labels_that_never_came(name: str | None) -> None:
    came = np.arange(ROWS) % 4 != 0
    rows = frame(label=np.where(came, LABELS, np.nan)).rename_axis(name)
    done = streamcal.backtest(rows, **FEW_MAPS)
    assert done.summary["join"]["joined"] == came.sum()
    assert done.summary["brier_before"] == brier(SCORES[came], LABELS[came])
    frame_of_answers: Any = done.frame
    assert rows.join(frame_of_answers["probability"]).notna()["probability"].all()
    assert len(streamcal.backtest(rows, label_delay="1d", **FEW_MAPS).frame) == ROWS
    with pytest.raises(ValueError, match="index 0: a label must equal 0 or 1, got nan: leave out rows"):
        streamcal.evaluate(rows["label"], rows["score"])
    left = rows.dropna()
    assert streamcal.evaluate(left["label"], left["score"]).brier == brier(SCORES[came], LABELS[came])


def test_two_frames_are_joined_by_their_indices() -> None:
    rows = frame()
    labels = rows[["label"]].assign(time=QUARTERS + pd.Timedelta("1h")).sample(frac=1, random_state=0)
    done = streamcal.backtest(rows.drop(columns="label"), labels, **FEW_MAPS)
    assert done.summary["brier_before"] == brier(SCORES, LABELS)
    with pytest.raises(ValueError, match=r"no column 'id'.*reset_index\(names='id'\) makes the index the id"):
        streamcal.backtest(rows.drop(columns="label").reset_index(drop=True), labels.reset_index(drop=True))


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
    refused = command(*run, tmp_path / "days", status=1)
    assert "give a pattern of the files" in refused.stderr
    files = sorted((tmp_path / "days").glob("*/*.parquet"))
    assert "unexpected extra argument" in command(*run, *files).stderr
    command(*run, f"{tmp_path}/days{pattern}", "--summary", tmp_path / "summary.json", status=0)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["brier_before"] == brier(SCORES, LABELS)
    lazy = pl.scan_parquet(f"{tmp_path}/days{pattern}")
    assert streamcal.backtest(lazy, **FEW_MAPS).summary["brier_before"] == brier(SCORES, LABELS)
