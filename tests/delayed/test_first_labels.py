"""Whether the first labels of a stream are a fair sample: each sign, and what it must not be taken for.

With a source, and without.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal import Recalibrator
from streamcal.delayed import first_labels as module
from streamcal.delayed.first_labels import FirstLabels, Observed
from tests.inside import memo_of, memos_of
from tests.nightly import one_in

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int64]

LATE = 4000


def add(first: FirstLabels, scores: Floats, labels: Labels, index: Counts) -> None:
    """Add the labels of these predictions, in turn."""
    for i in index.tolist():
        first.add(float(scores[i]), int(labels[i]), i)


def drawn(n: int, seed: int, *, low: float = 0.0, high: float = 1.0) -> tuple[Floats, Labels]:
    """Return scores that are right, and labels."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(low, high, n)
    return scores, (rng.random(n) < scores).astype(np.int8)


def judged(
    scores: Floats, labels: Labels, due: Floats, *, batch: int = 50, first: FirstLabels | None = None
) -> tuple[int, FirstLabels]:
    """Return how many labels had come when they were found fair, and the state; −1 if they never were.

    Prediction i is made at moment i, and its label comes at moment ``due[i]`` ≥ i; at every 50 moments the
    labels that have come are judged.
    """
    first = first or FirstLabels()
    n, learned = len(scores), np.zeros(len(scores), np.bool_)
    last = due[np.isfinite(due)].max()
    for now in range(batch, int(last) + 2 * batch, batch):
        come = np.flatnonzero((due <= now) & ~learned)
        come = come[due[come].argsort(kind="stable")]
        learned[come] = True
        if not len(come):
            continue
        add(first, scores, labels, come)
        made = scores[: min(now, n)]
        if first.judge(Observed(len(made), float(made.sum()), float((made**2).sum()))):
            return first.labels, first
    return -1, first


# What is fair at once


def test_labels_in_order_are_fair_at_once() -> None:
    """However late they are, if both classes are."""
    for seed in range(20):
        scores, labels = drawn(3000, seed)
        at, first = judged(scores, labels, np.arange(3000.0) + 700)
        assert 0 < at <= 100
        assert not first.one_class_late


def test_labels_missing_at_random_are_fair() -> None:
    """Most predictions never get one; their scores are as those of the others."""
    for seed in range(10):
        rng = np.random.default_rng([3, seed])
        scores, labels = drawn(20_000, 40 + seed)
        due = np.where(rng.random(20_000) < 0.1, np.arange(20_000.0), np.inf)
        assert 0 < judged(scores, labels, due)[0] <= 400


@pytest.mark.parametrize("flipped", [False, True])
def test_a_wrong_score_is_no_sign_where_labels_are_missing_at_random(flipped: bool) -> None:
    """A class is rare among the labels, and many predictions have none; but these look like the others."""
    for seed in range(10):
        rng = np.random.default_rng([9, seed])
        scores = rng.random(20_000)
        labels = (rng.random(20_000) < 0.3 * scores).astype(np.int8)
        if flipped:
            scores, labels = 1.0 - scores, (1 - labels).astype(np.int8)
        due = np.where(rng.random(20_000) < 0.1, np.arange(20_000.0), np.inf)
        at, first = judged(scores, labels, due)
        assert 0 < at <= 400
        assert not first.one_class_late


# What is held


def test_where_positives_are_rare_none_of_them_says_nothing() -> None:
    """Until ten were expected, labels without a positive are held; then in order they are fair."""
    scores = np.full(5000, 0.01)
    labels = np.zeros(5000, np.int8)
    at, _ = judged(scores, labels, np.arange(5000.0))
    assert module._EXPECTED / 0.01 <= at <= module._EXPECTED / 0.01 + 100
    # One positive is enough, and so it is for negatives that are rare.
    for flipped in (False, True):
        some = labels.copy()
        some[420] = 1
        one = judged(1.0 - scores if flipped else scores, 1 - some if flipped else some, np.arange(5000.0))
        assert 420 < one[0] <= 500


