"""Inputs as the world writes them: each path takes what is right, and names what is wrong."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import streamcal
from streamcal import LabelledEvent, Recalibrator, backtest, evaluate, evaluate_classes, onnx, sql
from streamcal.engine.config import EngineOptions, RecalibratorConfig
from streamcal.engine.emissions import Rejected
from streamcal.events.codec import CsvDecoder, JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.fields import Malformed
from streamcal.join.join import Join, JoinConfig
from streamcal.river import Recalibrate
from streamcal.sklearn import StreamingCalibratedClassifier
from tests.command_line import streamcal as streamcal_command

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
COLUMNS = Columns(weight="weight")
USUAL = {"id": "a", "score": 0.25, "label": 1, "time": 1.8e9, "weight": None}
Fields = Mapping[str, Any]


def _engine(**options: Any) -> Recalibrator:
    return Recalibrator(mode="target", window=timedelta(days=30), **options)


def learn_one(fields: Fields) -> None:
    _engine().learn_one(fields["score"], fields["label"], time=fields["time"], weight=fields["weight"])


def learn_many(fields: Fields) -> None:
    score, label, time, weight = ([fields[name]] for name in ("score", "label", "time", "weight"))
    weights = None if weight == [None] else np.array(weight)
    _engine().learn_many(np.array(score), np.array(label), times=np.array(time), weights=weights)


def predict(fields: Fields) -> None:
    engine = _engine()
    assert engine.predict_one(fields["score"]) == engine.predict_many([fields["score"]])[0]


def step(fields: Fields) -> None:
    event = LabelledEvent(
        fields["score"], fields["label"], fields["id"], fields["time"], weight=fields["weight"]
    )
    for emission in _engine().step(event):
        if isinstance(emission, Rejected):
            raise ValueError(emission.reason)  # noqa: TRY004


def segments(fields: Fields) -> None:
    engine = _engine(segments=["country"])
    engine.learn_one(
        fields["score"], fields["label"], segments="NL", time=fields["time"], weight=fields["weight"]
    )


def river(fields: Fields) -> None:
    Recalibrate("p").learn_one({"p": fields["score"]}, fields["label"], w=fields["weight"] or 1.0)


def frames(fields: Fields) -> None:
    weight = {} if fields["weight"] is None else {"weight": fields["weight"]}
    rows = pd.DataFrame([{name: value for name, value in fields.items() if name != "weight"} | weight])
    done = backtest(rows, columns={"weight": "weight"} if weight else None)
    assert done.summary["join"]["joined"] == 1


def json_line(fields: Fields) -> None:
    line = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
    _decoded(JsonDecoder("target", COLUMNS).decode(line))


def csv_row(fields: Fields) -> None:
    rows = io.StringIO()
    csv.writer(rows).writerows([fields.keys(), fields.values()])
    header, row, *_ = rows.getvalue().encode().splitlines()
    _decoded(CsvDecoder(header, "target", COLUMNS).decode(row))


def spark(fields: Fields) -> None:
    """Take a row as a bucket on an executor does; weights are not read, and a bucket has no first time."""
    pytest.importorskip("pyspark")
    from streamcal.spark.buckets import REJECT, _Work

    names = ("id", "time", "score", "label", "key", "domain", "given")
    work = _Work(Join(JoinConfig()), EngineOptions(RecalibratorConfig()))
    work.take(pd.DataFrame([{name: fields.get(name) for name in names}]))
    for row in work.outcomes().itertuples():
        if row.kind == REJECT:
            raise ValueError(bytes(row.payload).decode())


def _decoded(event: Any) -> None:
    if isinstance(event, Malformed):
        raise ValueError(event.reason)  # noqa: TRY004


ALONE = (learn_one, learn_many, step, segments, river)
FILES = (json_line, csv_row)
TIMED = (learn_one, learn_many, step, segments, frames)
WITH_IDS = (step, frames, *FILES, spark)
ALL = (*ALONE, predict, frames, *FILES, spark)


class Row(NamedTuple):
    """One input: its fields that are unusual, the words of its refusal (None: it is right), and its paths."""

    name: str
    fields: dict[str, Any]
    refusal: str | None = None
    paths: tuple[Callable[[Fields], None], ...] = ALL


ROWS = [
    Row("a usual event", {}),
    Row("a date of digits", {"time": 20260131}, "20260131 .* digits of a date: write '2026-01-31'", TIMED),
    Row("a day of Excel", {"time": 46053}, "46053 .* day of Excel: write '2026-01-31'", TIMED),
    Row("days since 1970", {"time": 20484.5}, "20484.5 .* days since 1970: write '2026-01-31'", TIMED),
    Row("seconds from 0 on", {"time": 0.0}, None, TIMED),
    Row("milliseconds", {"time": 1.8e12}, None, TIMED),
    Row("1 + 2⁻⁵²", {"score": 1.0000000000000002}),
    Row("1 of float32, a step above", {"score": float(np.nextafter(np.float32(1), np.float32(2)))}),
    Row("−1e-17", {"score": -1e-17}),
    Row("no rounding", {"score": 1.001}, r"number in \[0, 1\], got 1\.001"),
    Row("an id of 61 bits", {"id": 2**60 + 1}, None, WITH_IDS),
    Row("an id that is no exact float", {"id": 2.0**53}, "9007199254740992.0", (step, frames, json_line)),
    Row("below 0", {"score": -0.01}, r"number in \[0, 1\], got -0\.01"),
]

MASKED = np.ma.array([0.0, 1.0, 1.0], mask=[False, True, False])
RIGHT = {"scores": [0.25, 0.5, 0.75], "labels": [0, 1, 1]}


@pytest.mark.parametrize("name", ["scores", "labels", "times", "weights"])
@pytest.mark.parametrize("engine", [Recalibrator(), Recalibrator(segments=["s"])])
def test_masked_values_are_refused(engine: Recalibrator, name: str) -> None:
    options = {} if engine.by_segment is None else {"segments": ["NL", "PL", "NL"]}
    with pytest.raises(ValueError, match=f"index 1: {name} must not be masked"):
        engine.learn_many(**RIGHT | {name: MASKED} | options)
    assert engine.target.labels == 0


def test_weights_that_sum_to_1_teach_the_same() -> None:
    rng = np.random.default_rng(0)
    scores, weights = rng.random(2_000), rng.random(2_000) + 0.1
    labels, means = rng.random(2_000) < scores, weights / weights.mean()
    whole, shares, short = (Recalibrator(mode="target") for _ in range(3))
    whole.learn_many(scores, labels, weights=means)
    shares.learn_many(scores, labels, weights=means / 2_000)
    short.learn_many(scores, labels, weights=(means / 2_000).astype(np.float32))
    at = np.linspace(0.0, 1.0, 50)
    for engine in (shares, short):
        assert engine.predict_many(at) == pytest.approx(whole.predict_many(at), abs=1e-6)
    with pytest.raises(ValueError, match="index 0: a weight must be a number from 1e-9"):
        shares.learn_many(scores, labels, weights=np.full(2_000, 1e-10))
    model = StreamingCalibratedClassifier(LogisticRegression())
    model.fit(scores[:, None], labels, sample_weight=means / 2_000)
    assert model.engine_.source.labels == 2_000


@pytest.mark.parametrize("names", [[10, 20, 30], [1, 2, 3], np.array([3, 1, 2])])
def test_whole_numbers_name_classes(names: Any) -> None:
    rows, texts = np.full((3, 3), 1 / 3), [*map(str, names)]
    by_number, by_text = Recalibrator(classes=names), Recalibrator(classes=texts)
    by_number.learn_many(rows, names)
    by_text.learn_many(rows, texts)
    assert by_number.to_bytes() == by_text.to_bytes()
    for name in names:
        by_number.learn_one(rows[0], name)
        Recalibrator.from_bytes(by_text.to_bytes()).learn_one(rows[0], name)
    with pytest.raises(ValueError, match="a label must be the name of a class, got 0; the classes are"):
        by_number.learn_one(rows[0], 0)
    assert evaluate_classes(names, rows, classes=names).labels == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{}, {"segments": ["s"]}, {"classes": ["a", "b", "c"]}])
def test_threads_that_learn_wait_for_one_another(kind: dict[str, Any]) -> None:
    """Six threads learn while one predicts; without a lock, all but a few calls fail or end the process."""
    rng, engine, failures, done = np.random.default_rng(0), Recalibrator(**kind), list[str](), Event()
    scores = rng.dirichlet(np.ones(3), 20) if "classes" in kind else rng.random(20)
    more: dict[str, Any] = {"segments": ["NL", "PL"] * 10} if "segments" in kind else {}

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except Exception:
            failures.append(traceback.format_exc())

    def learn() -> None:
        for _ in range(30):
            run(lambda: engine.learn_many(scores, rng.integers(0, 2, 20), **more))
            run(engine.to_bytes)

    def predict() -> None:
        while not done.is_set():
            run(lambda: engine.predict_many(scores, **more))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        learners, reader = [Thread(target=learn) for _ in range(6)], Thread(target=predict)
        for thread in (*learners, reader):
            thread.start()
        for thread in learners:
            thread.join()
        done.set()
        reader.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert engine.target.labels == 6 * 30 * 20


def test_a_quiet_run_says_only_what_needs_a_look() -> None:
    right = b'{"id":"a","score":0.5}\n{"id":"a","label":1}\n'
    run = ("run", "--events", "-", "--output", "-", "--quiet")
    done = streamcal_command(*run, stdin=right)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
    assert "score must be a number" in streamcal_command(*run, stdin=right + b'{"id":"b","score":7}\n').stderr


@pytest.mark.parametrize("library", [pd, pl])
def test_labels_of_a_backtest_may_come_later_in_the_same_frame(library: Any) -> None:
    days = [86_400.0 * day for day in range(6)]
    columns = {"id": [*"abcdef"], "score": [0.1, 0.9] * 3, "label": [0, 1, 0, None, 0, 1], "time": days}
    later = [day + 2 * 86_400.0 for day in days]
    rows = library.DataFrame(columns | {"known": later})
    if library is pd:
        rows.index = [*range(7, 13)]
    labels = library.DataFrame({name: columns[name] for name in ("id", "label")} | {"time": later})
    expected = backtest(
        library.DataFrame(columns | {"label": [None] * 6}).drop(columns="label")
        if library is pd
        else rows.drop("label", "known"),
        labels,
    )
    simulated: tuple[dict[str, Any], ...] = {"label_delay": "2d"}, {"label_delay": timedelta(days=2)}
    for options in ({"label_time": "known"}, {"columns": {"label_time": "known"}}, *simulated):
        done = backtest(rows, **options)
        assert done.summary == expected.summary
        assert done.summary["join"]["joined"] == 5
    for options, words in (
        ({"label_time": "knwon"}, "no column 'knwon': they have 'id'"),
        ({"label_delay": "2 moons"}, r"at least 0 seconds, such as .* got .2 moons."),
        ({"label_delay": "-P2D"}, "at least 0 seconds"),
        ({"label_delay": "2d", "label_time": "known"}, "give one of"),
    ):
        with pytest.raises(ValueError, match=words):
            backtest(rows, **options)


def test_rejects_of_a_backtest_are_a_frame() -> None:
    rows = pd.DataFrame({"id": [*"ab"], "score": [0.5, 7.0], "label": [0, 1]})
    found = backtest(rows).rejected
    assert isinstance(found, pd.DataFrame)
    assert found[["line", "code"]].values.tolist() == [[2, "bad_score"]]
    assert len(backtest(rows[:1]).rejected) == 0


CLASSES = ("cat", "dog", "fox")
CLASS_COLUMNS = Columns(classes=CLASSES, class_sums="renormalise")


def classes_one(scores: Any) -> None:
    Recalibrator(classes=CLASSES).learn_one(np.array(scores), "dog")


def classes_many(scores: Any) -> None:
    Recalibrator(classes=CLASSES).learn_many([scores], ["dog"])


def classes_step(scores: Any) -> None:
    Recalibrator(classes=CLASSES).step(LabelledEvent(max(scores), "dog", "a", kept=tuple(scores)))


def classes_frames(scores: Any, columns: Columns = CLASS_COLUMNS) -> None:
    row = {f"p_{name}": score for name, score in zip(CLASSES, scores, strict=True)}
    done = backtest(pd.DataFrame([{"id": "a", "label": "dog", **row}]), columns=columns)
    assert len(done.frame) == 1


def classes_json(scores: Any, columns: Columns = CLASS_COLUMNS) -> None:
    line = json.dumps({"id": "a", "label": "dog", "scores": dict(zip(CLASSES, scores, strict=True))})
    _decoded(JsonDecoder("target", columns).decode(line.encode()))


CLASS_PATHS = (classes_one, classes_many, classes_step, classes_frames, classes_json)


@pytest.mark.parametrize("path", CLASS_PATHS)
def test_rounded_scores_of_classes_are_taken(path: Callable[..., None]) -> None:
    path([1.0000000000000002, -1e-17, 0.0])
    path([0.3333333, 0.3333333, 0.3333333])
    with pytest.raises(ValueError, match="sum"):
        path([0.3, 0.3, 0.3])


@pytest.mark.parametrize("path", [classes_frames, classes_json])
def test_sums_of_scores_with_few_digits_are_renormalised_when_asked(path: Callable[..., None]) -> None:
    path([0.3331, 0.3331, 0.3332])
    with pytest.raises(ValueError, match=r"a sum of 0\.9994; class_sums = 'renormalise'"):
        path([0.3331, 0.3331, 0.3332], CLASS_COLUMNS.model_copy(update={"class_sums": "exact"}))


def test_half_precision_is_a_precision() -> None:
    rows = np.random.default_rng(0).dirichlet(np.ones(100), 50).astype(np.float16)
    assert np.abs(rows.astype(float).sum(axis=1) - 1.0).max() > 1e-5
    engine = Recalibrator(classes=[*map(str, range(100))])
    assert engine.predict_many(rows).sum(axis=1) == pytest.approx(1.0)
    assert Recalibrator().predict_many(np.array([1.001, 0.5], np.float16))[1] == 0.5


def outcome(row: Row, path: Callable[[Fields], None]) -> str:
    """Return what a path says of a row: nothing if it takes it."""
    try:
        path(USUAL | row.fields)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("row", "path"),
    [pytest.param(row, path, id=f"{row.name}-{path.__name__}") for row in ROWS for path in row.paths],
)
def test_every_path_takes_what_is_right_and_says_what_is_wrong(
    row: Row, path: Callable[[Fields], None]
) -> None:
    said = outcome(row, path)
    assert (said == "") == (row.refusal is None), said
    assert re.search(row.refusal or "", said), said


def two_inputs() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return predictions of one half, and labels 1 half an hour later of every second one."""
    times = 1.8e9 + 2.0 * np.arange(2000)
    predictions = pd.DataFrame({"id": np.arange(2000).astype(str), "score": 0.5, "time": times})
    labels = pd.DataFrame({"id": predictions.id, "label": 1, "time": times + 1800.0})
    return predictions, labels[1::2].reset_index(drop=True)


