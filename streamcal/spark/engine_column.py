"""Engines, and maps of many classes, as columns: what no map of one score describes.

Each task restores the engine from its state, and answers batches of rows in Python.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql.pandas.functions import arrow_udf

from streamcal.base.values import Floats, shown
from streamcal.engine.multiclass.class_map import MulticlassMap
from streamcal.engine.recalibrator import Recalibrator, options_of


def recalibrated_by(
    engine: Recalibrator | MulticlassMap, score: Column | str, segments: Sequence[Column | str] = ()
) -> Column:
    """Return the column of probabilities, as an engine serves them now.

    Parameters
    ----------
    engine
        the engine, whose later labels do not change the column; or a map of many classes.
    score
        scores in [0, 1], of a type that casts to double; of many classes, arrays of the scores in their
        order, such as ``F.array("p_cat", "p_dog")``.
    segments
        columns of the fields, in their order.

    Returns
    -------
    Doubles, named ``probability``; of many classes, arrays of doubles, named ``probabilities``. They have the
    bits of ``predict_many``, and are null where it would refuse.

    Raises
    ------
    ValueError
        if there are not as many columns as fields.
    TypeError
        if it is neither an engine nor a map of many classes.
    """
    if not isinstance(engine, Recalibrator | MulticlassMap):
        raise TypeError(
            f"an engine or a map of many classes is needed, got {shown(engine)}; streamcal.spark.recalibrated"
            " takes a RecalibrationMap"
        )
    fields: tuple[str, ...] = ()
    if isinstance(engine, Recalibrator):
        options = options_of(engine)
        fields, classes = options.fields, options.classes
    else:
        classes = engine.classes
    if isinstance(segments, str) or len(segments) != len(fields):
        raise ValueError(f"segments must be columns of {', '.join(fields)}, got {segments!r}")
    state = pickle.dumps(engine)
    kind, arrow, name = "double", pa.float64(), "probability"
    if classes:
        kind, arrow, name = "array<double>", pa.list_(pa.float64()), "probabilities"

    def answered(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        restored = pickle.loads(state)  # noqa: S301
        for batch in batches:
            scores, *values = batch if fields else (batch,)  # Spark gives one column alone
            columns = [scores.to_pylist()]
            if fields:
                columns.append(list(zip(*(each.to_pylist() for each in values), strict=True)))
            yield pa.array(_answers(restored.predict_many, *columns), arrow)

    z = (F.col(score) if isinstance(score, str) else score).cast(kind)
    return _by(answered, kind)(z, *segments).alias(name)


def _by(answered: Callable[..., Any], kind: str) -> Callable[..., Column]:
    made: Any = arrow_udf(answered, kind)  # type: ignore[call-overload]  # of which kind, its types say
    return cast(Callable[..., Column], made)


def _answers(predict: Callable[..., Floats], *columns: list[Any]) -> list[Any]:
    """Return the answers to rows; None where they are refused, for which halves of the rows are tried."""
    count = len(columns[0])
    try:
        answers: list[Any] = predict(*columns).tolist()
    except ValueError:
        answers = []
    if len(answers) == count:
        return answers
    if count == 1:
        return [None]
    halves = slice(0, count // 2), slice(count // 2, None)
    return [each for half in halves for each in _answers(predict, *(column[half] for column in columns))]
