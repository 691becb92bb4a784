"""The river estimators: river's checks, delayed labels simulated by hand, classes, frames, state."""

from __future__ import annotations

import copy
import pickle
import random
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import base, checks, datasets, evaluate, linear_model, metrics, naive_bayes, preprocessing, tree
from scipy.special import expit, logit

from streamcal import Recalibrator, RecalibratorConfig
from streamcal.river import Recalibrate, RecalibratedClassifier
from tests.inside import memo_of

Row = tuple[dict[str, float], bool]
Told = list[tuple[float, int, str, int | None]]
"""What engines learn: score, label, domain, and the number in the memo."""


def regression() -> base.Classifier:
    return linear_model.LogisticRegression()


def pipeline() -> base.Classifier:
    return preprocessing.StandardScaler() | regression()


class Fixed(base.Classifier):
    """Predicts the value of the feature ``says``, and learns nothing."""

    def learn_one(self, x: dict[str, Any], y: Any) -> None:
        pass

    def predict_proba_one(self, x: dict[str, Any]) -> Any:
        says = x["says"]
        return says if isinstance(says, dict) else {False: 1.0 - says, True: says}


def overconfident(n: int, seed: int) -> tuple[list[Row], np.ndarray]:
    """Return rows whose score has three times the logit of the truth, and the truth."""
    rng = np.random.default_rng(seed)
    truth = expit(rng.standard_normal(n))
    labels = rng.random(n) < truth
    scores = expit(3.0 * logit(truth))
    rows = [({"says": z}, y) for z, y in zip(scores.tolist(), labels.tolist(), strict=True)]
    return rows, truth


def teach(stage: base.Classifier, rows: list[Row]) -> list[float]:
    """Predict and learn row by row; return the probabilities."""
    probabilities = []
    for x, y in rows:
        probabilities.append(stage.predict_proba_one(x)[True])
        stage.learn_one(x, y)
    return probabilities


