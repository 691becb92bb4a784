"""StreamingCalibratedClassifier: a calibrated scikit-learn classifier that keeps learning from a stream."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, Unpack

import numpy as np

from streamcal.base.values import Counts, Floats, unmasked
from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions, every_option, names_options
from streamcal.engine.recalibrator import Recalibrator
from streamcal.engine.segments.segments import listed, of_frame
from streamcal.events import Domain
from streamcal.sketch.weighing import as_weights

try:
    from sklearn.base import (  # type: ignore[import-untyped]
        BaseEstimator,
        ClassifierMixin,
        MetaEstimatorMixin,
        clone,
    )
    from sklearn.frozen import FrozenEstimator  # type: ignore[import-untyped]
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
    from sklearn.model_selection import check_cv  # type: ignore[import-untyped]
    from sklearn.utils import (  # type: ignore[import-untyped]
        _safe_indexing,
        check_consistent_length,
        column_or_1d,
        get_tags,
        indexable,
    )
    from sklearn.utils.multiclass import (  # type: ignore[import-untyped]
        check_classification_targets,
        type_of_target,
    )
    from sklearn.utils.parallel import Parallel, delayed  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]
except ImportError as error:
    raise ImportError(
        "streamcal.sklearn needs scikit-learn: pip install '.[sklearn]' in a checkout of streamcal"
    ) from error
from scipy.special import expit, softmax

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["StreamingCalibratedClassifier"]

_FOLDS: Final = 5
_LINEAR: Final = 16.0  # log-odds beyond are compressed: scores must not round to 0 or 1
_USUAL: Final = 2.0  # median distance of margins, as log-odds
_SURE: Final = 8.0  # median log-odds above which an estimator with probabilities is overconfident

# scikit-learn prescribes the names X and y, and attributes that end in an underscore.
# ruff: noqa: N803, N806


class StreamingCalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier with recalibrated probabilities that keeps learning from a stream after `fit`.

    `fit` learns the map by cross-fitting: a copy of the estimator that was fitted on the other folds scores
    each row, then the estimator is fitted on all rows. A held-out set would cost labels that the estimator or
    the map could use, and both would depend on the split. Cross-fitting costs one more fit for each fold, and
    the scores of the copies stand for those of the estimator. Wrap an estimator that is already fitted in
    `sklearn.frozen.FrozenEstimator`: `fit` then learns only the map, and needs rows that the estimator was
    not fitted on.

    `partial_fit` is prequential: it scores the batch, learns the map from these scores, and then trains the
    estimator, if that has ``partial_fit`` and is not frozen.

    The labels of `fit` belong to the domain ``source``, those of `partial_fit` to the ``target``, the
    deployment. The certificate ``engine_.certificate`` assumes that one fixed estimator gives all scores of a
    domain: it holds for a frozen estimator, is approximate after cross-fitting, and is only indicative for an
    estimator that `partial_fit` trains. With three classes or more, ``engine_.by_class`` has one a class.

    Parameters
    ----------
    estimator
        a classifier with ``predict_proba``; or with ``decision_function``, whose values d become scores
        1 / (1 + exp(−d/s)), of many classes their softmax, s being their scale in the first rows. If
        probabilities round to 0 or 1, log-odds take their place. None:
        `sklearn.linear_model.LogisticRegression`.
    cv
        the folds, as in `sklearn.calibration.CalibratedClassifierCV`: a number of stratified folds, a
        splitter, or (train, test) index arrays that test no row twice. A row that is never tested teaches
        the map nothing. None: 5 folds, or as many as the rarer class has rows, which must be at least 2.
    n_jobs
        how many folds are fitted at the same time. None: 1; -1: as many as there are processors.
    segments
        names of columns of ``X``, a data frame, for whose values `partial_fit` learns corrections of the map;
        there are two classes then.
    **options
        the options of `RecalibratorConfig` by name. ``window`` must be a number of labels. `fit` and the
        first `partial_fit` validate them. The modes ``source``, ``label_shift`` and ``composite`` need `fit`.

    Attributes
    ----------
    classes_ : ndarray of shape (K,)
        the labels, sorted; of two, the second one is positive.
    estimator_ : estimator
        the fitted estimator.
    engine_ : Recalibrator
        the engine, with its map, certificate and alarms. Predicting changes nothing: pass scores without
        labels to ``engine_.observe_many``.
    n_features_in_, feature_names_in_
        those of ``estimator_``, if it has them.

    Raises
    ------
    TypeError
        if an option is unknown.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = make_classification(n_samples=3000, random_state=0)
    >>> model = StreamingCalibratedClassifier(GaussianNB()).fit(X[:2000], y[:2000])
    >>> model.partial_fit(X[2000:], y[2000:]).predict_proba(X[:5]).shape
    (5, 2)
    >>> model.engine_.source.labels, model.engine_.target.labels
    (2000, 1000)
    """

    engine_: Recalibrator
    estimator_: Any
    classes_: Any

    @names_options
    def __init__(
        self,
        estimator: Any = None,
        *,
        cv: Any = None,
        n_jobs: int | None = None,
        segments: Sequence[str] = (),
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.n_jobs = n_jobs
        self.segments = segments
        for name, value in every_option(options).items():
            setattr(self, name, value)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the estimator, and learn the map from scores of rows that were held out from its copies.

        Parameters
        ----------
        X
            array-like of shape (n, features), as the estimator takes it.
        y
            array-like of shape (n,) with the labels of two classes or more.
        sample_weight
            array-like of shape (n,), or None: for how many rows each stands, such as one over the chance that
            its label was seen. Each is 0, for a row that teaches the map nothing, or from 1e-9 to 10,000.
            The estimator gets them too, if its ``fit`` takes them. The certificate then claims nothing.
        groups
            array-like of shape (n,) with the group of each row, for a splitter by groups.

        Raises
        ------
        ValueError
            if there are fewer than two classes, a class has fewer rows than there are folds or none to fit a
            fold on, a row is tested twice, or an option or a weight is out of range.
        TypeError
            if ``window`` is a duration.

        Warns
        -----
        UserWarning
            if there are weights, and the estimator does not take them.
        """
        X, labels, groups = indexable(X, _labels(y), groups)
        weights = _weights(sample_weight, X)
        fit_params = self._fit_params(weights)
        unfitted, rows, folds = self._unfitted(), np.arange(len(labels)), []
        if isinstance(unfitted, FrozenEstimator):
            estimator, classes = unfitted, _classes_of(unfitted)
            engine = self._new_engine(classes)
        else:
            classes = _several(np.unique(labels))
            engine = self._new_engine(classes)
            folds = list(_folds(self.cv, labels).split(X, labels, groups))
            rows = _tested(folds, labels, classes)
            estimator = clone(unfitted).fit(X, labels, **fit_params)
        method, answers = _first_answers(estimator, classes, X)
        scoring = _Scoring.of(method, answers, estimator)
        if folds:
            fold = delayed(_fold)
            of_folds = [fold(unfitted, X, labels, fit_params, *each, classes, method) for each in folds]
            centre, spread = _place(answers, method)
            answers = np.concatenate(Parallel(n_jobs=self.n_jobs)(of_folds)) * spread + centre
            answers, rows = answers[np.argsort(rows)], np.sort(rows)
        self._keep(estimator, classes, engine, scoring)
        _learn(engine, X, rows, scoring.scores(answers), _encode(labels, classes), "source", weights)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn a batch of the stream: first the map, with scores from before the batch; then the estimator.

        Without an earlier `fit`, the first call has no scores for the map: it only trains the estimator, or
        calls `fit` if the estimator has no ``partial_fit``.

        Parameters
        ----------
        X
            array-like of shape (n, features), as the estimator takes it.
        y
            array-like of shape (n,) with labels from ``classes_``.
        classes
            all labels; required in the first call, unless `fit` was called before.
        sample_weight
            as in `fit`.

        Raises
        ------
        ValueError
            if ``classes`` is missing, holds fewer than two labels or has changed, if a label is not among
            them, or a weight is out of range.
        """
        if classes is not None:
            classes = _several(np.unique(classes))
            if hasattr(self, "engine_") and not np.array_equal(classes, self.classes_):
                raise ValueError(f"classes must stay {self.classes_.tolist()}, got {classes.tolist()}")
        if not hasattr(self, "engine_"):
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit")
            return self._first_batch(X, y, classes, sample_weight)
        X, labels = indexable(X, _labels(y))
        weights = _weights(sample_weight, X)
        scores = self._scores(X)
        known = _encode(labels, self.classes_)
        _learn(self.engine_, X, np.arange(len(labels)), scores, known, "target", weights)
        if _learns(self.estimator_):
            self.estimator_.partial_fit(X, labels, **self._fit_params(weights, "partial_fit"))
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Return the recalibrated probabilities, float64[n, K], in the order of ``classes_``."""
        check_is_fitted(self)
        probabilities = self.engine_.predict_many(self._scores(X), _segments(self.engine_, X))
        if probabilities.ndim == 2:
            return probabilities
        return np.column_stack((1.0 - probabilities, probabilities))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the more probable label of every row, shape (n,); of two equally probable ones the first."""
        check_is_fitted(self)
        predicted: npt.NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._unfitted()).input_tags
        return tags

    def _unfitted(self) -> Any:
        return LogisticRegression() if self.estimator is None else self.estimator

    def _new_engine(self, classes: npt.NDArray[Any]) -> Recalibrator:
        config = RecalibratorConfig(**{name: getattr(self, name) for name in RecalibratorConfig.model_fields})
        if not isinstance(config.window, int | None):
            raise TypeError(
                f"an estimator has no clock: window must be a number of labels, got {config.window!r}"
            )
        return Recalibrator(config, classes=_names(classes), segments=self.segments or None)

    def _fit_params(self, weights: npt.NDArray[Any] | None, method: str = "fit") -> dict[str, Any]:
        """Return what the estimator's method is given beside rows and labels; warn if it takes no weights."""
        unfitted = self._unfitted()
        if weights is None or isinstance(unfitted, FrozenEstimator):
            return {}
        if "sample_weight" in signature(getattr(unfitted, method)).parameters:
            return {"sample_weight": weights}
        warnings.warn(
            f"{method} of {type(unfitted).__name__} takes no sample_weight: the weights are used for the map"
            " only",
            stacklevel=3,
        )
        return {}

    def _first_batch(self, X: Any, y: Any, classes: npt.NDArray[Any], sample_weight: Any) -> Self:
        unfitted = self._unfitted()
        if isinstance(unfitted, FrozenEstimator):
            known = _classes_of(unfitted)
            self._keep(unfitted, known, self._new_engine(known), _Scoring.found(unfitted, known, X))
            return self.partial_fit(X, y, classes, sample_weight)
        if not _learns(unfitted):
            return self.fit(X, y, sample_weight)
        X, labels = indexable(X, _labels(y))
        weights = _weights(sample_weight, X)
        _encode(labels, classes)
        engine = self._new_engine(classes)
        params = self._fit_params(weights, "partial_fit")
        estimator = clone(unfitted).partial_fit(X, labels, classes=classes, **params)
        self._keep(estimator, classes, engine, _Scoring.found(estimator, classes, X))
        return self

    def _scores(self, X: Any) -> Floats:
        """Return the scores of rows: those of the second class, float64[n]; of many, float64[n, K]."""
        answers = _answers(self.estimator_, self.classes_, X, self._scoring.method)
        return self._scoring.scores(answers)

    def _keep(
        self, estimator: Any, classes: npt.NDArray[Any], engine: Recalibrator, scoring: _Scoring
    ) -> None:
        self.estimator_, self.classes_, self.engine_, self._scoring = estimator, classes, engine, scoring
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))


