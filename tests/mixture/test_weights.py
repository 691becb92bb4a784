"""The weights: a plain recursion, with two trackers; who takes part; and what the source alone says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit, logit

from streamcal import Recalibrator
from streamcal.mixture import weights as module
from streamcal.mixture.candidates import CANDIDATES
from streamcal.mixture.fits import Source
from streamcal.mixture.forecasts_c import SLOPES, Line
from streamcal.mixture.weights import (
    BLOCK,
    EARLY,
    RATE,
    SHARE,
    SLOPE_RATE,
    SLOPE_SHARE,
    Slopes,
    Weights,
    by_source,
)
from tests.inside import memos_of
from tests.mixture.plain import COMPOSITE, DELAYED, NAMES, WITH_EARLY, slopes_after
from tests.nightly import one_in

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

K = len(NAMES)
NONE = np.empty(0)
COIN = np.log(2.0)


def made(*, sourced: bool = False, delayed: bool = False) -> Weights:
    weights = Weights.begun(WITH_EARLY if delayed else CANDIDATES)
    if sourced:
        weights.set_source()
    return weights


def each_of(weights: Weights) -> Floats:
    """Return the weights of both trackers, float64[2, K]."""
    return weights.tracked


def first_of(*, sourced: bool, delayed: bool) -> Floats:
    """Return the first weights, from their definition."""
    shares = np.array([0.0 if composite else 1.0 for composite in COMPOSITE])
    shares[0] = module._IDENTITY
    first: Floats = shares / shares.sum()
    if sourced:
        first = (1.0 - module._COMPOSITES) * first + module._COMPOSITES * COMPOSITE / COMPOSITE.sum()
    if not delayed:
        return first
    own = module._DELAYED
    return np.concatenate(((1.0 - own) * first, np.full(len(DELAYED), own / len(DELAYED))))


def losses_of(rng: np.random.Generator, n: int, candidates: int = K) -> tuple[Floats, Floats]:
    """Return log losses of the candidates and of the trackers' mixtures on n labels."""
    return rng.exponential(0.5, (2, candidates, n)), rng.exponential(0.5, (2, n))


class Plain:
    """The recursion of one tracker, candidate by candidate."""

    def __init__(self, first: Floats, asleep: Flags) -> None:
        self.weights, self.first, self.asleep = [*first.tolist()], first.tolist(), asleep.tolist()
        self.loss, self.labels = module._FIRST_LABELS * COIN, module._FIRST_LABELS
        self.mean = COIN

    def learn(
        self, lost: list[float], known: float, size: int, product: float, share: float
    ) -> tuple[float, float]:
        """Take the losses of one block; return the rate and the part that goes back."""
        self.mean = self.loss / self.labels
        rate = min(1.0, product / self.mean)
        total = sum(w for w, out in zip(self.weights, self.asleep, strict=True) if not out)
        three = list(zip(self.weights, lost, self.asleep, strict=True))
        own = sum(w * loss for w, loss, out in three if not out) / total
        moved = [0.0 if out else w * np.exp(-rate * loss) for w, loss, out in three]
        back = 1.0 - (1.0 - share * min(1.0, self.mean / COIN)) ** known
        self.weights = [
            (1.0 - back) * (w if out else total * own_w / sum(moved)) + back * first
            for (w, _, out), own_w, first in zip(three, moved, self.first, strict=True)
        ]
        kept = module._RATES.kept**size
        self.loss, self.labels = kept * self.loss + own, kept * self.labels + known
        return rate, back


