"""Recalibrate streams as they come: streamcal's modes and its peers, labels at once and late.

``python benchmarks/adaptation.py`` prints the tables of docs/benchmarks.md and one of every other stream;
``--write`` puts those of the page there.

``--stream scores.csv`` takes a stream of one's own: rows in the order of their predictions, with columns
``score`` and ``label``, and ``domain`` if there is a source (``source`` or ``target``). ``--peer
module:Class`` adds a method of one's own: a class with ``predict`` and ``learn`` of `peers.Single`.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name
from typing import Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
# One thread for everything: no method gets cores that another does not use.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import elsewhere
import numpy as np
from numpy.typing import NDArray
from pages import markdown, write
from peers import PEERS, InTurn, Method
from replay import LATE_BLOCK, Raw, Streamcal, arrivals, brier_losses, exponential, log_losses, replay
from streams import CHOOSE, KINDS, NAMES, REPORT, Stream, load

from streamcal.engine.config import Mode
from streamcal.sketch.checks import as_labels, as_scores

AT_ONCE: Final = "at once"
EXPONENTIAL: Final = "exponential"
DELAYS: Final = {AT_ONCE: 0, "500 late": 500, "5,000 late": 5_000, EXPONENTIAL: 2_000}
"""How many events late labels are, by name; of the exponential delays, the mean."""
SHORT: Final = 500  # a longer delay is left out where the deployment is shorter than twice that delay
MODES: Final[tuple[Mode, ...]] = ("source", "label_shift", "target", "composite", "auto")
DEFAULT: Final = "auto"
RAW: Final = "raw scores"
BINS: Final = 15
BLOCKS: Final = 30  # of consecutive events, for a standard error that allows for their dependence
WINDOW: Final = 5_000  # consecutive events whose mean forecast is compared with their mean label
WITHIN: Final = 1.003  # of the best peer: what the default is to reach
RAW_WITHIN: Final = 1.002  # of the raw scores
TRUTH: Final = "the truth"  # a row of the tables, not a method
HALVES: Final = {"choose": CHOOSE, "report": REPORT}
PAGE: Final = (*KINDS["learning"], "flights")
"""The streams whose tables are on the page."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """How one method did on one stream under one delay."""

    losses: dict[str, Floats]
    """Brier and log loss of every event, float64[n]."""
    ece: float
    gap: float
    """Mean forecast − mean label, over all events."""
    worst_gap: float
    """That of largest absolute value among windows of `WINDOW` consecutive events."""
    seconds: float
    """Per event, to predict and to learn; the loop itself is in it."""

    def mean(self, measure: str) -> float:
        """Return the Brier score or the log loss."""
        return float(self.losses[measure].mean())


MEASURES: Final = {"Brier": brier_losses, "log loss": log_losses}

Outcomes = dict[tuple[str, str], Outcome]
"""By method and delay."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--streams", nargs="+", default=NAMES, choices=NAMES, help="these alone")
    chosen.add_argument("--stream", metavar="FILE", type=Path, help="one of your own alone, a CSV file")
    parser.add_argument("--peer", action="append", default=[], metavar="MODULE:CLASS", help="one more peer")
    parser.add_argument("--jobs", type=int, default=1, help="how many streams at a time; default 1")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    if options.write and (options.stream or options.peer):
        parser.error("--write takes the streams and peers of the page")
    names = options.streams if options.stream is None else [options.stream]
    sys.path.insert(0, str(Path.cwd()))  # where modules of peers are looked for
    start = time.perf_counter()
    tables: dict[str, str] = {}
    verdicts: dict[str, list[Verdict]] = {half: [] for half in HALVES}
    with ProcessPoolExecutor(options.jobs) as pool:
        for name, (text, found) in zip(
            names, pool.map(partial(judged, more=options.peer), names), strict=True
        ):
            print(f"{name}\n\n{text}\n", flush=True)
            if name in PAGE:
                tables[name] = text
            verdicts["choose" if name in CHOOSE else "report"] += found
    for half, lines in verdicts.items():
        if lines:
            print(f"{half}\n\n{summary(lines)}\n")
    if tuple(names) == NAMES:
        tables |= {f"adaptation-{half}": summary(lines) for half, lines in verdicts.items()}
    if options.write:
        write(tables)
    print(f"\n{time.perf_counter() - start:.0f} s")


def judged(name: str | Path, more: Sequence[str] = ()) -> tuple[str, list[Verdict]]:
    """Return the table of a stream with its verdicts in words, and the verdicts.

    ``name`` is one of `NAMES`, or a file; ``more`` are peers as ``module:Class``.
    """
    stream = load(name) if isinstance(name, str) else read(name)
    outcomes = measure(stream, {each: partial(peer, each) for each in more})
    found = [verdict(stream.name, outcomes, late) for late in dict.fromkeys(late for _, late in outcomes)]
    words = "  \n".join(map(sentence, found))
    return f"{table(outcomes)}\n\n{words}", found


