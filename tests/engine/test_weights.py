"""Labels for some: what engines learn from labels that stand for several predictions each."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamcal import JoinConfig, LabelEvent, LabelledEvent, PredictionEvent, Recalibrator
from streamcal.certificates.record import UNWEIGHTED

Values = npt.NDArray[np.float64]


def labels_for_some(seed: int, n: int) -> tuple[Values, Values, Values]:
    """Return scores, labels with P[Y=1] = score², weights: all above 0.8 are seen, of the others a tenth."""
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    labels = (rng.random(n) < scores**2).astype(np.int8)
    chance = np.where(scores > 0.8, 1.0, 0.1)
    seen = rng.random(n) < chance
    return scores[seen], labels[seen], 1.0 / chance[seen]


def test_a_whole_weight_is_so_many_copies() -> None:
    scores, labels, weights = labels_for_some(2, 2000)
    weighted, copied = (Recalibrator(mode="target", bins=6) for _ in range(2))
    weighted.learn_many(scores, labels, weights=weights)
    times = weights.astype(int)
    copied.learn_many(np.repeat(scores, times), np.repeat(labels, times))
    for engine in (weighted, copied):
        engine.refresh()
    # Ranks of weights are not rounded down, so that an edge may be the next one.
    assert weighted.map.values == pytest.approx(copied.map.values, abs=0.01)
    assert weighted.map.edges == pytest.approx(copied.map.edges, abs=0.01)


@pytest.mark.statistical
def test_weights_undo_what_the_score_does_not_tell() -> None:
    """Labels come for class 1 four times as often as for class 0: without weights the map is 0.3 off.

    P[Y=1 | score] = score². 16,000 labels are seen, worth 40,000/3.75 = 10,600. The mean of each of 8 bins of
    these has a standard deviation of at most 0.014, so the RMSE over 8 bins exceeds 0.06 with probability
    below 1e-9 (chi square); other maps do better. Without weights the RMSE is above 0.2. Seen to fail with a
    `ScoreSketch.weighed` that returns the counts.
    """
    rng = np.random.default_rng(8)
    scores = rng.random(40_000)
    labels = (rng.random(40_000) < scores**2).astype(np.int8)
    chance = np.where(labels == 1, 0.8, 0.2)
    seen = rng.random(40_000) < chance
    at = np.linspace(0.05, 0.95, 10)
    errors = {}
    for mode in ("auto", "target"):
        for name, weights in (("fair", 1.0 / chance[seen]), ("naive", None)):
            engine = Recalibrator(mode=mode)
            engine.learn_many(scores[seen], labels[seen], weights=weights)
            errors[mode, name] = float(np.sqrt(np.mean((engine.predict_many(at) - at**2) ** 2)))
        assert errors[mode, "fair"] < 0.06
        assert errors[mode, "naive"] > 0.12


# Certificates and tests


@pytest.mark.parametrize("mode", ["auto", "composite"])
def test_certificates_claim_nothing_of_weighted_labels(mode: Any) -> None:
    scores, labels, weights = labels_for_some(9, 30_000)
    engine = Recalibrator(mode=mode)
    engine.learn_many(scores, labels, "source", weights=weights)
    engine.learn_many(scores, labels, weights=weights)
    certificate = Recalibrator.from_bytes(engine.to_bytes()).certificate
    assert UNWEIGHTED in certificate.refuted
    assert certificate.in_words("risk") == "no claim: labels have unequal weights"
    assert (certificate.risk, certificate.target_risk) == (1.0, 1.0)
    assert not certificate.paper.met
    assert engine.alarms == ()


@pytest.mark.parametrize("mode", ["auto", "source"])
def test_labels_of_one_weight_are_certified_as_those_without(mode: Any) -> None:
    scores, labels, _ = labels_for_some(9, 5000)
    plain, even = Recalibrator(mode=mode), Recalibrator(mode=mode)
    domain: Any = "source" if mode == "source" else "target"
    plain.learn_many(scores, labels, domain)
    even.learn_many(scores, labels, domain, weights=np.full(len(labels), 100 / 3))
    ours, theirs = even.certificate, plain.certificate
    assert (ours.refuted, ours.assumptions) == (theirs.refuted, theirs.assumptions)
    assert theirs.risk < 0.2
    assert ours.risk == pytest.approx(theirs.risk, rel=1e-3)


def test_one_weight_is_enough_and_is_not_forgotten() -> None:
    """A label of weight 1 among weighted ones is no fair sample, nor is a window of such labels."""
    scores, labels, _ = labels_for_some(10, 20_000)
    engine = Recalibrator(mode="target", window=64)
    engine.learn_many(scores[:2000], labels[:2000])
    assert engine.certificate.refuted == ()
    engine.learn_one(0.3, 1, weight=3.0)
    engine.learn_many(scores, labels)
    engine = Recalibrator.from_bytes(engine.to_bytes())
    assert engine.certificate.refuted == (UNWEIGHTED,)


def test_a_choice_of_labels_refutes_no_label_shift() -> None:
    """Source and target are of one law, but labels of the target depend on score and label.

    Without weights the test alarms; what its log e-value is then is no matter of chance at 2,000 labels.
    """
    rng = np.random.default_rng(12)
    scores = rng.random(8000)
    labels = (rng.random(8000) < scores).astype(np.int8)
    chance = np.where((labels == 1) == (scores > 0.5), 0.9, 0.2)
    seen = rng.random(8000) < chance
    engines = [Recalibrator(mode="composite") for _ in range(2)]
    for engine, weights in zip(engines, (None, 1.0 / chance[seen]), strict=True):
        engine.learn_many(scores, labels, "source")
        engine.learn_many(scores[seen], labels[seen], weights=weights)
    assert [bool(engine.alarms) for engine in engines] == [True, False]
    assert engines[1].log_e_value is None


# What is refused


def test_a_label_delay_limit_refuses_weights() -> None:
    reason = "a label that is missing means 0"
    engine = Recalibrator(join=JoinConfig(missing_labels="negative", label_delay_limit=86_400.0))
    before = engine.to_bytes()
    with pytest.raises(ValueError, match=reason):
        engine.learn_one(0.5, 1, weight=2.0)
    with pytest.raises(ValueError, match=reason):
        engine.learn_many([0.5], [1], weights=[2.0])
    with pytest.raises(ValueError, match=reason):
        engine.step(LabelledEvent(0.5, 1, weight=2.0))
    assert engine.to_bytes() == before
    engine.step(LabelledEvent(0.5, 1, weight=1.0))


# Events


def test_the_label_says_what_it_counts_for_else_its_prediction() -> None:
    engine = Recalibrator(mode="target")
    engine.step(PredictionEvent("a", 0.5, weight=3.0))
    engine.step(LabelEvent("a", 1))
    engine.step(PredictionEvent("b", 0.5, weight=3.0))
    engine.step(LabelEvent("b", 0, weight=2.0))
    engine.step(LabelEvent("c", 0, weight=4.0))  # comes early
    engine = Recalibrator.from_bytes(engine.to_bytes())
    engine.step(PredictionEvent("c", 0.5))
    engine.step(LabelledEvent(0.5, 1, weight=1.5))
    engine.step(LabelledEvent(0.5, 1, "d"))
    weights = np.array([3.0, 2.0, 4.0, 1.5, 1.0])
    n, rate = weights.sum() ** 2 / (weights**2).sum(), (3.0 + 1.5 + 1.0) / weights.sum()
    assert engine.target.prior == pytest.approx((rate * n + 0.5) / (n + 1.0))


@pytest.mark.statistical
@pytest.mark.parametrize("mode", ["auto", "composite"])
def test_weights_undo_the_choice_of_labels(mode: Any) -> None:
    """Labels come for all scores above 0.8 and for a tenth of the others; P[Y=1 | score] = score².

    The prior is 1/3; among labels it is 0.63. By the weights its estimate has a standard deviation of
    √(Σw²·¼)/Σw < 0.008 at 20,000 predictions, so it is farther than 0.05 from 1/3 with probability below
    1e-9. Without weights it is 0.3 off. Seen to fail with a `Mass` that leaves weights out.
    """
    scores, labels, weights = labels_for_some(6, 20_000)
    source = labels_for_some(7, 6000)
    fair, naive = Recalibrator(mode=mode), Recalibrator(mode=mode)
    for engine, counted in ((fair, True), (naive, False)):
        if mode == "composite":
            engine.learn_many(source[0], source[1], "source", weights=source[2] if counted else None)
        engine.learn_many(scores, labels, weights=weights if counted else None)
    assert abs(fair.target.prior - 1 / 3) < 0.05
    assert abs(naive.target.prior - 1 / 3) > 0.25
