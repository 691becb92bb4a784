"""Streams of predictions of which some are labelled by chance, late, and the sums that they give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from streamcal.quality.sampled_sums import SampledPanes, SampledSums
from streamcal.quality.verdict import Arrival
from streamcal.values import Counts, Floats

DELAY: Final = 200.0
"""Most time from a prediction to its label; there is a prediction a second."""
COMPLETE: Final = Arrival(complete_at=DELAY, fair=False)
KINDS: Final = ("uniform", "root", "segment", "adverse")


class Sampled(NamedTuple):
    """Sums of a stream at each look, and p − m of its predictions."""

    looks: list[SampledSums]
    gap: Floats

    @property
    def misses(self) -> bool:
        """Whether an interval of any start and look misses the mean gap of all predictions."""
        for sums in self.looks:
            gaps, begins = sums.gaps("after"), np.array(sums.times, np.float64).astype(int)
            ends = begins + gaps.labels[:, 0].astype(int)
            means = [self.gap[begin:end].mean() for begin, end in zip(begins, ends, strict=True)]
            if ((gaps.low[:, 0] > means) | (gaps.high[:, 0] < means)).any():
                return True
        return False


def propensities(kind: str, share: float, forecasts: Floats, rng: np.random.Generator) -> Floats:
    """Return the chance of each label, on average about a share."""
    root, draws = np.sqrt(forecasts * (1.0 - forecasts)), rng.random(len(forecasts))
    return {
        "uniform": np.full(len(forecasts), share),
        "root": np.minimum(share * (0.5 + 0.5 * root / root.mean()), 1.0),
        "segment": np.where(draws < 0.5, 0.25 * share, 1.75 * share),
        "adverse": np.where(draws < 0.05, 0.001, 1.05 * share),
    }[kind]


class Drawn(NamedTuple):
    """Predictions, one a second: arrays, float64[n]."""

    truth: Floats
    p: Floats
    pi: Floats
    """Chance of the label, as it is said."""
    labels: Floats
    came: Floats
    """Time at which the label is seen; inf: never."""

    def parts(self, looks: int) -> Iterator[tuple[slice, Counts]]:
        """Yield before each look the predictions that came, and the indices of the labels."""
        n, order = len(self.p), np.argsort(self.came)
        for begin in range(0, n, n // looks):
            end = begin + n // looks
            yield slice(begin, end), order[(self.came[order] >= begin) & (self.came[order] < end)]


def drawn(
    seed: int, kind: str, factor: float, *, n: int, share: float = 0.1, base: float = 0.2, wrong: float = 1.0
) -> Drawn:
    """Return n predictions, a factor too high, labels of which are seen ``wrong`` times as often as said."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(1.0, 1.0 / base - 1.0, n)
    p = np.clip(truth * factor, 0.0, 1.0)
    pi = propensities(kind, share, p, rng)
    labels, times = (rng.random(n) < truth).astype(float), np.arange(n, dtype=float)
    came = np.where(rng.random(n) < wrong * pi, times + DELAY * rng.random(n), np.inf)
    return Drawn(truth, p, pi, labels, came)


def sampled(seed: int, kind: str, factor: float, *, n: int = 3000, looks: int = 3, **more: float) -> Sampled:
    """Return the sums of `drawn` at some looks."""
    made, panes, found = drawn(seed, kind, factor, n=n, **more), SampledPanes(), []
    forecasts, times = np.stack([made.truth, made.p]), np.arange(n, dtype=float)
    for part, new in made.parts(looks):
        panes.predict(forecasts[:, part], 1 / made.pi[part], times[part])
        panes.label(forecasts[:, new], made.labels[new], 1 / made.pi[new], times[new])
        found.append(panes.matured(part.stop - DELAY))
    return Sampled(found, made.p - made.truth)
