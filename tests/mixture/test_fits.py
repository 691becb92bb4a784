"""The fits to counts of labels: never 0 or 1 from a few labels, the plain estimators, and honest losses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from streamcal.maps.curves import fit_curve
from streamcal.mixture.fits import Labelled, fit_isotonic, fit_line, fit_source
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.mixture.plain import expit, logits_of
from tests.nightly import one_in

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


def sketched(scores: Floats, labels: Labels) -> ScoreSketch:
    sketch = ScoreSketch(512)
    sketch.add(scores, labels)
    return sketch


def labelled(sketch: ScoreSketch) -> Labelled:
    return Labelled.of(sketch.cells, sketch.level, sketch.weighed)


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
