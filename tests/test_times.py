"""Event times: whatever a time is given as means the same moment, or is refused with its index."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamcal import Recalibrator
from streamcal.times import as_times, check_time, show_duration, show_time

TEXTS = ["2023-11-14T22:13:20.500", "2024-01-01T00:00:00.000"]
SECONDS = [1_700_000_000.5, 1_704_067_200.0]
INDEX = pd.DatetimeIndex(TEXTS)
AWARE = INDEX.tz_localize("UTC")
MOMENTS = [moment.to_pydatetime() for moment in INDEX]

COLUMNS: dict[str, Any] = {
    "seconds": SECONDS,
    "milliseconds": [time * 1e3 for time in SECONDS],
    "microseconds": np.array([time * 1e6 for time in SECONDS], np.int64),
    "nanoseconds": np.array([time * 1e9 for time in SECONDS], np.int64),
    "ISO 8601 text": TEXTS,
    "ISO 8601 text with a zone": ["2023-11-14T23:13:20.500+01:00", "2024-01-01T00:00:00Z"],
    "text in an array": np.array(TEXTS),
    "datetimes": MOMENTS,
    "aware datetimes": [moment.astimezone(dt.timezone(dt.timedelta(hours=5))) for moment in AWARE],
    "DatetimeIndex": INDEX,
    "aware DatetimeIndex": AWARE.tz_convert("Europe/Berlin"),
    "Series": pd.Series(INDEX),
    "aware Series": pd.Series(AWARE.tz_convert("America/New_York")),
    "datetime64[ms]": np.array(TEXTS, "datetime64[ms]"),
    "datetime64[us]": np.array(TEXTS, "datetime64[us]"),
    "datetime64[ns]": np.array(TEXTS, "datetime64[ns]"),
    "datetime64[ps]": np.array(["1970-01-01"] * 2, "datetime64[ps]"),
    "datetime64[100ms]": np.array(TEXTS, "datetime64[100ms]"),
    "polars": pl.Series(MOMENTS),
    "polars, aware": pl.Series(MOMENTS).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
    "polars, milliseconds": pl.Series(MOMENTS).dt.cast_time_unit("ms"),
    "Arrow": pa.array(MOMENTS),
    "a mix of kinds": [SECONDS[0], TEXTS[1]],
}


@pytest.mark.parametrize("times", COLUMNS.values(), ids=COLUMNS.keys())
def test_a_column_of_times(times: Any) -> None:
    expected = [0.0, 0.0] if getattr(times, "dtype", None) == "datetime64[ps]" else SECONDS
    np.testing.assert_allclose(as_times(times, 2), expected, rtol=0, atol=1e-6)


MIDNIGHT = 1_704_067_200.0


@pytest.mark.parametrize(
    "time",
    [
        MIDNIGHT,
        int(MIDNIGHT * 1000),
        np.float64(MIDNIGHT),
        np.int64(MIDNIGHT),
        "2024-01-01",
        "1704067200",
        "1.7040672e9",
        dt.date(2024, 1, 1),
        dt.datetime(2024, 1, 1),  # naive: UTC
        pd.Timestamp("2024-01-01"),
        np.datetime64("2024-01-01"),
        np.datetime64("2024-01"),
    ],
    ids=repr,
)
def test_a_single_time(time: Any) -> None:
    assert check_time(time) == MIDNIGHT
    assert as_times(time, 3).tolist() == [MIDNIGHT] * 3


BAD: dict[str, tuple[Any, int]] = {
    "None": ([SECONDS[0], None], 1),
    "NaN": ([SECONDS[0], float("nan")], 1),
    "inf": ([float("inf"), SECONDS[0]], 0),
    "NaT in a Series": (pd.Series([pd.NaT, INDEX[0]]), 0),
    "NaT in an array": (np.array(["2024-01-01", "NaT"], "datetime64[ns]"), 1),
    "NaT among objects": ([INDEX[0], pd.NaT], 1),
    "null of polars": (pl.Series([1.7e9, None]), 1),
    "null date of polars": (pl.Series([MOMENTS[0], None]), 1),
    "true": ([True, False], 0),
    "durations": (np.array([1, 2], "timedelta64[s]"), 0),
    "words": (["2024-01-01", "soon"], 1),
    "a number beyond any date": ([1e25, 1e25], 0),
    "a date beyond the year 5138": (["2024-01-01", "9999-12-31"], 1),
    "such a date in an array": (np.array(["2024-01-01", "9999-12-31"], "datetime64[s]"), 1),
    "a number of 400 digits": ([1.7e9, 10**400], 1),
    "one in milliseconds": ([1.7e9] * 5 + [1.7e12], 5),
    "one in seconds": ([1.7e9] + [1.7e12] * 5, 0),
}


@pytest.mark.parametrize(("times", "index"), BAD.values(), ids=BAD.keys())
def test_what_is_no_time_is_refused_with_its_index(times: Any, index: int) -> None:
    with pytest.raises(ValueError, match=rf"^index {index}: .* time"):
        as_times(times, len(times))
    engine = Recalibrator(window=dt.timedelta(days=1))
    before = engine.to_bytes()
    with pytest.raises(ValueError, match=f"^index {index}: "):
        engine.learn_many([0.5] * len(times), [1] * len(times), times=times)
    assert engine.to_bytes() == before


def test_as_many_times_as_scores() -> None:
    with pytest.raises(ValueError, match=re.escape("2 scores but times of shape (3,)")):
        as_times([1.0, 2.0, 3.0], 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["DatetimeIndex", "datetime64[ns]", "polars", "ISO 8601 text", "milliseconds"]
)
def test_datetimes_teach_the_same_as_seconds(kind: str) -> None:
    """Scores of a year, the last month of which alone counts: datetime64 was once read as seconds."""
    rng = np.random.default_rng(1)
    scores = rng.random(60)
    labels = rng.random(60) < scores**2
    index = pd.date_range("2023-01-01", periods=60, freq="150h")
    seconds = (index - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    times: Any = {
        "DatetimeIndex": index,
        "datetime64[ns]": index.to_numpy().astype("datetime64[ns]"),
        "polars": pl.Series(list(index.to_pydatetime())),
        "ISO 8601 text": [moment.isoformat() for moment in index],
        "milliseconds": seconds.to_numpy() * 1e3,
    }[kind]
    engines = [Recalibrator(mode="source", window=dt.timedelta(days=30)) for _ in range(3)]
    engines[0].learn_many(scores, labels, "source", times=seconds)
    engines[1].learn_many(scores, labels, "source", times=times)
    for score, label, time in zip(scores, labels, list(times), strict=True):
        engines[2].learn_one(score, label, "source", time=time)
    assert engines[0].to_bytes() == engines[1].to_bytes() == engines[2].to_bytes()


@pytest.mark.parametrize("seconds", [0.0, 1e9, -1e11, 1e12, 1e300, float("inf"), float("-inf"), float("nan")])
def test_any_number_can_be_shown(seconds: float) -> None:
    assert show_time(seconds)
    assert show_duration(seconds)
