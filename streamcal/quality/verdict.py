"""The verdict on served forecasts: one sentence, by confidence sequences that may be read at any time.

A deviation is detected where an interval excludes not only 0 but a tolerance, relative to the rarer class:
what is surely there may still be too small to matter. Of the starts since which it is detected, those are
left out after which it surely changed: it ended, or began only then. Of the others, the one with the most
evidence says since when.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from streamcal.base.times import show_time
from streamcal.base.values import BANDS, Flags, Floats
from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.quality.label_sums import DELTA, Intervals, LabelSums, discoveries
from streamcal.quality.sampled_sums import SampledSums
from streamcal.sketch.decoding import Finite

FEWEST: Final = 100
"""Labels from which on forecasts may be called well calibrated."""

_TOLERANCE: Final = 0.02  # of the rarer class: gap of all forecasts
_BAND_TOLERANCE: Final = 0.1  # of the rarer class there: gap of the forecasts of one band
_LOSS: Final = 0.01  # of the Brier score of the scores: loss by recalibration
_FEWEST_FOR_CAUSE: Final = 100  # labels before a change, and after it, by which causes are distinguished
_ODDS: Final = 3.0  # logarithm of a ratio of likelihoods, about 20, from which a cause is named
_STANDARD_ERRORS: Final = 3.0  # of the area under the ROC curve, below ½, for a reversed ranking to be likely
_MOST_POWER: Final = 6  # of DELTA, for the evidence of a reversed ranking
_ENDS: Final = (0.0, *BANDS, 1.0)

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

Cause: TypeAlias = Literal["class_balance", "ranking_reversed", "relation", "scores"]
"""Code of the likely cause of a deviation."""

_HELD: Final = "Labels of the class that comes first are held until both are equally complete."

_WORDS: Final[dict[Cause | None, tuple[str, str]]] = {
    "ranking_reversed": (
        "Likely cause: the ranking of the scores is reversed.",
        "Check that the score is that of class 1 (option positive), and that each label has the id of its own"
        " prediction. If so, the model has lost its meaning: only a new one repairs it.",
    ),
    "class_balance": (
        "Likely cause: the class balance moved.",
        'Mode "auto", the default, learns the new balance from labels.',
    ),
    "scores": (
        "Likely cause: the scores moved, and the rate of each score did not.",
        'Mode "auto", the default, learns from labels what the scores mean where they are now. Look at what'
        " feeds the model: another population, or a changed feature.",
    ),
    "relation": (
        "Likely cause: the scores mean something else than before.",
        'Mode "auto", the default, learns from labels what the scores mean now. Look at the features of the'
        " model, and whether it was replaced.",
    ),
    None: (
        "The cause is not clear.",
        'Mode "auto" learns the right forecasts by labels. If it is on, look at which keys and segments'
        " deviate, and since when; whether features, the model or the meaning of labels changed; and whether"
        " labels have the ids of their predictions.",
    ),
}
"""The likely cause, and what to do about it."""


class Verdict(msgspec.Struct, frozen=True):
    """Verdict on the served forecasts as they are now."""

    state: State
    sentence: str
    """Verdict in words, with the interval."""
    evidence: str
    """Likely cause, and figures behind the verdict, in words; empty without labels."""
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
    cause: Cause | None = None
    """Likely cause of a deviation; None: it is not clear, or nothing deviates."""

    @property
    def deviates(self) -> bool:
        """Whether forecasts are detected to be wrong."""
        return self.since_label is not None


class Arrival(msgspec.Struct, frozen=True):
    """Arrival of labels, as far as it decides which of them are a fair sample."""

    late: Annotated[int, msgspec.Meta(ge=0, le=1)] | None = None
    """Class whose labels come later than those of the other; None: neither surely does."""
    complete_at: Finite | None = None
    """Age of predictions from which nearly all labels have come, in seconds; None: it is not known."""
    fair: bool = True
    """Whether the labels that have come are a fair sample. If not, those of complete predictions are one."""
    in_order: bool = False
    """Whether labels come in the order of their predictions, whatever they are."""

    @property
    def age(self) -> float:
        """Age from which predictions are complete, in seconds; infinite where it is unknown."""
        return math.inf if self.complete_at is None else self.complete_at


_UNKNOWN: Final = Arrival()


class _Deviation(NamedTuple):
    """A deviation that an interval shows: the start, the column of the intervals, and its evidence."""

    start: int
    column: int
    log_e: float


def judge(sums: LabelSums, arrival: Arrival = _UNKNOWN) -> Verdict:
    """Return the verdict on forecasts, given the sums over their labels.

    Where one class comes later, the labels are those of predictions that are complete: see `Arrival`.
    """
    if isinstance(sums, SampledSums) and (doubted := _doubted(sums, arrival)) is not None:
        return doubted
    labels, late = sums.labels, arrival.late
    later = "labels of one class may come later" if late is None else f"labels of class {late} come later"
    if not labels:
        if arrival.fair:
            return Verdict("too few labels", "No label has met its prediction yet.", "", 0)
        words = f"Cannot tell: {later}, and no predictions are known to have nearly all of their labels."
        return Verdict("cannot tell", words if late is None else f"{words} {_HELD}", "", 0)
    counts = sums.counts()
    if arrival.fair and not arrival.in_order and not counts[0, :, 0].any():  # no label 1 may be chance
        words = f"Cannot tell: all {labels:,} labels so far are 1, and those of class 0 may come later."
        return Verdict("cannot tell", words, "", labels)
    after, gains = sums.gaps("after"), sums.gains()
    reversal = None
    if not isinstance(sums, SampledSums) and (turned := _reversed(counts)).any():
        rates = _rate_limits(sums.gaps("before"))
        reversal = _surest(
            _descends(rates) & turned, _ascends(rates) & (_areas(counts) > 0.5), _log_likelihoods(counts)
        )
    incomplete = 0.0 if arrival.fair else 1.0 - COMPLETE
    found = _deviating_gap(sums, after, incomplete)
    if found is not None:
        cause: Cause | None = "ranking_reversed" if reversal is not None else _cause(sums, found.start)
        return _of_gap(sums, after, found, cause)
    once = sums.once if isinstance(sums, SampledSums) else None
    if once is not None and once.labels:
        drawn = once.gaps("after")
        found = _deviating_gap(once, drawn, incomplete, all_first=False)
        if found is not None:
            return _of_gap(once, drawn, found, _cause(once, found.start), " where labels were drawn")
    if reversal is not None:
        return _of_reversal(sums, reversal, float(_areas(counts[reversal])))
    lost = _surest(gains.high < -(_LOSS + incomplete) * gains.level, gains.low > 0.0, gains.log_e)
    if lost is not None:
        return _of_loss(sums, gains, lost, _cause(sums, lost))
    # What deviated before is over.
    excess = np.maximum(after.low[:, 0], -after.high[:, 0]) - _tolerance(after)[:, 0]
    at = int(np.argmax(excess <= incomplete * (after.level * (1.0 - after.level))[:, 0]))
    number, mean, low, high = (float(each[at, 0]) for each in after[:4])
    over = f"{'the latest ' if at else ''}{number:,.0f} {sums.unit}"
    if isinstance(sums, SampledSums):
        over += f", of which {labels - sums.starts[at]:,} are labelled"
        later = "labels come for some, and later"
    evidence = (
        f"Over {over}, mean forecast − mean label is {_points(mean)} points"
        f" ({_SURE}: {_points(low)} to {_points(high)})."
    )
    state: State = "well calibrated"
    sentence = "Well calibrated: nothing deviates."
    if labels < FEWEST:
        state, sentence = "too few labels", "Too few labels to tell."
    if not arrival.fair:
        evidence += f" As {later}, only predictions old enough to have theirs are counted."
    return Verdict(state, sentence, evidence, labels, mean=mean, low=low, high=high)


def _doubted(sums: SampledSums, arrival: Arrival) -> Verdict | None:
    """Return the verdict where labels are too few for one, or not those that the propensities promise."""
    if not sums.labels and arrival.complete_at is not None:
        words = "No prediction that is old enough to have its label has one yet."
        return Verdict("too few labels", words, "", 0)
    if not sums.refutes_propensities:
        return None
    words = (
        f"Cannot tell: by their propensities, {sums.promised:,.0f} of {sums.predictions:,} predictions should"
        f" have a label, and {sums.labels:,} have one."
    )
    advice = (
        "Check that each prediction has the chance that its own label is seen, that what was asked for comes"
        " back, and that no other labels are among them."
    )
    return Verdict("cannot tell", words, "", sums.labels, advice=advice)


def weighted_verdict(labels: int) -> Verdict:
    """Return the verdict on forecasts some of whose labels have weights: intervals count each label once."""
    words = (
        "Cannot tell: labels have weights, and the verdict would count each once. The figures are weighted."
    )
    return Verdict("cannot tell", words, "", labels)


def may_deviate(sums: LabelSums) -> bool:
    """Return whether `judge` may detect a deviation: if not, it does not. It costs a tenth of it."""
    return sums.may_be_refuted() or (
        not isinstance(sums, SampledSums) and bool(_reversed(sums.counts()).any())
    )


def worst_first(verdicts: Mapping[str | None, Verdict]) -> list[str | None]:
    """Return the keys whose forecasts deviate, the surest first.

    Among those returned, at most `DELTA` are wrong on average: see `discoveries`.
    """
    order = sorted(verdicts, key=lambda key: -verdicts[key].log_e)
    found = discoveries(np.array([verdicts[key].log_e for key in order]))
    return [key for key, is_found in zip(order, found, strict=True) if is_found and verdicts[key].deviates]


def _deviating_gap(
    sums: LabelSums, gaps: Intervals, incomplete: float, *, all_first: bool = True
) -> _Deviation | None:
    """Return the gap that deviates: of all forecasts if it does, else of the band with the most evidence.

    ``incomplete`` is the share of the labels of one class that may be missing. Without ``all_first``, all
    forecasts are one band among the others.
    """
    tolerance = _tolerance(gaps) + incomplete * gaps.level * (1.0 - gaps.level)
    surely = {sign: _turned(sign, gaps.low, gaps.high)[0] > tolerance for sign in (1.0, -1.0)}
    some = [
        (sign, column)
        for sign, each in surely.items()
        for column in np.flatnonzero(each.any(axis=0)).tolist()
    ]
    evidence = gaps.log_e + gaps.log_share
    some.sort(
        key=lambda each: (all_first and each[1] != 0, -evidence[surely[each[0]][:, each[1]], each[1]].max())
    )
    for sign, column in some:
        deviates, between = surely[sign][:, column], sums.gaps_between(column)
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


def _of_gap(
    sums: LabelSums, gaps: Intervals, found: _Deviation, cause: Cause | None, where: str = ""
) -> Verdict:
    labels, mean, low, high, level = (float(each[found.start, found.column]) for each in gaps[:5])
    state: State = "too high" if mean > 0.0 else "too low"
    which, band = "forecasts", None
    if found.column:
        band = _ENDS[found.column - 1], _ENDS[found.column]
        which = f"forecasts between {band[0]:g} and {band[1]:g}"
    least, most = sorted((abs(low), abs(high)))
    sure = f"({_SURE}: {_points(least)} to {_points(most)})"
    words = f"{which} are {_points(abs(mean))} points {state}{where} {sure}."
    evidence = f"Mean forecast {level:.2%}; of {labels:,.0f} {sums.unit}, {level - mean:.2%} are 1."
    verdict = _deviation(sums, found.start, state, words, evidence, cause, found.log_e)
    return msgspec.structs.replace(verdict, mean=mean, low=low, high=high, band=band)


def _of_reversal(sums: LabelSums, start: int, area: float) -> Verdict:
    words = "higher scores have fewer labels 1; what is served makes up for it."
    evidence = f"Area under the ROC curve {area:.2f}, by {sums.labels - sums.starts[start]:,} labels."
    power = 1  # intervals at DELTA, and as far as they show it at DELTA², DELTA³, …, are the evidence
    while power < _MOST_POWER:
        rates = _rate_limits(sums.gaps("before", delta=DELTA ** (power + 1)))
        if not _descends(rates)[start]:
            break
        power += 1
    log_e = -power * float(np.log(DELTA))
    return _deviation(sums, start, "ranking reversed", words, evidence, "ranking_reversed", log_e)


def _of_loss(sums: LabelSums, gains: Intervals, start: int, cause: Cause | None) -> Verdict:
    labels, mean, low, high, level = (float(each[start]) for each in gains[:5])
    words = (
        f"what is served is worse than the score: its Brier score is higher by {-mean:.2g}"
        f" ({_SURE}: {-high:.2g} to {-low:.2g})."
    )
    evidence = f"Brier score {level:.4f} before, {level - mean:.4f} after, by {labels:,.0f} {sums.unit}."
    log_e = float(gains.log_e[start] + gains.log_share[start])
    verdict = _deviation(sums, start, "worse than the score", words, evidence, cause, log_e)
    return msgspec.structs.replace(verdict, mean=mean, low=low, high=high)


def _deviation(
    sums: LabelSums,
    start: int,
    state: State,
    words: str,
    evidence: str,
    cause: Cause | None,
    log_e: float,
) -> Verdict:
    """Return the verdict on a deviation, with its likely cause and what to do about it."""
    likely, advice = _WORDS[cause]
    time, before = sums.times[start], sums.starts[start]
    since = "Since the first label"
    if before:
        moment = None if time is None else show_time(time, "%d %b %Y, %H:%M UTC")
        since = f"Over the latest {sums.labels - before:,} labels" if moment is None else f"Since {moment}"
    return Verdict(
        state,
        f"{since} {words}",
        f"{likely} {evidence}",
        sums.labels - before,
        time,
        before,
        advice=advice,
        log_e=log_e,
        cause=cause,
    )


def _points(value: float) -> str:
    """Return a difference of probabilities in percentage points, to two digits at least."""
    points = 100.0 * value
    return (f"{points:.0f}" if abs(points) >= 9.95 else f"{points:#.2g}").replace("-", "−")


def _cause(sums: LabelSums, start: int) -> Cause | None:
    """Return the likely cause of a deviation since a start, by the labels in bands of the scores.

    Each cause is fitted to the labels before the start and to those since then: a rate or frequency that it
    leaves as it was is one for both. A parameter costs ½ ln n (Schwarz 1978). A cause is named if its
    log-likelihood is above that of each other, and of no change, by `_ODDS`.
    """
    counts = sums.counts()
    both, now = counts[0], counts[start]
    parts = (now, both - now)
    if min(part.sum() for part in parts) < _FEWEST_FOR_CAUSE:
        return None
    cost, bands = 0.5 * np.log(both.sum()), int((both.sum(axis=1) > 0.0).sum())

    def scores(part: Floats) -> float:
        return float(_log_likelihood(part.sum(axis=1), part.sum()).sum())

    def rates(part: Floats) -> float:
        return float(_log_likelihood(part, part.sum(axis=1, keepdims=True)).sum())

    def classes(part: Floats) -> float:
        return float(_log_likelihood(part.sum(axis=0), part.sum()).sum())

    def scores_of_classes(part: Floats) -> float:
        return float(_log_likelihood(part, part.sum(axis=0)).sum())

    likelihoods: dict[Cause | None, float] = {
        None: scores(both) + rates(both),
        "class_balance": scores_of_classes(both) + sum(map(classes, parts)) - cost,
        "scores": rates(both) + sum(map(scores, parts)) - (bands - 1) * cost,
        "relation": sum(map(scores, parts)) + sum(map(rates, parts)) - (2 * bands - 1) * cost,
    }
    *_, second, first = sorted(likelihoods.values())
    if first - second < _ODDS:
        return None
    cause = max(likelihoods, key=lambda cause: likelihoods[cause])
    return "ranking_reversed" if cause == "relation" and _reversed(now) else cause


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
