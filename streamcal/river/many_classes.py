"""River estimator of many classes: `MulticlassRecalibratedClassifier`."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
from river import base

from streamcal.engine.config import RecalibratorOptions, names_options
from streamcal.multiclass.recalibrator import MulticlassRecalibrator
from streamcal.river.stages import NOTHING, are_unchanged, set_options
from streamcal.values import Floats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from river.base.typing import ClfTarget, FeatureName

__all__ = ["MulticlassRecalibratedClassifier"]

_MOST_WAITING: Final = 10_000  # predictions that wait for their label


class MulticlassRecalibratedClassifier(base.Wrapper[base.Classifier], base.Classifier):
    """A river classifier of many classes with recalibrated probabilities; classifier and map keep learning.

    It does for K classes what `RecalibratedClassifier` does for two, by `streamcal.MulticlassRecalibrator`.
    The map learns from the scores that the wrapped model gives just before it learns the label. Labels meet
    predictions as there: a label belongs to the latest prediction if its features are the same object with
    the same values, else to the oldest of at most 10,000 that wait. Labels have no weights.

    Parameters
    ----------
    classifier
        a classifier, or a pipeline that ends in one. While it gives no probabilities, ``{}``, all classes
        are equally probable.
    classes
        all labels.
    **options
        as in `RecalibratedClassifier`, but for ``segments``.

    Raises
    ------
    TypeError
        if ``classifier`` is not a river classifier, an option is unknown, or ``window`` is a duration.
    ValueError
        if an option is out of range, or a label or a probability belongs to no class.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, naive_bayes
    >>> images = datasets.ImageSegments()
    >>> names = ["brickface", "cement", "foliage", "grass", "path", "sky", "window"]
    >>> recalibrated = MulticlassRecalibratedClassifier(naive_bayes.GaussianNB(), names)
    >>> raw = evaluate.progressive_val_score(images, naive_bayes.GaussianNB(), metrics.CrossEntropy())
    >>> evaluate.progressive_val_score(images, recalibrated, metrics.CrossEntropy()).get() < raw.get()
    True
    """

    classifier: base.Classifier
    classes: Sequence[ClfTarget]
    engine: MulticlassRecalibrator
    """The engine. It may learn a calibration set as the source."""

    @names_options
    def __init__(
        self,
        classifier: base.Classifier,
        classes: Sequence[ClfTarget],
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        if not isinstance(classifier, base.Classifier):
            raise TypeError(f"classifier must be a river classifier, got {classifier!r}")
        config = set_options(self, options)
        self.classifier, self.classes = classifier, classes
        self._codes = {label: code for code, label in enumerate(classes)}
        self.engine = MulticlassRecalibrator([str(label) for label in classes], config)
        self._waiting: deque[tuple[float, ...]] = deque(maxlen=_MOST_WAITING)
        self._last: Any = NOTHING
        self._copy: Any = NOTHING

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The features of the latest prediction are another object then.
        self.__dict__.update(state, _last=NOTHING, _copy=NOTHING)

    def _is_latest(self, x: dict[FeatureName, Any]) -> bool:
        return x is self._last and are_unchanged(x, self._copy)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        from river import naive_bayes  # slow to import, and only tests call this

        names = ["brickface", "cement", "foliage", "grass", "path", "sky", "window"]
        model = naive_bayes.GaussianNB()  # type: ignore[no-untyped-call]
        yield {"classifier": model, "classes": [*names, False, True]}

    @property
    def _wrapped_model(self) -> base.Classifier:
        return self.classifier

    @property
    def _multiclass(self) -> bool:
        return True

    def predict_proba_one(self, x: dict[FeatureName, Any], **kwargs: Any) -> dict[ClfTarget, float]:
        """Return the recalibrated probability of each class.

        Parameters
        ----------
        x
            features.
        **kwargs
            passed to the wrapped model.
        """
        scores = self._scores_of(x, kwargs)
        answer = self.engine.predict_one(scores)
        if not self._is_latest(x):
            self._waiting.append(self.engine.carry(scores))
            self.engine.observe_one(scores)
            self._last, self._copy = x, dict(x)
        return dict(zip(self.classes, answer.tolist(), strict=True))

    def learn_one(self, x: dict[FeatureName, Any], y: ClfTarget, **kwargs: Any) -> None:
        """Learn a label: the map with the scores that the wrapped model gives now; then the model.

        Raises
        ------
        ValueError
            if ``y`` is no class; nothing is learned then.
        """
        if y not in self._codes:
            raise ValueError(f"a label must be one of classes={list(self.classes)!r}, got {y!r}")
        scores, carried = self._scores_of(x, kwargs), None
        if self._is_latest(x):
            # This label did not wait, so labels of earlier predictions are not expected either.
            carried = self._waiting.pop()
            self._waiting.clear()
        elif self._waiting:
            carried = self._waiting.popleft()
        self._last = self._copy = NOTHING
        self.engine.learn_one(scores, str(y), carried=carried)
        self.classifier.learn_one(x, y, **kwargs)

    def _scores_of(self, x: dict[FeatureName, Any], kwargs: dict[str, Any]) -> Floats:
        """Return the scores that the wrapped model gives, float64[K], which add up to 1."""
        given = self.classifier.predict_proba_one(x, **kwargs)
        for label in given:
            if label not in self._codes:
                raise ValueError(
                    f"a class must be one of classes={list(self.classes)!r}, the wrapped model gives"
                    f" {label!r}"
                )
        scores = np.array([given.get(label, 0.0) for label in self._codes], np.float64)
        total = scores.sum()
        if not total:
            return np.full(len(scores), 1.0 / len(scores))
        return scores / total if np.isfinite(total) else scores  # refused, with its value
