"""Streams whose labels come late, by class or not, and what drives them through a release or an engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamcal import Recalibrator
from streamcal.delayed.delay_laws_c import DelayLaws
from streamcal.delayed.label_release_c import LabelRelease
from streamcal.delayed.release_state import Released
from tests.inside import memo_of
from tests.mixture.plain import expit

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int8]
NO_TIME = float("nan")


class Stream(NamedTuple):
    """Predictions, one a moment; the label of prediction i comes when prediction ``due[i]`` has been made."""

    scores: Floats
    truth: Floats
    labels: Labels
    due: Floats

    def behind(self, start: int) -> Stream:
        """Return the stream from a prediction on; the moments of labels stay as they are."""
        return Stream(self.scores[start:], self.truth[start:], self.labels[start:], self.due[start:])

    def order(self) -> list[int]:
        """Return the predictions that ever get a label, in the order in which these come."""
        order = np.argsort(self.due, kind="stable")
        return order[np.isfinite(self.due[order])].tolist()


Delays = Callable[[np.random.Generator, Labels, Floats, Floats], Floats]
"""Delays of labels, by a generator, the labels, the log odds of the truth, and the moments."""


def by_class(of_0: float, of_1: float) -> Delays:
    """Return exponential delays with these means."""
    return lambda rng, y, x, at: np.where(y == 1, of_1, of_0) * rng.exponential(1.0, len(y))


def fixed(of_0: float, of_1: float) -> Delays:
    return lambda rng, y, x, at: np.where(y == 1, of_1, of_0)


def bulk(late: int, week: float = 2000.0, other: float = 0.0) -> Delays:
    """Return delays with which labels of one class come all at once at the end of a week."""
    return lambda rng, y, x, at: np.where(y == late, week - at % week, other)


ALIKE: dict[str, Delays] = {
    "fixed": fixed(500.0, 500.0),
    "exponential": by_class(400.0, 400.0),
    "by score": lambda rng, y, x, at: 600.0 * expit(x - np.median(x)) * rng.exponential(1.0, len(y)),
    "by time": lambda rng, y, x, at: np.where(at % 4000 < 2000, 100.0, 800.0) * rng.exponential(1.0, len(y)),
    "bulk": lambda rng, y, x, at: 1000.0 - at % 1000.0,
    "half in bulk": lambda rng, y, x, at: np.where(rng.random(len(y)) < 0.5, 0.0, 1000.0 - at % 1000.0),
    "heavy": lambda rng, y, x, at: 60.0 * (rng.random(len(y)) ** (-1.0 / 1.2) - 1.0),
    "a third never": lambda rng, y, x, at: np.where(
        rng.random(len(y)) < 0.3, np.inf, 400.0 * rng.exponential(1.0, len(y))
    ),
    "never by score": lambda rng, y, x, at: np.where(
        rng.random(len(y)) < 0.6 * expit(-x), np.inf, 400.0 * rng.exponential(1.0, len(y))
    ),
}
"""Delays that do not depend on the class, given score and time."""


LATE: dict[str, tuple[Delays, float]] = {
    "positives": (by_class(300.0, 2000.0), 0.2),
    "negatives": (by_class(2000.0, 300.0), 0.2),
    "fixed": (fixed(2400.0, 800.0), 0.2),
    "bulk of negatives": (bulk(0), 0.2),
    "bulk of positives": (bulk(1), 0.2),
    "rare": (fixed(800.0, 2400.0), 0.02),
}
"""Delays of which those of one class are longer, and the base rate."""


def made(
    n: int, seed: Any, delays: Delays, *, rate: float = 0.2, offset: float = 0.7, ramp: float = 0.0
) -> Stream:
    """Return a stream with about this base rate; the score is off by an offset, the truth rises by a ramp."""
    rng = np.random.default_rng(seed)
    mean = {0.5: 0.0, 0.2: -1.8, 0.02: -4.6}[rate]
    x, at = rng.normal(mean, 1.2, n), np.arange(float(n))
    truth = expit(x + ramp * at / n)
    labels = (rng.random(n) < truth).astype(np.int8)
    return Stream(expit(0.85 * (x - mean) + mean + offset), truth, labels, at + delays(rng, labels, x, at))


def told(
    laws: DelayLaws, stream: Stream, scores: Floats | None = None, closed: Callable[[], None] = lambda: None
) -> DelayLaws:
    """Let the laws see a stream, its labels with these scores instead of their own.

    ``closed`` is called at the end of each cohort.
    """
    scores, order, j = stream.scores if scores is None else scores, stream.order(), 0
    values, labels, due = scores.tolist(), stream.labels.tolist(), stream.due.tolist()
    for i in range(len(values)):
        if laws.predict(NO_TIME):
            laws.close()
            closed()
        while j < len(order) and due[order[j]] <= i:
            q = order[j]
            laws.label(laws.find(q), values[q], labels[q], float(laws.n))
            j += 1
    return laws


class Learned(NamedTuple):
    """A label that was learned."""

    when: int
    """Number of predictions made before."""
    of: int
    """Number of its prediction."""
    label: int
    weight: float
    score: float


class Outcome(NamedTuple):
    """What came of a stream."""

    told: list[int]
    """Predictions whose label has come."""
    learned: list[Learned]
    batches: list[Released]
    """Labels that were held, as they were released."""


def driven(
    release: LabelRelease, stream: Stream, *, start: int = 0, after: Callable[[int], None] = lambda _: None
) -> Outcome:
    """Drive a release alone, as an engine does; ``after`` is called behind each prediction and its labels."""
    scores, labels, due, order = (
        stream.scores.tolist(),
        stream.labels.tolist(),
        stream.due.tolist(),
        stream.order(),
    )
    outcome = Outcome([], [], [])

    def drain() -> None:
        given = release.released_labels()
        outcome.batches.append(given)
        rows = zip(given.prediction_index, given.labels, given.weights, given.scores, strict=True)
        outcome.learned.extend(
            Learned(int(release.n), int(i), int(y), float(w), float(s)) for i, y, w, s in rows
        )

    j = int(np.sum(stream.due <= start - 1))
    for i in range(start, len(scores)):
        counted(release, scores[i], drain)
        while j < len(order) and due[order[j]] <= i:
            q = order[j]
            j += 1
            outcome.told.append(q)
            if release.take(scores[q], labels[q], q, 1.0, NO_TIME, NO_TIME, scores[q], None):
                outcome.learned.append(Learned(int(release.n), q, labels[q], 1.0, scores[q]))
            elif release.ready:
                drain()
        after(i)
    return outcome


def counted(release: LabelRelease, score: float, drain: Callable[[], None], time: float = NO_TIME) -> None:
    """Count a prediction."""
    if release.unsettled:
        release.expect(score)
    if release.holds:
        release.note(score)
    if release.predict(time) and release.end():
        drain()


def served(
    stream: Stream, engine: Recalibrator | None = None, *, batch: int = 25
) -> tuple[Floats, Recalibrator]:
    """Return what an engine serves for a stream, predictions and labels in batches, and the engine."""
    engine, order, n, j = engine or Recalibrator(), stream.order(), len(stream.scores), 0
    before = engine.target.scores
    scores, labels, due = stream.scores.tolist(), stream.labels.tolist(), stream.due.tolist()
    forecasts = np.empty(n)
    for i in range(0, n, batch):
        part = stream.scores[i : i + batch]
        forecasts[i : i + batch] = engine.predict_many(part)
        engine.observe_many(part)
        while j < len(order) and due[order[j]] <= i + len(part) - 1:
            engine.learn_one(scores[order[j]], labels[order[j]], memo=memo_of(before + order[j]))
            j += 1
    return forecasts, engine


def loss(forecasts: Floats, stream: Stream) -> float:
    """Return the mean log loss of forecasts."""
    kept = np.clip(forecasts, 1e-9, 1.0 - 1e-9)
    return float(-np.log(np.where(stream.labels == 1, kept, 1.0 - kept)).mean())


def unexcluding() -> LabelRelease:
    """Return a release that finds no label by exclusion."""
    release = LabelRelease()
    release.excludes = False
    return release


class Cohorts:
    """Counts of cohorts of a release; those of the last are still coming."""

    def __init__(self, release: LabelRelease) -> None:
        if not release.k:
            release.begin()  # of the first predictions, which have no cohort yet
        cohorts = release.cohorts[: release.k].copy()
        self.start, self.size, self.told = cohorts["start"], cohorts["size"], cohorts["told"]
        self.released, self.mark = cohorts["released"], cohorts["mark"]
        self.ages = release.now - cohorts["time"]
        self.lists = release.to_state().lists
        self.held = np.array([[*map(len, of_cohort)] for of_cohort in self.lists])
