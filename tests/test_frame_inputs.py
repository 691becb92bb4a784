"""Backtests of frames that were not made for it: each gives the plain figures, or says what to do."""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamcal

N = 300
RNG = np.random.default_rng(7)
SCORES = np.round(RNG.random(N) ** 2, 4)
LABELS = (RNG.random(N) < SCORES**1.5).astype(int)
START = datetime(2024, 3, 1, tzinfo=UTC)
TIMES = START.timestamp() + 60.0 * np.arange(N)
LABEL_TIMES = TIMES + 3600.0
FEW_MAPS: dict[str, Any] = {"mode": "target"}
"""What is tested is how frames are read."""
EVERY_FOURTH = np.arange(N) % 4 == 0

Frames = tuple[Any, ...]


class Case(NamedTuple):
    """Frames, and what becomes of them: the plain figures without a word, a warning, or an error."""

    make: Callable[[pd.DataFrame, pd.DataFrame], Frames]
    warning: str = ""
    error: str = ""
    joined: int = N
    options: Mapping[str, Any] = {}
    figures: str | None = None
    """Whose figures these must be: of ``all`` labels, or ``others``; None: as ``joined`` says, or any."""


def both(change: Callable[[pd.DataFrame], Any]) -> Callable[[pd.DataFrame, pd.DataFrame], Frames]:
    """Change predictions and labels alike."""
    return lambda predictions, labels: (change(predictions), change(labels))


def ours(**columns: Any) -> Callable[[pd.DataFrame, pd.DataFrame], Frames]:
    """Give predictions other columns; None drops one."""
    return lambda predictions, labels: (_with(predictions, columns), labels)


def theirs(**columns: Any) -> Callable[[pd.DataFrame, pd.DataFrame], Frames]:
    """Give labels other columns."""
    return lambda predictions, labels: (predictions, _with(labels, columns))


def ids(values: Any, of_labels: Any = None) -> Callable[[pd.DataFrame, pd.DataFrame], Frames]:
    """Give predictions and labels other ids."""
    given = values if of_labels is None else of_labels
    return lambda predictions, labels: (_with(predictions, {"id": values}), _with(labels, {"id": given}))


def times(values: Any, of_labels: Any) -> Callable[[pd.DataFrame, pd.DataFrame], Frames]:
    """Give predictions and labels other times."""
    return lambda predictions, labels: (
        _with(predictions, {"time": values}),
        _with(labels, {"time": of_labels}),
    )


