"""How good the map of ``bins="auto"`` is on stationary streams with a known truth: its risk, and others'.

``python benchmarks/curves.py`` prints the table of docs/benchmarks.md, in about ten minutes; ``--write`` puts
it there.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pages import markdown, write
from scipy.special import expit, ndtr
from scipy.stats import beta

from streamcal import RecalibrationMap
from streamcal.maps.curves import fit_curve
from streamcal.maps.uniform_mass import form
from streamcal.sketch.score_sketch import ScoreSketch

Floats = npt.NDArray[np.float64]

SIZES: Final = (10**3, 10**4, 10**5, 10**6)
SEEDS: Final = {"D(0.5)": (200,) * 4}
OTHER_SEEDS: Final = (100, 50, 20, 5)
_RANKS: Final = (np.arange(200_000) + 0.5) / 200_000


class Truth(NamedTuple):
    """A law of scores and labels."""

    score: Callable[[Floats], Floats]
    """The score at a quantile rank v."""
    rate: Callable[[Floats], Floats]
    """P[Y=1] at that rank."""


def _normal(prior: float) -> Truth:
    x = np.linspace(-9.0, 9.0, 200_001)
    cdf = (1.0 - prior) * ndtr(x + 2.0) + prior * ndtr(x - 2.0)
    at = lambda v: np.interp(v, cdf, x)  # noqa: E731
    return Truth(lambda v: expit(at(v)), lambda v: expit(4.0 * at(v) + np.log(prior / (1.0 - prior))))


def _rare(v: Floats) -> Floats:
    """Scores around 1e-3, log-normal."""
    return expit(1.2 * np.clip(np.sqrt(2.0) * _erfinv(2.0 * v - 1.0), -5.0, 5.0) - 7.0)


def _erfinv(x: Floats) -> Floats:
    from scipy.special import erfinv

    return np.asarray(erfinv(x))


def _u(v: Floats) -> Floats:
    return np.asarray(beta(0.3, 0.3).ppf(v))


def _tenths(v: Floats) -> Floats:
    return (np.floor(v * 10.0) + 0.5) / 10.0


def _same(v: Floats) -> Floats:
    return v


TRUTHS: Final = {
    "D(0.5)": _normal(0.5),
    "D(0.1)": _normal(0.1),
    "sine": Truth(_same, lambda v: 0.5 + 0.4 * np.sin(np.pi * (v - 0.5))),
    "cubic": Truth(_same, lambda v: 0.2 * v**3),
    "one step": Truth(_same, lambda v: np.where(v < 0.377, 0.1, 0.9)),
    "staircase": Truth(_same, lambda v: 0.1 + 0.19 * np.floor(v * 5.0)),
    "plateau, steep, plateau": Truth(_same, lambda v: np.interp(v, (0.6, 0.7), (0.1, 0.9))),
    "slope with a step": Truth(_same, lambda v: 0.1 + 0.3 * v + 0.4 * (v > 0.523)),
    "U-shaped density": Truth(_u, lambda v: 0.02 + 0.9 * _u(v) ** 1.5),
    "nearly constant": Truth(_same, lambda v: 0.3 + 0.02 * v),
    "ten atoms": Truth(_tenths, lambda v: _tenths(v) ** 2),
    "base rate 1e-3": Truth(_rare, lambda v: 2e-4 + 0.6 * _rare(v)),
}


def curve(sketch: ScoreSketch) -> RecalibrationMap:
    """Return the map of ``bins="auto"``."""
    return fit_curve(sketch.cells, sketch.level, sketch.counts).map


MAPS: Final[dict[str, Callable[[ScoreSketch], RecalibrationMap]]] = {
    "the paper's steps, B by leave-one-out": lambda sketch: form(sketch, "auto").map,
    "the curve": curve,
}


def risks(name: str, n: int, seed: int) -> list[float]:
    """Return the risk of each map, formed from n labels."""
    truth, rng = TRUTHS[name], np.random.default_rng((seed, n))
    v = rng.random(n)
    sketch = ScoreSketch()
    sketch.add(truth.score(v), (rng.random(n) < truth.rate(v)).astype(np.int8))
    scores, rates = truth.score(_RANKS), truth.rate(_RANKS)
    return [float(np.mean((each(sketch).predict_many(scores) - rates) ** 2)) for each in MAPS.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    parser.add_argument("--truths", nargs="+", choices=TRUTHS, default=list(TRUTHS))
    parser.add_argument("--most", type=int, default=max(SIZES), help="the most labels")
    options = parser.parse_args()
    sizes = [n for n in SIZES if n <= options.most]
    jobs = [
        (name, n, seed)
        for name in options.truths
        for n, seeds in zip(SIZES, SEEDS.get(name, OTHER_SEEDS), strict=True)
        for seed in range(seeds if n in sizes else 0)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = dict(zip(jobs, pool.map(risks, *zip(*jobs, strict=True), chunksize=20), strict=True))
    rows = []
    for name in options.truths:
        for n in sizes:
            mean = np.mean([risk for job, risk in found.items() if job[:2] == (name, n)], axis=0)
            rows.append([f"{name}, {n:,}", *(f"{risk:.2g}" for risk in mean)])
    table = markdown(("truth, labels", *MAPS), rows)
    print(table)
    if options.write:
        write({"curves": table})


if __name__ == "__main__":
    main()