def _segments(engine: Recalibrator, X: Any) -> Any:
    """Return the data frame that has the segments; None if there are none."""
    if engine.by_segment is not None:
        of_frame(X, engine.by_segment.fields, "X")
        return X
    return None


def _learn(
    engine: Recalibrator,
    X: Any,
    rows: Counts,
    scores: Floats,
    labels: npt.NDArray[Any],
    domain: Domain,
    weights: npt.NDArray[Any] | None,
) -> None:
    """Let an engine learn the labels of rows with these scores; those of weight 0 teach nothing."""
    if weights is not None:
        scores, rows = scores[weights[rows] != 0.0], rows[weights[rows] != 0.0]
    names = None
    if engine.by_segment is not None:
        columns = [*map(listed, of_frame(X, engine.by_segment.fields, "X"))]
        names = [tuple([column[row] for column in columns]) for row in rows.tolist()]
    told = None if weights is None else weights[rows]
    engine.learn_many(scores, labels[rows], domain, segments=names, weights=told)


def _weights(sample_weight: Any, X: Any) -> npt.NDArray[Any] | None:
    """Return the weight of each row, shape (n,)."""
    if sample_weight is None:
        return None
    weights: npt.NDArray[Any] = column_or_1d(unmasked("sample_weight", sample_weight), dtype=np.float64)
    check_consistent_length(X, weights)
    as_weights(np.where(weights == 0.0, 1.0, weights), len(weights))  # raises if one is out of range
    return weights