def one_clock_ahead(labels: pd.DataFrame) -> pd.DataFrame:
    return labels.assign(time=labels.time + 86_400.0 * (labels.index == 100))


def first_clock_ahead(labels: pd.DataFrame) -> pd.DataFrame:
    return labels.assign(time=labels.time + 86_400.0 * (labels.index == 0))


def times_of_another_name(labels: pd.DataFrame) -> pd.DataFrame:
    return labels.rename(columns={"time": "known_at"})


def two_thirds_without_times(labels: pd.DataFrame) -> pd.DataFrame:
    return labels.assign(time=labels.time.where(labels.index % 3 == 0))


JOIN = {"missing_labels": "negative", "label_delay_limit": "PT1H"}
WRONG = {
    one_clock_ahead: (1, 1),
    first_clock_ahead: (1, 1),
    times_of_another_name: None,
    two_thirds_without_times: (666, 0),
}
"""Mistakes in labels: how many are rejected, and how many 1 learned as 0; None: nothing is read."""
STREAMS = ("jsonl", "csv", "parquet", "frames")


def of_stream(form: str, wrong: Callable[[pd.DataFrame], pd.DataFrame], folder: Path) -> tuple[int, int]:
    """Return how many labels were rejected, and how many 1 were learned as 0; ValueError if it is refused."""
    predictions, labels = two_inputs()
    if form == "frames":
        summary = backtest(predictions, wrong(labels), join=JOIN).summary
        return summary["rejected"], summary["join"]["contradicted"]
    paths = folder / f"predictions.{form}", folder / f"labels.{form}"
    for path, frame in zip(paths, (predictions, wrong(labels)), strict=True):
        match form:
            case "jsonl":
                rows = [row.dropna().to_dict() for _, row in frame.iterrows()]
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            case "csv":
                frame.to_csv(path, index=False)
            case _:
                frame.to_parquet(path)
    config, summary_file = folder / "join.toml", folder / "summary.json"
    config.write_text("[join]\n" + "".join(f"{name} = {value!r}\n" for name, value in JOIN.items()))
    inputs = "--events", paths[0], "--labels", paths[1], "--time", "time", "--config", config
    done = streamcal_command("run", *inputs, "--output", folder / "out.jsonl", "--summary", summary_file)
    if not summary_file.exists():
        raise ValueError(done.stderr)
    summary = json.loads(summary_file.read_text())
    return summary["rejected"], summary["join"]["contradicted"]


