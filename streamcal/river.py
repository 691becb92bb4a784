"""Stages of a river pipeline that recalibrate while they learn.

`RecalibratedClassifier` wraps a river classifier, `Recalibrate` reads a score that the stream carries.
Each holds one engine of bounded memory, and learns in the domain ``target``: the stream is the deployment.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from streamcal.engine.config import Mode, RecalibratorConfig
from streamcal.engine.recalibrator import Recalibrator
from streamcal.priors.tracker import PriorKind, PriorWindow

try:
    from river import base
    from river.utils import dataframe as frames
except ImportError as error:
    raise ImportError("streamcal.river needs river: pip install 'streamcal-engine[river]'") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from river.base.typing import ClfTarget, FeatureName

__all__ = ["Recalibrate", "RecalibratedClassifier"]

_ROUNDING: Final = 1e-9
"""How far outside [0, 1] a model's probability may lie to be taken as 0 or 1: those made from logs round."""

_UNDECIDED: Final = 0.5
"""What a model without a score is taken to say, as river's linear models do before they learn."""

_NOTHING: Final = object()


class _Stage(base.Classifier):
    """What both stages share: the two classes, the engine, and which prediction a label answers."""

    pos_val: ClfTarget
    neg_val: ClfTarget

    def _set_up(self, pos_val: ClfTarget, neg_val: ClfTarget, options: dict[str, Any]) -> None:
        if pos_val == neg_val:
            raise ValueError(f"pos_val and neg_val must differ, got {pos_val!r} for both")
        config = RecalibratorConfig(**options)
        if not isinstance(config.window, int | None):
            raise TypeError(f"a river stage has no clock: its window counts labels, got {config.window!r}")
        self.pos_val = pos_val
        self.neg_val = neg_val
        for name, value in options.items():
            setattr(self, name, value)
        self._engine = Recalibrator(config)
        self._waiting = 0  # predictions whose label is still to come
        self._forget()

    @property
    def engine(self) -> Recalibrator:
        """The engine, with its map, certificate and alarms; it may learn a calibration set as the source."""
        return self._engine

    @property
    def _multiclass(self) -> bool:
        return False

    # Mini-batches

    @abstractmethod
    def _scores_of(self, X: Any, kwargs: dict[str, Any]) -> npt.NDArray[np.float64] | None:  # noqa: N803
        """Return the score of every row, float64[n]; None if they have none."""

    def _probabilities(self, X: Any, kwargs: dict[str, Any]) -> npt.NDArray[np.float64]:  # noqa: N803
        scores = self._scores_of(X, kwargs)
        if scores is None:
            return np.full(len(frames.into_frame(X)), self._prior())
        probabilities = self._engine.predict_many(scores)
        self._engine.observe_many(scores)
        self._waiting += len(scores)
        self._forget()
        return probabilities

    def predict_proba_many(self, X: Any, **kwargs: Any) -> Any:  # noqa: N803
        """Return the recalibrated probability of both classes for every row, a frame of the kind of ``X``.

        Parameters
        ----------
        X
            a frame of features: pandas, polars, Arrow and others that river takes.
        **kwargs
            passed on to the wrapped model, if there is one.
        """
        probabilities = self._probabilities(X, kwargs)
        columns = {self.neg_val: 1.0 - probabilities, self.pos_val: probabilities}
        return frames.to_native_frame(columns, like=frames.into_frame(X))

    def predict_many(self, X: Any, **kwargs: Any) -> Any:  # noqa: N803
        """Return the more probable label of every row, a series of the kind of ``X``; see `predict_one`."""
        labels = [
            self.pos_val if p > 1.0 - p else self.neg_val for p in self._probabilities(X, kwargs).tolist()
        ]
        return frames.to_native_series(labels, name=None, like=frames.into_frame(X))

    def _learn_batch(self, X: Any, y: Any, kwargs: dict[str, Any]) -> None:  # noqa: N803
        labels = [self._label(label) for label in frames.into_series(y).to_list()]
        scores = self._scores_of(X, _without_weight(kwargs))
        if scores is None:
            return
        self._engine.learn_many(scores, labels, "target")
        self._waiting = max(0, self._waiting - len(labels))
        self._forget()

    # The latest prediction is remembered until a label is learned. Its features are kept twice over, to tell
    # them from an object that its owner has meanwhile filled with other values.

    def _forget(self) -> None:
        self._last: Any = _NOTHING
        self._copy: Any = _NOTHING
        self._score = _UNDECIDED

    def _is_unchanged(self) -> bool:
        """Return whether what was predicted last still has the values that it had then."""
        try:
            return bool(self._last == self._copy)
        except ValueError:  # arrays among the features: their equality is no single truth value
            return False

    def _answer(self, x: Any, score: float) -> dict[ClfTarget, float]:
        """Apply the map, and take note of the score unless it was asked for again with nothing learned."""
        engine = self._engine
        probability = engine.predict_one(score)
        if x is not self._last or not self._is_unchanged():
            engine.observe_one(score)
            self._waiting += 1
            self._last, self._score = x, score
            self._copy = x.copy() if type(x) is dict else x
        return {self.neg_val: 1.0 - probability, self.pos_val: probability}

    def _learn_in_order(self, score: float, label: int) -> None:
        """Learn a label that answers the oldest prediction waiting, or none if none is."""
        seen = None
        if self._waiting:
            seen = self._engine.seen - self._waiting
            self._waiting -= 1
        self._engine.learn_one(score, label, "target", seen=seen)
        self._last = _NOTHING

    def _label(self, y: Any) -> int:
        if y == self.pos_val:
            return 1
        if y == self.neg_val:
            return 0
        raise ValueError(f"a label must be pos_val={self.pos_val!r} or neg_val={self.neg_val!r}, got {y!r}")

    def _prior(self) -> float:
        prior = self._engine.target.prior
        return _UNDECIDED if prior is None else prior

    # State, for pickle, deepcopy and river's clone: that of the engine goes through its own bytes.

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_last", "_copy", "_score"):
            del state[name]
        state["_engine"] = self._engine.to_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._engine = Recalibrator.from_bytes(state["_engine"])
        self._forget()


