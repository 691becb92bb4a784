"""Further streams of frozen models: rare positives, saturated scores, ties, and months or years of real time.

All come from what this repository ships (the flights) or what river carries or generates. A model is fitted
to the first rows, the next are its source, the rest is the deployment, as in `frozen`. Naive Bayes saturates:
it takes features that say the same for independent, so that many of its scores lie at 0 and 1.
"""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from frozen import Deployment, Rows, rows_of, taken
from numpy.typing import NDArray
from river import datasets
from river.datasets import synth
from scipy.special import logit

__all__ = ["FLIGHTS", "FURTHER", "read"]

FLIGHTS: Final = Path(__file__).resolve().parents[1] / "examples" / "flights"
_BEFORE, _LENGTH = 10_000, 30_000  # events before the deployment of a generated stream, and of it


def read(name: str, kind: Any = dict[str, Any]) -> list[Any]:
    """Return the events of a file of the flights."""
    with gzip.open(FLIGHTS / f"{name}.jsonl.gz") as file:
        return msgspec.json.Decoder(kind).decode_lines(file.read())


@cache
def _flights() -> tuple[NDArray[np.float64], dict[str, NDArray[np.bool_]], NDArray[np.str_]]:
    """Return features and labels of all predictions, May to December, in their order, and their airports.

    The features are the logit of the shipped score, the hour, the weekday and the carrier.
    """
    predictions = read("predictions")
    arrived = {row["id"]: row["time"] for row in read("labels")}
    overdue = {row["id"]: row["time"] for row in read("overdue")}
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
    features, labels = taken((plane, _BEFORE + _LENGTH))
    return np.tile(features, 20), labels


def _mixed() -> Rows:
    """Return rows whose classes change places in the middle third of the deployment."""
    third = _LENGTH // 3
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
    return taken((centroids, _BEFORE + _LENGTH), positive=lambda each: each == 0)


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
