"""River estimators: `RecalibratedClassifier` and `Recalibrate`."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final, Unpack

from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions, every_option, names_options
from streamcal.engine.recalibrator import Recalibrator
from streamcal.river.labels import UNDECIDED, ManyLabels, TwoLabels
from streamcal.river.waiting import Waiting

try:
    from river import base
except ImportError as error:
    raise ImportError(
        "streamcal.river needs river: pip install '.[river]' in a checkout of streamcal"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from river.base.typing import ClfTarget, FeatureName

_NOTHING: Final = object()
"""Features of the latest prediction where there is none."""


class _Stage(base.Classifier):
    """The base of both estimators: the labels, the engine, and which prediction a label belongs to."""

    engine: Recalibrator
    """The engine, with its map, certificate and alarms. It may learn a calibration set as the source."""
    _last: Any
    _copy: Any
    _score: Any
    _memo: bytes | None

    def _set_up(
        self, labels: TwoLabels | ManyLabels, segments: Sequence[str] | None, options: RecalibratorOptions
    ) -> None:
        config = _set_options(self, options)
        if isinstance(segments, str):
            segments = (segments,)
        self.segments: Sequence[str] | None = segments or None  # river's clone takes no empty tuple
        self._labels = labels
        self.engine = Recalibrator(config, classes=labels.names, segments=self.segments)
        self._waiting, self._memo = Waiting(), None
        self._forget()

    def _names(self, x: dict[FeatureName, Any]) -> tuple[Any, ...] | None:
        """Return the segments of an event; None if there are none."""
        return None if self.segments is None else tuple([x.get(name) for name in self.segments])

    @abstractmethod
    def _score_of(self, x: dict[FeatureName, Any], kwargs: dict[str, Any]) -> Any:
        """Return the score of an event; None if it has none."""

    def predict_proba_one(self, x: dict[FeatureName, Any], **kwargs: Any) -> dict[ClfTarget, float]:
        """Return the recalibrated probabilities of all classes; without a score, the class priors.

        Parameters
        ----------
        x
            features.
        **kwargs
            passed to the wrapped model, if there is one.
        """
        score = self._score_of(x, kwargs)
        if score is None:
            return self._labels.by_label(self._prior())
        if x is self._last and self._is_unchanged():
            return self._labels.by_label(self.engine.predict_one(score, self._names(x)))
        self._wait()
        probability, self._memo = self.engine.answer_one(score, self._names(x))
        self._last, self._score = x, score
        self._copy = x.copy() if type(x) is dict else x
        if self._copy is x:  # its values may change
            self._wait()
        return self._labels.by_label(probability)

    def learn_one(self, x: dict[FeatureName, Any], y: ClfTarget, **kwargs: Any) -> None:
        """Learn a label: first the map; then the wrapped model, if there is one.

        Parameters
        ----------
        x, y
            features; label. That of an event without a score is ignored.
        **kwargs
            passed to the wrapped model; all but ``w``, the weight of the label, also when it computes the
            score.

        Raises
        ------
        ValueError
            if ``y`` is no class, or ``w`` no weight that the map takes; nothing is learned then.
        """
        self._learn_map(x, y, kwargs)

    def _learn_map(self, x: dict[FeatureName, Any], y: ClfTarget, kwargs: dict[str, Any]) -> None:
        label = self._labels.code(y)
        weight = kwargs.get("w") if kwargs else None
        if x is self._last and self._is_unchanged():
            # This label did not wait, so labels of earlier predictions are not expected either.
            self._learn_label(self._score, label, self._names(x), None, weight)
            self._last, self._memo = _NOTHING, None
            self._waiting.clear()
        elif (score := self._score_of(x, _without_weight(kwargs))) is not None:
            # Of the prediction with the same values; else of the oldest that waits, or of none if none waits.
            self._wait()
            self._learn_label(score, label, self._names(x), self._waiting.take(self._key(x)), weight)
            self._last = _NOTHING

    # The latest prediction is remembered until a label is learned. Its features are kept by reference and as
    # a copy, because the caller may fill the same object with the values of the next event.

    def _wait(self) -> None:
        """Let the latest prediction wait for a late label, as its own did not come at once."""
        if self._memo is not None:
            self._waiting.add(self._key(self._copy), self._memo)
            self._memo = None

    def _forget(self) -> None:
        self._last = self._copy = _NOTHING
        self._score = None

    @staticmethod
    def _key(x: Any) -> int | None:
        """Return a hash of the values of an event; None if it has values without a hash."""
        try:
            return hash(frozenset(x.items()))
        except TypeError:
            return None

    def _is_unchanged(self) -> bool:
        """Return whether the features of the latest prediction still have the values they had then."""
        try:
            return bool(self._last == self._copy)
        except ValueError:  # a feature is an array, whose == is an array too
            return False

    def _learn_label(
        self, score: Any, label: Any, segments: Any, memo: bytes | None, weight: float | None
    ) -> None:
        if weight != 0:  # what counts nothing teaches nothing
            self.engine.learn_one(score, label, segments=segments, memo=memo, weight=weight)

    def _prior(self) -> float:
        prior = self.engine.target.prior
        return UNDECIDED if prior is None else prior

    # The state for pickle, deepcopy and river's clone. The latest features are another object then.

    def __getstate__(self) -> dict[str, Any]:
        self._wait()
        state = self.__dict__.copy()
        for name in ("_last", "_copy", "_score"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


class RecalibratedClassifier(base.Wrapper[base.Classifier], _Stage):
    """A river classifier with recalibrated probabilities; the classifier and the map both keep learning.

    The map is learned prequentially: from the score that the wrapped model gives before it learns the label.

    Wrap the whole pipeline, including its scaler, rather than its last step: the map then learns the score
    that was served. `RecalibratedClassifier` also works as the last step of a pipeline. The earlier steps
    then transform the features again when the label arrives, after they have learned more, so the wrapped
    model computes a second score.

    **Late labels.** The map learns a late label with the score that the wrapped model gives when the label
    arrives, just before the model learns it. Candidate maps are compared by their forecasts at the time of
    the prediction. A label belongs to the latest prediction if its features are the same object with the same
    values. Otherwise labels are assumed to arrive in the order of the predictions, one for each; a label that
    arrives when no prediction waits is learned on its own. If many labels never arrive, this order is wrong:
    join labels by id with `Recalibrator.step` instead.

    **Guarantees.** The certificate assumes that pairs of score and label are identically distributed. The
    scores of a model that keeps learning change, so ``engine.certificate`` holds for a frozen wrapped model
    and is only indicative for one that learns. Old labels also mislead the map: mode ``auto`` weighs maps
    of short and of long memory by how well they forecast, and the other modes forget only with a ``window``.

    Parameters
    ----------
    classifier
        a binary classifier, or a pipeline that ends in one. While it gives no probabilities, ``{}``, its
        score counts as ½; if it gives none for ``pos_val``, as 0.
    pos_val, neg_val
        the labels of the positive and the negative class. The defaults also match 1 and 0.
    segments
        names of features, such as ``("country", "device")``, for whose values the map is corrected.
    classes
        all labels of a model of many classes, in place of ``pos_val`` and ``neg_val``. While the model gives
        no probabilities, all classes are equally probable.
    **options
        the options of `RecalibratorConfig` by name. ``window`` must be a number of labels. The modes
        ``source``, ``label_shift`` and ``composite`` need labels of the source domain: pass them to
        ``engine.learn_many`` with ``domain="source"``. The priors ``scores`` and ``both`` need these
        labels too, and a frozen wrapped model.

    Raises
    ------
    TypeError
        if ``classifier`` is not a river classifier, an option is unknown, or ``window`` is a duration.
    ValueError
        if an option is out of range, a label or a probability belongs to neither class, or a probability is
        not a number in [0, 1].

    Notes
    -----
    A prediction also observes the score (`Recalibrator.observe_one`). Repeating it for the same object before
    a label is learned does not count again, except in the last step of a pipeline, which gets a new object
    each time. A weight ``w`` goes to the wrapped model, and to the map: there it says for how many
    predictions the label stands, from 1e-9 to 10,000, or 0 for none (`Recalibrator.learn_one`). The
    certificate then claims nothing.

    Examples
    --------
    >>> from river import datasets, evaluate, linear_model, metrics, preprocessing
    >>> model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    >>> recalibrated = RecalibratedClassifier(model)
    >>> score = evaluate.progressive_val_score(datasets.Phishing(), recalibrated, metrics.LogLoss(), delay=50)
    >>> recalibrated.engine.target.labels
    1250

    >>> from river import naive_bayes
    >>> images = datasets.ImageSegments()
    >>> names = ["brickface", "cement", "foliage", "grass", "path", "sky", "window"]
    >>> recalibrated = RecalibratedClassifier(naive_bayes.GaussianNB(), classes=names)
    >>> raw = evaluate.progressive_val_score(images, naive_bayes.GaussianNB(), metrics.CrossEntropy())
    >>> evaluate.progressive_val_score(images, recalibrated, metrics.CrossEntropy()).get() < raw.get()
    True
    """

    classifier: base.Classifier
    classes: Sequence[ClfTarget] | None
    pos_val: ClfTarget
    neg_val: ClfTarget

    @names_options
    def __init__(
        self,
        classifier: base.Classifier,
        pos_val: ClfTarget = True,
        neg_val: ClfTarget = False,
        segments: Sequence[str] | None = None,
        classes: Sequence[ClfTarget] | None = None,
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        if not isinstance(classifier, base.Classifier):
            raise TypeError(f"classifier must be a river classifier, got {classifier!r}")
        self.classifier, self.classes, self.pos_val, self.neg_val = classifier, classes, pos_val, neg_val
        self._set_up(
            TwoLabels(neg_val, pos_val) if classes is None else ManyLabels(classes), segments, options
        )

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import linear_model, naive_bayes  # slow to import, and only tests call this

        yield {"classifier": linear_model.LogisticRegression()}
        images = ["brickface", "cement", "foliage", "grass", "path", "sky", "window"]
        model = naive_bayes.GaussianNB()  # type: ignore[no-untyped-call]
        yield {"classifier": model, "classes": [*images, False, True]}

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.classifier

    @property
    def _multiclass(self) -> bool:
        return self.classes is not None

    def learn_one(self, x: dict[FeatureName, Any], y: ClfTarget, **kwargs: Any) -> None:
        """Learn a label: the map with the score that the wrapped model gives now; then the model."""
        self._learn_map(x, y, kwargs)
        self.classifier.learn_one(x, y, **kwargs)

    def _score_of(self, x: dict[FeatureName, Any], kwargs: dict[str, Any]) -> Any:
        # The branch on kwargs is for speed: unpacking an empty dict takes as long as a call.
        model = self.classifier
        return self._labels.score(
            model.predict_proba_one(x, **kwargs) if kwargs else model.predict_proba_one(x)
        )


class Recalibrate(_Stage):
    """Recalibrate a score that is already one of the features.

    This classifier uses that feature alone and answers with its map. It joins late labels with their
    predictions as `RecalibratedClassifier` does. The prediction for an event without the feature is the class
    prior, and the label of such an event is ignored.

    The certificate, ``engine.certificate``, assumes that the model behind the scores does not change.

    Parameters
    ----------
    feature
        the name of the feature that holds the score, a number in [0, 1] for the positive class.
    pos_val, neg_val
        the labels of the positive and the negative class. The defaults also match 1 and 0.
    segments
        names of features, such as ``("country", "device")``, for whose values the map is corrected.
    **options
        as in `RecalibratedClassifier`.

    Raises
    ------
    TypeError
        if an option is unknown, or ``window`` is a duration.
    ValueError
        if an option is out of range, a label belongs to neither class, or a score is not a number in [0, 1].

    Examples
    --------
    >>> stage = Recalibrate("fraud_score", pos_val="fraud", neg_val="honest", bins=2)
    >>> for score, label in [(0.2, "honest"), (0.4, "honest"), (0.7, "honest"), (0.9, "fraud")] * 32:
    ...     stage.learn_one({"fraud_score": score}, label)
    >>> stage.predict_one({"fraud_score": 0.1})
    'honest'
    """

    feature: FeatureName
    pos_val: ClfTarget
    neg_val: ClfTarget

    @names_options
    def __init__(
        self,
        feature: FeatureName = "score",
        pos_val: ClfTarget = True,
        neg_val: ClfTarget = False,
        segments: Sequence[str] | None = None,
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        self.feature, self.pos_val, self.neg_val = feature, pos_val, neg_val
        self._set_up(TwoLabels(neg_val, pos_val), segments, options)

    def _score_of(self, x: dict[FeatureName, Any], kwargs: dict[str, Any]) -> float | None:  # noqa: ARG002
        score: float | None = x.get(self.feature)
        return score


def _without_weight(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name != "w"} if kwargs else kwargs


def _set_options(estimator: object, options: RecalibratorOptions) -> RecalibratorConfig:
    """Set every option as an attribute, as river asks for; return all of them as the engine takes them."""
    values = every_option(options)
    config = RecalibratorConfig(**values)
    if not isinstance(config.window, int | None):
        raise TypeError(
            f"a river stream has no clock: window must be a number of labels, got {config.window!r}"
        )
    for name, value in values.items():
        setattr(estimator, name, value)
    return config
