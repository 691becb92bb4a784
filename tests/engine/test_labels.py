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
        (np.array(["ham", "spam", "ham", "Spam"] * 30), "spam"),
        (np.array(["ham", "spam", "ham", "spam"] * 30, object), "spam"),
        ([False, True, "0", "yes"] * 30, True),
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
        ([[0], [1], [1]], 1, "labels must be one-dimensional"),
        ([-1, 1, 1], None, "index 0: a label must equal 0 or 1, got -1; positive= names the one that counts"),
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
