"""Many classes in scikit-learn and river: the wrappers serve what the engine in memory serves."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from river import base, checks, naive_bayes
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

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
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)], ids=["sorted", "another order"])
def test_scikit_learn_serves_what_the_engine_serves(order: tuple[int, ...]) -> None:
    scores, labels = stream(1_500)
    model = StreamingCalibratedClassifier(FrozenEstimator(Given(order).fit(None, None)))
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


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [GaussianNB(), LinearSVC(random_state=0)], ids=["nb", "svc"])
def test_cross_fitting_and_batches_of_many_classes_lower_the_loss(estimator: Any) -> None:
    X, y = make_classification(
        4_000, n_features=12, n_informative=4, n_redundant=6, n_classes=5, random_state=3
    )
    model = StreamingCalibratedClassifier(estimator).fit(X[:2_000], y[:2_000])
    losses = []
    for start in range(2_000, 4_000, 500):
        part = slice(start, start + 500)
        probabilities = model.predict_proba(X[part])
        assert np.abs(probabilities.sum(axis=1) - 1.0).max() < 1e-12
        losses.append(log_loss(y[part], probabilities))
        model.partial_fit(X[part], y[part])
    raw = estimator.fit(X[:2_000], y[:2_000])
    if hasattr(raw, "predict_proba"):
        assert np.mean(losses) < 0.9 * log_loss(y[2_000:], raw.predict_proba(X[2_000:]))
    assert np.mean(losses) < 0.95 * np.log(5)


@pytest.mark.slow
def test_rows_sorted_by_their_label_teach_as_well() -> None:
    """The rows of many tables are; a seeded stream."""
    X, y = make_classification(
        5_000,
        n_features=12,
        n_informative=4,
        n_redundant=6,
        n_classes=5,
        n_clusters_per_class=1,
        random_state=3,
    )
    order = np.argsort(y[:3_000], kind="stable")
    drawn, by_label = (
        log_loss(
            y[3_000:], StreamingCalibratedClassifier(GaussianNB()).fit(X[of], y[of]).predict_proba(X[3_000:])
        )
        for of in (np.arange(3_000), order)
    )
    assert by_label < 1.02 * drawn


def test_segments_are_for_two_classes() -> None:
    scores, labels = stream(100)
    with pytest.raises(ValueError, match="classes and segments exclude each other"):
        StreamingCalibratedClassifier(GaussianNB(), segments=["country"]).fit(scores, labels)
    model = StreamingCalibratedClassifier(GaussianNB()).fit(scores, labels)
    with pytest.raises(ValueError, match=r"one of \['cat', 'dog', 'fox'\], got .*'cow'"):
        model.partial_fit(scores, np.where(labels == "cat", "cow", labels))


@pytest.mark.parametrize("wrong", [float("nan"), -0.5])
def test_scikit_learn_refuses_what_is_no_score(wrong: float) -> None:
    model = StreamingCalibratedClassifier(FrozenEstimator(Given().fit(None, None)))
    rows = np.full((30, 3), 1 / 3)
    rows[4] = wrong, 1.0, 0.5
    with pytest.raises(
        ValueError, match=r"index 4: the score of class 'cat' must be a number in .0, 1., got"
    ):
        model.fit(rows, NAMES * 10)


def test_classes_that_are_numbers_go_by_their_names() -> None:
    """The place of a class, which the wrappers know, is not taken for its name."""
    scores, labels = stream(300)
    numbers = np.array([NAMES.index(label) + 1 for label in labels])
    given = Given()
    given.classes_ = np.array([1, 2, 3])
    model = StreamingCalibratedClassifier(FrozenEstimator(given)).fit(scores, numbers)
    river = RecalibratedClassifier(Fixed(), classes=[1, 2, 3])
    engine = Recalibrator(classes=["1", "2", "3"])
    engine.learn_many(scores / scores.sum(axis=1, keepdims=True), numbers.astype(str), "source")
    assert model.engine_.to_bytes() == engine.to_bytes()
    river.learn_one(dict(zip((1, 2, 3), scores[0].tolist(), strict=True)), 3)
    assert river.engine.by_class is not None
    priors = river.engine.by_class.priors[1]
    assert priors is not None
    assert max(priors, key=priors.__getitem__) == "3"


class Fixed(base.Classifier):
    """Gives the features as the scores; says nothing of an event without any."""

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        pass

    def predict_proba_one(self, x: dict[str, Any]) -> Any:
        return x


@pytest.mark.parametrize("delay", [0, 40])
def test_river_serves_what_the_engine_serves(delay: int) -> None:
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
        if (at := index - delay) >= 0:
            model.learn_one(dict(zip(NAMES, scores[at].tolist(), strict=True)), labels[at])
            engine.learn_one(scores[at], labels[at], memo=memos[at])
    assert model.engine.target.labels == 600 - delay
    again = pickle.loads(pickle.dumps(model))
    x = dict(zip(NAMES, scores[0].tolist(), strict=True))
    assert again.predict_proba_one(x) == copy.deepcopy(model).predict_proba_one(x)


@pytest.mark.parametrize("skipped", [0.0, 0.3], ids=["asked twice", "some without a label"])
def test_a_label_of_river_meets_the_prediction_with_the_same_features(skipped: float) -> None:
    """Predictions that were repeated, or never get a label, do not wait in front of those that do."""
    scores, labels = stream(600)
    rng, engine = np.random.default_rng(0), Recalibrator(classes=NAMES)
    model = RecalibratedClassifier(Fixed(), classes=NAMES)
    for row, label in zip(scores, labels, strict=True):
        x = dict(zip(NAMES, row.tolist(), strict=True))
        model.predict_proba_one(x)
        if not skipped:
            model.predict_one(x)
        engine.observe_one(row)
        if rng.random() >= skipped:
            model.learn_one(x, label)
            engine.learn_one(row, label)
    views = model.engine.by_class, engine.by_class
    assert views[0] is not None
    assert views[1] is not None
    assert views[0].weights == pytest.approx(views[1].weights)
    assert model.engine.target.scores == 600


def test_an_event_in_the_same_object_as_the_one_before_is_another() -> None:
    scores, labels = stream(80)
    x: dict[str, Any] = {}
    one = RecalibratedClassifier(Fixed(), classes=NAMES)
    other = one.clone()
    for index, row in enumerate(scores):
        x.update(zip(NAMES, row.tolist(), strict=True))
        assert one.predict_proba_one(x) == other.predict_proba_one(dict(x))
        if index >= 20:
            late = dict(zip(NAMES, scores[index - 20].tolist(), strict=True))
            one.learn_one(late, labels[index - 20])
            other.learn_one(late, labels[index - 20])
    assert one.engine.to_bytes() == other.engine.to_bytes()


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
        RecalibratedClassifier(GaussianNB(), classes=NAMES)  # type: ignore[arg-type]


@pytest.mark.slow
def test_it_passes_the_checks_of_river() -> None:
    names = ["brickface", "cement", "foliage", "grass", "path", "sky", "window", False, True]
    model = RecalibratedClassifier(naive_bayes.GaussianNB(), classes=names, mode="target")
    for check in checks.yield_checks(model):
        check(model.clone())
