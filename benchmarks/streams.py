"""Streams of scores with their labels: most of them with a labelled source that comes before the deployment.

`load` gives one `Stream`, of one of five kinds: river's data sets, scored by a model that learns as they
come, without a source; frozen models on data sets (`frozen`, and the flights) and on what generators make;
laws with a known truth (`truths`); and further frozen models (`further`), whose positives are rare, whose
scores are saturated or tied, or whose deployment lasts months or years. Results are kept under ``.cache/``,
named after what they follow from.

The names fall into two halves. Constants of the engine may be chosen by the figures of `CHOOSE`; those of
`REPORT` are only reported.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import further
import msgspec
import numpy as np
from frozen import FROZEN, GENERATED, deploy
from further import FURTHER
from numpy.typing import NDArray
from truths import TRUTHS, draw

__all__ = ["CHOOSE", "KINDS", "NAMES", "REPORT", "Stream", "load"]

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

ROOT: Final = Path(__file__).resolve().parents[1]
CACHE: Final = ROOT / ".cache" / "streams"

_DATA_SETS: Final = {"phishing": "Phishing", "bananas": "Bananas", "shuttle": "Shuttle"}
_MODELS: Final = ("lr", "nb")

KINDS: Final[dict[str, tuple[str, ...]]] = {
    "learning": tuple(sorted(f"{data_set}-{model}" for data_set in _DATA_SETS for model in _MODELS)),
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
        return _flights()
    if name in TRUTHS:
        return draw(name)
    if name in KINDS["learning"]:
        return _scored(*name.split("-"))
    return deploy({**FROZEN, **GENERATED, **FURTHER}[name])


def _digest(name: str) -> str:
    """Return 12 hexadecimal digits of all that the stream follows from: data, libraries and code."""
    digest = hashlib.sha256()
    for code in ("streams", "frozen", "truths", "further"):
        digest.update(Path(__file__).with_name(f"{code}.py").read_bytes())
    if name.startswith("flights"):
        for path in sorted(further.FLIGHTS.glob("*.jsonl.gz")):
            digest.update(path.read_bytes())
    if name != "flights":
        digest.update("".join(version(package) for package in ("numpy", "river", "scikit-learn")).encode())
    return digest.hexdigest()[:12]


def _scored(data_set: str, model: str) -> dict[str, NDArray[Any]]:
    from river import datasets, linear_model, naive_bayes, preprocessing

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


def _flights() -> dict[str, NDArray[Any]]:
    labels = {row.id: row.label for row in further.read("labels", _Label)}
    answered = [row for row in further.read("predictions", _Prediction) if row.id in labels]
    source = further.read("source", _Labelled)
    return {
        "scores": np.array([row.score for row in answered], np.float64),
        "labels": np.array([labels[row.id] for row in answered], np.int8),
        "source_scores": np.array([row.score for row in source], np.float64),
        "source_labels": np.array([row.label for row in source], np.int8),
    }
