"""The mixture of mode auto: its steps, its weighings, late labels, what it is for, and its state."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal.errors import DamagedStateError
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.uniform_mass import form
from streamcal.mixture import state as codec
from streamcal.mixture.forecasts import Points, Snapshot, refill
from streamcal.mixture.mixture import FIRST_STEP, MATERIAL, STRIDE, WEIGHED, Mixed, Mixture
from streamcal.mixture.names import ALL, FAMILIES, FUSED, NAMES, PRIORS, TARGET_ONLY, WINDOWS, counted_as
from streamcal.mixture.snapshots import Snapshots
from streamcal.mixture.table import Table
from streamcal.mixture.weights import track
from streamcal.sketch import grid
from streamcal.sketch.nested_windows import NestedWindows
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
Seen = npt.NDArray[np.int64]
SourceOf = Callable[[int, float, int], tuple[RecalibrationMap, ScoreSketch]]


class Caller:
    """Holds the labels that a mixture has not counted, and does what is due, as an engine does."""

    def __init__(self, mixture: Mixture | None = None) -> None:
        self.mixture = mixture or Mixture()
        self.clear()

    def clear(self) -> None:
        self.scores, self.labels = np.empty(0), np.empty(0, np.int8)
        self.seen: Seen = np.empty(0, np.int64)

    @property
    def n(self) -> int:
        return self.mixture.n + len(self.labels)

    def learn(self, scores: Floats, labels: Labels, seen: Any = None) -> None:
        self.scores, self.labels = np.append(self.scores, scores), np.append(self.labels, labels)
        self.seen = np.append(self.seen, np.full(len(scores), -1) if seen is None else seen)

    def set_source(self, *source: Any, new_generation: bool = False) -> None:
        waiting = len(self.labels) - self.mixture.weighed
        self.mixture.set_source(*source, new_generation=new_generation, waiting=waiting)

    def weigh(self) -> None:
        first = self.mixture.weighed
        self.mixture.weigh(self.scores[first:], self.labels[first:], self.seen[first:])

    def remix(self) -> Mixed | None:
        self.weigh()
        return self.mixture.remix()

    def count(self) -> None:
        self.weigh()
        self.mixture.count(self.scores, self.labels)
        self.clear()

    def step(self, observed: int, prior: float | None = None) -> Mixed:
        self.count()
        return self.mixture.step(observed, prior)

    def go_on(self, observed: int) -> Mixed | None:
        return self.step(observed) if self.n >= self.mixture.next_step else self.remix()

    def restart(self) -> None:
        self.mixture = Mixture.from_bytes(self.mixture.to_bytes())


def run(
    caller: Caller, scores: Floats, labels: Labels, *, delay: int = 0, served: Mixed | None = None
) -> tuple[Floats, list[Mixed]]:
    """Predict every score with the map of that moment, and learn its label ``delay`` events later."""
    out, steps, learned, predicted = np.empty(len(scores)), [served] if served else [], 0, 0
    before = caller.n
    while predicted < len(scores):
        end = min(len(scores), learned + caller.mixture.next_weighing - caller.n + delay)
        part = scores[predicted:end]
        out[predicted:end] = steps[-1].map.predict_many(part) if steps else part
        predicted, now = end, max(learned, end - delay)
        caller.learn(scores[learned:now], labels[learned:now], np.arange(learned, now) if delay else None)
        learned = now
        if caller.n >= caller.mixture.next_weighing:
            mixed = caller.go_on(before + predicted)
            steps += [mixed] if mixed else []
    return out, steps


def state_of(caller: Caller) -> codec.MixtureState:
    return codec.decode(caller.mixture.to_bytes())


def weights_of(caller: Caller) -> Floats:
    return codec.unpack_weights(state_of(caller).weights)


def counts_of(caller: Caller) -> NestedWindows:
    return NestedWindows(WINDOWS, 512).restore(state_of(caller).windows)


def snapshots_of(caller: Caller) -> tuple[list[Snapshot], Snapshot]:
    """Return the snapshots that are kept, the served one last, and the fits and the source as of now."""
    *kept, now = [snapshot for _, snapshot in codec.unpack_snapshots(state_of(caller))]
    return kept, now


def table_of(caller: Caller) -> Table:
    """Return the table of the served map, made anew."""
    table = Table(codec.unpack_partition(state_of(caller).partition))
    table.fill(snapshots_of(caller)[0][-1])
    return table


def brier(forecast: Floats, labels: Labels) -> float:
    return float(np.mean((forecast - labels) ** 2))


def flipping(n: int, every: int, seed: int) -> tuple[Floats, Labels]:
    """Scores whose meaning turns round every so many labels, so that the weights never rest."""
    rng = np.random.default_rng(seed)
    scores = rng.random(n)
    rate = np.where(np.arange(n) // every % 2, 1.0 - scores, scores)
    return scores, (rng.random(n) < rate).astype(np.int8)


# Steps


def test_steps_grow_by_a_tenth_up_to_the_stride() -> None:
    caller, counts = Caller(), []
    scores, labels = NormalPair(0.5).sample(6000, np.random.default_rng(7))
    while caller.mixture.next_step <= 6000:
        due = caller.mixture.next_step
        caller.learn(scores[caller.n : due], labels[caller.n : due])
        caller.step(0)
        counts.append(due)
    assert counts[0] == FIRST_STEP
    for before, after in pairwise(counts):
        assert after - before == min(STRIDE, -(-before // 10))


def test_the_map_is_the_weighted_sum_of_the_candidates(source_of: SourceOf) -> None:
    caller = Caller()
    caller.set_source(*source_of(3000, 0.5, 8))
    scores, labels = NormalPair(0.3).sample(5000, np.random.default_rng(9))
    mixed = run(caller, scores, labels, served=caller.step(0))[1][-1]
    weights = mixed.mixing.weights
    assert sum(weights.values()) == pytest.approx(1.0)
    assert all(0.0 < weight <= 1.0 for weight in weights.values())
    assert max(weights, key=weights.__getitem__) == mixed.mixing.leader
    # All scores of an interval get the same value, which is the sum in its middle (of its cells).
    edges = np.array(mixed.map.edges)
    cells = grid.cells_of(edges[:-1], grid.MIN_LEVEL)
    ends = np.append(cells[1:], grid.LAST_KEY >> grid.MIN_LEVEL)
    middles = grid.left_edges(cells + ends, grid.MIN_LEVEL - 1)
    kept, now = snapshots_of(caller)
    table = dict(zip(NAMES, refill(kept[-1], Points.of(middles)), strict=True))
    total = sum(weight * table[name] for name, weight in weights.items())
    assert mixed.map.predict_many(middles) == pytest.approx(total, abs=1e-12)
    assert RecalibrationMap.model_validate(mixed.map.model_dump()) == mixed.map
    # From 2⁻¹² to 1 − 2⁻¹² no interval is wider than an eighth of an octave.
    inside = edges[(edges >= 2.0**-12) & (edges <= 1.0 - 2.0**-12)]
    assert (np.diff(inside) <= np.minimum(inside[:-1], 1.0 - inside[1:]) / 8.0 + 1e-12).all()
    assert len(edges) <= 900
    # The uniform-mass maps of all labels are served exactly: every edge of theirs is one of the map's.
    assert now.source is not None
    for fit in (now.source.fit, now.fits[ALL]):
        assert len(fit.uniform.edges)
        assert set(grid.left_edges(fit.uniform.edges, grid.MIN_LEVEL)) <= set(edges)


def test_windows_of_target_labels_are_those_of_their_names() -> None:
    scores, labels = NormalPair(0.4).sample(9000, np.random.default_rng(10))
    caller = Caller()
    run(caller, scores, labels)
    n, state, (_, now) = caller.mixture.n, state_of(caller), snapshots_of(caller)
    every = ScoreSketch(512)
    every.add(scores[:n], labels[:n])
    assert state.windows.level == every.level
    for fit, end, length in zip(now.fits, state.fitted_at, WINDOWS, strict=False):
        if n < length:
            assert fit is now.fits[ALL]
            continue
        assert length <= fit.labels <= length + max(length // 8, STRIDE)
        assert n - end < max(length // 8, STRIDE)
        assert fit.positives == int(labels[end - fit.labels : end].sum())
    assert n - n // 16 - STRIDE <= now.fits[ALL].labels <= n


# Between steps


def test_labels_are_weighed_between_steps_but_not_close_to_one() -> None:
    """The fits, which only steps make, are as far apart as without weighings."""
    caller, weighed, stepped = Caller(), [], [0]
    scores, labels = NormalPair(0.5).sample(6000, np.random.default_rng(40))
    while (due := caller.mixture.next_weighing) <= 6000:
        caller.learn(scores[caller.n : due], labels[caller.n : due])
        at = state_of(caller).fitted_at
        (stepped if due == caller.mixture.next_step else weighed).append(due)
        caller.go_on(0)
        if due != stepped[-1]:
            assert state_of(caller).fitted_at == at
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
def test_a_weighing_moves_the_weights_and_nothing_else(source_of: SourceOf, late: bool) -> None:
    scores, labels = NormalPair(0.5).sample(3000, np.random.default_rng(41))
    caller = Caller()
    caller.set_source(*source_of(2000, 0.3, 42))
    run(caller, scores, labels, served=caller.step(0))
    caller.step(3000)
    caller.step(3200)
    kept, table = snapshots_of(caller)[0], table_of(caller)
    assert [snapshot.observed for snapshot in kept[-2:]] == [3000, 3200]
    state, n = state_of(caller), caller.mixture.n
    scores, labels = NormalPair(0.9).sample(2 * WEIGHED, np.random.default_rng(43))
    seen = np.where(np.arange(2 * WEIGHED) % 2, 3100, 3200) if late else np.full(2 * WEIGHED, -1)
    weights = [weights_of(caller)]
    for part in (slice(0, WEIGHED), slice(WEIGHED, None)):
        caller.learn(scores[part], labels[part], seen[part])
        caller.weigh()
        weights.append(weights_of(caller))
    said = np.concatenate(
        [
            refill(kept[-2 if i % 2 else -1], Points.of(scores[i : i + 1]))
            if late
            else table.at(grid.cells_of(scores[i : i + 1], grid.MIN_LEVEL))
            for i in range(2 * WEIGHED)
        ],
        axis=1,
    )
    losses = np.square(said - labels)
    for (old, new), part in zip(pairwise(weights), np.split(losses, 2, axis=1), strict=True):
        expected = track(old, part, ~FUSED / (~FUSED).sum(), block=WEIGHED)
        assert new == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert np.abs(new - old).sum() > 1e-3
    assert (caller.mixture.n, caller.mixture.weighed) == (n, 2 * WEIGHED)
    after = state_of(caller)
    moved = ("weights", "weighed", "recent", "recent_labels")
    for field in state.__struct_fields__:
        assert (getattr(after, field) == getattr(state, field)) == (field not in moved), field
    caller.weigh()  # each label is weighed once
    assert state_of(caller) == after
    caller.step(3400)
    assert np.array_equal(weights_of(caller), weights[-1])
    assert (caller.mixture.n, caller.mixture.weighed) == (n + 2 * WEIGHED, 0)
    before = NestedWindows(WINDOWS, 512).restore(state.windows).counts[1].sum()
    assert counts_of(caller).counts[1].sum() == before + labels.sum()


def test_a_map_is_mixed_between_steps_once_the_weights_have_moved_by_enough() -> None:
    """The move is measured since the served map was mixed, not since the last weighing."""
    scores, labels = flipping(12_000, 900, 44)
    caller, served, leader = Caller(), np.zeros(len(NAMES)), NAMES[0]
    none, some, by_and_by = 0, 0, 0

    def apart(weights: Floats, others: Floats) -> float:
        same = counted_as(caller.mixture.n)
        sums = [np.array([w[same == i].sum() for i in range(len(NAMES))]) for w in (weights, others)]
        return float(np.maximum(sums[0] - sums[1], 0.0).sum())

    while caller.n < len(scores):
        due = min(len(scores), caller.mixture.next_weighing)
        caller.learn(scores[caller.n : due], labels[caller.n : due])
        step, before = due >= caller.mixture.next_step, weights_of(caller)
        mixed = caller.go_on(due)
        weights = weights_of(caller)
        if not step:
            assert (mixed is not None) == (apart(weights, served) >= MATERIAL)
            none += mixed is None
            if mixed is not None:
                some += 1
                by_and_by += apart(weights, before) < MATERIAL
                assert mixed.map == table_of(caller).map(weights)
        if mixed is not None:
            assert (mixed.mixing.reason is None) == (mixed.mixing.leader == leader)
            served, leader = weights, mixed.mixing.leader
    assert none > 10
    assert some > 10
    assert by_and_by > 0


def test_weight_that_moves_between_equal_candidates_is_not_moved() -> None:
    """The candidates of windows that are not full yet equal those of all labels."""
    scores, labels = flipping(1500, 900, 51)
    caller = Caller()
    run(caller, scores, labels)
    caller.step(1500)
    long, every, short = (
        codec.pack_floats(np.eye(len(NAMES))[NAMES.index(f"target/platt/{window}")])
        for window in ("2000", "all", "500")
    )
    state = msgspec.structs.replace(state_of(caller), served=long, weights=every)
    assert Mixture.from_bytes(codec.encode(state)).remix() is None
    state = msgspec.structs.replace(state, weights=short)
    assert Mixture.from_bytes(codec.encode(state)).remix() is not None


def test_a_source_that_comes_between_steps_waits_for_the_next(source_of: SourceOf) -> None:
    scores, labels = flipping(3000, 900, 45)
    caller = Caller()
    run(caller, scores, labels)
    caller.step(3000)
    caller.set_source(*source_of(5000, 0.5, 46))
    caller.learn(*NormalPair(0.5).sample(WEIGHED, np.random.default_rng(52)))
    assert caller.remix() is None
    # Candidates that the served map does not know have enough of the weight.
    assert weights_of(caller)[TARGET_ONLY:].sum() > MATERIAL
    assert caller.step(3100).map.bins > 1


# Delay


class Spy:
    """Checks late forecasts, and records which snapshots they came from: by moment, and for each label."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[list[int], list[int]]] = []
        self.sourced: list[bool] = []
        ask = Snapshots.forecasts

        def spied(kept: Snapshots, which: Seen, points: Points, *, sourced: bool) -> Floats:
            used, whose = np.unique(which, return_inverse=True)
            snapshots = [kept.held[index][1] for index in used]
            self.asked.append(([snapshot.observed for snapshot in snapshots], whose.tolist()))
            self.sourced.append(sourced)
            values = ask(kept, which, points, sourced=sourced)
            # Without a source the score stands for the candidates that need one.
            for index, snapshot in enumerate(snapshots):
                at = np.argsort(points.scores, kind="stable")
                at = at[whose[at] == index]
                alone = refill(snapshot, points.take(at))[: len(values)]
                assert np.array_equal(values[: len(alone), at], alone)
                assert (values[len(alone) :, at] == points.scores[at]).all()
            return values

        monkeypatch.setattr(Snapshots, "forecasts", spied)


