"""The verdict on served forecasts: one sentence, by confidence sequences that may be read at any time.

A deviation is detected where an interval excludes not only 0 but a tolerance, relative to the rarer class:
what is surely there may still be too small to matter. Of the starts since which it is detected, those are
left out after which it surely changed: it ended, or began only then. Of the others, the one with the most
evidence says since when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from streamcal.quality.sequences import BANDS, DELTA, Intervals, Sequences, discoveries
from streamcal.sketch.decoding import MOST, Finite
from streamcal.times import show_time
from streamcal.values import Flags, Floats

__all__ = ["FEWEST", "Arrival", "State", "Verdict", "judge", "may_deviate", "weighted_verdict", "worst_first"]

FEWEST: Final = 100
"""Labels from which on forecasts may be called well calibrated."""

_TOLERANCE: Final = 0.02  # of the rarer class: gap of all forecasts
_BAND_TOLERANCE: Final = 0.1  # of the rarer class there: gap of the forecasts of one band
_LOSS: Final = 0.01  # of the Brier score of the scores: loss by recalibration
_FEWEST_FOR_CAUSE: Final = 100  # labels before a change, and after it, by which causes are distinguished
_STANDARD_ERRORS: Final = 3.0  # of the area under the ROC curve, below ½, for a reversed ranking to be likely
_MOST_POWER: Final = 6  # of DELTA, for the evidence of a reversed ranking
_ENDS: Final = (0.0, *BANDS, 1.0)
_TINY: Final = 1e-12
_LONG: Final = 0.5  # of the time since a start: a delay that is longer hides what forecasts are

_SURE: Final = f"{1.0 - DELTA:.0%} sure"

State: TypeAlias = Literal[
    "too few labels",
    "cannot tell",
    "well calibrated",
    "too low",
    "too high",
    "ranking reversed",
    "worse than the score",
]

_REVERSED: Final = "the ranking of the scores is reversed"
_BALANCE: Final = "the class balance moved"
_SEEMS: Final = "the class balance moved, or seems to because one class comes later than the other"
_SCORES: Final = "the scores moved, and the rate of each score did not"
_RELATION: Final = "the scores mean something else than before"
_LATER: Final = "one class comes later than the other, and forecasts learned from the labels that came first"
_HELD: Final = "Labels of the class that comes first are held until both are equally complete."

_ADVICE: Final = {
    _REVERSED: "Check that the score is that of class 1 (--positive), and that each label has the id of its"
    " own prediction. If so, the model has lost its meaning: only a new one repairs it.",
    _BALANCE: 'Mode "auto" follows it by labels; in another mode, take a window or a new --calibration.',
    _SEEMS: f'Mode "auto" follows a balance that moved. {_HELD}',
    _SCORES: "Another population, or a changed feature: look at what feeds the model.",
    _RELATION: "Look at the features of the model, and whether it was replaced."
    ' Mode "auto" follows by labels.',
    _LATER: f"Nothing is to be done. {_HELD}",
    None: 'Mode "auto" learns the right forecasts by labels. If it is on, look at which keys and segments'
    " deviate, and since when; whether features, the model or the meaning of labels changed; and whether"
    " labels have the ids of"
    " their predictions.",
}


class Verdict(msgspec.Struct, frozen=True):
    """Verdict on the served forecasts as they are now."""

    state: State
    sentence: str
    """Verdict in words, with the interval and the likely cause."""
    evidence: str
    """Figures behind it, in words; empty without labels."""
    labels: int
    """Number of labels that it rests on."""
    since: float | None = None
    """Event time since which forecasts deviate, in seconds; None: they do not, or it is unknown."""
    since_label: int | None = None
    """Number of labels before that; None: forecasts do not deviate."""
    mean: float | None = None
    """Gap: mean forecast − mean label. In state ``worse than the score``, the gain in Brier score."""
    low: float | None = None
    """Lower end of its interval."""
    high: float | None = None
    band: tuple[float, float] | None = None
    """Ends of the band of forecasts that deviates; None: all forecasts."""
    advice: str = ""
    """Next steps; empty where forecasts do not deviate."""
    log_e: float = 0.0
    """Logarithm of an e-value against forecasts that do not deviate."""

    @property
    def deviates(self) -> bool:
        """Whether forecasts are detected to be wrong."""
        return self.since_label is not None


class Arrival(msgspec.Struct, frozen=True):
    """Arrival of labels, as far as it decides what they show."""

    late: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = None
    """Class whose labels come later than those of the other; None: neither surely does."""
    delay: Finite | None = None
    """Age of predictions of that class by which nearly all labels have come; None: it is unknown."""
    by_time: bool = True
    """Whether it is in seconds of event time; otherwise in predictions."""
    in_order: bool = False
    """Whether labels come in the order of their predictions, whatever they are."""


_UNKNOWN: Final = Arrival()


class _Deviation(NamedTuple):
    """A deviation that an interval shows: the start, the column of the intervals, and its evidence."""

    start: int
    column: int
    log_e: float


def judge(sequences: Sequences, arrival: Arrival = _UNKNOWN) -> Verdict:
    """Return the verdict on forecasts, given their sequences and how their labels arrive."""
    labels = sequences.labels
    if not labels:
        return Verdict("too few labels", "No label has met its prediction yet.", "", 0)
    counts = sequences.counts()
    late = arrival.late or 0  # that labels 1 have not come yet may be chance
    if not arrival.in_order and not counts[0, :, late].any():
        words = f"all {labels:,} labels so far are {1 - late}, and those of class {late} may come later."
        return Verdict("cannot tell", f"Cannot tell: {words}", "", labels)
    after, gains = sequences.gaps("after"), sequences.gains()
    reversal = None
    if (turned := _reversed(counts)).any():
        rates = _rate_limits(sequences.gaps("before"))
        reversal = _surest(
            _descends(rates) & turned, _ascends(rates) & (_areas(counts) > 0.5), _log_likelihoods(counts)
        )
    missing, more = _uneven(sequences, after.level, arrival)
    allowed = (missing, more) if late else (more, missing)
    found = _deviating_gap(sequences, after, allowed)
    if found is not None:
        cause = _REVERSED if reversal is not None else _cause(sequences, found.start, arrival)
        return _of_gap(sequences, after, found, cause)
    if reversal is not None:
        return _of_reversal(sequences, reversal, float(_areas(counts[reversal])))
    unsure = 2.0 * np.maximum(missing, more)[:, 0] * sequences.differences()
    lost = _surest(gains.high < -_LOSS * gains.level - unsure, gains.low > 0.0, gains.log_e)
    if lost is not None:
        return _of_loss(sequences, gains, lost, _cause(sequences, lost, arrival))
    mean, low, high = (float(each[0, 0]) for each in after[1:4])
    evidence = (
        f"Over {labels:,} labels, mean forecast − mean label is {_points(mean)} points"
        f" ({_SURE}: {_points(low)} to {_points(high)})."
    )
    state: State = "well calibrated"
    sentence = "Well calibrated: nothing deviates."
    if missing[0, 0] > _tolerance(after)[0, 0]:
        all_ = after.level[0, 0] if late else 1.0 - after.level[0, 0]
        words = f"come later, and may yet move the rate of label 1 by {_points(missing[0, 0])} points"
        if arrival.delay is None:
            words = "may come later: fewer than expected have come"
        elif missing[0, 0] >= all_ - _TINY:
            words = "come later, and too few of them have come"
        state, sentence = "cannot tell", f"Cannot tell: labels of class {late} {words}. {_HELD}"
    elif labels < FEWEST:
        state, sentence = "too few labels", "Too few labels to tell."
    return Verdict(state, sentence, evidence, labels, mean=mean, low=low, high=high)


def weighted_verdict(labels: int) -> Verdict:
    """Return the verdict on forecasts some of whose labels have weights: intervals count each label once."""
    words = (
        "Cannot tell: labels have weights, and the verdict would count each once. The figures are weighted."
    )
    return Verdict("cannot tell", words, "", labels)


def may_deviate(sequences: Sequences) -> bool:
    """Return whether `judge` may detect a deviation: if not, it does not. It costs a tenth of it."""
    return sequences.may_be_refuted() or bool(_reversed(sequences.counts()).any())


def worst_first(verdicts: Mapping[str | None, Verdict]) -> list[str | None]:
    """Return the keys whose forecasts deviate, the surest first.

    Among those returned, at most `DELTA` are wrong on average: see `discoveries`.
    """
    order = sorted(verdicts, key=lambda key: -verdicts[key].log_e)
    found = discoveries(np.array([verdicts[key].log_e for key in order]))
    return [key for key, is_found in zip(order, found, strict=True) if is_found and verdicts[key].deviates]


def _deviating_gap(
    sequences: Sequences, gaps: Intervals, allowed: tuple[Floats, Floats]
) -> _Deviation | None:
    """Return the gap that deviates: of all forecasts if it does, else of the band with the most evidence.

    ``allowed`` is how far forecasts may seem too high, and too low, for the order in which labels come:
    float64[starts, 1 + bands] each.
    """
    tolerance = _tolerance(gaps)
    surely = {
        sign: _turned(sign, gaps.low, gaps.high)[0] > tolerance + of_order
        for sign, of_order in zip((1.0, -1.0), allowed, strict=True)
    }
    some = [
        (sign, column)
        for sign, each in surely.items()
        for column in np.flatnonzero(each.any(axis=0)).tolist()
    ]
    evidence = gaps.log_e + gaps.log_share
    some.sort(key=lambda each: (each[1] != 0, -evidence[surely[each[0]][:, each[1]], each[1]].max()))
    for sign, column in some:
        deviates, between = surely[sign][:, column], sequences.gaps_between(column)
        mean = sign * gaps.mean[:, column]
        low, high = _turned(sign, gaps.low[:, column], gaps.high[:, column])
        starts = np.flatnonzero(deviates)
        for start in starts[np.argsort(-gaps.log_e[starts, column], kind="stable")].tolist():
            was_low, was_high = _turned(sign, *between(start))
            over = (high[start + 1 :] < was_low) & (mean[start + 1 :] <= 0.5 * was_low)
            begun = (low[start + 1 :] > was_high) & deviates[start + 1 :]
            if not (over | begun | _left(gaps, start, column)).any():
                return _Deviation(start, column, float(evidence[start, column]))
    return None


def _left(gaps: Intervals, start: int, column: int) -> Flags:
    """Return since which later starts forecasts have left a band: bool[later starts].

    None is in it, and these are half or more of the labels since the start. Of k alike in chance, all would
    come before them with a probability of at most 2^−k, and fewer than five never deviate.
    """
    labels, inside = gaps.labels[start + 1 :, 0], gaps.labels[start + 1 :, column]
    return np.asarray((inside == 0.0) & (2.0 * labels >= gaps.labels[start, 0]))


def _turned(sign: float, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return intervals of what is ``sign`` times as much."""
    return (low, high) if sign > 0.0 else (-high, -low)


