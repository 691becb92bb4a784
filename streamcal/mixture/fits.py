"""The candidates of mode ``auto`` as functions of the score, and how they are fitted.

Those of one moment are a `Snapshot`: the fits of the source and of every window of target labels, from which
all of them follow. A snapshot takes a few kB, and none of it is ever changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from streamcal.maps import binning
from streamcal.maps.platt import IDENTITY, apply_platt, fit_platt
from streamcal.maps.recalibration_map import RecalibrationMap
from streamcal.maps.shift import class_prior
from streamcal.mixture.names import ALL, FAMILIES, FITTED, NAMES, PRIORS, TARGET_ONLY, UNIFORM_FROM
from streamcal.mixture.tracking import RATE
from streamcal.sketch import grid
from streamcal.sketch.score_sketch import ScoreSketch

__all__ = [
    "PRIOR_SMOOTHING",
    "Fit",
    "Line",
    "Points",
    "Snapshot",
    "Source",
    "Steps",
    "cell_logits",
    "family_values",
    "fit_source",
    "fit_windows",
    "forecasts",
    "stand_in",
    "weights_by_source",
]

Cells = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PRIOR_SMOOTHING: Final = 0.5
"""Of the priors of source and target (Krichevsky–Trofimov): neither is ever 0 or 1."""

_MOST_BINS: Final = 128
_PLATT_CELLS: Final = 128
_SOURCE_LABELS: Final = 500  # what those of the source count for, at most: about what tracking remembers
_ALIKE: Final = 0.05


class Steps(NamedTuple):
    """A step function of the score."""

    edges: Cells
    """int32[B−1], where the bins meet, in cells of the finest grid."""
    values: Floats
    """float64[B], one for every bin."""


_NO_STEPS: Final = Steps(np.empty(0, np.int32), np.empty(0))


class Line(NamedTuple):
    """A piecewise linear function of the logit of the score, constant beyond its ends."""

    logits: Floats
    """float64[p], ascending."""
    values: Floats
    """float64[p]."""


class Fit(NamedTuple):
    """All families fitted to one set of labels."""

    labels: int
    positives: int
    uniform: Steps
    """Uniform-mass bins with their label means."""
    isotonic: Line
    """Isotonic regression, linear between its blocks."""
    platt: tuple[float, float]
    """(a, b) of expit(a·logit(z) + b)."""


class Source(NamedTuple):
    """The source map, and how well it does on its own labels."""

    fit: Fit
    losses: tuple[float, ...]
    """Brier loss per source label, such as new labels would meet, of the identity and of each family."""


class Snapshot(NamedTuple):
    """All candidates of one moment."""

    observed: int
    """How many target scores had been observed when it came into force."""
    source: Source | None
    fits: tuple[Fit, ...]
    """One for every window and one for all labels, the same for those that are not full yet; none before
    the first target labels."""
    fused: float | None
    """The target prior from labels and scores together, in (0, 1), if known."""


class Points(NamedTuple):
    """Scores, laid out for the candidates."""

    scores: Floats
    """float64[n] in [0, 1]."""
    cells: Cells
    """int32[n], their cells on the finest grid."""
    logits: Floats
    """float64[n], finite."""

    @classmethod
    def of(cls, scores: Floats) -> Points:
        """Lay out scores, float64[n] in [0, 1]."""
        return cls(scores, grid.cells_of(scores, grid.MIN_LEVEL), _logit(scores))


def fit_source(uniform_mass: RecalibrationMap, sketch: ScoreSketch) -> Source:
    """Fit all families to the labels of the source.

    Parameters
    ----------
    uniform_mass
        h_P, the uniform-mass map of the sketch; its weights are of no account.
    sketch
        of the labelled scores of the source, not empty.

    Raises
    ------
    ValueError
        if the map is the identity, or the sketch empty.
    """
    if not uniform_mass.bins or not sketch.n:
        raise ValueError(f"a source needs bins and labels, got {uniform_mass.bins} and {sketch.n}")
    cells, counts, n = sketch.cells, sketch.counts, sketch.n
    totals, positives = counts.sum(axis=0), counts[1]
    logits = cell_logits(cells, sketch.level)
    edges = grid.cells_of(np.array(uniform_mass.edges[1:-1], np.float64), grid.MIN_LEVEL)
    last = np.flatnonzero(np.append(edges[1:] > edges[:-1], True)[: len(edges)])  # of edges in one cell
    steps = Steps(edges[last], np.array(uniform_mass.values)[np.append(0, last + 1)])
    isotonic = _isotonic(logits, counts)
    a, b = fit_platt(logits, positives[np.newaxis].astype(np.float64), totals[np.newaxis].astype(np.float64))[
        0
    ]
    fit = Fit(n, sketch.n_positives, steps, isotonic, (float(a), float(b)))
    points = Points(1.0 / (1.0 + np.exp(-logits)), cells << np.int32(sketch.level - grid.MIN_LEVEL), logits)
    _, _, by_platt = family_values([fit], points)[0]
    inner = np.searchsorted(points.cells, steps.edges)
    splits = np.unique(np.concatenate(([0], inner, [len(cells)])))
    uniform_loss = binning.leave_one_out_brier(
        binning.bin_sums(positives, splits), binning.bin_sums(totals, splits)
    )
    # Two parameters do better on the labels they were fitted to than on new ones by about 4·p(1−p)/n.
    platt_gain = 4.0 * float((totals * by_platt * (1.0 - by_platt)).sum()) / n**2
    losses = (
        _brier(points.scores, positives, totals),
        uniform_loss,
        _crossed_brier(logits, counts),
        _brier(by_platt, positives, totals) + platt_gain,
    )
    return Source(fit, losses)


def fit_windows(
    cells: Cells, level: int, logits: Floats, windows: Sequence[tuple[int, Counts, Fit | None]]
) -> list[Fit]:
    """Fit all families to the labels of several windows.

    Parameters
    ----------
    cells, level
        the grid, int32[m].
    logits
        `cell_logits` of it, float64[m].
    windows
        of each: its place among `WINDOWS`, or `ALL`; its labels per class and cell, int64[2, m], not empty; a
        fit of nearly the same labels to start from, if there is one.
    """
    counts = np.array([counts for _, counts, _ in windows])
    starts = np.array([IDENTITY if start is None else start.platt for _, _, start in windows])
    # Two parameters do not need all cells: some together stand at the mean of their logits.
    first = np.arange(0, len(cells), -(-len(cells) // _PLATT_CELLS))
    means = np.add.reduceat(logits, first) / np.diff(first, append=len(cells))
    grouped = np.add.reduceat(counts, first, axis=2).astype(np.float64)
    platt = fit_platt(means, grouped[:, 1], grouped.sum(axis=1), starts).tolist()
    fits = []
    for (place, held, _), (a, b), (zeros, ones) in zip(
        windows, platt, grouped.sum(axis=2).tolist(), strict=True
    ):
        uniform = _uniform_mass(cells, level, held) if place >= UNIFORM_FROM else _NO_STEPS
        fits.append(Fit(int(zeros + ones), int(ones), uniform, _isotonic(logits, held), (a, b)))
    return fits


def _uniform_mass(cells: Cells, level: int, counts: Counts) -> Steps:
    totals = counts[0] + counts[1]
    occupied = np.flatnonzero(totals)
    totals = totals[occupied]
    # B is chosen on the most bins there may be in place of cells, for a fraction of the time.
    most = binning.uniform_mass(totals, _MOST_BINS)
    bins = binning.choose_bins(*(binning.bin_sums(row, most) for row in counts[:, occupied]))
    splits = binning.uniform_mass(totals, bins)
    means: Floats = binning.bin_sums(counts[1, occupied], splits) / binning.bin_sums(totals, splits)
    # A bin ends where its last cell does: what falls between two occupied cells belongs to the upper bin.
    ends = cells[occupied[splits[1:-1] - 1]] + np.int32(1)
    return Steps(ends << np.int32(level - grid.MIN_LEVEL), means)


def _isotonic(logits: Floats, counts: Counts) -> Line:
    totals = counts[0] + counts[1]
    occupied = np.flatnonzero(totals)
    totals = totals[occupied]
    fitted = isotonic_regression(counts[1, occupied] / totals, weights=totals)
    ends = np.repeat(fitted.blocks, 2)[1:-1]
    ends[1::2] -= 1
    return Line(logits[occupied[ends]], np.minimum(fitted.x[ends], 1.0))


def _crossed_brier(logits: Floats, counts: Counts) -> float:
    """Return the Brier loss of isotonic regression fitted to every second cell, on the cells between."""
    losses = 0.0
    for fold in (0, 1):
        here, there = slice(fold, None, 2), slice(1 - fold, None, 2)
        if not len(logits[there]) or not len(logits[here]):
            continue
        line = _isotonic(logits[there], counts[:, there])
        forecast = np.interp(logits[here], line.logits, line.values)
        losses += _brier(forecast, counts[1, here], counts[:, here].sum(axis=0)) * float(
            counts[:, here].sum()
        )
    return losses / float(counts.sum())


def family_values(fits: Sequence[Fit], points: Points) -> list[tuple[Floats, Floats, Floats]]:
    """Return what every family of every fit says at the points, float64[n] each.

    Where a fit has no uniform-mass map, zeros stand for it.
    """
    slopes, intercepts = np.array([fit.platt for fit in fits]).T
    by_platt = apply_platt(slopes, intercepts, points.logits)
    values = []
    for fit, row in zip(fits, by_platt, strict=True):
        steps, line = fit.uniform, fit.isotonic
        by_bins = (
            steps.values[np.searchsorted(steps.edges, points.cells, side="right")]
            if len(steps.values)
            else np.zeros(len(row))
        )
        values.append((by_bins, np.interp(points.logits, line.logits, line.values), row))
    return values


def forecasts(snapshot: Snapshot, points: Points, before: tuple[Snapshot, Floats] | None = None) -> Floats:
    """Return what every candidate says of every score, float64[K, n] in [0, 1].

    Without a source there are only the first `TARGET_ONLY`. Before the first target labels, those of the
    target equal the source's of their family, and without a source the identity. A fused prior that is not
    known equals that of all labels.

    Parameters
    ----------
    points
        the scores.
    before
        another snapshot and what it gave at the same points, to be written over where it differs.
    """
    source, scores = snapshot.source, points.scores
    fits = (*stand_in(snapshot), source.fit if source else None)
    k = TARGET_ONLY if source is None else len(NAMES)
    old: tuple[Fit | None, ...] = (None,) * len(fits)
    if before is None or len(before[1]) != k:
        out, fresh = np.empty((k, len(scores))), True
    else:
        out, fresh = before[1], False
        old = (*stand_in(before[0]), before[0].source.fit if before[0].source else None)
    changed = {id(fit): fit for fit, was in zip(fits, old, strict=True) if fit is not None and fit is not was}
    values = dict(zip(changed, family_values(list(changed.values()), points), strict=True)) if changed else {}
    out[0] = scores
    for row, (family, place) in enumerate(FITTED, 1):
        fit = fits[place]
        if fit is None:
            out[row] = scores
        elif fresh or fit is not old[place]:
            out[row] = values[id(fit)][family]
    if source is not None:
        base = out[TARGET_ONLY : TARGET_ONLY + len(FAMILIES)]
        if fresh or source.fit is not old[-1]:
            base[:] = values[id(source.fit)]
        odds = _odds_ratios(source, snapshot.fits, snapshot.fused)[:, np.newaxis]
        shifted = out[TARGET_ONLY + len(FAMILIES) :].reshape(len(FAMILIES) + 1, len(PRIORS), len(scores))
        for rows, h in zip(shifted, (*base, scores), strict=True):
            # g(h) = κh / (κh + 1 − h) with κ = w₁/w₀ (eq. 13)
            np.multiply(odds, h, out=rows)
            rows /= rows + (1.0 - h)
    return out


def stand_in(snapshot: Snapshot) -> tuple[Fit | None, ...]:
    """Return the fit of every window, or what stands in for it."""
    return snapshot.fits or (None if snapshot.source is None else snapshot.source.fit,) * (ALL + 1)


def weights_by_source(source: Source, active: npt.NDArray[np.bool_]) -> Floats:
    """Return weights by what the candidates lose on the source's labels, float64[K], summing to 1.

    Those fitted to target labels, of which the source tells nothing, get the little that all get alike.

    Parameters
    ----------
    active
        bool[K], those that take part; the others get 0.
    """
    losses = np.array(source.losses)
    maps = np.exp(-RATE * min(source.fit.labels, _SOURCE_LABELS) * (losses - losses.min()))
    weights = np.zeros(len(NAMES))
    weights[0] = maps[0]
    # Each map counts once as it is, and once more shifted by priors that are not known yet.
    weights[TARGET_ONLY : TARGET_ONLY + len(FAMILIES)] = maps[1:]
    weights[TARGET_ONLY + len(FAMILIES) :] = np.repeat((*maps[1:], maps[0]), len(PRIORS)) / len(PRIORS)
    weights *= active
    mixed: Floats = (1.0 - _ALIKE) * weights / weights.sum() + _ALIKE * active / active.sum()
    return mixed


def _odds_ratios(source: Source, fits: tuple[Fit, ...], fused: float | None) -> Floats:
    """Return w₁/w₀ (eq. 13) for each of `PRIORS`, finite and positive."""
    if not fits and fused is None:
        return np.ones(len(PRIORS))
    priors = [class_prior(fit.positives, fit.labels, PRIOR_SMOOTHING) or 0.5 for fit in fits]
    last = priors[-1] if fused is None else fused
    q = np.array([*(priors or [last] * (ALL + 1)), last])
    p = class_prior(source.fit.positives, source.fit.labels, PRIOR_SMOOTHING) or 0.5
    odds: Floats = q / (1.0 - q) * ((1.0 - p) / p)
    return odds


def _brier(forecast: Floats, positives: Counts, totals: Counts) -> float:
    """Return the mean Brier loss of one forecast per cell."""
    losses = positives * (1.0 - forecast) ** 2 + (totals - positives) * forecast**2
    return float(losses.sum() / totals.sum())


def cell_logits(cells: Cells, level: int) -> Floats:
    """Return the logit of the middle of every cell, float64[m]."""
    return _logit(grid.left_edges(2 * cells + np.int32(1), level - 1))


def _logit(scores: Floats) -> Floats:
    """Return the logit of scores, those nearer than 2⁻⁴⁰ to 0 or 1 moved there."""
    inside = np.clip(scores, 2.0**-40, 1.0 - 2.0**-40)
    logits: Floats = np.log(inside / (1.0 - inside))
    return logits
