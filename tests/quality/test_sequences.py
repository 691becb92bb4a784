"""Confidence sequences: coverage on streams with known expectations, width, and what is kept.

What fails how often: an interval of a family may ever miss in at most `DELTA` = 0.05 of the streams. At that
rate, more than 15 of 100 streams would with probability 4e-5 (binomial tail). 1,000 streams:
``python -m benchmarks.verdict``.
"""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.quality import label_sums as module
from streamcal.quality.label_sums import DELTA
from streamcal.quality.sequences import Sequences
from tests.nightly import one_in
from tests.quality.forecasts import TRUTHS, Truth, calibrated, misses, rare

LOOKS = range(200, 2_001, 200)


def filled(truth: Truth = calibrated, n: int = 3_000, seed: int = 0) -> Sequences:
    """Return the sequences of one stream."""
    stream, made = truth(np.random.default_rng(seed), n), Sequences()
    made.add(np.stack([stream.scores, stream.forecasts]), stream.labels, np.arange(float(n)))
    return made


@pytest.mark.statistical
@pytest.mark.parametrize("truth", one_in(2, TRUTHS))
def test_intervals_hold_at_all_times(truth: Truth) -> None:
    streams = [truth(np.random.default_rng(seed), LOOKS.stop) for seed in range(100)]
    missed = [misses(stream, LOOKS) for stream in streams]
    assert all(sum(each[name] for each in missed) <= 15 for name in ("before", "after", "gain"))


def test_intervals_are_at_most_2_2_times_those_for_one_look() -> None:
    for truth in TRUTHS:
        stream, n = truth(np.random.default_rng(0), 10_000), 10_000
        made = filled(truth, n)
        errors = stream.forecasts - stream.labels, (stream.scores - stream.labels) ** 2
        once = [3.92 * each.std() / n**0.5 for each in (errors[0], errors[1] - errors[0] ** 2)]
        gaps, gains = made.sums.gaps("after"), made.sums.gains()
        assert gaps.high[0, 0] - gaps.low[0, 0] <= 2.2 * once[0]
        assert truth is rare or gains.high[0] - gains.low[0] <= 2.2 * once[1]


def test_processes_never_exceed_what_the_proof_needs() -> None:
    """For every forecast and stake, the two factors are at most the tangent of exp(λ m) at 0."""
    for sign, stakes in ((1, slice(0, 17)), (-1, slice(17, 34))):
        for p in np.linspace(0.0, 1.0, 201).tolist():
            band = int(np.searchsorted(module.BANDS, p, side="right"))
            table = module._GAPS[band, :, stakes]
            of_zero, of_one = np.exp(table[0] + p * table[1]), np.exp(table[2] + p * table[3])
            for mean in (0.0, p, 0.3, 1.0):
                expected = (1.0 - mean) * of_zero + mean * of_one
                assert (expected <= np.exp(sign * module._GAP_STAKES * (mean - p)) * (1.0 + 1e-12)).all()


def test_evidence_needs_at_least_what_an_alarm_needs() -> None:
    """Where no deviation may be refuted, no interval excludes 0."""
    for seed in range(20):
        for truth in TRUTHS:
            made = filled(truth, 700, seed)
            gaps, gains = made.sums.gaps("after"), made.sums.gains()
            told = bool((gaps.low > 0.0).any() or (gaps.high < 0.0).any() or (gains.high < 0.0).any())
            assert made.sums.may_be_refuted() or not told
    assert DELTA == 0.05


@pytest.mark.statistical
def test_broken_formulas_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what variance costs, intervals miss."""
    streams = [calibrated(np.random.default_rng(seed), LOOKS.stop) for seed in range(20)]
    with monkeypatch.context() as patched:
        stakes = module._GAP_STAKES
        free = np.zeros_like(module._GAPS)  # λ (y − p) in place of ln(1 + λ (y − p))
        free[:, 1] = free[:, 3] = np.concatenate([-stakes, stakes])
        free[:, 2] = np.concatenate([stakes, -stakes])
        patched.setattr(module, "_GAPS", free)
        assert sum(misses(stream, LOOKS)["after"] for stream in streams) >= 18
    with monkeypatch.context() as patched:
        patched.setattr(module, "_GAINS_UP", np.where(module._GAINS_UP < 0.0, 0.0, module._GAINS_UP))
        assert sum(misses(stream, LOOKS)["gain"] for stream in streams) >= 6  # by chance: 3e-4
