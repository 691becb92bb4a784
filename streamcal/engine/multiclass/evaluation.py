"""Evaluation of forecasts of many classes by their labels, without an engine.

What is known of binary forecasts carries over in two ways: to the decision, whether the class with the
highest forecast is right; and to each class against all others, whose Brier scores and their parts add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamcal.base.values import Counts, Floats, check_order
from streamcal.engine.multiclass.classes import Classes
from streamcal.quality.class_sums import BINS, add_to_bins, figures_of
from streamcal.quality.evaluate import Evaluation, evaluate, interval_header, interval_lines
from streamcal.quality.intervals import Z95

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streamcal.quality.diagram import Scale


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassEvaluation:
    """Quality of forecasts of many classes. Each interval ``_low`` to ``_high`` covers 95 %.

    Attributes
    ----------
    labels
        number of labels.
    accuracy
        share of the labels whose class had the highest forecast, the first of equal ones.
    log_loss
        mean −ln of the probability given to the label, at least 1e-15, in nats.
    brier
        mean Σ (forecast − 1 if it is the label's class)² over all classes, in [0, 2].
    miscalibration, discrimination, uncertainty
        parts of the Brier score, brier = miscalibration − discrimination + uncertainty: sums over `classes`.
    class_ece
        class-wise calibration error: mean over the classes of Σ n_b/n · abs(mean forecast − rate) in 15 bins
        of equal width.
    decision
        evaluation of the highest forecast, with label 1 where its class is right.
    classes
        evaluation of each class against all others, the least calibrated first.
    brier_gain, log_loss_gain
        loss of the baseline − loss of these forecasts, on the same labels; None without a baseline.
    baseline
        evaluation of the baseline; None without one.
    """

    labels: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    log_loss: float
    log_loss_low: float
    log_loss_high: float
    brier: float
    brier_low: float
    brier_high: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    class_ece: float
    decision: Evaluation
    classes: dict[str, Evaluation]
    brier_gain: float | None = None
    brier_gain_low: float | None = None
    brier_gain_high: float | None = None
    log_loss_gain: float | None = None
    log_loss_gain_low: float | None = None
    log_loss_gain_high: float | None = None
    baseline: ClassEvaluation | None = None

    def __str__(self) -> str:
        """Return the estimates and intervals as a table."""
        first = f"{self.labels:,} labels of {len(self.classes):,} classes"
        estimates = ("accuracy", "log_loss", "brier", "brier_gain", "log_loss_gain")
        alone = ("miscalibration", "discrimination", "uncertainty", "class_ece")
        last = [f"{name:<26}{getattr(self, name):>10.5f}" for name in alone]
        return "\n".join([interval_header(first), *interval_lines(self, estimates), *last])

    def plot(self, *, scale: Scale | None = None) -> Figure:
        """Draw reliability diagrams: of the decision, and of each class against all others, the worst few.

        Each is that of `Evaluation.plot`, which draws any of `classes` alone. Needs matplotlib (extra
        ``plots``).

        Parameters
        ----------
        scale
            ``"linear"`` or ``"logit"``, log-odds; None: logit if most forecasts are below 0.02 or above 0.98.

        Returns
        -------
        The new figure of pyplot, which a notebook shows and ``pyplot.show()`` opens.

        Raises
        ------
        ImportError
            if matplotlib is not installed.
        """
        from streamcal.quality.diagram import draw_panels

        panels = {"highest forecast": self.decision} | self.classes
        return draw_panels([each._series(name) for name, each in panels.items()], scale)


def evaluate_classes(
    labels: Any, probabilities: Any, *, classes: Sequence[str | int] | None = None, baseline: Any = None
) -> ClassEvaluation:
    """Evaluate forecasts of many classes by their labels.

    Parameters
    ----------
    labels
        names of classes, or their places from 0 on, of length n ≥ 1.
    probabilities
        float64[n, K], rows that sum to 1; columns of a data frame go by their names.
    classes
        names of the classes, in the order of the columns of an array, or whole numbers, if these are the
        labels; None: the columns of a data frame, or ``"0"``, ``"1"``, …
    baseline
        other forecasts of the same labels, such as the raw scores; None: no comparison.

    Raises
    ------
    ValueError
        if a row is no distribution, a label is of no class, or shapes differ.

    Examples
    --------
    >>> found = evaluate_classes(["a", "b"], [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]], classes=["a", "b", "c"])
    >>> found.accuracy, round(found.brier, 2), round(found.decision.gap, 2)
    (1.0, 0.19, -0.35)
    """
    check_order(labels=labels, probabilities=probabilities, baseline=baseline)
    unnamed = False
    if classes is None:
        columns = getattr(probabilities, "columns", None)
        classes = [*map(str, range((np.shape(probabilities) or (0,))[-1]) if columns is None else columns)]
        unnamed = columns is None
    known = Classes(classes)
    p = known.rows(probabilities)
    try:
        codes = known.codes(labels)
    except ValueError as error:
        hint = "; classes= names the columns in their order, such as model.classes_" if unnamed else ""
        raise ValueError(f"{error}{hint}") from None
    if len(codes) != len(p):
        raise ValueError(f"{len(p)} rows of probabilities but {len(codes)} labels")
    if not len(p):
        raise ValueError("there are no labels, of which forecasts could be evaluated")
    other = None if baseline is None else known.rows(baseline)
    if other is not None and len(other) != len(p):
        raise ValueError(f"baseline must have a row for each of the {len(p)} labels, got {len(other)}")
    return _evaluated(codes, p, known.names, other)


def _evaluated(codes: Counts, p: Floats, names: Sequence[str], other: Floats | None) -> ClassEvaluation:
    right, losses, squares = figures_of(p, codes)
    figures: dict[str, Any] = {}

    def put(name: str, values: Floats) -> None:
        mean = float(values.mean())
        half = Z95 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        figures.update({name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half})

    for name, values in (("accuracy", right), ("log_loss", losses), ("brier", squares)):
        put(name, values)
    each = {name: evaluate(codes == code, p[:, code]) for code, name in enumerate(names)}
    for part in ("miscalibration", "discrimination", "uncertainty"):
        figures[part] = sum(getattr(found, part) for found in each.values())
    bins = np.zeros((3, len(names), BINS))
    add_to_bins(bins, p, codes, np.ones(len(p)))
    if other is not None:
        figures["baseline"] = _evaluated(codes, other, names, None)
        _, before, squares_before = figures_of(other, codes)
        put("log_loss_gain", before - losses)
        put("brier_gain", squares_before - squares)
    worst = sorted(each.items(), key=lambda item: -item[1].squared_calibration_error)
    return ClassEvaluation(
        labels=len(codes),
        class_ece=float(np.abs(bins[1] - bins[2]).sum() / len(codes) / len(names)),
        decision=evaluate(right, p.max(axis=1)),
        classes=dict(worst),
        **figures,
    )
