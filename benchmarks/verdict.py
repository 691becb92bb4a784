"""Can I believe the verdict? Coverage, width and power of what it says, and the worth of its advice.

    python -m benchmarks.verdict [--parts advice kinds … decisions] [--streams 1000]

Tables of docs/proofs/verdict.md. Advice: streams on which something is wrong or changes, what is said of
them, and Brier score and gap from the change on, before and after the advice is followed. Kinds: of 23 kinds
of streams, how often the verdict tells a deviation that is not there, and names a cause that is none. The
others: how many streams of each truth violate an interval at any of 30 looks; how wide the intervals are
beside those for one look; after how many labels a deviation is told; how often one is told of calibrated
forecasts; the same, and certificates, where only some predictions are labelled; what is said of the flights,
month by month; and how decisions on real streams fare beside what was expected of them before labels came.
"""

from __future__ import annotations

import gzip
import itertools
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

import streamcal
from benchmarks.measuring import options, publish
from benchmarks.streams import FLIGHTS, load
from streamcal.base.values import Floats
from streamcal.cli.demo import FILES
from streamcal.quality.sampled_sums import SampledSums
from streamcal.quality.sequences import Sequences
from streamcal.quality.verdict import Arrival, Verdict, judge
from streamcal.quality.watch import ForecastWatch
from streamcal.run import runner
from streamcal.run.connectors import Connectors
from streamcal.run.outcome import Outcome
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.certificates import test_drawn
from tests.quality import forecasts, sampled

DAY: Final = 86_400.0
DAYS: Final = 100
N = 30_000  # predictions
BASE: Final = 0.17
APART: Final = 1.5  # distance of the classes in standard deviations of their scores
MICRO_BATCH: Final = 1_000  # events, as a service has them