def _with(frame: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    dropped = [name for name, values in columns.items() if values is None]
    return frame.drop(columns=dropped).assign(
        **{name: values for name, values in columns.items() if values is not None}
    )


def moments(seconds: Any) -> pd.Series:
    """Return times as pandas has them, in UTC."""
    return pd.to_datetime(pd.Series(seconds), unit="s", utc=True)


SHUFFLED = np.random.default_rng(1).permutation(N)
UUIDS = [uuid.UUID(int=number) for number in range(N)]

CASES: dict[str, Case] = {
    # libraries
    "pandas": Case(both(lambda frame: frame)),
    "pandas, nullable": Case(both(lambda frame: frame.convert_dtypes())),
    "pandas, of arrow": Case(both(lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"))),
    "polars": Case(both(pl.from_pandas)),
    "arrow": Case(both(pa.Table.from_pandas)),
    "polars, lazy": Case(both(lambda frame: pl.from_pandas(frame).lazy())),
    "duckdb": Case(both(lambda frame: duckdb.from_df(frame))),
    # ids
    "id UUID": Case(ids(UUIDS)),
    "id integer and text": Case(ids(range(N), [str(each) for each in range(N)])),
    # labels
    "label NaN in rows": Case(theirs(label=np.where(EVERY_FOURTH, np.nan, LABELS)), joined=225),
    "label named, positive": Case(
        theirs(label=np.where(LABELS, "bad", "good")), options={"columns": {"positive": "bad"}}
    ),
    "label in both frames": Case(
        lambda predictions, labels: (predictions.assign(label=LABELS), labels),
        error=r"in column 'label'.*drop that",
    ),
    # scores
    "score decimal of arrow": Case(
        lambda predictions, labels: (
            pa.table(
                {
                    "id": predictions["id"].to_list(),
                    "score": pa.array([Decimal(f"{each:.4f}") for each in SCORES], pa.decimal128(10, 4)),
                    "time": TIMES,
                }
            ),
            labels,
        )
    ),
    # times
    "time naive": Case(times(moments(TIMES).dt.tz_localize(None), moments(LABEL_TIMES).dt.tz_localize(None))),
    "time milliseconds and seconds": Case(
        times((1000 * TIMES).astype(int), LABEL_TIMES), "300 times, .*milliseconds", figures="all"
    ),
    "time of labels only": Case(ours(time=None), error=r"columns=\{\"time\": NAME\}"),
    "time of labels long after": Case(theirs(time=TIMES + 200 * 86400.0), error=r"200 days after.*P200D"),
    # orders and indices
    "unsorted": Case(lambda predictions, labels: (predictions.iloc[SHUFFLED], labels.iloc[SHUFFLED[::-1]])),
    "index is the id": Case(both(lambda frame: frame.set_index("id"))),
    # columns
    "column of ids missing": Case(ours(id=None), error=r"predictions has no column 'id'"),
    "columns of one name": Case(
        both(lambda frame: pd.concat([frame, frame[["time"]]], axis=1)),
        error=r"columns of the same name.*time",
    ),
    "named columns": Case(
        both(lambda frame: frame.rename(columns={"id": "nr", "score": "p", "label": "y", "time": "at"})),
        options={"columns": {"id": "nr", "score": "p", "label": "y", "time": "at"}},
    ),
    "segments of numbers": Case(
        ours(land=[1, 2, np.nan] * 100, part=pd.Categorical(["a", "b", "c"] * 100)),
        options={"segments": ["land", "part"]},
        figures="others",
    ),
    # rows
    "no predictions": Case(lambda p, labels: (p[:0], labels), error=r"no rows in predictions"),
}


@cache
def figures(kind: str) -> dict[str, Any]:
    """Return the figures of plain frames: of all labels, or of three in four."""
    predictions, labels = plain()
    if kind == "gaps":
        labels = labels[~EVERY_FOURTH]
    return shown(streamcal.backtest(predictions, labels, **FEW_MAPS))


def plain() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return predictions and labels."""
    names = [f"r{number}" for number in range(N)]
    return (
        pd.DataFrame({"id": names, "score": SCORES, "time": TIMES}),
        pd.DataFrame({"id": names, "label": LABELS, "time": LABEL_TIMES}),
    )


def shown(done: streamcal.Backtest) -> dict[str, Any]:
    """Return figures that tell whether all was read alike."""
    summary = done.summary
    return {name: summary[name] for name in ("brier_before", "brier_after")}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_frames_give_the_plain_figures_or_say_what_to_do(name: str) -> None:
    case = CASES[name]
    frames = case.make(*plain())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if case.error:
            with pytest.raises((TypeError, ValueError), match=f"(?s){case.error}") as refused:
                streamcal.backtest(*frames, **FEW_MAPS, **case.options)
            assert "--" not in str(refused.value)
            return
        done = streamcal.backtest(*frames, **FEW_MAPS, **case.options)
    messages = [str(each.message) for each in caught]
    assert done.summary["join"]["joined"] == case.joined
    computed = {pl.LazyFrame: pl.DataFrame, duckdb.DuckDBPyRelation: pa.Table}
    assert type(done.frame) is computed.get(type(frames[0]), type(frames[0]))
    if case.warning:
        assert re.search(case.warning, "\n".join(messages)), messages
    else:
        assert messages == []
    wanted = case.figures or ("any" if case.warning else "all" if case.joined == N else "gaps")
    if wanted in ("all", "gaps"):
        assert shown(done) == pytest.approx(figures(wanted), rel=1e-5)
