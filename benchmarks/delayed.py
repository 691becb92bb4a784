"""Positives that are told late: exposures against classics, on the streams of the tests.

    python benchmarks/delayed.py [--streams 10] [--predictions 100000]

Each way gives a Platt map of the rate at the end of the stream, so that none differs by its family of maps.
The error is that of ``python -m tests.delayed``, in thousandths. The classics:

* the delayed feedback model (Chapelle, KDD 2014): rate and exponential delay are fitted together by maximum
  likelihood, both log-linear in the logit of the score; here with the truth's family of delays, but for the
  end at 30 days;
* fake negative calibration (Ktena et al., RecSys 2019): every prediction is learned at once as a negative
  and, when its positive is told, again as a positive. An online model learns b, and serves p = b / (1 − b).
  Here by online Platt scaling with the discount 0.9997.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, log_expit

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamcal.maps.platt import fit_platt, logit
from streamcal.mixture.candidates import DISCOUNTS
from streamcal.mixture.newton_c import OnlinePlatt
from tests.delayed.simulation import (
    CHANGE,
    DAYS,
    KINDS,
    MATURED,
    Drawn,
    bands_of,
    draw,
    followed,
)

Floats = npt.NDArray[np.float64]


def delayed_feedback(drawn: Drawn, since: float) -> Floats:
    """Return (a, b) of Chapelle's model, fitted to the predictions since this day."""
    own = drawn.times > since
    x, age = logit(drawn.scores[own]), DAYS - drawn.times[own]
    told = drawn.told_at[own] <= DAYS
    delay = np.where(told, drawn.told_at[own] - drawn.times[own], 0.0)
    rows = np.stack((x, np.ones_like(x)), axis=1)

    def loss(parameters: Floats) -> tuple[float, Floats]:
        score, log_rate = rows @ parameters[:2], rows @ parameters[2:]
        p, rate = expit(score), np.exp(log_rate)
        out = np.exp(-rate * age)  # the share of positives that is not told yet
        unsaid = 1.0 - p * -np.expm1(-rate * age)
        total = np.where(told, log_expit(score) + log_rate - rate * delay, np.log(unsaid))
        by_score = np.where(told, 1.0 - p, -p * (1.0 - p) * (1.0 - out) / unsaid)
        by_rate = np.where(told, 1.0 - rate * delay, -p * rate * age * out / unsaid)
        slope = np.concatenate((by_score @ rows, by_rate @ rows))
        return -float(total.mean()), -slope / len(x)

    fitted = minimize(loss, np.array((1.0, 0.0, 0.0, -2.0)), jac=True, method="L-BFGS-B")
    return np.asarray(fitted.x[:2])


def fake_negative(drawn: Drawn) -> Floats:
    """Return what fake negative calibration serves for every score, float64[n]."""
    told, n = drawn.told_at <= DAYS, len(drawn.scores)
    moments = np.concatenate((drawn.times, drawn.told_at[told]))
    scores = np.concatenate((drawn.scores, drawn.scores[told]))
    labels = (np.arange(len(moments)) >= n).astype(np.int8)
    order = moments.argsort(kind="stable")
    online = OnlinePlatt()
    online.learn(logit(scores[order]), labels[order])
    slope, intercept = online.parameters[DISCOUNTS.index(0.9997)].tolist()
    return np.minimum(np.exp(slope * logit(drawn.scores) + intercept), 1.0)  # b / (1 − b)


def rows_of(drawn: Drawn) -> dict[str, float]:
    """Return the error of each way."""
    _, place = np.unique(bands_of(drawn.scores), return_inverse=True)
    counts = np.bincount(place)
    logits, final = logit(drawn.scores), np.isfinite(drawn.told_at)

    def error(rates: Floats) -> float:
        off = np.bincount(place, rates - drawn.rates) / counts
        return 1000.0 * float(np.sqrt(np.square(off) @ counts / counts.sum()))

    def mapped(parameters: Floats) -> float:
        return error(expit(parameters[0] * logits + parameters[1]))

    def fitted(labels: npt.NDArray[np.bool_], own: npt.NDArray[np.bool_]) -> float:
        ones = np.ones((1, int(own.sum())))
        return mapped(fit_platt(logits[own], labels[own].astype(np.float64)[np.newaxis], ones)[0])

    estimate = followed(drawn).estimate()
    assert estimate is not None
    return {
        "oracle since the change": fitted(final, drawn.times > DAYS - CHANGE),
        "wait": fitted(final, drawn.times <= DAYS - MATURED),
        "negative until told": fitted(drawn.told_at <= DAYS, np.full(len(place), True)),
        "fake negative calibration": error(fake_negative(drawn)),
        "delayed feedback model, all": mapped(delayed_feedback(drawn, 0.0)),
        "delayed feedback model, last 30 days": mapped(delayed_feedback(drawn, DAYS - MATURED)),
        "exposure, all": mapped(estimate.platt[0]),
        "exposure, recent": mapped(estimate.platt[1]),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--predictions", type=int, default=100_000)
    options = parser.parse_args()
    columns = []
    for kind in KINDS:
        drawn = [rows_of(draw(kind, options.predictions, seed)) for seed in range(options.streams)]
        columns.append({name: float(np.mean([row[name] for row in drawn])) for name in drawn[0]})
    print(f"| error × 1,000, {options.streams} streams | {' | '.join(KINDS)} |\n|---|{'--:|' * len(KINDS)}")
    for name in columns[0]:
        print(f"| {name} | {' | '.join(f'{column[name]:.1f}' for column in columns)} |")


if __name__ == "__main__":
    main()
