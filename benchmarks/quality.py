"""Is what is served as good as the best known method? Brier score and log loss on 48 streams.

    python -m benchmarks.quality [--half report] [--streams NAME ...] [--jobs 2]
    python -m benchmarks.quality --save before.json         # and after a change:
    python -m benchmarks.quality --against before.json --ours     # over what is in the file, without peers
    python -m benchmarks.quality --without                  # each candidate of the mixture left out

Every method forecasts every event in turn and learns from the labels that have arrived: at once, 500 or 5,000
events late, or after exponential delays of 2,000 events in the mean. ``--stream scores.csv`` takes a stream
of one's own: rows in the order of their predictions, with columns ``score`` and ``label``, and ``domain`` if
there is a source (``source`` or ``target``). ``--peer module:Class`` adds a method of one's own: a class with
``predict`` and ``learn`` of `benchmarks.methods.Single`.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar, Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
# One thread for everything: no method gets cores that another does not use.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray

from benchmarks.measuring import compared, options, publish
from benchmarks.methods import (
    PEERS,
    Floats,
    InTurn,
    Method,
    Raw,
    Streamcal,
    brier_losses,
    exponential,
    log_losses,
    replay,
)
from benchmarks.streams import CHOOSE, NAMES, REPORT, Stream, load
from streamcal.engine.config import Mode
from streamcal.mixture import mixture
from streamcal.mixture.candidates import CANDIDATES, names_of
from streamcal.mixture.weights import Weights
from streamcal.sketch.checks import as_labels, as_scores

EXPONENTIAL: Final = "exponential"
DELAYS: Final = {"at once": 0, "500 late": 500, "5,000 late": 5_000, EXPONENTIAL: 2_000}
"""How many events late labels are, by name; of the exponential delays, the mean."""
SHORT: Final = 500  # a longer delay is left out where the deployment is shorter than twice that delay
BLOCKS: Final = 30  # of consecutive events, for a standard error that allows for their dependence
WITHIN: Final = 1.003  # of the best peer: what the default is to reach
HALVES: Final = {"choose": CHOOSE, "report": REPORT, "both": NAMES}
MEASURES: Final = {"Brier": brier_losses, "log loss": log_losses}
QUICK: Final = ("cancer-logistic", "phishing-lr")
OURS, RAW = "streamcal", "raw scores"

MOST: Final = 10_000  # events of a stream, where candidates are left out
LEAST: Final = 1_000  # labels of such a stream: on fewer, chance decides
ALL: Final = names_of(CANDIDATES)

Losses = dict[str, dict[str, Floats]]
"""Losses of every event, float64[n], by method and measure."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--half", default="report", choices=HALVES, help="default: report")
    chosen.add_argument("--streams", nargs="+", choices=NAMES, help="these alone")
    chosen.add_argument("--stream", metavar="FILE", type=Path, help="one of your own alone, a CSV file")
    parser.add_argument("--peer", action="append", default=[], metavar="MODULE:CLASS", help="one more peer")
    parser.add_argument("--mode", help="of our engine; default auto")
    parser.add_argument("--jobs", type=int, default=1, help="how many streams at a time; default 1")
    parser.add_argument("--ours", action="store_true", help="without peers, which is faster")
    parser.add_argument("--save", metavar="FILE", type=Path, help="write our losses there, as JSON")
    parser.add_argument("--against", metavar="FILE", type=Path, help="losses that ours are compared with")
    parser.add_argument("--without", nargs="*", choices=ALL, help="leave out each of these candidates; all")
    asked = parser.parse_args(arguments)
    names = [asked.stream] if asked.stream else asked.streams or HALVES[asked.half]
    names = list(QUICK) if asked.quick else list(names)
    with ProcessPoolExecutor(asked.jobs) as pool:
        if asked.without is not None:
            names = [name for name in names if len(load(name).labels) >= LEAST]
            header = ("left out", "Brier: mean", "largest", "log loss: mean", "largest")
            rows = left_out(asked.without or ALL, names, pool)
            publish("without", header, rows)
            return
        measure = partial(measured, mode=asked.mode, peers=() if asked.ours else (*PEERS, *asked.peer))
        cases = [case for found in pool.map(measure, names) for case in found]
    header = ["stream", "labels"]
    for name in MEASURES:
        header += [name, "/ raw", "best peer", "ours / its", "±"]
    publish("streams", header, (case.row() for case in cases))
    if any(case.best for case in cases):
        header = ["measure", "labels", "cases", "below 1", f"at most {WITHIN:g}", "mean ratio", "largest"]
        publish("quality", header, summary(cases), write=asked.write)
    losses = {
        f"{case.stream}, {case.late}, {name}": loss for case in cases for name, loss in case.ours.items()
    }
    compared(losses, asked.save, asked.against)


class Ratio(NamedTuple):
    """A mean loss over another, with the standard error of the ratio."""

    value: float
    error: float


