"""What the mixture is made of: tracking weights, the candidates, and their table as one map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit, logit

from streamcal.maps.binning import bin_sums, candidate_bins, leave_one_out_brier, uniform_mass
from streamcal.maps.platt import fit_platt, platt_loss
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import shift_correction
from streamcal.maps.uniform_mass import form
from streamcal.mixture.fits import (
    Fit,
    Line,
    Source,
    Steps,
    fit_source,
    fit_windows,
)
from streamcal.mixture.forecasts import Hindsight, Points, Snapshot, refill
from streamcal.mixture.names import ALL, FAMILIES, FITTED, FUSED, NAMES, SHIFTED, TARGET_ONLY, UNIFORM_FROM
from streamcal.mixture.partition import choose_partition, quantile_edges
from streamcal.mixture.table import Table
from streamcal.mixture.weights import track
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
SourceOf = Callable[[int, float, int], tuple[RecalibrationMap, ScoreSketch]]


def brier(forecast: Floats, labels: Labels) -> float:
    return float(np.mean((forecast - labels) ** 2))


# The weights


def plain(weights: Floats, losses: Floats, shares: Floats, rate: float, share: float) -> Floats:
    """Herbster and Warmuth's variable share, trial by trial and forecaster by forecaster."""
    w = weights.tolist()
    for trial in losses.T.tolist():
        w = [weight * np.exp(-rate * loss) for weight, loss in zip(w, trial, strict=True)]
        total = sum(w)
        w = [weight / total for weight in w]
        given = [
            weight * (1.0 - (1.0 - share) ** (loss / 0.25)) for weight, loss in zip(w, trial, strict=True)
        ]
        pool = sum(given)
        w = [a - b + pool * c for a, b, c in zip(w, given, shares.tolist(), strict=True)]
    return np.array(w)


def test_tracking_is_the_plain_recursion() -> None:
    rng = np.random.default_rng(1)
    losses, weights, shares = rng.random((7, 300)), rng.dirichlet(np.ones(7)), rng.dirichlet(np.ones(7))
    for rate, share in ((2.0, 0.004), (0.3, 0.2), (5.0, 0.0)):
        ours = track(weights, losses, shares, rate=rate, share=share)
        assert ours == pytest.approx(plain(weights, losses, shares, rate, share), rel=1e-9, abs=1e-15)
        assert ours.sum() == pytest.approx(1.0)


def test_a_block_counts_as_one_trial_with_the_sum_of_its_losses() -> None:
    rng = np.random.default_rng(2)
    losses, weights, shares = rng.random((5, 110)), rng.dirichlet(np.ones(5)), np.full(5, 0.2)
    summed = np.stack([losses[:, i : i + 32].sum(axis=1) for i in range(0, 110, 32)], axis=1)
    ours = track(weights, losses, shares, block=32)
    assert ours == pytest.approx(plain(weights, summed, shares, 2.0, 0.004), rel=1e-9)
    # Where the losses are near, blocks are near to single trials.
    near = 0.1 + 0.01 * losses
    assert track(weights, near, shares, block=32) == pytest.approx(track(weights, near, shares), abs=2e-3)


def test_a_forecaster_that_is_out_stays_out_and_trials_without_loss_move_nothing() -> None:
    weights, shares = np.array([0.5, 0.5, 0.0]), np.array([0.5, 0.5, 0.0])
    moved = track(weights, np.array([[0.3] * 9, [0.1] * 9, [0.0] * 9]), shares)
    assert moved[2] == 0.0
    assert moved[1] > moved[0]
    uneven = np.array([0.9, 0.1, 0.0])
    assert track(uneven, np.zeros((3, 1000)), shares) == pytest.approx(uneven)


# The candidates


def test_there_is_a_candidate_for_every_estimator_window_and_family() -> None:
    assert len(set(NAMES)) == len(NAMES) == 1 + len(FITTED) + 3 + 3 * 8 + 8
    assert [NAMES[index] for index in np.flatnonzero(FUSED)] == [
        *(f"composite/{family}/fused" for family in FAMILIES),
        "label_shift/fused",
    ]
    assert all(NAMES[i].startswith(("composite", "label_shift")) == SHIFTED[i] for i in range(len(NAMES)))
    assert not SHIFTED[:TARGET_ONLY].any()
    assert all(name.startswith(("identity", "target")) for name in NAMES[:TARGET_ONLY])


