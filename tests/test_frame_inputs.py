"""Backtests of frames that were not made for it: each gives the plain figures, or says what to do."""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
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


def some(values: Any, other: Any) -> pd.Series:
    """Replace every fourth value."""
    return pd.Series(list(values), dtype=object).where(~EVERY_FOURTH, other)


def moments(seconds: Any) -> pd.Series:
    """Return times as pandas has them, in UTC."""
    return pd.to_datetime(pd.Series(seconds), unit="s", utc=True)


def python(seconds: Any) -> list[datetime]:
    """Return times as Python has them."""
    return [START + timedelta(seconds=float(each) - TIMES[0]) for each in seconds]


def carried(labels: Any) -> Callable[[pd.DataFrame, pd.DataFrame], Frames]:
    """Give one frame that carries its labels."""
    return lambda predictions, _: (predictions.assign(label=labels),)


SHUFFLED = np.random.default_rng(1).permutation(N)
UUIDS = [uuid.UUID(int=number) for number in range(N)]
PERCENT = r"percent: .* Divide all scores by 100"

CASES: dict[str, Case] = {
    # libraries
    "pandas": Case(both(lambda frame: frame)),
    "pandas, nullable": Case(both(lambda frame: frame.convert_dtypes())),
    "pandas, of arrow": Case(both(lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"))),
    "polars": Case(both(pl.from_pandas)),
    "arrow": Case(both(pa.Table.from_pandas)),
    "polars and pandas": Case(lambda predictions, labels: (pl.from_pandas(predictions), labels)),
    "polars, lazy": Case(both(lambda frame: pl.from_pandas(frame).lazy())),
    "duckdb": Case(both(lambda frame: duckdb.from_df(frame))),
    "list of rows": Case(both(lambda frame: frame.to_dict("records")), error=r"got a list; pandas.DataFrame"),
    # ids
    "id UUID": Case(ids(UUIDS)),
    "id float": Case(ids(np.arange(N) * 1.0)),
    "id integer and text": Case(ids(range(N), [str(each) for each in range(N)])),
    "id missing in rows": Case(
        ours(id=some([f"r{i}" for i in range(N)], None)), warning=r"150 .*rejected.*needs an id", joined=225
    ),
    "id twice among predictions": Case(
        lambda predictions, labels: (pd.concat([predictions, predictions[:50]]), labels),
        warning=r"50 .*rejected.*duplicate prediction",
    ),
    "labels of no prediction": Case(
        ids(range(N), [*range(270), *range(1000, 1030)]), warning=r"30 .*unmatched", joined=270
    ),
    # labels
    "label bool": Case(theirs(label=LABELS.astype(bool))),
    "label yes or no": Case(theirs(label=np.where(LABELS, "yes", "no"))),
    "label NaN in rows": Case(theirs(label=np.where(EVERY_FOURTH, np.nan, LABELS)), joined=225),
    "label NA in rows": Case(theirs(label=some(LABELS, pd.NA).astype("Int64")), joined=225),
    "label named, positive": Case(
        theirs(label=np.where(LABELS, "bad", "good")), options={"columns": {"positive": "bad"}}
    ),
    "label of three classes": Case(
        theirs(label=some(LABELS, 2)), error=r"name more classes than 0 and 1: others, such as 2"
    ),
    "label soft": Case(theirs(label=SCORES), error=r"label"),
    "label among predictions, gaps": Case(
        carried(np.where(EVERY_FOURTH, np.nan, LABELS)), joined=225, figures="others"
    ),
    "label in both frames": Case(
        lambda predictions, labels: (predictions.assign(label=LABELS), labels),
        error=r"in column 'label'.*drop that",
    ),
    "no labels": Case(lambda predictions, _: (predictions,), warning=r"No labels were given", joined=0),
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
    "score text with %": Case(
        ours(score=[f"{100 * each:.2f}%" for each in SCORES]), error=r"all 300 rows .*'score'"
    ),
    "score percent, rare": Case(ours(score=100 * np.sort(SCORES) ** 8), error=PERCENT),
    "score log odds": Case(ours(score=np.linspace(-4.0, 4.0, N)), error=r"log odds.*exp"),
    "score NaN in rows": Case(
        ours(score=np.where(EVERY_FOURTH, np.nan, SCORES)), warning=r"rejected.*score", joined=225
    ),
    # times
    "time naive": Case(times(moments(TIMES).dt.tz_localize(None), moments(LABEL_TIMES).dt.tz_localize(None))),
    "time naive and of a zone": Case(
        times(moments(TIMES).dt.tz_localize(None), moments(LABEL_TIMES).dt.tz_convert("America/Lima"))
    ),
    "time of nanoseconds": Case(
        times(moments(TIMES).astype("datetime64[ns, UTC]"), moments(LABEL_TIMES).astype("datetime64[s, UTC]"))
    ),
    "time of polars": Case(
        both(
            lambda frame: pl.from_pandas(frame).with_columns(
                time=pl.from_epoch("time").dt.replace_time_zone("UTC")
            )
        )
    ),
    "time ISO 8601 of zones": Case(
        times(
            moments(TIMES).dt.tz_convert("Asia/Kolkata").map(lambda each: each.isoformat()),
            [each.isoformat() for each in python(LABEL_TIMES)],
        )
    ),
    "time milliseconds and seconds": Case(
        times((1000 * TIMES).astype(int), LABEL_TIMES), "300 times, .*milliseconds", figures="all"
    ),
    "time milliseconds in rows": Case(
        times(np.where(EVERY_FOURTH, 1000 * TIMES, TIMES), LABEL_TIMES), "75 times, .*one unit", joined=225
    ),
    "time seconds and datetime": Case(times(TIMES, moments(LABEL_TIMES))),
    "time local text": Case(
        times([f"{each:%d/%m/%Y %H:%M}" for each in python(TIMES)], LABEL_TIMES), error=r"'time'"
    ),
    "time of labels only": Case(ours(time=None), error=r"columns=\{\"time\": NAME\}"),
    "time of neither": Case(both(lambda frame: frame.drop(columns="time")), warning=r"No times are known"),
    "time missing in rows": Case(
        ours(time=np.where(EVERY_FOURTH, np.nan, TIMES)),
        warning=r"75 of 600 events \(12%\) have no time",
    ),
    "time of labels long after": Case(theirs(time=TIMES + 200 * 86400.0), error=r"200 days after.*P200D"),
    "time of labels before": Case(theirs(time=TIMES - 86400.0), warning=r"before"),
    # orders and indices
    "unsorted": Case(lambda predictions, labels: (predictions.iloc[SHUFFLED], labels.iloc[SHUFFLED[::-1]])),
    "index of text": Case(both(lambda frame: frame.set_index(pd.Index([f"row {i}" for i in range(N)])))),
    "index is the id": Case(both(lambda frame: frame.set_index("id"))),
    # columns
    "column of ids missing": Case(ours(id=None), error=r"predictions has no column 'id'"),
    "columns of other names": Case(
        both(lambda frame: frame.rename(columns={"id": "request_id", "score": "p", "time": "ts"})),
        error=r"columns=\{'id': 'request_id', 'score': 'p', 'time': 'ts'\}",
    ),
    "columns of one name": Case(
        both(lambda frame: pd.concat([frame, frame[["time"]]], axis=1)),
        error=r"columns of the same name.*time",
    ),
    "other columns": Case(
        both(lambda frame: frame.assign(amount=1.0, note=[{"a": 1}] * N, when=moments(TIMES)))
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
    "no rows of calibration": Case(
        lambda p, labels: (p, labels, p[:0].assign(label=1)), error=r"calibration"
    ),
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