@pytest.mark.slow
def test_a_late_label_is_scored_with_the_snapshot_of_its_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    rng = np.random.default_rng(12)
    scores, labels = NormalPair(0.5).sample(8000, rng)
    caller, made, observed = Caller(), [0], 0
    while caller.n < 8000:
        start, end = caller.n, min(8000, caller.mixture.next_step)
        seen = int(rng.integers(0, observed + 1))
        caller.learn(scores[start:end], labels[start:end], np.full(end - start, seen))
        observed += 300
        spy.asked.clear()
        due = max(step for step in made if step <= seen)
        caller.step(observed)
        made.append(observed)
        if due == made[-2]:
            assert spy.asked == []  # the table has it
        else:
            (((used,), which),) = spy.asked
            assert set(which) == {0}
            assert used <= due
            # Older snapshots are thinned out: the one used is older by at most a quarter of the age.
            age = len(made) - 1 - made.index(due)
            assert made.index(due) - made.index(used) <= age / 4 + 8
    assert len(snapshots_of(caller)[0]) <= 40


def test_a_label_that_came_at_once_is_scored_with_the_served_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, labels = NormalPair(0.5).sample(600, np.random.default_rng(31))
    caller = Caller()
    caller.learn(scores[:200], labels[:200])
    caller.step(200)
    spy = Spy(monkeypatch)
    seen = np.full(200, -1)
    seen[[3, 50]], seen[70] = 199, 200  # the served one is in force after 200 scores
    caller.learn(scores[200:400], labels[200:400], seen)
    caller.step(400)
    assert spy.asked == [([0, 200], [0 if i in (3, 50) else 1 for i in range(200)])]
    caller.learn(scores[400:], labels[400:])
    caller.step(600)
    assert len(spy.asked) == 1  # where all came at once, the table has it


