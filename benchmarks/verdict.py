"""Coverage, width and power of what is said about served forecasts: ``python benchmarks/verdict.py``.

Tables of docs/proofs/verdict.md: how many of 1,000 streams of each truth violate an interval at any of 30
looks; how wide the intervals are beside those for one look; after how many labels a deviation is told; how
often one is told of calibrated forecasts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.frozen import FROZEN, deploy
from benchmarks.further import FLIGHTS
from streamcal import Recalibrator
from streamcal.cli.demo import FILES
from streamcal.quality.sequences import Sequences
from streamcal.run import runner
from streamcal.run.connectors import Connectors
from streamcal.run.outcome import Outcome
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from tests.quality.forecasts import TRUTHS, Stream, calibrated, logistic, misses, rare, told_after


def coverage(streams: int) -> None:
    """Print how many streams violate an interval."""
    print("| truth | gaps before | gaps after | gains |\n|---|--:|--:|--:|")
    for truth in TRUTHS:
        missed = [
            misses(truth(np.random.default_rng(seed), 3_000), range(100, 3_001, 100))
            for seed in range(streams)
        ]
        counts = [sum(each[name] for each in missed) for name in ("before", "after", "gain")]
        print(f"| {truth.__name__} | {' | '.join(map(str, counts))} |", flush=True)


def widths() -> None:
    """Print the widths over all labels at 10⁴, over those of the normal interval for one look."""
    print("| truth | gap | gain |\n|---|--:|--:|")
    for truth in TRUTHS:
        stream, sequences, n = truth(np.random.default_rng(0), 10_000), Sequences(), 10_000
        forecasts = np.stack([stream.scores, stream.forecasts])
        sequences.add(forecasts, stream.labels, np.full(n, np.nan))
        gaps, gains = sequences.sums.gaps("after"), sequences.sums.gains()
        before, after = (forecasts - stream.labels) ** 2
        once = [
            2.0 * 1.96 * each.std() / n**0.5 for each in (stream.forecasts - stream.labels, before - after)
        ]
        ours = gaps.high[0, 0] - gaps.low[0, 0], gains.high[0] - gains.low[0]
        print(f"| {truth.__name__} | {ours[0] / once[0]:.2f} | {ours[1] / once[1]:.2f} |", flush=True)


def reversed_ranking(rng: np.random.Generator, before: int) -> Stream:
    """Forecasts that are right before so many labels, and reversed after, at the same base rate."""
    n = before + 2_000
    forecasts = logistic(rng.normal(-1.0, 1.5, n))
    turned = np.sort(forecasts)[::-1][np.argsort(np.argsort(forecasts))]
    means = np.where(np.arange(n) < before, forecasts, turned)
    return Stream(forecasts, forecasts, (rng.random(n) < means).astype(float), means)


def too_low(rng: np.random.Generator, before: int) -> Stream:
    """Forecasts .03 too low, base rate .17."""
    n = before + 8_000
    means = np.clip(rng.beta(2.0, 12.0, n) + 0.03, 0.0, 1.0)
    return Stream(means - 0.03, means - 0.03, (rng.random(n) < means).astype(float), means)


def half(rng: np.random.Generator, before: int) -> Stream:
    """Forecasts of .01 where the base rate is .02."""
    n = before + 8_000
    forecasts = np.minimum(0.01 * np.exp(rng.normal(0.0, 0.8, n) - 0.32), 0.5)
    return Stream(forecasts, forecasts, (rng.random(n) < 2.0 * forecasts).astype(float), 2.0 * forecasts)


def label_shift(rng: np.random.Generator, before: int) -> Stream:
    """Forecasts right for a class prior of .2, which moves to .3 after so many labels."""
    n = before + 8_000
    labels = (rng.random(n) < np.where(np.arange(n) < before, 0.2, 0.3)).astype(float)
    forecasts = logistic(1.5 * rng.normal(1.5 * labels, 1.0) - 1.125 + np.log(0.25))
    return Stream(forecasts, forecasts, labels, labels)


def power(streams: int) -> None:
    """Print after how many labels deviations are told."""
    print("| deviation | from label | told after: median | 9 of 10 | most |\n|---|--:|--:|--:|--:|")
    cases = (
        (reversed_ranking, 0),
        (reversed_ranking, 5_000),
        (too_low, 0),
        (half, 0),
        (label_shift, 0),
        (label_shift, 5_000),
    )
    for make, before in cases:
        found = [told_after(make(np.random.default_rng(seed), before), before, 25) for seed in range(streams)]
        after = np.array([np.inf if each is None else each[0] for each in found])
        middle, most = np.quantile(after, [0.5, 0.9], method="higher")
        print(
            f"| {make.__name__} | {before:,} | {middle:,.0f} | {most:,.0f} | {after.max():,.0f} |",
            flush=True,
        )


def false_verdicts(streams: int) -> None:
    """Print of how many calibrated streams a deviation is told, looked at 40 times."""
    print("| calibrated forecasts | streams | a deviation told |\n|---|--:|--:|")
    for name, make in (("base rate .24", calibrated), ("base rate .005", rare)):
        told = 0
        for seed in range(streams):
            stream = make(np.random.default_rng(seed), 20_000)
            right = Stream(stream.means, stream.means, stream.labels, stream.means)
            told += told_after(right, 0, 500) is not None
        print(f"| {name} | {streams:,} | {told} |", flush=True)


def harm(delay: int) -> None:
    """Print how often what is served is surely worse than the score, on streams of frozen models.

    Predictions and labels come in batches of 500; labels so many predictions late.
    """
    print(f"labels {delay:,} late:\n")
    print("| stream | mode | looks | surely worse | gain in Brier score at the end |")
    print("|---|---|--:|--:|--:|")
    for name, deployment in FROZEN.items():
        given = deploy(deployment)
        scores, labels = given["scores"], given["labels"]
        for mode in ("auto", "target", "composite"):
            engine, sequences = Recalibrator(mode=mode), Sequences()
            engine.learn_many(given["source_scores"], given["source_labels"], "source")
            served, looks, worse = np.empty(len(scores)), 0, 0
            for begin in range(0, len(scores) + delay, 500):
                part = slice(begin, min(begin + 500, len(scores)))
                if begin < len(scores):
                    served[part] = engine.predict_many(scores[part])
                known = slice(max(begin - delay, 0), max(min(begin + 500 - delay, len(scores)), 0))
                if known.stop > known.start:
                    engine.learn_many(scores[known], labels[known])
                    forecasts = np.stack([scores[known], served[known]])
                    sequences.add(forecasts, labels[known].astype(float), np.full(len(served[known]), np.nan))
                    gains = sequences.sums.gains()
                    looks, worse = looks + 1, worse + bool((gains.high < -0.01 * gains.level).any())
            gains = sequences.sums.gains()
            interval = f"{gains.mean[0]:+.4f} [{gains.low[0]:+.4f}, {gains.high[0]:+.4f}]"
            print(f"| {name} | {mode} | {looks} | {worse} | {interval} |", flush=True)


def flights() -> None:
    """Print what the verdict says of the flights at the end of each month, and with labels of equal delay."""
    source, events, labels = (FLIGHTS / name for name in FILES)
    print("| until | verdict |\n|---|---|")
    for until, words in _run(source, events, labels):
        print(f"| {until} | {words} |")
    with tempfile.TemporaryDirectory() as folder:
        delayed = Path(folder) / "labels.jsonl"
        with gzip.open(events) as lines:
            times = {event["id"]: event["time"] for event in map(json.loads, lines)}
        with gzip.open(labels) as lines:
            rows = [{**row, "time": times[row["id"]] + 6 * 3600} for row in map(json.loads, lines)]
        delayed.write_text(
            "".join(json.dumps(row) + "\n" for row in sorted(rows, key=lambda row: row["time"]))
        )
        *_, (_, words) = _run(source, events, delayed)
        print(f"| year, each label 6 hours after its prediction | {words} |", flush=True)


def _run(source: Path, events: Path, labels: Path) -> list[tuple[str, str]]:
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
        clock = pipeline.join.clock
        month = "" if clock is None else f"{datetime.fromtimestamp(clock, UTC):%b %Y}"
        if months[-1] and month != months[-1]:
            say(months[-1])
        months.append(month)

    inputs = Inputs([calibration], deployment)
    Runner(pipeline, inputs, Outputs(NullSink()), None, clock=time.monotonic, after=after).run()
    say("the end")
    return said


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1_000, help="streams of each truth")
    streams = parser.parse_args().streams
    for delay in (0, 3_000):
        harm(delay)
        print()
    flights()
    print()
    widths()
    print()
    power(max(streams // 10, 10))
    print()
    false_verdicts(streams)
    print()
    coverage(streams)


if __name__ == "__main__":
    main()
