"""Many classes in backtests and in the evaluation of arrays: against figures computed here."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import log_loss

from streamcal import backtest, evaluate, evaluate_classes
from tests.engine.multiclass.test_faces import NAMES, stream

SPLIT = 15


def frames(count: int, delay: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    scores, labels = stream(count)
    ids, times = [f"a{index}" for index in range(count)], np.arange(count, dtype=float)
    columns = {f"p_{name}": scores[:, code] for code, name in enumerate(NAMES)}
    predictions = pl.DataFrame({"id": ids, "time": times, **columns})
    return predictions, pl.DataFrame({"id": ids, "label": labels, "time": times + delay})


def class_error(p: np.ndarray, codes: np.ndarray) -> float:
    """Return the class-wise calibration error, by the definition."""
    errors = []
    for code in range(p.shape[1]):
        total = 0.0
        for low in range(SPLIT):
            inside = (p[:, code] * SPLIT >= low) & ((p[:, code] * SPLIT < low + 1) | (low == SPLIT - 1))
            if inside.any():
                total += abs(p[inside, code].mean() - (codes[inside] == code).mean()) * inside.mean()
        errors.append(total)
    return float(np.mean(errors))


def test_a_backtest_of_many_classes() -> None:
    predictions, labels = frames(1_200, 50)
    given = predictions.to_pandas()
    told = labels.to_pandas()
    done = backtest(given, told, columns={"classes": NAMES})
    answered = [f"probability_{name}" for name in NAMES]
    assert list(done.frame.columns) == [*predictions.columns, *answered, "map_version"]
    served = np.column_stack([done.frame[name].to_numpy() for name in answered])
    assert np.abs(served.sum(axis=1) - 1.0).max() < 1e-12
    codes = np.array([NAMES.index(label) for label in labels["label"]])
    figures = done.summary["classes"]
    raw = predictions.select([f"p_{name}" for name in NAMES]).to_numpy()
    joined = len(codes)
    for p, when in ((raw, "before"), (served, "after")):
        found = figures[when]
        assert found["accuracy"] == pytest.approx((p.argmax(axis=1) == codes)[:joined].mean())
        assert found["log_loss"] == pytest.approx(log_loss(codes, p, labels=[0, 1, 2]))
        assert found["brier"] == pytest.approx(np.square(p - np.eye(3)[codes]).sum(axis=1).mean())
        assert found["class_ece"] == pytest.approx(class_error(p, codes), abs=1e-12)
    assert figures["after"]["log_loss"] < figures["before"]["log_loss"]
    by_class = pl.DataFrame(done.by_segment)
    assert set(by_class["field"]) == {"class"}
    assert sorted(by_class["segment"]) == NAMES
    for name, gap, brier in by_class.select("segment", "gap", "brier_after").iter_rows():
        ones = codes == NAMES.index(name)
        assert gap == pytest.approx((served[:, NAMES.index(name)] - ones).mean())
        assert brier == pytest.approx(np.square(served[:, NAMES.index(name)] - ones).mean())
    assert done.summary["gap_before"] == pytest.approx(
        (raw.max(axis=1) - (raw.argmax(axis=1) == codes)).mean(), abs=1e-6
    )
    assert "class-wise calibration error" in repr(done)
    assert "decision: calibration error (ECE)" in repr(done)
    (last,) = done.maps  # it has learned what it is judged by, so it is better than what was served
    assert log_loss(codes, last.predict_many(raw), labels=[0, 1, 2]) < figures["after"]["log_loss"]


def test_an_evaluation_of_many_classes() -> None:
    p, labels = stream(3_000)
    codes = np.array([NAMES.index(label) for label in labels])
    found = evaluate_classes(labels, p, classes=NAMES, baseline=np.full_like(p, 1 / 3))
    assert found.log_loss == pytest.approx(log_loss(codes, p, labels=[0, 1, 2]))
    assert found.log_loss_low < found.log_loss < found.log_loss_high
    assert found.class_ece == pytest.approx(class_error(p, codes), abs=1e-12)
    assert found.brier == pytest.approx(found.miscalibration - found.discrimination + found.uncertainty)
    assert found.decision.gap == pytest.approx((p.max(axis=1) - (p.argmax(axis=1) == codes)).mean())
    assert found.classes["cat"].brier == evaluate(codes == 0, p[:, 0]).brier
    assert found.baseline.log_loss == pytest.approx(np.log(3))
    assert found.log_loss_gain == pytest.approx(np.log(3) - found.log_loss)
    first, second, *_ = str(found).splitlines()
    assert first.split("  ")[0] == "3,000 labels of 3 classes"
    assert first.endswith("95 % interval")
    assert second.startswith("accuracy")
    assert evaluate_classes(codes, p).brier == found.brier