@pytest.mark.slow
def test_labels_of_many_moments_are_scored_as_one_after_another(
    monkeypatch: pytest.MonkeyPatch, source_of: SourceOf
) -> None:
    """Without a source, with one that came in between, and with another after label shift was refuted."""
    spy = Spy(monkeypatch)
    everything(Caller(), source_of, 34, 40)
    # The table has the first step, and the source comes with the sixth.
    assert spy.sourced == [False] * 4 + [True] * 35
    assert max(len(used) for used, _ in spy.asked) > 10


def test_late_labels_are_not_scored_with_what_they_taught() -> None:
    """With labels that contradict the scores, the first fits change everything. Predictions made before them
    must still be scored as the identity, so that no candidate has lost less than another."""
    rng = np.random.default_rng(13)
    scores = rng.random(600)
    labels = (rng.random(600) > scores).astype(np.int8)
    caller = Caller()
    caller.learn(scores[:300], labels[:300], np.arange(300))
    caller.step(300)
    before = weights_of(caller)[:TARGET_ONLY]
    caller.learn(scores[300:], labels[300:], np.arange(300))
    caller.step(600)
    shares = np.full(TARGET_ONLY, 1 / TARGET_ONLY)
    losses = np.tile(np.square(scores[300:] - labels[300:]), (TARGET_ONLY, 1))
    expected = track(before, losses, shares, block=64)
    assert weights_of(caller)[:TARGET_ONLY] == pytest.approx(expected, rel=1e-9)


