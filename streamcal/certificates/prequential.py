"""The prequential log likelihood of a stream's labels, at every level of the grid (lemma 15).

Each label is forecast from the labels up to the last scheduled count before it. For any h*, its own
likelihood seldom falls far below that of such forecasts. Nothing is done per label: at a scheduled count, the
likelihood of the labels that came since the one before is that of all labels, less that of the earlier ones.
Memory: 72 bytes for each level, and 32 bytes for each of n^(1/3) bins of n labels.
"""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np

from streamcal.base.values import Floats
from streamcal.certificates.forecasters import (
    FORECASTERS,
    Forecasters,
    Levels,
    log_likelihoods,
    log_marginal,
)
from streamcal.sketch.decoding import Count, Part
from streamcal.sketch.score_sketch import ScoreSketch

LEVELS: Final = (36, 40, *range(44, 53))
"""Levels that forecasts are kept for. At the last, each halving of the distance to 0 or 1 is a cell."""

MOST_CELLS: Final = 2048
"""Largest number of cells that a certificate needs; a sketch never has fewer later."""

_ROWS: Final = len(LEVELS)
_LEVELS: Final = np.array(LEVELS, np.int32)

_MOST_PENDING: Final = 32


class Prequential(Part):
    """Log likelihoods of the forecasters on all labels that were passed to `update`. It is its own state."""

    labels: Count = 0
    """Number of labels scored."""
    opening: Floats = msgspec.field(default_factory=lambda: np.zeros(_ROWS))
    """Log likelihood of the labels at the first update, by level."""
    sums: Floats = msgspec.field(default_factory=lambda: np.zeros((_ROWS, FORECASTERS)))
    """Log likelihoods of all later labels, by level and forecaster."""
    earlier: Floats = msgspec.field(default_factory=lambda: np.zeros((_ROWS, FORECASTERS)))
    """Log likelihood that ``forecasters`` give the labels they were fitted to, by level and forecaster."""
    forecasters: Forecasters | None = None
    """Forecasters fitted to all labels that were scored; None before the first."""

    def __post_init__(self) -> None:
        for name in ("sums", "earlier"):
            if getattr(self, name).ndim == 1:  # one row in a state
                setattr(self, name, getattr(self, name).reshape(_ROWS, FORECASTERS))

    @property
    def log_likelihoods(self) -> Floats:
        """Log likelihood of the mixture of all forecasters, one for each of `LEVELS`.

        Only values of levels that are not finer than the sketch of the last update are meaningful.
        """
        mixed = np.logaddexp.reduce(self.sums, axis=1) - np.log(FORECASTERS)
        return np.asarray(self.opening + np.minimum(mixed, 0.0))

    def update(self, sketch: ScoreSketch) -> None:
        """Score the labels that came since the last update; the sketch holds them and all before them.

        Later labels are forecast from all of these.
        """
        if sketch.n > self.labels:
            self.score(sketch)
            self.fit(sketch)

    def score(self, sketch: ScoreSketch) -> None:
        """Score the labels that came since the last update, see `update`; after the first, `fit` follows."""
        if sketch.n <= self.labels:
            return
        sketch, rows, labels = _by_level(sketch)
        if self.forecasters is None:
            self.opening[rows] = log_marginal(labels)
        else:
            now = log_likelihoods(self.forecasters.at(labels), labels)
            self.sums[rows] += np.minimum(now - self.earlier[rows], 0.0)  # only rounding leads above
            self.earlier[rows] = now
        self.labels = sketch.n

    def fit(self, sketch: ScoreSketch) -> None:
        """Fit the forecasters of later labels to all scored labels, which the sketch holds."""
        sketch, rows, labels = _by_level(sketch)
        self.forecasters = Forecasters.fitted(sketch)
        self.earlier[rows] = log_likelihoods(self.forecasters.at(labels), labels)

    def copy(self) -> Self:
        """Return a copy."""
        tables = {name: getattr(self, name).copy() for name in ("opening", "sums", "earlier")}
        return msgspec.structs.replace(self, **tables)


def replayed(sketch: ScoreSketch) -> Prequential:
    """Return the forecasts of labels of unknown order, in an order drawn at random (lemma 15).

    Labels of one law in random order have that law too. The order is the same whenever the number of labels
    is, and forecasters are fitted anew where it doubles.
    """
    draw, parts = np.random.default_rng(sketch.n), [sketch]
    while parts[-1].n > 1:
        counts = parts[-1].counts
        fewer = draw.multivariate_hypergeometric(counts.ravel(), parts[-1].n // 2, method="marginals")
        parts.append(parts[-1].with_counts(fewer.reshape(counts.shape)))
    scored = Prequential()
    for part in reversed(parts):
        scored.update(part)
    return scored


class Forecasts(Part, dict=True):
    """Forecasts of the labels of a domain so far: `Prequential`, worked out when it is first asked for.

    To score and to fit takes milliseconds, for which no event waits. A value does not change: `updated`
    returns another. After `settle`, its field is its state.
    """

    known: Prequential = msgspec.field(default_factory=Prequential)
    """Forecasts and their log likelihoods, without what is pending."""

    def __post_init__(self) -> None:
        self._pending: tuple[ScoreSketch, ...] = ()

    @property
    def labels(self) -> int:
        """Number of labels scored, or to be scored."""
        return self._pending[-1].n if self._pending else self.known.labels

    @property
    def due(self) -> int:
        """Number of labels from which on forecasters should be fitted anew: half more than before."""
        labels = self.labels
        return max(1, labels + labels // 2)

    @property
    def scored(self) -> Prequential:
        """Forecasts after all labels so far; do not change it."""
        self.settle()
        return self.known

    def settle(self) -> None:
        """Score what is pending."""
        if self._pending:
            scored = self.known.copy()
            for sketch in self._pending:
                scored.update(sketch)
            self.known, self._pending = scored, ()

    def updated(self, sketch: ScoreSketch) -> Forecasts:
        """Return the forecasts after more labels; the sketch holds them and all before, and must not change.

        Of more than `_MOST_PENDING` sketches the earliest is scored at once: they take memory.
        """
        if sketch.n <= self.labels:
            return self
        scored, pending = self.known, (*self._pending, sketch)
        if len(pending) > _MOST_PENDING:
            scored = scored.copy()
            scored.update(pending[0])
            pending = pending[1:]
        updated = Forecasts(scored)
        updated._pending = pending
        return updated


def _by_level(sketch: ScoreSketch) -> tuple[ScoreSketch, slice, Levels]:
    """Return labels with at most `MOST_CELLS` cells, the `LEVELS` not finer, and the labels at these."""
    while len(sketch.cells) > MOST_CELLS:
        sketch = sketch.at_level(sketch.level + 1)
    first = int(np.searchsorted(_LEVELS, sketch.level))
    return sketch, slice(first, _ROWS), Levels.of(sketch, _LEVELS[first:])
