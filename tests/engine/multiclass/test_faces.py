"""Many classes in scikit-learn and river: the wrappers serve what the engine in memory serves."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from river import base, checks, naive_bayes
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.naive_bayes import GaussianNB

from streamcal import Recalibrator
from streamcal.river import RecalibratedClassifier
from streamcal.sklearn import StreamingCalibratedClassifier

NAMES = ["cat", "dog", "fox"]


class Given(ClassifierMixin, BaseEstimator):
    """Gives the features as the scores, in an order of its own, and learns nothing."""

    def __init__(self, order: Any = (0, 1, 2)) -> None:
        self.order = order

    def fit(self, X: Any, y: Any) -> Given:
        self.classes_ = np.array(NAMES)[list(self.order)]
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(X)[:, list(self.order)]


def stream(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return scores that are too sure, and labels."""
    rng = np.random.default_rng(seed)
    scores = rng.dirichlet(np.full(3, 0.6), count)
    truth = scores**0.5
    truth /= truth.sum(axis=1, keepdims=True)
    codes = (truth.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
    return scores, np.array(NAMES)[np.minimum(codes, 2)]


@pytest.mark.slow
def test_scikit_learn_serves_what_the_engine_serves() -> None:
    scores, labels = stream(1_500)
    model = StreamingCalibratedClassifier(FrozenEstimator(Given((2, 0, 1)).fit(None, None)))
    model.fit(scores[:500], labels[:500])
    engine = Recalibrator(classes=NAMES)
    engine.learn_many(scores[:500], labels[:500], "source")
    for start in (500, 1_000):
        part = slice(start, start + 500)
        assert np.abs(model.predict_proba(scores[part]) - engine.predict_many(scores[part])).max() < 1e-12
        model.partial_fit(scores[part], labels[part])
        engine.learn_many(scores[part], labels[part])
    assert model.classes_.tolist() == NAMES
    assert model.predict(scores).tolist() == np.array(NAMES)[model.predict_proba(scores).argmax(1)].tolist()
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_proba(scores).tolist() == model.predict_proba(scores).tolist()
    assert again.engine_.to_bytes() == model.engine_.to_bytes()


class Fixed(base.Classifier):
    """Gives the features as the scores; says nothing of an event without any."""

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        pass

    def predict_proba_one(self, x: dict[str, Any]) -> Any:
        return x


def test_river_serves_what_the_engine_serves() -> None:
    scores, labels = stream(600)
    model = RecalibratedClassifier(Fixed(), classes=NAMES)
    engine = Recalibrator(classes=NAMES)
    memos = []
    for index, row in enumerate(scores):
        x = dict(zip(NAMES, row.tolist(), strict=True))
        served = model.predict_proba_one(x)
        assert list(served) == NAMES
        assert np.abs(np.array([*served.values()]) - engine.predict_one(row)).max() < 1e-12
        memos.append(engine.answer_one(row).memo)
        if (at := index - 40) >= 0:
            model.learn_one(dict(zip(NAMES, scores[at].tolist(), strict=True)), labels[at])
            engine.learn_one(scores[at], labels[at], memo=memos[at])
    assert model.engine.target.labels == 600 - 40
    again = pickle.loads(pickle.dumps(model))
    x = dict(zip(NAMES, scores[0].tolist(), strict=True))
    assert again.predict_proba_one(x) == copy.deepcopy(model).predict_proba_one(x)


def test_river_takes_models_that_do_not_know_all_classes_yet() -> None:
    model = RecalibratedClassifier(Fixed(), classes=NAMES)
    assert model.predict_proba_one({}) == pytest.approx(dict.fromkeys(NAMES, 1 / 3))
    assert model.predict_proba_one({"dog": 0.4, "cat": 0.4})["fox"] < 1e-6
    with pytest.raises(ValueError, match="the wrapped model gives 'cow'"):
        model.predict_proba_one({"cow": 1.0})
    with pytest.raises(ValueError, match=r"one of classes=\['cat', 'dog', 'fox'\], got 'cow'"):
        model.learn_one({}, "cow")
    for wrong, word in ((float("nan"), "got nan"), (-0.5, "got -"), (float("inf"), "got inf")):
        with pytest.raises(
            ValueError, match=rf"the score of class '\w+' must be a number in \[0, 1\], {word}"
        ):
            model.predict_proba_one({"cat": wrong, "dog": 1.0, "fox": 0.5})
    with pytest.raises(TypeError, match="must be a river classifier"):
        RecalibratedClassifier(GaussianNB(), classes=NAMES)


@pytest.mark.nightly
def test_it_passes_the_checks_of_river() -> None:
    names = ["brickface", "cement", "foliage", "grass", "path", "sky", "window", False, True]
    model = RecalibratedClassifier(naive_bayes.GaussianNB(), classes=names, mode="target")
    for check in checks.yield_checks(model):
        check(model.clone())