def _tolerance(gaps: Intervals) -> Floats:
    """Return the largest gaps that do not matter, of the shape of the gaps."""
    rate = gaps.level - gaps.mean
    rarer = np.minimum(rate, 1.0 - rate)
    tolerance = _BAND_TOLERANCE * np.maximum(rarer, np.minimum(gaps.level, 1.0 - gaps.level))
    tolerance[:, 0] = _TOLERANCE * rarer[:, 0]
    return np.asarray(tolerance)


def _uneven(sequences: Sequences, forecast: Floats, arrival: Arrival) -> tuple[Floats, Floats]:
    """Return how far the share of the late class since each start may be off for the order of labels.

    The first array is of its labels that are still to come, the second of those that came for predictions
    before the start, as in bulk: each at most as many as in the delay. Of shorter than two delays, nothing is
    known. ``forecast`` is taken for the rate that all labels have; the arrays are of its shape.
    """
    if arrival.late is None:
        return np.zeros(forecast.shape), np.zeros(forecast.shape)
    since = sequences.labels - np.array(sequences.starts, np.float64)
    if arrival.by_time:
        latest = np.nan if sequences.latest is None else sequences.latest
        since = latest - np.array([np.nan if time is None else time for time in sequences.times])
    since = np.where(since > 0.0, since, _TINY)[:, None]
    part = (MOST if arrival.delay is None else arrival.delay) / since
    part = np.where(part <= _LONG, part, MOST)
    rate = forecast if arrival.late else 1.0 - forecast
    lacks = np.minimum(part, 1.0)
    missing = rate * (1.0 - rate) * lacks / np.maximum(1.0 - rate * lacks, _TINY)
    return missing, rate * (1.0 - rate) * part / (1.0 + rate * part)