# What it is for


def test_where_the_scores_are_right_they_are_served() -> None:
    """Uniform scores that are the probabilities: the mean excess Brier loss after 5,000 labels is that of a
    few parameters, about 4·p(1−p)/n = 1e-4 a label; 10 times as much has a chance far below 1e-6."""
    rng = np.random.default_rng(14)
    scores = rng.random(10_000)
    labels = (rng.random(10_000) < scores).astype(np.int8)
    out, _ = run(Caller(), scores, labels)
    assert np.mean((out[5000:] - scores[5000:]) ** 2) < 1e-3
    late, _ = run(Caller(), scores, labels, delay=500)
    assert np.mean((late[5000:] - scores[5000:]) ** 2) < 1e-3


def test_it_recovers_from_a_change_of_concept() -> None:
    """Scores that suddenly mean the opposite. Within 1,500 labels the excess risk over h* must be a tenth of
    that of the map before the change; typical is a fiftieth, and it would take hundreds of freak labels."""
    rng = np.random.default_rng(15)
    truth = expit(rng.normal(0.0, 2.0, 8000))
    labels = (rng.random(8000) < truth).astype(np.int8)
    scores = np.where(np.arange(8000) < 4000, truth, 1.0 - truth)
    for delay in (0, 300):
        out, steps = run(Caller(), scores, labels, delay=delay)
        excess = (out - truth) ** 2
        assert excess[2000:4000].mean() < 0.01
        assert excess[5500 + 2 * delay :].mean() < 0.1 * np.mean((1.0 - 2.0 * truth) ** 2)
        if not delay:
            reasons = [step.mixing.reason for step in steps if step.mixing.reason]
            assert any("less per label than" in reason for reason in reasons)