@pytest.mark.slow
@pytest.mark.parametrize("form", STREAMS)
@pytest.mark.parametrize("wrong", WRONG)
def test_no_path_believes_a_mistake_in_all_labels(
    form: str, wrong: Callable[[pd.DataFrame], pd.DataFrame], tmp_path: Path
) -> None:
    if WRONG[wrong] is None:
        with pytest.raises(ValueError, match=r"no column|and none in the first events of \S+"):
            of_stream(form, wrong, tmp_path)
    else:
        assert of_stream(form, wrong, tmp_path) == WRONG[wrong]


def test_masked_values_are_refused_elsewhere() -> None:
    three = Recalibrator(classes=["a", "b", "c"])
    rows = np.ma.array(np.full((3, 3), 1 / 3), mask=np.eye(3, k=-1) > 1)
    rows[1, 2] = np.ma.masked
    for call in (
        lambda: three.predict_many(rows),
        lambda: three.learn_many(np.full((3, 3), 1 / 3), MASKED),
        lambda: evaluate(MASKED, RIGHT["scores"]),
        lambda: evaluate_classes(RIGHT["labels"], rows),
        lambda: StreamingCalibratedClassifier().fit(np.eye(3), MASKED),
        lambda: StreamingCalibratedClassifier().fit(np.eye(3), RIGHT["labels"], sample_weight=MASKED),
    ):
        with pytest.raises(ValueError, match=r"index 1: .* must not be masked"):
            call()
    Recalibrator().learn_many(np.ma.array(RIGHT["scores"]), np.ma.array(RIGHT["labels"]))


