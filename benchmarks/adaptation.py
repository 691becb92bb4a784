"""Recalibrate streams as they come: streamcal's modes and its peers, labels at once and late.

``python benchmarks/adaptation.py`` prints the tables of docs/benchmarks.md and one of every other stream;
``--write`` puts those of the page there.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
# One thread for everything: no method gets cores that another does not use.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import elsewhere
import numpy as np
from numpy.typing import NDArray
from pages import markdown, write
from peers import PEERS, Method
from streams import CHOOSE, KINDS, NAMES, REPORT, Stream, load

from streamcal import Recalibrator
from streamcal.engine.config import Mode

DELAYS: Final = (0, 500)
MODES: Final[tuple[Mode, ...]] = ("source", "label_shift", "target", "composite", "auto")
DEFAULT: Final = "auto"
LEAST: Final = 1e-6  # log loss: probabilities are clipped to [1e-6, 1 − 1e-6]
BINS: Final = 15
BLOCKS: Final = 30  # of consecutive events, for a standard error that allows for their dependence
WINDOW: Final = 5_000  # consecutive events whose mean forecast is compared with their mean label
WITHIN: Final = 1.005  # of the best Brier: what the default is to reach
ECE_WITHIN: Final = 0.003  # above the least ECE: what the default is to reach
TRUTH: Final = "the truth"  # a row of the tables, not a method
HALVES: Final = {"choose": CHOOSE, "report": REPORT}
PAGE: Final = (*KINDS["learning"], "flights")
"""The streams whose tables are on the page."""

Floats = NDArray[np.float64]


class Raw:
    """The score as it came."""

    def predict(self, score: float) -> float:
        """Return the score."""
        return score

    def learn(self, score: float, label: int) -> None:
        """Learn nothing."""


class Streamcal:
    """An engine, asked and taught one event at a time; labels come in the order of their predictions."""

    def __init__(self, mode: Mode | None) -> None:
        self.engine = Recalibrator() if mode is None else Recalibrator(mode=mode)
        self._seen: deque[int] = deque()

    def predict(self, score: float) -> float:
        """Return the probability of one score, and let the engine observe it."""
        engine = self.engine
        probability = engine.predict_one(score)
        self._seen.append(engine.seen)
        engine.observe_one(score)
        return probability

    def learn(self, score: float, label: int) -> None:
        """Learn one score with its label."""
        self.engine.learn_one(score, label, "target", seen=self._seen.popleft())


@dataclass(frozen=True)
class Outcome:
    """How one method did on one stream under one delay."""

    losses: Floats
    """Brier loss of every event, float64[n]."""
    brier: float
    log_loss: float
    ece: float
    gap: float
    """Mean forecast − mean label, over all events."""
    worst_gap: float
    """That of largest absolute value among windows of `WINDOW` consecutive events."""
    seconds: float
    """Per event, to predict and to learn; the loop itself is in it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", nargs="+", default=NAMES, choices=NAMES, help="these alone")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    start = time.perf_counter()
    tables: dict[str, str] = {}
    verdicts: dict[str, list[Verdict]] = {half: [] for half in HALVES}
    for name in options.streams:
        outcomes = measure(load(name))
        text = "\n\n".join(
            (table(outcomes), "  \n".join(sentence(verdict(name, outcomes, d)) for d in DELAYS))
        )
        print(f"{name}\n\n{text}\n", flush=True)
        if name in PAGE:
            tables[name] = text
        verdicts["choose" if name in CHOOSE else "report"] += [verdict(name, outcomes, d) for d in DELAYS]
    for half, lines in verdicts.items():
        if lines:
            print(f"{half}\n\n{summary(lines)}\n")
    if tuple(options.streams) == NAMES:
        tables |= {f"adaptation-{half}": summary(lines) for half, lines in verdicts.items()}
    if options.write:
        write(tables)
    print(f"\n{time.perf_counter() - start:.0f} s")


Outcomes = dict[tuple[str, int], Outcome]


def measure(stream: Stream) -> Outcomes:
    """Return the outcome of every method and delay."""
    outcomes = {
        (name, delay): run(make(), stream, delay)
        for name, make in methods(stream).items()
        for delay in DELAYS
    }
    try:
        for delay in DELAYS:
            outcomes[elsewhere.NAME, delay] = judge(*elsewhere.forecasts(stream, delay), stream.labels)
    except elsewhere.UnavailableError as error:
        print(f"left out: {elsewhere.NAME} {error}")
    if stream.truth is not None:
        outcomes |= {(TRUTH, delay): judge(stream.truth, 0.0, stream.labels) for delay in DELAYS}
    return outcomes


