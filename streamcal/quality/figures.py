"""Quality of forecasts, by their labels: figures, a reliability diagram, and how labels come.

What is kept is bounded, and depends on the order of the labels alone, not on how they were cut into
micro-batches: a run that was killed and resumed gives the figures of one that was not, to the last digit.

Labels with weights count for so much in all `Figures`, which then estimate those of the deployment. The
history over time counts each label that came once.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from streamcal.base.values import Floats, Labels
from streamcal.delayed.delay_laws_c import COMPLETE
from streamcal.join.outcomes import Joined
from streamcal.maps import binning
from streamcal.quality.class_sums import ClassSums
from streamcal.quality.decomposition import decompose
from streamcal.quality.delays import Delays
from streamcal.quality.diagram import Series
from streamcal.quality.groups import Groups
from streamcal.quality.history import GRAIN, History
from streamcal.quality.label_coverage import LabelCoverage
from streamcal.quality.label_sums import LabelSums
from streamcal.quality.sampled_sums import SampledPanes, SampledSums
from streamcal.quality.verdict import Arrival, Verdict, judge, weighted_verdict
from streamcal.quality.watch import ForecastWatch
from streamcal.sketch import checks, grid
from streamcal.sketch.decoding import Finite
from streamcal.sketch.score_sketch import ScoreSketch

ECE_BINS: Final = 15
"""The bins of the calibration error, of equal mass: at most so many, for no edge parts equal forecasts."""

WINDOW: Final = 5_000
"""Consecutive labels whose mean is compared with that of their forecasts."""

RATED_KEYS: Final = 8
"""Number of keys that are rated one by one: the first whose labels come. Each adds kilobytes to a commit."""

_CELLS: Final = 512  # of the sketch that the bins are made of: some kilobytes of every commit
_LEAST: Final = 1e-15


def log_losses(labels: Labels | Floats, forecasts: Floats) -> Floats:
    """Return −ln of the probability given to each label, at least 1e-15, in nats: float64[n]."""
    return -np.log(np.maximum(np.where(labels == 1, forecasts, 1.0 - forecasts), _LEAST))


class Figures(msgspec.Struct):
    """Figures of the quality of one stream of forecasts; None without labels."""

    brier: float | None = None
    """Brier score: mean of (forecast − label)². It is miscalibration − discrimination + uncertainty."""
    miscalibration: float | None = None
    """Part of the Brier score that recalibration by an isotonic fit would take away (CORP), at least 0."""
    discrimination: float | None = None
    """Uncertainty − Brier score after that fit, at least 0: the better forecasts tell the classes apart, the
    higher."""
    uncertainty: float | None = None
    """r (1 − r) of the rate r of label 1: the Brier score of forecasting that rate."""
    log_loss: float | None = None
    """Mean of −ln of the probability that was given to the label, at least 10⁻¹⁵."""
    ece: float | None = None
    """Expected calibration error: mean |mean forecast − rate of label 1| over `ECE_BINS` bins of equal mass,
    each counted with its labels."""
    gap: float | None = None
    """Mean forecast − mean label."""
    worst_gap: float | None = None
    """Gap of largest absolute value among the windows of `WINDOW` labels, one behind the other, in the order
    in which labels came; None before the first is full."""
    latest_gap: float | None = None
    """Gap of the latest full window."""


class ForecastQuality(msgspec.Struct, omit_defaults=True):
    """Quality of one stream of forecasts; its fields are its state.

    Examples
    --------
    >>> quality = ForecastQuality()
    >>> quality.add([0.25, 0.25, 0.75, 0.75], [0, 1, 1, 1])
    >>> figures = quality.figures
    >>> figures.brier, round(figures.log_loss, 4), figures.ece, figures.gap
    (0.1875, 0.5623, 0.25, -0.25)
    """

    squares: Finite = msgspec.field(default_factory=float)
    log_losses: Finite = msgspec.field(default_factory=float)
    sketch: ScoreSketch = msgspec.field(default_factory=partial(ScoreSketch, _CELLS))
    forecasts: Floats = msgspec.field(default_factory=partial(np.empty, 0))
    """Sum of the forecasts of each cell of the sketch."""
    open_gap: Finite = msgspec.field(default_factory=float)
    """Sum of forecast − label in the window that is not full yet."""
    worst_gap: Finite | None = msgspec.field(default_factory=lambda: None)
    latest_gap: Finite | None = msgspec.field(default_factory=lambda: None)
    open_weight: Finite = 0.0
    """Sum of weight − 1 in that window."""

    @property
    def labels(self) -> int:
        """Number of labels."""
        return self.sketch.n

    @property
    def positives(self) -> int:
        """Number of labels that are 1."""
        return self.sketch.n_positives

    @property
    def figures(self) -> Figures:
        """The figures, over all labels.

        Miscalibration and discrimination are by cells, so they count less of what is chance than those of
        `streamcal.evaluate`, by single forecasts. In thousands of samples of 16 distributions they differed
        by at most 0.0014 at 1,000 labels, 0.0005 at 20,000 and 0.0001 at 500,000; these were mostly lower,
        and on average nearer to the truth.
        """
        if not self.labels:
            return Figures()
        masses, n = self._masses, self._weight
        positives, brier = masses[1], self.squares / n
        excess = self.forecasts - positives
        splits = binning.uniform_mass(self.sketch.weighed.masses.sum(axis=0), ECE_BINS)
        return Figures(
            brier,
            *decompose(brier, masses.sum(axis=0), self.forecasts, positives),
            self.log_losses / n,
            float(np.abs(np.add.reduceat(excess, splits[:-1])).sum()) / n,
            float(excess.sum()) / n,
            self.worst_gap,
            self.latest_gap,
        )

    @property
    def _weight(self) -> float:
        """The sum of the labels' weights; their number, where all are 1."""
        return self.sketch.mass.labels

    @property
    def _masses(self) -> Floats:
        """The weight of the labels of each class and cell, float64[2, m]."""
        return self.sketch.weighed.masses.astype(np.float64)

    def add(
        self,
        forecasts: Sequence[float] | Floats,
        labels: Sequence[int] | Labels,
        weights: Floats | None = None,
    ) -> None:
        """Add forecasts in [0, 1] with their labels, 0 or 1, in the order in which the labels came.

        ``weights`` are theirs, float64[n]; None: all are 1.
        """
        values, labels = np.asarray(forecasts, np.float64), np.asarray(labels, np.int8)
        if not len(values):
            return
        each = np.ones(len(values)) if weights is None else weights
        self.log_losses = _sum_on(self.log_losses, each * log_losses(labels, values))
        self.squares = _sum_on(self.squares, each * (values - labels) ** 2)
        rounded, mass = (np.rint(part / GRAIN) * GRAIN for part in (each * values, each))
        self._add_gaps(rounded - mass * labels, mass - 1.0)
        self._add_to_cells(values, rounded, labels, each)

    def bins(self, most: int) -> tuple[Floats, Floats, Floats]:
        """Return labels, sum of forecasts and positives of at most so many bins of equal mass.

        The arrays are float64[bins]; there has to be a label.
        """
        masses = self._masses
        splits = binning.uniform_mass(self.sketch.weighed.masses.sum(axis=0), most)
        forecasts = np.add.reduceat(self.forecasts, splits[:-1])
        return binning.bin_sums(masses.sum(axis=0), splits), forecasts, binning.bin_sums(masses[1], splits)

    def series(self, name: str) -> Series:
        """Return what a diagram draws, by cells; there has to be a label."""
        masses, figures = self._masses, self.figures
        mass = masses.sum(axis=0)
        columns = self.forecasts / mass, mass, masses[1], mass
        return Series(name, self.labels, figures.ece or 0.0, figures.brier or 0.0, *columns)

    def _add_gaps(self, excess: Floats, more: Floats) -> None:
        """Add forecast − label of the labels behind those in the sketch; end each window that is full.

        ``more`` is weight − 1 of each, which the excess is a multiple of.
        """
        sums = self.open_gap + np.cumsum(excess)
        weights = self.open_weight + np.cumsum(more)
        full = slice(WINDOW - 1 - self.labels % WINDOW, None, WINDOW)
        ends, weights_then = sums[full], weights[full]
        if not len(ends):
            self.open_gap, self.open_weight = float(sums[-1]), float(weights[-1])
            return
        self.open_weight = float(weights[-1] - weights_then[-1])
        gaps = np.diff(ends, prepend=0.0) / (WINDOW + np.diff(weights_then, prepend=0.0))
        worst = float(gaps[np.abs(gaps).argmax()])
        if self.worst_gap is None or abs(worst) > abs(self.worst_gap):
            self.worst_gap = worst
        self.latest_gap = float(gaps[-1])
        self.open_gap = float(sums[-1] - ends[-1])

    def _add_to_cells(self, values: Floats, rounded: Floats, labels: Labels, weights: Floats) -> None:
        held, level = self.sketch.cells, self.sketch.level
        self.sketch.add_checked(checks.as_scores(values), checks.as_labels(labels), weights)
        cells, risen = self.sketch.cells, self.sketch.level - level
        where = np.searchsorted(cells, np.concatenate([held >> risen, grid.cells_of(values, level + risen)]))
        sums = np.concatenate([self.forecasts, rounded])
        self.forecasts = np.bincount(where, sums, len(cells)).astype(np.float64, copy=False)