def grid(stage: base.Classifier, name: str) -> list[float]:
    return [stage.predict_proba_one({name: z})[True] for z in np.linspace(0.0, 1.0, 101).tolist()]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Record what engines learn, call by call."""
    calls: Told = []
    learn = Recalibrator.learn_one

    def spy(self: Recalibrator, score: float, label: int, domain: Any = "target", **kwargs: Any) -> None:
        memo = kwargs["memo"]
        calls.append((score, label, domain, None if memo is None else int.from_bytes(memo, "little")))
        learn(self, score, label, domain, **kwargs)

    monkeypatch.setattr(Recalibrator, "learn_one", spy)
    return calls


# River's checks


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        RecalibratedClassifier(pipeline()),
        preprocessing.StandardScaler() | RecalibratedClassifier(regression()),
        RecalibratedClassifier(naive_bayes.GaussianNB()),
        Recalibrate("ip_in_url"),
    ],
    ids=str,
)
def test_it_passes_the_checks_of_river(model: base.Classifier) -> None:
    random.seed(0)  # two of the checks shuffle features
    assert not model._unit_test_skips()
    checks.check_estimator(model)


def test_options_reach_the_engine_and_bad_ones_are_refused() -> None:
    options: dict[str, Any] = {"bins": 3, "delta": 0.05, "mode": "target", "window": 500}
    for stage in (RecalibratedClassifier(regression(), **options), Recalibrate(**options)):
        assert stage.engine.config == RecalibratorConfig(**options)
        assert stage.clone().engine.config == RecalibratorConfig(**options)
    with pytest.raises(ValueError, match=r"delta[\s\S]*2\.0"):
        Recalibrate(delta=2.0)
    with pytest.raises(TypeError, match=r"a number of labels, got datetime\.timedelta\(days=1\)"):
        Recalibrate(window=timedelta(days=1))
    with pytest.raises(TypeError, match="unknown option 'modez': did you mean 'mode'"):
        Recalibrate(modez="target")
    with pytest.raises(TypeError, match="must be a river classifier, got StandardScaler"):
        RecalibratedClassifier(preprocessing.StandardScaler())
    with pytest.raises(ValueError, match="must differ, got False for both"):
        Recalibrate(pos_val=False)


# Learning, at once and late


def by_hand(rows: list[Row], delay: int) -> tuple[list[float], Told]:
    """Simulate labels that arrive ``delay`` events late: return the probabilities and what is learned."""
    model, engine = pipeline(), Recalibrator()
    probabilities, learned = [], []

    def learn(index: int) -> None:
        x, y = rows[index]
        score = model.predict_proba_one(x)[True]
        learned.append((score, int(y), "target", index))
        engine.learn_one(score, int(y), "target", memo=memo_of(index))
        model.learn_one(x, y)

    for index, (x, _) in enumerate(rows):
        if index >= delay:
            learn(index - delay)
        score = model.predict_proba_one(x)[True]
        probabilities.append(engine.predict_one(score))
        engine.observe_one(score)
    for index in range(len(rows) - delay, len(rows)):
        learn(index)
    return probabilities, learned


@pytest.mark.slow
@pytest.mark.parametrize("delay", [7, 300])
def test_late_labels_match_a_simulation_by_hand(delay: int, told: Told) -> None:
    rows = list(datasets.Phishing())
    expected, learned = by_hand(rows, delay)
    told.clear()
    stage = RecalibratedClassifier(pipeline())
    metric, brier = metrics.LogLoss(), metrics.LogLoss()
    steps = evaluate.iter_progressive_val_score(rows, stage, metric, delay=delay, yield_predictions=True)
    assert [step["Prediction"][True] for step in steps if step["Prediction"]] == expected
    assert told == learned
    for probability, (_, y) in zip(expected, rows, strict=True):
        brier.update(y, {False: 1.0 - probability, True: probability})
    assert metric.get() == brier.get()
    assert stage.engine.target.scores == stage.engine.target.labels == len(rows)


def test_an_immediate_label_is_learned_with_the_served_score(told: Told) -> None:
    """The wrapped model is not asked a second time, even if its score has changed."""
    rows = list(datasets.Phishing().take(300))
    model, asked, scores = pipeline(), [], []
    stage = RecalibratedClassifier(model)
    predict = model.predict_proba_one
    model.predict_proba_one = lambda x: asked.append(1) or predict(x)
    for x, y in rows:
        stage.predict_proba_one(x)
        scores.append(predict(x)[True])
        stage.learn_one(x, y)
    assert len(asked) == len(rows)
    assert told == [(score, int(y), "target", None) for score, (_, y) in zip(scores, rows, strict=True)]


@pytest.mark.parametrize("make", [lambda: RecalibratedClassifier(Fixed()), lambda: Recalibrate("says")])
def test_which_prediction_a_label_belongs_to(make: Any, told: Told) -> None:
    stage = make()
    a, b, c = {"says": 0.1}, {"says": 0.2}, {"says": 0.3}
    stage.learn_one(a, True)  # no prediction was made
    for x in (a, b, c):
        stage.predict_proba_one(x)
    stage.learn_one(dict(b), False)  # that with the same values, not the oldest
    stage.predict_proba_one(a)
    stage.learn_one(a, True)  # the latest; two others are lost
    stage.learn_one(dict(b), False)  # no prediction waits
    stage.predict_proba_one(b)
    stage.learn_one(dict(a), True)
    assert [(score, seen) for score, _, _, seen in told] == [
        (0.1, None), (0.2, 1), (0.1, None), (0.2, None), (0.1, 4),
    ]  # fmt: skip


@pytest.mark.parametrize("make", [lambda: RecalibratedClassifier(Fixed()), lambda: Recalibrate("says")])
def test_a_repeated_prediction_counts_once_and_a_dict_can_be_reused(make: Any, told: Told) -> None:
    stage, x = make(), {"says": 0.1}
    stage.predict_proba_one(x)
    stage.predict_one(x)
    assert stage.engine.target.scores == 1
    x["says"] = 0.4  # the next event, in the same dict
    stage.predict_proba_one(x)
    assert stage.engine.target.scores == 2
    x["says"] = 0.8
    stage.learn_one(x, True)
    assert [(score, seen) for score, _, _, seen in told] == [(0.8, 0)]


def test_the_wrapped_model_and_the_map_get_the_weight() -> None:
    class Weighted(Fixed):
        def learn_one(self, x: dict[str, Any], y: Any, w: float = 1.0) -> None:
            self.weight = w

    stage = RecalibratedClassifier(Weighted())
    rows = [({"says": 0.25}, True, {"w": 3.0}), ({"says": 0.25}, False, {"w": 5.0})]
    evaluate.progressive_val_score(rows, stage, metrics.LogLoss(), delay=1)
    assert stage.classifier.weight == 5.0
    assert stage.engine.target.labels == 2
    n = 64 / 34  # effective, of weights 3 and 5
    assert stage.engine.target.prior == pytest.approx((3 / 8 * n + 0.5) / (n + 1))
    stage.learn_one({"says": 0.25}, True, w=0.0)
    assert (stage.classifier.weight, stage.engine.target.labels) == (0.0, 2)
    with pytest.raises(ValueError, match="a weight must be a number from 1e-9 to 10000, got -1"):
        stage.learn_one({"says": 0.25}, True, w=-1.0)
    assert stage.classifier.weight == 0.0


# Classes


@pytest.mark.slow
@pytest.mark.parametrize(("negative", "positive"), [("ham", "spam"), (-1, 1)])
def test_any_two_labels_work(negative: Any, positive: Any) -> None:
    rows = list(datasets.Phishing())
    stage = RecalibratedClassifier(tree.HoeffdingTreeClassifier(), pos_val=positive, neg_val=negative)
    named = [(x, positive if y else negative) for x, y in rows]
    plain = RecalibratedClassifier(tree.HoeffdingTreeClassifier())
    for (x, label), (_, y) in zip(named, rows, strict=True):
        answer, expected = stage.predict_proba_one(x), plain.predict_proba_one(x)
        assert answer == {negative: expected[False], positive: expected[True]}
        stage.learn_one(x, label)
        plain.learn_one(x, y)
    assert {stage.predict_one(x) for x, _ in rows} == {negative, positive}
    assert stage.engine.version > 0


def test_another_class_is_refused_and_nothing_is_learned() -> None:
    stage = RecalibratedClassifier(tree.HoeffdingTreeClassifier(), "spam", "ham")
    for label in ("eggs", True, None):
        with pytest.raises(ValueError, match=rf"pos_val='spam' or neg_val='ham', got {label!r}"):
            stage.learn_one({"a": 1.0}, label)
    assert stage.classifier.predict_proba_one({"a": 1.0}) == {}
    three = RecalibratedClassifier(Fixed(), "spam", "ham")
    for says in ({"spam": 0.2, "ham": 0.3, "eggs": 0.5}, {"eggs": 1.0}):
        with pytest.raises(ValueError, match=r"the wrapped model gives 'eggs': classes= names"):
            three.predict_proba_one({"says": says})
        with pytest.raises(ValueError, match=r"the wrapped model gives 'eggs': classes= names"):
            three.learn_one({"says": says}, "spam")
    assert three.engine.target.labels == three.engine.target.scores == 0


@pytest.mark.parametrize(("says", "score"), [({}, 0.5), ({False: 1.0}, 0.0), ({True: 1.0}, 1.0)])
def test_the_score_of_a_model_without_both_probabilities(says: Any, score: float, told: Told) -> None:
    stage = RecalibratedClassifier(Fixed())
    served = min(max(score, 1e-4), 1.0 - 1e-4)  # before any label
    assert stage.predict_proba_one({"says": says}) == pytest.approx({False: 1.0 - served, True: served})
    stage.learn_one({"says": says}, True)
    stage.learn_one({"says": says}, True)
    assert [call[0] for call in told] == [score, score]


def test_an_event_without_a_score_gets_the_prior_and_is_not_learned() -> None:
    stage = Recalibrate("says")
    assert stage.predict_proba_one({}) == {False: 0.5, True: 0.5}
    for label in (True, False, False):
        stage.learn_one({"says": 0.3}, label)
    stage.learn_one({"other": 0.3}, True)
    prior = (1 + 0.5) / (3 + 1)
    assert stage.predict_proba_one({"other": 0.3}) == {False: 1.0 - prior, True: prior}
    assert (stage.engine.target.labels, stage.engine.target.scores) == (3, 0)


# State


@pytest.mark.slow
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda stage: pickle.loads(pickle.dumps(stage))])
@pytest.mark.parametrize(
    "make", [lambda: RecalibratedClassifier(pipeline()), lambda: Recalibrate("is_popular")]
)
def test_a_copy_continues_like_the_original(copied: Any, make: Any) -> None:
    rows = list(datasets.Phishing())
    stage = make()
    teach(stage, rows[:500])
    for x, _ in rows[500:520]:
        stage.predict_proba_one(x)  # the labels of 20 predictions are still missing
    twin = copied(stage)
    for each in (stage, twin):
        for x, y in rows[500:520]:
            each.learn_one(dict(x), y)
    assert teach(twin, rows[520:]) == teach(stage, rows[520:])
    assert twin.engine.to_bytes() == stage.engine.to_bytes()
    assert stage.engine.version > 0


# The page


BLOCKS = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs" / "river.md").read_text(), re.DOTALL
)


def test_the_page_runs_from_top_to_bottom() -> None:
    names: dict[str, Any] = {}
    for block in BLOCKS:
        exec(compile(block, "docs/river.md", "exec"), names)
