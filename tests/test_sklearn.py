"""The scikit-learn estimator: scikit-learn's checks, cross-fitting, batches of a stream, classes, state."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_breast_cancer, load_wine, make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_predict,
    train_test_split,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from streamcal import Recalibrator
from streamcal.sklearn import StreamingCalibratedClassifier

CHECKS = """
import json
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator
from streamcal.sklearn import StreamingCalibratedClassifier
for estimator in (GaussianNB(), LinearSVC(random_state=0)):
    results = check_estimator(StreamingCalibratedClassifier(estimator), on_skip=None, on_fail=None)
    print(json.dumps({r["check_name"]: [r["status"], str(r["exception"])] for r in results}))
"""


class Echo(ClassifierMixin, BaseEstimator):
    """Scores a row by its only feature, and counts the rows it learns."""

    def fit(self, X: Any, y: Any) -> Echo:
        self.classes_, self.rows_ = np.unique(y), 0
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Echo:
        if not hasattr(self, "classes_"):
            self.classes_, self.rows_ = np.unique(classes), 0
        self.rows_ += len(X)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        scores = np.asarray(X)[:, 0]
        return np.column_stack((1.0 - scores, scores))

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def data(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(n, n_features=5, n_informative=3, n_redundant=2, flip_y=0.2, random_state=seed)


# scikit-learn's checks


@pytest.mark.slow
def test_it_passes_the_checks_of_scikit_learn() -> None:
    """No check is skipped: the one on array namespaces needs SCIPY_ARRAY_API before SciPy is imported.

    Naive Bayes learns batch by batch and gives probabilities; LinearSVC does neither.
    """
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-W", "ignore", "-c", CHECKS]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert len(run.stdout.splitlines()) == 2
    for line in run.stdout.splitlines():
        results = json.loads(line)
        assert "check_classifiers_classes" in results
        # Of three classes, the engine learns online: a row twice is not a row of weight 2.
        weighed = {f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")}
        assert {name for name, result in results.items() if result[0] != "passed"} <= weighed


def test_without_scikit_learn_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import streamcal.sklearn"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "pip install '.[sklearn]' in a checkout" in run.stderr.splitlines()[-1]


# Fitting


@pytest.mark.parametrize(
    ("cv", "folds"), [(None, StratifiedKFold(5)), (3, StratifiedKFold(3)), (KFold(4), KFold(4))]
)
def test_fit_learns_from_the_scores_of_the_folds(cv: Any, folds: Any) -> None:
    X, y = data(1000, 1)
    engine = Recalibrator()
    scores = cross_val_predict(GaussianNB(), X, y, cv=folds, method="predict_proba")[:, 1]
    engine.learn_many(scores, y, "source")
    model = StreamingCalibratedClassifier(GaussianNB(), cv=cv).fit(X, y)
    plain = GaussianNB().fit(X, y)
    expected = engine.predict_many(plain.predict_proba(X)[:, 1])
    assert model.predict_proba(X)[:, 1].tolist() == expected.tolist()
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1.0)
    assert model.engine_.version > 0


def test_fit_calibrates_only_on_rows_that_were_held_out() -> None:
    """One nearest neighbour memorises every label, but the labels are noise, so the map must answer 0.3.

    Each of its two scores has more than 500 of 2000 rows except with probability 1e-6 (binomial: 600
    expected, standard deviation 20). The share of positive labels among them is then further than 0.15 from
    0.3 with probability at most 4·exp(−2·500·0.15²) = 7e-10 (Hoeffding).
    """
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((2000, 2)), rng.random(2000) < 0.3
    model = StreamingCalibratedClassifier(KNeighborsClassifier(1)).fit(X, y)
    assert np.all(np.abs(model.predict_proba(X)[:, 1] - 0.3) < 0.15)


def test_with_a_frozen_estimator_only_the_map_learns() -> None:
    X, y = data(1500, 3)
    fitted = GaussianNB().fit(X[:500], y[:500])
    before = pickle.dumps(fitted)
    engine = Recalibrator()
    engine.learn_many(fitted.predict_proba(X[500:1000])[:, 1], y[500:1000], "source")
    model = StreamingCalibratedClassifier(FrozenEstimator(fitted)).fit(X[500:1000], y[500:1000])
    engine.learn_many(fitted.predict_proba(X[1000:])[:, 1], y[1000:], "target")
    model.partial_fit(X[1000:], y[1000:])
    expected = engine.predict_many(fitted.predict_proba(X)[:, 1])
    assert model.predict_proba(X)[:, 1].tolist() == expected.tolist()
    assert pickle.dumps(fitted) == before


@pytest.mark.parametrize("loss", ["hinge", "log_loss"])
@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_large_margins_keep_their_order(load: Any, loss: str) -> None:
    """Features without a scale give margins of thousands, all of which round to 0 or 1 as log-odds."""
    X, y = load(return_X_y=True)
    X_fit, X_new, y_fit, y_new = train_test_split(X, y, random_state=0, stratify=y)
    fitted = StreamingCalibratedClassifier(SGDClassifier(loss=loss, random_state=0)).fit(X_fit, y_fit)
    streamed = StreamingCalibratedClassifier(SGDClassifier(loss=loss, random_state=0))
    streamed.partial_fit(X_fit[:100], y_fit[:100], classes=np.unique(y)).partial_fit(X_fit[100:], y_fit[100:])
    for model in (fitted, streamed):
        scores = model._scores(X_new)
        assert len(np.unique(scores, axis=0)) == len(np.unique(X_new, axis=0))
        margins = model.estimator_.decision_function(X_new)
        order = np.argsort(margins, axis=-1)
        assert (np.diff(np.take_along_axis(scores, order, axis=-1), axis=-1) >= 0.0).all()
    if load is load_breast_cancer:
        assert log_loss(y_new, fitted.predict_proba(X_new)) < 0.3  # 0.55 from rounded scores


def test_folds_may_be_groups_or_go_forward_in_time() -> None:
    X, y = data(1000, 4)
    groups = np.arange(1000) // 50
    model = StreamingCalibratedClassifier(GaussianNB(), cv=GroupKFold(4)).fit(X, y, groups=groups)
    scores = cross_val_predict(GaussianNB(), X, y, groups=groups, cv=GroupKFold(4), method="predict_proba")[
        :, 1
    ]
    engine = Recalibrator()
    engine.learn_many(scores, y, "source")
    assert model.engine_.to_bytes() == engine.to_bytes()
    forward = StreamingCalibratedClassifier(GaussianNB(), cv=TimeSeriesSplit(4)).fit(X, y)
    assert forward.engine_.source.labels == 800  # the first fifth is never tested


def test_folds_that_teach_nothing_right_are_refused() -> None:
    X, y = data(200, 4)
    for cv, words in (
        (KFold(2), "fold 0 has no row of class .*0.* to fit on: shuffle the rows, or .* StratifiedKFold"),
        (ShuffleSplit(5, random_state=0), "tested in one fold at most"),
        ("prefit", "cv must be .*'prefit'; wrap a fitted estimator in .*FrozenEstimator"),
    ):
        with pytest.raises(ValueError, match=words):
            StreamingCalibratedClassifier(GaussianNB(), cv=cv).fit(X, np.sort(y))


def test_a_rare_class_reduces_the_default_number_of_folds() -> None:
    X, y = np.arange(20.0)[:, None], np.array([0] * 17 + [1] * 3)
    model = StreamingCalibratedClassifier(Echo()).fit(X / 20.0, y)
    assert model.engine_.source.labels == 20
    with pytest.raises(ValueError, match="5 folds need at least 5 rows of each class, got 3 of one"):
        StreamingCalibratedClassifier(Echo(), cv=5).fit(X / 20.0, y)
    with pytest.raises(ValueError, match="2 folds need at least 2 rows of each class, got 1 of one"):
        StreamingCalibratedClassifier(Echo()).fit(X[:18] / 20.0, y[:18])


# A stream


def test_a_batch_is_scored_before_the_estimator_learns_it() -> None:
    X, y = data(2000, 6)
    X = X[:, :2]  # probabilities that do not round to 1
    plain, engine = GaussianNB(), Recalibrator()
    model = StreamingCalibratedClassifier(GaussianNB())
    for start in range(0, 2000, 400):
        batch, labels = X[start : start + 400], y[start : start + 400]
        if start:
            engine.learn_many(plain.predict_proba(batch)[:, 1], labels, "target")
        plain.partial_fit(batch, labels, classes=[0, 1])
        assert model.partial_fit(batch, labels, classes=[0, 1] if start == 0 else None) is model
    expected = engine.predict_many(plain.predict_proba(X)[:, 1])
    assert model.predict_proba(X)[:, 1].tolist() == expected.tolist()
    assert (model.engine_.source.labels, model.engine_.target.labels) == (0, 1600)


def test_an_estimator_that_cannot_learn_a_batch_is_fitted_with_the_first() -> None:
    X, y = data(1500, 9)
    model = StreamingCalibratedClassifier(LogisticRegression()).partial_fit(
        X[:1000], y[:1000], classes=[0, 1]
    )
    fitted = StreamingCalibratedClassifier(LogisticRegression()).fit(X[:1000], y[:1000])
    coefficients = model.estimator_.coef_.tolist()
    assert model.engine_.to_bytes() == fitted.engine_.to_bytes()
    model.partial_fit(X[1000:], y[1000:])
    assert model.estimator_.coef_.tolist() == coefficients
    assert model.engine_.target.labels == 500


# Weights


class Weighable(Echo):
    """Keeps the weights that it is given."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.weights_ = sample_weight
        return super().fit(X, y)