def test_with_a_source_and_no_target_label_the_source_map_is_served(source_of: SourceOf) -> None:
    h, sketch = source_of(20_000, 0.5, 16)
    caller = Caller()
    caller.set_source(h, sketch)
    mixed = caller.step(0)
    pair = NormalPair(0.5)
    raw = pair.risk(RecalibrationMap(version=0)).total
    # The identity keeps the share of those the source says nothing of, and what its loss leaves of it.
    assert pair.risk(mixed.map).total < 0.05 * raw
    assert mixed.mixing.leader.startswith(("source", "composite"))
    assert mixed.mixing.reason == "a source of 20000 labels has come in"


def test_a_source_that_needs_no_map_does_not_displace_the_identity() -> None:
    rng = np.random.default_rng(17)
    scores = rng.random(300)
    sketch = ScoreSketch()
    sketch.add(scores, (rng.random(300) < scores).astype(np.int8))
    caller = Caller()
    caller.set_source(form(sketch, "auto").map, sketch)
    weights = caller.step(0).mixing.weights
    assert weights["identity"] > weights["source/uniform/all"]


def test_under_label_shift_the_composites_take_the_lead_until_it_is_refuted(source_of: SourceOf) -> None:
    h, sketch = source_of(50_000, 0.5, 18)
    caller = Caller()
    caller.set_source(h, sketch)
    scores, labels = NormalPair(0.05).sample(600, np.random.default_rng(19))
    mixed = run(caller, scores, labels, served=caller.step(0))[1][-1]
    assert mixed.mixing.leader.startswith("composite")
    caller.mixture.refute_label_shift()
    after = caller.step(600)
    assert after.mixing.reason == f"{mixed.mixing.leader} is out: label shift is refuted"
    assert not any(name.startswith(("composite", "label_shift")) for name in after.mixing.weights)
    assert sum(after.mixing.weights.values()) == pytest.approx(1.0)
    caller.learn(scores, labels)
    assert not any(name.startswith(("composite", "label_shift")) for name in caller.step(600).mixing.weights)
    caller.set_source(h, sketch)
    # The same source again: what was refuted stays out.
    assert not any(name.startswith("composite") for name in caller.step(600).mixing.weights)
    caller.set_source(h, sketch, new_generation=True)
    back = caller.step(600).mixing.weights
    assert any(name.startswith("composite") for name in back)
    assert sum(back.values()) == pytest.approx(1.0)