def _surest(holds: Flags, over: Flags, evidence: Floats) -> int | None:
    """Return the start with the most evidence of those since which something holds, and is not over later."""
    now = holds & ~np.logical_or.accumulate(over[::-1])[::-1]
    return int(np.where(now, evidence, -np.inf).argmax()) if now.any() else None


def _rate_limits(gaps: Intervals) -> tuple[Floats, Floats]:
    """Return the lower and upper limits of the rate of label 1 in each band: float64[starts, bands] each."""
    low, high = gaps.level - gaps.high, gaps.level - gaps.low
    empty = np.isnan(gaps.level)
    return np.where(empty, 0.0, low)[:, 1:], np.where(empty, 1.0, high)[:, 1:]


def _descends(limits: tuple[Floats, Floats]) -> Flags:
    """Return whether some band has surely a higher rate than one above it: bool[starts]."""
    low, high = limits
    return np.asarray((np.maximum.accumulate(low, axis=1) > high).any(axis=1))


def _ascends(limits: tuple[Floats, Floats]) -> Flags:
    """Return whether some band has surely a lower rate than one above it: bool[starts]."""
    low, high = limits
    return np.asarray((np.minimum.accumulate(high, axis=1) < low).any(axis=1))


def _areas(counts: Floats) -> Floats:
    """Return the area under the ROC curve of the scores in bands, ½ with one class: float64[…]."""
    zeros, ones = counts[..., 0], counts[..., 1]
    below = np.cumsum(zeros, axis=-1) - 0.5 * zeros
    pairs = zeros.sum(axis=-1) * ones.sum(axis=-1)
    return np.where(pairs > 0.0, (ones * below).sum(axis=-1) / np.maximum(pairs, 1.0), 0.5)