def fits_of(scores: Floats, labels: Labels) -> tuple[ScoreSketch, Fit]:
    sketch = ScoreSketch(512)
    sketch.add(scores, labels)
    logits = logit(grid.left_edges(2 * sketch.cells + np.int32(1), sketch.level - 1))
    return sketch, fit_windows(sketch.cells, sketch.level, logits, [(ALL, sketch.counts, None)])[0]


def check_uniform_mass(held: ScoreSketch, fit: Fit) -> None:
    """Compare bins with Definition 6, and their number with the best of the engine's rule."""
    lefts = grid.left_edges(held.cells, held.level)
    splits = np.searchsorted(lefts, grid.left_edges(fit.uniform.edges, grid.MIN_LEVEL))
    splits = np.concatenate(([0], splits, [len(lefts)]))
    positives, totals = bin_sums(held.counts[1], splits), bin_sums(held.totals, splits)
    assert np.array_equal(fit.uniform.values, positives / totals)
    assert any(
        np.array_equal(splits, uniform_mass(held.totals, bins)) for bins in candidate_bins(held.n, 128)
    )
    auto = form(held, "auto")
    best = leave_one_out_brier(bin_sums(held.counts[1], auto.splits), bin_sums(held.totals, auto.splits))
    assert leave_one_out_brier(positives, totals) <= 1.03 * best


def pooled(positives: npt.NDArray[np.int64], totals: npt.NDArray[np.int64]) -> list[float]:
    """Pool adjacent violators, cell by cell: the isotonic regression at every cell."""
    blocks: list[list[int]] = []
    for ones, count in zip(positives.tolist(), totals.tolist(), strict=True):
        blocks.append([ones, count, 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last, strict=True)]
    return [ones / count for ones, count, cells in blocks for _ in range(cells)]


def test_every_candidate_forecasts_what_its_name_says(source_of: SourceOf) -> None:
    """Against the paper's estimators as the engine has them, and a plain isotonic regression."""
    rng = np.random.default_rng(3)
    h, sketch = source_of(4000, 0.5, 4)
    source = fit_source(h, sketch)
    scores, labels = NormalPair(0.2).sample(3000, rng)
    held, fit = fits_of(scores, labels)
    assert (fit.labels, fit.positives) == (3000, int(labels.sum()))
    z = np.sort(expit(rng.normal(0.0, 3.0, 500)))
    table = dict(zip(NAMES, refill(Snapshot(0, source, (fit,) * (ALL + 1), 0.3), Points.of(z)), strict=True))
    assert np.array_equal(table["identity"], z)
    assert table["source/uniform/all"] == pytest.approx(h.predict_many(z))
    check_uniform_mass(held, fit)
    bins = np.searchsorted(grid.left_edges(fit.uniform.edges, grid.MIN_LEVEL), z, side="right")
    assert np.array_equal(table["target/uniform/all"], fit.uniform.values[bins])
    middles = grid.left_edges(2 * held.cells + np.int32(1), held.level - 1)
    isotonic = np.interp(logit(z), logit(middles), pooled(held.counts[1], held.totals))
    assert table["target/isotonic/500"] == pytest.approx(isotonic, abs=1e-9)
    a, b = fit.platt
    assert table["target/platt/2000"] == pytest.approx(expit(a * logit(z) + b))
    on_cells = logit(middles), held.counts[1:].astype(float), held.totals[np.newaxis].astype(float)
    losses = [platt_loss(np.array([row]), *on_cells)[0] for row in (fit.platt, fit_platt(*on_cells)[0])]
    assert losses[0] == pytest.approx(losses[1], abs=0.05)  # nats, of 3,000 labels
    p, q = (sketch.n_positives + 0.5) / (sketch.n + 1), (labels.sum() + 0.5) / 3001
    weights = ((1 - q) / (1 - p), q / p)
    for family in FAMILIES:
        shifted = shift_correction(table[f"source/{family}/all"], weights)
        assert table[f"composite/{family}/all"] == pytest.approx(shifted)
    assert table["label_shift/4000"] == pytest.approx(shift_correction(z, weights))
    assert table["label_shift/fused"] == pytest.approx(shift_correction(z, (0.7 / (1 - p), 0.3 / p)))


def test_before_target_labels_all_candidates_equal_the_identity_or_the_source(source_of: SourceOf) -> None:
    z = np.linspace(0.0, 1.0, 50)
    assert np.array_equal(refill(Snapshot(0, None, (), None), Points.of(z)), [z] * TARGET_ONLY)
    h, sketch = source_of(1000, 0.5, 5)
    table = refill(Snapshot(0, fit_source(h, sketch), (), None), Points.of(z))
    rows = dict(zip(NAMES, table, strict=True))
    for family in FAMILIES:
        for name, row in rows.items():
            if f"/{family}/" in name:
                assert row == pytest.approx(rows[f"source/{family}/all"])


