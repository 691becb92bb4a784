"""Does late or rare feedback mislead it? What is served over what is true, on simulated streams and flights.

    python -m benchmarks.late_and_rare [--parts late rare classes flights] [--seeds 10] [--jobs 2]

late: scores whose odds are e^off times the right ones, and labels 5,000 or 10,000 predictions late, or after
exponential delays of 3,000; figures are of the last 5,000 predictions. rare: 200,000 predictions of which one
in a thousand or in five thousand is positive; figures are of the second half. classes: labels of one class
come later than those of the other, or change places, or stop for a while; 30,000 predictions, a week is
7,000. flights: those that arrived, May to December, by month; a flight is told as late once it is 15 minutes
overdue, and nobody tells of the others.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from typing import Any, Final, NamedTuple

# ruff: noqa: ARG001, ARG005, E402  # delays take what some need; numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit

from benchmarks.measuring import options, publish
from benchmarks.methods import (
    Floats,
    InTurn,
    Labels,
    SlidingPlatt,
    Streamcal,
    exponential,
    log_losses,
    replay,
)
from benchmarks.streams import read_flights
from streamcal import JoinConfig, LabelEvent, PredictionEvent, Recalibrated, Recalibrator

N: Final = 30_000
WEEK: Final = 7_000
BATCH: Final = 25  # predictions between which no labels come
HOUR: Final = 3_600.0
YEAR: Final = 365 * 24 * HOUR
NEVER: Final = float("inf")

Table = tuple[tuple[str, ...], Iterator[Sequence[str]]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="how many processes; default 1")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.parts, asked.seeds = ["late"], 1
    with ProcessPoolExecutor(asked.jobs) as pool:
        for part in asked.parts:
            header, rows = PARTS[part](pool, asked.seeds)
            publish(part, header, rows, write=asked.write)


def drawn(truth: Floats, rng: np.random.Generator) -> Labels:
    """Return a label of each probability."""
    return (rng.random(len(truth)) < truth).astype(np.int8)


# All labels late


WHEN: Final = {"at once": 0, "5,000 late": 5_000, "10,000 late": 10_000, "exponential": 3_000}


def late(pool: ProcessPoolExecutor, seeds: int) -> Table:
    """Return a row for each delay and each error of the scores."""
    cases = [(when, off) for when in WHEN for off in ((1.0,) if when == "at once" else (1.0, 2.0, -1.5))]

    def rows() -> Iterator[Sequence[str]]:
        for when, off in cases:
            found = np.array(list(pool.map(partial(late_case, when, off), range(seeds))))
            yield [f"{off:+g}, {when}", *ends(found[:, 0]), *ends(found[:, 1])]

    return ("scores off by, labels", "served / true", "", "root mean square error", ""), rows()


def ends(values: Floats) -> tuple[str, str]:
    """Return the mean of several seeds, and the least and the greatest."""
    return f"{values.mean():.4g}", f"{values.min():.4g} to {values.max():.4g}"


def late_case(when: str, off: float, seed: int) -> tuple[float, float]:
    """Return the mean served over the mean truth, and the root mean square error."""
    rng, n = np.random.default_rng(seed), 30_000 if when.startswith("10,000") else 20_000
    logits = rng.normal(-2.0, 1.2, n)
    truth, labels = expit(logits), drawn(expit(logits), rng)
    delays = exponential(n, WHEN[when], rng) if when == "exponential" else WHEN[when]
    served = replay(Streamcal(), expit(logits + off), labels, delays)[-5_000:]
    truth = truth[-5_000:]
    return float(served.mean() / truth.mean()), float(np.sqrt(np.mean((served - truth) ** 2)))


# Rare positives


def rare(pool: ProcessPoolExecutor, seeds: int) -> Table:
    """Return a row for each rate and each error of the scores."""

    def rows() -> Iterator[Sequence[str]]:
        for rate, factor in ((2e-4, 10.0), (1e-3, 0.2)):
            found = np.array(list(pool.map(partial(rare_case, rate, factor), range(seeds))))
            yield [f"{rate:g}, × {factor:g}", *(f"{value:.3f}" for value in found.mean(axis=0))]

    quartiles = (f"served / true, quarter {place} of the truth" for place in range(1, 5))
    return ("base rate, odds of the scores", *quartiles, "log loss / sliding Platt on all labels"), rows()


def rare_case(rate: float, factor: float, seed: int) -> list[float]:
    """Return served over true by quartile of the truth, and our log loss over that of Platt scaling."""
    n, least, rng = 200_000, 1e-7, np.random.default_rng(seed)
    truth = expit(rng.normal(centre(rate, 1.4), 1.4, n))
    labels, scores = drawn(truth, rng), expit(logit(truth) + np.log(factor))
    served = replay(Streamcal(), scores, labels, block=100)
    platt = replay(InTurn(SlidingPlatt(n, 5_000)), scores, labels, block=100)
    half = slice(n // 2, None)
    bands = np.array_split(np.argsort(truth[half]), 4)
    out = [float(served[half][band].sum() / truth[half][band].sum()) for band in bands]
    ours, theirs = (log_losses(each, labels, least).mean() for each in (served, platt))
    return [*out, float(ours / theirs)]


@cache
def centre(rate: float, spread: float) -> float:
    """Return the m for which expit(N(m, spread²)) has this mean."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    return float(brentq(lambda m: weights @ expit(m + spread * nodes) - rate, logit(rate) - 10.0, 10.0))