Table = tuple[tuple[str, ...], Iterator[Sequence[str]]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--streams", type=int, default=1_000, help="of each truth; of each kind, 1 in 50")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS), help="these alone")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.parts, asked.streams, asked.kinds = ["kinds", "power"], 10, ["labels at once"]
    for part in asked.parts:
        header, rows = PARTS[part](asked)
        publish(part, header, rows, write=asked.write)


# Streams whose truth is known


class Stream(NamedTuple):
    """Predictions, what is true of them, and when their labels come."""

    times: Floats
    scores: Floats
    means: Floats
    """True probabilities."""
    labels: Floats
    delays: Floats
    """In seconds; NaN: no label ever comes."""
    changes: float = np.inf
    """Time at which something changes."""
    cause: str | None = None
    """What changes."""
    mode: str = "auto"
    calibration: tuple[Floats, Floats] | None = None
    """Scores and labels of the source."""


def sigmoid(x: Floats) -> Floats:
    """Return 1/(1 + e^−x)."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def drawn(
    rng: np.random.Generator, n: int | None = None, rate: float | Floats = BASE, *, source: bool = False
) -> Stream:
    """Return a stream with labels at once, and scores that are off."""
    n = N if n is None else n
    times = np.sort(rng.uniform(0.0, DAYS * DAY, n))
    labels = (rng.random(n) < rate).astype(float)
    x = rng.normal(APART * labels, 1.0)
    means = sigmoid(APART * x - APART**2 / 2.0 + np.log(rate / (1.0 - np.asarray(rate))))
    stream = Stream(times, sigmoid(1.1 * x - 1.6), means, labels, np.ones(n))
    if source:
        before = drawn(rng, 20_000 if np.max(rate) < 0.01 else 5_000, 2.0 * np.mean(rate))
        stream = stream._replace(calibration=(before.scores, before.labels))
    return stream


def weekly(times: Floats) -> Floats:
    """Return the delays of what is told at the end of each week."""
    return np.asarray(np.ceil(times / (7.0 * DAY)) * 7.0 * DAY - times)


def late(stream: Stream, label: int, rng: np.random.Generator, slow: float, fast: float) -> Stream:
    """Let labels of one class come later, after exponential delays of so many days in the mean."""
    means = np.where(stream.labels == label, slow, fast) * DAY
    return stream._replace(delays=rng.exponential(1.0, len(means)) * means)


def tied(stream: Stream, rng: np.random.Generator) -> Stream:
    """Give a stream four scores."""
    places = np.searchsorted(np.quantile(stream.scores, [0.25, 0.5, 0.75]), stream.scores)
    means = np.array([stream.means[places == each].mean() for each in range(4)])[places]
    labels = (rng.random(len(means)) < means).astype(float)
    return stream._replace(scores=np.array([0.2, 0.4, 0.6, 0.8])[places], means=means, labels=labels)


def saturated(rng: np.random.Generator) -> Stream:
    """Return a stream many of whose scores are 0 or 1."""
    made = drawn(rng)
    scores = np.where(made.scores < 0.15, 0.0, np.where(made.scores > 0.5, 1.0, made.scores))
    return made._replace(scores=scores)


def bulk(label: int | None, rng: np.random.Generator, rate: float = BASE) -> Stream:
    """Tell labels of a class, or of both, weekly."""
    made = drawn(rng, rate=rate)
    told = np.ones(N) if label is None else made.labels == label
    return made._replace(delays=np.where(told, weekly(made.times), 1.0))


def after_the_end(first: int, rng: np.random.Generator, *, source: bool = False) -> Stream:
    """Tell all labels after the last prediction, those of one class first."""
    made = drawn(rng, source=source)
    wait = np.where(made.labels == first, 1.0, 3.0) * DAY + rng.uniform(0.0, DAY, N)
    return made._replace(delays=DAYS * DAY - made.times + wait)


def some(rng: np.random.Generator) -> Stream:
    """Label a third of the predictions, at random, exponentially late."""
    made = drawn(rng)
    delays = np.where(rng.random(N) < 1 / 3, rng.exponential(DAY, N), np.nan)
    return made._replace(delays=delays)


def hourly(rng: np.random.Generator) -> Stream:
    """Tell labels at the end of the hour, negatives first."""
    made = drawn(rng)
    return made._replace(delays=np.ceil(made.times / 3600) * 3600 - made.times + 600 * made.labels)


def outage(rng: np.random.Generator) -> Stream:
    """Tell no positives for ten days, and all of them then."""
    made = drawn(rng)
    out = (made.labels == 1.0) & (made.times > 50 * DAY) & (made.times < 60 * DAY)
    return made._replace(delays=np.where(out, 60 * DAY - made.times, 1.0))


def frozen(stream: Stream, rng: np.random.Generator, cause: str) -> Stream:
    """Serve a map of before a change in the middle of a stream."""
    before = drawn(rng, 5_000)
    calibration = before.scores, before.labels
    return stream._replace(changes=50 * DAY, cause=cause, mode="source", calibration=calibration)


def balance(rng: np.random.Generator) -> Stream:
    """Move the class balance from .17 to .34."""
    rate = np.where(np.arange(N) < N // 2, BASE, 2.0 * BASE)
    return frozen(drawn(rng, rate=rate), rng, "class_balance")


def relation(rng: np.random.Generator) -> Stream:
    """Let the scores mean something else: less, and more on average."""
    made, later = drawn(rng), np.arange(N) >= N // 2
    log_odds = np.log(made.means / (1.0 - made.means))
    means = np.where(later, sigmoid(0.3 * log_odds - 0.3), made.means)
    labels = (rng.random(N) < means).astype(float)
    return frozen(made._replace(means=means, labels=labels), rng, "relation")


def population(rng: np.random.Generator) -> Stream:
    """Let high scores become frequent, where the map is too high."""
    made, later = drawn(rng), np.arange(N) >= N // 2
    x = (np.log(made.scores / (1.0 - made.scores)) + 1.6) / 1.1 + np.where(later, 1.2, -0.8)
    log_odds = APART * x - APART**2 / 2.0 + np.log(BASE / (1.0 - BASE))
    means = sigmoid(log_odds - 0.4 * np.maximum(x - 1.5, 0.0) ** 2)
    labels = (rng.random(N) < means).astype(float)
    made = made._replace(scores=sigmoid(1.1 * x - 1.6), means=means, labels=labels)
    straight = drawn(rng, 5_000)
    made = frozen(made, rng, "scores")
    return made._replace(calibration=(straight.scores, straight.labels))


def reversed_(rng: np.random.Generator) -> Stream:
    """Give the score of the other class."""
    made = drawn(rng)
    before = drawn(rng, 5_000)
    return made._replace(
        scores=1.0 - made.scores, changes=0.0, cause="ranking_reversed", mode="source",
        calibration=(before.scores, before.labels),
    )  # fmt: skip


def off(rng: np.random.Generator) -> Stream:
    """Serve a map of another population's labels, from the first prediction on."""
    made, other = drawn(rng), drawn(rng, 5_000, 0.3)
    return made._replace(mode="source", calibration=(other.scores, other.labels))


KINDS: Final[dict[str, Callable[[np.random.Generator], Stream]]] = {
    "labels at once": drawn,
    "exponential, 1 day": lambda rng: late(drawn(rng), 1, rng, 1.0, 1.0),
    "weekly": lambda rng: bulk(None, rng),
    "negatives weekly": lambda rng: bulk(0, rng),
    "positives weekly": lambda rng: bulk(1, rng),
    "positives after 10 days, negatives after 1": lambda rng: late(drawn(rng), 1, rng, 10.0, 1.0),
    "negatives after 10 days, positives after 1": lambda rng: late(drawn(rng), 0, rng, 10.0, 1.0),
    "a source, positives after 10 days": lambda rng: late(drawn(rng, source=True), 1, rng, 10.0, 1.0),
    "a source, 1e-3, positives later": lambda rng: late(
        drawn(rng, rate=1e-3, source=True), 1, rng, 10.0, 1.0
    ),
    "a source, 1e-3, negatives later": lambda rng: late(
        drawn(rng, rate=1e-3, source=True), 0, rng, 10.0, 1.0
    ),
    "four scores": lambda rng: tied(drawn(rng), rng),
    "1e-3": lambda rng: drawn(rng, rate=1e-3),
    "scores of 0 and 1": saturated,
    "drained, positives first": lambda rng: after_the_end(1, rng),
    "drained, negatives first, a source": lambda rng: after_the_end(0, rng, source=True),
    "a third labelled": some,
    "hourly, negatives first": hourly,
    "an outage of ten days for positives": outage,
    "a map that is off": off,
    "the balance moves": balance,
    "the relation changes": relation,
    "the population changes": population,
    "the score of the other class": reversed_,
}


class Look(NamedTuple):
    """A verdict, and what was known then."""

    verdict: Verdict
    until: float
    """Event time of the latest prediction that it is about."""


def replayed(stream: Stream) -> tuple[list[Look], streamcal.Backtest, Floats]:
    """Replay a stream; return all verdicts, what came out, and what was served."""
    looks = list[Look]()
    look = ForecastWatch._look

    def noted(watch: ForecastWatch, arrival: Arrival) -> Verdict | None:
        until = watch.sequences.latest if arrival.fair else (watch.clock or 0.0) - arrival.age
        looks.append(Look(judge(watch.sums(arrival), arrival), until or 0.0))
        return look(watch, arrival)

    ForecastWatch._look = noted  # type: ignore[method-assign]
    runner.MAX_EVENTS = MICRO_BATCH  # type: ignore[misc]
    ids, told = np.arange(len(stream.times)), stream.times + stream.delays
    order = np.argsort(told, kind="stable")[: int(np.isfinite(told).sum())]
    source = None
    if stream.calibration is not None:
        source = pl.DataFrame(dict(zip(("score", "label"), stream.calibration, strict=True)))
    try:
        with warnings.catch_warnings(action="ignore"):
            done = streamcal.backtest(
                pl.DataFrame({"id": ids, "score": stream.scores, "time": stream.times}),
                pl.DataFrame({"id": ids[order], "label": stream.labels[order], "time": told[order]}),
                source,
                mode=stream.mode,  # type: ignore[arg-type]
                join={"label_ttl": "P200D"},
            )
    finally:
        ForecastWatch._look = look  # type: ignore[method-assign]
    quality = done._pipeline.quality
    looks.append(Look(quality.verdict(), looks[-1].until if looks else 0.0))
    return looks, done, done.frame.sort("id")["probability"].to_numpy()


def is_wrong(look: Look, stream: Stream, served: Floats) -> bool:
    """Return whether a deviation is told that is not there by half of what is sure."""
    verdict = look.verdict
    if not verdict.deviates:
        return False
    since = -np.inf if verdict.since is None else verdict.since
    part = (stream.times >= since) & (stream.times <= look.until)
    if verdict.band is not None:
        part &= (served >= verdict.band[0]) & (served < verdict.band[1])
    scores, means, served = stream.scores[part], stream.means[part], served[part]
    if not len(means):
        return False
    if verdict.state in ("too low", "too high"):
        least = min(abs(verdict.low or 0.0), abs(verdict.high or 0.0))
        return bool(np.mean(served - means) * (1 if verdict.state == "too high" else -1) < 0.5 * least)
    if verdict.state == "worse than the score":
        return bool(np.mean((scores - means) ** 2 - (served - means) ** 2) >= 0.0)
    return bool(np.corrcoef(scores, means)[0, 1] >= 0.0)


# Kinds of streams, and advice


def kinds(asked: Any) -> Table:
    """Return a row for each kind of stream, over their looks."""
    count = max(asked.streams // 50, 1)

    def rows() -> Iterator[Sequence[str]]:
        for kind in asked.kinds:
            all_ = told = wrong = causes = false = unsure = 0
            for seed in range(count):
                stream = KINDS[kind](np.random.default_rng([seed, len(kind)]))
                looks, _, served = replayed(stream)
                all_ += len(looks)
                for look in looks:
                    cause = look.verdict.cause
                    told += look.verdict.deviates
                    wrong += is_wrong(look, stream, served)
                    causes += cause is not None
                    false += cause is not None and (cause != stream.cause or look.until < stream.changes)
                unsure += looks[-1].verdict.state == "cannot tell"
            yield [kind, *map(str, (count, all_, told, wrong, causes, false, unsure))]

    header = ("kind of stream", "streams", "looks", "a deviation told", "wrong", "a cause named", "falsely")
    return (*header, "cannot tell at the end"), rows()


ADVICE: Final[dict[str, tuple[str, Callable[[Stream], Stream]]]] = {
    "the balance moves": ('mode "auto"', lambda stream: stream._replace(mode="auto")),
    "the relation changes": ('mode "auto"', lambda stream: stream._replace(mode="auto")),
    "the population changes": ('mode "auto"', lambda stream: stream._replace(mode="auto")),
    "a map that is off": ('mode "auto"', lambda stream: stream._replace(mode="auto")),
    "the score of the other class": (
        "the score of class 1",
        lambda stream: stream._replace(scores=1.0 - stream.scores),
    ),
}


def advice(asked: Any) -> Table:
    """Return a row for each kind of stream: what following the advice changes, from the change on."""
    count = min(max(asked.streams // 50, 1), 5)

    def rows() -> Iterator[Sequence[str]]:
        for kind, (what, follow) in ADVICE.items():
            found = list[tuple[float, ...]]()
            for seed in range(count):
                stream = KINDS[kind](np.random.default_rng([seed, len(kind)]))
                later = stream.times >= (0.0 if stream.changes == np.inf else stream.changes)
                row = list[float]()
                for each in (stream, follow(stream)):
                    looks, _, served = replayed(each)
                    row += [np.mean((served - part)[later] ** power) for part, power in judged(stream)]
                    if each is stream:
                        said = looks[-1].verdict
                found.append(tuple(row))
            old, gap, new, moved = np.mean(found, axis=0)
            better = sum(row[2] < row[0] and abs(row[3]) < abs(row[1]) for row in found)
            gaps = f"{gap:+.3f} → {moved:+.3f} ({better} of {count} better)"
            what_ = f"{said.state}: {said.cause or 'cause not clear'}"
            yield [kind, what_, what, f"{old:.4f} → {new:.4f}", gaps]

    return ("stream", "said", "advice followed", "Brier score", "gap"), rows()


def judged(stream: Stream) -> tuple[tuple[Floats, int], tuple[Floats, int]]:
    """Return what forecasts are compared with for the Brier score and for the gap, and the power of that."""
    return (stream.labels, 2), (stream.means, 1)


# Coverage, width and power


def coverage(asked: Any) -> Table:
    """Return how many streams violate an interval."""

    def rows() -> Iterator[Sequence[str]]:
        for truth in forecasts.TRUTHS:
            missed = [
                forecasts.misses(truth(np.random.default_rng(seed), 3_000), range(100, 3_001, 100))
                for seed in range(asked.streams)
            ]
            counts = [sum(each[name] for each in missed) for name in ("before", "after", "gain")]
            yield [truth.__name__, *map(str, counts)]

    return ("truth", "gaps before", "gaps after", "gains"), rows()


def widths(_: Any) -> Table:
    """Return the widths over all labels at 10⁴, over those of the normal interval for one look."""

    def rows() -> Iterator[Sequence[str]]:
        for truth in forecasts.TRUTHS:
            stream, sequences, n = truth(np.random.default_rng(0), 10_000), Sequences(), 10_000
            both = np.stack([stream.scores, stream.forecasts])
            sequences.add(both, stream.labels, np.full(n, np.nan))
            gaps, gains = sequences.sums.gaps("after"), sequences.sums.gains()
            before, after = (both - stream.labels) ** 2
            parts = stream.forecasts - stream.labels, before - after
            once = [2.0 * 1.96 * each.std() / n**0.5 for each in parts]
            ours = gaps.high[0, 0] - gaps.low[0, 0], gains.high[0] - gains.low[0]
            yield [truth.__name__, f"{ours[0] / once[0]:.2f}", f"{ours[1] / once[1]:.2f}"]

    return ("truth", "gap", "gain"), rows()


def reversed_ranking(rng: np.random.Generator, before: int) -> forecasts.Stream:
    """Forecasts that are right before so many labels, and reversed after, at the same base rate."""
    n = before + 2_000
    made = forecasts.logistic(rng.normal(-1.0, 1.5, n))
    turned = np.sort(made)[::-1][np.argsort(np.argsort(made))]
    means = np.where(np.arange(n) < before, made, turned)
    return forecasts.Stream(made, made, (rng.random(n) < means).astype(float), means)


def too_low(rng: np.random.Generator, before: int) -> forecasts.Stream:
    """Forecasts .03 too low, base rate .17."""
    n = before + 8_000
    means = np.clip(rng.beta(2.0, 12.0, n) + 0.03, 0.0, 1.0)
    return forecasts.Stream(means - 0.03, means - 0.03, (rng.random(n) < means).astype(float), means)


def half(rng: np.random.Generator, before: int) -> forecasts.Stream:
    """Forecasts of .01 where the base rate is .02."""
    n = before + 8_000
    made = np.minimum(0.01 * np.exp(rng.normal(0.0, 0.8, n) - 0.32), 0.5)
    return forecasts.Stream(made, made, (rng.random(n) < 2.0 * made).astype(float), 2.0 * made)


def label_shift(rng: np.random.Generator, before: int) -> forecasts.Stream:
    """Forecasts right for a class prior of .2, which moves to .3 after so many labels."""
    n = before + 8_000
    labels = (rng.random(n) < np.where(np.arange(n) < before, 0.2, 0.3)).astype(float)
    made = forecasts.logistic(1.5 * rng.normal(1.5 * labels, 1.0) - 1.125 + np.log(0.25))
    return forecasts.Stream(made, made, labels, labels)


def power(asked: Any) -> Table:
    """Return after how many labels deviations are told."""
    makers = (
        (reversed_ranking, 0),
        (reversed_ranking, 5_000),
        (too_low, 0),
        (half, 0),
        (label_shift, 0),
        (label_shift, 5_000),
    )

    def rows() -> Iterator[Sequence[str]]:
        for make, before in makers:
            found = [
                forecasts.told_after(make(np.random.default_rng(seed), before), before, 25)
                for seed in range(max(asked.streams // 10, 10))
            ]
            after = np.array([np.inf if each is None else each[0] for each in found])
            middle, most = np.quantile(after, [0.5, 0.9], method="higher")
            yield [
                make.__name__.replace("_", " "),
                f"{before:,}",
                *(f"{value:,.0f}" for value in (middle, most, after.max())),
            ]

    return ("deviation", "from label", "told after: median", "9 of 10", "most"), rows()


def false_verdicts(asked: Any) -> Table:
    """Return of how many calibrated streams a deviation is told, looked at 40 times."""

    def rows() -> Iterator[Sequence[str]]:
        for name, make in (("base rate .24", forecasts.calibrated), ("base rate .005", forecasts.rare)):
            told = 0
            for seed in range(asked.streams):
                stream = make(np.random.default_rng(seed), 20_000)
                right = forecasts.Stream(stream.means, stream.means, stream.labels, stream.means)
                told += forecasts.told_after(right, 0, 500) is not None
            yield [name, f"{asked.streams:,}", str(told)]

    return ("calibrated forecasts", "streams", "a deviation told"), rows()


# Flights


def sampled_coverage(asked: Any) -> Table:
    """Streams by how labels were sampled: with a missed interval, doubted, or called wrong though right."""

    def rows() -> Iterator[Sequence[str]]:
        for kind in sampled.KINDS:
            for wrong in (1.0, 1.5, 1.0 / 1.5):
                streams = asked.streams if wrong == 1.0 else asked.streams // 10
                both = [
                    [
                        sampled.sampled(seed, kind, factor, n=5_000, wrong=wrong, looks=10)
                        for seed in range(streams)
                    ]
                    for factor in (2.0, 1.0)
                ]
                doubted = sum(any(sums.refutes_propensities for sums in each.looks) for each in both[0])
                told = sum(any(map(deviates, each.looks)) for each in both[1])
                cells = f"{sum(each.misses for each in both[0]):,}", f"{doubted:,}", f"{told:,}"
                yield [kind, f"{wrong:.2f}", f"{streams:,}", *cells]

    return ("propensities", "seen, over that", "streams", "missed", "doubted", "told of calibrated"), rows()


def deviates(sums: SampledSums) -> bool:
    """Return whether a deviation is told."""
    return bool(sums.labels) and judge(sums, sampled.COMPLETE).deviates


def drawn_certificates(asked: Any) -> Table:
    """Streams by how labels were drawn, that exceed a certificate at any look, and the last certificate."""
    ways: list[tuple[str, str, dict[str, Any]]] = [(way, way, {}) for way in test_drawn.WAYS]
    ways += [(f"{way}, labels 1 twice as often", way, {"more_ones": 2.0}) for way in test_drawn.WAYS]
    ways += [("uniform, as a plain sample", "uniform", {"drawn": False})]
    ways += [("all labels, as a plain sample", "uniform", {"drawn": False, "share": 1.0})]

    def rows() -> Iterator[Sequence[str]]:
        for name, way, more in ways:
            streams = asked.streams // (10 if "more_ones" in more else 1)
            truths = itertools.cycle(test_drawn.ALL)
            found = [test_drawn.stream(next(truths), way, seed, **more) for seed in range(streams)]
            violated = sum(each.violated for each in found)
            labels, certified = (np.median([getattr(each, f) for each in found]) for f in ("labels", "last"))
            yield [name, f"{streams:,}", f"{violated:,}", f"{labels:,.0f}", f"{certified:.4f}"]

    return ("labels drawn", "streams", "violated", "labels, median", "certified, median"), rows()


def sampled_power(asked: Any) -> Table:
    """Labels until a deviation is told, of 24 streams, drawn uniformly and by `Sampler`."""

    def rows() -> Iterator[Sequence[str]]:
        streams = min(asked.streams, 24)
        for name, truth_of in sampled.WRONG.items():
            for base, share, n in ((0.2, 0.1, 60_000), (0.2, 0.03, 100_000), (0.02, 0.1, 150_000)):
                cells, medians = [name, f"{base:g}", f"{share:.0%}"], list[float]()
                for kind in ("uniform", "asked"):
                    last = [
                        sampled.sampled(
                            seed,
                            kind,
                            n=n,
                            share=share,
                            base=base,
                            looks=n // 500,
                            truth_of=truth_of,
                            stop=deviates,
                        ).looks[-1]
                        for seed in range(streams)
                    ]
                    labels = [each.labels if deviates(each) else np.inf for each in last]
                    medians.append(float(np.median(labels)))
                    shown = f"{medians[-1]:,.0f}" if medians[-1] < np.inf else "–"
                    cells += [f"{np.isfinite(labels).sum()} of {streams}", shown]
                yield [*cells, f"{medians[1] / medians[0]:.2f}" if medians[0] < np.inf else "–"]

    columns = "uniform", "labels", "by `Sampler`", "labels", "ratio"
    return ("forecasts", "base rate", "labelled", *columns), rows()


def flights(_: Any) -> Table:
    """Return what is said of the flights at the end of each month, and with labels of equal delay."""

    def rows() -> Iterator[Sequence[str]]:
        source, events, labels = (FLIGHTS / name for name in FILES)
        yield from said_of(source, events, labels)
        with tempfile.TemporaryDirectory() as folder:
            delayed = Path(folder) / "labels.jsonl"
            with gzip.open(events) as lines:
                times = {event["id"]: event["time"] for event in map(json.loads, lines)}
            with gzip.open(labels) as lines:
                rows = [{**row, "time": times[row["id"]] + 6 * 3600} for row in map(json.loads, lines)]
            delayed.write_text(
                "".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["time"]))
            )
            *_, (_, words) = said_of(source, events, delayed)
        yield ["year, each label 6 hours after its prediction", words]

    return ("until", "verdict"), rows()


def said_of(source: Path, events: Path, labels: Path) -> list[tuple[str, str]]:
    """Return the verdict at the end of each month, and at the end."""
    connectors, pipeline, said = Connectors(), Pipeline(), list[tuple[str, str]]()
    calibration = connectors.source(str(source), SourceOptions(domain="source"))
    deployment = [connectors.source(str(each)) for each in (events, labels)]

    def say(until: str) -> None:
        verdict = pipeline.quality.verdict()
        said.append((until, f"{verdict.sentence} {verdict.evidence}"))

    runner.MAX_EVENTS = 2_000  # micro-batches shorter than a month
    months = [""]

    def after(_: Outcome, __: float) -> None:
        clock = pipeline.join.time
        month = "" if clock is None else f"{datetime.fromtimestamp(clock, UTC):%b %Y}"
        if months[-1] and month != months[-1]:
            say(months[-1])
        months.append(month)

    inputs = Inputs([calibration], deployment)
    Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic, after=after).run()
    say("the end")
    return said


def decisions(_: Any) -> Table:
    """Return precision and recall that are expected before labels, and those that came, of real streams."""

    def rows() -> Iterator[Sequence[str]]:
        for name, predictions, labels, source, more in _decided():
            for missed in (1.0, 4.0):
                with warnings.catch_warnings(action="ignore"):
                    done = streamcal.backtest(
                        predictions,
                        labels,
                        source,
                        decision={"false_positive": 1, "false_negative": missed},
                        **more,
                    )
                said = done.summary["decision"]
                came = done.frame.join(labels.select("id", "label"), on="id", how="inner")
                acted, ones = came.filter(pl.col("decision") == "act"), came.filter(pl.col("label") == 1)
                both = acted["label"].mean(), (ones["decision"] == "act").mean()
                expected = said["expected_precision"], said["expected_recall"]
                shown = ["–" if each is None else f"{each:.3f}" for each in (*expected, *both)]
                cells = [shown[0], shown[2], shown[1], shown[3]]
                saved = said["saved"].get("the raw score")
                saved = "–" if saved is None else "{:.4f} ({:.4f} to {:.4f})".format(*saved)
                state = done._status.verdict.state
                yield [name, f"1 : {missed:g}", f"{len(came):,}", state, *cells, saved]

    columns = "precision expected", "came", "recall expected", "came", "saved against the score, a label"
    return ("stream", "costs", "labels", "verdict", *columns), rows()


def _decided() -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame, pl.DataFrame | None, dict[str, Any]]]:
    """Yield real streams: their names, predictions, labels, source and options."""
    frames = [pl.read_ndjson(gzip.decompress((FLIGHTS / name).read_bytes())) for name in FILES]
    for airport in ("EWR", "JFK", "LGA"):
        source, *both = (frame.filter(pl.col("id").str.ends_with(airport)) for frame in frames)
        yield f"flights from {airport}", *both, source, {}
    clinic = FLIGHTS.with_name("clinic")
    both = [
        pl.read_ndjson(gzip.decompress((clinic / f"{name}.jsonl.gz").read_bytes()))
        for name in ("predictions", "labels")
    ]
    yield "clinic", *both, None, {"join": {"label_ttl": "P800D"}}
    for name in (
        "flights-cancelled-logistic",
        "flights-60-forest",
        "flights-150-boosting",
        "shuttle-bayes",
        "bananas-forest",
    ):
        made = load(name)
        ids, times = [f"{i}" for i in range(len(made.scores))], 60.0 * np.arange(len(made.scores))
        before = pl.DataFrame({"score": made.source_scores, "label": made.source_labels})
        after = pl.DataFrame({"id": ids, "label": made.labels, "time": times + 3_600.0})
        yield name, pl.DataFrame({"id": ids, "score": made.scores, "time": times}), after, before, {}


PARTS: Final[dict[str, Callable[[Any], Table]]] = {
    "advice": advice,
    "kinds": kinds,
    "coverage": coverage,
    "widths": widths,
    "power": power,
    "false": false_verdicts,
    "sampled": sampled_coverage,
    "asked": sampled_power,
    "certificates": drawn_certificates,
    "flights": flights,
    "decisions": decisions,
}


if __name__ == "__main__":
    main()
