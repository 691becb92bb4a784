"""Streams of scores with their labels: most of them with a labelled source that comes before the deployment.

`load` gives one `Stream`, of one of five kinds: river's data sets, scored by a model that learns as they
come, without a source; frozen models on data sets (the flights among them) and on what river's generators
make; laws with a known truth; and further frozen models, whose positives are rare, whose scores are saturated
or tied, or whose deployment lasts months or years. A frozen model is fitted to the first rows, the next are
its source, the rest is the deployment. Results are kept under ``.cache/``, named after what they follow from.

The names fall into two halves. Constants of the engine may be chosen by the figures of `CHOOSE`; those of
`REPORT` are only reported.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from river import datasets
from river.datasets import synth
from scipy.special import expit, logit
from scipy.stats import norm

__all__ = ["CHOOSE", "FLIGHTS", "KINDS", "MODELS", "NAMES", "REPORT", "Stream", "load", "read_flights"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = ROOT / ".cache" / "streams"
FLIGHTS: Final = ROOT / "examples" / "flights"

SOURCE: Final = 10_000
LENGTH: Final = 30_000  # of a deployment that is generated
TIED: Final = 2  # decimals of a score
RARE: Final = 0.01  # base rate
_PERIOD: Final = 3_000  # of the recurring drift: events between two changes


def _constant(prior: float) -> Callable[[Floats], Floats]:
    return lambda moment: np.full_like(moment, prior)


def _jumps(*priors: float) -> Callable[[Floats], Floats]:
    return lambda moment: np.array(priors)[(moment * len(priors)).astype(int)]


class _Law:
    """A law that drifts with the moment, from 0 at the start of the deployment to 1 at its end."""

    def __init__(
        self,
        prior: Callable[[Floats], Floats],
        *,
        source_prior: float | None = None,
        far: Callable[[Floats], Floats] = np.zeros_like,
        near: tuple[float, float] = (-0.5, 0.5),
        flipped: Callable[[Floats], Floats] = np.zeros_like,
        decimals: int | None = None,
    ) -> None:
        self._prior, self._far, self._near, self._flipped = prior, far, near, flipped
        self._source_prior = source_prior
        self._decimals = decimals

    def sample(
        self, moments: Floats, rng: np.random.Generator, *, source: bool = False
    ) -> tuple[Floats, NDArray[np.int8], Floats]:
        """Return a score, a label and the right probability for each moment, float64[n] in [0, 1]."""
        prior = self._prior(moments)
        if source and self._source_prior is not None:
            prior = np.full_like(moments, self._source_prior)
        far, flipped = self._far(moments), self._flipped(moments)
        zeros, ones = (
            (1.0 - far) * start + far * end for start, end in zip((-2.0, 2.0), self._near, strict=True)
        )
        sides = rng.random(len(moments)) < prior
        logits = rng.standard_normal(len(moments)) + np.where(sides, ones, zeros)
        labels = sides ^ (rng.random(len(moments)) < flipped)
        scores = expit(logits)
        if self._decimals is None:
            odds = logit(prior) + 0.5 * ((logits - zeros) ** 2 - (logits - ones) ** 2)
            right = expit(odds)
        else:
            # Of all scores that are rounded to this one.
            half = 0.5 * 10.0**-self._decimals
            scores = np.round(scores, self._decimals)
            low, high = logit(np.clip(scores - half, 0.0, 1.0)), logit(np.clip(scores + half, 0.0, 1.0))
            positive = prior * (norm.cdf(high - ones) - norm.cdf(low - ones))
            negative = (1.0 - prior) * (norm.cdf(high - zeros) - norm.cdf(low - zeros))
            right = positive / (positive + negative)
        right = (1.0 - flipped) * right + flipped * (1.0 - right)
        return scores, labels.astype(np.int8), right


def _half(moment: Floats) -> Floats:
    return (moment >= 0.5).astype(np.float64)


def _in_turn(moment: Floats) -> Floats:
    return (moment * LENGTH // _PERIOD % 2).astype(np.float64)


def _growing(moment: Floats) -> Floats:
    return 0.3 * moment


TRUTHS: Final[dict[str, _Law]] = {
    # The classes close in, halfway: means ±2 become ±½.
    "truth-abrupt": _Law(_constant(0.3), far=_half),
    "truth-abrupt-rare": _Law(_constant(RARE), far=_half),
    # The same, evenly over the whole deployment.
    "truth-gradual": _Law(_constant(0.3), far=np.copy),
    "truth-gradual-tied": _Law(_constant(0.3), far=np.copy, decimals=TIED),
    # The prior alone jumps, three times: label shift.
    "truth-jump": _Law(_jumps(0.1, 0.4, 0.05, 0.4), source_prior=0.5),
    "truth-jump-rare": _Law(_jumps(0.01, 0.03, 0.005, 0.02), source_prior=0.05),
    # More and more labels are wrong: none at the start, 30 % at the end.
    "truth-noise": _Law(_constant(0.3), flipped=_growing),
    "truth-noise-tied": _Law(_constant(0.3), flipped=_growing, decimals=TIED),
    # Two laws take turns: means −2 and 2, and −3 and 1.
    "truth-recurring": _Law(_constant(0.3), far=_in_turn, near=(-3.0, 1.0)),
    "truth-recurring-tied": _Law(_constant(0.3), far=_in_turn, near=(-3.0, 1.0), decimals=TIED),
    # Nothing drifts.
    "truth-stationary": _Law(_constant(0.3)),
    "truth-stationary-rare": _Law(_constant(RARE)),
}
"""The laws by the names of their streams."""


def draw(name: str) -> dict[str, NDArray[Any]]:
    """Return a source and a deployment of a law of `TRUTHS`, and what was right at every event."""
    law = TRUTHS[name]
    rng = np.random.default_rng(sorted(TRUTHS).index(name))
    source_scores, source_labels, _ = law.sample(np.zeros(SOURCE), rng, source=True)
    scores, labels, right = law.sample(np.arange(LENGTH) / LENGTH, rng)
    return {
        "scores": scores,
        "labels": labels,
        "source_scores": source_scores,
        "source_labels": source_labels,
        "truth": right,
    }


Rows = tuple[NDArray[np.float64], NDArray[np.int8]]


@dataclass(frozen=True)
class Deployment:
    """Rows in their order, a model, and how many rows each part has."""

    rows: Callable[[], Rows]
    model: str
    """One of `MODELS`."""
    fitted: int
    """How many rows, the first ones, the model is fitted to."""
    source: int
    """How many rows after them are the labelled source; the deployment is the rest."""


def deploy(deployment: Deployment) -> dict[str, NDArray[Any]]:
    """Fit the model, and return its scores and the labels of the source and of the deployment."""
    features, labels = deployment.rows()
    start, end = deployment.fitted, deployment.fitted + deployment.source
    model = MODELS[deployment.model]().fit(features[:start], labels[:start])
    scores = np.clip(model.predict_proba(features[start:])[:, 1], 0.0, 1.0)
    return {
        "scores": scores[end - start :],
        "labels": labels[end:],
        "source_scores": scores[: end - start],
        "source_labels": labels[start:end],
    }


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


def _forest() -> Any:
    """Return a forest whose trees vote: its scores have two decimals, so many of them are equal."""
    from sklearn.ensemble import BaggingClassifier
    from sklearn.tree import DecisionTreeClassifier

    class Votes(BaggingClassifier):
        def predict_proba(self, X: Any) -> NDArray[np.float64]:
            votes = np.mean([tree.predict(X) for tree in self.estimators_], axis=0)
            return np.column_stack((1.0 - votes, votes))

    return Votes(DecisionTreeClassifier(max_features="sqrt"), n_estimators=100, random_state=0)


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression())


def _bayes() -> Any:
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


MODELS: Final = {"boosting": _boosting, "forest": _forest, "logistic": _logistic, "bayes": _bayes}


def rows_of(pairs: Iterable[tuple[dict[Any, Any], Any]], positive: Callable[[Any], bool] = bool) -> Rows:
    features, labels = zip(*((list(row.values()), positive(label)) for row, label in pairs), strict=True)
    return np.array(features, np.float64), np.array(labels, np.int8)


def _cancer() -> Rows:
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    return features, labels.astype(np.int8)


def _digits() -> Rows:
    """Return the eights among all digits."""
    from sklearn.datasets import load_digits

    features, digits = load_digits(return_X_y=True)
    return features, (digits == 8).astype(np.int8)


FROZEN: Final = {
    "bananas-bayes": Deployment(lambda: rows_of(datasets.Bananas()), "bayes", 1_300, 1_000),
    "bananas-forest": Deployment(lambda: rows_of(datasets.Bananas()), "forest", 1_300, 1_000),
    "cancer-forest": Deployment(_cancer, "forest", 200, 150),
    "cancer-logistic": Deployment(_cancer, "logistic", 200, 150),
    "digits-bayes": Deployment(_digits, "bayes", 500, 400),
    "phishing-forest": Deployment(lambda: rows_of(datasets.Phishing()), "forest", 300, 300),
    "segments-logistic": Deployment(
        lambda: rows_of(datasets.ImageSegments(), lambda label: label == "window"), "logistic", 500, 500
    ),
    "shuttle-bayes": Deployment(lambda: rows_of(datasets.Shuttle()), "bayes", 5_000, 5_000),
    "shuttle-logistic": Deployment(lambda: rows_of(datasets.Shuttle()), "logistic", 5_000, 5_000),
    "yeast-boosting": Deployment(
        lambda: rows_of(datasets.Yeast(), lambda labels: labels["Class1"]), "boosting", 600, 600
    ),
}
"""Data sets, by the names of their streams."""


_FITTED, _SOURCE = 2_000, 8_000
_BEFORE: Final = _FITTED + _SOURCE


def taken(*parts: tuple[Any, int], positive: Callable[[Any], bool] = bool) -> Rows:
    """Return so many rows of each generator, one after the other."""
    rows = [rows_of(generator.take(count), positive) for generator, count in parts]
    return np.concatenate([features for features, _ in rows]), np.concatenate([labels for _, labels in rows])


def _agrawal() -> Rows:
    """Return rows whose label follows another function in every third of the deployment."""
    third = LENGTH // 3
    return taken(
        (synth.Agrawal(0, seed=1, perturbation=0.1), _BEFORE + third),
        (synth.Agrawal(2, seed=2, perturbation=0.1), third),
        (synth.Agrawal(0, seed=3, perturbation=0.3), third),
    )


def _rare() -> Rows:
    """Return rows of which 1 % are positive, thinned; halfway the perturbation of the features grows."""
    parts = []
    for seed, perturbation, count in ((1, 0.05, _BEFORE + LENGTH // 2), (2, 0.3, LENGTH // 2)):
        ones = count // 100
        generator = synth.Agrawal(0, seed=seed, perturbation=perturbation)
        features, labels = taken((generator, 2 * count), positive=lambda label: label == 0)
        rng = np.random.default_rng(seed)
        kept = np.append(
            rng.choice(np.flatnonzero(labels == 1), ones, replace=False),
            rng.choice(np.flatnonzero(labels == 0), count - ones, replace=False),
        )
        kept.sort()
        parts.append((features[kept], labels[kept]))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _hyperplane() -> Rows:
    """Return rows whose plane turns slowly, all the time."""
    plane = synth.Hyperplane(seed=1, n_drift_features=5, mag_change=0.0005, noise_percentage=0.1)
    return taken((plane, _BEFORE + LENGTH))


def _led() -> Rows:
    """Return the sevens among noisy digits; halfway four of their segments change places."""
    half = LENGTH // 2
    return taken(
        (synth.LED(seed=1, noise_percentage=0.2), _BEFORE + half),
        (synth.LEDDrift(seed=2, noise_percentage=0.2, n_drift_features=4), half),
        positive=lambda digit: digit == 7,
    )


def _rbf() -> Rows:
    """Return rows around centroids, half of which move slowly."""
    centroids = synth.RandomRBFDrift(
        1, 2, n_classes=2, n_features=10, n_centroids=30, change_speed=0.0001, n_drift_centroids=15
    )
    return taken((centroids, _BEFORE + LENGTH))


def _sea() -> Rows:
    """Return rows whose threshold is another one in every quarter of the deployment."""
    quarter = LENGTH // 4
    return taken(
        (synth.SEA(0, seed=1, noise=0.1), _BEFORE + quarter),
        *((synth.SEA(variant, seed=variant, noise=0.1), quarter) for variant in (3, 1, 2)),
    )


def _waveform() -> Rows:
    """Return the first of three noisy waves; nothing drifts."""
    return taken((synth.Waveform(seed=1, has_noise=True), _BEFORE + LENGTH), positive=lambda wave: wave == 0)


def _generated(rows: Callable[[], Rows], model: str) -> Deployment:
    return Deployment(rows, model, _FITTED, _SOURCE)


GENERATED: Final = {
    "agrawal-boosting": _generated(_agrawal, "boosting"),
    "agrawal-rare-forest": _generated(_rare, "forest"),
    "hyperplane-bayes": _generated(_hyperplane, "bayes"),
    "hyperplane-forest": _generated(_hyperplane, "forest"),
    "led-bayes": _generated(_led, "bayes"),
    "rbf-forest": _generated(_rbf, "forest"),
    "sea-logistic": _generated(_sea, "logistic"),
    "waveform-boosting": _generated(_waveform, "boosting"),
}
"""What generators make, by the names of their streams."""


def read_flights(name: str, kind: Any = dict[str, Any]) -> list[Any]:
    """Return the events of a file of the flights."""
    with gzip.open(FLIGHTS / f"{name}.jsonl.gz") as file:
        return msgspec.json.Decoder(kind).decode_lines(file.read())


@cache
def _flights() -> tuple[NDArray[np.float64], dict[str, NDArray[np.bool_]], NDArray[np.str_]]:
    """Return features and labels of all predictions, May to December, in their order, and their airports.

    The features are the logit of the shipped score, the hour, the weekday and the carrier.
    """
    predictions = read_flights("predictions")
    arrived = {row["id"]: row["time"] for row in read_flights("labels")}
    overdue = {row["id"]: row["time"] for row in read_flights("overdue")}
    ids = [row["id"] for row in predictions]
    times = np.array([row["time"] for row in predictions], np.float64)
    carriers = np.array([each.split("-")[1][:2] for each in ids])
    features = np.column_stack(
        (
            logit([row["score"] for row in predictions]),
            times // 3_600 % 24,
            times // 86_400 % 7,
            carriers[:, np.newaxis] == np.unique(carriers),
        )
    )
    # A flight becomes overdue a quarter of an hour after its scheduled arrival.
    minutes = np.array([15 + (arrived[each] - overdue[each]) / 60 if each in overdue else 0 for each in ids])
    labels = {
        "cancelled": np.array([each not in arrived for each in ids]),
        "15": minutes > 15,
        "60": minutes > 60,
        "150": minutes > 150,
    }
    return features, labels, np.array([each.split("-")[2] for each in ids])


def _departures(airport: str, target: str) -> Rows:
    """Return the flights from an airport; target: not arrived at all, or later than so many minutes."""
    features, labels, airports = _flights()
    kept = airports == airport
    if target != "cancelled":
        kept &= ~labels["cancelled"]
    return features[kept], labels[target][kept].astype(np.int8)


def _stocks() -> Rows:
    """Return five years of daily returns of ten stocks, and whether the index falls on the next day."""
    path = Path(datasets.__file__).with_name("sp500.csv.gz")
    with gzip.open(path, "rt") as lines:
        days = [[float(value) for value in list(row.values())[1:]] for row in csv.DictReader(lines)]
    values = np.array(days)
    return values[:, :-1], (values[:, -1] < 0.0).astype(np.int8)


def _copies() -> Rows:
    """Return rows whose plane turns slowly, each feature 20 times."""
    plane = synth.Hyperplane(seed=7, n_drift_features=5, mag_change=0.0005, noise_percentage=0.1)
    features, labels = taken((plane, _BEFORE + LENGTH))
    return np.tile(features, 20), labels


def _mixed() -> Rows:
    """Return rows whose classes change places in the middle third of the deployment."""
    third = LENGTH // 3
    return taken(
        (synth.Mixed(classification_function=0, seed=1), _BEFORE + third),
        (synth.Mixed(classification_function=1, seed=2), third),
        (synth.Mixed(classification_function=0, seed=3), third),
    )


def _centroids() -> Rows:
    """Return rows around moving centroids, one of 50 classes among all."""
    centroids = synth.RandomRBFDrift(
        3, 4, n_classes=50, n_features=8, n_centroids=60, change_speed=0.0002, n_drift_centroids=30
    )
    return taken((centroids, _BEFORE + LENGTH), positive=lambda each: each == 0)


FURTHER: Final = {
    "flights-cancelled-bayes": Deployment(lambda: _departures("JFK", "cancelled"), "bayes", 9_000, 9_000),
    "flights-cancelled-logistic": Deployment(
        lambda: _departures("EWR", "cancelled"), "logistic", 10_000, 10_000
    ),
    "flights-150-boosting": Deployment(lambda: _departures("LGA", "150"), "boosting", 8_500, 8_500),
    "flights-60-forest": Deployment(lambda: _departures("EWR", "60"), "forest", 10_000, 10_000),
    "flights-15-bayes": Deployment(lambda: _departures("LGA", "15"), "bayes", 8_500, 8_500),
    "stocks-logistic": Deployment(_stocks, "logistic", 250, 250),
    "yeast-rare-bayes": Deployment(
        lambda: rows_of(datasets.Yeast(), lambda labels: labels["Class14"]), "bayes", 600, 600
    ),
    "segments-bayes": Deployment(
        lambda: rows_of(datasets.ImageSegments(), lambda label: label == "cement"), "bayes", 500, 500
    ),
    "hyperplane-copies-bayes": Deployment(_copies, "bayes", 2_000, 8_000),
    "mixed-forest": Deployment(_mixed, "forest", 2_000, 8_000),
    "centroids-rare-boosting": Deployment(_centroids, "boosting", 2_000, 8_000),
}
"""Deployments, by the names of their streams."""


_DATA_SETS: Final = {"phishing": "Phishing", "bananas": "Bananas", "shuttle": "Shuttle"}
_LEARNING: Final = ("lr", "nb")

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "learning": tuple(sorted(f"{data_set}-{model}" for data_set in _DATA_SETS for model in _LEARNING)),
    "frozen": tuple(sorted((*FROZEN, "flights"))),
    "generated": tuple(sorted(GENERATED)),
    "truth": tuple(sorted(TRUTHS)),
    "further": tuple(sorted(FURTHER)),
}
"""The streams of each kind, sorted by name; all but those of the first kind have a source."""

NAMES: Final = tuple(name for names in KINDS.values() for name in names)
"""All streams."""

# By place alone, whatever the figures: of every four neighbours, the first and the last. Neighbours are often
# of one data set or law, so that it is in both halves.
CHOOSE: Final = tuple(
    name for names in KINDS.values() for place, name in enumerate(names) if place % 4 in (0, 3)
)
"""The streams by which constants may be chosen."""

REPORT: Final = tuple(name for name in NAMES if name not in CHOOSE)
"""The streams that are only reported."""


@dataclass(frozen=True)
class Stream:
    """Scores of the target in the order of their predictions, with their labels."""

    name: str
    scores: Floats
    """float64[n] in [0, 1]."""
    labels: Labels
    """int8[n], 0 or 1."""
    source_scores: Floats | None = None
    """float64[m]; None: there is no source."""
    source_labels: Labels | None = None
    truth: Floats | None = None
    """float64[n], P[label = 1 | score] under the law of the moment; None: not known."""


def load(name: str) -> Stream:
    """Return a stream by its name, from the cache if it is there.

    Parameters
    ----------
    name
        one of `NAMES`; ``lr``: river's ``StandardScaler() | LogisticRegression()``, ``nb``: its
        ``GaussianNB()``; any other model is scikit-learn's and frozen.

    Raises
    ------
    ValueError
        if there is no stream of that name.
    """
    if name not in NAMES:
        raise ValueError(f"a stream is one of {', '.join(NAMES)}, got {name!r}")
    path = CACHE / f"{name}-{_digest(name)}.npz"
    if not path.exists():
        arrays = _made(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs at once must not read each other's half-written file.
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as partial:
            np.savez_compressed(partial, allow_pickle=False, **arrays)
        Path(partial.name).replace(path)
    with np.load(path) as kept:
        return Stream(name, **kept)


def _made(name: str) -> dict[str, NDArray[Any]]:
    if name == "flights":
        return _all_flights()
    if name in TRUTHS:
        return draw(name)
    if name in KINDS["learning"]:
        return _scored(*name.split("-"))
    return deploy({**FROZEN, **GENERATED, **FURTHER}[name])


def _digest(name: str) -> str:
    """Return 12 hexadecimal digits of all that the stream follows from: data, libraries and code."""
    digest = hashlib.sha256()
    digest.update(Path(__file__).read_bytes())
    if name.startswith("flights"):
        for path in sorted(FLIGHTS.glob("*.jsonl.gz")):
            digest.update(path.read_bytes())
    if name != "flights":
        digest.update("".join(version(package) for package in ("numpy", "river", "scikit-learn")).encode())
    return digest.hexdigest()[:12]


def _scored(data_set: str, model: str) -> dict[str, NDArray[Any]]:
    from river import linear_model, naive_bayes, preprocessing

    rows = getattr(datasets, _DATA_SETS[data_set])()
    if model == "lr":
        return progressive(rows, preprocessing.StandardScaler() | linear_model.LogisticRegression())
    return progressive(rows, naive_bayes.GaussianNB())


def progressive(rows: Iterable[tuple[dict[Any, Any], Any]], model: Any) -> dict[str, NDArray[Any]]:
    """Return the scores of a river classifier, each made before it learned from its row, and the labels.

    A model that has not seen a class yet says ½ or leaves it out, and then its score is ½ or 0.
    """
    scores, labels = [], []
    for features, label in rows:
        positive = bool(label)
        probabilities = model.predict_proba_one(features)
        score = probabilities.get(True, 0.0) if probabilities else 0.5
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"the score of row {len(scores)} must be in [0, 1], got {score!r}")
        scores.append(score)
        labels.append(positive)
        model.learn_one(features, positive)
    return {"scores": np.array(scores, np.float64), "labels": np.array(labels, np.int8)}


class _Prediction(msgspec.Struct):
    id: str
    score: float


class _Label(msgspec.Struct):
    id: str
    label: int


class _Labelled(msgspec.Struct):
    score: float
    label: int


def _all_flights() -> dict[str, NDArray[Any]]:
    labels = {row.id: row.label for row in read_flights("labels", _Label)}
    answered = [row for row in read_flights("predictions", _Prediction) if row.id in labels]
    source = read_flights("source", _Labelled)
    return {
        "scores": np.array([row.score for row in answered], np.float64),
        "labels": np.array([labels[row.id] for row in answered], np.int8),
        "source_scores": np.array([row.score for row in source], np.float64),
        "source_labels": np.array([row.label for row in source], np.int8),
    }