def _reversed(counts: Floats) -> Flags:
    """Return whether the area under the ROC curve is below ½ beyond chance: bool[…].

    Its standard error is that of scores and labels that are independent (Mann and Whitney 1947).
    """
    zeros, ones = np.moveaxis(np.maximum(counts.sum(axis=-2), 1.0), -1, 0)
    error = np.sqrt((zeros + ones + 1.0) / (12.0 * zeros * ones))
    return np.asarray(_areas(counts) < 0.5 - _STANDARD_ERRORS * error)


def _of_gap(sequences: Sequences, gaps: Intervals, found: _Deviation, cause: str | None) -> Verdict:
    labels, mean, low, high, level = (float(each[found.start, found.column]) for each in gaps[:5])
    state: State = "too high" if mean > 0.0 else "too low"
    which, band = "forecasts", None
    if found.column:
        band = _ENDS[found.column - 1], _ENDS[found.column]
        which = f"forecasts between {band[0]:g} and {band[1]:g}"
    least, most = sorted((abs(low), abs(high)))
    words = (
        f"{_since(sequences, found.start)} {which} are {_points(abs(mean))} points {state}"
        f" ({_SURE}: {_points(least)} to {_points(most)})."
    )
    evidence = f"Mean forecast {level:.2%}; of {labels:,.0f} labels, {level - mean:.2%} are 1."
    return _deviation(
        sequences, found.start, state, words, evidence, cause, (mean, low, high), band, found.log_e
    )


def _of_reversal(sequences: Sequences, start: int, area: float) -> Verdict:
    words = f"{_since(sequences, start)} higher scores have fewer labels 1; what is served makes up for it."
    evidence = (
        f"Area under the ROC curve {area:.2f}, by {sequences.labels - sequences.starts[start]:,} labels."
    )
    power = 1  # intervals at DELTA, and as far as they show it at DELTA², DELTA³, …, are the evidence
    while power < _MOST_POWER:
        rates = _rate_limits(sequences.gaps("before", delta=DELTA ** (power + 1)))
        if not _descends(rates)[start]:
            break
        power += 1
    log_e = -power * float(np.log(DELTA))
    return _deviation(sequences, start, "ranking reversed", words, evidence, _REVERSED, None, None, log_e)


def _of_loss(sequences: Sequences, gains: Intervals, start: int, cause: str | None) -> Verdict:
    labels, mean, low, high, level = (float(each[start]) for each in gains[:5])
    words = (
        f"{_since(sequences, start)} what is served is worse than the score: its Brier score is higher by"
        f" {-mean:.2g} ({_SURE}: {-high:.2g} to {-low:.2g})."
    )
    evidence = f"Brier score {level:.4f} before, {level - mean:.4f} after, by {labels:,.0f} labels."
    log_e = float(gains.log_e[start] + gains.log_share[start])
    interval = mean, low, high
    return _deviation(sequences, start, "worse than the score", words, evidence, cause, interval, None, log_e)