def test_a_fused_prior_takes_the_weight_of_the_priors_from_labels(source_of: SourceOf) -> None:
    h, sketch = source_of(5000, 0.5, 20)
    caller = Caller()
    caller.set_source(h, sketch)
    without = caller.step(0).mixing.weights
    assert not any(name.endswith("fused") for name in without)
    fused = caller.step(0, 0.1)
    # Before there are labels all windows count as all.
    for family in FAMILIES:
        name = f"composite/{family}"
        assert fused.mixing.weights[f"{name}/fused"] == pytest.approx(without[f"{name}/all"])
        assert f"{name}/all" not in fused.mixing.weights
    plain_map, shifted = caller.step(0).map, fused.map
    z = np.array([0.3, 0.5, 0.7])
    assert (shifted.predict_many(z) < plain_map.predict_many(z)).all()
    assert caller.step(0).mixing.weights == pytest.approx(without)
    # Of the maps before the first label only the last is kept.
    assert [snapshot.fused for snapshot in snapshots_of(caller)[0]] == [None]
    with pytest.raises(ValueError, match=r"got 1\.5"):
        caller.step(0, 1.5)


def test_a_source_may_come_after_the_target_s_labels(source_of: SourceOf) -> None:
    scores, labels = NormalPair(0.5).sample(3000, np.random.default_rng(21))
    caller = Caller()
    caller.learn(scores[:100], labels[:100])
    caller.step(100)
    caller.learn(scores[100:120], labels[100:120])
    caller.set_source(*source_of(10_000, 0.5, 22))
    mixed = caller.step(120)
    assert sum(weight for name, weight in mixed.mixing.weights.items() if name.startswith("source")) > 0.1
    out, _ = run(caller, scores[120:], labels[120:], served=mixed)
    assert brier(out, labels[120:]) < brier(scores[120:], labels[120:])


# State


def everything(caller: Caller, source_of: SourceOf, seed: int, steps: int) -> list[Mixed]:
    """Do all that can be done to a mixture, step after step."""
    rng = np.random.default_rng(seed)
    out, observed = [], 0
    for step in range(steps):
        scores, labels = NormalPair(0.2 + 0.6 * (step % 2)).sample(70, rng)
        caller.learn(scores[:30], labels[:30], rng.integers(-1, observed + 1, 70)[:30])
        if step == 5:
            caller.set_source(*source_of(500, 0.5, 23))
        if step == 20:
            caller.mixture.refute_label_shift()
        if step == 25:
            caller.set_source(*source_of(800, 0.3, 24), new_generation=True)
        caller.learn(scores[30:], labels[30:])
        observed += int(rng.integers(0, 200))
        out.append(caller.step(observed, 0.3 if step % 7 > 3 else None))
    return out


