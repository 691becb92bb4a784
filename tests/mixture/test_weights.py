"""The weights: a plain recursion, with two trackers; who takes part; and what the source alone says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit

from streamcal.mixture import weights as module
from streamcal.mixture.fits import Line, Source, Steps
from streamcal.mixture.names import COMPOSITE, NAMES
from streamcal.mixture.weights import BLOCK, FASTEST, SHARE, Weights, by_source, track

Floats = npt.NDArray[np.float64]

K = len(NAMES)
NONE = np.empty(0)


def plain(weights: Floats, losses: Floats, shares: Floats, rate: float, share: float) -> Floats:
    """Herbster and Warmuth's variable share, one trial, forecaster by forecaster."""
    w = [weight * np.exp(-rate * loss) for weight, loss in zip(weights, losses, strict=True)]
    w = [weight / sum(w) for weight in w]
    given = [weight * (1.0 - (1.0 - share) ** (loss / 0.25)) for weight, loss in zip(w, losses, strict=True)]
    pool = sum(given)
    return np.array([a - b + pool * c for a, b, c in zip(w, given, shares, strict=True)])


def made(*, sourced: bool = False) -> Weights:
    weights = Weights()
    if sourced:
        weights.set_source(new_generation=True)
    return weights


def each_of(weights: Weights) -> Floats:
    """Return the weights of both trackers, float64[2, K]."""
    return weights.to_state()[: 2 * K].reshape(2, K)


def test_a_trial_is_the_plain_recursion() -> None:
    rng = np.random.default_rng(1)
    weights, shares = rng.dirichlet(np.ones(7), 2), rng.dirichlet(np.ones(7))
    rates = np.array([[2.0], [0.3]])
    for share in (0.001, 0.2, 0.0):
        expected = weights
        ours = weights
        for _ in range(300):
            losses = rng.random((2, 7))
            ours = track(ours, losses, shares, rates, share)
            expected = np.stack(
                [
                    plain(*row, shares, rate, share)
                    for *row, rate in zip(expected, losses, rates[:, 0], strict=True)
                ]
            )
        assert ours == pytest.approx(expected, rel=1e-6, abs=1e-13)
        assert ours.sum(axis=1) == pytest.approx([1.0, 1.0])


def test_trials_without_loss_move_nothing_and_who_is_out_stays_out() -> None:
    shares, uneven = np.array([0.5, 0.5, 0.0]), np.array([[0.9, 0.1, 0.0]])
    assert track(uneven, np.zeros((1, 3)), shares, np.array([[2.0]])) == pytest.approx(uneven)
    moved = track(uneven, np.array([[9.0, 1.0, 0.0]]), shares, np.array([[2.0]]))
    assert moved[0, 2] == 0.0
    assert moved[0, 1] > uneven[0, 1]
    # Nor does rounding: weights that add up to a little over 1 must not make another negative.
    shares, rng = np.full(7, 1.0 / 7.0), np.random.default_rng(7)
    many = np.append(rng.dirichlet(np.ones(6), 100), np.zeros((100, 1)), axis=1)
    assert (track(many, np.zeros((100, 7)), shares, np.array([[2.0]])) >= 0.0).all()


