"""Coverage of the intervals of `streamcal.evaluate`: ``python benchmarks/coverage.py [times]``.

Prints, of seeded settings with known truths, how often the 95 % intervals of the squared calibration error
and of discrimination hold it. No constant is tuned; the form of the law was settled on such settings.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from streamcal import evaluate
from streamcal.values import Floats

TIMES: Final = 1000
_MANY: Final = 2_000_000  # forecasts by which truths without a formula are found

Rates = Callable[[Floats], Floats]


class Setting(NamedTuple):
    """Forecasts, and the rate of label 1 at each."""

    name: str
    n: int
    forecasts: Callable[[np.random.Generator, int], Floats]
    rates: Rates


def beta(a: float, b: float) -> Callable[[np.random.Generator, int], Floats]:
    """Return what draws forecasts of a beta law."""
    return lambda rng, n: rng.beta(a, b, n)


def four(*values: float) -> Callable[[np.random.Generator, int], Floats]:
    """Return what draws forecasts of a few values."""
    return lambda rng, n: rng.choice(values, n)


def saturated(rng: np.random.Generator, n: int) -> Floats:
    """Return forecasts, most of which are nearly or exactly 0 or 1."""
    return np.round(1.0 / (1.0 + np.exp(-rng.normal(-1.0, 6.0, n))), 4)


def calibrated(p: Floats) -> Floats:
    """Return the forecasts."""
    return p


def higher(p: Floats) -> Floats:
    """Return rates that are half as high again."""
    return np.minimum(1.5 * p, 1.0)


def softer(p: Floats) -> Floats:
    """Return rates nearer to a half, by log-odds."""
    odds = (p + 1e-12) / (1.0 - p + 1e-12)
    return 1.0 / (1.0 + odds**-0.6)


def mixed(p: Floats) -> Floats:
    """Return rates of four tied forecasts, too high and too low."""
    return np.interp(p, [0.1, 0.3, 0.5, 0.8], [0.15, 0.25, 0.6, 0.7])


def rare_mixed(p: Floats) -> Floats:
    """Return rates of four small tied forecasts, too high and too low."""
    return np.interp(p, [0.005, 0.01, 0.03, 0.1], [0.005, 0.02, 0.03, 0.06])


TIED: Final = four(0.1, 0.3, 0.5, 0.8)
SETTINGS: Final = (
    Setting("4 tied forecasts, calibrated", 300, TIED, calibrated),
    Setting("4 tied forecasts, calibrated", 2000, TIED, calibrated),
    Setting("4 tied forecasts, miscalibrated", 1000, TIED, mixed),
    Setting("4 tied forecasts, miscalibrated", 10_000, TIED, mixed),
    Setting("4 tied forecasts of rare labels", 1000, four(0.005, 0.01, 0.03, 0.1), rare_mixed),
    Setting("continuous, calibrated", 300, beta(1.0, 4.0), calibrated),
    Setting("continuous, calibrated", 10_000, beta(1.0, 4.0), calibrated),
    Setting("continuous, too low", 300, beta(1.0, 4.0), higher),
    Setting("continuous, too low", 1000, beta(1.0, 4.0), higher),
    Setting("continuous, too low", 10_000, beta(1.0, 4.0), higher),
    Setting("continuous, too sharp", 1000, beta(2.0, 2.0), softer),
    Setting("rare labels (2.5 %), calibrated", 300, beta(1.0, 39.0), calibrated),
    Setting("rare labels (3 %), too low", 300, beta(1.0, 49.0), higher),
    Setting("rare labels (2.4 %), skewed", 300, beta(0.2, 8.0), calibrated),
    Setting("rare labels (2.5 %), calibrated", 10_000, beta(1.0, 39.0), calibrated),
    Setting("rare labels (3.8 %), too low", 10_000, beta(1.0, 39.0), higher),
    Setting("saturated, calibrated", 1000, saturated, calibrated),
    Setting("saturated, too sharp", 1000, saturated, softer),
)


def covered(setting: Setting, times: int, seed: int) -> tuple[float, float]:
    """Return the shares of intervals that hold the truth."""
    rng = np.random.default_rng(seed)
    p = setting.forecasts(rng, _MANY)
    truth = setting.rates(p)
    squared, discrimination = float(np.mean((p - truth) ** 2)), float(truth.var())
    held = np.zeros(2)
    for _ in range(times):
        p = setting.forecasts(rng, setting.n)
        found = evaluate(rng.random(setting.n) < setting.rates(p), p)
        held += (
            found.squared_calibration_error_low <= squared <= found.squared_calibration_error_high,
            found.discrimination_low <= discrimination <= found.discrimination_high,
        )
    return float(held[0]) / times, float(held[1]) / times


def main() -> None:
    """Print the table."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else TIMES
    print("| forecasts | labels | squared calibration error | discrimination |\n|---|---:|---:|---:|")
    for seed, setting in enumerate(SETTINGS):
        squared, discrimination = covered(setting, times, seed)
        print(f"| {setting.name} | {setting.n:,} | {squared:.3f} | {discrimination:.3f} |", flush=True)


if __name__ == "__main__":
    main()