class RecalibratedClassifier(base.Wrapper[base.Classifier], _Stage):
    """A river classifier whose probabilities are recalibrated while both learn.

    The map is learned prequentially: from the score that the wrapped model gives before it learns the label.
    Multiclass models are not supported.

    Wrap the whole pipeline, scaler and all, rather than its last step: the score that is learned is then the
    one that was served. As a last step it works as well, but features come anew from the steps before, which
    have learned since the prediction, so the wrapped model is asked for its score a second time.

    **Labels that come late** are learned with the score that the wrapped model gives then, before it learns
    from them; candidate maps are compared by what they said when the prediction was made. A label answers the
    latest prediction if the features are the same object with the same values; else labels are taken to come
    in the order of the predictions, one each, and a label with no prediction waiting to come at once. Where
    many labels never come, that order is wrong: join them by id with `Recalibrator.step` instead.

    **What is guaranteed.** The wrapped model keeps learning, so its scores move: pairs of score and label are
    not identically distributed, which the certificate assumes. ``engine.certificate`` holds for a wrapped
    model that is frozen, and is no more than indicative for one that learns. Old labels also mislead: mode
    ``auto`` weighs windows of several lengths by how well their maps forecast; the other modes forget only
    what lies behind a ``window``.

    Parameters
    ----------
    classifier
        a binary classifier, or a pipeline that ends in one. One that gives no probabilities yet, ``{}``, is
        taken to say ½; one that gives none for ``pos_val``, to say 0.
    pos_val, neg_val
        the labels of the positive and the negative class. The default serves booleans, and 0 and 1.
    bins, max_cells, growth, mode, window, window_domain, prior_smoothing, prior, prior_window, delta
        as in `RecalibratorConfig`; ``window`` counts labels. Modes ``source``, ``label_shift`` and
        ``composite`` need labels of the source domain: give them to ``engine.learn_many``. Priors ``scores``
        and ``both`` need them too, and a wrapped model that is frozen.

    Raises
    ------
    TypeError
        if ``classifier`` is none, or the ``window`` a stretch of time.
    ValueError
        if an option is out of range; on a label or a probability of neither class; on a probability that is
        no number in [0, 1].

    Notes
    -----
    Predicting takes note of the score (`Recalibrator.observe_one`): once if asked again for the same object
    before a label is learned, which the last step of a pipeline never is. A weight ``w`` is for the wrapped
    model only: the map counts every label once. `learn_many`, `predict_proba_many` and `predict_many` work
    if the wrapped model has the first two.

    Examples
    --------
    >>> from river import datasets, evaluate, linear_model, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    >>> recalibrated = RecalibratedClassifier(model)
    >>> score = evaluate.progressive_val_score(datasets.Phishing(), recalibrated, metrics.LogLoss(), delay=50)
    >>> recalibrated.engine.target.labels
    1250
    """

    def __init__(
        self,
        classifier: base.Classifier,
        pos_val: ClfTarget = True,
        neg_val: ClfTarget = False,
        bins: Literal["auto", "cube_root"] | int = "auto",
        max_cells: int = 4096,
        growth: float = 1.1,
        mode: Mode = "auto",
        window: int | None = None,
        window_domain: Literal["source", "target", "both"] = "both",
        prior_smoothing: float = 0.5,
        prior: PriorKind = "labels",
        prior_window: PriorWindow = None,
        delta: float = 0.1,
    ) -> None:
        if not isinstance(classifier, base.Classifier):
            raise TypeError(f"classifier must be a river classifier, got {classifier!r}")
        self.classifier = classifier
        options = {
            "bins": bins,
            "max_cells": max_cells,
            "growth": growth,
            "mode": mode,
            "window": window,
            "window_domain": window_domain,
            "prior_smoothing": prior_smoothing,
            "prior": prior,
            "prior_window": prior_window,
            "delta": delta,
        }
        self._set_up(pos_val, neg_val, options)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model  # slow to import, and for tests only

        yield {"classifier": linear_model.LogisticRegression()}

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.classifier

    @property
    def _multiclass(self) -> bool:
        return False

    def predict_proba_one(self, x: dict[FeatureName, Any], **kwargs: Any) -> dict[ClfTarget, float]:
        """Return the recalibrated probabilities of both classes.

        Parameters
        ----------
        x
            features.
        **kwargs
            passed on to the wrapped model.
        """
        return self._answer(x, self._score_of(x, kwargs))

    def learn_one(self, x: dict[FeatureName, Any], y: ClfTarget, **kwargs: Any) -> None:
        """Learn a label: first the map, with the score that the wrapped model gives now, then that model.

        Parameters
        ----------
        x, y
            features; label.
        **kwargs
            passed on to the wrapped model, all but ``w`` also where it is asked for the score.
        """
        label = 1 if y == self.pos_val else self._label(y)
        if x is self._last and self._is_unchanged():
            # The label came at once, so that no earlier prediction is to be waited for either.
            self._engine.learn_one(self._score, label, "target")
            self._last, self._waiting = _NOTHING, 0
        else:
            self._learn_in_order(self._score_of(x, _without_weight(kwargs)), label)
        if kwargs:
            self.classifier.learn_one(x, y, **kwargs)
        else:
            self.classifier.learn_one(x, y)

    def learn_many(self, X: Any, y: Any, **kwargs: Any) -> None:  # noqa: N803
        """Learn a mini-batch: first the map, with the scores before any of its labels, then the model.

        Parameters
        ----------
        X, y
            a frame of features, as in `predict_proba_many`; a series of labels.
        **kwargs
            as in `learn_one`.
        """
        learn: Any = self.classifier.learn_many  # type: ignore[attr-defined]  # not every classifier has it
        self._learn_batch(X, y, kwargs)
        learn(X, y, **kwargs)

    def _score_of(self, x: dict[FeatureName, Any], kwargs: dict[str, Any]) -> float:
        # The branches on kwargs are for speed: to unpack an empty one takes as long as a call does.
        model = self.classifier
        classes = model.predict_proba_one(x, **kwargs) if kwargs else model.predict_proba_one(x)
        score = classes.get(self.pos_val)
        if score is None or len(classes) != 2:
            self._check_classes(classes)
            score = classes.get(self.pos_val, 0.0) if classes else _UNDECIDED
        return score if 0.0 <= score <= 1.0 else _within(score)

    def _scores_of(self, X: Any, kwargs: dict[str, Any]) -> npt.NDArray[np.float64]:  # noqa: N803
        n = len(frames.into_frame(X))
        classes = frames.into_frame(self.classifier.predict_proba_many(X, **kwargs))  # type: ignore[attr-defined]
        # Only pandas keeps a label as it is: in other frames a column goes by its text.
        labels = {str(label): label for label in (self.neg_val, self.pos_val)}
        columns = [labels.get(str(column), column) for column in classes.columns]
        self._check_classes(columns)
        if not len(classes) or not columns:
            return np.full(n, _UNDECIDED)
        if self.pos_val not in columns:
            return np.zeros(n)
        scores = frames.to_numpy(classes)[:, columns.index(self.pos_val)]
        return np.where(np.abs(scores - 0.5) <= 0.5 + _ROUNDING, np.clip(scores, 0.0, 1.0), scores)

    def _check_classes(self, classes: Any) -> None:
        other = [label for label in classes if label != self.pos_val and label != self.neg_val]
        if other:
            raise ValueError(
                f"only binary classification: a class must be pos_val={self.pos_val!r} or "
                f"neg_val={self.neg_val!r}, the wrapped model gives {other[0]!r}"
            )