def methods(stream: Stream) -> dict[str, Callable[[], Method]]:
    """Return what makes each method, with the labels of the source learned if there is one."""
    modes = [mode for mode in MODES if stream.source_scores is not None or mode in ("target", DEFAULT)]
    makers: dict[str, Callable[[], Method]] = {"raw scores": Raw}
    makers |= {mode: lambda mode=mode: engine(mode, stream) for mode in modes}
    return makers | {name: lambda make=make: peer(make, stream) for name, make in PEERS.items()}


def engine(mode: Mode, stream: Stream) -> Streamcal:
    method = Streamcal(None if mode == DEFAULT else mode)
    if stream.source_scores is not None:
        method.engine.learn_many(stream.source_scores, stream.source_labels, "source")
    return method


def peer(make: Callable[[], Method], stream: Stream) -> Method:
    """Return a peer; it takes the source's labels for the stream's earlier ones."""
    method = make()
    if stream.source_scores is not None and stream.source_labels is not None:
        for score, label in zip(stream.source_scores.tolist(), stream.source_labels.tolist(), strict=True):
            method.learn(score, label)
    return method


def run(method: Method, stream: Stream, delay: int) -> Outcome:
    """Answer every score by what labels of events before i − delay taught, then judge the answers."""
    start = time.process_time()
    forecasts = replay(method, stream.scores.tolist(), stream.labels.tolist(), delay)
    seconds = (time.process_time() - start) / len(forecasts)
    return judge(np.array(forecasts), seconds, stream.labels)


def judge(forecasts: Floats, seconds: float, labels: NDArray[np.int8]) -> Outcome:
    """Return what forecasts, float64[n] in [0, 1], are worth; ``seconds`` are those of one event."""
    losses = (forecasts - labels) ** 2
    excess = forecasts - labels
    return Outcome(
        losses,
        float(losses.mean()),
        log_loss(forecasts, labels),
        ece(forecasts, labels),
        float(excess.mean()),
        worst_gap(excess),
        seconds,
    )


def replay(method: Method, scores: Sequence[float], labels: Sequence[int], delay: int) -> list[float]:
    """Return the answer to every score; that to score i knows the labels of events before i − delay."""
    forecasts = []
    predict, learn = method.predict, method.learn
    for i, score in enumerate(scores):
        forecasts.append(predict(score))
        if i >= delay:
            learn(scores[i - delay], labels[i - delay])
    return forecasts


def log_loss(forecasts: Floats, labels: NDArray[np.int8]) -> float:
    """Return the mean log loss in nats, probabilities clipped to [1e-6, 1 − 1e-6]."""
    inside = np.clip(forecasts, LEAST, 1.0 - LEAST)
    return -float(np.log(np.where(labels, inside, 1.0 - inside)).mean())


def ece(forecasts: Floats, labels: NDArray[np.int8], bins: int = BINS) -> float:
    """Return the expected calibration error Σ N_b/n·|mean forecast − mean label| in bins of equal mass.

    Equal forecasts are never divided, so that ties may leave fewer bins.
    """
    ranks = len(forecasts) * np.arange(1, bins) // bins
    edges = np.unique(np.sort(forecasts)[ranks])
    excess = np.bincount(np.searchsorted(edges, forecasts, side="right"), forecasts - labels)
    return float(np.abs(excess).sum()) / len(forecasts)


