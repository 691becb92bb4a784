"""Corrections of many classes: counts as if the first label had never been, in the engine and in a run."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from streamcal import LabelEvent, MulticlassRecalibrator, PredictionEvent, Recalibrator
from streamcal.errors import DamagedStateError
from streamcal.join.config import JoinConfig
from streamcal.join.entries import Pending, Settled
from streamcal.join.id_table_c import IdTable
from streamcal.join.join_c import Join
from streamcal.run.config import RunConfig
from tests.multiclass.test_faces import NAMES
from tests.multiclass.test_recalibrator import drawn, log_loss, names, played
from tests.multiclass.test_run import CLASSES, CRASH, KILLS, events, read, run, write

Events = list[dict[str, Any]]


def taught(options: dict[str, Any], labels: Any, scores: Any, domain: Any) -> MulticlassRecalibrator:
    engine = MulticlassRecalibrator(names(scores.shape[1]), **options)
    for index, row in enumerate(scores):
        engine.observe_one(row)
        engine.learn_one(row, int(labels[index]), domain)
    return engine


@pytest.mark.parametrize(
    ("mode", "domain"), [("target", "target"), ("source", "source"), ("composite", "source")]
)
def test_a_corrected_label_has_never_been_where_labels_are_counted(domain: Any, mode: Any) -> None:
    """The modes that serve counts: after the next version, what is served is that of the right labels."""
    scores, labels, _ = drawn(300, (1.0, 0.0, -1.0, 0.5), 20)
    wrong = np.where(np.arange(300) % 3 == 0, (labels + 1) % 4, labels)
    right, mended = (taught({"mode": mode}, each, scores, domain) for each in (labels, wrong))
    for row, label, before in zip(scores, labels, wrong, strict=True):
        mended.relabel_one(row, int(label), int(before), domain)
    assert mended.priors == right.priors
    more, later, _ = drawn(100, (1.0, 0.0, -1.0, 0.5), 21)
    for engine in (right, mended):
        engine.learn_many(more, later, domain)  # so that all maps are formed anew
    np.testing.assert_array_equal(mended.predict_many(scores), right.predict_many(scores))


@pytest.mark.parametrize("at", [0, 3, 40])
def test_two_classes_correct_as_the_binary_engine_does(at: int) -> None:
    scores, labels, _ = drawn(64, (0.0, -1.0), 22)
    two, one = MulticlassRecalibrator(["no", "yes"]), Recalibrator(join=JoinConfig(corrections=True))
    row = {"no": 1.0 - scores[at, 1], "yes": scores[at, 1]}
    for index, (score, label) in enumerate(zip(scores[:, 1].tolist(), labels.tolist(), strict=True)):
        one.step(PredictionEvent(str(index), score))
        one.step(LabelEvent(str(index), label))
        carried = two.carry([1.0 - score, score])
        two.observe_one([1.0 - score, score])
        two.learn_one([1.0 - score, score], label, carried=carried)
    one.step(LabelEvent(str(at), 1 - int(labels[at])))
    two.relabel_one(row, 1 - int(labels[at]), int(labels[at]), prediction_index=at)
    np.testing.assert_array_equal(two.predict_many(scores)[:, 1], one.predict_many(scores[:, 1]))
    assert two.priors[1] == pytest.approx({"no": 1.0 - one.target.prior, "yes": one.target.prior})


@pytest.mark.statistical
@pytest.mark.parametrize("count", [3, 70])
def test_corrections_remove_the_shift_that_wrong_labels_caused(count: int) -> None:
    """A class is labelled as another half of the time; all are corrected, then 500 right labels come.

    What is left is log loss beyond that of the engine that only saw right labels. With this seed .11 of what
    the wrong labels cost is left of 3 classes, and .05 of 70; .43 and .97 if online scalings keep the first
    labels.
    """
    scores, labels, _ = drawn(3_000, np.linspace(1.0, -1.0, count), 23, 0.6)
    rng = np.random.default_rng(24)
    wrong = np.where((labels % 3 == 0) & (rng.random(3_000) < 0.5), (labels + 1) % count, labels)
    tried, truth, _ = drawn(4_000, np.linspace(1.0, -1.0, count), 25, 0.6)
    lost = {}
    for name, seen in {"right": labels, "wrong": wrong, "mended": wrong}.items():
        engine = MulticlassRecalibrator(names(count))
        for begin in range(0, 2_500, 100):
            part = slice(begin, begin + 100)
            carried = engine.carry_many(scores[part])
            carried[:, 0] += np.arange(100)
            engine.observe_many(scores[part])
            engine.learn_many(scores[part], seen[part], carried=carried)
        if name == "mended":
            for index in np.flatnonzero(wrong[:2_500] != labels[:2_500]):
                engine.relabel_one(
                    scores[index], int(labels[index]), int(wrong[index]), prediction_index=int(index)
                )
        played(engine, scores[2_500:], labels[2_500:])
        lost[name] = log_loss(engine.predict_many(tried), truth)
    assert lost["mended"] - lost["right"] < 0.25 * (lost["wrong"] - lost["right"])


def test_a_state_goes_on_after_corrections() -> None:
    scores, labels, _ = drawn(200, (0.0, 0.0, 0.0), 26)
    engine = MulticlassRecalibrator(names(3))
    engine.observe_many(scores)
    for index in range(150):
        engine.learn_one(scores[index], int(labels[index]))
    for index in (0, 5, 149):
        engine.relabel_one(scores[index], (int(labels[index]) + 1) % 3, int(labels[index]))
    restored = MulticlassRecalibrator.from_bytes(engine.to_bytes())
    assert restored.to_bytes() == engine.to_bytes()
    for each in (engine, restored):
        each.relabel_one(scores[7], (int(labels[7]) + 2) % 3, int(labels[7]))
        each.learn_many(scores[150:], labels[150:])
    assert restored.to_bytes() == engine.to_bytes()


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, ("d", "a"), "got 'd'"),
        ({}, ("a", 3), "got 3"),
        ({}, ("a", "b", "elsewhere"), "'source' or 'target'"),
        ({"window": 100}, ("a", "b"), "cannot be replaced: window=100 keeps the latest labels"),
        ({"prior_window": 50}, ("a", "b"), "cannot be replaced: .*prior_window=50"),
    ],
)
def test_a_correction_that_cannot_be_is_refused(options: Any, arguments: Any, message: str) -> None:
    engine = MulticlassRecalibrator(["a", "b", "c"], **options)
    state = engine.to_bytes()
    with pytest.raises(ValueError, match=message):
        engine.relabel_one([0.5, 0.25, 0.25], *arguments)
    assert engine.to_bytes() == state


# In a run


def corrected(count: int, delay: int, keys: Any = (None,)) -> Events:
    """Return events in which every fifth label is wrong at first; the right one comes 30 events later."""
    found: Events = []
    waiting: list[tuple[int, dict[str, Any]]] = []
    for place, event in enumerate(events(count, delay, keys)):
        if "label" in event and int(event["id"][1:]) % 5 == 0:
            waiting.append((place + 30, event))
            wrong = NAMES[(NAMES.index(event["label"]) + 1) % 3]
            event = event | {"label": wrong}
        found.append(event)
        while waiting and waiting[0][0] <= place:
            found.append(waiting.pop(0)[1] | {"time": event["time"]})
    return found + [event | {"time": float(count + delay)} for _, event in waiting]


OPTIONS = "[join]\ncorrections = true\n"


def configured(tmp_path: Path) -> tuple[object, ...]:
    path = tmp_path / "o.toml"
    path.write_text(OPTIONS)
    return (*CLASSES, "--config", path)


def test_a_run_serves_what_the_engine_in_memory_serves(tmp_path: Path) -> None:
    given = corrected(400, 40)
    out, summary, rejects = (tmp_path / name for name in ("out.jsonl", "s.json", "r.jsonl"))
    path = write(tmp_path / "e.jsonl", given)
    wanted = ("--output", out, "--summary", summary, "--rejects", rejects)
    run(*configured(tmp_path), "--events", path, *wanted)
    engine, expected = MulticlassRecalibrator(NAMES), []
    held: dict[str, Any] = {}
    learned: dict[str, str] = {}
    for event in given:
        id_ = event["id"]
        if "scores" in event:
            row = [*event["scores"].values()]
            expected.append(engine.predict_one(row))
            held[id_] = row, engine.carry(row), engine.prediction_count
            engine.observe_one(row)
        elif id_ not in learned:
            engine.learn_one(held[id_][0], event["label"], carried=held[id_][1])
        else:
            engine.relabel_one(held[id_][0], event["label"], learned[id_], prediction_index=held[id_][2])
        learned |= {id_: event["label"]} if "label" in event else {}
    served = np.array([[row["probabilities"][name] for name in NAMES] for row in read(out)])
    assert np.abs(served - np.array(expected)).max() < 1e-12
    figures = json.loads(summary.read_text())
    assert (figures["join"]["joined"], figures["join"]["corrected"]) == (400, 80)
    assert figures["join"]["duplicate"] == 0
    assert not rejects.exists() or not rejects.read_text()


def test_a_run_that_resumes_corrects_what_it_had_learned(tmp_path: Path) -> None:
    given = corrected(300, 40)
    whole, parts, path = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl", tmp_path / "e.jsonl"
    options = configured(tmp_path)
    run(*options, "--events", write(path, given), "--output", whole)
    for until in (90, 91, 200, 350, len(given)):
        made = ("--store", tmp_path / "s.db", "--output", parts)
        run(*options, "--events", write(path, given[:until]), *made)
    assert parts.read_text() == whole.read_text()
    run(*CLASSES, "--events", path, "--output", tmp_path / "plain.jsonl")
    assert (tmp_path / "plain.jsonl").read_text() != whole.read_text(), "corrections change what is served"


@pytest.mark.crash
def test_killed_and_yet_the_same(tmp_path: Path) -> None:
    """The rows of the output, and every byte of state, after kills at random moments."""
    path = write(tmp_path / "e.jsonl", corrected(800, 150, ("x", "y")))
    kept: list[Any] = []
    seconds = 0.0
    for kills in (0, KILLS):
        folder = tmp_path / str(kills)
        folder.mkdir()
        made = ["--store", str(folder / "s.db"), "--output", str(folder / "o.jsonl")]
        arguments = ["run", *map(str, configured(tmp_path)), "--events", str(path), *made]
        life = str(seconds / KILLS)
        done = subprocess.run(
            [sys.executable, CRASH, "12", str(kills), life, "50", "--", *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        last, killed = done.stdout.split()[-3::2]
        assert int(killed) == kills
        seconds = seconds or float(last)
        with closing(sqlite3.connect(folder / "s.db")) as database:
            engines = database.execute("SELECT key, state FROM engines ORDER BY key").fetchall()
        kept.append((read(folder / "o.jsonl"), engines))
    assert kept[0] == kept[1]


def test_options_that_follow_labels_in_their_order_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "e.jsonl", events(10, 1))
    more = ("--window", "100", "--events", path, "--output", tmp_path / "o")
    said = run(*configured(tmp_path), *more, expect=2)
    assert "window=100 keeps the latest labels" in " ".join(said.split())
    RunConfig.model_validate({"columns": {"classes": NAMES}, "join": {"corrections": True}})


def test_what_the_join_keeps_of_a_learned_prediction_is_checked() -> None:
    rows = IdTable()
    rows.classes = 3
    held = Pending(None, 0.5, 0.5, "target", None, told=(2, None))
    rows.put("a", Settled(None, 2, held))
    for told in (3, 999):
        with pytest.raises(ValueError, match=f"a label of none of 3 classes: {told}"):
            rows.put(f"b{told}", Settled(None, 1, msgspec.structs.replace(held, told=(told, None))))
    with pytest.raises(DamagedStateError):
        Join.from_bytes(Join().to_bytes().replace(b'"pending":{}', b'"pending":{"a":[null,0.5]}'))
