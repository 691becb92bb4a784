"""Labels of any two names, and the mistakes that a first call of the engine makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamcal import Recalibrator
from tests.inside import memo_of, memos_of

SCORES = [0.1, 0.6, 0.7, 0.9] * 30


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (np.array([-1, 1, -1, 1] * 30), 1),
        (np.array([-1, 1, -1, 1] * 30), "1"),
        (np.array([1.0, 2.0, 1.0, 2.0] * 30), 2),
        (np.array(["ham", "spam", "ham", "Spam"] * 30), "spam"),
        (["ham", "spam", "ham", "spam"] * 30, np.str_("SPAM")),
        (np.array(["ham", "spam", "ham", "spam"] * 30, object), "spam"),
        ([False, True, "0", "yes"] * 30, True),
        (np.array([1, 0, 1, 0] * 30), 0),
    ],
)
def test_positive_names_the_label_of_class_1(labels: Any, positive: object) -> None:
    plain, many, one = Recalibrator(), Recalibrator(), Recalibrator()
    plain.learn_many(SCORES, [0, 1, 0, 1] * 30, memos=memos_of(0, len([0, 1, 0, 1] * 30)))
    many.learn_many(SCORES, labels, positive=positive, memos=memos_of(0, len(labels)))
    for score, label in zip(SCORES, labels, strict=True):
        one.learn_one(score, label, positive=positive, memo=memo_of(0))
    assert plain.to_bytes() == many.to_bytes() == one.to_bytes()


@pytest.mark.parametrize(
    ("labels", "positive", "message"),
    [
        (["a", "b", "c"], "b", "index 2: a label must be 'b', which is the positive one, or 'a', the other"),
        (["a", None, "b"], "b", "index 1: a label must name a class, got None"),
        (np.array([1.0, np.nan, 2.0]), 1, "index 1: a label must name a class, got nan"),
        ([[0], [1], [1]], 1, "labels must be one-dimensional"),
        ([-1, 1, 1], None, "index 0: a label must equal 0 or 1, got -1; positive= names the one that counts"),
        (["a", "b", "b"], None, r"index 0: labels must be numbers, got np.str_\('a'\) .*; positive= names"),
        ([0, 1, 0], None, None),
    ],
)
def test_labels_that_are_refused_hint_at_positive(labels: Any, positive: object, message: str | None) -> None:
    engine = Recalibrator()
    if message is None:
        engine.learn_many([0.5] * 3, labels, positive=positive)
        return
    with pytest.raises(ValueError, match=message):
        engine.learn_many([0.5] * 3, labels, positive=positive)
    assert engine.target.labels == 0


@pytest.mark.parametrize("way", ["learn_many", "predict_many", "observe_many"])
def test_the_two_columns_of_predict_proba_get_a_hint(way: str) -> None:
    both = np.array([[0.25, 0.75], [0.5, 0.5]])
    more = ([0, 1],) if way == "learn_many" else ()
    with pytest.raises(ValueError, match=r"predict_proba\(X\)\[:, 1\]"):
        getattr(Recalibrator(), way)(both, *more)


@pytest.mark.parametrize("digits", [310, 5000])
def test_huge_numbers_are_no_scores_and_no_labels(digits: int) -> None:
    huge = 10**digits
    with pytest.raises(
        ValueError, match=r"a score must be a number in \[0, 1\], got a whole number of about"
    ):
        Recalibrator().learn_one(huge, 1)
    with pytest.raises(ValueError, match="a label must equal 0 or 1, got a whole number of about"):
        Recalibrator().learn_one(0.5, huge)
