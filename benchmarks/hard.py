"""Hard cases: simulated streams that a default can get wrong, each with what is asked of it.

Labels are late, rare, come in bursts or one class first; regimes are shorter than a memory; scores are
grossly wrong; or nothing moves and a million labels come. ``python benchmarks/hard.py`` prints one table: the
case, what is asked, and what the default does, as the mean over seeds with the least and the greatest.
``--cases NAME ...`` runs these alone, ``--seeds N`` with so many seeds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from pages import markdown, write
from peers import CumulativePlatt, Floats, InTurn, Labels, Method, SixtyLines, SlidingIsotonic, SlidingPlatt
from replay import Raw, Streamcal, brier_losses, exponential, log_losses, replay
from scipy.optimize import brentq
from scipy.special import expit, logit
from streams import load

from streamcal import Recalibrator
from streamcal.engine.config import Mode
from streamcal.testing import NormalPair

SINGLE: Final[tuple[Mode, ...]] = ("source", "label_shift", "target", "composite")
BURST: Final = 500


class Figure(NamedTuple):
    """One figure of one seed, and what is asked of its mean over seeds."""

    what: str
    value: float
    most: float
    least: float | None = None
    """None: there is no lower limit."""

    @property
    def asked(self) -> str:
        """The limits in words."""
        return f"≤ {self.most:g}" if self.least is None else f"{self.least:g} to {self.most:g}"


Case = Callable[[int], Iterator[Figure]]
"""What makes the figures of one seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), help="these alone")
    parser.add_argument("--seeds", type=int, default=10, help="how many; default 10")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes; default 1")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    start = time.perf_counter()
    jobs = [(case, seed) for case in options.cases for seed in range(1 if case in FIXED else options.seeds)]
    rows: dict[str, list[list[Figure]]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for (case, _), figures in zip(jobs, pool.map(figures_of, *zip(*jobs, strict=True)), strict=True):
            rows.setdefault(case, []).append(figures)
    text = table(rows)
    print(text)
    if options.write:
        write({"hard": text})
    print(f"\n{time.perf_counter() - start:.0f} s")


def figures_of(case: str, seed: int) -> list[Figure]:
    """Return the figures of one seed of a case."""
    return list(CASES[case](seed))


def table(found: dict[str, list[list[Figure]]]) -> str:
    """Return one line for every figure of every case: asked, the mean over seeds, and whether it holds."""
    rows = []
    for case, seeds in found.items():
        for figures in zip(*seeds, strict=True):
            each = figures[0]
            values = np.array([figure.value for figure in figures])
            ends = f"{values.min():.4g} to {values.max():.4g}"
            verdict = "yes" if holds(figures) else "**no**"
            rows.append([f"{case}: {each.what}", each.asked, f"{values.mean():.4g}", ends, verdict])
    return markdown(("case", "asked", "measured", "least to greatest", "holds"), rows)


def holds(figures: Sequence[Figure]) -> bool:
    """Tell whether the mean over seeds is within what is asked."""
    mean = float(np.mean([figure.value for figure in figures]))
    first = figures[0]
    return mean <= first.most and (first.least is None or mean >= first.least)


def ratios(what: str, ours: Floats, theirs: Floats, labels: Labels, most: float) -> Iterator[Figure]:
    """Yield our Brier score over theirs, and our log loss over theirs."""
    for name, losses in (("Brier", brier_losses), ("log loss", log_losses)):
        yield Figure(f"{what}, {name}", losses(ours, labels).mean() / losses(theirs, labels).mean(), most)


def drawn(truth: Floats, rng: np.random.Generator) -> Labels:
    """Return a label of each probability."""
    return (rng.random(len(truth)) < truth).astype(np.int8)


@cache
def centre(rate: float, spread: float) -> float:
    """Return the m for which expit(N(m, spread²)) has this mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    return float(brentq(lambda m: weights @ expit(m + spread * nodes) - rate, logit(rate) - 10.0, 10.0))


def calibrated(n: int, rate: float, spread: float, rng: np.random.Generator) -> tuple[Floats, Labels]:
    """Return n probabilities, logit-normal with this mean, and labels."""
    truth = expit(rng.normal(centre(rate, spread), spread, n))
    return truth, drawn(truth, rng)


def late(seed: int) -> Iterator[Figure]:
    """Yield how far what is served is from the truth, on scores with odds times e^off and late labels."""
    for when, n in (("at once", 20_000), ("5,000", 20_000), ("10,000", 30_000), ("exponential", 20_000)):
        for off in (1.0,) if when == "at once" else (1.0, 2.0, -1.5):
            rng = np.random.default_rng(seed)
            logits = rng.normal(-2.0, 1.2, n)
            truth = expit(logits)
            fixed = {"at once": 0, "5,000": 5_000, "10,000": 10_000}
            delays = fixed[when] if when in fixed else exponential(n, 3_000.0, rng)
            served = replay(Streamcal(), expit(logits + off), drawn(truth, rng), delays)[-5_000:]
            truth = truth[-5_000:]
            what = f"off {off:+g}, {when}"
            yield Figure(f"{what}, served/true", served.mean() / truth.mean(), 1.03, 0.97)
            yield Figure(f"{what}, RMSE", float(np.sqrt(np.mean((served - truth) ** 2))), 0.014)


def rare(seed: int) -> Iterator[Figure]:
    """Yield served over true by quartile of the truth, and log loss, where positives are rare.

    The truth is logit-normal, its logit of standard deviation 1.4. Served over true is of the second half.
    """
    n, least = 200_000, 1e-7
    for rate, factor in ((2e-4, 10.0), (1e-3, 0.2)):
        truth, labels = calibrated(n, rate, 1.4, np.random.default_rng(seed))
        scores = expit(logit(truth) + np.log(factor))
        served = replay(Streamcal(), scores, labels, block=100)
        platt = replay(CumulativePlatt(), scores, labels, block=100)
        what = f"P = {rate:g}, odds × {factor:g}"
        half = slice(n // 2, None)
        order = np.argsort(truth[half])
        for i, band in enumerate(np.array_split(order, 4)):
            value = served[half][band].sum() / truth[half][band].sum()
            yield Figure(f"{what}, served/true in quartile {i + 1}", value, 1.6, 0.6)
        ours, theirs = (log_losses(each, labels, least).mean() for each in (served, platt))
        yield Figure(f"{what}, log loss/Platt on all labels", ours / theirs, 1.0)


def bursts(_seed: int) -> Iterator[Figure]:
    """Yield the log loss over the least of the single modes, where 500 labels come with every call."""
    for name in BURST_STREAMS:
        stream = load(name)
        scores, labels = stream.scores[:30_000], stream.labels[:30_000]
        assert stream.source_scores is not None
        assert stream.source_labels is not None
        found = {}
        for mode in (*SINGLE, None):
            engine = Recalibrator() if mode is None else Recalibrator(mode=mode)
            engine.learn_many(stream.source_scores[-30_000:], stream.source_labels[-30_000:], "source")
            served = []
            for begin in range(0, len(scores), BURST):
                batch = slice(begin, begin + BURST)
                served.append(engine.predict_many(scores[batch]))
                engine.learn_many(scores[batch], labels[batch])
            found[mode] = log_losses(np.concatenate(served), labels).mean()
        best = min(SINGLE, key=lambda mode: found[mode])
        yield Figure(f"{name}, log loss/best single mode ({best})", found[None] / found[best], 1.0)


def one_class(seed: int) -> Iterator[Figure]:
    """Yield Brier score and log loss over those of a calibrated score, where one class is 4,000 late."""
    n = 30_000
    for rate in (0.3, 0.05):
        for slow, name in ((1, "positives"), (0, "negatives")):
            for early in (0.0, 0.02):
                rng = np.random.default_rng(seed)
                scores, labels = calibrated(n, rate, 1.2, rng)
                delays = np.where((labels == slow) & (rng.random(n) >= early), 4_000, 0)
                served = replay(Streamcal(), scores, labels, delays)
                some = f", {early:.0%} of them at once" if early else ""
                yield from ratios(f"base rate {rate:g}, {name} late{some}", served, scores, labels, 1.02)


def regimes(seed: int) -> Iterator[Figure]:
    """Yield Brier score and log loss over others', where the base rate jumps.

    Every 700 events between .15 and .97, given the label the logit of the score N(±2, 4); and −3 in log odds
    on and off every 3,000, with labels as late as that, scores that are right where it is off.
    """
    rng = np.random.default_rng(seed)
    n = 30_000
    prior = np.array([0.15, 0.97])[np.arange(n) // 700 % 2]
    labels = drawn(prior, rng)
    scores = expit(2.0 * (rng.standard_normal(n) + 2.0 * labels - 1.0))
    for what, delay, block in (("at once", 0, 1), ("batches of 500", 0, 500), ("500 late", 500, None)):
        ours, theirs = (replay(each, scores, labels, delay, block) for each in (Streamcal(), SixtyLines()))
        yield from ratios(f"700, {what}, over sixty lines", ours, theirs, labels, 1.0)
    for middle in (0.0, -2.0):
        logits = rng.normal(middle, 1.2, n)
        labels = drawn(expit(logits - 3.0 * (np.arange(n) // 3_000 % 2)), rng)
        ours = replay(Streamcal(), expit(logits), labels, 3_000)
        methods: tuple[tuple[str, Method, float], ...] = (
            ("raw", Raw(), 1.0),
            ("sliding Platt", InTurn(SlidingPlatt()), 1.08),
        )
        for name, method, most in methods:
            theirs = replay(method, expit(logits), labels, 3_000)
            what = f"3,000, as late, logits about {middle:g}, over {name}"
            yield from ratios(what, ours, theirs, labels, most)


def million(seed: int) -> Iterator[Figure]:
    """Yield true risk and certified risk after 10⁶ labels where nothing moves."""
    law = NormalPair(0.5)
    for observed in (False, True):
        rng, engine = np.random.default_rng(seed), Recalibrator()
        for _ in range(1_000):
            scores, labels = law.sample(1_000, rng)
            seen = engine.prediction_count if observed else None
            if observed:
                engine.predict_many(scores)
                engine.observe_many(scores)
            engine.learn_many(scores, labels, prediction_index=seen)
        what = "predicted, observed, learned" if observed else "learned"
        yield Figure(f"{what}, true risk", law.risk(engine.map).total, 5e-6)
        certificate = engine.certificate
        assert certificate is not None
        assert certificate.target_risk is not None
        yield Figure(f"{what}, certified risk", certificate.target_risk, 1.7e-4)


def grossly_wrong(seed: int) -> Iterator[Figure]:
    """Yield Brier score and log loss over those of windowed isotonic regression, on scores near 0 and 1.

    The logit has an absolute value of 15 and more, and is positive for nine events in ten, of which one in
    four has label 1: the raw Brier score is about .7. A source, if there is one, has a raw score of .4.
    """
    n, before = 30_000, 5_000
    for source in (False, True):
        rng = np.random.default_rng(seed)
        hidden = rng.standard_normal(before + n)
        labels = drawn(expit(hidden - 1.4 * (np.arange(before + n) >= before)), rng)
        above = hidden + 1.2
        scores = expit(np.copysign(15.0 + 10.0 * np.abs(above), above))
        for when, delay in (("at once", 0), ("500 late", 500), ("5,000 late", 5_000)):
            served = []
            for method in (Streamcal(), InTurn(SlidingIsotonic())):
                if source:
                    method.learn(scores[:before], labels[:before])
                served.append(replay(method, scores[before:], labels[before:], delay))
            what = f"{'a' if source else 'no'} source, {when}, over windowed isotonic"
            yield from ratios(what, *served, labels[before:], 1.0)


CASES: Final[dict[str, Case]] = {
    "late": late,
    "rare": rare,
    "bursts": bursts,
    "one-class-first": one_class,
    "regimes": regimes,
    "million": million,
    "grossly-wrong": grossly_wrong,
}
"""The cases by their names."""

FIXED: Final = ("bursts",)
"""The cases in which nothing is simulated, so that one seed is all there is."""

BURST_STREAMS: Final = ("flights", "flights-150-boosting", "flights-cancelled-logistic")


if __name__ == "__main__":
    main()