# Labels of one class later


Delays = Callable[[np.random.Generator, Labels, Floats, Floats], Floats]
"""Function of a generator, labels, log odds and times that returns delays; infinite: no label ever comes."""


def each_class(negatives: float, positives: float) -> Delays:
    return lambda r, y, x, at: np.where(y, positives, negatives) * r.each_class(1.0, N)


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
        return np.where(y, np.where(middle, between, positives), 300.0) * r.each_class(1.0, N)

    return of


def swapped(r: np.random.Generator, y: Labels, x: Floats, at: Floats) -> Floats:
    """Return the delays where the classes change places."""
    return np.where((y == 1) == (at < 0.5 * N), 3000.0, 300.0) * r.each_class(1.0, N)


def sometimes(delays: Delays, share: float) -> Delays:
    """Return delays where a share of the labels of both classes never comes."""
    return lambda r, y, x, at: np.where(r.random(N) < share, np.inf, delays(r, y, x, at))


LATE: Final[dict[str, Delays]] = {
    "positives 3,000, negatives 300": each_class(300.0, 3000.0),
    "negatives 3,000, positives 300": each_class(3000.0, 300.0),
    "2,600 and 2,000": each_class(2000.0, 2600.0),
    "positives after 6,000, negatives after 2,000": fixed(2000.0, 6000.0),
    "negatives after 6,000, positives after 2,000": fixed(6000.0, 2000.0),
    "positives weekly": weekly(1),
    "negatives weekly": weekly(0),
    "negatives weekly, positives 1,000": lambda r, y, x, at: np.where(
        y, 1000.0 * r.each_class(1.0, N), WEEK - at % WEEK
    ),
    "positives heavy-tailed": lambda r, y, x, at: np.where(
        y, 800.0 * np.exp(1.5 * r.normal(0.0, 1.0, N)), 300.0 * r.each_class(1.0, N)
    ),
    "negatives heavy-tailed": lambda r, y, x, at: np.where(
        y, 300.0 * r.each_class(1.0, N), 500.0 * (r.random(N) ** (-1.0 / 1.2) - 1.0)
    ),
    "by score, too": lambda r, y, x, at: (
        np.where(y, 2500.0, 250.0) * r.each_class(1.0, N) * np.exp(-0.5 * (x - x.mean()))
    ),
    "a third never told": sometimes(each_class(300.0, 3000.0), 0.3),
}
"""Delays of which one class is longer; a number is the mean of an exponential law."""

