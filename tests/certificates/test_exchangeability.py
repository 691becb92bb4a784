"""The test of identical distribution: false alarms, power, state, and what a certificate then claims.

Failure probability: at α = 0.05, more than 7 alarms in 150 identically distributed streams. The proof
allows at most 0.05 each; in truth far fewer alarm (none seen), so the test fails with probability below 1e-6
unless the formula is broken. Delays are medians of nine streams, with a margin of a fifth or more above those
seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from streamcal import Certificate, DriftAlarm, LabelEvent, MapPublished, PredictionEvent, Recalibrator
from streamcal.certificates import exchangeability
from streamcal.certificates.exchangeability import ExchangeabilityTest
from streamcal.certificates.record import NO_CLAIM, identically_distributed
from streamcal.engine.config import Mode
from streamcal.engine.schedule import Schedule
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.nightly import one_in

ALPHA = 0.05
OF_ENGINE = 0.01  # α in an engine with δ = 0.1

Stream = tuple[np.ndarray, np.ndarray]


def draw(prior: float, n: int, rng: np.random.Generator) -> Stream:
    """Scores and labels of D(prior)."""
    scores, labels = NormalPair(prior).sample(n, rng)
    return np.asarray(scores), np.asarray(labels)


def joined(*parts: Stream) -> Stream:
    return np.concatenate([each[0] for each in parts]), np.concatenate([each[1] for each in parts])


def looks(n: int) -> list[int]:
    """The counts at which an engine looks, if a map version is due at each of them or at later ones."""
    counts = (Schedule(1.1).count(j) for j in range(300))
    return [count for count in counts if count <= n]


def refuted_at(stream: Stream, alpha: float = OF_ENGINE) -> float:
    """Number of labels at which identical distribution is refuted, infinite if it is not."""
    scores, labels = stream
    test, sketch = ExchangeabilityTest.begun(alpha, 4096), ScoreSketch(4096)
    for start, end in pairwise([0, *looks(len(scores))]):
        sketch.add(scores[start:end], labels[start:end])
        if end >= test.due and test.look(sketch) is not None:
            return end
    return math.inf


def false_alarms(streams: int, n: int) -> float:
    """Share of streams with an alarm: D(0.5), D(0.1), a rare class, and scores of few values in turn."""
    alarms = 0
    for seed in range(streams):
        rng = np.random.default_rng([26, seed])
        scores, labels = draw((0.5, 0.1, 0.01, 0.3)[seed % 4], n, rng)
        alarms += refuted_at((scores if seed % 4 < 3 else np.round(scores, 1), labels), ALPHA) < math.inf
    return alarms / streams


@pytest.mark.statistical
def test_false_alarms_are_rarer_than_alpha() -> None:
    rate = false_alarms(150, 5_000)
    print(f"false alarms {rate:.4f} of 150 streams, alpha {ALPHA}")
    assert rate <= ALPHA


def shifted(rng: np.random.Generator) -> Stream:
    return joined(draw(0.2, 5_000, rng), draw(0.3, 10_000, rng))


def reversed_ranking(rng: np.random.Generator) -> Stream:
    before, (scores, labels) = draw(0.5, 2_000, rng), draw(0.5, 4_000, rng)
    return joined(before, (1.0 - scores, labels))


def drift(rng: np.random.Generator) -> Stream:
    """The class balance rises from .2 to .4 within 40,000 labels."""
    return joined(*(draw(0.2 + 0.005 * step, 1_000, rng) for step in range(40)))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("stream", "change", "most"),
    [(shifted, 5_000, 1_900), (reversed_ranking, 2_000, 300), (drift, 0, 24_000)],
)
def test_a_change_is_told(stream: Callable[[np.random.Generator], Stream], change: int, most: int) -> None:
    delays = [refuted_at(stream(np.random.default_rng([27, seed]))) - change for seed in range(9)]
    print(f"{stream.__name__}: median delay {np.median(delays):.0f} labels, longest {max(delays):.0f}")
    assert 0 < np.median(delays) <= most


def reference(test: ExchangeabilityTest, counts: np.ndarray) -> float:
    """The log e-value by its definition, one sequence and one look after the other."""

    def kt(symbols: list[int]) -> float:
        half = 0.5 * len(symbols)
        value = math.lgamma(half) - math.lgamma(sum(symbols) + half)
        return value + sum(math.lgamma(n + 0.5) - math.lgamma(0.5) for n in symbols)

    def best(symbols: list[int]) -> float:
        return sum(n * math.log(n / sum(symbols)) for n in symbols if n)

    def sequences(part: np.ndarray) -> list[list[list[int]]]:
        return [part.T.tolist(), [part.sum(axis=1).tolist()], [part.sum(axis=0).tolist()]]

    first, values = test.snapshots[0], []
    for which, whole in enumerate(sequences(counts - first)):
        for number, snapshot in zip(test.looks[1:].tolist(), test.snapshots[1:], strict=True):
            weight = math.log(32 / ((number + 31) * (number + 32)))
            sides = sequences(snapshot - first)[which] + sequences(counts - snapshot)[which]
            values.append(weight + sum(map(kt, sides)) - sum(map(best, whole)))
    return float(np.logaddexp.reduce(values)) - math.log(3)


def test_the_e_value_is_its_definition() -> None:
    rng = np.random.default_rng(5)
    for prior in (0.5, 0.02):
        scores, labels = shifted(rng) if prior == 0.5 else draw(prior, 15_000, rng)
        test, sketch = ExchangeabilityTest.begun(1e-300, 4096), ScoreSketch(4096)
        for start, end in pairwise([0, *looks(len(scores))]):
            sketch.add(scores[start:end], labels[start:end])
            if len(test.looks) > 1:
                counts = test._in_bins(sketch)
                assert test._log_e(counts) == pytest.approx(reference(test, counts), abs=1e-5)
            test.look(sketch)
    assert sum(32 / ((k + 31) * (k + 32)) for k in range(1, 10_000)) < 1.0


# In an engine


def changed(n: int = 4_000) -> Stream:
    """A reversed ranking after half of the labels."""
    rng = np.random.default_rng(4)
    before, (scores, labels) = draw(0.3, n // 2, rng), draw(0.3, n // 2, rng)
    return joined(before, (1.0 - scores, labels))


@pytest.mark.slow
def test_a_refuted_assumption_is_told_once_and_claims_nothing() -> None:
    scores, labels = changed()
    engine, alarms = Recalibrator(mode="target"), []
    for number, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        engine.step(PredictionEvent(str(number), score))
        alarms += [
            each for each in engine.step(LabelEvent(str(number), label)) if isinstance(each, DriftAlarm)
        ]
        if number == 1_999:
            before = engine.certificate
    assert before is not None
    assert before.refuted == ()
    assert before.risk < 0.25
    (alarm,) = alarms
    assert alarm.assumption == identically_distributed("target")
    assert alarm.assumption in before.assumptions
    assert 2_000 < alarm.target_labels < 2_500
    assert alarm.reason.startswith("log e-value ")
    certificate = engine.certificate
    assert certificate is not None
    assert certificate.refuted == (alarm.assumption,)
    assert certificate.risk == certificate.target_risk == 1.0
    assert "an assumption is refuted" in certificate.in_words("risk")
    assert engine.alarms == (alarm,)


# A claim does not change: what is worked out later is what would have been worked out at once


@pytest.mark.parametrize("mode", ["auto", "target"])
def test_certificates_and_maps_read_at_the_end_are_those_read_at_once(mode: Mode) -> None:
    rng = np.random.default_rng(41)
    engines = [Recalibrator(mode=mode) for _ in range(2)]
    scores = rng.random(500)
    labels = (rng.random(500) < scores).astype(int)
    for engine in engines:
        engine.learn_many(scores, labels, "source")
    at_once, late = list[tuple[object, Certificate | None]](), list[MapPublished]()
    for number, score in enumerate(rng.random(1_500).tolist()):
        label = int(rng.random() < score**2)
        for event in (PredictionEvent(f"{number}", score), LabelEvent(f"{number}", label)):
            for emission in engines[0].step(event):
                if isinstance(emission, MapPublished):
                    at_once.append((emission.map, emission.certificate))
            late += [emission for emission in engines[1].step(event) if isinstance(emission, MapPublished)]
    assert [(emission.map, emission.certificate) for emission in late] == at_once
    assert sum(certificate is not None for _, certificate in at_once) > 5


# What a bound that claims nothing says, and when a first claim is expected


def certified(n_source: int, n_target: int, seed: int, **options: object) -> Certificate:
    rng = np.random.default_rng([31, seed])
    engine = Recalibrator(**options)
    engine.learn_many(*NormalPair(0.5).sample(n_source, rng), "source")
    if n_target:
        engine.learn_many(*NormalPair(0.1).sample(n_target, rng))
    certificate = engine.certificate
    assert certificate is not None
    return certificate


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_a_first_claim_comes_near_the_labels_that_were_expected(seed: int) -> None:
    expected = certified(80, 0, seed, mode="source").labels_needed
    assert expected is not None
    assert certified(max(64, expected // 4), 0, seed, mode="source").risk >= NO_CLAIM
    assert certified(expected * 4, 0, seed, mode="source").risk < NO_CLAIM


@pytest.mark.nightly
@pytest.mark.statistical
def test_the_likeliest_change_would_alarm_falsely(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken formula: the largest likelihood on each side of a change, where the predictor must learn."""
    likelihoods = exchangeability.log_likelihoods
    monkeypatch.setattr(exchangeability, "log_likelihoods", lambda counts, _: likelihoods(counts, False))
    assert false_alarms(40, 5_000) > 0.5


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_by_label_shift_it_is_the_labels_of_the_target_that_are_counted(seed: int) -> None:
    certificate = certified(2_000, 8, seed, mode="composite")
    expected = certificate.labels_needed
    assert certificate.risk < NO_CLAIM
    assert expected is not None
    later = certified(2_000, 8 * expected, seed, mode="composite").target_risk
    assert later is not None
    assert later < NO_CLAIM
    assert repr(certificate).startswith(
        f"Certificate(version={certificate.version}, domain='source', risk=0.0"
    )
    words = f"no claim yet: 8 labels so far, first claim expected near {expected:,}"
    assert f"target_risk={words}," in str(certificate)
    assert f"<td>{words}</td>" in certificate._repr_html_()
