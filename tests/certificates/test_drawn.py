"""Certificates by labels that were drawn by scores and earlier labels (lemma 22).

Of each way to draw, at most a tenth of the streams may exceed a certificate at any look (δ = 0.1, all of it
spent on these bounds). CI takes 13 streams of two ways, the night of all; were a stream violated with
probability 0.01, a way would fail with probability 0.7 % (two of 13; `python -m benchmarks.verdict --parts
certificates` sees none of 1,000). Draws that know the label fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from streamcal.certificates.path_bounds import PathBounds
from streamcal.certificates.prequential import LEVELS, Prequential
from streamcal.maps.platt import expit
from streamcal.sketch.score_sketch import ScoreSketch
from tests.certificates.test_path_bounds import ALL, DELTA, maps_of, ranges_of, true_risk
from tests.nightly import one_in

Reals = npt.NDArray[np.float64]

BLOCK: Final = 500
"""Predictions whose labels come before the next."""
LOOK: Final = 4
"""Blocks from one look to the next."""


def _root(share: float, _: Reals, served: Reals) -> Reals:
    """As `Sampler` does it."""
    deviation = np.sqrt(served * (1.0 - served))
    return np.asarray(np.minimum(share * (0.5 + 0.5 * deviation / max(deviation.mean(), 1e-9)), 1.0))


WAYS: Final[dict[str, Callable[[float, Reals, Reals], Reals]]] = {
    "by √(p(1 − p))": _root,
    "uniform": lambda share, scores, _: np.full(len(scores), share),
    "where chance said more": lambda share, scores, served: share * np.where(served > scores, 2.0, 0.05),
    "by region": lambda share, scores, _: np.where(scores < 0.5, 0.15 * share, 1.85 * share),
    "hardly in one region": lambda share, scores, _: np.where(np.abs(scores - 0.65) < 0.05, 0.001, share),
}
"""Chance of each label by a share, the scores, and what is served by earlier labels."""


class Stream(NamedTuple):
    """Certified and true risks of what is served at each look, and the labels at the end."""

    certified: Reals
    true: Reals
    labels: int

    @property
    def last(self) -> float:
        return float(self.certified[-1])

    @property
    def violated(self) -> bool:
        return bool((self.true > self.certified).any())


def stream(
    truth_name: str,
    way: str,
    seed: int,
    *,
    share: float = 0.2,
    blocks: int = 20,
    drawn: bool = True,
    more_ones: float = 1.0,
) -> Stream:
    """Return a stream; labels 1 are seen ``more_ones`` times as often as drawn.

    Without ``drawn``, bounds are those of labels that are a plain sample.
    """
    rng, truth = np.random.default_rng([22, seed]), ALL[truth_name]
    sketch, traffic, forecasts = ScoreSketch(), ScoreSketch(labelled=False), Prequential()
    served, found = maps_of(sketch_of_one())[0], list[tuple[float, float]]()
    for block in range(1, blocks + 1):
        scores, labels = truth.draw(BLOCK, rng)
        chance = WAYS[way](share, scores, served(scores)) * np.where(labels == 1, more_ones, 1.0)
        seen = rng.random(BLOCK) < chance
        sketch.add(scores[seen], labels[seen])
        traffic.add(scores)
        forecasts.update(sketch)
        if sketch.n:
            served = maps_of(sketch)[seed % 4]
        if block % LOOK == 0:
            shares = DELTA / 2, DELTA / 4, DELTA / 4
            bounds = PathBounds(sketch, forecasts.log_likelihoods.tolist(), *shares, drawn=drawn)
            found.append((bounds.risk(ranges_of(served), scores=traffic), true_risk(truth, served)))
    certified, true = np.array(found).T
    return Stream(certified, true, sketch.n)


def sketch_of_one() -> ScoreSketch:
    """Return a sketch of one label of each class: what is served before the first labels rests on it."""
    sketch = ScoreSketch()
    sketch.add([0.2, 0.8], [0, 1])
    return sketch


@pytest.mark.statistical
@pytest.mark.parametrize("way", one_in(3, WAYS))
def test_certificates_by_drawn_labels_hold_at_all_looks_together(way: str) -> None:
    streams = [stream(truth, way, seed) for seed, truth in enumerate(ALL)]
    assert np.mean([each.violated for each in streams]) <= DELTA
    assert np.median([each.last for each in streams]) < 0.2


@pytest.mark.statistical
@pytest.mark.parametrize("more_ones", [0.5, 2.0])
def test_draws_that_know_the_label_violate_them(more_ones: float) -> None:
    """Of 4 streams all 4 (of 40 all 40): labelled rates are .33 or .67 where the truth is .5."""
    found = [stream("constant 0.5", "by √(p(1 − p))", seed, more_ones=more_ones) for seed in range(4)]
    assert all(each.violated for each in found)


@pytest.mark.statistical
def test_a_likelihood_of_single_scores_needs_labels_in_order() -> None:
    """By the truth itself as forecast: no truth is refuted; with one mean for a cell, the steep ones are.

    Cells are coarse. The cell that holds a step has some 150 labels, half of them at a rate of .1, half at
    .9: its two means tell 50 nats more than one. Which labels were drawn does not matter, so all are.
    """
    rng, refuted = np.random.default_rng(7), 0
    for steepness in np.geomspace(3.0, 3_000.0, 20):
        scores = rng.random(5_000)
        rates = 0.1 + 0.8 * expit(steepness * (scores - 0.377))
        labels = (rng.random(5_000) < rates).astype(np.int64)
        sketch = ScoreSketch(64)
        sketch.add(scores, labels)
        oracle = [float(np.log(np.where(labels == 1, rates, 1.0 - rates)).sum())] * len(LEVELS)
        assert PathBounds(sketch, oracle, 0.9, 0.01, 0.01, drawn=True).monotone
        refuted += not PathBounds(sketch, oracle, 0.9, 0.01, 0.01).monotone
    assert refuted >= 5


def test_drawn_labels_say_nothing_without_all_scores() -> None:
    scores = np.linspace(0.0, 1.0, 1_000)
    labels = (scores > np.random.default_rng(3).random(1_000)).astype(np.int64)
    sketch, traffic, forecasts = ScoreSketch(), ScoreSketch(labelled=False), Prequential()
    sketch.add(scores, labels)
    traffic.add(scores)
    forecasts.update(sketch)
    bounds = PathBounds(sketch, forecasts.log_likelihoods.tolist(), 0.05, 0.02, 0.02, drawn=True)
    ranges = ranges_of(lambda z: z)
    assert bounds.risk(ranges) == bounds.risk(ranges, scores=sketch) == 1.0
    assert bounds.risk(ranges, scores=traffic) < 0.1
