"""The mixture of mode auto: its steps, late labels, the source, what it is for, and its state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture import mixture as module
from streamcal.mixture import weights as weights_module
from streamcal.mixture.candidates import CANDIDATES, names_of
from streamcal.mixture.evidence import forecasts
from streamcal.mixture.fits import fit_source
from streamcal.mixture.forecasts_c import Snapshot
from streamcal.mixture.mixture import EARLIER, STRIDE, STRIDE_AT_ONCE, Mixed, Mixture
from streamcal.mixture.online import OnlinePlatt
from streamcal.mixture.weights import Weights, by_source
from streamcal.sketch import grid
from streamcal.sketch.counts_c import AT_ONCE, IN_CALL
from streamcal.sketch.decoding import decoded, encoded
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.mixture import plain
from tests.mixture.plain import COMPOSITE, NAMES, log_losses, logits_of

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


def composites(mixed: Mixed) -> float:
    return sum(weight for name, weight in mixed.mixing.weights.items() if name.startswith("composite"))


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


@pytest.mark.slow
def test_the_map_is_the_weighted_sum_of_the_candidates(source_of: SourceOf) -> None:
    mixture = Mixture.begun()
    mixture.set_source(source_of(3000, 0.5, 2))
    scores, labels = NormalPair(0.3).sample(5000, np.random.default_rng(3))
    run(mixture, scores, labels, served=mixture.step(0))
    mixed = mixture.step(5000)
    weights = mixed.mixing.weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert all(0.0 < weight <= 1.0 for weight in weights.values())
    assert max(weights, key=weights.__getitem__) == mixed.mixing.leader
    # All scores of an interval get the same value, which is the sum in its middle (of its cells).
    edges = np.array(mixed.map.edges)
    cells = grid.cells_of(edges[:-1], grid.MIN_LEVEL)
    ends = np.append(cells[1:], (grid.LAST_KEY >> grid.MIN_LEVEL) + 1)
    middles = grid.middles(cells, grid.MIN_LEVEL, ends)
    served = snapshots_of(mixture)[-1]
    assert served.weights[1:] == pytest.approx(each_of(mixture))
    between = expit(mixture.weights.lead * np.array([1.0, -1.0]))
    assert served.weights[0] == pytest.approx(between @ each_of(mixture))
    table = dict(zip(NAMES, forecasts(served, middles), strict=True))
    said = np.stack([table[name] for name in NAMES])
    assert served.weights[0] == pytest.approx([weights.get(name, 0.0) for name in NAMES])
    assert mixed.map.predict_many(middles) == pytest.approx(plain.served(served, said), abs=1e-9)
    # Within the limits of its labels, its log odds are drawn towards those of the prior.
    assert served.limits == pytest.approx(limits_of(mixture))
    source = mixture.source
    prior = source.prior if source else np.nan
    assert expit(served.centre) == pytest.approx((labels.sum() + prior) / 5001.0)
    assert RecalibrationMap.model_validate(mixed.map.model_dump()) == mixed.map
    assert mixed.map.weights == (1.0, 1.0)
    assert len(edges) <= 900


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


@pytest.mark.parametrize("way", ["at once", "observed"])
def test_a_prediction_ends_a_burst(source_of: SourceOf, way: str) -> None:
    """A label that came at once, a score that was observed, or a mixture that is told of no scores."""
    rng = np.random.default_rng(32)
    mixture = Mixture.begun()
    mixture.set_source(source_of(1000, 0.5, 33))
    mixture.learn(*NormalPair(0.2).sample(STRIDE, rng), at_once(STRIDE))
    mixture.step(9 * STRIDE)
    scores, labels = NormalPair(0.9).sample(STRIDE, rng)
    mixture.learn(scores, labels, np.full(STRIDE, 3), None, 9 * STRIDE)
    assert bursts(mixture)  # since the step, no prediction was made
    seen = np.full(STRIDE, AT_ONCE if way == "at once" else 3)
    number = {"at once": 9 * STRIDE, "observed": 9 * STRIDE + 1, "not told": 0}[way]
    mixture.learn(scores, labels, seen, None, number)
    assert not bursts(mixture)


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


def test_windows_and_online_platt_continue_from_the_newest_labels_of_the_source() -> None:
    """From the last `EARLIER` at most, in their order."""
    rng = np.random.default_rng(9)
    n = EARLIER + 3000
    scores = np.round(rng.random(n), 2)
    labels = (rng.random(n) < np.where(np.arange(n) < 3000, 0.9, scores)).astype(np.int8)
    mixture, same = Mixture.begun(), Mixture.begun()
    mixture.continue_from(scores, labels)
    same.continue_from(scores[3000:], labels[3000:])
    assert encoded(mixture) == encoded(same)
    windows = mixture.windows
    assert windows.n == EARLIER
    newest = windows.newest
    assert newest.latest(EARLIER)[1].tolist() == labels[3000:].tolist()
    assert newest.latest(EARLIER)[0] == pytest.approx(scores[3000:], abs=1e-6)
    online = OnlinePlatt()
    online.learn(logits_of(scores[3000:]), labels[3000:])
    assert mixture.online.fits == pytest.approx(online.fits, rel=1e-6)
    assert mixture.n == 0


def test_the_weights_learn_the_source_s_labels_one_stretch_ahead_of_the_maps(source_of: SourceOf) -> None:
    """Every stretch is forecast by maps of the labels before it; the composites sleep."""
    step, rng = module._SOURCE_STEP, np.random.default_rng(34)
    scores = rng.random(5 * step - 50)
    labels = (rng.random(len(scores)) < scores**3).astype(np.int8)

    def before(end: int, *, sourced: bool = True) -> Mixture:
        """Return the mixture that has continued from the first labels only."""
        mixture = Mixture.begun()
        if sourced:
            mixture.set_source(source_of(1000, 0.5, 35))
        mixture.continue_from(scores[:end], labels[:end])
        return mixture

    weights = restored(before(0)).weights
    first = weights.served[0].copy()
    for start in range(0, len(scores), step):
        part = slice(start, start + step)
        # Once there are labels, the maps of the target are theirs, whatever source there is.
        knew = before(start, sourced=not start)
        values = forecasts(knew._snapshot(0, None), scores[part])
        losses = log_losses(values, labels[part], *limits_of(before(start)))
        weights.track(losses[np.newaxis], np.zeros((2, losses.shape[1])), earlier=None)
    part_of_composites = first[COMPOSITE].sum()
    said = numbers_of(before(len(scores)).weights)
    assert said == pytest.approx(numbers_of(weights), rel=1e-9)
    assert said[0] < 0.5 * first[0]  # the identity is grossly wrong
    assert said[:K][COMPOSITE].sum() == pytest.approx(part_of_composites)


# What it is for


@pytest.mark.slow
def test_where_the_scores_are_right_they_are_served() -> None:
    """Uniform scores that are the probabilities: the mean excess Brier loss after 5,000 labels is that of a
    few parameters, about 4·p(1−p)/n = 1e-4 a label; 10 times as much has a chance far below 1e-6."""
    rng = np.random.default_rng(17)
    scores = rng.random(10_000)
    out, _ = run(Mixture.begun(), scores, (rng.random(10_000) < scores).astype(np.int8), delay=500)
    assert np.mean((out[5000:] - scores[5000:]) ** 2) < 1e-3


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


# State


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


@pytest.mark.slow
def test_no_damage_goes_unnoticed_or_breaks_anything(source_of: SourceOf) -> None:
    """Every altered state is refused, or is a state that can go on: nothing else may be raised."""
    mixture = make_late(source_of, None)[0]
    mixture.set_source(source_of(800, 0.3, 21))
    good = encoded(mixture)
    rng = np.random.default_rng(22)
    scores, labels = NormalPair(0.5).sample(100, rng)
    refused = 0
    for _ in range(150):
        bad = bytearray(good)
        for place in rng.integers(0, len(bad), int(rng.integers(1, 4))):
            bad[place] = rng.integers(0, 256)
        try:
            other = decoded(bytes(bad), Mixture, "a mixture")
        except DamagedStateError:
            refused += 1
            continue
        assert encoded(restored(other)) == encoded(other)
        other.learn(scores, labels, rng.integers(-1, 500, 100))
        assert 0.0 <= other.step(other.observed).map.predict_one(0.5) <= 1.0
        assert encoded(restored(other)) == encoded(other)
    assert refused > 10
    for cut in rng.integers(0, len(good), 50).tolist():
        with pytest.raises(DamagedStateError):
            decoded(good[:cut], Mixture, "a mixture")