def test_restoring_at_any_point_changes_nothing(source_of: SourceOf) -> None:
    rng = np.random.default_rng(25)
    kept, restored = Caller(), Caller()
    observed = 0
    for step in range(40):
        scores, labels = NormalPair(0.2 + 0.6 * (step % 2)).sample(70, rng)
        seen = rng.integers(-1, observed + 1, 70)
        outputs: list[Mixed | None] = []
        observed += int(rng.integers(0, 200))
        restored.restart()
        source = source_of(500 + step, 0.5, 23) if step in (5, 25) else None
        for caller in (kept, restored):
            caller.learn(scores[:30], labels[:30], seen[:30])
            if source:
                caller.set_source(*source, new_generation=step == 25)
            if step == 20:
                caller.mixture.refute_label_shift()
        restored.restart()
        for caller in (kept, restored):
            outputs.append(caller.remix())
            caller.learn(scores[30:], labels[30:])
        assert kept.mixture.to_bytes() == restored.mixture.to_bytes()
        restored.restart()
        if step % 3 == 1:
            outputs += [caller.remix() for caller in (kept, restored)]
        restored.restart()
        for caller in (kept, restored):
            caller.count()
        restored.restart()
        outputs += [caller.step(observed, 0.3 if step % 7 > 3 else None) for caller in (kept, restored)]
        assert outputs[::2] == outputs[1::2]
        assert kept.mixture.to_bytes() == restored.mixture.to_bytes()
    assert kept.n == 40 * 70


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 90, 2000])
def test_restarts_between_weighings_change_nothing(source_of: SourceOf, delay: int) -> None:
    """With labels of random delays, over many steps and weighings."""
    rng = np.random.default_rng(47 + delay)
    scores, labels = flipping(5000, 900, 48)
    seen = np.maximum(np.arange(5000) - (rng.exponential(delay, 5000) if delay else -1), -1).astype(np.int64)
    one, other = Caller(), Caller()
    for caller in (one, other):
        caller.set_source(*source_of(2000, 0.5, 49))
        caller.step(0)
    between = 0
    while (due := one.mixture.next_weighing) <= 5000:
        part = slice(one.n, due)
        between += due < one.mixture.next_step
        for caller in (one, other):
            caller.learn(scores[part], labels[part], seen[part])
        if rng.random() < 0.5:
            other.restart()
        assert one.go_on(due) == other.go_on(due)
        assert one.mixture.to_bytes() == other.mixture.to_bytes()
        if rng.random() < 0.5:
            other.restart()
    assert between > 20


def test_no_damage_goes_unnoticed_or_breaks_anything(source_of: SourceOf) -> None:
    """Every altered state is refused, or is a state that can go on: nothing else may be raised."""
    caller, one = Caller(), np.ones(1, np.int8)
    everything(caller, source_of, 26, 12)
    caller.learn(np.array([0.4, 0.3]), np.array([0, 1], np.int8), np.array([1, 2]))
    caller.weigh()
    good = caller.mixture.to_bytes()
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
        other.weigh(np.array([0.5]), one, np.array([3]))
        other.remix()
        held = min(other.weighed, 1000)
        if held == other.weighed:
            other.count(np.full(held, 0.5), np.repeat(one, held))
            assert 0.0 <= other.step(1 << 60).map.predict_one(0.5) <= 1.0
    assert refused > 30
    for cut in rng.integers(0, len(good), 50).tolist():
        with pytest.raises(DamagedStateError):
            Mixture.from_bytes(good[:cut])
    state = codec.decode(good)
    cases: dict[str, object] = {
        "weights": codec.pack_floats(np.full(len(NAMES), 1.0)),
        "served": codec.pack_floats(np.full(len(NAMES), 0.5)),
        "weighed": -1,
        "leader": len(NAMES),
        "recent": codec.pack_floats(np.full(len(NAMES), 1.0)),
        "recent_labels": [0],
        "snapshots": [],
        "partition": b"",
        "fits": [],
        "fitted_at": [],
        "stride": 0,
    }
    for field, value in cases.items():
        with pytest.raises(DamagedStateError):
            Mixture.from_bytes(codec.encode(msgspec.structs.replace(state, **{field: value})))
    out = np.where(np.array(NAMES) == "label_shift/500", 1.0, 0.0)
    refuted = msgspec.structs.replace(state, shift_allowed=False, weights=codec.pack_floats(out))
    with pytest.raises(DamagedStateError, match="do not take part"):
        Mixture.from_bytes(codec.encode(refuted))
    assert Mixture.from_bytes(codec.encode(state)).to_bytes() == good


def test_the_state_stays_small(source_of: SourceOf) -> None:
    scores, labels = NormalPair(0.5).sample(40_000, np.random.default_rng(28))
    caller = Caller()
    caller.set_source(*source_of(20_000, 0.5, 29))
    run(caller, scores, labels, delay=500)
    assert len(caller.mixture.to_bytes()) < 256 * 1024