def test_the_losses_of_a_source_are_those_on_new_labels(source_of: SourceOf) -> None:
    """40 sources of 500 labels, against the exact losses on fresh scores.

    The losses of uniform mass and Platt must be right within 4 standard errors. That of isotonic regression
    comes from fits to half of the labels: it may be too high, but not too low. A false alarm has a chance
    below 2e-4.
    """
    pair = NormalPair(0.4)
    z = np.sort(pair.sample(20_000, np.random.default_rng(6))[0])
    truth, gaps = pair.optimal(z), []
    for seed in range(40):
        h, sketch = source_of(500, 0.4, 100 + seed)
        source = fit_source(h, sketch)
        table = refill(Snapshot(0, source, (), None), Points.of(z))
        risks = [brier(row, truth) for row in table[[0, *range(TARGET_ONLY, TARGET_ONLY + 3)]]]
        # The identity's is subtracted: the noise of the source's labels is in both.
        gaps.append(
            [
                loss - source.losses[0] - risk + risks[0]
                for loss, risk in zip(source.losses, risks, strict=True)
            ]
        )
    mean, error = np.mean(gaps, axis=0), np.std(gaps, axis=0) / np.sqrt(40)
    assert (np.abs(mean)[[1, 3]] <= 4.0 * error[[1, 3]]).all()
    assert -4.0 * error[2] <= mean[2] <= 4.0 * error[2] + 0.002


# Many snapshots


def random_fit(rng: np.random.Generator, *, bins: bool) -> Fit:
    """Return a made-up fit; as in isotonic regression, a block of one cell has two equal knots."""
    knots = np.sort(rng.choice(np.arange(-270, 270), int(rng.integers(1, 30)), replace=False) / 10.0)
    ends, heights = rng.integers(1, 3, len(knots)), rng.random(len(knots))
    cells = np.sort(rng.choice(grid.LAST_KEY >> grid.MIN_LEVEL, int(rng.integers(0, 20)), replace=False))
    steps = (
        Steps(cells.astype(np.int32), rng.random(len(cells) + 1)) if bins else Steps(cells[:0], cells[:0] / 1)
    )
    labels = int(rng.integers(1, 1000))
    return Fit(
        labels,
        int(rng.integers(0, labels + 1)),
        steps,
        Line(np.repeat(knots, ends), np.repeat(heights, ends)),
        (float(rng.normal(1.0, 2.0)), float(rng.normal(0.0, 2.0))),
    )


def random_snapshots(rng: np.random.Generator, sources: list[Source | None]) -> list[Snapshot]:
    """Return snapshots that share some of their fits, before and after the first target labels."""
    fits: tuple[Fit, ...] = ()
    snapshots = []
    for moment in range(12):
        if moment >= 3:
            new = [random_fit(rng, bins=window >= UNIFORM_FROM) for window in range(ALL + 1)]
            fits = tuple(
                kept if fits and rng.random() < 0.5 else made
                for kept, made in zip(fits or new, new, strict=True)
            )
        if moment < 5:
            fits = fits and (fits[ALL],) * (ALL + 1)  # windows that are not full yet
        fused = float(rng.random()) if rng.random() < 0.4 else None
        snapshots.append(Snapshot(moment, sources[int(rng.integers(0, len(sources)))], fits, fused))
    return snapshots


def plain_forecasts(snapshot: Snapshot, z: Floats) -> Floats:
    """Return the forecasts of one snapshot by their definition, float64[K, n]; without a source the score."""
    points, out = Points.of(z), np.tile(z, (len(NAMES), 1))

    def family_of(fit: Fit, family: int) -> Floats:
        if family == 0:
            return fit.uniform.values[np.searchsorted(fit.uniform.edges, points.cells, side="right")]
        if family == 1:
            return np.interp(points.logits, fit.isotonic.logits, fit.isotonic.values)
        return expit(fit.platt[0] * points.logits + fit.platt[1])

    source = snapshot.source.fit if snapshot.source else None
    for row, (family, window) in enumerate(FITTED, 1):
        fit = snapshot.fits[window] if snapshot.fits else source
        if fit is not None:
            out[row] = family_of(fit, family)
    if source is None:
        return out
    for family in range(len(FAMILIES)):
        out[TARGET_ONLY + family] = family_of(source, family)
    p = (source.positives + 0.5) / (source.labels + 1.0)
    priors = [(fit.positives + 0.5) / (fit.labels + 1.0) for fit in snapshot.fits]
    last = snapshot.fused if snapshot.fused is not None else priors[-1] if priors else p
    priors = [*(priors or [last] * (ALL + 1)), last]
    rows = iter(range(TARGET_ONLY + len(FAMILIES), len(NAMES)))
    for h in (*out[TARGET_ONLY : TARGET_ONLY + len(FAMILIES)], z):
        for q in priors:
            out[next(rows)] = shift_correction(h, ((1.0 - q) / (1.0 - p), q / p))
    return out


