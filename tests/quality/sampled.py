"""Streams of predictions of which some are labelled by chance, late, and the sums that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from streamcal.base.values import BANDS, Counts, Floats
from streamcal.quality.sampled_sums import SampledPanes, SampledSums
from streamcal.quality.verdict import Arrival
from streamcal.sampling import Sampler

DELAY: Final = 200.0
"""Most time from a prediction to its label; there is a prediction a second."""
COMPLETE: Final = Arrival(complete_at=DELAY, fair=False)
KINDS: Final = ("uniform", "root", "segment", "adverse", "asked")


class Sampled(NamedTuple):
    """Sums of a stream at each look, p − m of its predictions, and which of these have labels."""

    looks: list[SampledSums]
    gap: Floats
    seen: Floats
    """Times of those that are labelled."""

    @property
    def misses(self) -> bool:
        """Whether an interval of any start and look misses the mean gap, of all or of labelled ones."""
        every = np.arange(len(self.gap), dtype=float)
        for sums in self.looks:
            for each, times in ((sums, every), (sums.once, self.seen)):
                if each is None:
                    continue
                gaps, begins = each.gaps("after"), np.searchsorted(times, np.array(each.times, np.float64))
                ends = begins + gaps.labels[:, 0].astype(int)
                gap = self.gap[times.astype(int)]
                means = [gap[begin:end].mean() for begin, end in zip(begins, ends, strict=True)]
                if ((gaps.low[:, 0] > means) | (gaps.high[:, 0] < means)).any():
                    return True
        return False


def logits(p: Floats) -> Floats:
    """Return the log odds of probabilities."""
    return np.asarray(np.log(p / (1.0 - p)))


def odds_moved(p: Floats, move: Callable[[Floats], Floats]) -> Floats:
    """Return probabilities with other log odds."""
    return np.asarray(1.0 / (1.0 + np.exp(-move(logits(np.clip(p, 1e-9, 1.0 - 1e-9))))))


def in_one_band(p: Floats) -> Floats:
    """Return what is true where forecasts have twice the odds in the band of their 93% quantile."""
    bands = np.searchsorted(BANDS, p, side="right")
    wrong = bands == np.searchsorted(BANDS, np.quantile(p, 0.93), side="right")
    return np.where(wrong, odds_moved(p, lambda x: x - np.log(2.0)), p)


WRONG: Final[dict[str, Callable[[Floats], Floats]]] = {
    "too high": lambda p: p / 1.5,
    "too low": lambda p: np.minimum(1.5 * p, 1.0),
    "overconfident": lambda p: odds_moved(p, lambda x: np.median(x) + 0.6 * (x - np.median(x))),
    "in one band": in_one_band,
}
"""What is true, given forecasts that are wrong in a way."""


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


def asked(share: float, p: Floats, labels: Floats, draws: Floats, delays: Floats) -> Floats:
    """Return the chance of each label by `Sampler`, which learns each that is drawn when it comes."""
    sampler, found = Sampler(share=share), np.empty(len(p))
    due: list[list[int]] = [[] for _ in range(len(p) + int(DELAY) + 2)]
    for i, each in enumerate(p.tolist()):
        for came in due[i]:
            sampler.learn(float(p[came]), int(labels[came]))
        found[i] = sampler.propensity(each)
        if draws[i] < found[i]:
            due[i + 1 + int(delays[i])].append(i)
    return found


def drawn(
    seed: int,
    kind: str,
    factor: float = 1.0,
    *,
    n: int,
    share: float = 0.1,
    base: float = 0.2,
    wrong: float = 1.0,
    truth_of: Callable[[Floats], Floats] | None = None,
) -> Drawn:
    """Return n predictions, a factor too high, labels of which are seen ``wrong`` times as often as said.

    With ``truth_of``, what is true is given by forecasts instead.
    """
    rng = np.random.default_rng(seed)
    truth = rng.beta(1.0, 1.0 / base - 1.0, n)
    p = np.clip(truth * factor, 0.0, 1.0)
    if truth_of is not None:
        p, truth = truth, truth_of(truth)
    labels, times = (rng.random(n) < truth).astype(float), np.arange(n, dtype=float)
    draws, delays = rng.random(n) / wrong, DELAY * rng.random(n)
    pi = asked(share, p, labels, draws, delays) if kind == "asked" else propensities(kind, share, p, rng)
    came = np.where(draws < pi, times + delays, np.inf)
    return Drawn(truth, p, pi, labels, came)


def sampled(
    seed: int,
    kind: str,
    factor: float = 1.0,
    *,
    n: int = 3000,
    looks: int = 3,
    stop: Callable[[SampledSums], bool] | None = None,
    **more: Any,
) -> Sampled:
    """Return the sums of `drawn` at some looks, of which the first at which to ``stop`` is the last."""
    made, panes, found = drawn(seed, kind, factor, n=n, **more), SampledPanes(), []
    panes.draws = kind in ("uniform", "root", "asked")
    forecasts, times = np.stack([made.truth, made.p]), np.arange(n, dtype=float)
    for part, new in made.parts(looks):
        panes.predict(forecasts[:, part], 1 / made.pi[part], times[part])
        panes.label(forecasts[:, new], made.labels[new], 1 / made.pi[new], times[new])
        found.append(panes.matured(part.stop - DELAY))
        if stop is not None and stop(found[-1]):
            break
    return Sampled(found, made.p - made.truth, times[made.came < np.inf])
