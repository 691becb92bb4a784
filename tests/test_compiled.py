"""What is compiled gives what the same file gives as Python, to the last bit."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from streamcal.certificates import likelihoods_c
from streamcal.join.entries import Pending
from streamcal.join.id_table_c import IdTable
from streamcal.maps import fits_c
from streamcal.maps.platt import expit, logit
from streamcal.mixture import forecasts_c
from streamcal.sketch import counts_c, grid
from tests.join.recorder import put
from tests.uncompiled import classed, joined, learned, uncompiled

ROOT = Path(__file__).parents[1]


UNCOMPILED = """
import sys
from tests.uncompiled import import_uncompiled

import_uncompiled()
import streamcal
from tests.uncompiled import classed, joined, learned

sys.stdout.write(f"{streamcal.compiled} {learned()} {joined()} {classed()}")
"""


@pytest.mark.slow
def test_an_engine_where_nothing_is_compiled() -> None:
    """As after an installation without a C compiler."""
    done = subprocess.run(
        [sys.executable, "-c", UNCOMPILED], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == f"False {learned()} {joined()} {classed()}"


def test_paths_of_a_likelihood_set() -> None:
    rng, found = np.random.default_rng(2), []
    m, tilts, multipliers = 40, 3, np.array([0.5, 1.0, 2.0])
    points = np.sort(rng.random(9))
    hit, miss, positives = np.log(points), np.log1p(-points), np.sort(rng.random(m)) * 4.0
    cells = np.stack((positives, 4.0 - positives, rng.random(m)))
    first, last = np.maximum(np.arange(9) - 1, 0), np.minimum(np.arange(9) * 6, m)
    last[-1] = m
    nodes = int(np.maximum(last - first, 0).sum())
    by_point, by_cell, by_tilt = rng.random((4, 9)), rng.random((10, m)), rng.random((4, tilts))
    for module in (likelihoods_c, uncompiled("streamcal.certificates.likelihoods_c")):
        for slack in (1e3, 1.0):
            lowest, highest, deviance = np.zeros(m), np.zeros(m), np.zeros(nodes)
            risk, reached = np.zeros((nodes, tilts)), np.full((m + 1, 9), -np.inf)
            reached[0] = 0.0
            some = module.plausible(points, hit, miss, cells, slack, lowest, highest)
            assert some == (slack > 1.0)
            module.deviances(first, last, hit, miss, cells, deviance)
            module.gains(first, last, by_point, by_cell, by_tilt, m - 1, 0, risk)
            module.best_paths(first, last, deviance, risk, multipliers, reached)
            assert np.isfinite(reached[-1]).all()
            found.append(b"".join(each.tobytes() for each in (lowest, highest, deviance, risk, reached)))
    assert found[:2] == found[2:]


def test_likelihoods_under_a_shift_are_floats_that_json_has() -> None:
    rng, found = np.random.default_rng(5), []
    totals, counts = rng.integers(0, 50, (2, 12)).astype(float), rng.integers(0, 9, (9, 2, 6))
    hits = rng.binomial(totals.astype(int), 0.3).astype(float)
    for module in (likelihoods_c, uncompiled("streamcal.certificates.likelihoods_c")):
        entropy = module.entropy(hits[0], totals[0])
        likelihood = module.largest_likelihood(hits[0], totals[0], hits[1], totals[1])
        both = [module.log_likelihoods(counts, learned).tolist() for learned in (True, False)]
        found.append(msgspec.json.encode([entropy, likelihood, both]))
    assert found[0] == found[1]


def test_forecasts_of_the_mixture() -> None:
    rng = np.random.default_rng(4)
    knots, values = np.array((-3.0, -1.0, -1.0, 2.0)), np.array((0.1, 0.2, 0.4, 0.9))
    scores = np.concatenate(([0.0, 1.0, 0.5, *expit(knots)], rng.random(57)))
    odds = np.where(rng.random(17) < 0.5, np.exp(rng.normal(0.0, 1.0, 17)), 1.0)
    weights, labels = rng.dirichlet(np.ones(17), (2, 3)), rng.integers(0, 2, 64).astype(np.int8)
    which, counted, edges = rng.integers(0, 3, 64), rng.uniform(0.1, 3.0, 64), np.sort(rng.random(63))
    made = []
    for module in (forecasts_c, uncompiled("streamcal.mixture.forecasts_c")):
        line, other = module.Line(knots, values), module.Line(knots + 0.5, values[::-1].copy(), True)
        last = (1e-3, 0.99), np.array((0.4, 0.3, 0.2, 0.1)), -1.2
        first = module.Snapshot((None,) * 17, 0, weights[0], np.ones(17), False, False, *last)
        second = module.Snapshot((None, *(line, other) * 8), 9, weights[1], odds, True, False, *last)
        limits, served, cells = (1e-3, 0.999), [(0, first), (1, second)], (edges, scores, logit(scores))
        lost = module.lose(second, served, which, cells, scores, labels, limits, counted)
        logits, losses, tracked, sloped = lost
        lost = module.lose(first, [], None, None, scores, labels, limits, np.ones(64))
        _, alone, one, other_slopes = lost
        assert not other_slopes.any()
        rows = np.empty((17, 64))
        module.forecast(second, scores, logits, rows)
        steps = module.MixedSteps(cells, second)
        some = np.array([steps.one(score) for score in scores[::3].tolist()])
        assert np.array_equal(some, steps.values()[np.searchsorted(edges, scores[::3], "right")])
        figures = losses, tracked, sloped, alone, one, rows
        state = np.frombuffer(module.Line.from_bytes(other.to_bytes()).to_bytes(), np.uint8)
        made.append((line.at(logits), *figures, steps.values(), some, state))
    assert all(np.array_equal(*pair) for pair in zip(*made, strict=True))
    assert np.array_equal(made[0][0], np.interp(logit(scores), knots, values))


def test_steps() -> None:
    rng = np.random.default_rng(8)
    scores = np.concatenate((rng.random(500), rng.random(200) ** 30, [0.0, 1.0, 1e-300, 0.5]))
    close = 0.3 + np.arange(40) * 2.0**-50
    for inner in ([], [0.5], [1e-12, 1.0 - 1e-12], rng.random(300), close, scores[scores > 0.0] ** 2):
        edges = np.unique(inner)[: None if len(inner) < 400 else -1]
        values = tuple(np.sin(np.arange(len(edges) + 1.0)).tolist())
        given, made = np.concatenate((scores, edges, np.nextafter(edges, 0.0))), []
        for module in (fits_c, uncompiled("streamcal.maps.fits_c")):
            steps, out = module.StepFunction(tuple(edges.tolist()), values), np.empty(len(given))
            steps.apply(given, steps.values, out)
            again = pickle.loads(pickle.dumps(steps)) if module is fits_c else steps
            assert [again.one(score) for score in given.tolist()] == out.tolist()
            made.append(out)
        assert np.array_equal(*made)
        assert np.array_equal(made[0], np.array(values)[np.searchsorted(edges, given, side="right")])


def test_keys_and_checks() -> None:
    rng = np.random.default_rng(9)
    scores = np.concatenate(
        (rng.random(500), rng.random(99) ** 300, 1.0 - rng.random(99) ** 40, [0.0, -0.0, 5e-324, 0.5, 1.0])
    )
    for module in (counts_c, uncompiled("streamcal.sketch.counts_c")):
        assert [module.key_of(score) for score in scores.tolist()] == grid.keys_of(scores).tolist()
        keys = np.array([module.key_of(score) for score in scores.tolist()])
        smallest = np.array([module.score_of(key) for key in keys.tolist()])
        assert np.array_equal(grid.keys_of(smallest), keys)
        later = keys > grid.FIRST_KEY
        assert (grid.keys_of(np.nextafter(smallest[later], 0.0)) < keys[later]).all()
        for bad in (-1e-300, 1.1, np.nan, np.inf):
            assert module.first_bad_score(np.array((0.0, 1.0, bad, bad))) == 2
        assert module.first_bad_score(scores) == module.first_bad_score(np.empty(0)) == -1
        assert module.first_bad_label(np.array((0, 1, 1), np.int8)) == -1
        assert [module.first_bad_label(np.array((1, bad), np.int8)) for bad in (2, -1, -128)] == [1, 1, 1]


@pytest.mark.parametrize("level", [32, 58])
@pytest.mark.parametrize("rows", [2, 5])
def test_tallies_and_atoms(level: int, rows: int) -> None:
    rng, made = np.random.default_rng(12), []
    scores = np.concatenate(
        (rng.random(300), np.repeat(rng.random(40) ** 20, 5), [0.0, -0.0, 0.5, 1.0, 1e-300])
    )
    labels = (rng.random(len(scores)) < scores).astype(np.int8)
    weights = None if rows == 2 else rng.exponential(1.0, len(scores))
    empty = np.empty(0, np.int32), np.empty((rows, 0)), np.empty(0)
    for module in (counts_c, uncompiled("streamcal.sketch.counts_c")):
        tally, found = module.Tally(*empty, level, 64, len(scores)), []
        for part in np.array_split(np.arange(len(scores)), 3):
            tally.add(scores[part], labels[part], None if weights is None else weights[part])
            cells, counts, atoms = tally.contents()
            data = module.pack_atoms(atoms, tally.level)
            again = module.unpack_atoms(data, cells, tally.level)
            other = module.Tally(cells, counts, again, tally.level, 64, 0)
            other.merge(cells, counts, again, tally.level)
            other.coarsen(min(58, tally.level + 1))
            found.append([tally.level, cells.tolist(), counts.tolist(), data, str(again.tolist())])
            found.append([other.level, *(str(each.tolist()) for each in other.contents())])
        made.append(found)
    assert made[0] == made[1]
    assert made[0][-2][0] >= level
    assert np.sum(made[0][-2][2][:2]) == len(scores)


def test_isotonic_regression_is_that_of_scipy() -> None:
    rng = np.random.default_rng(6)
    for size in (1, 2, 30, 500):
        values, weights = (
            rng.normal(0.0, 1.0, size) + np.linspace(0.0, 2.0, size),
            rng.uniform(0.1, 9.0, size),
        )
        starts, means = fits_c.isotonic(values, weights)
        fitted = isotonic_regression(values, weights=weights)
        assert np.array_equal(starts, fitted.blocks)
        assert np.repeat(means, np.diff(starts)) == pytest.approx(fitted.x, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_an_id_table(seed: int) -> None:
    rng = random.Random(seed)
    both = IdTable(), uncompiled("streamcal.join.id_table_c").IdTable()
    for step in range(2000):
        id_ = f"i{rng.randrange(300)}" + "é" * rng.randrange(9)
        entry = Pending(
            float(step), rng.random(), rng.random(), "target", rng.choice([None, "k"]), None, step
        )
        for each in both:
            row = each.known(id_)
            if row:
                each.remove(row)
            else:
                put(each, step + 1, id_, entry)
        if not step % 100:
            assert both[0].packs() == both[1].packs()
            assert both[0].oldest(0) == both[1].oldest(0)
            assert len(both[0]) == len(both[1])
