"""Evaluation of forecasts by their labels: estimates with intervals, without an engine.

Estimates and their sources:

* Brier score and its CORP decomposition, brier = miscalibration − discrimination + uncertainty, by isotonic
  regression of the labels on the forecasts (Dimitriadis, Gneiting and Jordan, PNAS 2021).
* Squared calibration error E[(forecast − rate of label 1 at that forecast)²], debiased: over bins of equal
  mass, without the terms of single labels, so that it is 0 in the mean where forecasts are calibrated, before
  values below 0 are raised to it (Sun, Chaudhari, Barnett and Dobriban 2024).
* Expected calibration error over bins of equal mass, and the smooth one (Błasiok and Nakkiran 2024), without
  bins.
* Kuiper's calibration error (ECCE-R): the range of the cumulative differences of labels and forecasts in the
  order of the forecasts, and its p-value (Arrieta-Ibarra, Gujral, Tannen, Tygert and Xu, JMLR 2022).

The intervals are for one look at a fixed number of independent labels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import numpy as np

from streamcal.base.values import Floats, Labels, check_order
from streamcal.maps.binning import uniform_mass
from streamcal.quality.decomposition import isotonic_rates
from streamcal.quality.figures import ECE_BINS, log_losses
from streamcal.quality.intervals import Z95, CalibrationBins, Discrimination, as_pattern, interval
from streamcal.quality.judged import judged
from streamcal.quality.seen import present, seen_labels
from streamcal.quality.smooth import smooth_calibration_error
from streamcal.sketch.checks import as_labels, as_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streamcal.quality.diagram import Scale, Series

_UNITS: Final = 1 << 10  # of the weight of a mean label: the bins of equal mass take whole numbers
_MANY: Final = 10  # so many forecasts of 0 and 1 are no accident


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """Quality of forecasts of a binary label. Each interval ``_low`` to ``_high`` covers 95 %.

    Attributes
    ----------
    labels, positives
        number of labels, and of those that are 1.
    brier
        mean (forecast − label)², in [0, 1].
    log_loss
        mean −ln of the probability given to the label, at least 1e-15, in nats.
    miscalibration
        part of the Brier score of these labels that an isotonic fit to them takes away, ≥ 0. It fits chance
        as well, so it is too high in small samples and has no interval: `squared_calibration_error` has one.
    discrimination
        uncertainty − brier of the isotonic fit, ≥ 0: how far the forecasts tell the classes apart. It is too
        high by as much; its interval, of the variance of the rate of label 1 given the forecast, is not.
    uncertainty
        r (1 − r) of the rate r of label 1: the Brier score of forecasting that rate.
    gap
        mean forecast − mean label: above 0, forecasts are too high.
    squared_calibration_error
        debiased estimate of E[(forecast − rate of label 1 at that forecast)²], ≥ 0: what recalibration takes
        away from the Brier score of new labels.
    ece
        expected calibration error: mean distance of mean forecast and rate of label 1 over 15 bins of equal
        mass, in [0, 1]. Equal forecasts share a bin. It is above 0 by chance where forecasts are calibrated.
    smece
        smooth calibration error, in [0, 1], without bins.
    ecce, ecce_p
        Kuiper's calibration error, in [0, 1], and its asymptotic p-value under calibration. Independent of
        bins.
    brier_gain, log_loss_gain
        loss of the baseline − loss of these forecasts, on the same labels; None without a baseline.
    baseline
        evaluation of the baseline; None without one.
    segments
        evaluation of each segment, those with the surest gap first; empty without segments.
    """

    labels: int
    positives: int
    brier: float
    brier_low: float
    brier_high: float
    log_loss: float
    log_loss_low: float
    log_loss_high: float
    miscalibration: float
    discrimination: float
    discrimination_low: float
    discrimination_high: float
    uncertainty: float
    uncertainty_low: float
    uncertainty_high: float
    gap: float
    gap_low: float
    gap_high: float
    squared_calibration_error: float
    squared_calibration_error_low: float
    squared_calibration_error_high: float
    ece: float
    smece: float
    ecce: float
    ecce_p: float
    brier_gain: float | None = None
    brier_gain_low: float | None = None
    brier_gain_high: float | None = None
    log_loss_gain: float | None = None
    log_loss_gain_low: float | None = None
    log_loss_gain_high: float | None = None
    baseline: Evaluation | None = None
    segments: dict[Any, Evaluation] = field(default_factory=dict)
    _groups: _Groups = field(repr=False)

    def __str__(self) -> str:
        """Return the estimates and intervals as a table."""
        first = f"{self.labels:,} labels, {self.positives:,} positive"
        alone = [
            f"{name:<26}{getattr(self, name):>10.5f}" for name in ("miscalibration", "ece", "smece", "ecce")
        ]
        alone[0] += "  fitted to these labels, so biased upwards"
        alone[-1] += f"  p = {self.ecce_p:.3g}"
        return "\n".join([interval_header(first), *interval_lines(self, _ESTIMATES), *alone])

    @overload
    def plot(self, ax: None = None, *, scale: Scale | None = None, label: str | None = None) -> Figure: ...
    @overload
    def plot(self, ax: Axes, *, scale: Scale | None = None, label: str | None = None) -> Axes: ...
    def plot(
        self, ax: Axes | None = None, *, scale: Scale | None = None, label: str | None = None
    ) -> Figure | Axes:
        """Draw the reliability diagram: isotonic curve, consistency band, and density of the forecasts.

        The curve of calibrated forecasts lies in the band at each point with 95 %. A baseline is a second
        curve. Segments are panels, those with the surest gap first. Needs matplotlib (extra ``plots``).

        Parameters
        ----------
        ax
            axes to draw on, also beside other evaluations, without panels; None: a new figure of pyplot.
        scale
            ``"linear"`` or ``"logit"``, log-odds; None: logit if most forecasts are below 0.02 or above 0.98.
        label
            name in the legend, beside ECE and Brier score; None: these are the title.

        Returns
        -------
        The new figure, which a notebook shows and ``pyplot.show()`` opens; or the axes that were passed.

        Raises
        ------
        ImportError
            if matplotlib is not installed.
        """
        from streamcal.quality.diagram import draw, draw_panels

        if ax is not None:
            draw(ax, self._series(label or ""), scale)
            return ax
        names = [str(name) for name in self.segments]
        panels = [each._series(name) for name, each in zip(names, self.segments.values(), strict=True)]
        return draw_panels([self._series(label or ("all" if names else "")), *panels], scale)

    def _series(self, name: str) -> list[Series]:
        """Return what a diagram draws: these forecasts, then those of the baseline if there is one."""
        from streamcal.quality.diagram import Series

        groups = self._groups
        squares = groups.squares_of_zeros + groups.squares_of_ones
        columns = groups.p, groups.weights, groups.ones, squares
        more = f"{name}, baseline" if name else "baseline"
        rest = [] if self.baseline is None else self.baseline._series(more)
        return [Series(name, self.labels, self.ece, self.brier, *columns), *rest]


_ESTIMATES: Final = [each.name[:-4] for each in fields(Evaluation) if each.name.endswith("_low")]


def interval_header(title: str) -> str:
    """Return the line above `interval_lines`."""
    return f"{title:<36}  95 % interval"


def interval_lines(found: Any, names: Sequence[str]) -> list[str]:
    """Return a line for each of these estimates of an evaluation, with its interval; none for None."""
    lines = []
    for name in names:
        if (value := getattr(found, name)) is not None:
            low, high = getattr(found, f"{name}_low"), getattr(found, f"{name}_high")
            lines.append(f"{name:<26}{value:>10.5f}  [{low:.5f}, {high:.5f}]")
    return lines


def evaluate(
    labels: Any,
    probabilities: Any,
    *,
    baseline: Any = None,
    segments: Any = None,
    weights: Any = None,
    propensities: Any = None,
    judge: Any = None,
    positive: object = None,
) -> Evaluation:
    """Evaluate forecasts by their labels.

    Parameters
    ----------
    labels, probabilities
        0 or 1, and forecasts in [0, 1], of length n ≥ 1: arrays, lists, or columns of data frames.
    baseline
        other forecasts of the same labels, such as the raw score; None: no comparison.
    segments
        segment of each label, to evaluate them apart; None: no segments.
    weights
        number of predictions that each label stands for, above 0; None: 1 each.
    propensities
        chance that each label was to be seen, in (0, 1], in place of weights. Labels that were not seen are
        NaN or None, or left out with their forecasts. Estimates and intervals are then of all predictions,
        labelled or not. None: all labels are there.
    judge
        cheap labels of all predictions, or probabilities of them, in [0, 1], beside ``propensities``: those
        of a language model. ``gap`` and ``brier``, with their intervals, then use both
        (`streamcal.quality.judged`). They may be wrong. None: there are none.
    positive
        the label that counts as 1, a number or a text; the other one counts as 0. None: labels are 0 and 1.

    Raises
    ------
    TypeError
        if a column is lazy.
    ValueError
        if a value is out of range, lengths differ, or columns of pandas have one index in two orders; the
        message says which, and where.

    Warns
    -----
    UserWarning
        if all of ten probabilities or more are 0 or 1, or labels are not as many as the propensities promise.

    Examples
    --------
    >>> found = evaluate([0, 0, 1, 1], [0.2, 0.4, 0.6, 0.8])
    >>> round(found.brier, 4), round(found.miscalibration, 4), round(found.gap, 4)
    (0.1, 0.1, 0.0)
    """
    if np.ndim(probabilities) == 2 and np.shape(probabilities)[1] > 2:
        raise ValueError("probabilities must be those of label 1; evaluate_classes takes many classes")
    check_order(
        labels=labels,
        probabilities=probabilities,
        baseline=baseline,
        segments=segments,
        weights=weights,
        propensities=propensities,
        judge=judge,
    )
    every: tuple[Any, ...] = ()
    if judge is not None and propensities is None:
        raise ValueError("judge needs propensities, the chance of each label; labels not seen are NaN")
    if propensities is not None:
        if weights is not None:
            raise ValueError("weights and propensities exclude each other: a weight is one over a propensity")
        seen, weights = seen_labels(labels, propensities)
        every = probabilities, judge, propensities, seen
        columns = (labels, probabilities, baseline, segments)
        kept = [None if each is None else np.asarray(each)[seen] for each in columns]
        labels, probabilities, baseline, segments = kept
        labels = np.array(labels.tolist())  # of objects, of floats
    y, p = as_labels(labels, positive), as_scores(probabilities)
    if len(p) >= _MANY and bool(((p == 0.0) | (p == 1.0)).all()):
        warnings.warn(
            "all probabilities are 0 or 1, as of predict: give those of predict_proba", stacklevel=2
        )
    w = np.ones(len(p)) if weights is None else np.ascontiguousarray(weights, np.float64)
    other = None if baseline is None else as_scores(baseline)
    of = None if segments is None else np.asarray(segments)
    given: dict[str, Any] = {"labels": y, "weights": w, "baseline": other, "segments": of}
    for name, values in given.items():
        if values is not None and values.shape != p.shape:
            raise ValueError(f"{name} must have the length of probabilities, {len(p)}: got {values.shape}")
    if not len(p):
        raise ValueError("there are no labels to evaluate: got 0")
    bad = np.flatnonzero(~((w > 0.0) & (w < math.inf)))
    if len(bad):
        raise ValueError(f"index {bad[0]}: a weight must be above 0 and finite, got {w[bad[0]]}")
    if of is not None and len(bad := np.flatnonzero(~present(of.tolist()))):
        raise ValueError(f'index {bad[0]}: a segment is missing: give it a name, such as fillna("unknown")')
    found = _evaluated(y, p, w, other, of)
    if judge is None:
        return found
    if every[3].all() and w.max() > 1.0:
        raise ValueError(
            "judge needs all predictions: those whose labels were not seen, too, with NaN as their label"
        )
    of_judge = np.asarray(every[1])
    forecasts = as_scores(every[0])
    cheap = as_scores(of_judge * 1.0 if of_judge.dtype == np.bool_ else every[1])
    if len(cheap) != len(forecasts):
        raise ValueError(f"judge must have the length of probabilities, {len(forecasts)}: got {len(cheap)}")
    known, seen = np.zeros(len(cheap)), every[3]
    known[seen] = y
    chances = np.asarray(every[2], np.float64)
    by_both: dict[str, Any] = {**judged(known, forecasts, cheap, chances, seen, Z95)}
    return replace(found, **by_both)


class _Groups(NamedTuple):
    """Labels by forecast: all arrays are float64[g], in the order of forecasts, which differ."""

    p: Floats
    zeros: Floats
    """Weight of the labels 0."""
    ones: Floats
    squares_of_zeros: Floats
    """Sum of the squared weights of the labels 0."""
    squares_of_ones: Floats
    weights: Floats
    """Sum of zeros and ones."""
    number: int
    """Number of labels."""

    def mean(self, of_zero: Floats | float, of_one: Floats | float) -> tuple[float, float, float]:
        """Return the mean of a function of label and forecast, and its interval.

        The interval counts two more labels of each class, at the forecasts as they lie, so that it does not
        shrink to nothing where one class has hardly come (Agresti and Coull 1998).
        """
        weights = self.weights
        total = float(weights.sum())
        mean = float((self.zeros * of_zero + self.ones * of_one).sum()) / total
        added = [float((weights * each).sum()) / total for each in (of_zero, of_one)]
        unit = total / self.number
        middle = (mean * total + 2.0 * unit * sum(added)) / (total + 4.0 * unit)
        squares = float((self.squares_of_zeros * (of_zero - middle) ** 2).sum())
        squares += float((self.squares_of_ones * (of_one - middle) ** 2).sum())
        squares += 2.0 * unit**2 * sum((each - middle) ** 2 for each in added)
        half = Z95 * math.sqrt(squares) / (total + 4.0 * unit)
        return mean, min(middle - half, mean), max(middle + half, mean)


def _error(variance: float, n: int) -> float:
    return math.sqrt(variance * n / (n - 1)) if n > 1 else math.inf


def _grouped(y: Labels, p: Floats, w: Floats) -> _Groups:
    order = np.argsort(p, kind="stable")
    ascending = p[order]
    starts = np.flatnonzero(np.concatenate(([True], ascending[1:] != ascending[:-1])))
    weights, ones = w[order], y[order] == 1

    def sums(values: Floats) -> Floats:
        return np.add.reduceat(values, starts)

    squares = weights**2
    of_ones, squares_of_ones = sums(weights * ones), sums(squares * ones)
    of_zeros, squares_of_zeros = sums(weights * ~ones), sums(squares * ~ones)
    return _Groups(
        ascending[starts], of_zeros, of_ones, squares_of_zeros, squares_of_ones, of_zeros + of_ones, len(p)
    )


def _evaluated(y: Labels, p: Floats, w: Floats, other: Floats | None, of: Any) -> Evaluation:
    groups = _grouped(y, p, w)
    q = groups.p
    figures: dict[str, Any] = {}

    def put(name: str, value: float, low: float, high: float) -> None:
        figures.update({name: value, f"{name}_low": low, f"{name}_high": high})

    def estimate(name: str, of_zero: Floats, of_one: Floats, least: float, most: float) -> float:
        mean, low, high = groups.mean(of_zero, of_one)
        put(name, mean, max(low, least), min(high, most))
        return mean

    brier = estimate("brier", q**2, (1.0 - q) ** 2, 0.0, 1.0)
    zeros = np.zeros(len(q), np.int8)
    estimate("log_loss", log_losses(zeros, q), log_losses(zeros + 1, q), 0.0, math.inf)
    estimate("gap", q, q - 1.0, -1.0, 1.0)
    rate, *ends = groups.mean(0.0, 1.0)
    ends = [min(max(end, 0.0), 1.0) for end in ends]
    spread = [end * (1.0 - end) for end in ends]
    put("uncertainty", rate * (1.0 - rate), min(spread), 0.25 if ends[0] <= 0.5 <= ends[1] else max(spread))

    curve = isotonic_rates(groups.ones / groups.weights, groups.weights)
    recalibrated, _, _ = groups.mean(curve**2, (1.0 - curve) ** 2)
    squared, bins = _squared_calibration_error(groups)
    low, high = (0.0, 1.0) if bins is None else interval(bins, squared, 1.0)
    put("squared_calibration_error", max(squared, 0.0), low, high)
    figures["miscalibration"] = max(brier - recalibrated, 0.0)
    found = max(figures["uncertainty"] - recalibrated, 0.0)
    noise = (0.0, 0.0) if bins is None else bins.cumulants(0.0)
    low, high = interval(
        _discrimination(groups, curve, rate, noise), found - (brier - recalibrated) + squared, 0.25
    )
    put("discrimination", found, min(low, found), max(high, found))
    figures["ece"], figures["ecce"], figures["ecce_p"] = _ece(groups), *_ecce(groups)
    residuals = (groups.ones - groups.weights * q) / groups.weights.sum()
    figures["smece"] = smooth_calibration_error(q, residuals)

    if other is not None:
        figures["baseline"] = _evaluated(y, other, w, None, None)
        for name, loss in (("brier_gain", _squares), ("log_loss_gain", log_losses)):
            gains = loss(y, other) - loss(y, p)
            mean = float(np.average(gains, weights=w))
            error = _error(float(((w * (gains - mean)) ** 2).sum()) / float(w.sum()) ** 2, len(w))
            put(name, mean, mean - Z95 * error, mean + Z95 * error)
    if of is not None:
        names, places = np.unique(of, return_inverse=True)
        parts = np.split(np.argsort(places, kind="stable"), np.cumsum(np.bincount(places))[:-1])
        each = {
            name: _evaluated(y[at], p[at], w[at], None if other is None else other[at], None)
            for name, at in zip(names.tolist(), parts, strict=True)
        }
        figures["segments"] = dict(sorted(each.items(), key=lambda pair: -_sureness(pair[1])))
    return Evaluation(labels=len(y), positives=int(np.count_nonzero(y)), _groups=groups, **figures)


def _squares(y: Labels, p: Floats) -> Floats:
    return (p - y) ** 2


def _sureness(evaluation: Evaluation) -> float:
    """Return |gap| over the half width of its interval."""
    half = (evaluation.gap_high - evaluation.gap_low) / 2.0
    return abs(evaluation.gap) / half if half else math.inf if evaluation.gap else 0.0


def _squared_calibration_error(groups: _Groups) -> tuple[float, CalibrationBins | None]:
    """Return the debiased estimate over bins of equal mass, and the bins; 0 and None of a single label.

    In a bin of n labels with mean residual D of variance s², the square of D without the terms of single
    labels has the variance 4 s² D²/n + 2 s⁴/n². Equal forecasts stay in one bin.
    """
    weights = groups.weights
    total = float(weights.sum())
    bins = max(1, min(int(2.0 * groups.number**0.4), groups.number // 8))
    middles = np.cumsum(weights) - weights / 2.0
    of = np.minimum((bins * middles / total).astype(np.int64), bins - 1)
    q = groups.p
    singles = groups.squares_of_zeros * q**2 + groups.squares_of_ones * (1.0 - q) ** 2
    squares = groups.squares_of_zeros + groups.squares_of_ones
    columns = weights, weights * q - groups.ones, singles, squares, weights * q, weights * q * (1.0 - q)
    sums = np.array([np.bincount(of, values, bins) for values in columns])
    pairs = sums[0] ** 2 - sums[3]
    kept = pairs > 1e-9 * sums[0] ** 2  # a bin of one label says nothing of its square
    if not np.any(kept):
        return 0.0, None
    mass, residuals, singles, squares, forecasts, spread = sums[:, kept]
    estimates = (residuals**2 - singles) / pairs[kept]
    share = mass / mass.sum()
    pattern = as_pattern(residuals / mass, share)
    law = CalibrationBins(share, mass**2 / squares, forecasts / mass, spread / mass, pattern)
    return float((share * estimates).sum()), law


def _discrimination(
    groups: _Groups, curve: Floats, rate: float, noise: tuple[float, float]
) -> Discrimination:
    """Return the law of discrimination where rates given the forecast are as of the isotonic curve."""
    weights, total = groups.weights, float(groups.weights.sum())
    n = total**2 / float((groups.squares_of_zeros + groups.squares_of_ones).sum())
    starts = np.flatnonzero(np.concatenate(([True], curve[1:] != curve[:-1])))
    share: Floats = np.add.reduceat(weights, starts) / total
    return Discrimination(share, n, rate, as_pattern(curve[starts] - rate, share), noise)


def _ece(groups: _Groups) -> float:
    """Return the expected calibration error, over the bins of `ForecastQuality`."""
    unit = float(groups.weights.sum()) / groups.number / _UNITS
    splits = uniform_mass(np.maximum(np.rint(groups.weights / unit), 1.0).astype(np.int64), ECE_BINS)
    excess = groups.weights * groups.p - groups.ones
    return float(np.abs(np.add.reduceat(excess, splits[:-1])).sum() / groups.weights.sum())


def _ecce(groups: _Groups) -> tuple[float, float]:
    """Return Kuiper's statistic and its p-value.

    Under calibration the cumulative differences are a Brownian motion at large n, whose range has the
    density 8 Σ (−1)^(k−1) k² φ(kr) (Feller 1951).
    """
    q, total = groups.p, float(groups.weights.sum())
    walk = np.concatenate(([0.0], np.cumsum(groups.ones - groups.weights * q))) / total
    reach = float(walk.max() - walk.min())
    squares = groups.squares_of_zeros + groups.squares_of_ones
    spread = math.sqrt(float((squares * q * (1.0 - q)).sum())) / total
    if not spread:
        return reach, 1.0 if reach < 1e-12 else 0.0
    x = reach / spread
    if x < 0.5:  # the probability of a smaller range is below 1e-8
        return reach, 1.0
    tail = sum((-1) ** (k - 1) * k * math.erfc(k * x / math.sqrt(2.0)) for k in range(1, int(9.0 / x) + 2))
    return reach, min(max(4.0 * tail, 0.0), 1.0)
