"""The picture and the tables of examples/judge/README.md: ``python docs/figures/llm_judge.py``.

The simulated judges of ``examples/judge``: what each way of use forecasts, against the known truth.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from drawing import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, canvas, markdown, publish
from matplotlib.figure import Figure

from streamcal import backtest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "judge"))
import simulate
from simulate import DAYS, JUDGES, ORDERS, Stream, Values

SEED: Final = 0
TRIAL: Final = 200
"""Answers of the second judge that people look at before it is used."""
RAW: Final = "score as it came"
WAYS: Final = {
    RAW: GREY,
    "no propensities": VERMILION,
    "propensities": ORANGE,
    "propensities, judge as key": BLUE,
    f"the same, {TRIAL} labels of judge-2 before": GREEN,
}
SPANS: Final = {"days 26–50": (25, 50), "days 51–60": (50, 60), "days 76–100": (75, 100)}
"""The last days of the first judge, the first and the last of the second."""

Served: TypeAlias = Mapping[str, Values]
"""Served probabilities, by the way that they were made."""


def frames(stream: Stream, group: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return predictions and labels; the column ``group`` says which judge or order it was."""
    predictions = pd.DataFrame({"id": range(len(stream.times)), "time": stream.times, "score": stream.scores})
    labels = pd.DataFrame({"id": predictions["id"], "time": stream.told_at, "label": stream.labels})
    return predictions.assign(propensity=stream.propensities, **{group: stream.groups}), labels[stream.told]


def forecasts(predictions: pd.DataFrame, labels: pd.DataFrame, **options: Any) -> Values:
    """Return the probability that each prediction was served."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # few labels, and they lean to a class: that is the subject
        done = backtest(predictions, labels, **options)
    return np.asarray(done.frame["probability"])


def judge_answers(stream: Stream) -> Served:
    """Return what each way served of a stream of answers."""
    keyed, labels = frames(stream, "key")
    one, weights = keyed.drop(columns="key"), {"propensity": "propensity"}
    trial = simulate.trial("judge-2", TRIAL, np.random.default_rng(SEED + 1))
    before = pd.DataFrame({"score": trial.scores, "label": trial.labels, "key": trial.groups})
    served = (
        stream.scores,
        forecasts(one.drop(columns="propensity"), labels),
        forecasts(one, labels, columns=weights),
        forecasts(keyed, labels, columns=weights),
        forecasts(keyed, labels, calibration=before, columns=weights),
    )
    return dict(zip(WAYS, served, strict=True))


def judge_pairs(stream: Stream) -> Served:
    """Return what each way served of a stream of pairs."""
    predictions, labels = frames(stream, "order")
    predictions = predictions.drop(columns="propensity")
    return {
        RAW: stream.scores,
        "one map for both orders": forecasts(predictions, labels),
        "the order as segment": forecasts(predictions, labels, segments=["order"]),
    }


def error(stream: Stream, served: Values, begin: float, end: float) -> float:
    """Return the root mean square of served − true probability, from one day to another."""
    days = (stream.times - simulate.START) / simulate.DAY
    within = (days >= begin) & (days < end)
    return float(np.sqrt(np.mean((served - stream.truth)[within] ** 2)))


def answer_table(stream: Stream, served: Served) -> str:
    """Return the error of each way, by days."""
    rows = (
        [way, *(f"{error(stream, each, *span):.3f}" for span in SPANS.values())]
        for way, each in served.items()
    )
    return markdown(("error of what is served", *SPANS), rows)


def pair_table(stream: Stream, served: Served) -> str:
    """Return the error of each way in the second half of the days, and the mean error of each order."""
    half = DAYS / 2
    late = stream.times >= simulate.START + simulate.DAY * half
    rows = []
    for way, each in served.items():
        off = [float(np.mean((each - stream.truth)[late & (stream.groups == order)])) for order in ORDERS]
        rows.append([way, f"{error(stream, each, half, DAYS):.3f}", *(f"{mean:+.3f}" for mean in off)])
    return markdown(("days 51–100", "error", *(f"mean error, {order}" for order in ORDERS)), rows)


def draw(stream: Stream, served: Served) -> Figure:
    """Draw the picture."""
    figure = canvas(10.5, 4.0)
    left, right = figure.subplots(1, 2)
    points = np.arange(1, 11)
    for judge, colour in zip(JUDGES, (BLUE, ORANGE), strict=True):
        known = simulate.truth(simulate.chances(judge), simulate.GOOD)
        left.plot(points, known, color=colour, marker="o", markersize=4, label=f"truth of {judge}")
    left.plot(points, simulate.to_score(points), color=GREY, label="the score")
    left.set(title="Two judges, the same answers", xlabel="points", ylabel="P[a person calls it good]")
    left.legend(frameon=False)
    begins = np.arange(0, DAYS, 5)
    for way, each in served.items():
        errors = [error(stream, each, begin, begin + 5) for begin in begins]
        right.plot(begins + 2.5, errors, color=WAYS[way], label=way)
    right.axvline(DAYS / 2, color=BLACK, linewidth=0.8, linestyle=":")
    right.set(title="Error of what is served, every five days", xlabel="day", ylabel="error (RMS)")
    right.set_ylim(bottom=0.0)
    right.legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    """Draw, and fill the page."""
    answers, pairs = (make(np.random.default_rng(SEED)) for make in (simulate.answers, simulate.pairs))
    served = judge_answers(answers)
    tables = {"answers": answer_table(answers, served), "pairs": pair_table(pairs, judge_pairs(pairs))}
    publish(draw(answers, served), tables, "llm-judge", Path(simulate.__file__).with_name("README.md"))


if __name__ == "__main__":
    main()
