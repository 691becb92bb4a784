"""Calibrators of other packages, as their users run them: fitted anew every day, beside streamcal by day.

``make peers`` installs them into ``build/peers`` (6 GB, as netcal needs torch) and puts the tables into
docs/benchmarks.md. A package that cannot be imported is left out, and named.

A forecast knows the labels that came before its day: of the flights by their times; of any other stream, a
day is a twentieth of its events, and labels come in it. What is fitted gets the latest 5,000 or 30,000
labels, those of the source first.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

# ruff: noqa: E402  # numpy reads these when it is imported
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from benchmarks.measuring import options, publish
from benchmarks.methods import (
    LEAST,
    Floats,
    InTurn,
    Labels,
    Protected,
    Raw,
    River,
    brier_losses,
    log_losses,
)
from benchmarks.streams import KINDS, REPORT, load, read_flights
from streamcal import Recalibrator

WINDOWS: Final = (5_000, 30_000)
DAYS: Final = 20  # of a stream without times
DAY: Final = 86_400  # seconds
STREAMS: Final = tuple(name for name in REPORT if name not in KINDS["learning"])
"""Those of the half that reports which have a source."""

Names = Any
Predict = Callable[[Floats, Names], Floats]
Fit = Callable[[Floats, Labels, Names], Predict]


class Days(NamedTuple):
    """A stream by day."""

    scores: Floats
    labels: Labels
    names: Names
    """str[n, F], what MCGrad and segments may know; F may be 0."""
    begins: list[int]
    """The first event of each day, and the number of all."""
    order: Any
    """int64[n], the events in the order in which their labels come."""
    known: list[int]
    """How many labels have come before each day."""
    source: tuple[Floats, Labels, Names]


class Method(Protocol):
    """A way to recalibrate a stream by day."""

    def learn(self, scores: Floats, labels: Labels, names: Names, domain: str) -> None:
        """Learn the labels of a day."""

    def predict(self, scores: Floats, names: Names) -> Floats:
        """Return the probabilities of a day."""


class Refitted:
    """What is fitted anew to the latest labels."""

    def __init__(self, fit: Fit, window: int) -> None:
        self._fit, self._window = fit, window
        self._parts: tuple[Any, ...] | None = None

    def learn(self, scores: Floats, labels: Labels, names: Names, domain: str) -> None:  # noqa: ARG002
        """Keep the latest labels, and fit them where both classes are there."""
        new = (scores, labels, names)
        old = new if self._parts is None else tuple(map(np.concatenate, zip(self._parts, new, strict=True)))
        self._parts = tuple(part[-self._window :] for part in old)
        if self._parts[1].min() < self._parts[1].max():
            self.predict = self._fit(*self._parts)  # type: ignore[method-assign]

    def predict(self, scores: Floats, names: Names) -> Floats:  # noqa: ARG002
        """Return the scores: there was nothing to fit yet."""
        return scores


class Streamcal:
    """An engine with default options, told by day."""

    def __init__(self) -> None:
        self._engine = Recalibrator()

    def learn(self, scores: Floats, labels: Labels, names: Names, domain: Any) -> None:  # noqa: ARG002
        """Learn the labels of a day."""
        self._engine.learn_many(scores, labels, domain)

    def predict(self, scores: Floats, names: Names) -> Floats:  # noqa: ARG002
        """Return the probabilities of a day, and observe its scores."""
        probabilities = self._engine.predict_many(scores)
        self._engine.observe_many(scores)
        return probabilities


class Segmented:
    """An engine with segments, told by day."""

    def __init__(self, fields: int) -> None:
        self._engine = Recalibrator(segments=[f"field {place}" for place in range(fields)])

    def learn(self, scores: Floats, labels: Labels, names: Names, domain: Any) -> None:
        """Learn the labels of a day."""
        values = list(map(tuple, names.tolist()))
        self._engine.learn_many(scores, labels, domain, segments=values)

    def predict(self, scores: Floats, names: Names) -> Floats:
        """Return the probabilities of a day, and observe its scores."""
        values = list(map(tuple, names.tolist()))
        probabilities = self._engine.predict_many(scores, values)
        self._engine.observe_many(scores, values)
        return probabilities


class Unnamed:
    """A method of `benchmarks.methods`, which does not look at the names of segments."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._method = make()

    def learn(self, scores: Floats, labels: Labels, names: Names, domain: str) -> None:  # noqa: ARG002
        """Learn the labels of a day."""
        self._method.learn(scores, labels)

    def predict(self, scores: Floats, names: Names) -> Floats:  # noqa: ARG002
        """Return the probabilities of a day."""
        return self._method.predict(scores)


