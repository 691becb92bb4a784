"""The mixture of mode auto: its steps, late labels, the source, what it is for, and its state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture import weights as weights_module
from streamcal.mixture.candidates import CANDIDATES, names_of
from streamcal.mixture.evidence import forecasts
from streamcal.mixture.fits import fit_source
from streamcal.mixture.forecasts_c import Snapshot
from streamcal.mixture.mixture import Mixture
from streamcal.mixture.snapshots import STRIDE, STRIDE_AT_ONCE
from streamcal.mixture.table import Mixed
from streamcal.mixture.weights import Weights, by_source
from streamcal.sketch import grid
from streamcal.sketch.counts_c import AT_ONCE, IN_CALL
from streamcal.sketch.decoding import decoded, encoded
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.mixture import plain
from tests.mixture.plain import COMPOSITE, NAMES, log_losses

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
SourceOf = Callable[[int, float, int], ScoreSketch]

K = len(NAMES)


def at_once(n: int) -> npt.NDArray[np.int64]:
    return np.full(n, AT_ONCE)


def run(
    mixture: Mixture, scores: Floats, labels: Labels, *, delay: int = 0, served: Mixed | None = None
) -> tuple[Floats, list[Mixed]]:
    """Predict every score with the map of that moment, and learn its label ``delay`` events later."""
    out, steps, learned, predicted = np.empty(len(scores)), [served] if served else [], 0, 0
    before = mixture.n
    while predicted < len(scores):
        end = min(len(scores), mixture.next_step - before + delay)
        part = scores[predicted:end]
        out[predicted:end] = steps[-1].map.predict_many(part) if steps else part
        predicted, now = end, max(learned, end - delay)
        seen = np.arange(learned, now) if delay else at_once(now - learned)
        mixture.learn(scores[learned:now], labels[learned:now], seen)
        learned = now
        if mixture.n >= mixture.next_step:
            steps.append(mixture.step(before + predicted))
    return out, steps


def snapshots_of(mixture: Mixture) -> list[Snapshot]:
    """Return the snapshots that are kept, that which is served last."""
    return [snapshot for _, snapshot in restored(mixture).snapshots.entries]


def each_of(mixture: Mixture) -> Floats:
    """Return the weights of both trackers, float64[2, K]."""
    return restored(mixture).weights.tracked


def numbers_of(weights: Weights) -> Floats:
    """Return all that the weights depend on."""
    return np.concatenate((weights.tracked.ravel(), weights.loss, (weights.lead,)))


def limits_of(mixture: Mixture) -> tuple[float, float]:
    """Return the limits by the labels that the windows of a mixture hold, or by the source's."""
    state = mixture
    source = state.source
    if state.windows.n or source is None:
        return plain.limits_of(state.windows.n, state.windows.positives)
    return plain.limits_of(source.labels, source.prior * source.labels)


def bursts(mixture: Mixture) -> bool:
    """Return whether the latest prediction was served by another snapshot than the latest."""
    snapshots = restored(mixture).snapshots
    return snapshots.arrival is not snapshots.latest


def restored(mixture: Mixture) -> Mixture:
    return decoded(encoded(mixture), Mixture, "a mixture")


# Steps


