"""benchmarks/late_flights.py: the moments that the flights carry, and the ways that it compares."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from streamcal.maps.platt import apply_platt, logit

ROOT = Path(__file__).parents[2]
HOUR = 3_600.0


@pytest.fixture(scope="module", name="late")
def importer() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        return importlib.import_module("late_flights")
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


@pytest.mark.slow
def test_a_flight_is_overdue_before_it_lands_late(late: ModuleType) -> None:
    predicted = {row["id"]: row["time"] for row in late.rows("predictions")}
    landed = {row["id"]: row["time"] for row in late.rows("labels") if row["label"] == 1}
    overdue = {row["id"]: row["time"] for row in late.rows("overdue") if row["label"] == 1}
    assert overdue.keys() == landed.keys()
    assert all(predicted[each] < time < landed[each] for each, time in overdue.items())
    assert max(time - predicted[each] for each, time in overdue.items()) < 12 * HOUR
    stream = late.overdue()
    assert (np.isfinite(stream.told) == (stream.labels == 1.0)).all()


def made_up(late: ModuleType, n: int = 400) -> object:
    rng = np.random.default_rng(1)
    times = np.sort(rng.random(n) * 40 * HOUR)
    scores, labels = rng.random(n), (rng.random(n) < 0.4).astype(float)
    told = np.where(labels == 1.0, times + rng.random(n) * 8 * HOUR, np.inf)
    return late.Stream(np.full(n, 5), scores, times, labels, told, 8 * HOUR)


def test_each_way_counts_what_it_says(late: ModuleType) -> None:
    stream = made_up(late)
    now = 30 * HOUR
    age = now - stream.times
    known = stream.told <= now
    for way, seen, ones in (
        ("at once", age > 0, stream.labels == 1.0),
        ("negative until told", age > 0, known),
        ("drop", age > 0, known),
        ("wait", age > 8 * HOUR, stream.labels == 1.0),
    ):
        (whole, positive), (recent, latest) = late.counted(stream, way, now)
        youngest = 8 * HOUR if way == "wait" else 0.0
        places = np.arange(len(stream.times))
        assert places[whole].tolist() == np.flatnonzero(seen).tolist()
        assert positive.tolist() == ones[seen].tolist()
        lately = (age > youngest) & (age <= youngest + 8 * HOUR)
        assert places[recent].tolist() == np.flatnonzero(lately).tolist()
        assert latest.tolist() == ones[lately].tolist()


def test_a_forecast_knows_nothing_of_its_future(late: ModuleType) -> None:
    """Of a stream that ends earlier, the forecasts are the same up to there, in every way.

    But for the last digits: the fit adds up over more cells of the longer stream, though these are empty.
    """
    stream = made_up(late)
    cut = int(stream.times.searchsorted(stream.times[0] + 24 * HOUR))
    short = stream._replace(
        **{name: getattr(stream, name)[:cut] for name in ("months", "scores", "times", "labels", "told")}
    )
    for way in late.WAYS:
        whole, part = late.forecasts(stream, way), late.forecasts(short, way)
        known = stream.times[:cut] < stream.times[0] + 24 * HOUR
        assert whole[:, :cut][:, known] == pytest.approx(part[:, known], rel=0.0, abs=1e-12), way
        assert np.array_equal(part[0, :10], stream.scores[:10]), way
    (_, maps) = next(iter(late.fits(stream, "at once")))
    first = stream.times.searchsorted([stream.times[0] + late.STEP, stream.times[0] + 2 * late.STEP])
    part = slice(*first.tolist())
    expected = apply_platt(*map(np.array, maps[0]), logit(stream.scores[part]))
    assert np.array_equal(late.forecasts(stream, "at once")[0, part], expected)