_NO_TIME: Final = float("nan")


def _numbers() -> array[float]:
    return array("d")


class Unrated(msgspec.Struct):
    """Predictions and joined labels that were not rated yet: columns, in their order."""

    scores: array[float] = msgspec.field(default_factory=_numbers)
    """Scores of the predictions whose labels have come."""
    probabilities: array[float] = msgspec.field(default_factory=_numbers)
    labels: array[int] = msgspec.field(default_factory=partial(array, "h"))
    """Labels; of many classes their places."""
    keys: list[str | None] = []
    delays: array[float] = msgspec.field(default_factory=_numbers)
    """Event time from the prediction to its label, in seconds; NaN: unknown, or no label came."""
    predicted_at: array[float] = msgspec.field(default_factory=_numbers)
    """Event time of the prediction; NaN: none."""
    times: array[float] = msgspec.field(default_factory=_numbers)
    """Time by which each label counts: its own, or that of maturity; NaN: none."""
    weights: dict[int, float] = {}
    """Weights other than 1, by index."""
    decided: dict[int, int] = {}
    """Decisions that were kept with predictions, by the index of the label."""
    predictions: array[float] = msgspec.field(default_factory=_numbers)
    """Scores of new predictions."""
    prediction_times: array[float] = msgspec.field(default_factory=_numbers)
    """Event times of the new predictions; NaN: none."""
    sampled: list[tuple[float, float, str | None, int]] = []
    """Probability, weight, key and kept decision of each new prediction, where labels have propensities."""
    memos: list[Any] = []
    """Values that engines kept with each prediction, where these keep any."""

    def add(self, joined: Joined) -> None:
        """Add a joined label."""
        if joined.weight != 1.0:
            self.weights[len(self.labels)] = joined.weight
        if joined.decided:
            self.decided[len(self.labels)] = joined.decided
        if joined.memo is not None:
            self.memos.append(joined.memo)
        predicted_at, labelled_at, time = joined.predicted_at, joined.labelled_at, joined.matured_at
        self.scores.append(joined.score)
        self.probabilities.append(joined.probability)
        self.labels.append(joined.label)
        self.keys.append(joined.key)
        self.predicted_at.append(_NO_TIME if predicted_at is None else predicted_at)
        if labelled_at is None:
            self.delays.append(_NO_TIME)
            self.times.append(_NO_TIME if time is None else time)
        else:
            self.delays.append(_NO_TIME if predicted_at is None else labelled_at - predicted_at)
            self.times.append(labelled_at if time is None else time)

    def extend(
        self,
        scores: Floats,
        probabilities: Floats,
        labels: Labels,
        keys: Sequence[str | None],
        predicted_at: Floats,
        times: Floats,
        weights: Floats,
    ) -> None:
        """Add joined labels as columns; they came at ``times``."""
        count = len(self.labels)
        self.weights |= {count + at: float(weights[at]) for at in np.flatnonzero(weights != 1.0).tolist()}
        self.scores.frombytes(scores.tobytes())
        self.probabilities.frombytes(probabilities.tobytes())
        self.labels.frombytes(labels.astype(np.int16).tobytes())
        self.keys.extend(keys)
        self.delays.frombytes((times - predicted_at).tobytes())
        self.predicted_at.frombytes(predicted_at.tobytes())
        self.times.frombytes(times.tobytes())

    def add_predictions(self, scores: Floats, times: Floats) -> None:
        """Add new predictions; a time is NaN where there is none."""
        self.predictions.frombytes(scores.tobytes())
        self.prediction_times.frombytes(times.tobytes())


