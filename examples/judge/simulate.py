"""Simulated LLM judges, with a known truth: ``python examples/judge/simulate.py`` writes four CSV files.

Nothing here comes from a model or from people: scores and labels are drawn from the laws below. A judge gives
each answer 1 to 10 points. People say of few of them whether they are good. After half of the days another
model judges, which is stricter. A third judge compares pairs, and prefers what it reads first.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

Values = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Names = npt.NDArray[np.str_]

START: Final = 1_700_006_400.0
DAY: Final = 86_400.0
DAYS: Final = 100
A_DAY: Final = 400

GOOD: Final = 0.6
"""The share of good answers."""
JUDGES: Final = {"judge-1": ((7.2, 1.6), (8.6, 1.1)), "judge-2": ((4.6, 1.8), (6.9, 1.5))}
"""Mean and standard deviation of what a judge rounds to points, for bad and for good answers."""
COMPLAINTS: Final = (0.4, 0.05)
"""How often a user complains, of bad and of good answers."""
REVIEWED: Final = (0.02, 0.2)
"""The chance that a person looks at an answer without and with a complaint: its propensity."""

BETTER: Final = 0.5
"""How often a person prefers the new answer of a pair."""
ORDERS: Final = {"new first": 0.5, "old first": -0.5}
"""By how much the judge of pairs leans to the new answer, in standard deviations of its opinion."""
OPINIONS: Final = (-0.7, 0.7)
"""The mean of that opinion, where a person prefers the old and the new answer; the deviation is 1."""
TIE: Final = 0.6
"""The opinions from −TIE to TIE are told as a tie."""
COMPARED: Final = 0.05
"""The chance that a person looks at a pair."""


class Stream(NamedTuple):
    """What a judge said, in order of time."""

    times: Values
    """In seconds."""
    groups: Names
    """Which judge, or which order of the pair."""
    scores: Values
    truth: Values
    """P[label = 1 | score, group], which nobody knows in practice."""
    propensities: Values
    labels: Integers
    told: Flags
    """Whether a person looked."""
    told_at: Values
    """When, in seconds: up to two days later."""


def to_score(points: npt.ArrayLike, most: int = 10) -> Values:
    """Return scores in (0, 1) of points from 1 to ``most``: the middles of as many equal parts."""
    scores: Values = (np.asarray(points) - 0.5) / most
    return scores


def chances(judge: str) -> Values:
    """Return P[points | label] of a judge of answers: a row for each label, a column for each of 1 to 10."""
    ends = np.array([-np.inf, *np.arange(1.5, 10.0), np.inf])
    return np.array([np.diff(norm.cdf(ends, *law)) for law in JUDGES[judge]])


def pair_chances(order: str) -> Values:
    """Return P[old, tie, new | label] of the judge of pairs: a row for each label."""
    ends = np.array([-np.inf, -TIE, TIE, np.inf])
    return np.array([np.diff(norm.cdf(ends, mean + ORDERS[order], 1.0)) for mean in OPINIONS])


def truth(chance: Values, prior: float) -> Values:
    """Return P[label = 1 | points] by Bayes' rule."""
    known: Values = prior * chance[1] / (prior * chance[1] + (1.0 - prior) * chance[0])
    return known


def judged(rng: np.random.Generator, groups: Names, laws: dict[str, Values], prior: float) -> Stream:
    """Return a stream of labels with points drawn by the law of each one's group; people look at all."""
    count = len(groups)
    labels = (rng.random(count) < prior).astype(np.int64)
    scores, known = np.empty(count), np.empty(count)
    for group, law in laws.items():
        most = law.shape[1]
        for label in (0, 1):
            (these,) = np.nonzero((groups == group) & (labels == label))
            points = rng.choice(most, len(these), p=law[label])
            scores[these], known[these] = to_score(points + 1, most), truth(law, prior)[points]
    times = np.sort(START + DAY * DAYS * rng.random(count))
    told_at = times + 2 * DAY * rng.random(count)
    return Stream(times, groups, scores, known, np.ones(count), labels, np.ones(count, np.bool_), told_at)


def answers(rng: np.random.Generator) -> Stream:
    """Return judged answers: people look mostly at those that users complained of."""
    count = DAYS * A_DAY
    groups = np.repeat(list(JUDGES), count // 2)
    stream = judged(rng, groups, {judge: chances(judge) for judge in JUDGES}, GOOD)
    complaint = rng.random(count) < np.array(COMPLAINTS)[stream.labels]
    propensities = np.array(REVIEWED)[complaint.astype(np.int64)]
    return stream._replace(propensities=propensities, told=rng.random(count) < propensities)


def pairs(rng: np.random.Generator) -> Stream:
    """Return judged pairs: label 1 if a person prefers the new answer."""
    count = DAYS * A_DAY
    groups = rng.choice(list(ORDERS), count)
    stream = judged(rng, groups, {order: pair_chances(order) for order in ORDERS}, BETTER)
    return stream._replace(told=rng.random(count) < COMPARED)


def trial(judge: str, count: int, rng: np.random.Generator) -> Stream:
    """Return answers that people looked at before a judge is used: chosen by chance, all with a label."""
    return judged(rng, np.full(count, judge), {judge: chances(judge)}, GOOD)


def write(path: Path, names: Sequence[str], columns: Sequence[npt.NDArray[np.generic]]) -> None:
    """Write a CSV file."""
    rows: Iterable[Sequence[object]] = zip(*(column.tolist() for column in columns), strict=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)


def write_stream(stream: Stream, group: str, judgements: Path, labels: Path) -> None:
    """Write what the judge said, and what people said, to one file each."""
    ids, (told,) = np.arange(len(stream.times)), np.nonzero(stream.told)
    told = told[np.argsort(stream.told_at[told])]
    said = [
        ids,
        stream.times.round(),
        stream.groups,
        stream.scores.round(4),
        stream.propensities,
        stream.truth,
    ]
    write(judgements, ["id", "time", group, "score", "propensity", "truth"], said)
    write(labels, ["id", "time", "label"], [told, stream.told_at[told].round(), stream.labels[told]])


def main() -> None:
    """Write ``answers.csv`` and ``reviews.csv``, ``pairs.csv`` and ``choices.csv``."""
    write_stream(answers(np.random.default_rng(0)), "judge", Path("answers.csv"), Path("reviews.csv"))
    write_stream(pairs(np.random.default_rng(0)), "order", Path("pairs.csv"), Path("choices.csv"))


if __name__ == "__main__":
    main()