class Case(NamedTuple):
    """Our engine on one stream under one delay, by measure."""

    stream: str
    late: str
    ours: dict[str, float]
    raw: dict[str, Ratio]
    best: dict[str, tuple[str, Ratio]]
    """The peer of the least mean loss, picked with hindsight; empty: there are no peers."""

    def row(self) -> list[str]:
        """Return a row of the table."""
        out = [self.stream, self.late]
        for name, loss in self.ours.items():
            out += [f"{loss:.5g}", f"{self.raw[name].value:.4f}"]
            if self.best:
                peer, ratio = self.best[name]
                out += [peer, f"{ratio.value:.4f}", f"{ratio.error:.4f}"]
            else:
                out += [""] * 3
        return out


def measured(name: str | Path, mode: Mode | None, peers: Sequence[str]) -> list[Case]:
    """Return a stream's cases; a peer is one of `PEERS` or ``module:Class``."""
    stream = load(name) if isinstance(name, str) else read(name)
    out = []
    for late in lateness(len(stream.scores)):
        makers = {RAW: Raw, OURS: lambda: Streamcal(mode)} | {
            each: PEERS.get(each, lambda each=each: InTurn(resolve_name(each)())) for each in peers
        }
        out.append(
            case(stream.name, late, {each: run(make(), stream, late) for each, make in makers.items()})
        )
    return out


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


def lateness(n: int) -> list[str]:
    """Return the names of the delays that are tried on so many events."""
    return [late for late, delay in DELAYS.items() if delay <= SHORT or n >= 2 * delay]


def delays(late: str, n: int) -> int | NDArray[np.int64]:
    """Return how many events late each label is: one number, or int64[n]."""
    if late == EXPONENTIAL:
        return exponential(n, DELAYS[late], np.random.default_rng(n))
    return DELAYS[late]


def run(method: Method, stream: Stream, late: str) -> dict[str, Floats]:
    """Return the losses of a method that has learned the labels of the source, if there is one."""
    if stream.source_scores is not None and stream.source_labels is not None:
        method.learn(stream.source_scores, stream.source_labels)
    forecasts = replay(method, stream.scores, stream.labels, delays(late, len(stream.scores)))
    return {name: losses(forecasts, stream.labels) for name, losses in MEASURES.items()}


def case(stream: str, late: str, losses: Losses) -> Case:
    """Return how ours does against the raw scores and the best peer by each measure."""
    ours, raw = losses[OURS], losses[RAW]
    best = {}
    for name in MEASURES:
        peers = {each: of[name].mean() for each, of in losses.items() if each not in (RAW, OURS)}
        if peers:
            peer = min(peers, key=peers.__getitem__)
            best[name] = peer, ratio(ours[name], losses[peer][name])
    means = {name: float(each.mean()) for name, each in ours.items()}
    return Case(stream, late, means, {name: ratio(ours[name], raw[name]) for name in MEASURES}, best)


def ratio(ours: Floats, theirs: Floats) -> Ratio:
    """Return the ratio of the means of two losses, float64[n]; its error is from blocks of events."""
    mean = float(theirs.mean())
    gaps = [block.mean() for block in np.array_split(ours - theirs, BLOCKS)]
    return Ratio(float(ours.mean()) / mean, float(np.std(gaps, ddof=1)) / BLOCKS**0.5 / mean)


def summary(cases: Sequence[Case]) -> Iterator[list[str]]:
    """Yield by measure and delay how many cases there are, and how ours does in them."""
    for name in MEASURES:
        for late in (*DELAYS, "all"):
            found = [each.best[name][1].value for each in cases if late in (each.late, "all")]
            if not found:
                continue
            values = np.array(found)
            counts = len(found), (values < 1.0).sum(), (values <= WITHIN).sum()
            yield [name, late, *map(str, counts), f"{values.mean():.4f}", f"{values.max():.4f}"]


class Without(Weights):
    """Weights of which one candidate has none."""

    kept: ClassVar[NDArray[np.bool_]] = np.ones(len(ALL), np.bool_)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which candidates take part, bool[K]."""
        return super().active & self.kept

    def _set(self, each: Floats) -> None:
        each = np.where(self.kept, each, 0.0)
        super()._set(each / each.sum(axis=1, keepdims=True))


def left_out(
    candidates: Sequence[str], names: Sequence[str], pool: ProcessPoolExecutor
) -> Iterator[list[str]]:
    """Yield mean losses without each candidate over those with all, over the start of some streams."""
    whole = list(pool.map(partial(losses_without, None), names))
    for out in candidates:
        found = pool.map(partial(losses_without, out), names)
        ratios = np.concatenate([a / b for a, b in zip(found, whole, strict=True)], axis=1)
        yield [f"`{out}`", *(f"{value:.4f}" for each in ratios for value in (each.mean(), each.max()))]


def losses_without(out: str | None, name: str) -> Floats:
    """Return Brier score and log loss, labels at once and 500 late, float64[2, 2]; None: with all."""
    Without.kept = np.array([each != out for each in ALL])
    mixture.Weights = Without  # type: ignore[misc]
    stream = load(name)
    part = Stream(
        name, stream.scores[:MOST], stream.labels[:MOST], stream.source_scores, stream.source_labels
    )
    found = [run(Streamcal(), part, late) for late in ("at once", "500 late")]
    return np.array([[losses[measure].mean() for losses in found] for measure in MEASURES])


if __name__ == "__main__":
    main()
