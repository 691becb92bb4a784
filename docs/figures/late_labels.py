"""The picture and the table of docs/late-labels.md: ``python docs/figures/late_labels.py``.

A made-up stream, so that the truth is known: 1,000 predictions a day, of which 10% are positive, from day 60
on 20%. Positives are told after an exponential time, 10 days on average and 30 at most, and negatives never.
In panel 1, positives take a tenth of that, and negatives are told at the end of each week. Ways see 30 days;
those that learn one label after the other, the latest 5,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from drawing import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, canvas, markdown, publish
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from streamcal.delayed.feedback import DelayedFeedback
from streamcal.delayed.label_release_c import LabelRelease

DAYS: Final = 120
DOUBLED: Final = 60
STEADY: Final = (31, 60)
"""First and last day whose least and greatest figures are in the table."""
LOOK: Final = 75
"""Day whose figures are in the table."""
MATURED: Final = 30
WEEK: Final = 7
LATEST: Final = 5_000
"""Number of labels, for ways that learn labels one after the other."""
DAY: Final = 86_400.0
A_DAY: Final = 1_000
RATES: Final = (0.1, 0.2)
FLAGGED: Final = 0.3
"""Scores from which every label comes; below, one in twenty."""
PROPENSITY: Final = 0.05

COLOURS: Final = {
    "truth": BLACK,
    "as told": VERMILION,
    "held": GREEN,
    "dropped": VERMILION,
    "0 until told": ORANGE,
    "matured": BLUE,
    "early positives": GREEN,
    "every label": BLUE,
    "labels alone": VERMILION,
    "weighted": GREEN,
}
TITLES: Final = (
    "1  Both are told, negatives in weekly bulk",
    "2  Positives only: a negative is never told",
    "3  Labels for some",
)

Floats = npt.NDArray[np.float64]
Lines = dict[str, Floats]
"""By way: the share of positives that it sees at the end of each day, float64[`DAYS`]."""


def stream(rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Return when predictions are made, when each is told to be positive (inf: it is not), and scores."""
    made = np.arange(DAYS * A_DAY) / A_DAY
    rates = np.where(made < DOUBLED, *RATES)
    positive = rng.random(len(made)) < rates
    delays = -10.0 * np.log1p(rng.random(len(made)) * np.expm1(-MATURED / 10.0))
    scores = np.where(positive, rng.beta(3.0, 3.0, len(made)), rng.beta(1.0, 5.0, len(made)))
    return made, np.where(positive, made + delays, np.inf), scores


def cases(rng: np.random.Generator) -> list[Lines]:
    """Return the lines of the three cases; a way sees what it can of the latest 30 days, or labels."""
    made, told, scores = stream(rng)
    positive = np.isfinite(told)
    labelled = (scores >= FLAGGED) | (rng.random(len(made)) < PROPENSITY)
    weights = np.where(scores >= FLAGGED, 1.0, 1.0 / PROPENSITY)
    ways = ("dropped", "0 until told", "matured", "every label", "labels alone", "weighted")
    seen = {way: np.full(DAYS, np.nan) for way in ways}
    for day in range(1, DAYS + 1):
        young = (made >= day - MATURED) & (made < day)
        old = (made >= day - 2 * MATURED) & (made < day - MATURED)
        some = young & labelled
        for way, values in (
            ("dropped", np.ones(int((told < day).any()))),
            ("0 until told", told[young] < day),
            ("matured", positive[old]),
            ("every label", positive[young]),
            ("labels alone", positive[some]),
        ):
            if len(values):
                seen[way][day - 1] = values.mean()
        seen["weighted"][day - 1] = np.average(positive[some], weights=weights[some])
    seen["early positives"] = by_exposure(made, told)
    seen["as told"], seen["held"] = one_after_the_other(made, told, scores)
    truth = np.where(np.arange(DAYS) < DOUBLED, *RATES)
    return [
        {"truth": truth, **{name: seen[name] for name in names}}
        for names in (
            ("as told", "held"),
            ("dropped", "0 until told", "matured", "early positives"),
            ("every label", "labels alone", "weighted"),
        )
    ]


