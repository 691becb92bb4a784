"""A prior that jumps while labels are late: the risk of g∘h_P under each estimate of the prior, over time.

``python benchmarks/prior_shift.py`` prints the table of docs/benchmarks.md and the Fisher bound; ``--write``
puts the table there, ``--picture`` draws docs/figures/prior-shift.svg.

The source is the paper's D(0.5) with 10⁵ labels, the target D(q) with q = 0.1, 0.4, 0.05, 0.4 for 20,000
predictions each. Labels come 2,000 predictions late. Risks are exact, under the law of the moment, of the map
with the prior that was estimated before the prediction; the oracle has the true weights.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

# ruff: noqa: E402  # numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray
from pages import markdown, write
from scipy.special import expit, logit
from scipy.stats import norm

from streamcal import RecalibrationMap, ScoreSketch
from streamcal.maps.shift import class_prior, shift_correction, shift_weights
from streamcal.maps.uniform_mass import form
from streamcal.priors.history import BLOCK
from streamcal.priors.score_tracker import ScoreTracker
from streamcal.testing import NormalPair

Floats = NDArray[np.float64]

FIGURES: Final = Path(__file__).resolve().parents[1] / "docs" / "figures"

SOURCE: Final = NormalPair(0.5)
SOURCE_LABELS: Final = 100_000
PRIORS: Final = (0.1, 0.4, 0.05, 0.4)
LENGTH: Final = 20_000
DELAY: Final = 2_000
EARLIER: Final = 7
"""Predictions before the first block, never labelled: so that no jump falls where a pane begins."""
LOOK: Final = 50
"""Predictions between two looks at the risk."""
SEEDS: Final = 30
AFTER: Final = (250, 500, 1_000, 2_000, 5_000)
SETTLED: Final = 1_000
"""Predictions after a jump from which the mean over the rest of its block is taken."""
GOAL: Final = 2.0
WINDOWS: Final = {"labels, all": len(PRIORS) * LENGTH, "labels, latest 3,000": 3_000}
"""Number of the latest labels that count, by the name of the estimate."""
SCORES: Final = "scores"
ESTIMATORS: Final = (*WINDOWS, SCORES)
ORACLE: Final = "oracle"
STYLES: Final = {
    "labels, all": ("0.6", ":"),
    "labels, latest 3,000": ("#E69F00", "-"),
    SCORES: ("#0072B2", "-"),
    ORACLE: ("#222222", "-"),
}


class Law:
    """The target D(q), and the risk there of a step map of the source under any weights.

    Parameters
    ----------
    source
        h_P.
    prior
        q.
    """

    def __init__(self, source: RecalibrationMap, prior: float) -> None:
        self.prior = prior
        edges = logit(np.array(source.edges))
        ones, zeros = (np.diff(norm.cdf(edges - mean)) for mean in (2.0, -2.0))
        self._mass = prior * ones + (1.0 - prior) * zeros
        self._mean = np.divide(prior * ones, self._mass, out=np.zeros_like(ones), where=self._mass > 0.0)
        self._values = np.array(source.values)
        # What is lost inside the bins is lost under any weights.
        self._inside = NormalPair(prior).risk(source).total - self._between(self._values)

    def risk(self, weights: tuple[float, float]) -> float:
        """Return R(g∘h_P), as `NormalPair.risk` does."""
        return self._inside + self._between(shift_correction(self._values, weights))

    def _between(self, served: Floats) -> float:
        return float(self._mass @ (served - self._mean) ** 2)


def follow(seed: int) -> dict[str, Floats]:
    """Return the risks of one run, float64[blocks, looks] by estimator."""
    rng = np.random.default_rng(seed)
    sketch = ScoreSketch()
    scores, labels = SOURCE.sample(SOURCE_LABELS, rng)
    sketch.add(scores, labels)
    source, known = form(sketch, "auto").map, float(labels.mean())
    laws = [Law(source, prior) for prior in PRIORS]
    earlier, _ = NormalPair(PRIORS[0]).sample(EARLIER, rng)
    blocks = [NormalPair(prior).sample(LENGTH, rng) for prior in PRIORS]
    scores, labels = (np.concatenate(column) for column in zip(*blocks, strict=True))
    tracker = ScoreTracker()
    tracker.set_source(source.edges, source.values, known)
    gathered = earlier  # scores of a block that is not full yet
    risks = {name: np.zeros((len(PRIORS), LENGTH // LOOK)) for name in (*ESTIMATORS, ORACLE)}
    for start in range(0, len(scores), LOOK):
        block, look = start // LENGTH, start % LENGTH // LOOK
        law = laws[block]
        risks[ORACLE][block, look] = law.risk(shift_weights(SOURCE.prior, law.prior))
        come = labels[: max(0, start - DELAY)]
        priors = {name: class_prior(come[-n:].sum(), len(come[-n:])) for name, n in WINDOWS.items()}
        for name, prior in (priors | {SCORES: tracker.prior}).items():
            risks[name][block, look] = law.risk(shift_weights(known, known if prior is None else prior))
        gathered = np.append(gathered, scores[start : start + LOOK])
        whole = len(gathered) // BLOCK * BLOCK
        tracker.take_scores(gathered[:whole])
        gathered = gathered[whole:]
    return risks


def fisher(prior: float, scores: int) -> float:
    """Return the least excess risk that so many scores of D(q), and nothing else, let expect.

    The variance of an unbiased estimate of q is at least 1/(n·I), I = E[((f₁ − f₀)/(q f₁ + (1−q) f₀))²], and
    a small error moves the optimal map at z by h(1−h)/(q(1−q)) times that.
    """
    x = np.linspace(-12.0, 12.0, 48_001)
    ones, zeros = norm.pdf(x - 2.0), norm.pdf(x + 2.0)
    density = prior * ones + (1.0 - prior) * zeros
    step = x[1] - x[0]
    information = float(np.sum((ones - zeros) ** 2 / density) * step)
    h = expit(4.0 * x + logit(prior))
    moved = h * (1.0 - h) / (prior * (1.0 - prior))
    return float(np.sum(density * moved * moved) * step) / (scores * information)


def table(risks: dict[str, Floats]) -> str:
    """Return the mean risks over all runs and the three jumps as ratios to the oracle's."""
    oracle = risks[ORACLE].mean(axis=0)
    rows = []
    for name in ESTIMATORS:
        ratios = risks[name].mean(axis=0) / oracle
        rest = [ratios[block, SETTLED // LOOK :].mean() for block in range(len(PRIORS))]
        row = [name]
        for block in range(1, len(PRIORS)):
            row += [f"{ratios[block, SETTLED // LOOK]:.2f}", f"{rest[block]:.2f}"]
        rows.append(row)
    header = ["estimate from"]
    for before, after in pairwise(PRIORS):
        header += [f"{before} → {after}: at {SETTLED:,}", f"mean from {SETTLED:,}"]
    return markdown(header, rows)


def report(risks: dict[str, Floats]) -> None:
    """Print all ratios, and whether the goal is reached."""
    oracle = risks[ORACLE]
    for block, prior in enumerate(PRIORS):
        mean, runs = oracle[:, block, 0].mean(), len(oracle)
        print(f"\nq = {prior}: oracle {mean:.2e}, a mean over {runs} runs; ratios of mean risks to it")
        print(
            f"{'predictions after the jump':28}" + "".join(f"{after:>9,}" for after in AFTER) + f"{'mean':>9}"
        )
        for name in ESTIMATORS:
            ratios = risks[name][:, block].mean(axis=0) / mean
            at = "".join(f"{ratios[after // LOOK]:9.2f}" for after in AFTER)
            print(f"{name:28}{at}{ratios[SETTLED // LOOK :].mean():9.2f}")
        each = risks[SCORES][:, block] / oracle[:, block]
        beyond = np.mean(each[:, SETTLED // LOOK] > GOAL)
        worst = (risks[SCORES][:, block].mean(axis=0) / mean)[SETTLED // LOOK :].max()
        rest = each[:, SETTLED // LOOK :].mean(axis=1)
        print(
            f"scores: runs above {GOAL:g} × the oracle at {SETTLED:,}: {beyond:.0%}; from there, the worst "
            f"run's mean: {rest.max():.2f}, the worst look's mean over runs: {worst:.2f}"
        )
        bound = fisher(prior, SETTLED)
        print(f"Fisher: {SETTLED:,} scores cost at least {bound:.1e}, a ratio of {1.0 + bound / mean:.2f}")


def draw(risks: dict[str, Floats]) -> None:
    """Draw the mean risks over time."""
    sys.path.insert(0, str(FIGURES))
    from drawing import canvas, save

    figure = canvas(9.0, 4.2)
    axes = figure.add_subplot()
    predictions = np.arange(0, len(PRIORS) * LENGTH, LOOK)
    for name, (colour, line) in STYLES.items():
        mean = risks[name].mean(axis=0).ravel()
        label = "the true prior" if name == ORACLE else name
        axes.plot(predictions, mean, color=colour, linestyle=line, linewidth=1.4, label=label)
    axes.set_yscale("log")
    axes.set_xlim(0, len(PRIORS) * LENGTH)
    for block, prior in enumerate(PRIORS):
        axes.text(
            (block + 0.5) * LENGTH, 1.02, f"q = {prior}", transform=axes.get_xaxis_transform(), ha="center"
        )
    axes.set_xlabel(f"predictions; labels come {DELAY:,} later")
    axes.set_ylabel("recalibration risk")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    save(figure, FIGURES / "prior-shift.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--picture", action="store_true", help="draw docs/figures/prior-shift.svg")
    options = parser.parse_args()
    start = time.perf_counter()
    runs = [follow(seed) for seed in range(options.seeds)]
    risks = {name: np.array([run[name] for run in runs]) for name in (*ESTIMATORS, ORACLE)}
    report(risks)
    print(f"\n{table(risks)}\n\n{time.perf_counter() - start:.0f} s")
    if options.write:
        write({"prior-shift": table(risks)})
    if options.picture:
        draw(risks)


if __name__ == "__main__":
    main()
