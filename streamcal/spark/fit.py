"""Fit engines to a table of labelled scores: sketches of its partitions, merged in a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody does

from streamcal.engine.config import RecalibratorConfig, RecalibratorOptions
from streamcal.engine.recalibrator import Recalibrator
from streamcal.events import DOMAINS, Domain
from streamcal.sketch import checks
from streamcal.sketch.score_sketch import ScoreSketch

_SKETCHED: Final = pa.schema(
    {"key": pa.string(), "domain": pa.string(), "part": pa.int32(), "sketch": pa.binary()}
)
_FITTED: Final = pa.schema({"key": pa.string(), "engine": pa.binary()})
_ROWS: Final = 1 << 18  # sketched at once: the larger, the less a row costs
_FAN: Final = 16  # so many partial sketches of each engine are left after the first merge


def learn(
    df: DataFrame,
    *,
    score: Column | str = "score",
    label: Column | str = "label",
    by: Column | str | None = None,
    domain: Column | str | None = None,
    config: RecalibratorConfig | None = None,
    **options: Unpack[RecalibratorOptions],
) -> dict[str | None, Recalibrator]:
    """Fit one engine to the rows of each key.

    An engine learns its rows as two batches, first those of the source, and its state does not depend on the
    order of rows or on partitions: its bytes are those of an engine that learned two sketches, of all its
    source and of all its target rows, by `Recalibrator.learn_sketch`.

    Parameters
    ----------
    df
        labelled scores.
    score, label
        columns that cast to double: scores in [0, 1], labels 0 or 1 (or boolean).
    by
        column of keys, cast to text; None: one engine, of key None.
    domain
        column of domains, ``"source"`` or ``"target"``; None: the domain that forms the map, which is
        ``"target"`` in mode ``target``, else ``"source"``.
    config, **options
        options of the engines, as those of `Recalibrator`; the mode must be given.

    Returns
    -------
    The engine of each key.

    Raises
    ------
    ValueError
        before anything is read, if the engine's state depends on the order of the labels, as in mode
        ``auto``; the message says why.
    pyspark.errors.PythonException
        if a row has no score in [0, 1], no label of 0 or 1, or another domain; the message names the first.
    """
    chosen = config or RecalibratorConfig(**options)
    if chosen.why_ordered is not None:
        raise ValueError(f"rows in no order cannot be learned: {chosen.why_ordered}")
    own: Domain = "target" if chosen.mode == "target" else "source"
    # What is the same in all rows does not go to Python with each.
    named = {"key": (by, "string"), "domain": (domain, "string")}
    named |= {"score": (score, "double"), "label": (label, "double")}
    rows = df.select(
        *(
            (F.col(given) if isinstance(given, str) else given).cast(kind).alias(name)
            for name, (given, kind) in named.items()
            if given is not None
        )
    )
    kind = "key string, domain string, part int, sketch binary"

    def sketched(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _sketched(batches, own)

    def fitted(table: pa.Table) -> pa.Table:
        return _fitted(table, chosen)

    merged = (
        rows.mapInArrow(sketched, kind)
        .groupBy("key", "domain", F.col("part") % _FAN)
        .applyInArrow(_merged, kind)
    )
    engines = merged.groupBy("key").applyInArrow(fitted, "key string, engine binary")
    return {row["key"]: Recalibrator.from_bytes(bytes(row["engine"])) for row in engines.collect()}


def _sketched(batches: Iterator[pa.RecordBatch], own: Domain) -> Iterator[pa.RecordBatch]:
    """Sketch the rows of a partition, one sketch for each key and domain; ``own`` is that of rows without."""
    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    sketches: dict[tuple[str | None, str], ScoreSketch] = {}
    for table in _blocks(batches):
        scores = _checked(table["score"], checks.as_scores, f"score, partition {part}")
        labels = _checked(table["label"], checks.as_labels, f"label, partition {part}")
        for group, at in _groups(table, own):
            if group[1] not in DOMAINS:
                raise ValueError(
                    f"domain, partition {part}: a domain must be 'source' or 'target', got {group[1]!r}"
                )
            sketch = sketches.setdefault(group, ScoreSketch())
            sketch.add_checked(scores[at], labels[at])
    for (key, domain), sketch in sketches.items():
        row = {"key": key, "domain": domain, "part": part, "sketch": sketch.to_bytes()}
        yield pa.RecordBatch.from_pylist([row], _SKETCHED)


def _checked(
    column: pa.ChunkedArray, check: Callable[[Any], npt.NDArray[Any]], where: str
) -> npt.NDArray[Any]:
    """Return a column, checked; a null is refused as NaN, and is told from it in the message."""
    try:
        return check(column)
    except ValueError as error:
        nulls = f" ({column.null_count:,} of {len(column):,} rows are null)" if column.null_count else ""
        raise ValueError(f"{where}: {error}{nulls}; filter the rows that are no labelled scores") from None


def _blocks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Put batches together until they are worth a sketch."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS:
            yield pa.Table.from_batches(gathered)
            gathered, rows = [], 0
    if rows:
        yield pa.Table.from_batches(gathered)


def _groups(
    table: pa.Table, own: Domain
) -> Iterator[tuple[tuple[str | None, str], slice | npt.NDArray[np.intp]]]:
    """Return each (key, domain) of a table, and where its rows are."""
    by = [name for name in ("key", "domain") if name in table.column_names]
    if not by:
        yield (None, own), slice(None)
        return
    numbered = table.select(by).append_column("at", pa.array(np.arange(table.num_rows)))
    found = numbered.group_by(by, use_threads=False).aggregate([("at", "list")])
    for name, at in zip(found.select(by).to_pylist(), found["at_list"], strict=True):
        yield (name.get("key"), name.get("domain", own)), at.values.to_numpy()


def _merged(table: pa.Table) -> pa.Table:
    """Merge the sketches of one key and domain."""
    row = table.slice(0, 1).to_pylist()[0]
    row["sketch"] = _merge(table["sketch"].to_pylist()).to_bytes()
    return pa.Table.from_pylist([row], _SKETCHED)


def _fitted(table: pa.Table, config: RecalibratorConfig) -> pa.Table:
    """Make the engine of one key from its sketches."""
    engine = Recalibrator(config)
    for domain in DOMAINS:
        states = table.filter(pc.equal(table["domain"], domain))["sketch"].to_pylist()
        if states:
            engine.learn_sketch(_merge(states), domain)
    return pa.Table.from_pylist([{"key": table["key"][0].as_py(), "engine": engine.to_bytes()}], _FITTED)


def _merge(states: list[bytes]) -> ScoreSketch:
    first, *others = map(ScoreSketch.from_bytes, states)
    for other in others:
        first.merge(other)
    return first
