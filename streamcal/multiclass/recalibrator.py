"""MulticlassRecalibrator: K scores that sum to 1 become K probabilities, and follow a stream of labels.

Two classes are one `Recalibrator`, to the last bit. Of more, see `streamcal.multiclass.many`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, Unpack

import msgspec
import numpy as np

from streamcal.certificates.record import Certificate
from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions, names_options
from streamcal.engine.recalibrator import Recalibrator
from streamcal.engine.state import compressed, expanded, pack, unpack
from streamcal.events import Domain
from streamcal.multiclass.class_map import MulticlassMap
from streamcal.multiclass.classes import Classes
from streamcal.multiclass.many import Many, ManyState
from streamcal.multiclass.rows_c import largest
from streamcal.multiclass.simplex import ordered
from streamcal.multiclass.two import Two
from streamcal.sketch.decoding import decoded, encoded, require, restoring
from streamcal.sketch.weighing import ONE, as_units
from streamcal.times import Time, as_times
from streamcal.values import Counts, Floats, check_domain, shown

__all__ = ["MulticlassRecalibrator", "answer_row"]


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
        others; ``delta`` is shared out among them. ``keeps_order`` keeps the class with the highest score
        first.
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
    >>> bool(engine.predict_one([0.5, 0.25, 0.25])[1] > 0.5)
    True
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
        if config.label_delay_limit is not None:
            raise ValueError(
                f"label_delay_limit={config.label_delay_limit!r} is not for many classes: leave it out"
            )
        each = config.model_copy(update={"keeps_order": False})
        self._core = Two(each) if len(classes) == 2 else Many(len(classes), each)

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
        return self._core.labels

    @property
    def prediction_count(self) -> int:
        """Number of target scores observed."""
        return self._core.observed

    @property
    def priors(self) -> tuple[dict[str, float] | None, dict[str, float] | None]:
        """Priors of the source and of the target by class; None while there is no evidence."""
        source, target = self._core.priors()
        return self._named(source), self._named(target)

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the candidates by name; empty in other modes than ``auto``."""
        return self._core.weights

    @property
    def certificates(self) -> dict[str, Certificate | None]:
        """Certificate of each binary engine now, by class, each with δ/K; of two classes, of the second.

        Together they hold with probability at least 1 − δ (docs/proofs/multiclass.md). They are about the
        probability of one class before all are divided by their sum. None before the first version.
        """
        return {self.classes[code]: each for code, each in self._core.certificates.items()}

    @property
    def map(self) -> MulticlassMap:
        """Portable map that gives the answers of now; the next labels change it."""
        names, ordered = self.classes, self._config.keeps_order
        return MulticlassMap(
            version=self.label_count, classes=names, keeps_order=ordered, **self._core.parts()
        )

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
        rows = self._classes.row(scores)
        row = self._served(self._core.predict(rows), rows)[0]
        if type(scores) is not np.ndarray and isinstance(scores, Mapping):
            return {name: row[self._classes.code(name)].item() for name in scores}
        return row

    def predict_many(self, scores: Any) -> Floats:
        """Return the probabilities of rows of scores, float64[n, K]; each row sums to 1.

        Raises
        ------
        ValueError
            as `predict_one`, with the index of the first bad row.
        """
        rows = self._classes.rows(scores)
        return self._served(self._core.predict(rows), rows)

    def _served(self, made: Floats, rows: Floats) -> Floats:
        return ordered(made, rows) if self._config.keeps_order else made

    def carry(self, scores: Any) -> tuple[float, ...]:
        """Return what `learn_one` needs of a prediction made now when its label comes late."""
        return tuple(self._core.carry(self._classes.row(scores))[0].tolist())

    def carry_many(self, scores: Any) -> Floats:
        """Return what `learn_many` needs of predictions made now, a row of each, float64[n, C].

        Raises
        ------
        ValueError
            as `predict_many`.
        """
        return self._core.carry(self._classes.rows(scores))

    def answer_many(self, scores: Any) -> tuple[Floats, Floats]:
        """Return what `predict_many` and `carry_many` return, for little more than one of them costs.

        Raises
        ------
        ValueError
            as `predict_many`.
        """
        return self._answered(self._classes.rows(scores))

    def _answered(self, rows: Floats) -> tuple[Floats, Floats]:
        made, carried = self._core.answer(rows)
        return self._served(made, rows), carried

    # Learning

    def observe_one(self, scores: Any) -> None:
        """Observe one row of target scores whose label is not known (yet); see `predict_one`."""
        self._core.observe(self._classes.row(scores))

    def observe_many(self, scores: Any) -> None:
        """Observe rows of target scores whose labels are not known (yet).

        Raises
        ------
        ValueError
            as `predict_many`; nothing is noted then.
        """
        self._core.observe(self._classes.rows(scores))

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
        rows, code = self._classes.row(scores), self._classes.code(label)
        self._learn(
            rows,
            self._classes.places[code : code + 1],
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
            n names of classes, or their places from 0 on, in the order in which they came. A source that is
            sorted by them is shuffled.
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
        self._learn(rows, codes, domain, times=times, weights=weights, carried=carried)

    def _learn(
        self, rows: Floats, codes: Counts, domain: Domain, *, times: Any, weights: Any, carried: Any
    ) -> None:
        """Learn rows and labels that have been checked, once the rest is."""
        check_domain(domain)
        if not len(rows):
            return
        moments = None if times is None else as_times(times, len(rows))
        if self._config.needs_time and moments is None:
            raise ValueError(f"labels need a time: window={self._config.window} is one of event time")
        if weights is not None:
            if self._config.why_unweighted is not None:
                raise ValueError(f"labels must not have weights: {self._config.why_unweighted}")
            units = as_units(weights, len(rows))
            weights = None if units is None else units / ONE
        then = None if carried is None else self._check_carried(carried, len(rows))
        self._core.learn(rows, codes, domain, moments, weights, then)

    def _named(self, values: Floats | None) -> dict[str, float] | None:
        return None if values is None else dict(zip(self.classes, values.tolist(), strict=True))

    def _check_carried(self, carried: Any, count: int) -> Floats:
        width = self._core.carried
        rows = np.asarray(carried, np.float64)
        if rows.shape != (count, width) or not 0.0 <= largest(rows.ravel()) < math.inf:
            raise ValueError(
                f"carried must be {count} rows of {width} numbers, as carry returned them, got an array of"
                f" shape {rows.shape}"
            )
        return rows

    # State

    def to_bytes(self) -> bytes:
        """Return the whole state; equal states give equal bytes."""
        core, one = self._core, b""
        if isinstance(core, Two):
            one = core.engine.to_bytes()
        many = None if isinstance(core, Two) else core.to_state()
        state = _State(list(self.classes), self._config.model_dump_json(), many)
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
            core = restored._core
            if isinstance(core, Two):
                wanted, core.engine = core.engine.config, Recalibrator.from_bytes(one)
                require(core.engine.config == wanted, "options differ")
            elif state.many is not None:
                core.restore(state.many)
            else:
                raise ValueError("nothing of three classes or more")
        return restored


def answer_row(engine: MulticlassRecalibrator, scores: Floats, *, observes: bool) -> tuple[Floats, Floats]:
    """Return what `answer_many` returns of one row of scores, float64[K]; then observe it if ``observes``.

    The row is checked once for both.
    """
    rows = engine._classes.row(scores)
    answered = engine._answered(rows)
    if observes:
        engine._core.observe(rows)
    return answered
