"""Streams whose labels come later for one class: what the default serves, over what the truth would.

``python benchmarks/class_delays.py`` prints one table: for each kind of stream the log loss of the default
over that of the true probabilities, the start included, as mean and worst; the same of the scores; and the
mean forecast over the mean truth in the second half. ``--seed N`` draws other streams; ``--kinds NAME ...``
takes these kinds of delay alone. 30,000 predictions each; delays are in predictions, and a week is 7,000.
"""

from __future__ import annotations

import argparse
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

# ruff: noqa: ARG001, ARG005, E402  # delays take what some need; numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from pages import markdown
from peers import Floats, Labels
from replay import log_losses
from scipy.special import expit

from streamcal import Recalibrator

N: Final = 30_000
WEEK: Final = 7_000
BATCH: Final = 25  # predictions between which no labels come

Delays = Callable[[np.random.Generator, Labels, Floats, Floats], Floats]
"""Function of a generator, labels, log odds and times that returns delays; infinite: no label ever comes."""


def exponential(negatives: float, positives: float) -> Delays:
    return lambda r, y, x, at: np.where(y, positives, negatives) * r.exponential(1.0, N)


def fixed(negatives: float, positives: float) -> Delays:
    return lambda r, y, x, at: np.where(y, positives, negatives)


def weekly(label: int) -> Delays:
    """Return the delays where labels of one class come at the end of the week, the others at once."""
    return lambda r, y, x, at: np.where(y == label, WEEK - at % WEEK, 0.0)


def outage(delays: Delays, hits: Callable[[Labels], Labels]) -> Delays:
    """Return delays with a feed that stands still for a tenth of the stream, for some labels."""

    def of(r: np.random.Generator, y: Labels, x: Floats, at: Floats) -> Floats:
        due = at + delays(r, y, x, at)
        still = (due > 0.5 * N) & (due < 0.6 * N) & (hits(y) == 1)
        return np.where(still, 0.6 * N, due) - at

    return of


def changing(positives: float, between: float) -> Delays:
    """Return the delays where positives come sooner in the middle of the stream."""

    def of(r: np.random.Generator, y: Labels, x: Floats, at: Floats) -> Floats:
        middle = (at > 0.4 * N) & (at < 0.7 * N)
        return np.where(y, np.where(middle, between, positives), 300.0) * r.exponential(1.0, N)

    return of


def swapped(r: np.random.Generator, y: Labels, x: Floats, at: Floats) -> Floats:
    """Return the delays where the classes change places."""
    return np.where((y == 1) == (at < 0.5 * N), 3000.0, 300.0) * r.exponential(1.0, N)


def sometimes(delays: Delays, share: float) -> Delays:
    """Return delays where a share of the labels of both classes never comes."""
    return lambda r, y, x, at: np.where(r.random(N) < share, np.inf, delays(r, y, x, at))


LATE: Final[dict[str, Delays]] = {
    "positives 3,000, negatives 300": exponential(300.0, 3000.0),
    "negatives 3,000, positives 300": exponential(3000.0, 300.0),
    "2,600 and 2,000": exponential(2000.0, 2600.0),
    "positives after 6,000, negatives after 2,000": fixed(2000.0, 6000.0),
    "negatives after 6,000, positives after 2,000": fixed(6000.0, 2000.0),
    "positives weekly": weekly(1),
    "negatives weekly": weekly(0),
    "negatives weekly, positives 1,000": lambda r, y, x, at: np.where(
        y, 1000.0 * r.exponential(1.0, N), WEEK - at % WEEK
    ),
    "positives heavy-tailed": lambda r, y, x, at: np.where(
        y, 800.0 * np.exp(1.5 * r.normal(0.0, 1.0, N)), 300.0 * r.exponential(1.0, N)
    ),
    "negatives heavy-tailed": lambda r, y, x, at: np.where(
        y, 300.0 * r.exponential(1.0, N), 500.0 * (r.random(N) ** (-1.0 / 1.2) - 1.0)
    ),
    "by score, too": lambda r, y, x, at: (
        np.where(y, 2500.0, 250.0) * r.exponential(1.0, N) * np.exp(-0.5 * (x - x.mean()))
    ),
    "a third never told": sometimes(exponential(300.0, 3000.0), 0.3),
}
"""Delays of which one class is longer; a number is the mean of an exponential law."""

_EITHER: Final[Callable[[Labels], Labels]] = np.ones_like
CHANGED: Final[dict[str, Delays]] = {
    "positives 6,000, then 1,500, then 6,000": changing(6000.0, 1500.0),
    "classes change places": swapped,
    "outage, positives late": outage(exponential(300.0, 3000.0), _EITHER),
    "outage, negatives late": outage(exponential(3000.0, 300.0), _EITHER),
    "outage of positives": outage(exponential(300.0, 3000.0), lambda y: y),
    "outage of negatives": outage(exponential(300.0, 3000.0), lambda y: 1 - y),
}
"""Delays that change, at a rate that does not."""