def errors_of(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return errors of the candidates and of the trackers' mixtures on n labels."""
    return rng.random((2, K, n)), rng.random((2, n))


@pytest.mark.parametrize("sourced", [False, True])
def test_each_tracker_has_a_rate_of_its_own_from_its_own_losses(sourced: bool) -> None:
    """Against the plain recursion: blocks of labels as trials, and the rate 1/20 of the mean loss, inverted.

    The first tracker's losses are those of nearly certain labels, the second's those of uncertain ones. What
    is served mixes them with weights in turn, by the losses of their mixtures.
    """
    rng = np.random.default_rng(2)
    weights = made(sourced=sourced)
    active = np.ones(K, np.bool_) if sourced else ~COMPOSITE
    assert np.array_equal(weights.active, active)
    each, sums, labels, rates = each_of(weights), np.zeros(2), 0.0, np.zeros(2)
    lead = 0.0
    for n in (1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 500):
        losses = rng.random((2, K, n)) * np.array([0.01, 0.5])[:, np.newaxis, np.newaxis]
        tracked = np.array([[0.1], [0.11]]) * rng.random((2, n))
        weights.track(np.sqrt(losses), np.sqrt(tracked))
        lead += FASTEST * (tracked[1].sum() - tracked[0].sum())
        for start in range(0, n, BLOCK):
            trial = losses[:, :, start : start + BLOCK]
            aged = module._KEPT ** trial.shape[2]
            sums, labels = aged * sums, aged * labels + trial.shape[2]
            for tracker in (0, 1):
                lost = trial[tracker].sum(axis=1)
                sums[tracker] += each[tracker] @ lost
                rates[tracker] = min(FASTEST, module._PRODUCT * labels / sums[tracker])
                each[tracker] = plain(each[tracker], lost, active / active.sum(), rates[tracker], SHARE)
    assert rates[0] == FASTEST
    assert rates[1] == pytest.approx(module._PRODUCT / 0.25, rel=0.2)
    assert each_of(weights) == pytest.approx(each, rel=1e-8, abs=1e-15)
    between = np.array([1.0, np.exp(-lead)]) / (1.0 + np.exp(-lead))
    assert 0.7 < between[0] < 1.0
    assert weights.served[0] == pytest.approx(between @ each, rel=1e-8, abs=1e-15)
    assert weights.served == pytest.approx(np.append([between @ each], each, axis=0), rel=1e-8, abs=1e-15)
    assert sourced or not weights.served[0][COMPOSITE].any()


def test_a_source_gives_the_composites_half_once_in_each_generation() -> None:
    weights = made()
    first = weights.served[0]
    assert first[0] == 0.75
    assert not first[COMPOSITE].any()
    assert weights.set_source(new_generation=False)
    assert weights.served[0][COMPOSITE] == pytest.approx(0.5 / COMPOSITE.sum())
    assert weights.served[0][~COMPOSITE] == pytest.approx(0.5 * first[~COMPOSITE])
    weights.begin()
    assert weights.served[0][~COMPOSITE] == pytest.approx(0.5 / (~COMPOSITE).sum())
    weights.track(*errors_of(np.random.default_rng(3), 100))
    before = each_of(weights)
    assert not weights.set_source(new_generation=False)
    assert not weights.set_source(new_generation=True)
    assert np.array_equal(each_of(weights), before)
    weights.refute_label_shift()
    assert not weights.shift_allowed
    assert not weights.served[0][COMPOSITE].any()
    kept = before[:, ~COMPOSITE]
    assert each_of(weights)[:, ~COMPOSITE] == pytest.approx(kept / kept.sum(axis=1, keepdims=True))
    weights.track(*errors_of(np.random.default_rng(4), 100))
    assert not weights.set_source(new_generation=False)
    weights.begin()
    assert not weights.served[0][COMPOSITE].any()
    assert weights.set_source(new_generation=True)
    assert weights.served[0][COMPOSITE].sum() == pytest.approx(0.5)
    assert weights.served[0].sum() == pytest.approx(1.0)


def test_errors_that_both_trackers_have_alike_may_be_given_once() -> None:
    once, twice = made(), made()
    errors, tracked = errors_of(np.random.default_rng(9), 150)
    once.track(errors[:1], tracked)
    twice.track(np.concatenate((errors[:1], errors[:1])), tracked)
    assert np.array_equal(once.to_state(), twice.to_state())


@pytest.mark.parametrize("better", [0, 1])
def test_a_tracker_that_loses_less_gets_all_of_the_weight_in_time(better: int) -> None:
    """However far the other falls behind."""
    weights, rng = made(), np.random.default_rng(8)
    weights.track(rng.random((2, K, 300)), np.zeros((2, 300)))
    assert weights.served[0] == pytest.approx(each_of(weights).mean(axis=0))
    tracked = np.zeros((2, 1000))
    tracked[1 - better] = 0.5
    weights.track(rng.random((2, K, 1000)), tracked)
    assert weights.served[0] == pytest.approx(each_of(weights)[better])


def test_without_a_source_beginning_changes_nothing() -> None:
    weights, fresh = made(), made()
    weights.begin()
    assert np.array_equal(weights.served[0], fresh.served[0])


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_merging_averages_both_trackers_and_who_takes_part_stays(share: float) -> None:
    rng = np.random.default_rng(5)
    one, other = made(), made(sourced=True)
    for each in (one, other):
        each.track(*errors_of(rng, 200))
    before = each_of(one), each_of(other)
    losses = one.to_state()[2 * K :] + other.to_state()[2 * K :]
    one.merge(other, share)
    expected = share * before[0] + (1.0 - share) * before[1]
    expected[:, COMPOSITE] = 0.0
    assert each_of(one) == pytest.approx(expected / expected.sum(axis=1, keepdims=True))
    assert one.to_state()[2 * K :] == pytest.approx(losses)
    between = expit(losses[-1] * np.array([1.0, -1.0]))
    assert one.served[0] == pytest.approx(between @ each_of(one))
    assert np.array_equal(each_of(other), before[1])


def test_the_state_is_all_there_is_and_damage_is_told() -> None:
    weights = made(sourced=True)
    losses, tracked = errors_of(np.random.default_rng(6), 300)
    weights.track(losses[:, :, :150], tracked[:, :150])
    again, state = Weights(), weights.to_state()
    assert again.restore(state.copy(), sourced=True, shift_allowed=True)
    for each in (weights, again):
        each.track(losses[:, :, 150:], tracked[:, 150:])
    assert np.array_equal(weights.to_state(), again.to_state())
    for place, value in ((0, 0.9), (K, -0.1), (2 * K, 1e6), (2 * K + 2, 0.0)):
        bad = state.copy()
        bad[place] = value
        assert not Weights().restore(bad, sourced=True, shift_allowed=True)
    for facts in ({"sourced": False, "shift_allowed": True}, {"sourced": True, "shift_allowed": False}):
        assert not Weights().restore(state.copy(), **facts)


# Before the first target label


def source(labels: int, losses: tuple[float, float, float, float]) -> Source:
    return Source(labels, 0.5, (1.0, 0.0), Line(NONE, NONE), Steps(NONE, NONE), losses)


ROWS = [NAMES.index(f"{name}") for name in ("identity", "composite/platt/all", "composite/curve/300")]
ROWS.append(NAMES.index("target/uniform/all"))


@pytest.mark.parametrize("best", range(4))
def test_the_more_labels_a_source_has_the_more_its_best_map_gets(best: int) -> None:
    losses = np.full(4, 0.102)
    losses[best] = 0.1
    row, got = ROWS[best], []
    for labels in (1, 100, 1000, 10_000, 10**12):
        weights = by_source(source(labels, tuple(losses.tolist())), shifted=False)
        assert weights.sum() == pytest.approx(1.0)
        assert not np.delete(weights, ROWS).any()
        got.append(weights[row])
        others = np.exp(-FASTEST * labels * 0.002)
        assert got[-1] == pytest.approx(1.0 / (1.0 + 3.0 * others))
    assert got == sorted(got)
    assert got[-1] == 1.0


def test_where_the_prior_is_known_to_differ_only_composites_follow() -> None:
    some = by_source(source(100, (0.1, 0.101, 0.103, 0.1)), shifted=True)
    assert not some[~COMPOSITE].any()
    assert some[ROWS[1]] > some[ROWS[2]] > 0.0
    assert some.sum() == pytest.approx(1.0)
    # Of the best maps none is a composite, and those are so far behind that nothing is left of them.
    lost = by_source(source(10**12, (0.1, 0.2, 0.2, 0.1)), shifted=True)
    assert np.array_equal(lost, COMPOSITE / COMPOSITE.sum())
