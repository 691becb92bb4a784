"""Coverage and tightness of the certificates, on seeded streams with known truth.

What fails how often: every certificate of a stream must hold at every version, with probability 1 − δ,
δ = 0.1. Over 60 streams the test fails if more than 6 streams are violated. Were a stream violated
with probability 0.05, that would happen with probability 0.03, with 0.01 (none is seen) 3e-6; were the
certificate wrong in truth (probability 0.2 or more), the test would pass with probability below 0.031, for
each of eight truths. Seeds are fixed.

CI looks at every ninth version.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from streamcal.certificates.bin_limits import VersionLimits
from streamcal.certificates.inequalities import version_delta
from streamcal.certificates.source import certify_best, default_candidates
from streamcal.maps.binning import bin_sums
from streamcal.sketch.grid import MIN_LEVEL, cells_of, left_edges
from tests.certificates.truths import TRUTHS, Truth, edges_of, risks
from tests.nightly import one_in

DELTA = 0.1
LONGEST = 10_000


def versions(step: int) -> list[tuple[int, int]]:
    """Every ``step``-th version (j, n_j), the last at or below 10⁴ always included."""
    every = [(j, int(np.ceil(64 * 1.1**j))) for j in range(60)]
    every = [(j, n) for j, n in every if n <= LONGEST]
    return sorted({*every[::step], every[-1]})


def prefixes(
    truth: Truth, seed: int, step: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (j, negatives, positives, left edges, which cells hold one score) of one stream's versions."""
    scores, labels = truth.draw(LONGEST, np.random.default_rng([1, seed]))
    order = np.argsort(scores)  # one sort serves all
    scores, labels = np.ascontiguousarray(scores[order]), labels[order]
    keys = cells_of(scores, MIN_LEVEL)
    for j, n in versions(step):
        mine = order < n
        key, label, score = keys[mine], labels[mine], scores[mine]
        level = MIN_LEVEL
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        while len(starts) > 4096:
            level, key = level + 1, key >> 1
            starts = np.flatnonzero(np.diff(key, prepend=-1))
        totals = np.diff(starts, append=n)
        positives = np.add.reduceat(label, starts)
        single = score[starts] == score[np.append(starts[1:], n) - 1]
        yield j, totals - positives, positives, left_edges(key[starts], level), single


def shortfalls(truth: Truth, streams: int, step: int) -> np.ndarray:
    """Return true over certified risk of the best certified map, float64[streams, versions]."""
    table = []
    for seed in range(streams):
        rows = []
        for j, negatives, positives, left, single in prefixes(truth, seed, step):
            totals = negatives + positives
            version = VersionLimits(negatives, positives, version_delta(DELTA, j), single)
            bound, splits = certify_best(version, default_candidates(int(totals.sum()), len(totals)))
            values = bin_sums(positives, splits) / bin_sums(totals, splits)
            rows.append(risks(truth, edges_of(left, splits), values)[2] / bound.risk)
        table.append(rows)
    return np.array(table)


def slack(ratios: np.ndarray) -> float:
    """The factor by which certificates could shrink before more than δ of the streams are violated."""
    worst = np.sort(ratios.reshape(len(ratios), -1).max(axis=1))
    return float(1 / worst[-1 - int(DELTA * len(worst))])


def violated(ratios: np.ndarray, shrink: float = 1.0) -> float:
    """The fraction of streams on which a certificate divided by ``shrink`` fails at any version."""
    return float((ratios.reshape(len(ratios), -1).max(axis=1) * shrink > 1).mean())


def report(name: str, ratios: np.ndarray, step: int) -> None:
    parts = " ".join(f"{n}:{slack(ratios[:, [i]]):.3g}" for i, (_, n) in enumerate(versions(step)))
    print(f"{name:14} violated {violated(ratios):.4f} slack {slack(ratios):.3g}; R at n {parts}")


@pytest.mark.statistical
@pytest.mark.parametrize("name", one_in(8, TRUTHS))
def test_certificates_hold_at_all_versions_together(name: str) -> None:
    step = 9
    ratios = shortfalls(TRUTHS[name], 60, step)
    report(name, ratios, step)
    assert violated(ratios) <= DELTA
    room = slack(ratios)
    assert room > 1
    assert violated(ratios, room * 1.02) > DELTA, "the check must fail just past the slack"