def test_merging_counts_the_other_s_labels_as_the_later_ones() -> None:
    scores, labels = NormalPair(0.5).sample(5000, np.random.default_rng(30))
    labels = np.append(labels[:1000], 1 - labels[1000:]).astype(np.int8)
    one, other = Caller(), Caller()
    run(one, scores[:1000], labels[:1000])
    run(other, scores[1000:], labels[1000:])
    one.step(1000)
    other.step(4000)
    state, weights = other.mixture.to_bytes(), (weights_of(one), weights_of(other))
    one.mixture.merge(other.mixture)
    assert other.mixture.to_bytes() == state
    assert one.mixture.n == 5000
    assert weights_of(one) == pytest.approx(0.2 * weights[0] + 0.8 * weights[1])
    assert weights_of(one).sum() == pytest.approx(1.0)
    counts = counts_of(one)
    assert counts.counts.sum(axis=1).tolist() == [5000 - int(labels.sum()), int(labels.sum())]
    assert counts.window(500)[1].sum() == labels[5000 - counts.held(500) :].sum()
    mixed = one.step(5000)
    # The last 4,000 are the other's, where a high score means 0.
    fits = snapshots_of(one)[1].fits
    window = fits[WINDOWS.index(2000)]
    assert window.labels >= 2000
    assert window.platt[0] < 0.0
    assert fits[ALL].labels == 5000
    assert mixed.map.predict_one(0.9) < mixed.map.predict_one(0.1)
    with pytest.raises(ValueError, match="strides"):
        one.mixture.merge(Mixture(stride=32))


def test_merging_adds_the_recent_losses() -> None:
    """The identity is right on 300 labels, and wrong on 300 of the other: the reason speaks of all 600."""
    scores = np.random.default_rng(54).random(600)
    labels = (scores > 0.5).astype(np.int8)
    one, other = Caller(), Caller()
    for caller, part, given in ((one, slice(0, 300), labels), (other, slice(300, 600), 1 - labels)):
        caller.learn(scores[part], given[part])
        caller.count()
    one.mixture.merge(other.mixture)
    assert state_of(one).recent_labels == [0, 600]
    assert sum(map(len, (one.labels, other.labels))) == 0
    sums = codec.unpack_floats(state_of(one).recent, 0.0, np.inf).reshape(2, -1)[1, 0]
    expected = np.square(scores - np.append(labels[:300], 1 - labels[300:])).sum()
    assert sums == pytest.approx(expected, rel=0.02)  # in the middle of its interval, not at the score


def test_bad_arguments_are_refused_with_their_value() -> None:
    with pytest.raises(ValueError, match="got 0"):
        Mixture(stride=0)
    mixture = Mixture()
    mixture.step(10)
    with pytest.raises(ValueError, match="must not go down, got 9"):
        mixture.step(9)
    one, two = np.array([1], np.int8), np.array([0.1, 0.2])
    with pytest.raises(ValueError, match="2 scores, 1 labels"):
        mixture.weigh(two, one, np.array([-1]))
    with pytest.raises(ValueError, match="bins and labels"):
        mixture.set_source(RecalibrationMap(version=0), ScoreSketch())
    assert len(PRIORS) == len(WINDOWS) + 2


def test_labels_are_counted_once_all_are_weighed() -> None:
    mixture, scores, labels = Mixture(), np.array([0.1, 0.2]), np.array([0, 1], np.int8)
    with pytest.raises(ValueError, match="0 labels were weighed, got 2 scores"):
        mixture.count(scores, labels)
    mixture.weigh(scores, labels, np.array([-1, -1]))
    assert (mixture.n, mixture.weighed) == (0, 2)
    state = mixture.to_bytes()
    for refused in (
        lambda: mixture.count(scores[:1], labels[:1]),
        lambda: mixture.step(2),
        lambda: mixture.merge(Mixture()),
        lambda: Mixture().merge(mixture),
    ):
        with pytest.raises(ValueError, match="2 labels were weighed"):
            refused()
    assert mixture.to_bytes() == state
    mixture.count(scores, labels)
    assert (mixture.n, mixture.weighed) == (2, 0)
    assert mixture.step(2).map.bins > 1
