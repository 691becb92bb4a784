"""The option keeps_order: the class with the highest score has the highest probability, in every face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from streamcal import Recalibrator, backtest
from streamcal.river import RecalibratedClassifier
from streamcal.sklearn import StreamingCalibratedClassifier
from tests.multiclass.test_backtest import frames
from tests.multiclass.test_faces import NAMES, Fixed, Given
from tests.multiclass.test_recalibrator import drawn, names, played
from tests.multiclass.test_run import CLASSES, read, run, write

BIASED = (2.0, 0.0, -2.0)


@pytest.mark.parametrize("options", [{}, {"mode": "target"}, {"mode": "composite"}])
@pytest.mark.parametrize("count", [2, 3])
def test_an_engine_keeps_the_top_class(options: Any, count: int) -> None:
    scores, labels, _ = drawn(1_200, BIASED[:count], 30)
    made = {}
    for keeps in (False, True):
        engine = Recalibrator(classes=names(count), keeps_order=keeps, **options)
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Forecasts of")  # the scores are biased
def test_river_scikit_learn_and_a_backtest_keep_it() -> None:
    scores, codes, _ = drawn(800, BIASED, 31)
    labels = np.array(NAMES)[codes]
    model = StreamingCalibratedClassifier(FrozenEstimator(Given().fit(None, None)), keeps_order=True)
    model.fit(scores[:400], labels[:400]).partial_fit(scores[400:], labels[400:])
    np.testing.assert_array_equal(model.predict(scores), np.array(NAMES)[scores.argmax(axis=1)])
    river = RecalibratedClassifier(Fixed(), classes=NAMES, keeps_order=True)
    for row, label in zip(scores, labels, strict=True):
        x = dict(zip(NAMES, row.tolist(), strict=True))
        assert river.predict_one(x) == max(x, key=x.__getitem__)
        river.learn_one(x, label)
    predictions, told = frames(600, 20)
    given = predictions.with_columns(**{f"p_{name}": scores[:600, code] for code, name in enumerate(NAMES)})
    told = told.with_columns(label=labels[:600])
    for keeps in (False, True):
        done = backtest(given, told, columns={"classes": NAMES}, keeps_order=keeps)
        served = done.frame.select([f"probability_{name}" for name in NAMES]).to_numpy()
        assert (served.argmax(axis=1) == scores[:600].argmax(axis=1)).all() == keeps


def test_a_run_keeps_it(tmp_path: Path) -> None:
    scores, codes, _ = drawn(500, BIASED, 32)
    given: list[dict[str, Any]] = []
    for index, (row, code) in enumerate(zip(scores.tolist(), codes.tolist(), strict=True)):
        given += [{"id": f"a{index}", "scores": row}, {"id": f"a{index}", "label": NAMES[code]}]
    options, out = tmp_path / "o.toml", tmp_path / "o.jsonl"
    options.write_text("[recalibrator]\nkeeps_order = true\n")
    path = write(tmp_path / "e.jsonl", given)
    run(*CLASSES, "--config", options, "--events", path, "--output", out)
    served = np.array([[row["probabilities"][name] for name in NAMES] for row in read(out)])
    np.testing.assert_array_equal(served.argmax(axis=1), scores.argmax(axis=1))
    assert abs(served - scores).max() > 0.1
    said = run("--config", options, "--events", path, "--output", tmp_path / "p", expect=2)
    assert "keeps_order=True is for many classes: name them in classes" in " ".join(said.split())


@pytest.mark.parametrize(
    "make",
    [
        lambda: Recalibrator(keeps_order=True),
        lambda: RecalibratedClassifier(Fixed(), keeps_order=True),
        lambda: StreamingCalibratedClassifier(
            FrozenEstimator(Given((0, 1)).fit(None, None)), keeps_order=True
        ).fit(np.full((100, 3), 1 / 3), ["cat", "dog"] * 50),
    ],
    ids=["engine", "river", "scikit-learn"],
)
def test_two_classes_of_one_score_refuse_it(make: Any) -> None:
    with pytest.raises(ValueError, match="keeps_order=True is for many classes"):
        make()