@pytest.mark.parametrize("slow", [0, 1])
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.3), (0.05, 0.95)])
def test_a_class_that_comes_late_is_waited_for(low: float, high: float, slow: int) -> None:
    """Also where a few of it come at once. Until it comes, the labels are of the other."""
    for seed in range(5):
        rng = np.random.default_rng([4, seed])
        scores, labels = drawn(3 * LATE, 10 + seed, low=low, high=high)
        if not slow:
            scores, labels = 1.0 - scores, (1 - labels).astype(np.int8)
        late = (labels == slow) & (rng.random(3 * LATE) >= 0.02)
        due = np.arange(3.0 * LATE) + np.where(late, LATE, 0)
        at, first = judged(scores, labels, due)
        # The labels that had come at moment LATE, when the first of the slow class came.
        before = int((due <= LATE).sum())
        assert at > before
        assert at <= module._HELD
        assert first.one_class_late


def test_labels_are_not_held_for_ever() -> None:
    """A class that never comes: at most so many are held, and they are learned then."""
    scores, labels = drawn(40_000, 5, low=0.3, high=0.7)
    due = np.where(labels == 1, np.inf, np.arange(40_000.0))
    at, first = judged(scores, labels, due)
    assert module._HELD <= at < module._HELD + 100
    assert not first.one_class_late
    assert module._HELD == 16_000


# State, and the whole


def log_loss(said: Floats, labels: Labels) -> float:
    right = np.where(labels == 1, said, 1.0 - said)
    return float(-np.log(np.clip(right, 1e-9, 1.0)).mean())


@pytest.mark.parametrize("slow", [0, 1])
def test_a_calibrated_score_is_not_ruined_by_a_class_that_is_told_late(slow: int) -> None:
    """No source, positives or negatives 4,000 predictions late: log loss at most 1.02 times the score's.

    It was 2.2 times as high when the first labels were learned as they came.
    """
    scores, labels = drawn(12_000, 7, low=0.05, high=0.6)
    engine, said, step = Recalibrator(), np.empty(12_000), 50
    due = np.arange(12_000.0) + np.where(labels == slow, LATE, 0)
    for now in range(0, 12_000, step):
        part = slice(now, now + step)
        said[part] = engine.predict_many(scores[part])
        engine.observe_many(scores[part])
        for i in np.flatnonzero((due >= now) & (due < now + step)).tolist():
            engine.learn_one(float(scores[i]), int(labels[i]), memo=memo_of(i))
        if now == 2000:
            assert engine.predict_many(scores[:50]) == pytest.approx(scores[:50], rel=0.03)
            engine = Recalibrator.from_bytes(engine.to_bytes())
    assert log_loss(said, labels) <= 1.02 * log_loss(scores, labels)
    assert len(engine.mixing.weights) > 1


# With a source


N, BLOCK = 12_000, 1000


def after_a_source(
    source: int, base: float, odds: float, slow: int, delay: int, *, n: int = N
) -> tuple[Labels, Floats, Floats, Floats, Recalibrator]:
    """Return labels, the truth, what the source's map says, and what is served; and the engine.

    The law of the source is that of the target. Labels of the slow class come ``delay`` predictions late.
    """
    rng = np.random.default_rng([1, source, round(100 * base), round(odds), slow, delay])

    def sample(n: int) -> tuple[Floats, Floats, Labels]:
        logits = rng.normal({0.07: -3.1, 0.3: -1.0}[base], 1.2, n)
        truth = expit(logits)
        return expit(logits + np.log(odds)), truth, (rng.random(n) < truth).astype(np.int8)

    engine, served = Recalibrator(), np.empty(n)
    scores, _, labels = sample(source)
    engine.learn_many(scores, labels, "source")
    engine.refresh()
    scores, truth, labels = sample(n)
    of_source = engine.predict_many(scores)
    due = np.arange(n) + np.where(labels == slow, delay, 0)
    for start in range(0, n, 100):
        part = slice(start, start + 100)
        served[part] = engine.predict_many(scores[part])
        engine.observe_many(scores[part])
        for i in np.flatnonzero((due >= start) & (due < start + 100)).tolist():
            engine.learn_one(float(scores[i]), int(labels[i]), memo=memo_of(i))
    return labels, truth, of_source, served, engine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "base", "odds", "slow", "delay"),
    one_in(4, product((500, 50_000), (0.07, 0.3), (3.0,), (0, 1), (5000,))),
)
def test_a_source_that_is_right_is_not_ruined_by_a_class_that_is_told_late(
    source: int, base: float, odds: float, slow: int, delay: int
) -> None:
    """In every 1,000 predictions, the mean is that of the truth or of the source's map, or between them.

    Within [.8, 1.25]: a source of 500 labels, 35 of them positive, is itself off by a tenth or two. Log loss
    is at most 1.02 times that of the source's map. Every case is a seed of its own.
    """
    labels, truth, of_source, served, engine = after_a_source(source, base, odds, slow, delay)
    own = float(of_source.mean() / truth.mean())
    ratios = served.reshape(-1, BLOCK).mean(axis=1) / truth.reshape(-1, BLOCK).mean(axis=1)
    assert 0.8 * min(1.0, own) <= ratios.min()
    assert ratios.max() <= 1.25 * max(1.0, own)
    assert log_loss(served, labels) <= 1.02 * log_loss(of_source, labels)
    assert len(engine.mixing.weights) > 4  # in the end the target is learned