@pytest.mark.parametrize("predictions", [None, 100])
@pytest.mark.parametrize("of_source", [False, True])
@pytest.mark.parametrize(("sourced", "delayed"), [(False, False), (True, True)])
def test_each_tracker_is_the_plain_recursion(
    sourced: bool, delayed: bool, of_source: bool, predictions: int | None
) -> None:
    """Blocks of labels as trials, with a rate and a share from the tracker's own mean loss.

    The first tracker's losses are those of nearly certain labels, the second's those of uncertain ones. What
    is served mixes them with weights in turn, by the losses of their mixtures. Where fewer predictions are
    made than labels come, less goes back.
    """
    rng = np.random.default_rng(2)
    weights, first = made(sourced=sourced, delayed=delayed), first_of(sourced=sourced, delayed=delayed)
    assert each_of(weights) == pytest.approx(np.stack((first, first)))
    assert np.array_equal(weights.active, first > 0.0)
    asleep = np.append(COMPOSITE & of_source, np.ones(len(first) - K, np.bool_))
    trackers, rates = [Plain(first, asleep) for _ in range(2)], [0.0, 0.0]
    usual = module._TRUST
    lead, learned, credit = float(logit(usual)), 0, module._CREDIT
    assert weights.lead == pytest.approx(lead)
    for n in (1, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 4000):
        losses, tracked = losses_of(rng, n, len(first))
        losses *= np.array([0.001, 1.5])[:, np.newaxis, np.newaxis]
        tracked *= np.array([0.1, 0.11])[:, np.newaxis]
        counted = rng.uniform(0.2, 3.0, n)
        losses, tracked = losses * counted, tracked * counted
        earlier = None if of_source else learned
        weights.track(losses, tracked, counted, earlier=earlier, made=predictions)
        allowed = credit + (np.inf if predictions is None else predictions)
        part = min(1.0, allowed / n)
        credit = max(0.0, min(allowed - n, module._CREDIT))
        for start in range(0, n, BLOCK):
            block = slice(start, start + BLOCK)
            size = losses[0, 0, block].size
            known = size if counted is None else counted[block].sum()
            backs = []
            before = learned + start + BLOCK / 2  # the labels before the middle of the block
            product = RATE if of_source else RATE * (1.0 + EARLY / before)
            for place, tracker in enumerate(trackers):
                lost = losses[place, :, block].sum(axis=1).tolist()
                rates[place], back = tracker.learn(lost, known, size, product, part * SHARE)
                backs.append(back)
            mean = min(tracker.mean for tracker in trackers)
            lead += min(1.0, module._LEAD_RATE / mean) * (tracked[1, block] - tracked[0, block]).sum()
            trust = float(expit(lead))
            lead = float(logit(trust + (usual - trust) * min(backs)))
        learned += n
    assert rates[0] == 1.0
    assert 0.5 * RATE < rates[1] < 0.1
    each = np.array([tracker.weights for tracker in trackers])
    assert each_of(weights) == pytest.approx(each, rel=1e-8, abs=1e-15)
    assert each.sum(axis=1) == pytest.approx([1.0, 1.0])
    trust = float(expit(lead))
    assert usual + 0.05 < trust < 1.0
    mixed = trust * each[0] + (1.0 - trust) * each[1]
    assert weights.served == pytest.approx(np.concatenate(([mixed], each)), rel=1e-8, abs=1e-15)
    assert np.abs(each[0] - each[1]).max() > 0.01
    assert sourced or not weights.served[:, :K][:, COMPOSITE].any()


# Labels in bulk


def test_the_end_of_a_bulk_does_not_decide_what_is_served_after_it() -> None:
    """Labels are told at the end of each week, of which the last two days have another law than the others.

    Log loss was 1.002 times that of the mean law of a week; where the last labels decide, 1.24 times.
    """
    rng, day = np.random.default_rng(0), 800
    x = rng.normal(-2.0, 1.3, 70 * day)
    lately = np.arange(len(x)) // day % 7 >= 5
    truth = np.where(lately, expit(0.4 * x + 1.0), expit(x - 0.5))
    labels, engine, said = (rng.random(len(x)) < truth).astype(np.int8), Recalibrator(), []
    for start in range(0, len(x), 7 * day):
        week = slice(start, start + 7 * day)
        answers = engine.answer_many(expit(x[week]))
        said.append(answers.probabilities)
        engine.learn_many(expit(x[week]), labels[week], memos=answers.memos)
    each = (5.0 * expit(x - 0.5) + 2.0 * expit(0.4 * x + 1.0)) / 7.0
    losses = [
        -np.log(np.where(labels == 1, p, 1.0 - p))[14 * day :].mean() for p in (np.concatenate(said), each)
    ]
    assert losses[0] <= 1.02 * losses[1]


# Who takes part


def test_a_source_that_comes_late_finds_the_proportions_that_labels_have_made() -> None:
    weights = made()
    weights.track(*losses_of(np.random.default_rng(4), 100), earlier=5000)
    before = each_of(weights)
    assert np.abs(before - before[:, [0]]).max() > 0.01
    assert weights.set_source()
    after = each_of(weights)
    assert after[:, ~COMPOSITE] == pytest.approx((1.0 - module._COMPOSITES) * before[:, ~COMPOSITE])
    assert after[:, COMPOSITE] == pytest.approx(module._COMPOSITES / COMPOSITE.sum())


# Before the first target label


def source(labels: int, losses: tuple[float, float, float], ahead: float = 0.0) -> Source:
    """Return a source whose identity loses so much less than its Platt map, in nats a label."""
    return Source(labels, 0.5, (1.0, 0.0), Line(NONE, NONE), losses, (0.3, 0.3 + ahead))


ROWS = (*(np.array(NAMES) == name for name in ("identity", "target/hinge/all")), COMPOSITE)
"""Which candidates serve each map of the source before the first label."""