def test_labels_of_three_classes_need_their_names_or_a_positive_one() -> None:
    rows = pd.DataFrame({"id": [*map(str, range(90))], "score": 0.5, "label": [0, 1, 2] * 30})
    with pytest.raises(ValueError, match="labels name more classes than 0 and 1: others, such as 2, were"):
        backtest(rows)
    assert backtest(rows, columns={"positive": 1}).summary["join"]["joined"] == 60


@pytest.mark.parametrize("export", [onnx.model, lambda map_: sql.query(map_, "postgres")])
@pytest.mark.parametrize("kind", [{}, {"segments": ["s"]}, {"classes": ["a", "b", "c"]}])
def test_only_maps_are_exported(export: Any, kind: dict[str, Any]) -> None:
    engine = Recalibrator(**kind)
    for wrong in (engine, engine.by_segment, '{"version": 0}', None):
        with pytest.raises(TypeError, match=r"only a RecalibrationMap .*, got .*take its map; of a segment"):
            export(wrong)
    if "classes" in kind and export is not onnx.model:
        with pytest.raises(TypeError, match=r"got MulticlassMap\(.*goes to onnx.model"):
            export(engine.map)
    else:
        export(engine.map)


def test_messages_name_what_there_is() -> None:
    with pytest.raises(TypeError, match="unknown option 'bin': did you mean 'bins'"):
        Recalibrator(bin=3)
    lazy = pl.DataFrame({"label": [0, 1]}).lazy()
    with pytest.raises(TypeError, match="labels are a polars LazyFrame, which is not computed yet"):
        evaluate(lazy, [0.9, 0.2])
    assert {"evaluate", "backtest"} <= {*dir(streamcal)}