def _labels(y: Any) -> npt.NDArray[Any]:
    """Return the labels as an array of shape (n,)."""
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y", raise_unknown=True)
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"A row must have one label. The type of the target is {kind}.")
    labels: npt.NDArray[Any] = column_or_1d(unmasked("y", y), warn=True)
    return labels


def _several(classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if len(classes) < 2:
        raise ValueError(f"There must be 2 classes or more, got {len(classes)} class: {classes}")
    return classes


def _classes_of(frozen: Any) -> npt.NDArray[Any]:
    check_is_fitted(frozen)
    return _several(np.unique(frozen.classes_))


def _folds(cv: Any, labels: npt.NDArray[Any]) -> Any:
    """Return a splitter: that of ``cv``, or the default number of stratified folds, at most `_FOLDS`."""
    if isinstance(cv, str):
        raise ValueError(  # noqa: TRY004  # as scikit-learn
            f"cv must be a number of folds, a splitter or index pairs, got {cv!r}; wrap a fitted estimator"
            " in sklearn.frozen.FrozenEstimator"
        )
    if cv is None or isinstance(cv, int | np.integer):
        fewest = int(np.unique(labels, return_counts=True)[1].min())
        cv = min(_FOLDS, max(2, fewest)) if cv is None else int(cv)
        if fewest < cv:
            raise ValueError(f"{cv} folds need at least {cv} rows of each class, got {fewest} of one")
    return check_cv(cv, labels, classifier=True)


def _tested(folds: Sequence[tuple[Counts, Counts]], labels: npt.NDArray[Any], classes: Any) -> Counts:
    """Return the rows that are tested, fold by fold; refuse folds that teach nothing right."""
    for index, (train, _) in enumerate(folds):
        absent = np.setdiff1d(classes, labels[train])
        if len(absent):
            raise ValueError(
                f"fold {index} has no row of class {absent[0]!r} to fit on: shuffle the rows, or let cv be a"
                " StratifiedKFold"
            )
    rows: Counts = np.concatenate([np.arange(len(labels))[test] for _, test in folds])
    if len(np.unique(rows)) < len(rows):
        raise ValueError("a row must be tested in one fold at most: let cv split the rows once")
    return rows


def _fold(
    unfitted: Any,
    X: Any,
    labels: npt.NDArray[Any],
    params: dict[str, Any],
    train: Counts,
    test: Counts,
    classes: npt.NDArray[Any],
    method: str,
) -> npt.NDArray[Any]:
    """Return the answers to one test fold, of a copy fitted on other rows, by its `_place` on these."""
    own, known = {name: values[train] for name, values in params.items()}, _safe_indexing(X, train)
    fitted = clone(unfitted).fit(known, labels[train], **own)
    centre, spread = _place(_answers(fitted, classes, known, method), method)
    return (_answers(fitted, classes, _safe_indexing(X, test), method) - centre) / spread


def _encode(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels as the engine takes them: int8[n] of 0 and 1, of many classes their names."""
    places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    other = classes[places] != labels
    if other.any():
        raise ValueError(f"a label must be one of {classes.tolist()}, got {labels[other][0]!r}")
    return places.astype(np.int8) if len(classes) == 2 else np.array(_names(classes))[places]


def _names(classes: npt.NDArray[Any]) -> list[str] | None:
    """Return the names of many classes; None: there are two."""
    return [str(label) for label in classes.tolist()] if len(classes) > 2 else None


def _learns(estimator: Any) -> bool:
    """Return whether an estimator learns batch by batch; a frozen one has the method but does not learn."""
    return not isinstance(estimator, FrozenEstimator) and hasattr(estimator, "partial_fit")


def _first_answers(estimator: Any, classes: npt.NDArray[Any], X: Any) -> tuple[str, Floats]:
    """Return the method whose answers tell most rows apart, with its answers.

    It is ``predict_proba``, unless probabilities round to 0 or 1 and there are log-odds.
    """
    if not hasattr(estimator, "predict_proba"):
        return "decision_function", _answers(estimator, classes, X, "decision_function")
    answers = _answers(estimator, classes, X, "predict_proba")
    if not ((answers > 0.0) & (answers < 1.0)).all():
        for method in ("decision_function", "predict_log_proba"):
            if hasattr(estimator, method):
                with np.errstate(divide="ignore", invalid="ignore"):
                    odds = _answers(estimator, classes, X, method)
                if np.isfinite(odds).all():
                    return method, odds
    return "predict_proba", answers


def _answers(estimator: Any, classes: npt.NDArray[Any], X: Any, method: str) -> Floats:
    """Return the answers of a method to rows, in the order of ``classes``.

    Those of ``predict_proba`` are float64[n, K]; others are log-odds but for a scale: of the second of two
    classes, float64[n], or of many less the largest of the row, float64[n, K].
    """
    answers = np.asarray(getattr(estimator, method)(X), np.float64)
    if answers.ndim == 1:
        return answers
    answers = answers[:, [int(np.flatnonzero(estimator.classes_ == each)[0]) for each in classes]]
    if method != "predict_proba":
        answers = (
            answers[:, 1] - answers[:, 0] if len(classes) == 2 else answers - answers.max(1, keepdims=True)
        )
    return answers


def _place(answers: Floats, method: str) -> tuple[float, float]:
    """Return median and spread of margins, by which those of another copy of an estimator are aligned."""
    if method == "predict_proba":
        return 0.0, 1.0
    centre = 0.0 if answers.ndim == 2 else float(np.median(answers))
    return centre, _median_size(answers - centre) or 1.0


def _median_size(margins: Floats) -> float:
    """Return the median size of margins; of many classes, of the distance to the second class."""
    sizes = np.abs(margins) if margins.ndim == 1 else -np.partition(margins, -2, axis=1)[:, -2]
    return float(np.median(sizes))


class _Scoring(NamedTuple):
    """Method of an estimator whose answers become scores, and the scale of its margins."""

    method: str
    scale: float

    @classmethod
    def found(cls, estimator: Any, classes: npt.NDArray[Any], X: Any) -> Self:
        """Return the scoring of an estimator by its answers to rows."""
        return cls.of(*_first_answers(estimator, classes, X), estimator)

    @classmethod
    def of(cls, method: str, answers: Floats, estimator: Any) -> Self:
        """Return the scoring by answers of a method; log-odds are scaled down only."""
        if method == "predict_proba":
            return cls(method, 1.0)
        median = _median_size(answers)
        is_odds = hasattr(estimator, "predict_proba")
        return cls(method, max(1.0, median / _SURE) if is_odds else median / _USUAL or 1.0)

    def scores(self, answers: Floats) -> Floats:
        """Return the scores: of the second class, float64[n]; of many, float64[n, K]."""
        if self.method == "predict_proba":
            return answers[:, 1] if answers.shape[1] == 2 else answers / answers.sum(axis=1, keepdims=True)
        margins = answers / self.scale
        more = np.log(np.maximum(np.abs(margins), _LINEAR) / _LINEAR)
        margins = np.clip(margins, -_LINEAR, _LINEAR) + np.sign(margins) * more
        found: Floats = expit(margins) if margins.ndim == 1 else softmax(margins, axis=1)
        return found