ALIKE: Final[dict[str, Delays]] = {
    "at once": fixed(0.0, 0.0),
    "500": fixed(500.0, 500.0),
    "exponential 2,000": exponential(2000.0, 2000.0),
    "weekly": lambda r, y, x, at: WEEK - at % WEEK,
    "by score": lambda r, y, x, at: 6000.0 * r.exponential(1.0, N) * expit(x - np.median(x)),
    "a third never": sometimes(exponential(2000.0, 2000.0), 0.3),
}
"""Delays that do not depend on the class."""

TRUTHS: Final[dict[str, Callable[[Floats], Floats]]] = {
    "still": lambda s: 0.0 * s,
    "doubling": lambda s: np.where(s > 0.5, 0.9, 0.0),
    "ramp": lambda s: 1.5 * np.clip((s - 0.3) / 0.5, 0.0, 1.0),
}
"""Shift of the true log odds by the part of the stream that has passed."""

RATES: Final = {0.2: -1.8, 0.02: -4.6}
"""Mean log odds by base rate."""


class Row(NamedTuple):
    """Figures of one stream."""

    served: float
    score: float
    ratio: float
    late: bool
    """Whether one class was found to come later at the end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="draws the streams")
    parser.add_argument("--kinds", nargs="+", choices=[*LATE, *CHANGED, *ALIKE], help="delays; default all")
    arguments = parser.parse_args()
    rows = []
    for name, kinds, truths, rate in groups():
        figures = [
            measured(kind, delays, truth, rate, arguments.seed)
            for kind, delays in kinds.items()
            if arguments.kinds is None or kind in arguments.kinds
            for truth in truths
        ]
        if figures:
            rows.append((name, *summary(figures)))
    head = "streams", "number", "served: mean", "worst", "scores: mean", "above the scores", "mean off by"
    print(markdown((*head, "found late"), rows))


def groups() -> Iterator[tuple[str, dict[str, Delays], list[str], float]]:
    """Yield the rows of the table: name, delays, truths and rate."""
    for rate in RATES:
        yield f"still, {rate}", LATE, ["still"], rate
        yield f"doubling and ramp, {rate}", LATE, ["doubling", "ramp"], rate
    yield "delays that change, outages, .2", CHANGED, ["still"], 0.2
    for rate in RATES:
        yield f"both classes alike, {rate}", ALIKE, list(TRUTHS), rate


def measured(kind: str, delays: Delays, truth: str, rate: float, seed: int) -> Row:
    """Return the figures of one stream."""
    rng = np.random.default_rng([seed, zlib.crc32(f"{kind} {truth} {rate}".encode())])
    mean, off = RATES[rate], (1.0, -0.7)[int(rng.integers(2))]
    logits, at = rng.normal(mean, 1.2, N), np.arange(float(N))
    scores, true = expit(0.85 * (logits - mean) + mean + off), expit(logits + TRUTHS[truth](at / N))
    labels = (rng.random(N) < true).astype(np.int8)
    served, late = answers(scores, labels, at + delays(rng, labels, logits, at))
    least = log_losses(true, labels).mean()
    half = slice(N // 2, None)
    return Row(
        float(log_losses(served, labels).mean() / least),
        float(log_losses(scores, labels).mean() / least),
        float(served[half].mean() / true[half].mean()),
        late,
    )


def answers(scores: Floats, labels: Labels, due: Floats) -> tuple[Floats, bool]:
    """Return what the default answers, and whether it has found that one class comes later."""
    engine, served, told = Recalibrator(), np.empty(N), 0
    order = np.argsort(due, kind="stable").tolist()
    at, values, known = due[order].tolist(), scores.tolist(), labels.tolist()
    for start in range(0, N, BATCH):
        part = slice(start, start + BATCH)
        served[part] = engine.predict_many(scores[part])
        engine.observe_many(scores[part])
        while told < N and at[told] < start + BATCH:
            index = order[told]
            engine.learn_one(values[index], known[index], prediction_index=index)
            told += 1
    delays = engine.label_delays
    return served, delays is not None and delays.late is not None


def summary(rows: list[Row]) -> tuple[str, ...]:
    """Return the columns of several streams."""
    served = [row.served for row in rows]
    above = sum(row.served > 1.005 * row.score for row in rows)
    off = float(np.mean([abs(row.ratio - 1.0) for row in rows]))
    return (
        str(len(rows)),
        f"{np.mean(served):.3f}",
        f"{max(served):.3f}",
        f"{np.mean([row.score for row in rows]):.3f}",
        str(above),
        f"{off:.1%}",
        str(sum(row.late for row in rows)),
    )


if __name__ == "__main__":
    main()
