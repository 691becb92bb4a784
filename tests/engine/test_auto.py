"""Mode auto in the engine: what is served when, what an alarm leaves alone, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from streamcal import RecalibrationMap, Recalibrator
from streamcal.certificates.record import LABEL_SHIFT_REFUTED
from streamcal.engine.emissions import DriftAlarm, MapPublished, Recalibrated
from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.mixture.mixture import START
from streamcal.mixture.table import Mixed
from streamcal.sketch.counts_c import AT_ONCE
from streamcal.testing import NormalPair
from tests.inside import memo_of, memos_of
from tests.mixture.plain import limits_of

SOURCE, TARGET = NormalPair(0.5), NormalPair(0.1)


def brier(engine: Recalibrator, scores: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean((engine.predict_many(scores) - labels) ** 2))


def moved(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores that fall with the label: nothing of the source holds any more."""
    scores, labels = NormalPair(0.4).sample(n, np.random.default_rng(seed))
    return 1.0 - scores, labels


@pytest.mark.slow
@pytest.mark.parametrize("n", [500, 5000])
def test_before_the_first_target_label_a_mixture_of_the_source_s_maps_serves(n: int) -> None:
    """Its true risk is about that of the source's best map, or lower.

    Over 24 seeds the mean of the risks was 0.96 (300 labels) and 0.82 (5,000) times that of mode source,
    with a standard error of 0.15 for 8 of them: 1.5 times has a chance below 1e-3. The seeds are fixed.
    """
    risks = []
    for seed in range(8):
        scores, labels = SOURCE.sample(n, np.random.default_rng(seed))
        auto, source = Recalibrator(), Recalibrator(mode="source")
        for engine in (auto, source):
            engine.learn_many(scores, labels, "source")
            engine.observe_many(scores)
        risks.append([SOURCE.risk(engine.map).total for engine in (auto, source)])
    by_auto, by_source = np.mean(risks, axis=0)
    assert by_auto < 1.5 * by_source
    assert not any(name.startswith("target/platt") for name in auto.mixing.weights)
    mine, theirs = auto.certificate, source.certificate
    # Half of δ is kept for the target, and the distance of the two maps is added.
    assert SOURCE.risk(auto.map).total <= mine.risk <= 2.0 * theirs.risk


