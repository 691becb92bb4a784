"""The picture and the table of docs/recalibration.md: ``python docs/figures/recalibration.py``.

Late flights, March and April: every second flight teaches the map, the others judge it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from drawing import BLUE, GREY, VERMILION, canvas, markdown, publish
from flights import source
from matplotlib.figure import Figure
from scipy.special import expit

from streamcal import RecalibrationMap, Recalibrator
from streamcal.quality.figures import ECE_BINS, ForecastQuality

BINS: Final = ECE_BINS
"""Number of bins in the reliability diagram; they have equal mass."""

Scores = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]


class Judged(NamedTuple):
    """Forecasts of labels that the map has not seen."""

    name: str
    forecasts: Scores
    labels: Labels

    def quality(self) -> ForecastQuality:
        """Return how good the forecasts are."""
        quality = ForecastQuality()
        quality.add(self.forecasts, self.labels)
        return quality

    def brier(self) -> float:
        """Return the mean squared error."""
        return float(np.mean((self.forecasts - self.labels) ** 2))

    def log_loss(self) -> float:
        """Return the mean negative log likelihood; forecasts are clipped to [1e-6, 1 - 1e-6]."""
        p = np.clip(self.forecasts, 1e-6, 1.0 - 1e-6)
        return float(-np.mean(np.where(self.labels == 1, np.log(p), np.log(1.0 - p))))


def measure(scores: Scores, labels: Labels) -> tuple[RecalibrationMap, Judged, Judged]:
    """Learn from every second flight; return the map, and the others' forecasts before and after."""
    engine = Recalibrator(mode="source")
    engine.learn_many(scores[::2], labels[::2], "source")
    engine.refresh()  # from all of them: the schedule has left the last few out
    unseen, truth = scores[1::2], labels[1::2]
    return (
        engine.map,
        Judged("score as it came", unseen, truth),
        Judged("recalibrated", engine.predict_many(unseen), truth),
    )


def tables(before: Judged, after: Judged) -> dict[str, str]:
    """Return the table of the page."""
    rows = [
        (
            each.name,
            f"{each.forecasts.mean():.3f}",
            f"{each.labels.mean():.3f}",
            f"{each.brier():.4f}",
            f"{each.log_loss():.4f}",
            f"{each.quality().figures.ece:.3f}",
        )
        for each in (before, after)
    ]
    header = ("forecast", "its mean", "rate of late flights", "Brier", "log loss", "ECE")
    return {"held-out": markdown(header, rows)}


def draw(scores: Scores, formed: RecalibrationMap, before: Judged, after: Judged) -> Figure:
    """Draw reliability on the unseen flights, and the density of the scores with h below."""
    figure = canvas(10.5, 4.6)
    left, right = figure.subfigures(1, 2)
    axes = left.subplots()
    for judged, colour, marker in ((before, VERMILION, "o"), (after, BLUE, "s")):
        mass, forecasts, late = judged.quality().bins(BINS)
        style = {"color": colour, "marker": marker, "label": judged.name}
        axes.plot(forecasts / mass, late / mass, markersize=4.5, **style)
    reach = 1.05 * max(*axes.get_xlim(), *axes.get_ylim())
    axes.plot([0, reach], [0, reach], color=GREY, linestyle="--", linewidth=1, label="calibrated")
    axes.set(
        title=f"Reliability on unseen flights, {BINS} bins",
        xlabel="forecast probability of a late arrival",
        ylabel="observed rate",
        xlim=(0, reach),
        ylim=(0, reach),
    )
    axes.legend(frameon=False, loc="upper left")

    upper, lower = right.subplots(2, 1, sharex=True)
    upper.hist(
        scores, np.linspace(0.0, 1.0, 201), density=True, histtype="stepfilled", color="0.8", label="scores"
    )
    upper.set(title="Where the scores lie", ylabel="density")
    everywhere = np.linspace(0.0, 1.0, 2001)
    lower.plot(everywhere, formed.predict_many(everywhere), color=BLUE, linewidth=1.6, label="the map h")
    knots = expit(np.array(formed.knots))
    lower.plot(knots, formed.predict_many(knots), "o", color=BLUE, markersize=4.5, label="its knots")
    lower.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="the score itself")
    lower.set(xlabel="score", ylabel="probability", xlim=(0, 0.8), ylim=(0, 0.8))
    lower.legend(frameon=False, loc="upper left")
    return figure


def main() -> None:
    """Draw, and fill the page."""
    scores, labels = source()
    formed, before, after = measure(scores, labels)
    publish(draw(scores, formed, before, after), tables(before, after), "recalibration")


if __name__ == "__main__":
    main()