@pytest.mark.parametrize("best", range(3))
def test_the_more_labels_a_source_has_the_more_its_best_map_gets(best: int) -> None:
    """The identity by its log loss, against Platt; Platt and the curve by their Brier losses.

    The identity's Brier loss says nothing: it is the least of all here.
    """
    losses, ahead = {
        0: ((0.0, 0.1, 0.102), 0.002),
        1: ((0.0, 0.1, 0.102), -0.002),
        2: ((0.0, 0.102, 0.1), -0.002),
    }[best]
    own, got = np.stack(ROWS), []
    rest = 1.0 - module._DELAYED
    for labels in (1, 100, 1000, 10_000, 10**12):
        weights = by_source(source(labels, losses, ahead), WITH_EARLY, shifted=False)
        assert weights.sum() == pytest.approx(1.0)
        assert weights[K:] == pytest.approx([module._DELAYED / 2] * len(DELAYED))
        assert not weights[:K][~own.any(axis=0)].any()
        assert np.ptp(weights[:K][COMPOSITE]) == 0.0
        got.append(weights[:K][own[best]].sum() / rest)
        platt = np.exp(-module._FASTEST * labels * max(0.0, losses[1] - losses[2]))
        curve = np.exp(-module._FASTEST * labels * max(0.0, losses[2] - losses[1]))
        identity = platt * np.exp(min(labels * ahead, module._MOST_LEAD))
        parts = np.array([identity, platt, curve])
        assert got[-1] == pytest.approx(parts[best] / parts.sum())
    assert got == sorted(got)
    assert got[-1] == pytest.approx(1.0)


# The slopes: a plain recursion, weights that stay weights, and what they are for


Labels = npt.NDArray[np.int8]

FIXED = np.array((1.0, 0.0, 0.0, 0.0))
DELAY, BATCH, WARM = 3000, 100, 6000


def sloped_losses(rng: np.random.Generator, n: int) -> Floats:
    """Return log losses of the forecasts with each factor on n labels."""
    return rng.exponential(0.5, (len(SLOPES), n))


def test_the_weights_are_the_plain_recursion() -> None:
    """Call after call: exponential weights by the sums of a call, and a share that goes back a label."""
    rng, slopes, calls, moved = np.random.default_rng(1), Slopes(), list[Floats](), 0.0
    for n, scale in ((1, 1.0), (64, 0.1), (7, 20.0), (500, 0.001), (16, 1.0), (3000, 1.0), (1, 0.0)):
        calls.append(sloped_losses(rng, n) * scale)
        before = slopes.weights
        kept = before.copy()
        slopes.track(calls[-1])
        assert np.array_equal(before, kept)  # what a snapshot holds does not change
        expected = slopes_after(module._FIRST_SLOPES, calls, SLOPE_RATE, SLOPE_SHARE, module._FIRST_SLOPES)
        assert slopes.weights == pytest.approx(expected, rel=1e-9, abs=1e-300)
        moved = max(moved, float(np.abs(expected - module._FIRST_SLOPES).max()))
    assert moved > 0.05


# What it is for


def stream(seed: int, *, falls: bool, n: int = 24_000) -> tuple[Floats, Labels]:
    """Return scores whose slope falls by a third in every 4,000 predictions, or whose log odds are right."""
    rng = np.random.default_rng(seed)
    x = rng.normal(0.0, 1.5, n)
    slope = 3.0 * np.exp(-np.arange(n) / 10_000.0) if falls else np.ones(n)
    return expit(x), (rng.random(n) < expit(slope * x - 1.0)).astype(np.int8)


def served(scores: Floats, labels: Labels, *, restarted_at: int = -1) -> tuple[Floats, Recalibrator]:
    """Return what is served where labels are 3,000 predictions late, and the engine."""
    engine, said = Recalibrator(), np.empty(len(scores))
    for start in range(0, len(scores), BATCH):
        if start == restarted_at:
            engine = Recalibrator.from_bytes(engine.to_bytes())
        part, late = (
            slice(start, start + BATCH),
            slice(start - DELAY, start - DELAY + BATCH),
        )
        said[part] = engine.predict_many(scores[part])
        engine.observe_many(scores[part])
        if start >= DELAY:
            engine.learn_many(scores[late], labels[late], memos=memos_of(start - DELAY, len(labels[late])))
    return said, engine


def ratio(monkeypatch: pytest.MonkeyPatch, seed: int, *, falls: bool) -> float:
    """Return the log loss with slopes over that without, once labels have come for one more delay."""
    scores, labels = stream(seed, falls=falls)
    with_slopes = served(scores, labels)[0]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_FIRST_SLOPES", FIXED)
        without = served(scores, labels)[0]
    losses = [
        -np.log(np.where(labels == 1, said, 1.0 - said))[WARM:].mean() for said in (with_slopes, without)
    ]
    return float(losses[0] / losses[1])


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_where_scores_have_lost_meaning_by_the_time_that_labels_come(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """What was learned 3,000 labels ago and before is about 1.5 times too sharp, and stays so.

    Log loss was .986, .985 and .985 times that with weights fixed at (1, 0, 0, 0), the truth's .964 to .969.
    """
    assert ratio(monkeypatch, seed, falls=True) <= 0.99


@pytest.mark.parametrize("seed", one_in(3, range(3)))
def test_where_nothing_changes_slopes_cost_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Log loss was .99998, 1.00003 and 1.00004 times that with weights fixed at (1, 0, 0, 0)."""
    assert ratio(monkeypatch, seed, falls=False) <= 1.002