def test_weights_go_to_the_estimator_and_to_the_map() -> None:
    X, y = data(600, 20)
    X = expit(X)
    weights = np.where(np.arange(600) % 3 == 0, 0.0, 2.5)
    model = StreamingCalibratedClassifier(Weighable()).fit(X, y, sample_weight=weights)
    assert model.estimator_.weights_.tolist() == weights.tolist()
    assert model.engine_.source.labels == 400
    assert model.engine_.source.prior == pytest.approx((y[weights > 0.0].sum() + 0.5) / 401)
    assert model.engine_.certificate.refuted == ()  # of one weight
    model.fit(X, y, sample_weight=weights * np.arange(600))
    assert "no claim: labels have unequal weights" in repr(model.engine_.certificate)
    with pytest.raises(ValueError, match="index 7: a weight must be a number from 1e-9 to 10000, got -1"):
        model.fit(X, y, sample_weight=np.where(np.arange(600) == 7, -1.0, 1.0))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y, sample_weight=[1.0])


# Classes


@pytest.mark.parametrize("names", [(0, 1), (-1, 1), ("ham", "spam"), (False, True)])
def test_any_two_labels_work(names: tuple[Any, Any]) -> None:
    X, y = data(1000, 11)
    named = np.array(names)[y]
    model = StreamingCalibratedClassifier(GaussianNB()).fit(X[:600], named[:600])
    model.partial_fit(X[600:], named[600:])
    plain = StreamingCalibratedClassifier(GaussianNB()).fit(X[:600], y[:600]).partial_fit(X[600:], y[600:])
    assert model.classes_.tolist() == list(names)
    assert model.predict_proba(X).tolist() == plain.predict_proba(X).tolist()
    more_probable = (model.predict_proba(X)[:, 1] > 0.5).astype(int)
    assert model.predict(X).tolist() == np.array(names)[more_probable].tolist()