def read(path: Path) -> Stream:
    """Return the stream of a CSV file; raise ValueError if a column is not there or a value is wrong."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    missing = {"score", "label"} - set(rows[0] if rows else ())
    if missing:
        raise ValueError(
            f"{path} needs rows with columns score and label; it lacks {', '.join(sorted(missing))}"
        )
    scores = as_scores([float(row["score"]) for row in rows])
    labels = as_labels([float(row["label"]) for row in rows])
    source = np.array([row.get("domain") == "source" for row in rows])
    parts = (scores[source], labels[source]) if source.any() else ()
    return Stream(path.name, scores[~source], labels[~source], *parts)


def peer(name: str) -> Method:
    """Return a method of a class ``module:Class``."""
    return InTurn(resolve_name(name)())


def lateness(n: int) -> list[str]:
    """Return the names of the delays that are tried on so many events."""
    return [late for late, delay in DELAYS.items() if delay <= SHORT or n >= 2 * delay]


def delays(late: str, n: int) -> int | NDArray[np.int64]:
    """Return how many events late each label is: one number, or int64[n]."""
    if late == EXPONENTIAL:
        return exponential(n, DELAYS[late], np.random.default_rng(n))
    return DELAYS[late]


def measure(stream: Stream, more: Mapping[str, Callable[[], Method]]) -> Outcomes:
    """Return the outcome of every method and delay; ``more`` makes peers by name."""
    n = len(stream.scores)
    outcomes = {
        (name, late): run(make(), stream, delays(late, n))
        for name, make in methods(stream, more).items()
        for late in lateness(n)
    }
    try:
        for late in lateness(n):
            order, known = arrivals(n, delays(late, n), 1 if late == AT_ONCE else LATE_BLOCK)
            served = elsewhere.forecasts(stream, order, known)
            outcomes[elsewhere.NAME, late] = judge(*served, stream.labels)
    except elsewhere.UnavailableError as error:
        print(f"left out: {elsewhere.NAME} {error}")
    if stream.truth is not None:
        outcomes |= {(TRUTH, late): judge(stream.truth, 0.0, stream.labels) for late in lateness(n)}
    return outcomes


def methods(stream: Stream, more: Mapping[str, Callable[[], Method]]) -> dict[str, Callable[[], Method]]:
    """Return what makes each method, with the labels of the source learned if there is one."""
    modes = [mode for mode in MODES if stream.source_scores is not None or mode in ("target", DEFAULT)]
    makers: dict[str, Callable[[], Method]] = {RAW: Raw}
    makers |= {mode: lambda mode=mode: engine(mode, stream) for mode in modes}
    return makers | {
        name: lambda make=make: after_source(make(), stream) for name, make in {**PEERS, **more}.items()
    }


def engine(mode: Mode, stream: Stream) -> Method:
    return after_source(Streamcal(None if mode == DEFAULT else mode), stream)


def after_source(method: Method, stream: Stream) -> Method:
    """Return a method that has learned the labels of the source, if there is one."""
    if stream.source_scores is not None and stream.source_labels is not None:
        method.learn(stream.source_scores, stream.source_labels)
    return method


def run(method: Method, stream: Stream, late: int | NDArray[np.int64]) -> Outcome:
    """Return the outcome of a method whose labels are so many events late."""
    start = time.process_time()
    forecasts = replay(method, stream.scores, stream.labels, late)
    return judge(forecasts, (time.process_time() - start) / len(forecasts), stream.labels)


def judge(forecasts: Floats, seconds: float, labels: NDArray[np.int8]) -> Outcome:
    """Return what forecasts, float64[n] in [0, 1], are worth; ``seconds`` are those of one event."""
    excess = forecasts - labels
    return Outcome(
        {name: losses(forecasts, labels) for name, losses in MEASURES.items()},
        ece(forecasts, labels),
        float(excess.mean()),
        worst_gap(excess),
        seconds,
    )


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


class Ratio(NamedTuple):
    """A mean loss over another, with the standard error of the ratio."""

    value: float
    error: float


def ratio(ours: Floats, theirs: Floats) -> Ratio:
    """Return the ratio of the means of two losses, float64[n]; its error is from blocks of events."""
    mean = float(theirs.mean())
    gaps = [block.mean() for block in np.array_split(ours - theirs, BLOCKS)]
    return Ratio(float(ours.mean()) / mean, float(np.std(gaps, ddof=1)) / BLOCKS**0.5 / mean)


class Compared(NamedTuple):
    """The default by one measure, against the best peer and the raw scores."""

    best: str
    """The peer of the least mean loss."""
    peer: Ratio
    raw: Ratio


class Verdict(NamedTuple):
    """The default on one stream under one delay."""

    stream: str
    late: str
    by: dict[str, Compared]
    """By measure."""


def verdict(stream: str, outcomes: Outcomes, late: str) -> Verdict:
    """Return how the default does against the peers; the other modes of ours are none."""
    by = {}
    for name in MEASURES:
        peers = [each for each, then in outcomes if then == late and each not in (RAW, TRUTH, *MODES)]
        best = min(peers, key=lambda each: outcomes[each, late].mean(name))
        ours, theirs, raw = (outcomes[method, late].losses[name] for method in (DEFAULT, best, RAW))
        by[name] = Compared(best, ratio(ours, theirs), ratio(ours, raw))
    return Verdict(stream, late, by)


def sentence(verdict: Verdict) -> str:
    """Return a verdict in words."""
    said = (
        f"{name} is {each.peer.value:.4f} (± {each.peer.error:.4f}) times that of the best peer, {each.best}"
        for name, each in verdict.by.items()
    )
    return f"Labels {verdict.late}: the default's {', and its '.join(said)}."


def table(outcomes: Outcomes) -> str:
    """Return one line for every method; the best figure of each delay is bold."""
    header = ["method", "gap", "worst gap", "µs"]
    lates = list(dict.fromkeys(late for _, late in outcomes))
    for late in lates:
        header += [f"{what}, {late}" for what in (*MEASURES, "ECE")]
    competing = {key: each for key, each in outcomes.items() if key[0] != TRUTH}
    least = {
        (name, late): min(each.mean(name) for (_, then), each in competing.items() if then == late)
        for name in MEASURES
        for late in lates
    }
    rows = []
    for method in dict.fromkeys(method for method, _ in outcomes):
        first = outcomes[method, AT_ONCE]
        # That of the other process has no such loop in it.
        loop = 0.0 if method == elsewhere.NAME else outcomes[RAW, AT_ONCE].seconds
        row = [f"`{method}`" + (", the default" if method == DEFAULT else "") if method in MODES else method]
        row += [signed(first.gap), signed(first.worst_gap)]
        row.append("" if method in (RAW, TRUTH) else f"{1e6 * (first.seconds - loop):.1f}")
        for late in lates:
            each = outcomes[method, late]
            for name in MEASURES:
                figure = f"{each.mean(name):#.4g}"
                best = method != TRUTH and each.mean(name) == least[name, late]
                row.append(f"**{figure}**" if best else figure)
            row.append(f"{each.ece:.4f}")
        rows.append(row)
    return markdown(header, rows)


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the table of the default against the best peers, and what it comes to under each delay."""
    header = ["stream", "labels"]
    for name in MEASURES:
        header += [f"{name}: best peer", "default's / its", "±", "default's / raw", "±"]
    rows = []
    for each in verdicts:
        row = [each.stream, each.late]
        for compared in each.by.values():
            pairs = (compared.peer, compared.raw)
            row += [compared.best, *(f"{figure:.4f}" for pair in pairs for figure in pair)]
        rows.append(row)
    counts = [
        [name, late, *counted([each.by[name] for each in verdicts if each.late in lates])]
        for name in MEASURES
        for late, lates in ({late: (late,) for late in DELAYS} | {"all": tuple(DELAYS)}).items()
        if any(each.late in lates for each in verdicts)
    ]
    columns = ["measure", "labels", "cases", "below 1", f"at most {WITHIN:g}", "or within two errors"]
    columns += ["mean ratio", "largest", f"above {RAW_WITHIN:g} × raw"]
    return f"{markdown(header, rows)}\n\n{markdown(columns, counts)}\n\n{versions()}"


def counted(cases: Sequence[Compared]) -> list[str]:
    """Return how many cases there are, and how the default does in them."""
    peers = np.array([each.peer.value for each in cases])
    errors = np.array([each.peer.error for each in cases])
    raw = np.array([each.raw.value for each in cases])
    counts = (
        len(cases),
        (peers < 1.0).sum(),
        (peers <= WITHIN).sum(),
        (peers <= WITHIN + 2.0 * errors).sum(),
    )
    return [
        *map(str, counts),
        f"{peers.mean():.4f}",
        f"{peers.max():.4f}",
        str((raw > RAW_WITHIN).sum()),
    ]


def signed(gap: float) -> str:
    """Return a gap with its sign, that of 0 being +."""
    return f"{round(gap, 4) + 0.0:+.4f}".replace("-", "−")


def versions() -> str:
    """Return what the figures were made with."""
    packages = (f"{name} {version(name)}" for name in ("numpy", "river", "scikit-learn"))
    return f"Python {platform.python_version()}, {', '.join(packages)}."


if __name__ == "__main__":
    main()
