"""The tracked mixture of mode auto: its steps, its snapshots, what it is for, and its state."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.uniform_mass import form
from streamcal.mixture import state as mixture_state
from streamcal.mixture.fits import Points, Snapshot, forecasts
from streamcal.mixture.mixture import FIRST_STEP, MATERIAL, STRIDE, WEIGHED, Mixed, Mixture
from streamcal.mixture.names import ALL, FAMILIES, NAMES, PRIORS, TARGET_ONLY, WINDOWS, counted_as
from streamcal.mixture.snapshots import Ring
from streamcal.mixture.tracking import track
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def source_of(n: int, prior: float, seed: int) -> tuple[RecalibrationMap, ScoreSketch]:
    sketch = ScoreSketch()
    sketch.add(*NormalPair(prior).sample(n, np.random.default_rng(seed)))
    return form(sketch, "auto").map, sketch


def run(
    mixture: Mixture, scores: Floats, labels: Labels, *, delay: int = 0, served: Mixed | None = None
) -> tuple[Floats, list[Mixed]]:
    """Predict every score with the map of that moment, and learn its label ``delay`` events later."""
    out, steps, learned, predicted = np.empty(len(scores)), [served] if served else [], 0, 0
    before = mixture.n
    while predicted < len(scores):
        end = min(len(scores), learned + mixture.next_weighing - mixture.n + delay)
        part = scores[predicted:end]
        out[predicted:end] = steps[-1].map.predict_many(part) if steps else part
        predicted, now = end, max(learned, end - delay)
        seen = np.arange(learned, now) if delay else None
        mixture.learn_many(scores[learned:now], labels[learned:now], seen)
        learned = now
        if mixture.n >= mixture.next_weighing:
            mixed = go_on(mixture, before + predicted)
            steps += [mixed] if mixed else []
    return out, steps


def go_on(mixture: Mixture, observed: int) -> Mixed | None:
    """Do what is due, as the engine does."""
    return mixture.step(observed) if mixture.n >= mixture.next_step else mixture.reweigh()


def brier(forecast: Floats, labels: Labels) -> float:
    return float(np.mean((forecast - labels) ** 2))


# Steps


def test_steps_grow_by_a_tenth_up_to_the_stride() -> None:
    mixture, counts = Mixture(), []
    scores, labels = NormalPair(0.5).sample(6000, np.random.default_rng(7))
    while mixture.next_step <= 6000:
        due = mixture.next_step
        mixture.learn_many(scores[mixture.n : due], labels[mixture.n : due])
        mixture.step(0)
        counts.append(due)
    assert counts[0] == FIRST_STEP
    for before, after in pairwise(counts):
        assert after - before == min(STRIDE, -(-before // 10))


def test_the_map_is_the_weighted_sum_of_the_candidates() -> None:
    h, sketch = source_of(3000, 0.5, 8)
    mixture = Mixture()
    mixture.set_source(h, sketch)
    scores, labels = NormalPair(0.3).sample(5000, np.random.default_rng(9))
    mixed = run(mixture, scores, labels, served=mixture.step(0))[1][-1]
    assert sum(mixed.weights.values()) == pytest.approx(1.0)
    assert all(0.0 < weight <= 1.0 for weight in mixed.weights.values())
    assert max(mixed.weights, key=mixed.weights.__getitem__) == mixed.leader
    # Within a place all scores are served alike, so that the sum is taken in its middle (of its cells).
    edges = np.array(mixed.map.edges)
    cells = grid.cells_of(edges[:-1], grid.MIN_LEVEL)
    ends = np.append(cells[1:], grid.LAST_KEY >> grid.MIN_LEVEL)
    middles = grid.left_edges(cells + ends, grid.MIN_LEVEL - 1)
    table = dict(zip(NAMES, forecasts(mixture._ring.latest, Points.of(middles)), strict=True))
    total = sum(weight * table[name] for name, weight in mixed.weights.items())
    assert mixed.map.predict_many(middles) == pytest.approx(total, abs=1e-12)
    assert RecalibrationMap.model_validate(mixed.map.model_dump()) == mixed.map
    # Nowhere from 2⁻¹² to 1 − 2⁻¹² is a place wider than an eighth of an octave.
    inside = edges[(edges >= 2.0**-12) & (edges <= 1.0 - 2.0**-12)]
    assert (np.diff(inside) <= np.minimum(inside[:-1], 1.0 - inside[1:]) / 8.0 + 1e-12).all()
    assert len(edges) <= 900
    # The uniform-mass maps of all labels are served exactly: every edge of theirs is one of the map's.
    for fit in (mixture._source.fit, mixture._fits[ALL]):
        assert set(grid.left_edges(fit.uniform.edges, grid.MIN_LEVEL)) <= set(edges)


def test_windows_of_target_labels_are_those_of_their_names() -> None:
    scores, labels = NormalPair(0.4).sample(9000, np.random.default_rng(10))
    mixture = Mixture()
    run(mixture, scores, labels)
    n = mixture._counts.n
    every = ScoreSketch(512)
    every.add(scores[:n], labels[:n])
    assert mixture._counts.level == every.level
    for place, length in enumerate(WINDOWS):
        fit = mixture._fits[place]
        if n < length:
            assert fit is mixture._fits[ALL]
            continue
        assert length <= fit.labels <= length + max(length // 8, STRIDE)
        end = mixture._fitted_at[place]
        assert n - end < max(length // 8, STRIDE)
        assert fit.positives == int(labels[end - fit.labels : end].sum())
    assert n - n // 16 - STRIDE <= mixture._fits[ALL].labels <= n


def test_a_loop_is_the_same_as_many_at_once() -> None:
    scores, labels = NormalPair(0.5).sample(2000, np.random.default_rng(11))
    sight = np.maximum(np.arange(2000) - 37, 0)
    one, many = Mixture(), Mixture()
    while one.n < 2000:
        start, end = one.n, min(2000, one.next_step)
        for i in range(start, end):
            one.learn(float(scores[i]), int(labels[i]), int(sight[i]) if i % 2 else None)
        given = np.where(np.arange(start, end) % 2, sight[start:end], -1)
        middle = (start + end) // 2
        many.learn_many(scores[start:middle], labels[start:middle], given[: middle - start])
        many.learn_many(scores[middle:end], labels[middle:end], given[middle - start :])
        assert one.to_bytes() == many.to_bytes()
        if one.n >= one.next_step:
            assert one.step(end) == many.step(end)
    assert one.to_bytes() == many.to_bytes()


# Between steps


def flipping(n: int, every: int, seed: int) -> tuple[Floats, Labels]:
    """Scores whose meaning turns round every so many labels, so that the weights never rest."""
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    rate = np.where(np.arange(n) // every % 2, 1.0 - scores, scores)
    return scores, (rng.random(n) < rate).astype(np.int8)


def test_labels_are_weighed_between_steps_but_not_close_to_one() -> None:
    """So that the fits, which only steps make, are as far apart as ever."""
    mixture, weighed, stepped = Mixture(), [], [0]
    scores, labels = NormalPair(0.5).sample(6000, np.random.default_rng(40))
    while (due := mixture.next_weighing) <= 6000:
        mixture.learn_many(scores[mixture.n : due], labels[mixture.n : due])
        at = list(mixture._fitted_at)
        (stepped if due == mixture.next_step else weighed).append(due)
        go_on(mixture, 0)
        if due != stepped[-1]:
            assert mixture._fitted_at == at
    assert [count for count in weighed if count < stepped[-1]] == [
        count
        for before, after in pairwise(stepped)
        for count in range(before + WEIGHED, after - WEIGHED + 1, WEIGHED)
        if before
    ]
    assert weighed[0] >= 10 * 2 * WEIGHED
    gaps = [after - before for before, after in pairwise(stepped)]
    assert gaps == [FIRST_STEP, *(min(STRIDE, -(-before // 10)) for before in stepped[1:-1])]


@pytest.mark.parametrize("late", [False, True])
def test_a_weighing_moves_the_weights_and_nothing_else(late: bool) -> None:
    scores, labels = NormalPair(0.5).sample(3000, np.random.default_rng(41))
    mixture = Mixture()
    mixture.set_source(*source_of(2000, 0.3, 42))
    run(mixture, scores, labels, served=mixture.step(0))
    mixture.step(3000)
    mixture.step(3200)
    kept = {name: getattr(mixture, name) for name in ("_fits", "_table", "_next_step", "_fused")}
    held, values = mixture._ring.held, mixture._table.values.copy()
    counts, before, n = mixture._counts.to_state(), mixture._weights, mixture._counts.n
    scores, labels = NormalPair(0.9).sample(2 * WEIGHED, np.random.default_rng(43))
    seen = np.where(np.arange(2 * WEIGHED) % 2, 3100, 3200) if late else None
    snapshots = [held[-2][1] if late and i % 2 else held[-1][1] for i in range(2 * WEIGHED)]
    assert (held[-2][1].observed, held[-1][1].observed) == (3000, 3200)
    mixture.learn_many(scores[:WEIGHED], labels[:WEIGHED], None if seen is None else seen[:WEIGHED])
    mixture.reweigh()
    first = mixture._weights
    mixture.learn_many(scores[WEIGHED:], labels[WEIGHED:], None if seen is None else seen[WEIGHED:])
    mixture.reweigh()
    said = np.concatenate(
        [
            forecasts(snapshot, Points.of(scores[i : i + 1]))
            if late
            else mixture._table.at(grid.cells_of(scores[i : i + 1], grid.MIN_LEVEL))
            for i, snapshot in enumerate(snapshots)
        ],
        axis=1,
    )
    shares = mixture._active() / mixture._active().sum()
    for part, old, new in (
        (slice(0, WEIGHED), before, first),
        (slice(WEIGHED, None), first, mixture._weights),
    ):
        losses = np.square(said[:, part] - labels[part])
        assert new == pytest.approx(track(old, losses, shares, block=WEIGHED), rel=1e-9, abs=1e-15)
        assert np.abs(new - old).sum() > 1e-3
    assert all(getattr(mixture, name) is value for name, value in kept.items())
    assert mixture._ring.held is held
    assert np.array_equal(mixture._table.values, values)
    assert mixture._counts.to_state() == counts
    assert mixture.n == n + 2 * WEIGHED
    weights = mixture._weights
    mixture.reweigh()  # each label is weighed once
    assert mixture._weights is weights
    after, positives = mixture._weights, int(mixture._counts.counts[1].sum())
    mixture.step(3400)
    assert np.array_equal(mixture._weights, after)
    assert mixture._counts.n == mixture.n
    assert int(mixture._counts.counts[1].sum()) == positives + int(labels.sum())


def test_a_map_is_mixed_between_steps_once_the_weights_have_moved_by_enough() -> None:
    """Since the map that is served was mixed, not since the last weighing."""
    scores, labels = flipping(12_000, 900, 44)
    mixture, served = Mixture(), np.zeros(len(NAMES))
    none, some, by_and_by = 0, 0, 0

    def apart(weights: Floats, others: Floats) -> float:
        place = counted_as(mixture._counts.n)
        sums = [np.array([w[place == i].sum() for i in range(len(NAMES))]) for w in (weights, others)]
        return float(np.maximum(sums[0] - sums[1], 0.0).sum())

    while mixture.n < len(scores):
        due = min(len(scores), mixture.next_weighing)
        mixture.learn_many(scores[mixture.n : due], labels[mixture.n : due])
        step, before, leader = due >= mixture.next_step, mixture._weights, mixture._leader
        mixed = go_on(mixture, due)
        if not step:
            far = apart(mixture._weights, served)
            assert (mixed is not None) == (far >= MATERIAL)
            if mixed is None:
                none += 1
                assert mixture._leader == leader
            else:
                some += 1
                by_and_by += apart(mixture._weights, before) < MATERIAL
                assert mixed.map == mixture._table.map(mixture._weights)
                assert (mixed.reason is None) == (mixture._leader == leader)
        if mixed is not None:
            served = mixture._weights
    assert none > 10
    assert some > 10
    assert by_and_by > 0


def test_weight_that_moves_between_equal_candidates_is_not_moved() -> None:
    """Those of windows that are not full yet are the same as of all labels."""
    scores, labels = flipping(1500, 900, 51)
    mixture = Mixture()
    run(mixture, scores, labels)
    mixture.step(1500)
    long, every, short = (
        np.eye(len(NAMES))[NAMES.index(f"target/platt/{window}")] for window in ("2000", "all", "500")
    )
    mixture._served, mixture._weights = long, every
    assert mixture.reweigh() is None
    mixture._weights = short
    assert mixture.reweigh() is not None


def test_a_source_that_comes_between_steps_waits_for_the_next() -> None:
    scores, labels = flipping(3000, 900, 45)
    mixture = Mixture()
    run(mixture, scores, labels)
    mixture.step(3000)
    mixture.set_source(*source_of(5000, 0.5, 46))
    mixture.learn_many(*NormalPair(0.5).sample(WEIGHED, np.random.default_rng(52)))
    assert mixture.reweigh() is None
    # What the served map knows nothing of has got enough of the weight.
    assert mixture._weights[TARGET_ONLY:].sum() > MATERIAL
    assert mixture.step(3100).map.bins > 1


# Delay


class Spy:
    """What the mixture asks in hindsight: of each time, the moments of the snapshots, and which is whose."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[list[int], list[int]]] = []
        self.sourced: list[bool] = []
        ask = Ring.forecasts

        def spied(ring: Ring, places: npt.NDArray[np.int64], points: Points, *, sourced: bool) -> Floats:
            used, which = np.unique(places, return_inverse=True)
            snapshots = [ring.held[place][1] for place in used]
            self.asked.append(([snapshot.observed for snapshot in snapshots], which.tolist()))
            self.sourced.append(sourced)
            values = ask(ring, places, points, sourced=sourced)
            assert_as_one_by_one(values, snapshots, which, points)
            return values

        monkeypatch.setattr(Ring, "forecasts", spied)


