"""Concept drift with a known truth: time to the alarm, time to recover, false alarms.

``python benchmarks/concept_drift.py`` prints the tables of docs/benchmarks.md; ``--write`` puts them there.

The source is the paper's D(0.5). The target begins as D(0.3), which label shift explains, and then the laws
of the score given the label move. The risk of a map, E[(h(Z) − P[Y=1|Z])²], is worked out by the midpoint
rule under the law of the moment.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray
from pages import markdown, write
from scipy.special import expit

from streamcal import Recalibrator
from streamcal.testing import NormalPair

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

SOURCE_LABELS: Final = 100_000
BEFORE: Final = 20_000  # target labels up to the drift
AFTER: Final = 30_000
LOOK_EVERY: Final = 50  # labels between two looks at the risk
RUNS: Final = 10
STREAMS: Final = 100
TARGET_LABELS: Final = 100_000  # of a stream without drift
BLOCK: Final = 1_000
X: Final[Floats] = (np.arange(11_000) + 0.5) / 500.0 - 11.0  # where the risk is worked out
SCORES: Final[Floats] = expit(X)


@dataclass(frozen=True)
class Law:
    """The law of (score, label): given the label, the logit of the score is N(·, 1), or a mixture of such."""

    name: str
    prior: float
    negatives: float = -2.0
    """Mean of the logit given label 0."""
    positives: tuple[tuple[float, float], ...] = ((1.0, 2.0),)
    """Share and mean of every component given label 1."""

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Floats, Labels]:
        """Return n independent scores, float64[n], and labels, int8[n]."""
        labels = (rng.random(n) < self.prior).astype(np.int8)
        shares, means = zip(*self.positives, strict=True)
        centres = np.where(labels, rng.choice(means, n, p=shares), self.negatives)
        return expit(rng.standard_normal(n) + centres), labels

    def risk(self, recalibrate: Callable[[Floats], Floats]) -> float:
        """Return E[(h(Z) − P[Y=1|Z])²] of a map; its steps make an error of about 1e-6."""
        gap = recalibrate(SCORES) - self.rate
        return float(self.mass @ (gap * gap))

    @cached_property
    def rate(self) -> Floats:
        """P[Y=1|Z] at `SCORES`."""
        return self._ones / (self._ones + self._zeros)

    @cached_property
    def mass(self) -> Floats:
        """P[Z] of each of `SCORES`; they sum to 1."""
        density = self._ones + self._zeros
        return density / density.sum()

    @property
    def _ones(self) -> Floats:
        density: Floats = self.prior * sum(share * _normal(X - mean) for share, mean in self.positives)
        return density

    @property
    def _zeros(self) -> Floats:
        return (1.0 - self.prior) * _normal(X - self.negatives)


def _normal(x: Floats) -> Floats:
    """Return the standard normal density without its constant, which cancels."""
    density: Floats = np.exp(-0.5 * x * x)
    return density


BASE: Final = Law("none", 0.3)
DRIFTS: Final = (
    Law("classes close in: means ±2 become ±½", 0.3, -0.5, ((1.0, 0.5),)),
    Law("positives fade: their mean falls from 2 to 0", 0.3, -2.0, ((1.0, 0.0),)),
    Law("scores fall: both means by 1", 0.3, -3.0, ((1.0, 1.0),)),
    Law("every other positive looks like a negative", 0.3, -2.0, ((0.5, 2.0), (0.5, -2.0))),
)
"""After each of them the map that was right before it is worse than the raw scores."""
ENGINES: Final[dict[str, Callable[[], Recalibrator]]] = {
    "`auto`, the default": Recalibrator,
    "`composite`": lambda: Recalibrator(mode="composite"),
    "`target`": lambda: Recalibrator(mode="target"),
    "`target`, `window` 5,000": lambda: Recalibrator(mode="target", window=5_000),
}


class Drifted(NamedTuple):
    """What one stream with a drift showed; counts are of labels since the drift."""

    early: bool
    """Whether there was an alarm before the drift."""
    alarm: int | None
    """When an assumption was first refuted; None: never, or too early."""
    better: int | None
    """From when on the served map's risk stayed below that of the raw scores; None: not by the end."""
    risk: float
    """Of the map served at the end."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    tables = {}
    for name, make in (("concept-drift", drift_table), ("false-alarms", false_alarm_table)):
        start = time.perf_counter()
        tables[name] = make()
        print(f"{tables[name]}\n\n{time.perf_counter() - start:.0f} s\n", flush=True)
    if options.write:
        write(tables)


def drift_table() -> str:
    header = ["drift, and the risk of the raw scores after it", "map", "alarms", "labels to the alarm"]
    header += ["labels until better than the raw scores", "risk at the end"]
    return markdown(header, drift_rows())


def drift_rows() -> Iterator[list[str]]:
    for law in DRIFTS:
        raw = law.risk(lambda scores: scores)
        for name, make in ENGINES.items():
            runs = [drifted(make(), law, raw, np.random.default_rng(seed)) for seed in range(RUNS)]
            alarms = f"{sum(run.alarm is not None for run in runs)} of {RUNS}"
            early = sum(run.early for run in runs)
            if early:
                alarms += f", and {early} before the drift"
            yield [
                f"{law.name}; {raw:.1e}",
                name,
                alarms,
                spread([run.alarm for run in runs]),
                spread([run.better for run in runs]),
                f"{statistics.median(run.risk for run in runs):.1e}",
            ]


def drifted(engine: Recalibrator, law: Law, raw: float, rng: np.random.Generator) -> Drifted:
    """Run a stream whose labels come at once into a drift, and watch the risk of what is served."""
    engine.learn_many(*NormalPair(0.5).sample(SOURCE_LABELS, rng), "source")
    learn(engine, *BASE.sample(BEFORE, rng))
    early = bool(engine.alarms)
    scores, labels = law.sample(AFTER, rng)
    worse = [law.risk(engine.predict_many) >= raw]
    for place in range(0, AFTER, LOOK_EVERY):
        part = slice(place, place + LOOK_EVERY)
        learn(engine, scores[part], labels[part])
        worse.append(law.risk(engine.predict_many) >= raw)
    alarm = None if early or not engine.alarms else engine.alarms[0].target_labels - BEFORE
    last = max((place for place, each in enumerate(worse) if each), default=-1)
    better = None if worse[-1] else LOOK_EVERY * (last + 1)
    return Drifted(early, alarm, better, law.risk(engine.predict_many))


def learn(engine: Recalibrator, scores: Floats, labels: Labels) -> None:
    """Learn target labels one by one, each before the next score."""
    for score, label in zip(scores.tolist(), labels.tolist(), strict=True):
        seen = engine.prediction_count
        engine.observe_one(score)
        engine.learn_one(score, label, "target", prediction_index=seen)


def spread(counts: Sequence[int | None]) -> str:
    """Return median [min, max], a None as the largest of all."""
    known = sorted(count for count in counts if count is not None)
    if not known:
        return "never"
    never = len(counts) - len(known)
    middle = [*known, *[None] * never][(len(counts) - 1) // 2]
    highest = f"{known[-1]:,}" if not never else "never"
    return f"{'never' if middle is None else f'{middle:,}'} [{known[0]:,}, {highest}]"


def false_alarm_table() -> str:
    constant, moving = (0.2,), (0.1, 0.4, 0.05, 0.4, 0.1)
    rows = []
    for name, priors in (
        ("prior 0.2", constant),
        (f"prior {', '.join(map(str, moving))} in turn, 20,000 labels each", moving),
    ):
        alarms = [false_alarms(priors, np.random.default_rng(1_000 + seed)) for seed in range(STREAMS)]
        rows.append([name, f"{STREAMS}", f"{sum(map(bool, alarms))}", _assumptions(alarms)])
    return markdown(["target, no concept drift", "streams", "with an alarm", "refuted"], rows)


def false_alarms(priors: Sequence[float], rng: np.random.Generator) -> list[str]:
    """Run a stream on which label shift holds; return the assumptions refuted all the same."""
    engine = Recalibrator()
    engine.learn_many(*NormalPair(0.5).sample(SOURCE_LABELS, rng), "source")
    for prior in priors:
        scores, labels = NormalPair(prior).sample(TARGET_LABELS // len(priors), rng)
        for place in range(0, len(scores), BLOCK):
            part = slice(place, place + BLOCK)
            engine.observe_many(scores[part])
            engine.learn_many(scores[part], labels[part], "target")
    engine.certificate  # noqa: B018  # it is when it is asked for that a score's order is put to the test
    return [alarm.assumption for alarm in engine.alarms]


def _assumptions(alarms: Sequence[Sequence[str]]) -> str:
    counts = {name: sum(name in each for each in alarms) for each in alarms for name in each}
    return "; ".join(f"{name}: {count}" for name, count in counts.items()) or "nothing"


if __name__ == "__main__":
    main()