def test_a_class_that_is_looked_at_less_often_is_learned_by_its_weights() -> None:
    """One in fifty positives has a label, and one in five negatives: without weights they are held back.

    After some 1,400 labels of 12,000 the rate at a score is known within 0.1, 4 errors.
    """
    scores, labels = drawn(12_000, 5)
    propensity = np.where(labels == 1, 0.02, 0.2)
    (known,) = np.nonzero(np.random.default_rng(6).random(12_000) < propensity)
    weighted, plain = Recalibrator(), Recalibrator()
    for engine, weights in ((weighted, 1.0 / propensity), (plain, np.ones(12_000))):
        for part in np.array_split(known, 20):
            engine.observe_many(scores[engine.target.scores : int(part[-1]) + 1])
            engine.learn_many(
                scores[part],
                labels[part],
                memos=memos_of(int(part[0]), len(labels[part])),
                weights=weights[part],
            )
    assert len(weighted.mixing.weights) > 1
    asked = np.array([0.3, 0.6, 0.9])
    assert weighted.predict_many(asked) == pytest.approx(asked, abs=0.1)
    assert plain.mixing is None or len(plain.mixing.weights) == 1


def test_the_first_labels_with_weights_do_not_raise_rare_forecasts() -> None:
    """Of 300 labels 0, 2.6 were expected to be 1: a fit to these alone forecast four times the score."""
    scores = np.random.default_rng(1).beta(1.0, 115.0, 3000)
    engine, learned = Recalibrator(), 0
    for end in range(100, 3100, 100):
        engine.learn_many(scores[end - 100 : end], np.zeros(100, np.int8), weights=np.full(100, 10.0))
        served = engine.predict_many([0.0005, 0.005, 0.05])
        assert (served <= [0.0005, 0.005, 0.05]).all()
        learned += served[1] < 0.005
    assert learned


def test_while_labels_are_held_the_source_s_maps_are_served() -> None:
    """With odds 1: the labels so far say nothing of the prior."""
    labels, _, of_source, served, engine = after_a_source(5000, 0.3, 1.0, 1, 5000, n=3000)
    delays = engine.label_delays
    assert 500 < delays.held == int((labels == 0).sum())
    assert (delays.first, delays.missing, engine.target.prior) == (True, 1, None)
    assert engine.target.labels == delays.held
    assert served == pytest.approx(of_source, abs=0.003)
    restored = Recalibrator.from_bytes(engine.to_bytes())
    assert restored.to_bytes() == engine.to_bytes()


def test_labels_of_a_class_that_came_first_are_not_lost() -> None:
    """They are held while the other is late; some of the other are then learned by exclusion."""
    scores, labels = drawn(8000, 8, low=0.2, high=0.6)
    engine, due, told, most = Recalibrator(), np.arange(8000) + np.where(labels == 1, 1000, 0), 0, 0
    for now in range(0, 8000, 50):
        engine.observe_many(scores[now : now + 50])
        for i in np.flatnonzero((due >= now) & (due < now + 50)).tolist():
            engine.learn_one(float(scores[i]), int(labels[i]), memo=memo_of(i))
            told += 1
        held = engine.label_delays.held
        most = max(most, held)
        assert engine.target.labels == told
        assert (engine.mixing is None or len(engine.mixing.weights) == 1) == (held == told)
    assert most >= int((labels[:1000] == 0).sum())
    assert held < 100 < engine.label_delays.excluded
    assert engine.target.prior == pytest.approx(labels.mean(), abs=0.02)  # of what was told, it is off by .03
