"""Pending labels at their worst (lemma 19): never less than what any labels in their place would give."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
import pytest

from streamcal.certificates.bin_limits import VersionLimits
from streamcal.certificates.inequalities import prior_limits
from streamcal.certificates.monotone_maximum import MapValues
from streamcal.certificates.source import Centre, certify_best, default_candidates
from streamcal.certificates.target import LabelCounts
from streamcal.engine.complete_cohorts import CompleteCohorts
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair
from tests.nightly import one_in
from tests.states import bytes_of, restored

Counts = np.ndarray


def cells(
    n: int, prior: float, rng: np.random.Generator, decimals: int | None
) -> tuple[Counts, Counts, Counts]:
    """Return labels 0 and 1 per cell, and the cells that hold one score only; of a rare class, any score."""
    scores, labels = NormalPair(0.5).sample(n, rng)
    if prior < 0.5:
        labels = (rng.random(n) < prior).astype(np.int8)
    sketch = ScoreSketch(256)
    sketch.add(scores if decimals is None else np.round(scores, decimals), labels)
    negatives, positives = sketch.counts
    return negatives, positives, ~np.isnan(sketch.atoms)


def completions(pending: Counts, rng: np.random.Generator) -> list[Counts]:
    """Return how many of the pending labels may be 1: none, all, some, the lower half, the upper half."""
    half = np.arange(len(pending)) < len(pending) // 2
    return [pending * 0, pending, rng.binomial(pending, 0.3), pending * half, pending * ~half]


@pytest.mark.parametrize(
    ("prior", "share", "decimals"), one_in(3, product((0.5, 0.02), (0.02, 0.3), (None, 1)))
)
def test_no_labels_in_place_of_the_pending_give_a_larger_bound(
    prior: float, share: float, decimals: int | None
) -> None:
    """Nor another map a larger distance. It fails if the jumps, noise, ends or limits ignore the pending."""
    rng = np.random.default_rng(1)
    for n in (100, 20_000):
        negatives, positives, single = cells(n, prior, rng, decimals)
        lost = rng.binomial(positives, share), rng.binomial(negatives, share)
        pending = lost[0] + lost[1]
        known = negatives - lost[1], positives - lost[0]
        candidates = default_candidates(n, len(pending))
        unknown = VersionLimits(*known, 0.05, single, pending)
        for bins in candidates[::3]:
            worst, splits = certify_best(unknown, [bins])
            centre = Centre(unknown, splits, worst)
            for hits in [*completions(pending, rng), lost[0]]:
                whole = VersionLimits(known[0] + pending - hits, known[1] + hits, 0.05, single)
                bound, same = certify_best(whole, [bins])
                assert (same == splits).all(), "labels play no part in it"
                if not bound.monotone:
                    continue  # which the pending labels may hide
                assert bound.risk <= worst.risk
                known_centre = Centre(whole, splits, bound)
                value = np.sort(rng.random(len(centre.starts)))
                served = MapValues(value, np.minimum(value + 0.01, 1.0), value)
                assert known_centre.bound_of(served) <= centre.bound_of(served)


def test_limits_on_a_prior_enclose_those_of_all_labels_in_place_of_the_pending() -> None:
    for labels in (1, 7, 300):
        for pending in (0, 1, 40):
            for positives in {0, labels // 3, labels}:
                low, high = LabelCounts(positives, labels, None, pending).prior_limits(0.01)
                for hits in range(pending + 1):
                    inner = prior_limits(positives + hits, labels + pending, 0.01)
                    assert low <= inner[0] + 1e-9
                    assert inner[1] - 1e-9 <= high


def test_cohorts_double_and_have_the_labels_of_their_predictions() -> None:
    rng = np.random.default_rng(3)
    scores, labels = NormalPair(0.5).sample(30_000, rng)
    cohorts, known = CompleteCohorts(7), np.sort(rng.permutation(30_000)[:12_000])
    labelled = set(known.tolist())
    cohorts.label(0.5, 1, 6)  # of a prediction before the first
    for number, (score, label) in enumerate(zip(scores.tolist(), labels.tolist(), strict=True)):
        cohorts.predict(score)
        if number in labelled:
            cohorts.label(score, label, 7 + number)
    assert cohorts.matured(7 + 63) is None
    for end, matured_end, count in ((200, 128, 2), (20_000, 16_384, 9)):
        found = cohorts.matured(7 + end)
        assert found is not None
        matured, number = found
        assert (number, matured.predictions.n) == (count, matured_end)
        here = ScoreSketch()
        here.add(scores[known[known < matured_end]], labels[known[known < matured_end]])
        assert matured.labels == here
    assert bytes_of(restored(cohorts, bytes_of(cohorts))) == bytes_of(cohorts)
    with pytest.raises(ValueError, match="a cohort of 16384 predictions, not 16383"):
        msgspec.structs.replace(cohorts, whole=cohorts.whole._replace(end=16_383))