def flattened(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return scores that hardly say anything of the label any more, though more is still more likely 1."""
    rng = np.random.default_rng(seed)
    scores, _ = NormalPair(0.4).sample(n, rng)
    return scores, (rng.random(n) < 0.35 + 0.1 * scores).astype(np.int8)


def claims_by_label_shift(engine: Recalibrator) -> bool:
    """Return whether the certificate rests on label shift."""
    certificate = engine.certificate
    return LABEL_SHIFT_REFUTED in certificate.assumptions


@pytest.mark.slow
@pytest.mark.parametrize("law", [flattened, moved])
def test_an_alarm_withdraws_claims_and_leaves_the_mixture_and_the_source_alone(
    law: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
) -> None:
    """One alarm only, however many labels come; composites stay, with the weight that losses leave them."""
    rng = np.random.default_rng(4)
    engine, n = Recalibrator(), 9000
    engine.learn_many(*SOURCE.sample(20_000, rng), "source")
    alarms, published, claimed = [], [], []
    for score, label in zip(*(column.tolist() for column in law(n, 5)), strict=True):
        before = engine.mixing, engine.version
        emissions = engine.step(LabelledEvent(score, label))
        maps = [each for each in emissions if isinstance(each, MapPublished)]
        published += maps
        for each in emissions:
            if isinstance(each, DriftAlarm) and each.assumption == LABEL_SHIFT_REFUTED:
                alarms.append(each.target_labels)
                # The alarm mixes nothing: until the next step, the same map is served on.
                assert maps or (engine.mixing, engine.version) == before
        if maps:
            claimed.append(claims_by_label_shift(engine))
        # What the mixture holds does not depend on the alarm: by the share, composites never go.
        assert engine.mixing is None or {"composite/curve/all", "composite/curve/300"} <= {
            *engine.mixing.weights
        }
        assert engine.source.labels == 20_000
    assert len(alarms) == 1
    assert alarms[0] < 1000
    before_alarm = sum(each.map.version <= published[0].map.version + 5 for each in published)
    assert all(claimed[:before_alarm])
    certificate = engine.certificate
    assert LABEL_SHIFT_REFUTED in certificate.refuted
    assert not any(claimed[-100:])
    assert not claims_by_label_shift(engine)
    if law is flattened:  # what is certain by the target's own labels stays
        assert certificate.domain == "target"
        assert certificate.target_risk < 0.1
    assert [each.map.version for each in published] == sorted({each.map.version for each in published})
    fresh, truth = law(20_000, 6)
    assert brier(engine, fresh, truth) < np.mean((fresh - truth) ** 2) - 0.05
    engine.learn_many(*SOURCE.sample(500, rng), "source")  # labels of the source are still learned
    assert engine.source.labels == 20_500
    assert len([each for each in engine.alarms if each.assumption == LABEL_SHIFT_REFUTED]) == 1
    twin = Recalibrator.from_bytes(engine.to_bytes())
    assert twin.to_bytes() == engine.to_bytes()
    assert twin.alarms == engine.alarms


# Limits


def test_a_saturated_score_that_is_wrong_claims_no_more_than_labels_can_tell() -> None:
    """Before any label 1 − 1e-4; with a source of 1,000 labels, all of which it got right, 1 − 1/1,001."""
    engine = Recalibrator()
    nearest = 1.0 - START
    assert engine.predict_one(1.0) == pytest.approx(nearest, rel=1e-12)
    assert engine.predict_many([1.0, 0.5]).tolist() == [engine.predict_one(1.0), 0.5]
    scores = np.concatenate((np.full(500, 1.0), np.random.default_rng(1).uniform(0.2, 0.8, 500)))
    labels = (np.random.default_rng(2).random(1000) < scores).astype(np.int8)
    engine.learn_many(scores, labels, "source")
    engine.refresh()
    said = engine.predict_one(1.0)
    doubt = min(said, 1.0 - said)
    # Of both classes there are at least a quarter, so a fiftieth of the share is more.
    assert 1.0 / 1001.0 * (1.0 - 1e-9) <= doubt <= 3.0 / 1001.0
    assert said > 0.5


@pytest.mark.parametrize("sourced", [False, True])
def test_nothing_is_served_beyond_the_limits_of_the_labels(sourced: bool) -> None:
    """Scores that separate the classes, with a rare one: at all times, by the labels known at the step."""
    rng = np.random.default_rng(40)
    engine, source = Recalibrator(), np.empty(0, np.int8)
    labels = (rng.random(6000) < 0.02).astype(np.int8)
    scores = np.where(rng.random(6000) < 0.7, labels.astype(float), rng.random(6000))
    if sourced:
        source = labels[3000:]
        engine.learn_many(scores[3000:], source, "source")
    asked, closest = np.array([0.0, 1e-300, 1e-9, 0.5, 1.0 - 1e-9, 1.0]), []
    for start in range(0, 3000, 100):
        part = slice(start, start + 100)
        engine.observe_many(scores[part])
        engine.learn_many(scores[part], labels[part], memos=memos_of(start, len(labels[part])))
        held = engine.label_delays.held  # until one is a positive
        known = np.append(source, labels[: start + 100 - held])
        least, most = limits_of(len(known), int(known.sum()))
        said = engine.predict_many(asked)
        assert said.min() >= 0.99 * least
        assert said.max() <= 1.0 - 0.99 * (1.0 - most)
        closest.append(said.min() / least)
    assert min(closest) < 1.3  # the limit is what is served at the ends


def test_every_version_that_served_is_published_with_its_mixture() -> None:
    rng = np.random.default_rng(7)
    engine = Recalibrator()
    scores, labels = TARGET.sample(600, rng)
    versions, leaders, before = [], [], None
    for i, score in enumerate(scores.tolist()):
        answer, *emissions = engine.step(PredictionEvent(str(i), score))
        assert isinstance(answer, Recalibrated)
        assert answer.map_version == (versions[-1] if versions else 0)
        late = LabelEvent(str(i - 100), int(labels[i - 100]))
        for emission in (*emissions, *(engine.step(late) if i >= 100 else ())):
            assert isinstance(emission, MapPublished)
            assert emission.map.predict_one(0.3) == engine.predict_one(0.3)
            versions.append(emission.map.version)
            leaders.append(emission.mixture.leader)
            assert (emission.mixture.reason is None) == (before in (None, emission.mixture.leader))
            before = emission.mixture.leader
    # Of those that began with the first labels, which are learned together, only the last ever served.
    assert versions == list(range(versions[0], versions[0] + len(versions)))
    assert len(versions) > 10


def flipping(n: int, every: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose meaning turns round every so many labels, so that the weights never rest."""
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    rate = np.where(np.arange(n) // every % 2, 1.0 - scores, scores)
    return scores, (rng.random(n) < rate).astype(np.int8)


def test_the_target_continues_from_the_newest_labels_of_the_source() -> None:
    """Two sources of the same counts, in another order: what is newest in it is how the target begins.

    Half of the source says that high scores are right, half that they are wrong. From 40 target labels of the
    second kind nobody can know that it is so; a false alarm would take hundreds of freak labels.
    """
    scores, labels = flipping(4000, 2000, 20)
    target = flipping(60, 1, 21)[0]
    excess = []
    for newest in (slice(0, 2000), slice(2000, 4000)):
        engine = Recalibrator()
        first = slice(2000, 4000) if newest.start == 0 else slice(0, 2000)
        for part in (first, newest):
            engine.learn_many(scores[part], labels[part], "source")
        engine.learn_many(target, (target < 0.5).astype(int), "target")
        grid = np.linspace(0.05, 0.95, 50)
        excess.append(float(np.mean((engine.predict_many(grid) - (1.0 - grid)) ** 2)))
    assert excess[1] < 0.7 * excess[0]  # long memories hold both halves


def of_batches(engine: Recalibrator, scores: np.ndarray, labels: np.ndarray, size: int) -> float:
    """Predict and then learn so many at a time, as in the loop that everyone writes; return the log loss."""
    said = np.empty(len(scores))
    for start in range(0, len(scores), size):
        part = slice(start, start + size)
        said[part] = engine.predict_many(scores[part])
        engine.learn_many(scores[part], labels[part])
    return log_loss(said, labels)


def log_loss(said: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(np.where(labels == 1, said, 1.0 - said)).mean())


@pytest.mark.slow
def test_labels_of_one_call_are_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log odds that are off by another number in each batch: what a batch teaches of itself comes too late.

    Labels of a call were predicted before it. Taken for labels that come at once, they flatter the short
    memories, which have learned the first labels of the batch: that the same check notices.
    """
    rng, size = np.random.default_rng(23), 500
    logits = rng.normal(-1.0, 1.5, 60 * size)
    truth = 1.0 / (1.0 + np.exp(-(logits + rng.normal(0.0, 1.0, 60).repeat(size))))
    labels = (rng.random(len(truth)) < truth).astype(np.int8)
    scores = 1.0 / (1.0 + np.exp(-0.85 * logits))  # right on average
    raw = log_loss(scores, labels)
    assert of_batches(Recalibrator(), scores, labels, size) < 1.02 * raw
    monkeypatch.setattr("streamcal.engine.engine.IN_CALL", AT_ONCE)
    assert of_batches(Recalibrator(), scores, labels, size) > 1.05 * raw


def calibrated(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log odds, their probabilities, and labels of these."""
    logits = rng.normal(-2.0, 1.2, n)
    truth = 1.0 / (1.0 + np.exp(-logits))
    return logits, truth, (rng.random(n) < truth).astype(np.int8)


def scored(logits: np.ndarray, off: float) -> np.ndarray:
    """Return scores whose odds are e^off times the true ones."""
    return 1.0 / (1.0 + np.exp(-(logits + off)))


def test_what_late_labels_teach_is_served_at_once_where_nothing_was_known_before() -> None:
    """The first labels are of predictions that knew nothing: as of these, all candidates are the same.

    Judged as of the prediction, nothing moves for one more delay; the mean forecast was 1.29 times the truth.
    """
    engine, n, delay = Recalibrator(), 4000, 2000
    logits, truth, labels = calibrated(n, np.random.default_rng(32))
    scores, served, seen = scored(logits, 2.0), np.empty(n), []
    for start in range(0, n, 100):
        part = slice(start, start + 100)
        if start >= delay:
            late = slice(start - delay, start - delay + 100)
            engine.learn_many(scores[late], labels[late], memos=memos_of(seen.pop(0), len(labels[late])))
        served[part] = engine.predict_many(scores[part])
        seen.append(engine.target.scores)
        engine.observe_many(scores[part])
    learned = slice(delay + 700, n)
    assert served[learned].mean() == pytest.approx(truth[learned].mean(), rel=0.08)


@pytest.mark.slow
def test_scores_alone_move_the_map_before_the_labels_come() -> None:
    """The class balance jumps, labels are 2,000 predictions late: "scores" follows, "labels" does not yet."""
    rng = np.random.default_rng(10)
    calibration = SOURCE.sample(50_000, rng)
    before, after = NormalPair(0.1).sample(6000, rng), NormalPair(0.6).sample(1500, rng)
    scores, labels = (np.concatenate(pair) for pair in zip(before, after, strict=True))
    risks = {}
    for prior in ("labels", "scores"):
        engine = Recalibrator(prior=prior)
        engine.learn_many(*calibration, "source")
        versions, seen = {0: engine.map}, []
        for i, score in enumerate(scores.tolist()):
            seen.append(engine.target.scores)
            for emission in engine.step(PredictionEvent(str(i), score)):
                if isinstance(emission, MapPublished):
                    versions[emission.map.version] = emission.map
            if i >= 2000:
                for emission in engine.step(LabelEvent(str(i - 2000), int(labels[i - 2000]))):
                    if isinstance(emission, MapPublished):
                        versions[emission.map.version] = emission.map
        assert versions[engine.version].predict_one(0.3) == engine.predict_one(0.3)
        risks[prior] = NormalPair(0.6).risk(engine.map).total
        assert Recalibrator.from_bytes(engine.to_bytes()).to_bytes() == engine.to_bytes()
    assert risks["scores"] < 0.3 * risks["labels"]


def test_under_label_shift_composites_lead() -> None:
    rng = np.random.default_rng(3)
    engine = Recalibrator()
    engine.learn_many(*SOURCE.sample(50_000, rng), "source")
    for score, label in zip(*(column.tolist() for column in TARGET.sample(1000, rng)), strict=True):
        engine.learn_one(score, label, "target")
    shifted = sum(weight for name, weight in engine.mixing.weights.items() if name.startswith("composite"))
    assert shifted > 0.5
    source = Recalibrator(mode="source")
    source.learn_many(*SOURCE.sample(50_000, rng), "source")
    scores, labels = TARGET.sample(50_000, rng)
    assert brier(engine, scores, labels) < brier(source, scores, labels)


def test_delayed_labels_are_scored_with_the_forecast_of_their_time() -> None:
    """A short memory does well at once and badly late: what was `seen` tells one of the trackers so.

    It had .97 of the weight where nothing was told, and less than .02 where all was, over 3 seeds.
    """
    rng = np.random.default_rng(8)
    n, delay = 12_000, 1000
    rate = np.where(np.arange(n) // 1000 % 2, 0.8, 0.2)  # flips every 1,000: a late short memory is wrong
    labels = (rng.random(n) < rate).astype(int)
    scores = rng.uniform(0.3, 0.7, n)

    def weight_of_the_short(*, told: bool) -> float:
        engine, seen = Recalibrator(), []
        for i in range(n):
            seen.append(engine.target.scores)
            engine.observe_one(float(scores[i]))
            if i >= delay:
                late = i - delay
                engine.learn_one(
                    float(scores[late]),
                    int(labels[late]),
                    "target",
                    memo=memo_of(seen[late] if told else None),
                )
        return engine.mixing.weights.get("target/platt/0.98", 0.0)

    assert weight_of_the_short(told=True) < 0.2 * weight_of_the_short(told=False)


def test_a_map_that_is_formed_while_another_is_begun_does_not_replace_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that predicts many forms the mixed map; one that learns begins a version meanwhile."""
    engine = Recalibrator()
    engine.learn_many(*NormalPair(0.5).sample(500, np.random.default_rng(1)))
    served, newer = engine._engine.served, RecalibrationMap(version=0, edges=(0.0, 1.0), values=(0.25,))
    form = Mixed.map.func

    def formed(mixed: Mixed) -> RecalibrationMap:
        served.serve(newer, 9)
        return form(mixed)

    monkeypatch.setattr(Mixed, "map", property(formed))
    assert served.base != newer
    assert served.base == newer
    assert engine.predict_one(0.9) == 0.25
