"""The option keeps_order: the class with the highest score has the highest probability, in every face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamcal import Recalibrator
from tests.multiclass.test_faces import NAMES
from tests.multiclass.test_recalibrator import drawn, names, played
from tests.multiclass.test_run import CLASSES, read, run, write

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
    path = write(tmp_path / "e.jsonl", given)
    run(*CLASSES, "--config", options, "--events", path, "--output", out)
    served = np.array([[row["probabilities"][name] for name in NAMES] for row in read(out)])
    np.testing.assert_array_equal(served.argmax(axis=1), scores.argmax(axis=1))
    assert abs(served - scores).max() > 0.1
    said = run("--config", options, "--events", path, "--output", tmp_path / "p", expect=2)
    assert "keeps_order=True is for many classes: name them in classes" in " ".join(said.split())
