"""MulticlassRecalibrator: K scores that sum to 1 become K probabilities, and follow a stream of labels.

Two classes are one `Recalibrator`, to the last bit. Of more, see `streamcal.multiclass.many`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, Unpack

import msgspec
import numpy as np

from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions, names_options
from streamcal.engine.recalibrator import Recalibrator
from streamcal.engine.state import compressed, expanded, pack, unpack
from streamcal.events import Domain
from streamcal.multiclass.classes import Classes
from streamcal.multiclass.many import Many, ManyState
from streamcal.sketch.decoding import decoded, encoded, restoring
from streamcal.sketch.weighing import as_units
from streamcal.times import Time, as_times
from streamcal.values import Floats, check_domain, shown

__all__ = ["MulticlassRecalibrator"]


class _State(msgspec.Struct):
    classes: list[str]
    config: str
    many: ManyState | None


class MulticlassRecalibrator:
    """Turn the scores of K classes into probabilities, and keep doing so while labels arrive.

    Parameters
    ----------
    classes
        Names of the classes, 2 to 1,000, in the order of the scores.
    config
        all options in one object. They are those of the K binary engines, each for one class against all
        others; ``delta`` is shared out among them.
    **options
        instead of ``config``: the options of `RecalibratorConfig` by name.

    Raises
    ------
    ValueError
        if the names are not distinct texts, or an option is unknown, out of range or not for many classes.

    Examples
    --------
    >>> engine = MulticlassRecalibrator(["cat", "dog", "fox"])
    >>> engine.predict_one({"cat": 0.5, "dog": 0.25, "fox": 0.25})
    {'cat': 0.5, 'dog': 0.25, 'fox': 0.25}
    >>> engine.learn_many([[0.5, 0.25, 0.25]] * 600, ["dog", "dog", "cat"] * 200)
    >>> engine.predict_one([0.5, 0.25, 0.25]).round(1)
    array([0.3, 0.7, 0. ])
    """

    @names_options
    def __init__(
        self,
        classes: Sequence[str],
        config: RecalibratorConfig | None = None,
        **options: Unpack[RecalibratorOptions],
    ) -> None:
        if config is not None and options:
            raise ValueError(f"give either a config or options, got both: {sorted(options)}")
        if not isinstance(config, RecalibratorConfig | None):
            raise TypeError(f"config must be a RecalibratorConfig, got {shown(config)}; options go by name")
        self._use(Classes(classes), config or RecalibratorConfig(**options))

    def _use(self, classes: Classes, config: RecalibratorConfig) -> None:
        self._classes, self._config = classes, config
        for name in ("guard", "label_delay_limit"):
            if getattr(config, name) is not None:
                raise ValueError(f"{name}={getattr(config, name)!r} is not for many classes: leave it out")
        self._one = Recalibrator(config) if len(classes) == 2 else None
        self._many = Many(len(classes), config) if len(classes) > 2 else None

    def __repr__(self) -> str:
        return (
            f"MulticlassRecalibrator({len(self._classes):,} classes, mode={self._config.mode!r}, "
            f"target={self.label_count:,} labels, predictions={self.prediction_count:,})"
        )

    # What it knows

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the scores."""
        return self._classes.names

    @property
    def config(self) -> RecalibratorConfig:
        """Options of the engines."""
        return self._config

    @property
    def label_count(self) -> int:
        """Number of target labels learned."""
        if self._one is not None:
            return self._one.target.labels
        return self._of_many.labels

    @property
    def prediction_count(self) -> int:
        """Number of target scores observed."""
        if self._one is not None:
            return self._one.prediction_count
        return self._of_many.engines.observed

    @property
    def priors(self) -> tuple[dict[str, float] | None, dict[str, float] | None]:
        """Priors of the source and of the target by class; None while there is no evidence."""
        found: tuple[Any, Any]
        if self._one is not None:
            ones = self._one.source.prior, self._one.target.prior
            found = tuple(None if one is None else (1.0 - one, one) for one in ones)
        else:
            by_scores = self._config.prior == "scores"
            found = self._of_many.priors("scores" if by_scores else "all")
        source, target = (
            None if each is None else dict(zip(self.classes, map(float, each), strict=True)) for each in found
        )
        return source, target

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the candidates by name; empty in other modes than ``auto``."""
        if self._one is not None:
            mixing = self._one.mixing
            return {} if mixing is None else dict(mixing.weights)
        many = self._of_many
        if len(many.names) == 1:
            return {}
        return dict(zip(many.names, many.served_weights.tolist(), strict=True))

    @property
    def certificates(self) -> dict[str, Certificate | None]:
        """Certificate of each binary engine now, by class, each with δ/K; of two classes, of the second.

        Together they hold with probability at least 1 − δ (docs/proofs/multiclass.md). They are about the
        probability of one class before all are divided by their sum. None before the first version.
        """
        if self._one is not None:
            return {self.classes[1]: self._one.certificate}
        return {
            self.classes[code]: engine.certificate
            for code, engine in sorted(self._of_many.engines.engines.items())
        }

    # Predicting

    def predict_one(self, scores: Any) -> Any:
        """Return the probabilities of one row of scores: float64[K], or by name if the scores are.

        Parameters
        ----------
        scores
            K numbers in the order of the classes, or a mapping of their names to numbers. They are in [0, 1]
            and sum to 1, give or take 10⁻⁶.

        Raises
        ------
        ValueError
            if they are not; the message says which.
        """
        (row,) = self._predict(self._classes.row(scores)[np.newaxis])
        if isinstance(scores, Mapping):
            return {name: row[self._classes.code(name)].item() for name in scores}
        return row

    def predict_many(self, scores: Any) -> Floats:
        """Return the probabilities of rows of scores, float64[n, K]; each row sums to 1.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad row.
        """
        return self._predict(self._classes.rows(scores))

    def _predict(self, rows: Floats) -> Floats:
        if self._one is not None:
            ones = self._one.predict_many(rows[:, 1])
            return np.stack((1.0 - ones, ones), axis=1)
        return self._of_many.predict(rows)

    def carry(self, scores: Any) -> tuple[float, ...]:
        """Return what `learn_one` needs of a prediction made now when its label comes late."""
        return tuple(self.carry_many([self._classes.row(scores)])[0].tolist())

    def carry_many(self, scores: Any) -> Floats:
        """Return what `learn_many` needs of predictions made now, a row of each, float64[n, C].

        Raises
        ------
        ValueError
            as `predict_many`.
        """
        rows = self._classes.rows(scores)
        if self._one is not None:
            return np.full((len(rows), 1), float(self._one.prediction_count))
        return self._of_many.carry(rows)

    # Learning

    def observe_one(self, scores: Any) -> None:
        """Observe one row of target scores whose label is not known (yet); see `predict_one`."""
        self.observe_many([self._classes.row(scores)])

    def observe_many(self, scores: Any) -> None:
        """Observe rows of target scores whose labels are not known (yet).

        Raises
        ------
        ValueError
            as `predict_many`; nothing is noted then.
        """
        rows = self._classes.rows(scores)
        if self._one is not None:
            self._one.observe_many(rows[:, 1])
        else:
            self._of_many.observe(rows)

    def learn_one(
        self,
        scores: Any,
        label: int | str,
        domain: Domain = "target",
        *,
        time: Time | None = None,
        weight: float | None = None,
        carried: Sequence[float] | None = None,
    ) -> None:
        """Learn one row of scores with its label.

        Parameters
        ----------
        scores
            as in `predict_one`.
        label
            Name of a class, or its place from 0 on.
        domain, time, weight
            as in `Recalibrator.learn_one`.
        carried
            for a late label: what `carry` returned when the prediction was made. None: it came at once.

        Raises
        ------
        ValueError
            as `predict_one` and `Recalibrator.learn_one`; or if the label is of no class. Nothing is learned
            then.
        """
        self.learn_many(
            [self._classes.row(scores)],
            [self._classes.code(label)],
            domain,
            times=None if time is None else [time],
            weights=None if weight is None else [weight],
            carried=None if carried is None else [carried],
        )

    def learn_many(
        self,
        scores: Any,
        labels: Any,
        domain: Domain = "target",
        *,
        times: Any = None,
        weights: Any = None,
        carried: Any = None,
    ) -> None:
        """Learn n rows of scores with their labels.

        Parameters
        ----------
        scores
            as in `predict_many`.
        labels
            n names of classes, or their places from 0 on.
        domain, times, weights
            as in `Recalibrator.learn_many`.
        carried
            for late labels: their rows of `carry_many`, as of the prediction, float64[n, C]. None: they were
            predicted just before this call.

        Raises
        ------
        ValueError
            as `learn_one`, with the index of the first bad row, or if lengths differ; nothing is learned
            then.
        """
        rows, codes = self._classes.rows(scores), self._classes.codes(labels)
        if len(rows) != len(codes):
            raise ValueError(f"{len(rows)} rows of scores but {len(codes)} labels")
        check_domain(domain)
        if not len(rows):
            return
        moments = None if times is None else as_times(times, len(rows))
        if self._config.needs_time(domain) and moments is None:
            raise ValueError(f"labels need a time: window={self._config.window} is one of event time")
        if weights is not None:
            if self._config.why_unweighted is not None:
                raise ValueError(f"labels must not have weights: {self._config.why_unweighted}")
            weights = as_units(weights, len(rows)) / 256.0
        then = None if carried is None else self._check_carried(carried, len(rows))
        if self._one is not None:
            self._learn_one(rows[:, 1], codes.astype(np.int8), domain, moments, weights, then)
        else:
            self._of_many.learn(rows, codes, domain, moments, weights, then)

    def _learn_one(
        self, scores: Floats, labels: Any, domain: Domain, times: Any, weights: Any, then: Floats | None
    ) -> None:
        """Let the engine of two classes learn; labels of one call were predicted together."""
        assert self._one is not None
        cuts = [0] if then is None else np.flatnonzero(np.diff(then[:, 0], prepend=-1.0)).tolist()
        for start, end in zip(cuts, [*cuts[1:], len(scores)], strict=True):
            part = slice(start, end)
            self._one.learn_many(
                scores[part],
                labels[part],
                domain,
                times=None if times is None else times[part],
                weights=None if weights is None else weights[part],
                prediction_index=None if then is None else int(then[start, 0]),
            )

    def _check_carried(self, carried: Any, count: int) -> Floats:
        width = 1 if self._many is None else self._many.carried
        rows = np.asarray(carried, np.float64)
        if rows.shape != (count, width) or not np.isfinite(rows).all() or not (rows >= 0.0).all():
            raise ValueError(
                f"carried must be {count} rows of {width} numbers, as carry returned them, got an array of"
                f" shape {rows.shape}"
            )
        return rows

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        many = None if self._many is None else self._many.to_state()
        state = _State(list(self.classes), self._config.model_dump_json(), many)
        one = b"" if self._one is None else self._one.to_bytes()
        return pack([one, compressed(encoded(state))])

    def __reduce__(self) -> tuple[Callable[[bytes], MulticlassRecalibrator], tuple[bytes]]:
        """Copy and pickle by way of `to_bytes`."""
        return type(self).from_bytes, (self.to_bytes(),)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Restore from `to_bytes`; safe on bytes from anywhere.

        Raises
        ------
        DamagedStateError
            if the bytes are not such a state; the message says what is wrong.
        """
        one, body = unpack(data, 2)
        state = decoded(expanded(body), _State, "many classes")
        with restoring("not the state of many classes"):
            restored = cls(state.classes, RecalibratorConfig.model_validate_json(state.config))
            if restored._many is not None and state.many is not None:
                restored._many.restore(state.many)
            else:
                restored._one = Recalibrator.from_bytes(one)
        return restored

    @property
    def _of_many(self) -> Many:
        assert self._many is not None
        return self._many