def worst_gap(excess: Floats, window: int = WINDOW) -> float:
    """Return the mean of largest absolute value among windows of consecutive events, float64[n].

    The last window also holds what is left over; fewer than two windows' worth of events are one.
    """
    starts = np.arange(max(1, len(excess) // window)) * window
    means = np.add.reduceat(excess, starts) / np.diff(starts, append=len(excess))
    return float(means[np.abs(means).argmax()])


def default_and_best(outcomes: Outcomes, delay: int) -> tuple[str, float, float]:
    """Return the best of the others, the default's Brier over its, and the ratio's standard error."""
    others = [name for name, late in outcomes if late == delay and name not in (DEFAULT, TRUTH)]
    best = min(others, key=lambda name: outcomes[name, delay].brier)
    ours, theirs = outcomes[DEFAULT, delay], outcomes[best, delay]
    gaps = [block.mean() for block in np.array_split(ours.losses - theirs.losses, BLOCKS)]
    error = float(np.std(gaps, ddof=1)) / BLOCKS**0.5 / theirs.brier
    return best, ours.brier / theirs.brier, error


class Verdict(NamedTuple):
    """The default on one stream under one delay, against the best of the others."""

    stream: str
    delay: int
    best: str
    """Of the least Brier score."""
    ratio: float
    """The default's Brier score over its."""
    error: float
    """The standard error of the ratio."""
    ours: Outcome
    least_ece: float
    """Of the others."""


def verdict(stream: str, outcomes: Outcomes, delay: int) -> Verdict:
    least = min(
        each.ece for (name, d), each in outcomes.items() if d == delay and name not in (DEFAULT, TRUTH)
    )
    return Verdict(stream, delay, *default_and_best(outcomes, delay), outcomes[DEFAULT, delay], least)


def sentence(verdict: Verdict) -> str:
    return (
        f"Labels {when(verdict.delay)}: the default's Brier is {verdict.ratio:.4f} (± {verdict.error:.4f}) "
        f"times that of the best of the others, {verdict.best}."
    )


def when(delay: int) -> str:
    return f"{delay} events late" if delay else "at once"


def table(outcomes: Outcomes) -> str:
    """Return one line for every method; the best Brier of each delay is bold."""
    header = ["method"]
    for delay in DELAYS:
        columns = ("Brier", "log loss", "ECE", "gap", "worst gap", "µs")
        header += [f"{what}, {delay} late" if delay else what for what in columns]
    competing = {key: each for key, each in outcomes.items() if key[0] != TRUTH}
    least = {d: min(each.brier for (_, late), each in competing.items() if late == d) for d in DELAYS}
    rows = []
    for name in dict.fromkeys(name for name, _ in outcomes):
        row = [f"`{name}`" + (", the default" if name == DEFAULT else "") if name in MODES else name]
        for delay in DELAYS:
            each = outcomes[name, delay]
            brier = f"{each.brier:#.4g}"
            # That of the other process has no such loop in it.
            loop = 0.0 if name == elsewhere.NAME else outcomes["raw scores", delay].seconds
            row += [
                f"**{brier}**" if each.brier == least[delay] and name != TRUTH else brier,
                f"{each.log_loss:#.4g}",
                f"{each.ece:.4f}",
                signed(each.gap),
                signed(each.worst_gap),
                "" if name in ("raw scores", TRUTH) else f"{1e6 * (each.seconds - loop):.1f}",
            ]
        rows.append(row)
    return markdown(header, rows)


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the table of the default against the best of the others, and what it comes to."""
    rows = [
        [
            each.stream,
            when(each.delay),
            each.best,
            f"{each.ratio:.4f}",
            f"{each.error:.4f}",
            f"{each.ours.ece:.4f}",
            f"{each.least_ece:.4f}",
            signed(each.ours.gap),
            signed(each.ours.worst_gap),
        ]
        for each in verdicts
    ]
    header = ["stream", "labels", "best of the others", "default's Brier / its", "±"]
    header += ["default's ECE", "least ECE of the others", "gap", "worst gap"]
    ratios = np.array([each.ratio for each in verdicts])
    near = sum(each.ours.ece <= each.least_ece + ECE_WITHIN for each in verdicts)
    counts = (
        f"Of {len(verdicts)} cases, the default's Brier is below that of the best of the others in "
        f"{(ratios < 1.0).sum()}, and at most {WITHIN:g} times it in {(ratios <= WITHIN).sum()}; the mean "
        f"ratio is {ratios.mean():.4f}, the largest {ratios.max():.4f}. Its ECE is at most {ECE_WITHIN:g} "
        f"above the least of the others in {near}."
    )
    return f"{markdown(header, rows)}\n\n{counts}\n\n{versions()}"


def signed(gap: float) -> str:
    """Return a gap with its sign, that of 0 being +."""
    return f"{round(gap, 4) + 0.0:+.4f}".replace("-", "−")


def versions() -> str:
    """Return what the figures were made with."""
    packages = (f"{name} {version(name)}" for name in ("numpy", "river", "scikit-learn"))
    return f"Python {platform.python_version()}, {', '.join(packages)}."


if __name__ == "__main__":
    main()
