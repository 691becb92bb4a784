"""The moments that the flights carry, and the ways that benchmarks.late_and_rare compares."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import late_and_rare
from benchmarks.streams import read_flights

HOUR = 3_600.0

pytestmark = pytest.mark.slow


def test_a_flight_is_overdue_before_it_lands_late() -> None:
    predicted = {row["id"]: row["time"] for row in read_flights("predictions")}
    landed = {row["id"]: row["time"] for row in read_flights("labels") if row["label"] == 1}
    overdue = {row["id"]: row["time"] for row in read_flights("overdue") if row["label"] == 1}
    assert overdue.keys() == landed.keys()
    assert all(predicted[each] < time < landed[each] for each, time in overdue.items())
    assert max(time - predicted[each] for each, time in overdue.items()) < 12 * HOUR
    stream = late_and_rare.overdue()
    assert (np.isfinite(stream.told) == (stream.labels == 1.0)).all()
