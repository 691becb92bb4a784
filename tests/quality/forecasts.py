"""Streams of forecasts with known conditional expectations, for tests of what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from streamcal.base.values import BANDS, Floats
from streamcal.quality.label_sums import Intervals
from streamcal.quality.sequences import Sequences
from streamcal.quality.verdict import Verdict, judge


class Stream(NamedTuple):
    """Labels in the order in which they came, and what was to be expected of each just before."""

    scores: Floats
    forecasts: Floats
    labels: Floats
    means: Floats


Truth: TypeAlias = Callable[[np.random.Generator, int], Stream]


def logistic(values: Floats) -> Floats:
    """Return 1/(1 + exp(−values))."""
    return np.asarray(1.0 / (1.0 + np.exp(-values)))


def calibrated(rng: np.random.Generator, n: int) -> Stream:
    """Forecasts that are right, independently; scores that are too high."""
    forecasts = logistic(rng.normal(-1.5, 1.2, n))
    return Stream(np.minimum(1.3 * forecasts, 1.0), forecasts, _drawn(rng, forecasts), forecasts)


def drifting(rng: np.random.Generator, n: int) -> Stream:
    """The truth moves away from the forecasts and comes back, slowly."""
    forecasts = logistic(rng.normal(0.0, 1.5, n))
    means = logistic(np.log(forecasts / (1.0 - forecasts)) + np.sin(np.arange(n) / 500.0))
    return Stream(np.full(n, 0.4), forecasts, _drawn(rng, means), means)


def recurring(rng: np.random.Generator, n: int) -> Stream:
    """Two regimes of random length: forecasts are right in one, and reversed in the other."""
    forecasts = logistic(rng.normal(-0.5, 1.5, n))
    regime = np.cumsum(rng.random(n) < 1.0 / 300.0) % 2
    means = np.where(regime == 1, 1.0 - forecasts, forecasts)
    return Stream(1.0 - forecasts, forecasts, _drawn(rng, means), means)


def rare(rng: np.random.Generator, n: int) -> Stream:
    """One label in 200 is 1, and forecasts are half of it."""
    means = 0.005 * np.exp(rng.normal(0.0, 0.8, n) - 0.32)
    return Stream(np.minimum(10.0 * means, 1.0), 0.5 * means, _drawn(rng, means), means)


def late(rng: np.random.Generator, n: int) -> Stream:
    """Labels come up to 1,000 predictions late, whatever they are, and the truth jumps."""
    forecasts = logistic(rng.normal(-1.0, 1.0, n))
    means = np.where(np.arange(n) < n // 2, forecasts, np.minimum(forecasts + 0.2, 1.0))
    labels, order = _drawn(rng, means), np.argsort(np.arange(n) + rng.exponential(300.0, n))
    return Stream(np.full(n, 0.3), forecasts[order], labels[order], means[order])


def adverse(rng: np.random.Generator, n: int) -> Stream:
    """The truth answers to the labels so far: it pushes the sum of the differences away from 0."""
    forecasts, labels, means = np.empty(n), np.empty(n), np.empty(n)
    draws, wide, excess = rng.random(n), rng.random(n), 0.0
    for i in range(n):
        forecasts[i] = 0.05 + 0.9 * (0.1 * wide[i] if i % 2 else wide[i])
        means[i] = np.clip(forecasts[i] + (0.1 if excess > 0.0 else -0.1), 0.0, 1.0)
        labels[i] = draws[i] < means[i]
        excess += labels[i] - means[i]
    return Stream(np.clip(forecasts + 0.1, 0.0, 1.0), forecasts, labels, means)


TRUTHS: tuple[Truth, ...] = (calibrated, drifting, recurring, rare, late, adverse)


def misses(stream: Stream, looks: range) -> dict[str, bool]:
    """Return of each family of intervals whether one misses what it bounds, at any of some label counts."""
    sequences, missed = Sequences(), dict.fromkeys(("before", "after", "gain"), False)
    forecasts = np.stack([stream.scores, stream.forecasts])
    times, edges = np.full(len(stream.labels), np.nan), np.array(BANDS)
    of_zero = forecasts**2
    expected = of_zero + stream.means * ((1.0 - forecasts) ** 2 - of_zero)  # Brier score of each, on average
    for end in looks:
        part = slice(sequences.labels, end)
        sequences.add(forecasts[:, part], stream.labels[part], times[part])
        sums = sequences.sums
        found: dict[str, Intervals] = {"before": sums.gaps("before"), "after": sums.gaps("after")}
        gains = sums.gains()
        for row, start in enumerate(sequences.starts):
            since = slice(start, end)
            gain = float((expected[0, since] - expected[1, since]).mean())
            missed["gain"] |= not gains.low[row] - 1e-12 <= gain <= gains.high[row] + 1e-12
            for side, name in enumerate(("before", "after")):
                excess = forecasts[side, since] - stream.means[since]
                band = np.searchsorted(edges, forecasts[side, since], side="right")
                labels = np.append(len(excess), np.bincount(band, minlength=len(edges) + 1))
                sums = np.append(excess.sum(), np.bincount(band, excess, len(edges) + 1))
                some = labels > 0.0
                mean, gaps = sums[some] / labels[some], found[name]
                low, high = gaps.low[row, some], gaps.high[row, some]
                missed[name] |= bool(((mean < low - 1e-12) | (mean > high + 1e-12)).any())
    return missed


def told_after(stream: Stream, begin: int, step: int) -> tuple[int, Verdict] | None:
    """Return after how many labels behind the first so many the verdict tells a deviation; None: never."""
    sequences, forecasts = Sequences(), np.stack([stream.scores, stream.forecasts])
    times = np.full(len(stream.labels), np.nan)
    for end in range(begin + step, len(stream.labels) + 1, step):
        part = slice(sequences.labels, end)
        sequences.add(forecasts[:, part], stream.labels[part], times[part])
        verdict = judge(sequences.sums)
        if verdict.deviates:
            return end - begin, verdict
    return None


def _drawn(rng: np.random.Generator, means: Floats) -> Floats:
    return (rng.random(len(means)) < means).astype(np.float64)
