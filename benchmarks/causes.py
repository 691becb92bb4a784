"""Verdicts on streams whose truth is known, and the worth of their advice: ``python benchmarks/causes.py``.

Tables of docs/proofs/verdict.md. First: streams of each cause, what is said of them, and Brier score and gap
before and after the advice is followed. Second: of each kind of stream, how many sentences told a deviation,
how many of these were wrong, and how many named a cause that is none.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).parents[1]))

import streamcal
from streamcal.quality.verdict import Arrival, Verdict, judge
from streamcal.quality.watch import ForecastWatch
from streamcal.run import runner
from streamcal.values import Floats

DAY: Final = 86_400.0
DAYS: Final = 100
N = 30_000  # predictions
BASE: Final = 0.17
APART: Final = 1.5  # distance of the classes in standard deviations of their scores
MICRO_BATCH: Final = 1_000  # events, as a service has them


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


def sentences(seeds: range) -> None:
    """Print what is said of each kind of stream."""
    print(
        "| kind of stream | streams | looks | a deviation told | wrong | a cause named | falsely"
        " | cannot tell at the end |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for kind, make in KINDS.items():
        all_ = told = wrong = causes = false = unsure = 0
        for seed in seeds:
            stream = make(np.random.default_rng([seed, len(kind)]))
            looks, _, served = replayed(stream)
            all_ += len(looks)
            for look in looks:
                cause = look.verdict.cause
                told += look.verdict.deviates
                wrong += is_wrong(look, stream, served)
                causes += cause is not None
                false += cause is not None and (cause != stream.cause or look.until < stream.changes)
            unsure += looks[-1].verdict.state == "cannot tell"
        counts = len(seeds), all_, told, wrong, causes, false, unsure
        print(f"| {kind} | {' | '.join(map(str, counts))} |", flush=True)


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


def advice(seeds: range) -> None:
    """Print what following the advice changes, from the change on."""
    print("| stream | said | advice followed | Brier score | gap |\n|---|---|---|--:|--:|")
    for kind, (what, follow) in ADVICE.items():
        rows = list[tuple[float, ...]]()
        for seed in seeds:
            stream = KINDS[kind](np.random.default_rng([seed, len(kind)]))
            later = stream.times >= (0.0 if stream.changes == np.inf else stream.changes)
            row = list[float]()
            for each in (stream, follow(stream)):
                looks, _, served = replayed(each)
                row += [
                    np.mean((served - stream.labels)[later] ** 2),
                    np.mean((served - stream.means)[later]),
                ]
                if each is stream:
                    said = looks[-1].verdict
            rows.append(tuple(row))
        old, gap, new, moved = np.mean(rows, axis=0)
        better = sum(row[2] < row[0] and abs(row[3]) < abs(row[1]) for row in rows)
        cause = said.cause or "cause not clear"
        print(
            f"| {kind} | {said.state}: {cause} | {what} | {old:.4f} → {new:.4f} | {gap:+.3f} → {moved:+.3f}"
            f" ({better} of {len(rows)} better) |",
            flush=True,
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20, help="of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.streams)
    advice(seeds[:5])
    print()
    sentences(seeds)


if __name__ == "__main__":
    main()