def one_after_the_other(made: Floats, told: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Return the share of positives of the latest labels: as told, and as mode `auto` learns them."""
    labels = np.isfinite(told).astype(np.int8)
    soon, bulk = made + (told - made) / 10.0, np.ceil((made + 1e-9) / WEEK) * WEEK
    told = np.where(labels == 1, soon, bulk)
    release, learned = LabelRelease(), list[tuple[float, int, float]]()

    def learn(day: float) -> None:
        given = release.released_labels()
        learned.extend((day, *pair) for pair in zip(given.labels, given.weights, strict=True))

    for number in np.argsort(np.concatenate([made, told]), kind="stable").tolist():
        i, day = number % len(made), float(made[number] if number < len(made) else told[number - len(made)])
        if day >= DAYS:
            break
        score = float(scores[i])
        if number < len(made):
            if release.unsettled:
                release.expect(score)
            if release.holds:
                release.note(score)
            if release.predict(day * DAY) and release.end():
                learn(day)
        elif release.take(score, int(labels[i]), i, 1.0, day * DAY, day * DAY, score, None):
            learned.append((day, int(labels[i]), 1.0))
        elif release.ready:
            learn(day)
    days, kinds, weights = np.array(learned, np.float64).T
    order = np.argsort(told, kind="stable")
    return latest(told[order], labels[order], np.ones(len(made))), latest(days, kinds, weights)


def latest(days: Floats, labels: npt.NDArray[Any], weights: Floats) -> Floats:
    """Return the share of positives among the latest labels at the end of each day; labels come in order."""
    seen = np.full(DAYS, np.nan)
    for day, end in enumerate(np.searchsorted(days, np.arange(1, DAYS + 1)).tolist()):
        part = slice(max(0, end - LATEST), end)
        if end:
            seen[day] = np.average(labels[part], weights=weights[part])
    return seen


def by_exposure(made: Floats, told: Floats) -> Floats:
    """Return what `streamcal.delayed` sees at the end of each day, of all scores together."""
    feedback = DelayedFeedback(MATURED * DAY)
    found = np.full(DAYS, np.nan)
    order = np.argsort(np.concatenate([made, told]), kind="stable")
    end, events = 1.0, iter(order.tolist())
    for number in events:
        asked = number < len(made)
        time = made[number] if asked else told[number - len(made)]
        while time >= end and end <= DAYS:
            estimated = feedback.estimate()
            if estimated is not None:
                found[int(end) - 1] = estimated.positives[1].sum() / estimated.exposures[1].sum()
            end += 1.0
        if time >= DAYS:
            break
        if asked:
            feedback.predict(0.5, time * DAY)
        else:
            feedback.observe_early(0.5, made[number - len(made)] * DAY, time * DAY)
    return found


def draw_case(axes: Axes, title: str, lines: Lines) -> None:
    """Draw the share of positives that each way sees."""
    for name, values in lines.items():
        style = {"linewidth": 1.2, "linestyle": "--"} if name == "truth" else {"linewidth": 1.8}
        axes.plot(np.arange(1, DAYS + 1), values, color=COLOURS[name], label=name, **style)
    axes.axvline(DOUBLED, color=GREY, linewidth=0.8)
    axes.set_title(title, loc="left")
    axes.set_xlabel("day")
    axes.set_xlim(0, DAYS)
    axes.set_ylim(0.0, 0.55)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
    axes.legend(frameon=False, fontsize=9, loc="upper left")


def draw(found: list[Lines]) -> Figure:
    """Draw the three cases."""
    figure = canvas(12.5, 4.0)
    for axes, title, lines in zip(figure.subplots(1, 3), TITLES, found, strict=True):
        draw_case(axes, title, lines)
    figure.axes[1].text(DAYS - 2, 0.5, "dropped: 100%", ha="right", color=VERMILION, fontsize=9)
    return figure


def tables(found: list[Lines]) -> Mapping[str, str]:
    """Return what each way sees while the rate is steady, and 15 days after the doubling."""
    steady = slice(STEADY[0] - 1, STEADY[1])
    rows = [
        (title[0], name, *(f"{value:.1%}" for value in (np.nanmin(part), np.nanmax(part), values[LOOK - 1])))
        for title, lines in zip(TITLES, found, strict=True)
        for name, values in lines.items()
        if name != "truth"
        for part in [values[steady]]
    ]
    first, last = STEADY
    header = ("panel", "way", f"days {first} to {last}: least", "most", f"day {LOOK}, 15 after the doubling")
    return {"cases": markdown(header, rows)}


def main() -> None:
    """Draw, and fill the page."""
    found = cases(np.random.default_rng(16))
    publish(draw(found), tables(found), "late-labels")


if __name__ == "__main__":
    main()
