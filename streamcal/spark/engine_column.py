"""Engines that no single map describes, as columns: with segments, or of many classes.

Each task restores the engine from its state, and answers batches of rows in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # as everybody does
from pyspark.sql.pandas.functions import arrow_udf

from streamcal.multiclass.recalibrator import MulticlassRecalibrator
from streamcal.segments.recalibrator import SegmentedRecalibrator
from streamcal.values import Floats

__all__ = ["recalibrated_classes", "recalibrated_segments"]


def recalibrated_classes(scores: Column | str, engine: MulticlassRecalibrator) -> Column:
    """Return the column of probabilities of each class, as the engine serves them now.

    Parameters
    ----------
    scores
        arrays of the scores in the order of the classes, such as ``F.array("p_cat", "p_dog")``.
    engine
        the engine; later labels do not change the column.

    Returns
    -------
    Arrays of doubles, named ``probabilities``, with the bits of ``predict_many``; null where it would refuse.
    """
    state = engine.to_bytes()

    def answered(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        restored = MulticlassRecalibrator.from_bytes(state)
        for batch in batches:
            yield pa.array(_answers(restored.predict_many, batch.to_pylist()), pa.list_(pa.float64()))

    column = (F.col(scores) if isinstance(scores, str) else scores).cast("array<double>")
    return _by(answered, "array<double>")(column).alias("probabilities")


def recalibrated_segments(
    score: Column | str, segments: Sequence[Column | str], engine: SegmentedRecalibrator
) -> Column:
    """Return the column of probabilities with the corrections of segments, as the engine serves them now.

    Parameters
    ----------
    score
        scores in [0, 1], of a type that casts to double.
    segments
        columns of the fields, in the order of ``engine.fields``.
    engine
        the engine; later labels do not change the column.

    Returns
    -------
    Doubles, named ``probability``, with the bits of ``predict_many``; null where it would refuse.

    Raises
    ------
    ValueError
        if there are not as many columns as fields.
    """
    if isinstance(segments, str) or len(segments) != len(engine.fields):
        raise ValueError(f"segments must be columns of {', '.join(engine.fields)}, got {segments!r}")
    state = engine.to_bytes()

    def answered(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        restored = SegmentedRecalibrator.from_bytes(state)
        for scores, *fields in batches:
            names = list(zip(*(field.to_pylist() for field in fields), strict=True))
            yield pa.array(_answers(restored.predict_many, scores.to_pylist(), names), pa.float64())

    z = (F.col(score) if isinstance(score, str) else score).cast("double")
    return _by(answered, "double")(z, *segments).alias("probability")


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
