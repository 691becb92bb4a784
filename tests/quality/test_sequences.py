"""Confidence sequences: coverage on streams with known expectations, width, and what is kept.

What fails how often: an interval of a family may ever miss in at most `DELTA` = 0.05 of the streams. At that
rate, more than 15 of 100 streams would with probability 4e-5 (binomial tail). 1,000 streams:
``python -m benchmarks.verdict``.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from streamcal.quality import label_sums as module
from streamcal.quality.label_sums import DELTA
from streamcal.quality.sequences import STRIDE, Sequences, _is_kept
from streamcal.sketch.decoding import encoded
from tests.quality.forecasts import TRUTHS, Truth, calibrated, misses, rare

LOOKS = range(200, 2_001, 200)


def filled(truth: Truth = calibrated, n: int = 3_000, seed: int = 0) -> Sequences:
    """Return the sequences of one stream."""
    stream, made = truth(np.random.default_rng(seed), n), Sequences()
    made.add(np.stack([stream.scores, stream.forecasts]), stream.labels, np.arange(float(n)))
    return made


@pytest.mark.statistical
@pytest.mark.parametrize("truth", TRUTHS)
def test_intervals_hold_at_all_times(truth: Truth) -> None:
    streams = [truth(np.random.default_rng(seed), LOOKS.stop) for seed in range(100)]
    missed = [misses(stream, LOOKS) for stream in streams]
    assert all(sum(each[name] for each in missed) <= 15 for name in ("before", "after", "gain"))


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


def test_intervals_are_at_most_2_2_times_those_for_one_look() -> None:
    for truth in TRUTHS:
        stream, n = truth(np.random.default_rng(0), 10_000), 10_000
        made = filled(truth, n)
        errors = stream.forecasts - stream.labels, (stream.scores - stream.labels) ** 2
        once = [3.92 * each.std() / n**0.5 for each in (errors[0], errors[1] - errors[0] ** 2)]
        gaps, gains = made.sums.gaps("after"), made.sums.gains()
        assert gaps.high[0, 0] - gaps.low[0, 0] <= 2.2 * once[0]
        assert truth is rare or gains.high[0] - gains.low[0] <= 2.2 * once[1]


def test_shares_of_all_starts_sum_to_at_most_1() -> None:
    total = math.fsum(module.share(start) for start in range(1 << 16))
    assert 0.9 < total <= 1.0
    assert (
        math.fsum(1.0 / (k * math.log(k) ** 2) for k in range(2, 10**6)) + 1.0 / math.log(10**6)
        < module._SERIES
    )


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


def test_it_makes_no_difference_how_labels_come_in_parts() -> None:
    rng = np.random.default_rng(1)
    stream = calibrated(rng, 3_000)
    forecasts, times = np.stack([stream.scores, stream.forecasts]), np.arange(3_000.0)
    cuts = [0, *sorted(rng.integers(0, 3_001, 40).tolist()), 3_000]
    parts = Sequences()
    for begin, end in itertools.pairwise(cuts):
        parts.add(forecasts[:, begin:end], stream.labels[begin:end], times[begin:end])
    assert encoded(parts, json=True) == encoded(filled(n=3_000, seed=1), json=True)


def test_starts_are_dense_in_the_near_past_and_few() -> None:
    starts = list[int]()
    for number in range(40_000):  # ten million labels
        starts = [each for each in [*starts, number] if _is_kept(each, number)]
        assert len(starts) <= 3 * max(number, 2).bit_length()
        for age in (
            1 << power for power in range(number.bit_length())
        ):  # one for each age, within a factor of 2
            assert any(age <= 2 * (number - each) and number - each <= 2 * age for each in starts)
    made = filled(n=20 * STRIDE)
    assert made.starts == [STRIDE * each for each in range(20) if _is_kept(each, 19)]


def test_evidence_needs_at_least_what_an_alarm_needs() -> None:
    """Where no deviation may be refuted, no interval excludes 0."""
    for seed in range(20):
        for truth in TRUTHS:
            made = filled(truth, 700, seed)
            gaps, gains = made.sums.gaps("after"), made.sums.gains()
            told = bool((gaps.low > 0.0).any() or (gaps.high < 0.0).any() or (gains.high < 0.0).any())
            assert made.sums.may_be_refuted() or not told
    assert DELTA == 0.05