class Recalibrate(_Stage, base.MiniBatchClassifier):
    """Recalibrate a score that the stream already carries as a feature.

    A classifier that learns from that feature alone, and serves its map. Labels that come late are joined
    with their predictions as in `RecalibratedClassifier`. An event without the feature gets the class prior,
    and nothing is learned from its label.

    The certificate, ``engine.certificate``, assumes that what gives the scores does not change.

    Parameters
    ----------
    feature
        the name of the score among the features; a number in [0, 1] for the positive class.
    pos_val, neg_val
        the labels of the positive and the negative class. The default serves booleans, and 0 and 1.
    bins, max_cells, growth, mode, window, window_domain, prior_smoothing, prior, prior_window, delta
        as in `RecalibratedClassifier`.

    Raises
    ------
    TypeError
        if the ``window`` is a stretch of time.
    ValueError
        if an option is out of range; on a label of neither class; on a score that is no number in [0, 1].

    Examples
    --------
    >>> stage = Recalibrate("fraud_score", pos_val="fraud", neg_val="honest", bins=2)
    >>> for score, label in [(0.2, "honest"), (0.4, "honest"), (0.7, "honest"), (0.9, "fraud")] * 32:
    ...     stage.learn_one({"fraud_score": score}, label)
    >>> stage.predict_one({"fraud_score": 0.1})
    'honest'
    """

    def __init__(
        self,
        feature: FeatureName = "score",
        pos_val: ClfTarget = True,
        neg_val: ClfTarget = False,
        bins: Literal["auto", "cube_root"] | int = "auto",
        max_cells: int = 4096,
        growth: float = 1.1,
        mode: Mode = "auto",
        window: int | None = None,
        window_domain: Literal["source", "target", "both"] = "both",
        prior_smoothing: float = 0.5,
        prior: PriorKind = "labels",
        prior_window: PriorWindow = None,
        delta: float = 0.1,
    ) -> None:
        self.feature = feature
        options = {
            "bins": bins,
            "max_cells": max_cells,
            "growth": growth,
            "mode": mode,
            "window": window,
            "window_domain": window_domain,
            "prior_smoothing": prior_smoothing,
            "prior": prior,
            "prior_window": prior_window,
            "delta": delta,
        }
        self._set_up(pos_val, neg_val, options)

    def predict_proba_one(self, x: dict[FeatureName, Any], **kwargs: Any) -> dict[ClfTarget, float]:  # noqa: ARG002
        """Return the recalibrated probabilities of both classes; of an event without a score, the prior."""
        score = x.get(self.feature)
        if score is None:
            prior = self._prior()
            return {self.neg_val: 1.0 - prior, self.pos_val: prior}
        return self._answer(x, score)

    def learn_one(self, x: dict[FeatureName, Any], y: ClfTarget, **kwargs: Any) -> None:  # noqa: ARG002
        """Learn the label of a score; a label of an event without a score is passed over."""
        label, score = self._label(y), x.get(self.feature)
        if score is None:
            return
        if x is self._last and self._is_unchanged():
            self._engine.learn_one(score, label, "target")
            self._last, self._waiting = _NOTHING, 0
        else:
            self._learn_in_order(score, label)

    def learn_many(self, X: Any, y: Any, **kwargs: Any) -> None:  # noqa: N803
        """Learn a mini-batch of scores with their labels, as so many calls of `learn_one` would.

        Parameters
        ----------
        X, y
            a frame with a score in every row, as in `predict_proba_many`; a series of labels.
        **kwargs
            ignored.
        """
        self._learn_batch(X, y, kwargs)

    def _scores_of(self, X: Any, kwargs: dict[str, Any]) -> npt.NDArray[np.float64] | None:  # noqa: ARG002, N803
        frame = frames.into_frame(X)
        if self.feature not in frame.columns:
            return None
        scores: npt.NDArray[np.float64] = frame[self.feature].to_numpy()
        return scores


def _without_weight(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "w"} if kwargs else kwargs


def _within(score: float) -> float:
    """Return 0 or 1 for what rounding has put outside; the rest is for the engine to refuse."""
    return min(max(score, 0.0), 1.0) if -_ROUNDING <= score <= 1.0 + _ROUNDING else score