def _deviation(
    sequences: Sequences,
    start: int,
    state: State,
    words: str,
    evidence: str,
    cause: str | None,
    interval: tuple[float, float, float] | None,
    band: tuple[float, float] | None,
    log_e: float,
) -> Verdict:
    """Return the verdict on a deviation, with its likely cause and what to do about it."""
    likely = " The cause is not clear." if cause is None else f" Likely cause: {cause}."
    time, since_label = sequences.times[start], sequences.starts[start]
    mean, low, high = interval or (None, None, None)
    return Verdict(
        state,
        f"{words}{likely}",
        evidence,
        sequences.labels - since_label,
        time,
        since_label,
        mean,
        low,
        high,
        band,
        _ADVICE[cause],
        log_e,
    )


def _since(sequences: Sequences, start: int) -> str:
    time, labels = sequences.times[start], sequences.starts[start]
    if not labels:
        return "Since the first label"
    if time is None:
        return f"Over the latest {sequences.labels - labels:,} labels"
    return f"Since {show_time(time, '%d %b %Y, %H:%M UTC')}"


def _points(value: float) -> str:
    """Return a difference of probabilities in percentage points, to two digits at least."""
    points = 100.0 * value
    return (f"{points:.0f}" if abs(points) >= 9.95 else f"{points:#.2g}").replace("-", "−")


def _cause(sequences: Sequences, start: int, arrival: Arrival) -> str | None:
    """Return the likely cause of a deviation since a start, by the labels in bands of the scores.

    That one class comes later is one only where the engine has found so, whatever the sign of the deviation:
    labels that are missing make forecasts seem off, and were learned as a rate that moved.

    The labels since then are given the likelihood of each cause, with rates and frequencies as before them
    where the cause leaves these as they were, and fitted ones elsewhere, each of which costs ½ ln n
    (Schwarz 1978).
    """
    late = arrival.late is not None and arrival.delay is not None
    if late and not start:
        return _LATER
    counts = sequences.counts()
    now = counts[start]
    before, n = counts[0] - now, now.sum()
    if min(n, before.sum()) < _FEWEST_FOR_CAUSE:
        return None
    before = before + 0.5
    of_class, of_band = before.sum(axis=0), before.sum(axis=1, keepdims=True)
    scores_as_before = float((now * np.log(before / of_class)).sum())
    rates_as_before = float((now * np.log(before / of_band)).sum())
    cost, bands = 0.5 * np.log(n), int((counts[0].sum(axis=1) > 0.0).sum())
    likelihoods = {
        _BALANCE: scores_as_before + _log_likelihood(now.sum(axis=0), n).sum() - cost,
        _SCORES: rates_as_before + _log_likelihood(now.sum(axis=1), n).sum() - (bands - 1) * cost,
        _RELATION: _log_likelihood(now, n).sum() - (2 * bands - 1) * cost,
    }
    cause = max(likelihoods, key=lambda cause: likelihoods[cause])
    if late and cause == _BALANCE:
        return _SEEMS
    return _REVERSED if cause == _RELATION and _reversed(now) else cause


def _log_likelihood(counts: Floats, totals: Floats | float) -> Floats:
    """Return the terms of a largest log-likelihood, n ln (n / total): of the shape of the counts."""
    return np.asarray(counts * np.log(np.maximum(counts, 1.0) / np.maximum(totals, 1.0)))


def _log_likelihoods(counts: Floats) -> Floats:
    """Return the penalised log-likelihood of all labels if the rates of the bands change at each start only.

    ``counts`` are those of `Sequences.counts`. The first start changes nothing; at another, each band costs
    ½ ln n (Schwarz 1978). What is returned is float64[starts].
    """
    parts = (counts, counts[0] - counts)
    either = [_log_likelihood(part, part.sum(axis=-1, keepdims=True)).sum(axis=(-2, -1)) for part in parts]
    bands = (counts[0].sum(axis=1) > 0.0).sum()
    cost = np.where(np.arange(len(counts)) > 0, 0.5 * bands * np.log(counts[0].sum()), 0.0)
    return np.asarray(either[0] + either[1] - cost)