def assert_as_one_by_one(
    values: Floats, snapshots: list[Snapshot], which: npt.NDArray[np.int64], points: Points
) -> None:
    """Compare with `forecasts` of one snapshot after another; without a source the score stands."""
    for place, snapshot in enumerate(snapshots):
        at = np.flatnonzero(which == place)
        alone = forecasts(snapshot, Points.of(points.scores[at]))[: len(values)]
        assert values[: len(alone), at] == pytest.approx(alone, rel=0.0, abs=1e-12)
        assert (values[len(alone) :, at] == points.scores[at]).all()


def test_a_late_label_is_scored_with_the_snapshot_of_its_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    rng = np.random.default_rng(12)
    scores, labels = NormalPair(0.5).sample(8000, rng)
    mixture, made, observed = Mixture(), [0], 0
    while mixture.n < 8000:
        start, end = mixture.n, min(8000, mixture.next_step)
        seen = int(rng.integers(0, observed + 1))
        mixture.learn_many(scores[start:end], labels[start:end], np.full(end - start, seen))
        observed += 300
        spy.asked.clear()
        due = max(step for step in made if step <= seen)
        mixture.step(observed)
        made.append(observed)
        if due == made[-2]:
            assert spy.asked == []  # the table has it
        else:
            (((used,), which),) = spy.asked
            assert set(which) == {0}
            assert used <= due
            # The ring thins with age, by no more than a quarter of it.
            age = len(made) - 1 - made.index(due)
            assert made.index(due) - made.index(used) <= age / 4 + 8
    assert len(mixture._ring.held) <= 40