class Raised(NamedTuple):
    """An alarm of the watch over forecasts."""

    key: str | None
    """Key of the forecasts; None: all."""
    number: int
    """Number among the alarms of this watch, from 1."""
    verdict: Verdict


class Quality(msgspec.Struct):
    """Quality of the forecasts that were given, by the labels that joined them later.

    Its fields are its state.
    """

    before: ForecastQuality = msgspec.field(default_factory=ForecastQuality)
    """Quality of the scores."""
    after: ForecastQuality = msgspec.field(default_factory=ForecastQuality)
    """Quality of the recalibrated probabilities, each as it was served."""
    history: History = msgspec.field(default_factory=History)
    """Quality of both over time."""
    by_key: dict[str, History] = {}
    """History of each of the first `RATED_KEYS` keys; empty if events have none."""
    delays: Delays = msgspec.field(default_factory=Delays)
    """Event time from a prediction to its label."""
    coverage: LabelCoverage = msgspec.field(default_factory=LabelCoverage)
    """Scores that labels reach."""
    watch: ForecastWatch = msgspec.field(default_factory=ForecastWatch)
    """Watch over all forecasts."""
    watches: dict[str, ForecastWatch] = {}
    """Watch over the forecasts of each key in `by_key`."""
    arrivals: list[tuple[str | None, Arrival]] = []
    """Key and delays of labels, of each engine that has found that one class comes later."""
    matures: bool = False
    """Whether a label counts only once its prediction has the age at which labels are final."""
    groups: Groups = msgspec.field(default_factory=Groups)
    """Sums of each key."""
    segments: dict[str, Groups] = {}
    """Sums of the segments of each field."""
    classes: ClassSums | None = None
    """Sums of many classes, whose scores and probabilities engines kept with each prediction."""
    samples: bool = False
    """Whether predictions have propensities, the chances that their labels are seen."""
    draws: bool = False
    """Whether these depend on forecasts and the past alone."""

    @property
    def figures(self) -> dict[str, Figures]:
        """Figures of both, by ``before`` and ``after``."""
        return {"before": self.before.figures, "after": self.after.figures}

    @property
    def series(self) -> list[Series]:
        """Forecasts as a diagram draws them; there has to be a label."""
        return [self.after.series("recalibrated"), self.before.series("score as it came")]

    @property
    def weighted(self) -> bool:
        """Whether a label had a weight: groups, which count labels, are then no fair sample."""
        return self.before.sketch.weighted

    @property
    def bias(self) -> str:
        """Reason why labels are no fair sample; empty: they count alike, or by propensities not refuted."""
        if not self.samples:
            return "labels have weights that are no propensities" if self.weighted else ""
        sums = self.sums(None)
        refuted = isinstance(sums, SampledSums) and sums.refutes_propensities
        return "labels are not as many as their propensities say" if refuted else ""

    @property
    def key_sums(self) -> dict[str, LabelSums]:
        """Sums by propensity of each key in `by_key`, if there are several and nothing refutes them."""
        found = {key: self.sums(key) for key in self.by_key}
        return {} if len(found) < 2 or self.bias else found

    def verdict(self, key: str | None = None) -> Verdict:
        """Return the verdict on all forecasts, or on those of a key in `by_key`."""
        if self.weighted and not self.samples:
            return weighted_verdict(self.before.labels)
        return judge(self.sums(key), self.arrival(key))

    def sums(self, key: str | None = None) -> LabelSums:
        """Return the sums that the verdict on all forecasts, or on those of a key, rests on."""
        return (self.watch if key is None else self.watches[key]).sums(self.arrival(key))

    def arrival(self, key: str | None) -> Arrival:
        """Return how labels arrive, of a key; of None, as of the key whose labels are the least complete."""
        if self.matures:
            return Arrival(in_order=True)
        keys = {key} if key is not None else {None, *self.by_key}
        late = [arrival for of, arrival in self.arrivals if of in keys]
        if self.samples:
            age = self.delays.quantile(COMPLETE) if self.delays.labels else math.inf
            late.insert(0, Arrival(complete_at=age, fair=False))
        return max(late, key=lambda arrival: arrival.age, default=Arrival())

    def add(self, unrated: Unrated, segments: Sequence[Sequence[Any]] = ()) -> list[Raised]:
        """Add predictions and joined labels; return the alarms that were raised.

        ``segments`` are the segments of each label, for each field.
        """
        self.coverage.add(np.array(unrated.predictions), np.array(unrated.prediction_times))
        self.coverage.add(np.array(unrated.scores), np.array(unrated.predicted_at), labelled=True)
        self._add_sampled(unrated)
        raised, at = list[Raised](), 0
        while at < len(unrated.labels):  # each look comes after the same labels, however they come in parts
            end = len(unrated.labels)
            if not self.arrivals:
                end = min(end, at + self.watch.until_look)
            raised += self._add(unrated, segments, at, end)
            at = end
        return raised

    def _add_sampled(self, unrated: Unrated) -> None:
        """Add predictions that have propensities."""
        if not unrated.sampled:
            return
        probabilities, weights, keys, _ = zip(*unrated.sampled, strict=True)
        forecasts, each = np.array([unrated.predictions, probabilities]), np.array(weights)
        times = np.array(unrated.prediction_times)
        for key in dict.fromkeys([None, *keys]):
            if key is not None and key not in self.watches and len(self.watches) < RATED_KEYS:
                self.watches[key] = ForecastWatch()
            watch = self.watch if key is None else self.watches.get(key)
            if watch is not None:
                own = slice(None) if key is None else np.array([of == key for of in keys])
                watch.sampled = watch.sampled or SampledPanes(draws=self.draws)
                watch.sampled.draws &= self.draws
                watch.sampled.predict(forecasts[:, own], each[own], times[own])

    def _add(self, unrated: Unrated, segments: Sequence[Sequence[Any]], begin: int, end: int) -> list[Raised]:
        """Add the joined labels of an interval that ends with the next look, or before it."""
        part = slice(begin, end)
        forecasts = np.array([unrated.scores[part], unrated.probabilities[part]])
        labels, times = np.array(unrated.labels[part]), np.array(unrated.times[part])
        weights = None
        if unrated.weights:
            weights = np.array([unrated.weights.get(index, 1.0) for index in range(begin, end)])
        if self.classes is not None and end > begin:
            rows, codes = self.classes.rows(unrated.memos[part]), labels.astype(np.int64)
            self.segments["class"].add(*self.classes.add(rows, codes, weights))
            labels = rows[:, 0].argmax(axis=1) == codes  # the decision is rated
        labels = labels.astype(np.int8)
        self.before.add(forecasts[0], labels, weights)
        self.after.add(forecasts[1], labels, weights)
        labels_01, predicted_at = labels.astype(np.float64), np.array(unrated.predicted_at[part])
        self.history.add(forecasts, labels_01, times)
        self.delays.add(np.array(unrated.delays[part]))
        until_look = self.watch.until_look
        found = self.watch.add(forecasts, labels_01, predicted_at, times, self.arrival(None), weights)
        raised = [Raised(None, *each) for each in found if len(self.by_key) in (0, RATED_KEYS)]
        keys = unrated.keys[part]
        if keys and keys.count(None) == len(keys):
            keys = [None]
        self.groups.add(keys, forecasts, labels_01)
        for groups, names in zip(self.segments.values(), segments, strict=False):
            groups.add(names[part], forecasts, labels_01)
        if end - begin == until_look:
            for groups in (self.groups, *self.segments.values()):
                groups.prune()
        for key in dict.fromkeys(key for key in keys if key is not None):
            if key not in self.by_key and len({*self.by_key, *self.watches, key}) <= RATED_KEYS:
                self.by_key[key] = History()
                self.watches.setdefault(key, ForecastWatch())
            if key in self.by_key:
                own = np.array([each == key for each in keys])
                self.by_key[key].add(forecasts[:, own], labels_01[own], times[own])
                found = self.watches[key].add(
                    forecasts[:, own],
                    labels_01[own],
                    predicted_at[own],
                    times[own],
                    self.arrival(key),
                    None if weights is None else weights[own],
                )
                raised += [Raised(key, *each) for each in found]
        return [] if self.weighted and not self.samples else raised


def _sum_on(sum_: float, values: Sequence[float] | Floats) -> float:
    """Return the sum, added to one by one: it makes no difference how labels come in parts."""
    return float(np.cumsum(np.concatenate([[sum_], values]))[-1])
