"""The portable map of many classes: the answers of the engine, its JSON, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from streamcal import Recalibrator
from streamcal.engine.multiclass.class_map import MulticlassMap
from tests.command_line import in_process, read_lines, write_lines
from tests.engine.multiclass.test_faces import NAMES
from tests.engine.multiclass.test_recalibrator import drawn, names, played
from tests.engine.multiclass.test_run import CLASSES, events, run


def learned(classes: int, *, sourced: bool = True, **options: Any) -> Recalibrator:
    """Return an engine that has learned."""
    engine = Recalibrator(classes=names(classes), **options)
    scores, labels, _ = drawn(900, np.linspace(-1.0, 1.0, classes), 3, slope=0.6)
    if sourced:
        engine.learn_many(scores[:500], labels[:500], "source")
    if options.get("mode") != "source":
        for start in range(500, 900, 50):
            part = slice(start, start + 50)
            engine.observe_many(scores[part])
            engine.learn_many(scores[part], labels[part])
    return engine


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "composite", "target"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("more", [{}, {"prior": "scores"}])
@pytest.mark.filterwarnings("ignore:mode")
def test_it_answers_as_the_engine(mode: str, classes: int, more: dict[str, Any]) -> None:
    engine = learned(classes, mode=mode, **more)
    rows = drawn(200, np.zeros(classes), 4)[0]
    rows[0] = np.eye(classes)[0]
    restored = MulticlassMap.model_validate_json(engine.map.model_dump_json())
    assert restored == engine.map
    assert restored.predict_many(rows).tobytes() == engine.predict_many(rows).tobytes()
    assert restored.version == engine.target.labels


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda m: m.update(classes=["a", "b"]), "3 maps for 2 classes"),
        (lambda m: m["candidates"][0].update(weight=0.9), "must sum to 1"),
        (
            lambda m: m["candidates"][0].update(name=m["candidates"][1]["name"]),
            "two candidates have one name",
        ),
        (lambda m: m["candidates"][0].update(parameters=[1.0]), "wrong parameters of 'identity': 1 for 3"),
        (lambda m: m["candidates"][-1].update(parameters=[1.0, 1.0, -1.0]), "wrong parameters of 'comp"),
    ],
)
def test_wrong_maps_are_refused(change: Any, word: str) -> None:
    fields = json.loads(learned(3).map.model_dump_json())
    change(fields)
    with pytest.raises(ValidationError, match=word):
        MulticlassMap.model_validate(fields)


def test_the_schema_in_docs_is_the_models() -> None:
    path = Path(__file__).parents[3] / "docs" / "multiclass-map.schema.json"
    assert json.loads(path.read_text()) == MulticlassMap.model_json_schema()


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_apply_gives_what_the_run_served_last(tmp_path: Path, form: str) -> None:
    scores = drawn(5, np.zeros(3), 9)[0]
    last: list[dict[str, Any]] = [
        {
            "id": f"b{index}",
            "scores": dict(zip(NAMES, row, strict=True)),
            "key": "DE",
            "time": 1e6,
            "note": "x",
        }
        for index, row in enumerate(scores.tolist())
    ]
    path = write_lines(tmp_path / "events.jsonl", [*events(400, 20, ["DE"]), *last])
    kept = ("--keep", "note", "--output", tmp_path / "run.jsonl")
    run(*CLASSES, "--events", path, *kept, "--map", tmp_path / "map.json")
    served = read_lines(tmp_path / "run.jsonl")[-5:]
    found = tmp_path / "map.DE.json"

    again = write_lines(tmp_path / "again.jsonl", last)
    if form == "csv":
        columns = {f"p_{name}": scores[:, place] for place, name in enumerate(NAMES)}
        more = {name: [row[name] for row in last] for name in ("id", "key", "time", "note")}
        again = tmp_path / "again.csv"
        pl.DataFrame(more | columns).write_csv(again)
    outputs = ["--keep", "note", "--output", tmp_path / "o.jsonl"]
    in_process("apply", "--map", found, "--events", again, *outputs, status=0)
    applied = read_lines(tmp_path / "o.jsonl")
    assert [row.pop("map_version") for row in applied] == [400] * 5
    for row in served:
        row.pop("map_version")
    assert applied == served
    assert applied[0]["probabilities"] != applied[0]["scores"]


# The option keeps_order: the class with the highest score has the highest probability, in every face


BIASED = (2.0, 0.0, -2.0)


@pytest.mark.parametrize("count", [2, 3])
def test_an_engine_keeps_the_top_class(count: int) -> None:
    scores, labels, _ = drawn(1_200, BIASED[:count], 30)
    made = {}
    for keeps in (False, True):
        engine = Recalibrator(classes=names(count), keeps_order=keeps)
        engine.learn_many(scores[:300], labels[:300], "source")
        made[keeps] = played(engine, scores[300:], labels[300:])
    top = scores[300:].argmax(axis=1)
    np.testing.assert_array_equal(made[True].argmax(axis=1), top)
    np.testing.assert_allclose(made[True].sum(axis=1), 1.0, atol=1e-12)
    same = made[False].argmax(axis=1) == top
    assert not same.all(), "without the option another class is first"
    np.testing.assert_array_equal(made[True][same], made[False][same])
    restored = Recalibrator.from_bytes(engine.to_bytes())
    assert restored.to_bytes() == engine.to_bytes()
    one = dict(zip(names(count), scores[0].tolist(), strict=True))
    assert restored.predict_one(one) == engine.predict_one(one)


def test_a_run_keeps_it(tmp_path: Path) -> None:
    scores, codes, _ = drawn(500, BIASED, 32)
    given: list[dict[str, Any]] = []
    for index, (row, code) in enumerate(zip(scores.tolist(), codes.tolist(), strict=True)):
        given += [{"id": f"a{index}", "scores": row}, {"id": f"a{index}", "label": NAMES[code]}]
    options, out = tmp_path / "o.toml", tmp_path / "o.jsonl"
    options.write_text("[recalibrator]\nkeeps_order = true\n")
    path = write_lines(tmp_path / "e.jsonl", given)
    run(*CLASSES, "--config", options, "--events", path, "--output", out)
    served = np.array([[row["probabilities"][name] for name in NAMES] for row in read_lines(out)])
    np.testing.assert_array_equal(served.argmax(axis=1), scores.argmax(axis=1))
    assert abs(served - scores).max() > 0.1
    said = run("--config", options, "--events", path, "--output", tmp_path / "p", expect=2)
    assert "keeps_order=True is for many classes: name them in classes" in " ".join(said.split())