def test_a_label_that_came_at_once_is_scored_with_the_served_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, labels = NormalPair(0.5).sample(600, np.random.default_rng(31))
    mixture = Mixture()
    mixture.learn_many(scores[:200], labels[:200])
    mixture.step(200)
    spy = Spy(monkeypatch)
    seen = np.full(200, -1)
    seen[[3, 50]], seen[70] = 199, 200  # the served one is in force after 200 scores
    mixture.learn_many(scores[200:400], labels[200:400], seen)
    mixture.step(400)
    assert spy.asked == [([0, 200], [0 if i in (3, 50) else 1 for i in range(200)])]
    mixture.learn_many(scores[400:], labels[400:])
    mixture.step(600)
    assert len(spy.asked) == 1  # where all came at once, the table has it


def test_labels_of_many_moments_are_scored_as_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a source, with one that came in between, and with another after label shift was refuted."""
    spy = Spy(monkeypatch)
    everything(Mixture(), 34, 40)
    # The table has the first step, and the source comes with the sixth.
    assert spy.sourced == [False] * 4 + [True] * 35
    assert max(len(used) for used, _ in spy.asked) > 10


def test_labels_that_come_late_are_not_scored_with_what_they_taught() -> None:
    """With labels that contradict the scores, the first fits change everything; predictions made before
    them must be scored as the identity still, so that no candidate has lost less than another."""
    rng = np.random.default_rng(13)
    scores = rng.random(600)
    labels = (rng.random(600) > scores).astype(np.int8)
    mixture = Mixture()
    mixture.learn_many(scores[:300], labels[:300], np.arange(300))
    mixture.step(300)
    before = mixture._weights.copy()
    mixture.learn_many(scores[300:], labels[300:], np.arange(300))
    mixture.step(600)
    shares = np.full(TARGET_ONLY, 1 / TARGET_ONLY)
    losses = np.tile(np.square(scores[300:] - labels[300:]), (TARGET_ONLY, 1))
    assert mixture._weights[:TARGET_ONLY] == pytest.approx(
        track(before[:TARGET_ONLY], losses, shares, block=64), rel=1e-9
    )


# What it is for


def test_where_the_scores_are_right_they_are_served() -> None:
    """Uniform scores that are the probabilities: the mean excess Brier loss after 5,000 labels is that of a
    few parameters, about 4·p(1−p)/n = 1e-4 a label; 10 times as much has a chance far below 1e-6."""
    rng = np.random.default_rng(14)
    scores = rng.random(10_000)
    labels = (rng.random(10_000) < scores).astype(np.int8)
    out, _ = run(Mixture(), scores, labels)
    assert np.mean((out[5000:] - scores[5000:]) ** 2) < 1e-3
    late, _ = run(Mixture(), scores, labels, delay=500)
    assert np.mean((late[5000:] - scores[5000:]) ** 2) < 1e-3


def test_it_recovers_from_a_change_of_concept() -> None:
    """Scores that suddenly mean the opposite. Within 1,500 labels the excess risk over h* must be a tenth of
    that of the map before the change; typical is a fiftieth, and it would take hundreds of freak labels."""
    rng = np.random.default_rng(15)
    truth = expit(rng.normal(0.0, 2.0, 8000))
    labels = (rng.random(8000) < truth).astype(np.int8)
    scores = np.where(np.arange(8000) < 4000, truth, 1.0 - truth)
    for delay in (0, 300):
        out, steps = run(Mixture(), scores, labels, delay=delay)
        excess = (out - truth) ** 2
        assert excess[2000:4000].mean() < 0.01
        assert excess[5500 + 2 * delay :].mean() < 0.1 * np.mean((1.0 - 2.0 * truth) ** 2)
        if not delay:
            reasons = [step.reason for step in steps if step.reason]
            assert any("less per label than" in reason for reason in reasons)


def test_with_a_source_and_no_target_label_the_source_map_is_served() -> None:
    h, sketch = source_of(20_000, 0.5, 16)
    mixture = Mixture()
    mixture.set_source(h, sketch)
    mixed = mixture.step(0)
    pair = NormalPair(0.5)
    raw = pair.risk(RecalibrationMap(version=0)).total
    # The identity keeps the share of those the source says nothing of, and what its loss leaves of it.
    assert pair.risk(mixed.map).total < 0.05 * raw
    assert mixed.leader.startswith(("source", "composite"))
    assert mixed.reason == "a source of 20000 labels has come in"


def test_a_source_that_needs_no_map_does_not_displace_the_identity() -> None:
    rng = np.random.default_rng(17)
    scores = rng.random(300)
    sketch = ScoreSketch()
    sketch.add(scores, (rng.random(300) < scores).astype(np.int8))
    mixture = Mixture()
    mixture.set_source(form(sketch, "auto").map, sketch)
    weights = mixture.step(0).weights
    assert weights["identity"] > weights["source/uniform/all"]


def test_under_label_shift_the_composites_take_the_lead_until_it_is_refuted() -> None:
    h, sketch = source_of(50_000, 0.5, 18)
    mixture = Mixture()
    mixture.set_source(h, sketch)
    scores, labels = NormalPair(0.05).sample(600, np.random.default_rng(19))
    mixed = run(mixture, scores, labels, served=mixture.step(0))[1][-1]
    assert mixed.leader.startswith("composite")
    mixture.shift_allowed = False
    after = mixture.step(600)
    assert after.reason == f"{mixed.leader} is out: label shift is refuted"
    assert not any(name.startswith(("composite", "label_shift")) for name in after.weights)
    assert sum(after.weights.values()) == pytest.approx(1.0)
    mixture.learn_many(scores, labels)
    assert not any(name.startswith(("composite", "label_shift")) for name in mixture.step(600).weights)
    mixture.set_source(h, sketch)
    assert not mixture.shift_allowed
    mixture.set_source(h, sketch, new_generation=True)
    back = mixture.step(600).weights
    assert any(name.startswith("composite") for name in back)
    assert sum(back.values()) == pytest.approx(1.0)


def test_a_fused_prior_takes_the_weight_of_the_priors_from_labels() -> None:
    h, sketch = source_of(5000, 0.5, 20)
    mixture = Mixture()
    mixture.set_source(h, sketch)
    without = mixture.step(0).weights
    assert not any(name.endswith("fused") for name in without)
    fused = mixture.step(0, 0.1)
    # Before there are labels all windows count as all.
    for family in FAMILIES:
        name = f"composite/{family}"
        assert fused.weights[f"{name}/fused"] == pytest.approx(without[f"{name}/all"])
        assert f"{name}/all" not in fused.weights
    plain_map, shifted = mixture.step(0).map, fused.map
    z = np.array([0.3, 0.5, 0.7])
    assert (shifted.predict_many(z) < plain_map.predict_many(z)).all()
    assert mixture.step(0).weights == pytest.approx(without)
    # Of the many maps before the first label the last speaks for all.
    assert [snapshot.fused for _, snapshot in mixture._ring.held] == [None]
    with pytest.raises(ValueError, match=r"got 1\.5"):
        mixture.step(0, 1.5)


def test_a_source_may_come_after_the_target_s_labels() -> None:
    scores, labels = NormalPair(0.5).sample(3000, np.random.default_rng(21))
    mixture = Mixture()
    mixture.learn_many(scores[:100], labels[:100])
    mixture.step(100)
    mixture.learn_many(scores[100:120], labels[100:120])
    mixture.set_source(*source_of(10_000, 0.5, 22))
    mixed = mixture.step(120)
    assert sum(weight for name, weight in mixed.weights.items() if name.startswith("source")) > 0.1
    out, _ = run(mixture, scores[120:], labels[120:], served=mixed)
    assert brier(out, labels[120:]) < brier(scores[120:], labels[120:])


# State


def everything(mixture: Mixture, seed: int, steps: int) -> list[Mixed]:
    """Do all that can be done to a mixture, step after step, restoring it from bytes when asked to."""
    rng = np.random.default_rng(seed)
    out, observed = [], 0
    for step in range(steps):
        scores, labels = NormalPair(0.2 + 0.6 * (step % 2)).sample(70, rng)
        seen = rng.integers(-1, observed + 1, 70)
        mixture.learn_many(scores[:30], labels[:30], seen[:30])
        if step == 5:
            mixture.set_source(*source_of(500, 0.5, 23))
        if step == 20:
            mixture.shift_allowed = False
        if step == 25:
            mixture.set_source(*source_of(800, 0.3, 24), new_generation=True)
        mixture.learn_many(scores[30:], labels[30:])
        observed += int(rng.integers(0, 200))
        out.append(mixture.step(observed, 0.3 if step % 7 > 3 else None))
    return out


def test_restoring_at_any_point_changes_nothing() -> None:
    rng = np.random.default_rng(25)
    kept, restored = Mixture(), Mixture()
    observed = 0
    for step in range(40):
        scores, labels = NormalPair(0.2 + 0.6 * (step % 2)).sample(70, rng)
        seen = rng.integers(-1, observed + 1, 70)
        outputs = []
        observed += int(rng.integers(0, 200))
        restored = Mixture.from_bytes(restored.to_bytes())
        source = source_of(500 + step, 0.5, 23) if step in (5, 25) else None
        for mixture in (kept, restored):
            mixture.learn_many(scores[:30], labels[:30], seen[:30])
            if source:
                mixture.set_source(*source, new_generation=step == 25)
            if step == 20:
                mixture.shift_allowed = False
        restored = Mixture.from_bytes(restored.to_bytes())
        for mixture in (kept, restored):
            outputs.append(mixture.reweigh())
            mixture.learn_many(scores[30:], labels[30:])
        assert kept.to_bytes() == restored.to_bytes()
        restored = Mixture.from_bytes(restored.to_bytes())
        if step % 3 == 1:
            outputs += [mixture.reweigh() for mixture in (kept, restored)]
        restored = Mixture.from_bytes(restored.to_bytes())
        outputs += [mixture.step(observed, 0.3 if step % 7 > 3 else None) for mixture in (kept, restored)]
        assert outputs[::2] == outputs[1::2]
        assert kept.to_bytes() == restored.to_bytes()
    assert kept.n == 40 * 70


@pytest.mark.parametrize("delay", [0, 90, 2000])
def test_splits_and_restarts_between_weighings_change_nothing(delay: int) -> None:
    """Labels of random delays, one by one, and in random parts with a restart after each."""
    rng = np.random.default_rng(47 + delay)
    scores, labels = flipping(5000, 900, 48)
    seen = np.maximum(np.arange(5000) - (rng.exponential(delay, 5000) if delay else -1), -1).astype(np.int64)
    one, many = Mixture(), Mixture()
    for mixture in (one, many):
        mixture.set_source(*source_of(2000, 0.5, 49))
        mixture.step(0)
    between = 0
    while one.n < 5000:
        due = min(5000, one.next_weighing)
        for i in range(one.n, due):
            one.learn(float(scores[i]), int(labels[i]), None if seen[i] < 0 else int(seen[i]))
        while many.n < due:
            part = slice(many.n, min(due, many.n + int(rng.integers(1, 60))))
            many.learn_many(scores[part], labels[part], seen[part])
            if rng.random() < 0.3:
                many = Mixture.from_bytes(many.to_bytes())
        if due < one.next_weighing:
            break
        between += due < one.next_step
        assert go_on(one, due) == go_on(many, due)
        assert one.to_bytes() == many.to_bytes()
        if rng.random() < 0.5:
            many = Mixture.from_bytes(many.to_bytes())
    assert between > 20


def test_no_damage_goes_unnoticed_or_breaks_anything() -> None:
    """Every altered state is refused, or is a state that can go on: nothing else may be raised."""
    mixture = Mixture()
    everything(mixture, 26, 12)
    mixture.learn(0.4, 0, 1)
    mixture.reweigh()
    mixture.learn(0.3, 1, 2)
    good = mixture.to_bytes()
    rng = np.random.default_rng(27)
    refused = 0
    for _ in range(300):
        bad = bytearray(good)
        for place in rng.integers(0, len(bad), 3):
            bad[place] = rng.integers(0, 256)
        try:
            other = Mixture.from_bytes(bytes(bad))
        except DamagedStateError:
            refused += 1
            continue
        other.learn(0.5, 1)
        other.reweigh()
        assert 0.0 <= other.step(1 << 60).map.predict_one(0.5) <= 1.0
    assert refused > 30
    for cut in rng.integers(0, len(good), 50).tolist():
        with pytest.raises(DamagedStateError):
            Mixture.from_bytes(good[:cut])
    state = mixture_state.decode(good)
    cases: dict[str, object] = {
        "weights": mixture_state.pack_floats(np.full(len(NAMES), 1.0)),
        "served": mixture_state.pack_floats(np.full(len(NAMES), 0.5)),
        "weighed": 3,
        "labels": bytes([2]),
        "seen": b"",
        "leader": len(NAMES),
        "recent_labels": [0],
        "ring": [],
        "places": b"",
        "fits": [],
        "stride": 0,
    }
    for field, value in cases.items():
        kept = getattr(state, field)
        setattr(state, field, value)
        with pytest.raises(DamagedStateError):
            Mixture.from_bytes(mixture_state.encode(state))
        setattr(state, field, kept)
    assert Mixture.from_bytes(mixture_state.encode(state)).to_bytes() == good


def test_the_state_stays_small() -> None:
    scores, labels = NormalPair(0.5).sample(40_000, np.random.default_rng(28))
    mixture = Mixture()
    mixture.set_source(*source_of(20_000, 0.5, 29))
    run(mixture, scores, labels, delay=500)
    assert len(mixture.to_bytes()) < 256 * 1024


def test_merging_counts_the_other_s_labels_as_the_later_ones() -> None:
    scores, labels = NormalPair(0.5).sample(5000, np.random.default_rng(30))
    one, other = Mixture(), Mixture()
    run(one, scores[:1000], labels[:1000])
    run(other, scores[1000:], 1 - labels[1000:])
    one.step(1000)
    other.step(4000)
    state, weights = other.to_bytes(), (one._weights.copy(), other._weights.copy())
    one.merge(other)
    assert other.to_bytes() == state
    assert one.n == 5000
    assert one._weights == pytest.approx(0.2 * weights[0] + 0.8 * weights[1])
    assert one._weights.sum() == pytest.approx(1.0)
    mixed = one.step(5000)
    # The last 4,000 are the other's, where a high score means 0.
    assert one._fits[WINDOWS.index(2000)].labels >= 2000
    window = one._fits[WINDOWS.index(2000)]
    assert window.platt[0] < 0.0
    assert one._fits[ALL].labels == 5000
    assert mixed.map.predict_one(0.9) < mixed.map.predict_one(0.1)
    with pytest.raises(ValueError, match="strides"):
        one.merge(Mixture(stride=32))


def test_merging_between_steps_counts_what_is_put_aside_in_its_order() -> None:
    scores, labels = NormalPair(0.5).sample(5000, np.random.default_rng(53))
    zeros = np.zeros(400, np.int8)
    one, other = Mixture(), Mixture()
    for mixture, part, put_aside in (
        (one, slice(0, 2000), zeros + 1),
        (other, slice(2000, 5000), zeros),
    ):
        run(mixture, scores[part], labels[part])
        mixture.step(3000)
        mixture.learn_many(scores[:100], put_aside[:100])
        mixture.reweigh()
        mixture.learn_many(scores[100:400], put_aside[100:])
    one.merge(other)
    assert one._counts.n == one.n == 5800
    assert one._counts.counts.sum(axis=1).tolist() == [
        5400 - int(labels.sum()),
        400 + int(labels.sum()),
    ]
    held = one._counts.held(500)
    assert one._counts.window(500)[1].sum() == labels[5400 - held :].sum()


def test_bad_arguments_are_refused_with_their_value() -> None:
    with pytest.raises(ValueError, match="got 0"):
        Mixture(stride=0)
    mixture = Mixture()
    mixture.step(10)
    with pytest.raises(ValueError, match="must not go down, got 9"):
        mixture.step(9)
    with pytest.raises(ValueError, match="2 scores, 1 labels"):
        mixture.learn_many(np.array([0.1, 0.2]), np.array([1], np.int8))
    with pytest.raises(ValueError, match="bins and labels"):
        mixture.set_source(RecalibrationMap(version=0), ScoreSketch())
    assert len(PRIORS) == len(WINDOWS) + 2
