"""The picture of README.md: ``python docs/figures/months.py``.

The year of flights, by month: the mean score, the mean of what is served, and the rate of late flights.
"""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
from drawing import BLACK, BLUE, FOLDER, VERMILION, canvas, months, save
from flights import rows
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import streamcal

NAMES: Final = {"score": "mean score", "probability": "mean recalibrated", "label": "rate of late flights"}
STYLES: Final[dict[str, dict[str, Any]]] = {
    "score": {"color": VERMILION, "marker": "o"},
    "probability": {"color": BLUE, "marker": "s"},
    "label": {"color": BLACK, "marker": "", "linestyle": "--"},
}


def by_month(predictions: pd.DataFrame, labels: pd.DataFrame, source: pd.DataFrame) -> pd.DataFrame:
    """Replay the stream; return a row a month, by its first day: the means of the labelled predictions.

    Each prediction is answered from the labels that had come by then.
    """
    served = streamcal.backtest(predictions, labels, source).frame.merge(labels[["id", "label"]], on="id")
    local = pd.to_datetime(served["time"], unit="s", utc=True).dt.tz_convert("America/New_York")
    month = local.dt.tz_localize(None).dt.to_period("M").dt.to_timestamp()
    return served.groupby(month)[list(NAMES)].mean()


def draw(means: pd.DataFrame) -> Figure:
    """Draw a line for each of the three means."""
    figure = canvas(8.0, 3.4)
    axes = figure.subplots()
    for column, style in STYLES.items():
        axes.plot(means.index, means[column], label=NAMES[column], linewidth=1.8, markersize=5, **style)
    axes.set(title="Late flights from JFK, by month of 2013", ylim=(0.0, None))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    months(axes)
    axes.legend(frameon=False, loc="lower left", ncols=3)
    return figure


def main() -> None:
    """Draw it, and print the means."""
    means = by_month(*(pd.DataFrame(rows(name, "JFK")) for name in ("predictions", "labels", "source")))
    path = FOLDER / "months.svg"
    save(draw(means), path)
    print(f"{means.round(3)}\n\n{path} is up to date")  # noqa: T201  what the command is for


if __name__ == "__main__":
    main()