class Scored(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of scikit-learn, already fitted, whose one feature is its score."""

    classes_ = np.array([0, 1])
    n_features_in_ = 1

    def fit(self, X: Floats, y: Labels) -> Scored:  # noqa: ARG002
        """Return itself."""
        return self

    def predict_proba(self, X: Floats) -> Floats:
        """Return the scores of both classes."""
        return two(X[:, 0])

    def decision_function(self, X: Floats) -> Floats:
        """Return the logits."""
        return logits(X[:, 0])

    def predict(self, X: Floats) -> Any:
        """Return the class whose score is higher."""
        return (X[:, 0] >= 0.5).astype(int)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def logits(scores: Floats) -> Floats:
    inside = np.clip(scores, LEAST, 1.0 - LEAST)
    return np.log(inside) - np.log1p(-inside)


def two(scores: Floats) -> Floats:
    return np.column_stack((1.0 - scores, scores))


# What makes a `Fit`; the import comes first, so that a package that is not there is known at once.


def sklearn(method: str) -> Fit:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    def fit(scores: Floats, labels: Labels, _: Names) -> Predict:
        model = CalibratedClassifierCV(FrozenEstimator(Scored()), method=method)
        model.fit(scores[:, np.newaxis], labels)
        return lambda asked, _: model.predict_proba(asked[:, np.newaxis])[:, 1]

    return fit


def netcal(module: str, name: str) -> Fit:
    from importlib import import_module

    make = getattr(import_module(f"netcal.{module}"), name)

    def fit(scores: Floats, labels: Labels, _: Names) -> Predict:
        model = make()
        with contextlib.redirect_stderr(io.StringIO()):  # its progress
            model.fit(scores, labels.astype(int))
        return lambda asked, _: np.asarray(model.transform(asked), np.float64).reshape(-1)

    return fit


def betacal() -> Fit:
    from betacal import BetaCalibration

    def fit(scores: Floats, labels: Labels, _: Names) -> Predict:
        model = BetaCalibration("abm").fit(scores, labels)
        return lambda asked, _: model.predict(asked)

    return fit


def venn_abers() -> Fit:
    from venn_abers import VennAbers

    def fit(scores: Floats, labels: Labels, _: Names) -> Predict:
        model = VennAbers()
        model.fit(two(scores), labels.astype(int))
        return lambda asked, _: model.predict_proba(two(asked))[0][:, 1]

    return fit


def mapie() -> Fit:
    from mapie.calibration import TopLabelCalibrator

    def fit(scores: Floats, labels: Labels, _: Names) -> Predict:
        model = TopLabelCalibrator(estimator=Scored(), calibrator="isotonic", cv="prefit")
        model.fit(scores[:, np.newaxis], labels.astype(int))

        def predict(asked: Floats, _: Names) -> Floats:
            both = model.predict_proba(asked[:, np.newaxis])  # of the likelier class; the other is NaN
            return np.where(np.isnan(both[:, 1]), 1.0 - both[:, 0], both[:, 1])

        return predict

    return fit


def mcgrad() -> Fit:
    import pandas as pd
    from mcgrad.methods import MCGrad

    logging.getLogger("mcgrad").setLevel(logging.ERROR)

    def frame(scores: Floats, names: Names) -> Any:
        return pd.DataFrame(
            {"score": scores, **{f"{place}": names[:, place] for place in range(names.shape[1])}}
        )

    def fit(scores: Floats, labels: Labels, names: Names) -> Predict:
        columns = {"categorical_feature_column_names": list(map(str, range(names.shape[1])))}
        model = MCGrad().fit(frame(scores, names).assign(label=labels), "score", "label", **columns)
        return lambda asked, told: np.asarray(model.predict(frame(asked, told), "score", **columns))

    return fit


FITS: Final[dict[str, Callable[[], Fit]]] = {
    "scikit-learn: isotonic": partial(sklearn, "isotonic"),
    "scikit-learn: sigmoid": partial(sklearn, "sigmoid"),
    "scikit-learn: temperature": partial(sklearn, "temperature"),
    "netcal: HistogramBinning": partial(netcal, "binning", "HistogramBinning"),
    "netcal: BBQ": partial(netcal, "binning", "BBQ"),
    "netcal: LogisticCalibration": partial(netcal, "scaling", "LogisticCalibration"),
    "netcal: BetaCalibration": partial(netcal, "scaling", "BetaCalibration"),
    "betacal": betacal,
    "venn-abers": venn_abers,
    "MAPIE: TopLabelCalibrator": mapie,
    "MCGrad": mcgrad,
}
SLOW: Final = ("netcal: BBQ", "MCGrad")  # seconds a fit on 30,000 labels: they get 5,000 only
OTHERS: Final[dict[str, Callable[[], Method]]] = {
    "raw scores": partial(Unnamed, Raw),
    "streamcal": Streamcal,
    "river: LogisticRegression": partial(Unnamed, lambda: InTurn(River())),
    "protected-classification": partial(Unnamed, Protected),  # the same: see `checked`
}
PACKAGES: Final = (
    "scikit-learn", "river", "netcal", "mapie", "venn-abers", "protected-classification", "betacal", "mcgrad"
)  # fmt: skip


class Outcome(NamedTuple):
    """How a method did on a stream."""

    brier: float
    log_loss: float
    seconds: float
    """Of processor time, for all days."""


def methods(fields: int) -> Iterable[tuple[str, Callable[[], Method]]]:
    """Yield the methods by name; what is not installed is left out, and said."""
    yield from OTHERS.items()
    if fields:
        yield "streamcal, segments", partial(Segmented, fields)
    for name, make in FITS.items():
        try:
            fit = make()
        except ImportError as error:
            print(f"left out: {name}: {error}", flush=True)
            continue
        for window in WINDOWS[:1] if name in SLOW else WINDOWS:
            yield f"{name}, {window:,}", partial(Refitted, fit, window)


def by_day(name: str) -> Days:
    """Return a stream by day."""
    if name == "flights":
        return _flights()
    stream = load(name)
    n = len(stream.scores)
    begins = [n * day // DAYS for day in range(DAYS + 1)]
    nothing = np.empty((n, 0), str)
    assert stream.source_scores is not None
    assert stream.source_labels is not None
    source = (stream.source_scores, stream.source_labels, np.empty((len(stream.source_scores), 0), str))
    return Days(stream.scores, stream.labels, nothing, begins, np.arange(n), begins[:-1], source)


def _flights() -> Days:
    came = {row["id"]: row for row in read_flights("labels")}
    rows = sorted(
        (row for row in read_flights("predictions") if row["id"] in came), key=lambda row: row["time"]
    )
    source = read_flights("source")
    days = np.array([row["time"] // DAY for row in rows])
    arrivals = np.array([came[row["id"]]["time"] for row in rows])
    order = np.argsort(arrivals, kind="stable")
    begins = np.flatnonzero(np.diff(days, prepend=-1)).tolist()
    known = np.searchsorted(arrivals[order], days[begins] * DAY).tolist()

    def names(rows: list[dict[str, Any]]) -> Names:
        return np.array([(row["id"].split("-")[1][:2], row["id"].split("-")[2]) for row in rows])

    return Days(
        np.array([row["score"] for row in rows], np.float64),
        np.array([came[row["id"]]["label"] for row in rows], np.int8),
        names(rows),
        [*begins, len(rows)],
        order,
        known,
        (
            np.array([row["score"] for row in source], np.float64),
            np.array([row["label"] for row in source], np.int8),
            names(source),
        ),
    )


def run(method: Method, days: Days) -> Outcome:
    """Return what the forecasts of a method are worth."""
    start = time.process_time()
    method.learn(*days.source, "source")
    forecasts, learned = np.empty(len(days.scores)), 0
    for day, known in enumerate(days.known):
        if known > learned:
            places = days.order[learned:known]
            method.learn(days.scores[places], days.labels[places], days.names[places], "target")
            learned = known
        block = slice(days.begins[day], days.begins[day + 1])
        forecasts[block] = np.clip(method.predict(days.scores[block], days.names[block]), 0.0, 1.0)
    seconds = time.process_time() - start
    brier, log_loss = (loss(forecasts, days.labels).mean() for loss in (brier_losses, log_losses))
    return Outcome(float(brier), float(log_loss), seconds)


def judged(name: str) -> dict[str, Outcome]:
    """Return the outcome of every method on a stream."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    days = by_day(name)
    found = {}
    for each, make in methods(days.names.shape[1]):
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # what packages say while they fit
                found[each] = run(make(), days)
        except Exception as error:  # whatever another package raises on these data
            print(f"{name}: {each} failed: {error!r:.200}", flush=True)
    print(
        f"{name} is done, {sum(each.seconds for each in found.values()):.0f} s of processor time", flush=True
    )
    return found


def summary(outcomes: Mapping[str, Mapping[str, Outcome]]) -> Iterator[Sequence[str]]:
    """Yield the rows of the table: losses over those of the raw scores, and those of the flights."""
    year = outcomes.get("flights", {})
    streams = {name: found for name, found in outcomes.items() if name != "flights"}
    for method in dict.fromkeys(each for found in outcomes.values() for each in found):
        row, done = ["", "", ""], [found for found in streams.values() if method in found]
        if done:
            brier, log_loss = (
                [getattr(found[method], loss) / getattr(found["raw scores"], loss) for found in done]
                for loss in ("brier", "log_loss")
            )
            means = (np.exp(np.log(ratios).mean()) for ratios in (brier, log_loss))
            row = [f"{value:.4f}" for value in (*means, max(brier))]
        flown = year.get(method)
        yield [method, *row, *((f"{flown.brier:.5f}", f"{flown.log_loss:.5f}") if flown else ("", ""))]


def checked(n: int = 200) -> float:
    """Return by how much `methods.Protected` differs from the package at most, on so many events in turn."""
    from protected_classification import ProtectedClassification

    stream = load("truth-stationary")
    scores, labels = stream.scores[:n], stream.labels[:n]
    theirs = np.asarray(ProtectedClassification().calibrate_probs(two(scores), labels.astype(int)))[:, 1]
    ours, method = [], Protected()
    for place in range(n):
        one = slice(place, place + 1)
        ours.append(float(method.predict(scores[one])[0]))
        method.learn(scores[one], labels[one])
    return float(np.abs(theirs - ours).max())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options(__doc__)
    parser.add_argument("--streams", nargs="+", default=STREAMS, choices=STREAMS, help="these alone")
    parser.add_argument("--jobs", type=int, default=1, help="how many streams at a time; default 1")
    asked = parser.parse_args(arguments)
    # The longest first.
    names = ["stocks-logistic"] if asked.quick else sorted(asked.streams, key=lambda name: name != "flights")
    if find_spec("protected_classification") is not None:
        print(f"methods.Protected and protected-classification differ by {checked():.1e} at most")
    with ProcessPoolExecutor(asked.jobs) as pool:
        streams = dict(zip(names, pool.map(judged, names), strict=True))
    header = ("method, labels of a fit", "Brier / raw", "log loss / raw", "worst Brier / raw")
    publish("peers", (*header, "flights: Brier", "log loss"), summary(streams), write=asked.write)
    known = {name for names in packages_distributions().values() for name in names}
    found = (f"{package} {version(package)}" for package in PACKAGES if package in known)
    print(f"\n{', '.join(found)}")


if __name__ == "__main__":
    main()