def test_other_targets_than_classes_are_refused() -> None:
    X, y = data(90, 12)
    model = StreamingCalibratedClassifier(GaussianNB())
    with pytest.raises(ValueError, match=r"one label\. The type of the target is multilabel-indicator"):
        model.fit(X, np.stack((y, 1 - y), axis=1))
    with pytest.raises(ValueError, match=r"2 classes or more, got 1 class: \[1\]"):
        model.fit(X, np.ones(90, int))
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match="2 classes or more, got 1 class"):
        model.partial_fit(X, y, classes=[0])
    with pytest.raises(ValueError, match=r"one of \[0, 2\], got .*1"):
        model.partial_fit(X, y, classes=[0, 2])
    assert not hasattr(model, "engine_")
    model.partial_fit(X, y, classes=[1, 0])
    with pytest.raises(ValueError, match=r"classes must stay \[0, 1\], got \[0, 2\]"):
        model.partial_fit(X, y, classes=[0, 2])
    with pytest.raises(ValueError, match=r"one of \[0, 1\], got .*7"):
        model.partial_fit(X, np.where(y, 7, 0))
    assert model.engine_.target.labels == 0


# State


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_continues_like_the_original(copied: Any) -> None:
    X, y = data(2000, 14)
    model = StreamingCalibratedClassifier(GaussianNB()).fit(X[:1000], y[:1000])
    twin = copied(model)
    for each in (model, twin):
        each.partial_fit(X[1000:], y[1000:])
    assert twin.predict_proba(X).tolist() == model.predict_proba(X).tolist()
    assert twin.engine_.to_bytes() == model.engine_.to_bytes()
    assert not hasattr(clone(model), "engine_")
    assert pickle.loads(pickle.dumps(clone(model))).get_params()["cv"] is None


@pytest.mark.slow
def test_it_works_with_frames_and_in_a_grid_search() -> None:
    X, y = data(400, 16)
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = StreamingCalibratedClassifier(LogisticRegression(), mode="source")
    search = GridSearchCV(model, {"estimator__C": [0.1, 1.0], "bins": [2]}, cv=2)
    best = search.fit(frame, y).best_estimator_
    assert best.feature_names_in_.tolist() == list("abcde")
    assert best.n_features_in_ == 5
    assert best.engine_.map.bins == 2


def test_many_classes_as_the_page_shows() -> None:
    """What docs/river.md shows: labels after `fit` are learned, and rows add up to 1."""
    page = (Path(__file__).parents[1] / "docs" / "river.md").read_text().split("## scikit-learn\n", 1)[1]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "docs/river.md", "exec"), names)
    X, y, model = names["X"], names["y"], names["model"]
    found = model.predict_proba(X)
    assert found.shape == (150, 3)
    assert found.sum(axis=1) == pytest.approx(1.0)
    assert (found.argmax(axis=1) == y).mean() > 0.9
    assert model.engine_.target.labels == 75
    assert log_loss(y, found) < log_loss(y, GaussianNB().fit(X, y).predict_proba(X)) + 0.05
