"""What every candidate forecasts, now and at earlier moments, and the table that is served of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

from streamcal.maps.curves import fit_curve
from streamcal.maps.logistic import KNOTS
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.mixture import mixture as module
from streamcal.mixture.candidates import DISCOUNTS, RECENT_PRIOR, WINDOWS
from streamcal.mixture.evidence import forecasts
from streamcal.mixture.fits import Labelled, fit_isotonic, fit_line, fit_source
from streamcal.mixture.forecasts_c import Line, MixedSteps, Snapshot, lose
from streamcal.mixture.mixture import Mixture
from streamcal.mixture.snapshots import STRIDE, Snapshots
from streamcal.mixture.table import LAST, Table
from streamcal.mixture.windows import Windows
from streamcal.sketch import grid
from streamcal.sketch.counts_c import AT_ONCE, IN_CALL
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.mixture.plain import (
    DELAYED,
    FACTORS,
    NAMES,
    drawn,
    expit,
    hinge,
    isotonic,
    log_losses,
    logits_of,
    online_platt,
    served,
    shifted,
    wide_logits_of,
)
from tests.nightly import one_in

Floats = npt.NDArray[np.float64]
SourceOf = Callable[[int, float, int], ScoreSketch]

K = len(NAMES)
SOURCE_STEP = module._SOURCE_STEP


def test_every_candidate_forecasts_what_its_name_says() -> None:
    """From the labels alone, by definitions written plainly: of the source, and of the target."""
    rng = np.random.default_rng(1)
    (before, before_labels), (scores, labels) = (
        NormalPair(prior).sample(n, rng) for prior, n in ((0.5, 1200), (0.2, 3000))
    )
    before, scores = (np.clip(np.round(each, 2), 0.01, 0.99) for each in (before, scores))
    sketch = ScoreSketch()
    sketch.add(before, before_labels)
    mixture = Mixture.begun()
    mixture.set_source(sketch)
    mixture.continue_from(before, before_labels)
    parts = [slice(start, start + STRIDE) for start in range(0, 3000, STRIDE)]
    for part in parts:
        mixture.learn(scores[part], labels[part], np.full(len(scores[part]), -1))
    mixture.step(0)
    mixture.step(0)  # maps of windows and of all labels take turns
    snapshot = mixture.snapshots.latest
    z = np.linspace(0.0, 1.0, 301)
    table = dict(zip(NAMES, forecasts(snapshot, z), strict=True))
    assert np.array_equal(table.pop("identity"), z)
    every, every_label = np.append(before, scores), np.append(before_labels, labels)

    earlier = [slice(start, start + SOURCE_STEP) for start in range(0, 1200, SOURCE_STEP)]
    calls = [(logits_of(before[part]), before_labels[part]) for part in earlier]
    calls += [(logits_of(scores[part]), labels[part]) for part in parts]
    for discount in DISCOUNTS:
        a, b = online_platt(calls, discount)[0]
        assert table.pop(f"target/platt/{discount}") == pytest.approx(expit(a * logits_of(z) + b), abs=1e-5)
    for memory in (*WINDOWS, "all"):
        own = slice(-memory, None) if isinstance(memory, int) else slice(None)
        labels_of = every[own], every_label[own]
        if f"target/hinge/{memory}" in table:
            said = table.pop(f"target/hinge/{memory}")
            assert said == pytest.approx(hinge(*labels_of, z), abs=1e-2)
        if memory != "all":
            said = table.pop(f"target/isotonic/{memory}")
            assert said == pytest.approx(isotonic(*labels_of, z), abs=1e-5)
    whole = ScoreSketch(512)
    whole.add(every, every_label)
    curve = fit_curve(whole.cells, whole.level, whole.counts, monotone=False).map.predict_many(z)
    assert table.pop("target/curve/all") == pytest.approx(curve, abs=3e-3)

    prior = (before_labels.sum() + 0.5) / 1201.0
    lately = (labels[-RECENT_PRIOR:].sum() + prior) / (RECENT_PRIOR + 1.0)
    by_curve = fit_curve(sketch.cells, sketch.level, sketch.counts).map.predict_many(z)
    of_all = (labels.sum() + prior) / 3001.0
    for memory, to in (("all", of_all), (RECENT_PRIOR, lately)):
        said = table.pop(f"composite/curve/{memory}")
        assert said == pytest.approx(shifted(by_curve, prior, to), abs=3e-3)
    assert not table


# Many snapshots


def line(rng: np.random.Generator) -> Line:
    """Return a made-up map; as in isotonic regression, a block of one cell has two equal knots."""
    knots = np.sort(rng.choice(np.arange(-270, 270), int(rng.integers(1, 30)), replace=False) / 10.0)
    ends = rng.integers(1, 3, len(knots))
    log_odds = bool(rng.random() < 0.5)
    heights = rng.normal(0.0, 3.0, len(knots)) if log_odds else rng.random(len(knots))
    return Line(np.repeat(knots, ends), np.repeat(heights, ends), log_odds)


def snapshots(rng: np.random.Generator, candidates: int = K) -> list[Snapshot]:
    """Return snapshots that share some of their maps, before and after the first labels."""
    made: list[Snapshot] = []
    lines: tuple[Line | None, ...] = (None,) * candidates
    for moment in range(12):
        if moment >= 2:
            new = [line(rng) for _ in lines]
            lines = tuple(a if rng.random() < 0.5 else b for a, b in zip(lines, new, strict=True))
        odds = np.where(rng.random(candidates) < 0.3, np.exp(rng.normal(0.0, 2.0, candidates)), 1.0)
        weights = rng.dirichlet(np.ones(candidates), 3)
        limits = float(rng.uniform(1e-9, 0.1)), float(rng.uniform(0.9, 1.0 - 1e-9))
        slopes, centre = rng.dirichlet(np.ones(len(FACTORS))), float(rng.normal(0.0, 2.0))
        made.append(Snapshot(lines, moment, weights, odds, moment >= 2, False, limits, slopes, centre))
    return made


def plain(snapshot: Snapshot, z: Floats) -> Floats:
    """Return the forecasts of a snapshot row by row; of what is not there yet, the score."""
    rows, x = [], wide_logits_of(z)
    for line, odds in zip(snapshot.lines, snapshot.odds.tolist(), strict=True):
        values = z if line is None else np.interp(x, line.logits, line.values)
        values = expit(values) if line is not None and line.log_odds else values
        rows.append(values * odds / (values * odds + 1.0 - values))
    return np.stack(rows)


def scores_for(rng: np.random.Generator, held: Sequence[Snapshot], n: int) -> Floats:
    """Return n random scores, both ends, and those on and beside every knot."""
    lines = [line for snapshot in held for line in snapshot.lines if line is not None]
    z = np.concatenate(([0.0, 1.0], *(expit(each.logits) for each in lines), expit(KNOTS), rng.random(n)))
    return np.sort(np.concatenate((z, np.nextafter(z, 0.0), np.nextafter(z, 1.0))))


@pytest.mark.slow
@pytest.mark.parametrize("exposures", one_in(2, [len(DELAYED), 0]))
@pytest.mark.parametrize("round_", one_in(4, range(4)))
def test_late_forecasts_are_those_of_the_snapshot_served_then(round_: int, exposures: int) -> None:
    rng = np.random.default_rng([2, round_, exposures])
    *held, arrival = snapshots(rng, K + exposures)
    z = scores_for(rng, held, 200)
    for snapshot in held:
        # Beside the knots of a step of the isotonic map, rounding of the logit may decide.
        assert np.mean(np.abs(forecasts(snapshot, z) - plain(snapshot, z)) > 1e-9) < 0.01
    which = rng.integers(0, len(held) + 1, len(z))
    labels = rng.integers(0, 2, len(z)).astype(np.int8)
    for limits, shares in (
        ((0.02, 0.9), np.ones(len(z))),
        ((1e-9, 1.0 - 1e-9), rng.uniform(0.1, 3.0, len(z))),
    ):
        lost = lose(arrival, [*enumerate(held)], which, None, z, labels, limits, shares)
        logits, losses, tracked, sloped = lost
        assert logits == pytest.approx(logits_of(z))
        expected = shares * log_losses(forecasts(arrival, z, logits), labels, *limits)
        assert losses[1] == pytest.approx(expected, abs=1e-9)
        for index, snapshot in enumerate([*held, arrival]):
            here = np.flatnonzero(which == index)
            alone = forecasts(snapshot, z[here], logits[here])
            expected = shares[here] * log_losses(alone, labels[here], *limits)
            assert losses[0][:, here] == pytest.approx(expected, abs=1e-9)
            mixed = shares[here] * log_losses(snapshot.weights[1:] @ alone, labels[here], *limits)
            assert tracked[:, here] == pytest.approx(mixed, rel=1e-7, abs=1e-9)
            # With each slope, of what was served within the limits of then.
            each = drawn(np.clip(snapshot.weights[0] @ alone, *snapshot.limits), snapshot.centre)
            expected = snapshot.knows * shares[here] * log_losses(each, labels[here], *limits)
            assert sloped[:, here] == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_a_label_meets_the_snapshot_that_was_served_when_its_prediction_was_made() -> None:
    """Also where two snapshots were of the same count, and where the one that served is dropped by now."""
    rng = np.random.default_rng(3)
    template = snapshots(rng)[-1]

    def observing(observed: int) -> Snapshot:
        return Snapshot(template.lines, observed, *template.fields()[1:])

    kept = Snapshots(observing(0))
    observed = [0]
    for step in range(1, 3000):
        observed.append(observed[-1] + (10 if step % 5 else 0))
        kept.add(observing(observed[-1]))
        held = [number for number, _ in kept.entries]
        assert held[0] == 0
        assert held[-8:] == [*range(max(0, step - 7), step + 1)]
        assert len(held) <= 49
        if step % 100 == 0:
            # Four of every doubling of the age are kept: a step that is gone has one near it, before it.
            for age in (10, 30, 100, 300, 700, 1500):
                if age < step:
                    gap = min(step - number - age for number in held if step - number >= age)
                    assert gap <= age / 2
    seen = np.array([0, 9, 10, observed[-1], observed[-1] + 5, observed[-3] - 1])
    moments = [kept.entries[index][1].observed for index in kept.served_at(seen)[0]]
    assert moments == [
        max(moment for moment in (snapshot.observed for _, snapshot in kept.entries) if moment <= count)
        for count in seen.tolist()
    ]
    assert kept.served_at(np.array([observed[-1]]))[0][0] == len(kept.entries) - 1
    # What came at once, or in one call, was served by none of them but by what was served on arrival.
    index, least = kept.served_at(np.array([AT_ONCE, IN_CALL]))
    assert index.tolist() == [least] * 2 == [len(kept.entries)] * 2


# The table


def test_a_map_says_what_its_candidates_say_in_the_middle_of_the_interval(source_of: SourceOf) -> None:
    """And what is scored on arrival is what the map says."""
    rng = np.random.default_rng(4)
    sketch = source_of(2000, 0.5, 5)
    table = Table()
    table.set_source(sketch)
    table.follow(Windows.begun())
    edges = np.array((0.0, *table.cells[0], 1.0))
    cells = grid.cells_of(edges[:-1], grid.MIN_LEVEL)
    points = grid.middles(cells, grid.MIN_LEVEL, np.append(cells[1:], np.int32(LAST + 1)))
    z = np.concatenate((edges, np.nextafter(edges, 0.0), rng.random(500)))
    labels, ones, wide = rng.integers(0, 2, len(z)).astype(np.int8), np.ones(len(z)), (1e-9, 1.0 - 1e-9)
    held = snapshots(rng)
    for snapshot in (held[-1], held[0], held[-2], held[-1]):
        mixed = MixedSteps(table.cells, snapshot).values()
        assert mixed == pytest.approx(served(snapshot, forecasts(snapshot, points)), abs=1e-12)
        serving = RecalibrationMap(version=1, edges=tuple(edges.tolist()), values=tuple(mixed.tolist()))
        _, losses, _, sloped = lose(snapshot, [], None, table.cells, z, labels, wide, ones)
        said = np.where(labels == 1, np.exp(-losses[0]), 1.0 - np.exp(-losses[0]))
        assert served(snapshot, said) == pytest.approx(serving.predict_many(z), abs=1e-7)
        if snapshot.knows:  # and so is what is scored with each slope
            each = np.where(labels == 1, np.exp(-sloped), 1.0 - np.exp(-sloped))
            total = np.clip(snapshot.slopes @ each, *snapshot.limits)
            assert total == pytest.approx(serving.predict_many(z), abs=1e-7)


# The fits to counts of labels: never 0 or 1 from a few labels, the plain estimators, and honest losses


Labels = npt.NDArray[np.int8]


def sketched(scores: Floats, labels: Labels) -> ScoreSketch:
    sketch = ScoreSketch(512)
    sketch.add(scores, labels)
    return sketch


def labelled(sketch: ScoreSketch) -> Labelled:
    return Labelled(sketch.cells, sketch.level, sketch.weighed)


@pytest.mark.parametrize("n", [1, 40])
def test_labels_all_alike_say_what_so_many_can(n: int) -> None:
    """(S + ½) / (N + 1) of N labels with sum S: alone, and at either end of others."""
    expected = (n + 0.5) / (n + 1.0)
    for scores in (np.full(n, 0.3), np.linspace(0.3, 0.7, n)):
        sketch = sketched(scores, np.full(n, 1, np.int8))
        line = fit_isotonic(labelled(sketch))
        ends = line.at(logits_of(np.array([0.01, 0.99])))
        if len(sketch.cells) == 1:
            assert ends == pytest.approx(expected)
        else:  # the end that would rather be of the other class is a block of one label
            assert ends == pytest.approx([0.75, 1.0 - 0.5 / n])
    # 40 labels of each class that a score separates: the end blocks are those of one class.
    scores, labels = np.repeat([0.2, 0.4, 0.6, 0.8], 20), np.repeat([0, 0, 1, 1], 20).astype(np.int8)
    sketch = sketched(scores, labels)
    line = fit_isotonic(labelled(sketch))
    ends = line.at(logits_of(np.array([0.01, 0.99])))
    assert ends == pytest.approx([0.5 / 41.0, 40.5 / 41.0])


@pytest.mark.parametrize("monotone", [False, True])
def test_a_line_is_the_curve_of_its_labels(monotone: bool) -> None:
    """And descends where labels do only if it may."""
    rng = np.random.default_rng(3)
    z = rng.random(4000)
    labels = (rng.random(4000) < 4.0 * (z - 0.5) ** 2).astype(np.int8)
    sketch = sketched(z, labels)
    line, loss = fit_line(labelled(sketch), monotone=monotone)
    curve = fit_curve(sketch.cells, sketch.level, sketch.counts, monotone=monotone)
    at = np.linspace(0.0, 1.0, 2001)
    assert loss == curve.loss
    gaps = np.abs(line.at(logits_of(at)) - curve.map.predict_many(at))
    assert np.mean(gaps > 2e-3) < 0.02  # a map of steps may be one score off at an edge
    assert (np.diff(line.values) >= -1e-12).all() == monotone
    assert line.at(logits_of(np.array([0.02])))[0] == pytest.approx(0.92 if not monotone else 1 / 3, abs=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("n", one_in(2, [500, 60]))
def test_the_log_losses_of_a_source_are_those_on_new_labels(n: int) -> None:
    """Of 400 sources, the difference of the two that decides between them, within 4 standard errors.

    Of 60 labels it may be too large, by less than is added for new labels: the penalty has held Platt's map
    back. It was by .026, of .033.
    """
    pair, gaps = NormalPair(0.4), []
    z = pair.sample(20_000, np.random.default_rng(6))[0]
    truth = pair.optimal(z)

    def risk(forecasts: Floats) -> float:
        inside = np.clip(forecasts, 0.5 / (n + 1.0), 1.0 - 0.5 / (n + 1.0))
        return -float(np.mean(truth * np.log(inside) + (1.0 - truth) * np.log1p(-inside)))

    for seed in range(400):
        source = fit_source(sketched(*pair.sample(n, np.random.default_rng(2000 + seed))))
        by_platt = expit(source.platt[0] * logits_of(z) + source.platt[1])
        identity, platt = source.log_losses
        gaps.append(platt - identity - risk(by_platt) + risk(z))
    error = 4.0 * np.std(gaps) / np.sqrt(400)
    assert -error <= np.mean(gaps) <= (error if n == 500 else 2.0 / n)
