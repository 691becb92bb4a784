"""Streams whose positives are told late, and what each way to learn from them says of the rate today.

Scores are drawn from Beta(1, 3), over 120 days; a score s is positive at the rate 0.02 + 0.3·s; a positive is
told after a delay that is exponential with a mean of 10 days, and after 30 days a label is final. In
``doubled``, the rate is twice as high in the last 15 days. In ``by score`` it is so, too, and the mean of the
delay is 20 − 15·s days. The error is the root mean square, over predictions, of the error of the rate in
bands of the score that double the odds.

Under each of `TELLINGS` the rate is constant, and positives are told in another way:

* ``weekly batches``, ``daily batches``: at the end of each week or day, or when the label is final;
* ``10 to 3 days``, ``3 to 10 days``: the mean delay of the predictions of the last 15 days is another;
* ``backlog told``: 15 days ago, what had not been told before goes on five times as fast;
* ``all told faster``: so does everything;
* ``lognormal``: with a median of 6 days and a σ of 1; ``Pareto``: P[D > t] = (1 + t/3)^−1.2, in days.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal.delayed.estimate import LEVEL
from streamcal.delayed.feedback import DelayedFeedback
from streamcal.maps.platt import apply_platt, logit
from streamcal.sketch import grid

Floats = npt.NDArray[np.float64]

KINDS: Final = ("constant", "doubled", "by score")
TELLINGS: Final = (
    *("weekly batches", "10 to 3 days", "3 to 10 days", "backlog told", "all told faster", "daily batches"),
    *("lognormal", "Pareto"),
)
DAYS: Final = 120.0
MATURED: Final = 30.0
CHANGE: Final = 15.0  # days ago
_DAY: Final = 86_400.0
_OCTAVE: Final = 52


class Drawn(NamedTuple):
    """One stream, float64[n] each: times in days, ``inf`` where no positive ever comes."""

    scores: Floats
    times: Floats
    told_at: Floats
    rates: Floats
    """Of each score, as of the end of the stream."""


def draw(kind: str, n: int, seed: int) -> Drawn:
    """Draw a stream of n predictions, of one of `KINDS` or `TELLINGS`."""
    rng = np.random.default_rng((20261122, (*KINDS, *TELLINGS).index(kind), seed))
    times, scores = np.sort(rng.uniform(0.0, DAYS, n)), rng.beta(1.0, 3.0, n)
    doubled, begin = kind in ("doubled", "by score"), DAYS - CHANGE
    rates = (0.02 + 0.3 * scores) * (2.0 if doubled else 1.0)
    lately = times > begin
    positive = rng.random(n) < np.where(lately | (not doubled), rates, rates / 2.0)
    delays, told = _delays(kind, rng, scores, lately)
    positive &= delays <= MATURED
    told_at = times + delays
    if kind.endswith("batches"):
        each = 7.0 if kind.startswith("weekly") else 1.0
        told_at = np.minimum(np.ceil(told_at / each) * each, times + MATURED)
    elif kind.endswith(("told", "faster")):
        start = np.maximum(times, begin)
        sooner = (told_at > begin) & ~(lately & (kind == "backlog told"))
        told_at = np.where(sooner, start + (told_at - start) / 5.0, told_at)
    return Drawn(scores, times, np.where(positive, told_at, np.inf), rates * told)


def _delays(
    kind: str, rng: np.random.Generator, scores: Floats, lately: npt.NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Draw delays in days; return them, and the share of positives that is told before a label is final."""
    n = len(scores)
    if kind == "lognormal":
        share = 0.5 * (1.0 + math.erf(math.log(MATURED / 6.0) / math.sqrt(2.0)))
        return 6.0 * rng.lognormal(size=n), np.full(n, share)
    if kind == "Pareto":
        return 3.0 * rng.pareto(1.2, n), np.full(n, 1.0 - (1.0 + MATURED / 3.0) ** -1.2)
    means = np.full(n, 10.0)
    if kind == "by score":
        means = 20.0 - 15.0 * scores
    elif kind.endswith("days"):
        before, since = (float(part) for part in kind.removesuffix(" days").split(" to "))
        means = np.where(lately, since, before)
    return rng.exponential(1.0, n) * means, -np.expm1(-MATURED / means)


def followed(drawn: Drawn) -> DelayedFeedback:
    """Return the counts that have seen a stream to its end, event by event."""
    feedback = DelayedFeedback(MATURED * _DAY)
    asked = drawn.scores, drawn.times * _DAY, np.full(len(drawn.scores), np.nan)
    told = drawn.told_at <= DAYS
    answered = drawn.scores[told], drawn.times[told] * _DAY, drawn.told_at[told] * _DAY
    events = np.concatenate((np.stack(asked, 1), np.stack(answered, 1)))
    moments = np.where(np.isnan(events[:, 2]), events[:, 1], events[:, 2])
    for score, time, at in events[moments.argsort(kind="stable")].tolist():
        if at != at:
            feedback.predict(score, time)
        else:
            feedback.observe_early(score, time, at)
    feedback.predict(0.5, DAYS * _DAY)  # closes the last pane
    return feedback


def bands_of(scores: Floats) -> npt.NDArray[np.int64]:
    """Return the band of each score, int64[n]."""
    return grid.keys_of(scores) >> _OCTAVE


def errors(drawn: Drawn, feedback: DelayedFeedback) -> dict[str, float]:
    """Return the error of each way: of rates by band, and of Platt maps of the exposures."""
    bands = bands_of(drawn.scores)
    which, place = np.unique(bands, return_inverse=True)
    shares = np.bincount(place) / len(bands)
    truth = np.bincount(place, drawn.rates) / np.bincount(place)

    def error(positives: Floats, predictions: Floats) -> float:
        rates = np.divide(positives, predictions, out=np.zeros(len(which)), where=predictions > 0.0)
        return float(np.sqrt(shares @ np.square(np.minimum(rates, 1.0) - truth)))

    def counted(labels: npt.NDArray[np.bool_], of: npt.NDArray[np.bool_]) -> float:
        return error(np.bincount(place, labels & of, len(which)), np.bincount(place, of, len(which)))

    everything, final = np.full(len(bands), True), np.isfinite(drawn.told_at)
    said = {
        "oracle": counted(final, everything),
        "oracle since the change": counted(final, drawn.times > DAYS - CHANGE),
        "negative until told": counted(drawn.told_at <= DAYS, everything),
        "wait": counted(final, drawn.times <= DAYS - MATURED),
    }
    estimate = feedback.estimate()
    own = which.searchsorted(estimate.cells >> np.int32(_OCTAVE - LEVEL))
    for row, memory in enumerate(("all", "recent")):
        sums = (np.bincount(own, part[row], len(which)) for part in (estimate.positives, estimate.exposures))
        said[f"exposure, {memory}"] = error(*sums)
        mapped = apply_platt(*estimate.platt[row][:, np.newaxis], logit(drawn.scores))
        said[f"Platt map, {memory}"] = error(
            np.bincount(place, mapped), np.bincount(place).astype(np.float64)
        )
    return said
