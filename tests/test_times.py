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

from streamcal import JoinConfig, Recalibrator
from streamcal.base.times import as_times, check_time, duration, show_duration, show_time

TEXTS = ["2023-11-14T22:13:20.500", "2024-01-01T00:00:00.000"]
SECONDS = [1_700_000_000.5, 1_704_067_200.0]
INDEX = pd.DatetimeIndex(TEXTS)
AWARE = INDEX.tz_localize("UTC")
MOMENTS = [moment.to_pydatetime() for moment in INDEX]

COLUMNS: dict[str, Any] = {
    "seconds": SECONDS,
    "milliseconds": [time * 1e3 for time in SECONDS],
    "ISO 8601 text": TEXTS,
    "datetimes": MOMENTS,
    "DatetimeIndex": INDEX,
    "aware Series": pd.Series(AWARE.tz_convert("America/New_York")),
    "datetime64[ns]": np.array(TEXTS, "datetime64[ns]"),
    "datetime64[100ms]": np.array(TEXTS, "datetime64[100ms]"),
    "polars, aware": pl.Series(MOMENTS).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
    "Arrow": pa.array(MOMENTS),
    "a mix of kinds": [SECONDS[0], TEXTS[1]],
}


@pytest.mark.parametrize("times", COLUMNS.values(), ids=COLUMNS.keys())
def test_a_column_of_times(times: Any) -> None:
    np.testing.assert_allclose(as_times(times, 2), SECONDS, rtol=0, atol=1e-6)


MIDNIGHT = 1_704_067_200.0


@pytest.mark.parametrize(
    "time",
    [
        int(MIDNIGHT * 1000),
        np.int64(MIDNIGHT),
        "1704067200",
        dt.date(2024, 1, 1),
        dt.datetime(2024, 1, 1),
        np.datetime64("2024-01"),
    ],
    ids=repr,
)
def test_a_single_time(time: Any) -> None:
    assert check_time(time) == MIDNIGHT
    assert as_times(time, 3).tolist() == [MIDNIGHT] * 3


BAD: dict[str, tuple[Any, int]] = {
    "None": ([SECONDS[0], None], 1),
    "NaT in a Series": (pd.Series([pd.NaT, INDEX[0]]), 0),
    "null of polars": (pl.Series([1.7e9, None]), 1),
    "true": ([True, False], 0),
    "words": (["2024-01-01", "soon"], 1),
    "a date beyond the year 5138": (["2024-01-01", "9999-12-31"], 1),
    "a number of 400 digits": ([1.7e9, 10**400], 1),
    "one in milliseconds": ([1.7e9] * 5 + [1.7e12], 5),
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
@pytest.mark.parametrize("kind", ["DatetimeIndex", "milliseconds"])
def test_datetimes_teach_the_same_as_seconds(kind: str) -> None:
    """Scores of a year, the last month of which alone counts: datetime64 was once read as seconds."""
    rng = np.random.default_rng(1)
    scores = rng.random(60)
    labels = rng.random(60) < scores**2
    index = pd.date_range("2023-01-01", periods=60, freq="150h")
    seconds = (index - pd.Timestamp(0)) / pd.Timedelta(seconds=1)
    times: Any = {
        "DatetimeIndex": index,
        "milliseconds": seconds.to_numpy() * 1e3,
    }[kind]
    engines = [Recalibrator(mode="source", window=dt.timedelta(days=30)) for _ in range(3)]
    engines[0].learn_many(scores, labels, "source", times=seconds)
    engines[1].learn_many(scores, labels, "source", times=times)
    for score, label, time in zip(scores, labels, list(times), strict=True):
        engines[2].learn_one(score, label, "source", time=time)
    assert engines[0].to_bytes() == engines[1].to_bytes() == engines[2].to_bytes()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("1.5h", 5_400.0),
        ("30 min", 1_800.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("PT1M", 60.0),
    ],
)
def test_a_duration_is_one_text_everywhere(text: str, seconds: float) -> None:
    length = dt.timedelta(seconds=seconds)
    assert duration("every", text) == JoinConfig(label_ttl=text).label_ttl == seconds  # type: ignore[arg-type]
    assert Recalibrator(mode="target", window=text).config.window == length  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["90", "2x", "-2d", "1e3s", "s", "", "99999999999d", "1d2"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="'30min', '12h' or"):
        duration("every", text)


@pytest.mark.parametrize("seconds", [-1e11, 1e300, float("nan")])
def test_any_number_can_be_shown(seconds: float) -> None:
    assert show_time(seconds)
    assert show_duration(seconds)