_EITHER: Final[Callable[[Labels], Labels]] = np.ones_like
CHANGED: Final[dict[str, Delays]] = {
    "positives 6,000, then 1,500, then 6,000": changing(6000.0, 1500.0),
    "classes change places": swapped,
    "outage, positives late": outage(each_class(300.0, 3000.0), _EITHER),
    "outage, negatives late": outage(each_class(3000.0, 300.0), _EITHER),
    "outage of positives": outage(each_class(300.0, 3000.0), lambda y: y),
    "outage of negatives": outage(each_class(300.0, 3000.0), lambda y: 1 - y),
}
"""Delays that change, at a rate that does not."""

ALIKE: Final[dict[str, Delays]] = {
    "at once": fixed(0.0, 0.0),
    "500": fixed(500.0, 500.0),
    "exponential 2,000": each_class(2000.0, 2000.0),
    "weekly": lambda r, y, x, at: WEEK - at % WEEK,
    "by score": lambda r, y, x, at: 6000.0 * r.each_class(1.0, N) * expit(x - np.median(x)),
    "a third never": sometimes(each_class(2000.0, 2000.0), 0.3),
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


def classes(pool: ProcessPoolExecutor, seeds: int) -> Table:
    """Return a row for each group of streams, one seed each."""
    groups = []
    for rate in RATES:
        groups += [(f"still, base rate {rate}", LATE, ["still"], rate)]
        groups += [(f"moving, base rate {rate}", LATE, ["doubling", "ramp"], rate)]
        groups += [(f"both classes alike, base rate {rate}", ALIKE, list(TRUTHS), rate)]
    groups += [("delays that change, outages, base rate 0.2", CHANGED, ["still"], 0.2)]

    def rows() -> Iterator[Sequence[str]]:
        for name, kinds, truths, rate in groups:
            cases = [(kind, truth, rate) for kind in kinds for truth in truths]
            found = np.array(list(pool.map(class_case, *zip(*cases, strict=True))))
            served, scores, off = found.T
            above = int((served > 1.005 * scores).sum())
            figures = (f"{value:.3f}" for value in (served.mean(), served.max(), scores.mean()))
            yield [name, str(len(found)), *figures, str(above), f"{off.mean():.1%}"]

    header = ("streams", "number", "log loss / truth's: mean", "worst", "of the scores: mean")
    return (*header, "worse than the scores", "mean off by"), rows()


def class_case(kind: str, truth: str, rate: float) -> tuple[float, float, float]:
    """Return the log loss of what is served and of the scores over that of the truth, and how far it is off.

    That is the distance from 1 of the mean served over the mean truth in the second half.
    """
    rng = np.random.default_rng([0, zlib.crc32(f"{kind} {truth} {rate}".encode())])
    mean, off = RATES[rate], (1.0, -0.7)[int(rng.integers(2))]
    logits, at = rng.normal(mean, 1.2, N), np.arange(float(N))
    scores, true = expit(0.85 * (logits - mean) + mean + off), expit(logits + TRUTHS[truth](at / N))
    labels = drawn(true, rng)
    served = answers(scores, labels, at + {**LATE, **CHANGED, **ALIKE}[kind](rng, labels, logits, at))
    least, half = log_losses(true, labels).mean(), slice(N // 2, None)
    ours, raw = (float(log_losses(made, labels).mean() / least) for made in (served, scores))
    return ours, raw, float(abs(served[half].mean() / true[half].mean() - 1.0))


def answers(scores: Floats, labels: Labels, due: Floats) -> Floats:
    """Return what the default answers, where labels come at these times, in predictions."""
    engine, served, memos, told = Recalibrator(), np.empty(N), list[bytes](), 0
    order = np.argsort(due, kind="stable").tolist()
    at, values, known = due[order].tolist(), scores.tolist(), labels.tolist()
    for start in range(0, N, BATCH):
        part = slice(start, start + BATCH)
        made = engine.answer_many(scores[part])
        served[part] = made.probabilities
        memos += made.memos
        while told < N and at[told] < start + BATCH:
            index = order[told]
            engine.learn_one(values[index], known[index], memo=memos[index])
            told += 1
    return served


# Flights


WAYS: Final = {
    "at once": "every label, at the prediction: nobody has it",
    "wait": "predictions that are matured, those not told as 0",
    "exposure": "positives as they are told, over the predictions that would have been told by now",
}


class Stream(NamedTuple):
    """Predictions in the order of time, one of each; float64[n]."""

    months: Any
    scores: Floats
    times: Floats
    labels: Floats
    told: Floats
    """When it is told as late; inf: never."""
    label_delay_limit: float


def overdue() -> Stream:
    """Return the flights that arrived."""
    labels = {row["id"]: row["label"] for row in read_flights("labels")}
    predictions = [row for row in read_flights("predictions") if row["id"] in labels]
    told = {row["id"]: row["time"] for row in read_flights("overdue")}
    return Stream(
        np.array([int(row["id"][:2]) for row in predictions]),
        np.array([row["score"] for row in predictions]),
        np.array([row["time"] for row in predictions], np.float64),
        np.array([labels[row["id"]] for row in predictions], np.float64),
        np.array([told.get(row["id"], NEVER) for row in predictions]),
        12 * HOUR,
    )


def complaints() -> Stream:
    """Return the flights with made-up delays: 10 days in the mean, 30 at most."""
    flights, rng, day = overdue(), np.random.default_rng(16), 24 * HOUR
    shares = rng.random(len(flights.times)) * -np.expm1(-3.0)
    told = np.where(flights.labels == 1.0, flights.times - 10.0 * day * np.log1p(-shares), NEVER)
    return flights._replace(told=told, label_delay_limit=30 * day)


def served(stream: Stream, way: str) -> Floats:
    """Return what mode ``auto`` serves, behind the join: float64[n].

    Of *at once*, *drop* and *wait*, the labels come at the moments at which the way knows them. *Exposure* is
    ``missing_labels = "negative"`` with ``label_delay_limit``, and only positives come.
    """
    count, mature = len(stream.times), stream.label_delay_limit
    join = JoinConfig(label_ttl=YEAR)
    if way == "exposure":
        join = JoinConfig(label_ttl=YEAR, missing_labels="negative", label_delay_limit=mature)
    come = {"at once": stream.times, "wait": stream.times + mature}.get(way, stream.told)
    labels = (stream.labels if way in ("at once", "wait") else np.ones(count)).astype(int).tolist()
    moments = np.concatenate([stream.times, come])
    order = np.argsort(moments, kind="stable")
    engine, made = Recalibrator(join=join), np.empty(count)
    for number in order[moments[order] <= stream.times[-1]].tolist():
        row, time = number % count, float(moments[number])
        if number >= count:
            engine.step(LabelEvent(str(row), labels[row], time))
            continue
        for out in engine.step(PredictionEvent(str(row), float(stream.scores[row]), time)):
            if isinstance(out, Recalibrated):
                made[row] = out.probability
    return made


def flight_losses(delays: str, way: str) -> list[float]:
    """Return the Brier score of each month and of all of them."""
    stream = overdue() if delays == "as they were" else complaints()
    made = stream.scores if way == "the score" else served(stream, way)
    losses = (made - stream.labels) ** 2
    months = [losses[stream.months == month].mean() for month in np.unique(stream.months)]
    return [*map(float, months), float(losses.mean())]


def flights(pool: ProcessPoolExecutor, seeds: int) -> Table:
    """Return a row for each kind of delays and each way to count."""
    cases = [(delays, way) for delays in ("as they were", "made up") for way in ("the score", *WAYS)]

    def rows() -> Iterator[Sequence[str]]:
        found = pool.map(flight_losses, *zip(*cases, strict=True))
        for (delays, way), losses in zip(cases, found, strict=True):
            yield [f"{way}, delays {delays}", *(f"{loss:.4f}" for loss in losses)]

    months = ("May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    return ("known to mode auto", *months, "all"), rows()


PARTS: Final[dict[str, Callable[[ProcessPoolExecutor, int], Table]]] = {
    "late": late,
    "rare": rare,
    "classes": classes,
    "flights": flights,
}


if __name__ == "__main__":
    main()