@pytest.mark.parametrize("late", [0.4, 0.6])
def test_steps_take_8_labels_then_a_quarter_up_to_the_stride(late: float) -> None:
    """The longest is shorter while most labels come before the step after their prediction."""
    mixture, counts = Mixture.begun(), [0]
    scores, labels = NormalPair(0.5).sample(1000, np.random.default_rng(1))
    while (due := mixture.next_step) <= 1000:
        part, observed = slice(mixture.n, due), mixture.observed
        size = due - mixture.n
        seen = np.where(np.arange(size) < late * size, observed - 1, observed + 5)
        mixture.learn(scores[part], labels[part], seen, None, observed + 10)
        mixture = restored(mixture)
        mixture.step(observed + 10)
        counts.append(due)
    assert counts[1] == 8
    most = STRIDE_AT_ONCE if late < 0.5 else STRIDE
    for before, after in pairwise(counts):
        assert after - before == min(most, max(8, before // 4))


# Delay


def make_late(source_of: SourceOf, prior: float | None) -> tuple[Mixture, Floats, Labels, Any]:
    """Return a mixture with snapshots, and labels of every age that are next."""
    rng = np.random.default_rng(4)
    mixture = Mixture.begun()
    mixture.set_source(source_of(2000, 0.4, 5))
    mixture.step(0, prior)
    for step in range(12):
        seen = rng.integers(0, 50 * step + 1, STRIDE)
        mixture.learn(*NormalPair(0.2 + 0.6 * (step % 2)).sample(STRIDE, rng), seen)
        mixture.step(50 * step, prior)
    scores, labels = NormalPair(0.5).sample(STRIDE, rng)
    return mixture, scores, labels, np.append(rng.integers(0, 600, STRIDE - 2), [AT_ONCE, IN_CALL])


@pytest.mark.parametrize("prior", [None, 0.3])
def test_a_label_is_scored_as_of_its_prediction_and_as_of_its_arrival(
    source_of: SourceOf, prior: float | None
) -> None:
    """The one by the first tracker, the other by the second, except where scores tell of the prior."""
    mixture, scores, labels, seen = make_late(source_of, prior)
    held, served = snapshots_of(mixture), np.empty((K, STRIDE))
    assert held[-1].by_scores == (prior is not None)
    then, mixed, drawn = np.empty((K, STRIDE)), list[Floats](), list[Floats]()
    partition = mixture.table.partition
    lefts = grid.left_edges(partition, grid.MIN_LEVEL)
    middles = grid.middles(
        partition, grid.MIN_LEVEL, np.append(partition[1:], (grid.LAST_KEY >> grid.MIN_LEVEL) + 1)
    )
    for i, (score, count) in enumerate(zip(scores.tolist(), seen.tolist(), strict=True)):
        one = [each for each in held if count < 0 or each.observed <= count][-1]
        then[:, i] = forecasts(one, np.array([score]))[:, 0]
        mixed.append(one.weights[1:] @ then[:, i])
        drawn.append(plain.drawn(np.clip(one.weights[0] @ then[:, [i]], *one.limits), one.centre)[:, 0])
        interval = int(np.searchsorted(lefts, score, side="right")) - 1
        served[:, i] = forecasts(held[-1], middles[interval : interval + 1])[:, 0]
    limits = limits_of(mixture)
    losses = log_losses(np.stack((then, then if prior else served)), labels, *limits)
    tracked = log_losses(np.stack(mixed, axis=1), labels, *limits)
    assert np.abs(then - served).max() > 0.1
    weights, sloped = restored(mixture).weights, log_losses(np.stack(drawn, axis=1), labels, *limits)
    weights.track(losses, tracked, earlier=mixture.n)
    rate, share, first = weights_module.SLOPE_RATE, weights_module.SLOPE_SHARE, weights_module._FIRST_SLOPES
    before = mixture.slopes.weights
    slopes = plain.slopes_after(before, [sloped], rate, share, first)
    mixture.learn(scores, labels, seen)
    assert numbers_of(mixture.weights) == pytest.approx(numbers_of(weights), rel=1e-6, abs=1e-9)
    assert mixture.slopes.weights == pytest.approx(slopes, rel=1e-6)
    assert np.abs(slopes - before).max() > 1e-3
    if prior is None:
        assert np.abs(each_of(mixture)[0] - each_of(mixture)[1]).max() > 1e-3


@pytest.mark.parametrize("told", [False, True])
def test_the_first_labels_of_a_burst_do_not_score_its_others(source_of: SourceOf, told: bool) -> None:
    """What was served when the latest prediction was made scores all labels of the burst, on arrival.

    That is told by `IN_CALL`, or where no score is observed between labels whose predictions are known.
    """
    rng = np.random.default_rng(30)
    mixture = Mixture.begun()
    mixture.set_source(source_of(1000, 0.5, 31))
    observed = 8 * STRIDE  # more than labels: they tell of predictions
    for _ in range(20):
        mixture.learn(*NormalPair(0.2).sample(STRIDE, rng), np.full(STRIDE, observed))
        observed += STRIDE
        mixture.step(observed)
    scores, labels = NormalPair(0.9).sample(4 * STRIDE, rng)
    burst = np.full(4 * STRIDE, observed - 1 if told else IN_CALL)
    if not told:
        burst[0] = AT_ONCE
    weights, taught = (restored(mixture).weights for _ in range(2))
    early, late = snapshots_of(mixture)[-2:]
    observed += 4 * STRIDE  # the latest predictions were made when `late` was served
    for start in range(0, 4 * STRIDE, STRIDE):
        part = slice(start, start + STRIDE)
        points, limits = scores[part], limits_of(mixture)
        # While it is what is served, the table says it, of the middle of an interval.
        inner, middles, logits = mixture.table.cells
        places = inner.searchsorted(points, "right")
        # What the labels before in the burst have taught.
        latest = forecasts(snapshots_of(mixture)[-1], middles[places], logits[places])
        now = forecasts(late, points) if start else latest
        then, served = (forecasts(early, points), early) if told else (now, late)
        tracked = log_losses(served.weights[1:] @ then, labels[part], *limits)
        early_on = mixture.n
        weights.track(log_losses(np.stack((then, now)), labels[part], *limits), tracked, earlier=early_on)
        taught.track(log_losses(np.stack((then, latest)), labels[part], *limits), tracked, earlier=early_on)
        mixture.learn(scores[part], labels[part], burst[part], None, observed)
        mixture.step(observed)
        mixture = restored(mixture)
    said = numbers_of(mixture.weights)
    assert said == pytest.approx(numbers_of(weights), rel=1e-6, abs=1e-9)
    assert np.abs(said - numbers_of(taught))[K : 2 * K].max() > 0.01
    assert bursts(mixture)


# The source


def test_before_the_first_target_label_the_source_s_maps_are_mixed_by_their_losses(
    source_of: SourceOf,
) -> None:
    sketch = source_of(20_000, 0.5, 7)
    source, mixture = fit_source(sketch), Mixture.begun()
    mixture.set_source(sketch)
    mixed = mixture.step(0)
    expected = by_source(source, shifted=False)
    assert mixed.mixing.weights == pytest.approx(
        {name: weight for name, weight in zip(NAMES, expected.tolist(), strict=True) if weight > 0.0}
    )
    assert mixed.mixing.reason is None
    pair = NormalPair(0.5)
    raw = pair.risk(RecalibrationMap(version=0)).total
    # The first weights of the slopes make what is served flatter by a fortieth: that has cost a third.
    assert pair.risk(mixed.map).total < 0.0015 * raw
    as_it_is = Mixture.begun()
    as_it_is.slopes.weights = np.eye(4)[0]
    as_it_is.set_source(sketch)
    assert pair.risk(as_it_is.step(0).map).total < 0.001 * raw
    # A prior from scores: only composites follow it, all of them to the same prior.
    shifted = mixture.step(0, 0.1)
    names = dict(zip(names_of(CANDIDATES, by_scores=True), COMPOSITE.tolist(), strict=True))
    assert all(names[name] for name in shifted.mixing.weights)
    assert NormalPair(0.1).risk(shifted.map).total < 0.001
    odds = 0.1 / 0.9 / (source.prior / (1.0 - source.prior))
    served = snapshots_of(mixture)[-1]
    assert served.odds == pytest.approx(np.where(COMPOSITE, odds, 1.0))
    assert len(snapshots_of(mixture)) == 1  # of the moments before the first label the last is enough
    assert mixture.step(0).mixing.weights == pytest.approx(mixed.mixing.weights)


# What it is for


@pytest.mark.slow
def test_it_recovers_from_a_change_of_concept() -> None:
    """Scores that suddenly mean the opposite. Within 1,500 labels the excess risk over h* must be a tenth of
    that of the map before the change; typical is a fiftieth, and it would take hundreds of freak labels."""
    rng = np.random.default_rng(18)
    truth = expit(rng.normal(0.0, 2.0, 8000))
    labels = (rng.random(8000) < truth).astype(np.int8)
    scores = np.where(np.arange(8000) < 4000, truth, 1.0 - truth)
    out, steps = run(Mixture.begun(), scores, labels, delay=300)
    excess = (out - truth) ** 2
    assert excess[2000:4000].mean() < 0.01
    assert excess[6100:].mean() < 0.1 * np.mean((1.0 - 2.0 * truth) ** 2)
    assert any("less per label than" in (step.mixing.reason or "") for step in steps)
    for before, after in pairwise(steps):
        assert (after.mixing.reason is None) == (before.mixing.leader == after.mixing.leader)


def test_late_labels_are_not_scored_with_what_they_taught(source_of: SourceOf) -> None:
    """With labels that contradict the source, the first fits change everything. For the first tracker, the
    maps of the target were still that of the source when the predictions were made: none has lost more."""
    rng = np.random.default_rng(6)
    scores = rng.random(600)
    labels = (rng.random(600) > scores).astype(np.int8)
    mixture = with_source(source_of)
    first = each_of(mixture)[0]
    mixture.learn(scores[:300], labels[:300], np.arange(300))
    mixture.step(300)
    mixture.learn(scores[300:], labels[300:], np.arange(300))
    by_moment, by_arrival = each_of(mixture)
    isotonic, composite = NAMES.index("target/isotonic/250"), NAMES.index("composite/curve/all")
    ratio = first[isotonic] / first[composite]
    assert by_moment[isotonic] / by_moment[composite] == pytest.approx(ratio, rel=0.1)
    assert by_arrival[isotonic] / by_arrival[composite] > 2.0 * ratio


def with_source(source_of: SourceOf) -> Mixture:
    mixture = Mixture.begun()
    mixture.set_source(source_of(1000, 0.5, 31))
    mixture.step(0)
    return mixture


def test_restoring_at_any_point_changes_nothing(source_of: SourceOf) -> None:
    """Whatever is done to a mixture: with late labels, a source, another source, scores."""
    rng = np.random.default_rng(19)
    kept, again = Mixture.begun(), Mixture.begun()
    observed, arrivals, early = 4000, 0, NormalPair(0.4).sample(500, rng)
    for mixture in (kept, again):
        mixture.continue_from(*early)
    for step in range(40):
        scores, labels = NormalPair(0.2 + 0.6 * (step % 2)).sample(70, rng)
        seen = rng.integers(IN_CALL if step % 3 else 0, observed + 1, 70)
        observed += int(rng.integers(0, 200)) * (step % 4 != 3)
        told = observed if step % 2 else 0
        source = source_of(500 + step, 0.5, 20) if step in (0, 5, 25) else None
        mixed = []
        again = restored(again)
        for mixture in (kept, again):
            if step:
                mixture.learn(scores[:30], labels[:30], seen[:30], None, told)
            if source:
                mixture.set_source(source)
        again = restored(again)
        for mixture in (kept, again):
            if step:
                mixture.learn(scores[30:], labels[30:], seen[30:], None, told)
                arrivals += bursts(mixture)
            mixed.append(mixture.step(observed, 0.3 if step % 7 > 3 else None))
        assert mixed[0] == mixed[1]
        assert encoded(kept) == encoded(again)
    assert kept.n == 39 * 70
    assert arrivals > 4
