"""Segments in river and scikit-learn, and the map of one segment."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from river import base
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from streamcal import Recalibrator
from streamcal.river import Recalibrate
from streamcal.sklearn import StreamingCalibratedClassifier

FIELDS = ("country", "device")


def events(count: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    country, device = rng.integers(0, 5, count), rng.integers(0, 3, count)
    logit = rng.normal(0.0, 1.5, count)
    truth = logit + np.linspace(-1.5, 1.5, 5)[country] + np.array([0.0, 0.5, -0.5])[device]
    return pd.DataFrame(
        {
            "score": 1.0 / (1.0 + np.exp(-logit)),
            "country": [None if each == 4 else f"c{each}" for each in country],
            "device": device,
            "label": rng.random(count) < 1.0 / (1.0 + np.exp(-truth)),
        }
    )


def test_river() -> None:
    frame = events()
    rows = frame.to_dict("records")
    stage = Recalibrate(segments=FIELDS)
    brier = 0.0
    for row in rows:
        brier += (stage.predict_proba_one(row)[True] - row["label"]) ** 2
        stage.learn_one(row, row["label"])
    assert brier / len(rows) < 0.18
    again = pickle.loads(pickle.dumps(stage))
    assert again.predict_proba_one(rows[7]) == stage.predict_proba_one(rows[7])
    assert isinstance(stage.clone(), base.Classifier)
    assert stage.clone().segments == FIELDS
    assert stage.engine.target.labels == 3000
    with pytest.raises(ValueError, match="weights other than 1: corrections of segments take every"):
        stage.learn_one(rows[0], True, w=2)


def test_scikit_learn() -> None:
    frame, score = events(4000), make_column_transformer(("passthrough", ["score"]))
    shipped = FrozenEstimator(
        make_pipeline(score, LogisticRegression()).fit(frame[:500], frame["label"][:500])
    )
    models = [StreamingCalibratedClassifier(shipped, segments=fields) for fields in ((), FIELDS)]
    losses = np.zeros(2)
    for start in range(500, 4000, 250):
        part = frame[start : start + 250]
        for index, model in enumerate(models):
            if start > 500:
                losses[index] += ((model.predict_proba(part)[:, 1] - part["label"]) ** 2).mean()
            model.partial_fit(part, part["label"], classes=[False, True])
    assert losses[1] < 0.95 * losses[0]
    again = pickle.loads(pickle.dumps(models[1]))
    np.testing.assert_array_equal(again.predict_proba(frame), models[1].predict_proba(frame))
    assert (again.engine_.by_segment is None, models[0].engine_.by_segment) == (False, None)
    assert clone(models[1]).segments == FIELDS
    with pytest.raises(ValueError, match=r"X has no column 'device'.*'score', 'country'"):
        models[1].predict_proba(frame[["score", "country"]])
    with pytest.raises(ValueError, match="weights other than 1: corrections of segments take every"):
        models[1].partial_fit(frame, frame["label"], sample_weight=np.full(4000, 2.0))


def test_the_map_of_a_segment_is_what_is_served() -> None:
    frame = events(6000, seed=3)
    engine = Recalibrator(mode="auto", segments=FIELDS)
    segments = list(zip(frame["country"], frame["device"], strict=True))
    engine.learn_many(frame["score"] ** 2, frame["label"], "source", segments=segments)
    for part in (slice(0, 2000), slice(2000, 6000)):
        engine.learn_many(frame["score"][part], frame["label"][part], segments=segments[part])
    engine.refresh()
    view = engine.by_segment
    scores = np.concatenate([[0.0, 1e-13, 1.0 - 1e-13, 1.0], np.linspace(0.0, 1.0, 10_001)])
    for names in (("c0", 1), ("c3", 2), (None, 0), ("elsewhere", "new")):
        served = engine.predict_many(scores, [names] * len(scores))
        portable = view.map_for(names).predict_many(scores)
        np.testing.assert_allclose(portable, served, rtol=1e-9, atol=1e-9)
    assert view.map_for(("elsewhere", "new")) == engine.map
    assert view.map_for(("c0", 1)) != engine.map
