"""streamcal.spark.learn: engines from a table, equal to the byte to engines of one process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamcal import Recalibrator
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

OPTIONS: dict[str, Any] = {"mode": "composite"}
KEYS = ("DE", None, "FR")
N = 30_000


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    random = np.random.default_rng(5)
    scores, labels = NormalPair(0.4).sample(N, random)
    return pa.table(
        {
            "model": pa.array([KEYS[i] for i in random.integers(0, 3, N)], pa.string()),
            "domain": pa.array(np.where(random.random(N) < 0.7, "source", "target")),
            "score": scores,
            "label": pa.array(labels, pa.int32()),
        }
    )


def of(rows: pa.Table, key: str | None, domain: str) -> ScoreSketch:
    keys = rows["model"].to_pylist()
    mine = np.array([each == key for each in keys]) & (rows["domain"].to_numpy() == domain)
    sketch = ScoreSketch()
    sketch.add(rows["score"].to_numpy()[mine], rows["label"].to_numpy()[mine])
    return sketch


@pytest.fixture(scope="module")
def frame(spark: Any, rows: pa.Table) -> Any:
    return spark.createDataFrame(rows).repartition(5)


def test_the_engine_of_each_key_has_the_bytes_of_one_that_saw_all_rows(frame: Any, rows: pa.Table) -> None:
    from streamcal.spark import learn

    engines = learn(frame, by="model", domain="domain", **OPTIONS)
    assert set(engines) == set(KEYS)
    for key, engine in engines.items():
        one = Recalibrator(**OPTIONS)
        one.learn_sketch(of(rows, key, "source"), "source")
        one.learn_sketch(of(rows, key, "target"), "target")
        assert engine.to_bytes() == one.to_bytes()
        assert engine.certificate is not None
        assert engine.version > 1


# What docs/spark.md shows, on the flights' place a small table


PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
APPLY, ENGINES, LEARN, SKETCHES, STREAM = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(code: str, names: dict[str, Any]) -> dict[str, Any]:
    exec(compile(code, "docs/spark.md", "exec"), names)
    return names


def test_the_examples_run(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scores, labels = NormalPair(0.4).sample(600, np.random.default_rng(2))
    engine = Recalibrator(mode="source")
    engine.learn_many(scores, labels, "source")
    Path("map.json").write_text(engine.map.model_dump_json())
    predictions = spark.createDataFrame(pa.table({"score": scores}))
    names = run(APPLY, {"predictions": predictions})
    answered = names["answered"].toArrow()["probability"].to_numpy()
    np.testing.assert_allclose(answered, engine.map.predict_many(scores), atol=1e-14)

    segmented = Recalibrator(segments=("country", "device"))
    multiclass = Recalibrator(classes=["cat", "dog", "fox"])
    wide = predictions.selectExpr("score", "'NL' as country", "1 as device")
    scored = predictions.selectExpr("score as p_cat", "1 - score as p_dog", "0 as p_fox")
    given = {"segmented": segmented, "multiclass": multiclass, "predictions": wide, "scored": scored}
    run(ENGINES, given)  # tests/spark/test_column.py has the values of such columns
    assert given["in_segments"].schema["probability"].dataType.simpleString() == "double"
    assert given["of_classes"].schema["probabilities"].dataType.simpleString() == "array<double>"

    table = {"score": scores, "label": labels.astype(np.int32), "domain": ["source", "target"] * 300}
    logs = spark.createDataFrame(pa.table({**table, "model": ["fraud"] * 600}))
    path = str(tmp_path / "logs")  # Spark's own folder is where its first test began
    logs.write.parquet(path)
    names = run(LEARN.replace("logs/2025", path), names | {"spark": spark})
    of = {}
    for name, part in (("source", slice(0, None, 2)), ("target", slice(1, None, 2))):
        of[f"of_the_{name}"] = sketch = ScoreSketch()
        sketch.add(scores[part], labels[part])
    one = run(SKETCHES, {"Recalibrator": Recalibrator, **of})["engine"]
    assert names["engines"]["fraud"].to_bytes() == one.to_bytes()
    assert Path("fraud.json").read_text() == one.map.model_dump_json()
