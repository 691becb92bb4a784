"""Flights of which only the late ones are told, and late: what each way of counting them costs, by month.

Two streams of the shipped flights (examples/flights), May to December:

* overdue: as it was. A flight is told as late once it is 15 minutes overdue; nobody tells of the others.
* complaints: the same scores and labels, but the delay is made up (synthetic): a late flight is told by a
  complaint, after an exponential time of 10 days on average, at most 30; nobody tells of the others.

The flights that never arrived, one in forty, are left out: whether they were late has no answer. Each way
counts positives and predictions by cell of the score, and fits a Platt map to these counts every six hours:
the ways differ in what they count, and in nothing else. Then mode ``auto`` is asked, which weighs many maps.
``python benchmarks/late_flights.py`` prints the tables of docs/late-labels.md in two minutes.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal import LabelEvent, PredictionEvent, Recalibrated, Recalibrator
from streamcal.delayed.estimate import LEVEL
from streamcal.delayed.feedback import DelayedFeedback
from streamcal.join.config import JoinConfig
from streamcal.maps.platt import apply_platt, cell_logits, fit_platt, logit
from streamcal.sketch import grid

FLIGHTS: Final = Path(__file__).parents[1] / "examples" / "flights"
HOUR: Final = 3_600.0
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY
STEP: Final = 6 * HOUR
MEAN_DELAY: Final = 10 * DAY
NEVER: Final = float("inf")
MEMORIES: Final = ("all", "recent")
WAYS: Final = {
    "at once": "every label, at the prediction: nobody has it",
    "drop": "positives as they are told, and no negatives",
    "negative until told": "every prediction a 0, until it is told to be a 1",
    "wait": "predictions that are matured, those not told as 0",
    "exposure": "positives as they are told, over the predictions that would have been told by now",
}
SERVED: Final = ("at once", "wait", "exposure")
"""The ways that mode ``auto`` is asked about, too."""

Floats = npt.NDArray[np.float64]
Both = tuple[tuple[float, float], tuple[float, float]]
"""A Platt map for each memory: (a, b)."""


class Stream(NamedTuple):
    """Predictions in the order of time, one of each; float64[n]."""

    months: npt.NDArray[np.int64]
    scores: Floats
    times: Floats
    labels: Floats
    told: Floats
    """When it is told as late; inf: never."""
    label_delay_limit: float


def rows(name: str) -> list[dict[str, Any]]:
    """Return the events of a file of the flights."""
    with gzip.open(FLIGHTS / f"{name}.jsonl.gz", "rb") as lines:
        return msgspec.json.Decoder(dict[str, Any]).decode_lines(lines.read())


def overdue() -> Stream:
    """Return the flights that arrived."""
    labels = {row["id"]: row["label"] for row in rows("labels")}
    predictions = [row for row in rows("predictions") if row["id"] in labels]
    told = {row["id"]: row["time"] for row in rows("overdue")}
    return Stream(
        np.array([int(row["id"][:2]) for row in predictions]),
        np.array([row["score"] for row in predictions]),
        np.array([row["time"] for row in predictions], np.float64),
        np.array([labels[row["id"]] for row in predictions], np.float64),
        np.array([told.get(row["id"], NEVER) for row in predictions]),
        12 * HOUR,
    )


def complaints(flights: Stream, rng: np.random.Generator) -> Stream:
    """Return the flights with the delays that are made up."""
    most = 30 * DAY
    shares = rng.random(len(flights.times)) * -np.expm1(-most / MEAN_DELAY)
    told = np.where(flights.labels == 1.0, flights.times - MEAN_DELAY * np.log1p(-shares), NEVER)
    return flights._replace(told=told, label_delay_limit=most)


def counted(stream: Stream, way: str, now: float) -> Iterator[tuple[Any, Floats]]:
    """Yield for each memory which predictions a way counts at a moment, a slice, and which of them as 1."""
    mature = stream.label_delay_limit
    end = int(stream.times.searchsorted(now - (mature if way == "wait" else 0.0)))
    recent = now - (2.0 if way == "wait" else 1.0) * mature
    for begin in (0, int(stream.times.searchsorted(recent))):
        part = slice(begin, end)
        known = stream.labels[part] if way == "at once" else (stream.told[part] <= now).astype(np.float64)
        yield part, known


def fits(stream: Stream, way: str) -> Iterator[tuple[float, Both | None]]:
    """Yield the maps of a way every six hours, with the moment; None before there are any."""
    all_cells = grid.cells_of(stream.scores, LEVEL)
    cells, places = np.unique(all_cells, return_inverse=True)
    logits, size = cell_logits(cells, LEVEL), len(cells)
    for now in np.arange(stream.times[0] + STEP, stream.times[-1] + STEP, STEP).tolist():
        maps = []
        for part, known in counted(stream, way, now):
            positives = np.bincount(places[part], known, size)
            totals = (
                positives if way == "drop" else np.bincount(places[part], minlength=size).astype(np.float64)
            )
            ((a, b),) = fit_platt(logits, positives[np.newaxis], totals[np.newaxis]).tolist()
            maps.append((a, b))
        yield now, (maps[0], maps[1])


def fits_by_exposure(stream: Stream) -> Iterator[tuple[float, Both | None]]:
    """Yield the maps of `streamcal.delayed` as `fits` does."""
    feedback = DelayedFeedback(stream.label_delay_limit)
    order = np.argsort(stream.told, kind="stable")
    tellings = zip(
        *(each[order].tolist() for each in (stream.told, stream.scores, stream.times)), strict=True
    )
    predictions = zip(stream.times.tolist(), stream.scores.tolist(), strict=True)
    asked, told = next(predictions), next(tellings)
    for now in np.arange(stream.times[0] + STEP, stream.times[-1] + STEP, STEP).tolist():
        while min(asked[0], told[0]) < now:
            if asked[0] <= told[0]:
                feedback.predict(asked[1], asked[0])
                asked = next(predictions, (NEVER, 0.0))
            else:
                feedback.observe_early(told[1], told[2], told[0])
                told = next(tellings, (NEVER, 0.0, 0.0))
        found = feedback.estimate()
        if found is None:
            yield now, None
        else:
            whole, recent = map(tuple, found.platt.tolist())
            yield now, (whole, recent)


def forecasts(stream: Stream, way: str) -> Floats:
    """Return the forecasts of a way, each of its time: float64[2, n], by memory; the score before any map."""
    made = np.stack([stream.scores, stream.scores])
    for now, maps in fits_by_exposure(stream) if way == "exposure" else fits(stream, way):
        if maps is not None:
            part = slice(*stream.times.searchsorted([now, now + STEP]).tolist())
            for memory, (a, b) in enumerate(maps):
                made[memory, part] = apply_platt(np.array(a), np.array(b), logit(stream.scores[part]))
    return made


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


def table(stream: Stream, memories: Sequence[str] = MEMORIES) -> str:
    """Return the Brier scores by month as a Markdown table, with rows for these memories."""
    months = np.unique(stream.months).tolist()
    names = [f"{np.datetime64(f'2013-{month:02d}').item():%b}" for month in months]

    def row(name: str, memory: str, made: Floats) -> str:
        losses = (made - stream.labels) ** 2
        means = [*(losses[stream.months == month].mean() for month in months), losses.mean()]
        return " | ".join([f"| {name}", memory, *(f"{mean:.4f}" for mean in means)]) + " |"

    lines = [
        "| " + " | ".join(["way", "memory", *names, "all"]) + " |",
        "|---|---|" + "--:|" * (len(names) + 1),
        row("the score", "", stream.scores),
    ]
    for way in WAYS:
        made = dict(zip(MEMORIES, forecasts(stream, way), strict=True))
        lines += [row(way, memory, made[memory]) for memory in memories]
    lines += [row(way, "`auto`", served(stream, way)) for way in SERVED]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    flights = overdue()
    delays = (flights.told - flights.times)[np.isfinite(flights.told)] / HOUR
    print(
        f"overdue: told after {np.median(delays):.1f} hours (median), {delays.max():.1f} at most;"
        f" matured after {flights.label_delay_limit / HOUR:.0f} hours\n\n{table(flights, MEMORIES[:1])}\n"
    )
    made_up = complaints(flights, np.random.default_rng(16))
    delays = (made_up.told - made_up.times)[np.isfinite(made_up.told)] / DAY
    print(
        f"complaints (synthetic delays): told after {np.median(delays):.1f} days (median), {delays.max():.1f}"
        f" at most; matured after {made_up.label_delay_limit / DAY:.0f} days\n\n{table(made_up)}"
    )


if __name__ == "__main__":
    main()
