"""Frozen models in deployment: fitted to the first rows, with the next as their source, deployed on the rest.

The order of the rows is kept, so that the source comes strictly before the deployment. Data sets are those
that river and scikit-learn carry in their wheels, and what river's generators make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from river import datasets
from river.datasets import synth

__all__ = ["FROZEN", "GENERATED", "Deployment", "Rows", "deploy", "rows_of", "taken"]

Rows = tuple[NDArray[np.float64], NDArray[np.int8]]

_LENGTH: Final = 30_000  # of the deployment of a generated stream


@dataclass(frozen=True)
class Deployment:
    """Rows in their order, a model, and how many rows each part has."""

    rows: Callable[[], Rows]
    model: str
    """One of `_MODELS`."""
    fitted: int
    """How many rows, the first ones, the model is fitted to."""
    source: int
    """How many rows after them are the labelled source; the deployment is the rest."""


def deploy(deployment: Deployment) -> dict[str, NDArray[Any]]:
    """Fit the model, and return its scores and the labels of the source and of the deployment."""
    features, labels = deployment.rows()
    start, end = deployment.fitted, deployment.fitted + deployment.source
    model = _MODELS[deployment.model]().fit(features[:start], labels[:start])
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


_MODELS: Final = {"boosting": _boosting, "forest": _forest, "logistic": _logistic, "bayes": _bayes}


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
    third = _LENGTH // 3
    return taken(
        (synth.Agrawal(0, seed=1, perturbation=0.1), _BEFORE + third),
        (synth.Agrawal(2, seed=2, perturbation=0.1), third),
        (synth.Agrawal(0, seed=3, perturbation=0.3), third),
    )


def _rare() -> Rows:
    """Return rows of which 1 % are positive, thinned; halfway the perturbation of the features grows."""
    parts = []
    for seed, perturbation, count in ((1, 0.05, _BEFORE + _LENGTH // 2), (2, 0.3, _LENGTH // 2)):
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
    return taken((plane, _BEFORE + _LENGTH))


def _led() -> Rows:
    """Return the sevens among noisy digits; halfway four of their segments change places."""
    half = _LENGTH // 2
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
    return taken((centroids, _BEFORE + _LENGTH))


def _sea() -> Rows:
    """Return rows whose threshold is another one in every quarter of the deployment."""
    quarter = _LENGTH // 4
    return taken(
        (synth.SEA(0, seed=1, noise=0.1), _BEFORE + quarter),
        *((synth.SEA(variant, seed=variant, noise=0.1), quarter) for variant in (3, 1, 2)),
    )


def _waveform() -> Rows:
    """Return the first of three noisy waves; nothing drifts."""
    return taken((synth.Waveform(seed=1, has_noise=True), _BEFORE + _LENGTH), positive=lambda wave: wave == 0)


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
