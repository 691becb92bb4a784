"""Maps fitted to counts of labels per cell: isotonic regression, curves, and maps of the source.

No map says 0 or 1 because of a few labels: the end blocks of an isotonic map count half a positive and half a
negative more, so N labels all alike say ½ / (N + 1) or 1 − ½ / (N + 1).

If labels have weights w, counts are sums of w; the sums of w² give the effective number of labels
(`streamcal.sketch.weighing`). One label more is then a label of weight Σw² / Σw.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.values import Cells, Floats
from streamcal.maps.curves import Curve, fit_curve
from streamcal.maps.fits_c import isotonic_line, regress
from streamcal.maps.logistic import FEATURES, HINGE, IDENTITY_ROW, KNOTS, PLATT
from streamcal.maps.platt import apply_platt, expit, logit, narrowed, wide_cell_logits, wide_logit
from streamcal.maps.shift import class_prior
from streamcal.mixture.forecasts_c import Line
from streamcal.sketch.decoding import Positive, Probability
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.sketch.weighing import Weighed

_ENDS: Final = logit(np.array((0.0, 1.0)))
_BENDS: Final = np.concatenate((_ENDS[:1], KNOTS, _ENDS[1:]))
_FEATURES_AT_BENDS: Final = np.column_stack(
    (_BENDS, np.ones(FEATURES), np.maximum(_BENDS[:, np.newaxis] - KNOTS, 0.0))
)

_FEATURES_AT_ENDS: Final = np.stack((_ENDS, np.ones(2)))
_PARAMETERS: Final = np.linalg.inv(_FEATURES_AT_BENDS)


class Labelled:
    """At least one label, ``weighed`` by cells of a level of the grid: int32[m], ascending, none is empty."""

    def __init__(self, cells: Cells, level: int, weighed: Weighed) -> None:
        self.cells, self.level, self.weighed = cells, level, weighed

    @cached_property
    def logits(self) -> Floats:
        """Wide logits of the cells, float64[m]."""
        return wide_cell_logits(self.cells, self.level)

    @cached_property
    def masses(self) -> Floats:
        """Weights of the labels 0 and 1 in the cells, float64[2, m]."""
        return np.ascontiguousarray(self.weighed.masses, np.float64)


_MOST: Final = 1e9  # of a parameter: the penalty of a fit keeps it far below
Parameter: TypeAlias = Annotated[float, msgspec.Meta(ge=-_MOST, le=_MOST)]
LogLoss: TypeAlias = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]


class Source(msgspec.Struct, array_like=True, frozen=True):
    """Maps of the source, and their losses on its labels: its own state."""

    labels: Positive
    """Number of labels; the effective number if they have weights."""
    prior: Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]
    """Smoothed estimate of P[Y=1], in (0, 1)."""
    platt: tuple[Parameter, Parameter]
    """Parameters (a, b) of expit(a·logit(z) + b)."""
    curve: Line
    """Map of ``bins="auto"``."""
    losses: tuple[Probability, Probability, Probability]
    """Brier loss per label expected on new labels of the source: identity, Platt, curve."""
    log_losses: tuple[LogLoss, LogLoss]
    """Log loss in nats per label expected on them: identity, Platt."""


def fit_source(sketch: ScoreSketch) -> Source:
    """Fit maps to the labelled scores of the source, at least one."""
    labels = Labelled(sketch.cells, sketch.level, sketch.weighed)
    counted = labels.weighed
    counts, n = counted.masses, counted.labels
    curve, curve_loss = fit_line(labels)
    logits = narrowed(labels.logits)
    theta = IDENTITY_ROW.copy()
    regress(theta, IDENTITY_ROW, PLATT, KNOTS, logits, labels.masses, counted.squares)
    slope, intercept = theta[:2].tolist()
    by_platt = apply_platt(np.array(slope), np.array(intercept), logits)
    # On the labels that they were fitted to, two parameters do better than on new ones by about 4·p(1−p)/n.
    variance = float((counts.sum(axis=0) * by_platt * (1.0 - by_platt)).sum()) / float(counts.sum())
    scores = expit(logits.copy())
    losses = _brier(scores, counts), min(1.0, _brier(by_platt, counts) + 4.0 * variance / n), curve_loss
    log_losses = _log_loss(scores, counts, n), _log_loss(by_platt, counts, n) + 2.0 / n
    prior = class_prior(*sketch.mass.effective()) or 0.5
    return Source(max(1, round(n)), prior, (slope, intercept), curve, losses, log_losses)


def fit_hinge(labels: Labelled, before: Line | None = None) -> Line:
    """Fit a hinge map, from the one that was fitted before."""
    theta = IDENTITY_ROW.copy()
    if before is not None and len(before.values) == FEATURES:
        theta = _PARAMETERS @ before.values
    regress(theta, IDENTITY_ROW, HINGE, KNOTS, labels.logits, labels.masses, labels.weighed.squares)
    return Line(_BENDS, _FEATURES_AT_BENDS @ theta, True)


def platt_line(parameters: Floats) -> Line:
    """Return expit(a·logit(z) + b) for (a, b), float64[2]."""
    return Line(_ENDS, parameters.dot(_FEATURES_AT_ENDS), True)


def fit_line(labels: Labelled, *, monotone: bool = True) -> tuple[Line, float]:
    """Fit the map of ``bins="auto"``; return it with the Brier loss per label expected on new labels.

    ``monotone``: the map must not descend.
    """
    counts, squares = labels.weighed
    cells, level, logits = labels.cells, labels.level, labels.logits
    curve = fit_curve(cells, level, counts, squares=squares, monotone=monotone, logits=logits)
    return _as_line(curve), curve.loss


def fit_free_curve(labels: Labelled, _before: Line | None = None) -> Line:
    """Fit the map of ``bins="auto"`` that may descend."""
    return fit_line(labels, monotone=False)[0]


def fit_isotonic(labels: Labelled, _before: Line | None = None) -> Line:
    """Fit isotonic regression, interpolated linearly between its blocks."""
    cells, level, squares = labels.cells.astype(np.int64), labels.level, labels.weighed.squares
    return Line(*isotonic_line(cells, level, labels.masses, squares))


def _as_line(curve: Curve) -> Line:
    """Return a curve as a `Line`."""
    if not curve.steps:
        return Line(curve.ends, curve.values, True)
    ends = wide_logit(np.concatenate(((0.0,), curve.ends, (1.0,))))
    return Line(np.repeat(ends, 2)[1:-1], np.repeat(curve.values, 2))


def _brier(forecasts: Floats, counts: npt.NDArray[Any]) -> float:
    """Return the mean Brier loss of one forecast per cell."""
    losses = counts[1] * (1.0 - forecasts) ** 2 + counts[0] * forecasts**2
    return float(losses.sum() / counts.sum())


def _log_loss(forecasts: Floats, counts: npt.NDArray[Any], n: float) -> float:
    """Return the mean log loss of one forecast per cell, clipped to what n labels can tell: ½ / (n + 1)."""
    inside = np.clip(forecasts, 0.5 / (n + 1.0), 1.0 - 0.5 / (n + 1.0))
    return -float((counts[1] * np.log(inside) + counts[0] * np.log1p(-inside)).sum() / counts.sum())
