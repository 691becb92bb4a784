"""The picture and the tables of docs/drift.md: ``python docs/figures/drift.py``.

The flights stream from May to December, labels at the arrival: what each way of forgetting forecasts, and how
mode ``auto`` weighs its candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    canvas,
    markdown,
    months,
    publish,
)
from flights import events, source
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamcal import DriftAlarm, LabelEvent, MapPublished, PredictionEvent, Recalibrated, Recalibrator
from streamcal.certificates.record import LABEL_SHIFT_REFUTED

WAYS: Final[dict[str, dict[str, Any]]] = {
    "source": {"mode": "source"},
    "composite": {"mode": "composite"},
    "target": {"mode": "target"},
    "target, window = 4000": {"mode": "target", "window": 4000},
    "target, window of 30 days": {"mode": "target", "window": timedelta(days=30)},
    "auto": {},
}
ONLINE: Final = "online Platt"
SHAPED: Final = "isotonic, hinge and curve"
GROUPS: Final = {"identity": GREY, "composite": BLUE, ONLINE: SKY, SHAPED: GREEN}
WEEK: Final = 7 * 86_400.0

Values = npt.NDArray[np.float64]


class Published(NamedTuple):
    """How the map was mixed at a moment: time in seconds, leader, weight of every candidate."""

    time: float
    leader: str
    weights: dict[str, float]
    reason: str | None


class Replay(NamedTuple):
    """The forecasts of one engine for the flights, in the order in which the labels came."""

    times: Values
    """Times of the labels, in seconds."""
    scores: Values
    forecasts: Values
    """At prediction time."""
    labels: Values
    mixtures: list[Published]
    alarms: list[tuple[float, DriftAlarm]]

    @property
    def losses(self) -> Values:
        """The Brier loss of every forecast."""
        squares: Values = (self.forecasts - self.labels) ** 2
        return squares

    @property
    def raw_losses(self) -> Values:
        """The Brier loss of every raw score."""
        squares: Values = (self.scores - self.labels) ** 2
        return squares


def replay(options: Mapping[str, Any], stream: Sequence[PredictionEvent | LabelEvent]) -> Replay:
    """Feed the stream to an engine that knows March and April, event by event."""
    engine = Recalibrator(**options)
    if options.get("mode") != "target":
        engine.learn_many(*source(), "source")
    forecasts: dict[str, Recalibrated] = {}
    rows: list[tuple[float, float, float, int]] = []
    mixtures: list[Published] = []
    alarms: list[tuple[float, DriftAlarm]] = []
    for event in stream:
        time = event.time or 0.0
        if isinstance(event, LabelEvent) and event.id in forecasts:
            given = forecasts.pop(event.id)
            rows.append((time, given.score, given.probability, event.label))
        for emission in engine.step(event):
            if isinstance(emission, Recalibrated) and emission.id is not None:
                forecasts[emission.id] = emission
            elif isinstance(emission, MapPublished) and emission.mixture is not None:
                mixing = emission.mixture
                mixtures.append(Published(time, mixing.leader, dict(mixing.weights), mixing.reason))
            elif isinstance(emission, DriftAlarm):
                alarms.append((time, emission))
    return Replay(*np.array(rows).T, mixtures, alarms)


def group_of(candidate: str) -> str:
    """Return the group of a candidate; candidates are named estimator/family/memory."""
    estimator, _, rest = candidate.partition("/")
    if estimator != "target":
        return estimator
    return ONLINE if rest.startswith("platt/") else SHAPED


def grouped(mixtures: Sequence[Published]) -> dict[str, Values]:
    """Return the weight of every group at every moment; they sum to 1."""
    totals = {group: np.zeros(len(mixtures)) for group in GROUPS}
    for place, moment in enumerate(mixtures):
        for candidate, weight in moment.weights.items():
            totals[group_of(candidate)][place] += weight
    return totals


def weekly(times: Values, values: Values, start: float) -> tuple[list[datetime], Values]:
    """Return the start of every week and the mean of its values; an incomplete week is left out.

    Parameters
    ----------
    times, values
        float64[n], the times ascending.
    start
        when the first week begins; there are values in every week.
    """
    weeks = ((times - start) // WEEK).astype(int)
    count = max(1, weeks[-1])
    means = np.bincount(weeks, values)[:count] / np.bincount(weeks)[:count]
    return [moment(start + week * WEEK) for week in range(count)], means


def tables(replays: Mapping[str, Replay]) -> dict[str, str]:
    """Return the table of the page: Brier scores by way of forgetting."""
    return {"brier": brier_table(replays)}


def brier_table(replays: Mapping[str, Replay]) -> str:
    """Return the Brier score of every way of forgetting."""
    first = next(iter(replays.values()))
    raw = float(first.raw_losses.mean())
    rows = [("score as it came", f"{raw:.5f}", "–", "–")]
    for name, each in replays.items():
        score = float(each.losses.mean())
        _, weeks = weekly(each.times, each.losses - each.raw_losses, each.times[0])
        rows.append(
            (
                f"`{name}`",
                f"{score:.5f}",
                f"{score / raw - 1.0:+.2%}".replace("-", "−"),
                f"{(weeks < 0).sum()} of {len(weeks)}",
            )
        )
    return markdown(("forecast", "Brier", "against the score", "weeks better than the score"), rows)


def moment(time: float) -> datetime:
    """Return seconds since the epoch as a date (UTC)."""
    return datetime.fromtimestamp(time, UTC)


def draw_weights(axes: Axes, auto: Replay) -> None:
    """Draw the mean weight of every group in every week, and the alarms that move it."""
    times = np.array([each.time for each in auto.mixtures])
    below = 0.0
    for group, column in grouped(auto.mixtures).items():
        weeks, weights = weekly(times, column, auto.times[0])
        axes.bar(weeks, weights, timedelta(days=7), below, align="edge", color=GROUPS[group], label=group)  # type: ignore[arg-type]
        below = below + weights
    for time in [time for time, alarm in auto.alarms if alarm.assumption == LABEL_SHIFT_REFUTED]:
        axes.axvline(moment(time), color=BLACK, linestyle=":", linewidth=1.2)  # type: ignore[arg-type]
    axes.set(title="Weight of the candidates of mode auto, by week", ylabel="mean weight", ylim=(0, 1))
    months(axes)
    axes.legend(frameon=False, ncols=2, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def draw_losses(axes: Axes, replays: Mapping[str, Replay]) -> None:
    """Draw how much better each forecast is than the raw score, week by week."""
    shown = {"source": ORANGE, "composite": BLUE, "target": GREEN, "auto": VERMILION}
    for name, colour in shown.items():
        each = replays[name]
        weeks, gained = weekly(each.times, each.losses - each.raw_losses, each.times[0])
        axes.step(
            weeks, gained, where="post", color=colour, linewidth=2.2 if name == "auto" else 1.2, label=name
        )  # type: ignore[arg-type]
    axes.axhline(0.0, color=GREY, linestyle="--", linewidth=1, label="score as it came")
    axes.set(title="Brier score minus that of the score, by week", ylabel="below 0 is better")
    months(axes)
    axes.legend(frameon=False, ncols=2, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def draw(replays: Mapping[str, Replay]) -> Figure:
    """Draw the picture."""
    figure = canvas(11.5, 4.6)
    left, right = figure.subplots(1, 2)
    draw_weights(left, replays["auto"])
    draw_losses(right, replays)
    return figure


def main() -> None:
    """Draw, and fill the page."""
    stream = events()
    replays = {name: replay(options, stream) for name, options in WAYS.items()}
    publish(draw(replays), tables(replays), "drift")


if __name__ == "__main__":
    main()
