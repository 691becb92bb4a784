"""`Recalibrator.step` takes what files may hold, refuses the rest, and its state can always be kept."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import msgspec
import pandas as pd
import pytest

from streamcal import LabelEvent, LabelledEvent, PredictionEvent, Recalibrator
from streamcal.engine.emissions import Rejected

NOW = 1_700_000_000.0

GOOD: dict[str, Any] = {
    "prediction": PredictionEvent("a", 0.5, NOW),
    "label": LabelEvent("a", 1, NOW),
    "both": LabelledEvent(0.5, 1, "a", NOW),
}
FIELDS: dict[str, list[Any]] = {
    "id": ["", "ü" * 257, "\ud800", 5.0],
    "time": [math.nan, 1e25, "soon", True, pd.NaT],
    "key": [5, "x" * 513],
    "domain": ["src", None],
    "score": [math.nan, 1.5, "0.5", True],
    "label": [2, 0.5, "1"],
}
BAD = [
    pytest.param(event, name, value, id=f"{kind}, {name}={value!r:.30}")
    for kind, event in GOOD.items()
    for name, values in FIELDS.items()
    if hasattr(event, name)
    for value in (values if kind == "both" else values[-1:])
]


@pytest.mark.parametrize(("event", "name", "value"), BAD)
def test_a_bad_field_is_refused_and_nothing_changes(event: Any, name: str, value: Any) -> None:
    engine = Recalibrator()
    engine.step(PredictionEvent("before", 0.5, NOW))
    before = engine.to_bytes()
    bad = msgspec.structs.replace(event, **{name: value})
    with pytest.raises(ValueError, match=name):
        engine.step(bad)
    assert engine.to_bytes() == before


@pytest.mark.parametrize(
    "moment",
    [
        dt.datetime(2023, 11, 14, 23, 13, 20, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        "2023-11-14T22:13:20Z",
    ],
    ids=repr,
)
def test_a_time_may_be_a_datetime(moment: Any) -> None:
    engine = Recalibrator()
    engine.step(PredictionEvent("a", 0.5, moment))
    assert engine.join.time == NOW


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (4_070_908_800.0, "raise max_jump of [join]"),
        ((NOW + 5) * 1e3, "is in milliseconds, the others of its input are in seconds"),
    ],
)
def test_a_time_far_beyond_the_others_is_rejected(time: float, reason: str) -> None:
    engine = Recalibrator()
    for i in range(5):
        engine.step(PredictionEvent(f"{i}", 0.5, NOW + i))
    engine = Recalibrator.from_bytes(engine.to_bytes())
    odd = PredictionEvent("odd", 0.5, time)
    (rejected,) = engine.step(odd)
    assert isinstance(rejected, Rejected)
    assert rejected.event == odd
    assert reason in rejected.reason
    assert (engine.join.time, engine.join.pending) == (NOW + 4, 5)


WINDOW = dt.timedelta(days=10)


@pytest.mark.parametrize("event", [LabelEvent("a", 1), LabelledEvent(0.5, 1, "b")])
def test_a_window_of_event_time_needs_the_time_of_every_label(event: Any) -> None:
    engine = Recalibrator(window=WINDOW)
    engine.step(PredictionEvent("a", 0.5))
    before = engine.to_bytes()
    with pytest.raises(ValueError, match="the window 10 days, 0:00:00 is a stretch of event time"):
        engine.step(event)
    assert engine.to_bytes() == before