def scores_for(rng: np.random.Generator, snapshots: list[Snapshot], n: int) -> Floats:
    """Return scores: n random ones, both ends, and on and beside every knot and every edge."""
    fits = {id(fit): fit for snapshot in snapshots for fit in snapshot.used if fit is not None}.values()
    knots = expit(np.concatenate([[0.0], *(fit.isotonic.logits for fit in fits)]))
    cells = np.concatenate([np.zeros(0, np.int32), *(fit.uniform.edges for fit in fits)])
    z = np.concatenate(([0.0, 1.0], knots, grid.left_edges(cells, grid.MIN_LEVEL), rng.random(n)))
    return np.concatenate((z, np.nextafter(z, 0.0), np.nextafter(z, 1.0)))


@pytest.mark.parametrize("round_", range(40))
def test_forecasts_of_many_snapshots_are_those_of_one_after_another(round_: int) -> None:
    """Against the definition up to rounding, and against `refill` to the last bit."""
    rng = np.random.default_rng([34, round_])
    a, b = (Source(random_fit(rng, bins=True), (0.1, 0.1, 0.1, 0.1)) for _ in range(2))
    choices: list[list[Source | None]] = [[None], [a], [None, a], [a, b], [None, a, b]]
    sources = choices[round_ % len(choices)]
    snapshots = random_snapshots(rng, sources)
    snapshots = snapshots[: int(rng.integers(1, 4))] if round_ < 8 else snapshots
    z = np.sort(scores_for(rng, snapshots, 200))
    which = rng.integers(0, len(snapshots), len(z))
    values = Hindsight(snapshots).forecasts(which, Points.of(z), sourced=sources != [None])
    assert len(values) == (TARGET_ONLY if sources == [None] else len(NAMES))
    for index, snapshot in enumerate(snapshots):
        here = np.flatnonzero(which == index)
        expected = plain_forecasts(snapshot, z[here])[: len(values)]
        assert np.abs(values[:, here] - expected).max(initial=0.0) <= 1e-12
        alone = refill(snapshot, Points.of(z[here]))
        assert np.array_equal(values[: len(alone), here], alone)
        assert (values[len(alone) :, here] == z[here]).all()


@pytest.mark.parametrize("round_", range(10))
def test_what_is_refilled_is_what_is_evaluated_anew(round_: int) -> None:
    rng = np.random.default_rng([35, round_])
    a, b = (Source(random_fit(rng, bins=True), (0.1, 0.1, 0.1, 0.1)) for _ in range(2))
    snapshots = random_snapshots(rng, [[None], [a], [a, b], [None, a]][round_ % 4])
    points = Points.of(np.sort(scores_for(rng, snapshots, 100)))
    values, before = refill(snapshots[0], points), snapshots[0]
    for snapshot in snapshots[1:]:
        values, before = refill(snapshot, points, (before, values)), snapshot
        assert np.array_equal(values, refill(snapshot, points))


# The table


def test_a_table_and_the_maps_made_of_it_agree_on_every_score(source_of: SourceOf) -> None:
    h, sketch = source_of(2000, 0.5, 32)
    table = Table(choose_partition([quantile_edges(sketch.cells, sketch.level, sketch.totals)]))
    table.fill(Snapshot(0, fit_source(h, sketch), (), 0.2))
    one = np.eye(len(NAMES))
    edges = np.array(table.map(one[0]).edges)
    z = np.concatenate((edges, np.nextafter(edges, 0.0), np.random.default_rng(33).random(500)))
    values = table.at(grid.cells_of(z, grid.MIN_LEVEL))
    for weights, row in zip(one, values, strict=True):
        assert np.array_equal(table.map(weights).predict_many(z), row)


def test_intervals_near_one_where_cells_are_finer_than_scores_are_distinct() -> None:
    last = grid.LAST_KEY >> grid.MIN_LEVEL
    partition = choose_partition([np.arange(last - 200, last, dtype=np.int32)])
    assert (np.diff(grid.left_edges(partition, grid.MIN_LEVEL)) > 0.0).all()
