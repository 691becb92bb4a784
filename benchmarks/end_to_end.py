"""A part of `benchmarks.speed`: what a user would build for the same, with what it costs and how right it is.

One stream whose classes close in from beginning to end, so that its truth is known; each label is 1,000
predictions late. Each method runs in a process of its own. Those that work on arrays are asked a hundred
predictions at a time, and isotonic regression over frames, as a job would be run, ten thousand.

The last column compares what a method expects its Brier score to be, the mean of p(1 − p), with what the
labels said later: what confidence-based performance estimation (CBPE) reports before labels come. Its usual
form has a map of the first labels, which stays.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.measuring import resident
from benchmarks.methods import (
    LEAST,
    Floats,
    InTurn,
    Labels,
    Method,
    OnlinePlatt,
    Raw,
    River,
    SixtyLines,
    Streamcal,
    brier_losses,
    log_losses,
    replay,
)
from benchmarks.streams import TRUTHS

__all__ = ["end_to_end"]

LAW: Final = "truth-gradual"
LATE: Final = 1_000  # predictions
DAY: Final = 10_000  # predictions, of a job
LATEST: Final = 30_000  # labels that it fits


class Outcome(NamedTuple):
    """What a method took, and how right it was."""

    microseconds: float
    """Of processor time, an event."""
    mebibytes: float
    """The most that it needed beyond the arrays."""
    error: float
    """Root mean square distance of the forecasts from the truth."""
    log_loss: float
    expected: float
    """Brier score that the forecasts expect, less the one that came."""


def by_backtest(scores: Floats, labels: Labels, mode: Any) -> Floats:
    """Return the forecasts of `streamcal.backtest` over a frame of polars."""
    import polars

    from streamcal import backtest

    times = np.arange(len(scores), dtype=np.float64)
    frame = polars.DataFrame({"time": times, "score": scores, "label": labels})
    made: Any = backtest(frame, label_delay=timedelta(seconds=LATE), mode=mode).frame
    return np.asarray(made["probability"].to_numpy())


def by_isotonic(scores: Floats, labels: Labels, *, again: bool = True) -> Floats:
    """Return the forecasts of a daily job: polars, and isotonic regression of the labels that have come."""
    import polars
    from sklearn.isotonic import IsotonicRegression

    frame = polars.DataFrame({"score": scores, "label": labels}).with_row_index("time")
    fitted, made = None, []
    for begin in range(0, len(scores), DAY):
        today = frame.slice(begin, DAY)
        if begin and (again or fitted is None):
            came = frame.filter(polars.col("time") < begin - LATE).tail(LATEST)
            fitted = IsotonicRegression(y_min=LEAST, y_max=1.0 - LEAST, out_of_bounds="clip")
            fitted.fit(came["score"].to_numpy(), came["label"].to_numpy())
        asked = today["score"].to_numpy()
        made.append(asked if fitted is None else fitted.predict(asked))
    return np.concatenate(made)


def in_blocks(scores: Floats, labels: Labels, make: Callable[[], Method]) -> Floats:
    """Return the forecasts of a method that is asked in blocks."""
    return replay(make(), scores, labels, delays=LATE)


METHODS: Final[dict[str, Callable[[Floats, Labels], Floats]]] = {
    "the score": partial(in_blocks, make=Raw),
    "`streamcal.backtest`": partial(by_backtest, mode="auto"),
    "`streamcal.backtest`, mode target": partial(by_backtest, mode="target"),
    "`Recalibrator`, in blocks": partial(in_blocks, make=Streamcal),
    "polars and isotonic regression, daily": by_isotonic,
    "the same, fitted once (CBPE)": partial(by_isotonic, again=False),
    "sixty lines of NumPy and scikit-learn": partial(in_blocks, make=SixtyLines),
    "online Platt scaling": partial(in_blocks, make=lambda: InTurn(OnlinePlatt())),
    "river: LogisticRegression": partial(in_blocks, make=lambda: InTurn(River())),
}


def measured(name: str, count: int) -> Outcome:
    """Return what a method took over so many predictions, and how right it was; in a process of its own."""
    warnings.simplefilter("ignore")
    scores, labels, truth = TRUTHS[LAW].sample(np.arange(count) / count, np.random.default_rng(1))
    METHODS[name](scores[: 3 * DAY], labels[: 3 * DAY])  # what is imported and compiled once
    before, begun = resident(), time.process_time()
    forecasts = METHODS[name](scores, labels)
    taken = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    came = float(brier_losses(forecasts, labels).mean())
    return Outcome(
        1e6 * taken / (2 * count),
        peak - before,
        float(np.sqrt(np.square(forecasts - truth).mean())),
        float(log_losses(forecasts, labels).mean()),
        float((forecasts * (1.0 - forecasts)).mean()) - came,
    )


def end_to_end(asked: Any) -> tuple[tuple[str, ...], Iterator[Sequence[str]]]:
    """Return a row for each method; a prediction and its label are two events."""

    def rows() -> Iterator[Sequence[str]]:
        for name in METHODS:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                made = process.submit(measured, name, asked.predictions).result()
            costs = f"{made.microseconds:.2f}", f"{max(made.mebibytes, 0.0):,.0f}"
            yield name, *costs, f"{made.error:.4f}", f"{made.log_loss:.4f}", f"{made.expected:+.4f}"

    header = "method", "µs an event", "MiB", "error of the probability", "log loss", "Brier expected − came"
    return header, rows()
