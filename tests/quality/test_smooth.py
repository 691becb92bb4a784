"""Smooth calibration error, against the integral by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.quality.smooth import smooth_calibration_error
from streamcal.values import Floats

POINTS = 4000


def by_definition(forecasts: Floats, residuals: Floats) -> float:
    """Return smECE with the reflected kernel summed at each point, to 1e-4."""
    at = (np.arange(POINTS) + 0.5) / POINTS

    def smoothed(bandwidth: float) -> float:
        found = np.zeros(POINTS)
        for period in range(-3, 4):
            for centres in (2 * period + forecasts, 2 * period - forecasts):
                apart = (at[:, None] - centres) / bandwidth
                found += np.exp(-0.5 * apart**2) @ residuals / (bandwidth * np.sqrt(2.0 * np.pi))
        return float(np.abs(found).mean())

    low, high = 0.0, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2.0
        low, high = (middle, high) if smoothed(middle) > middle else (low, middle)
    return (low + high) / 2.0


def test_it_is_the_integral_of_its_definition() -> None:
    rng = np.random.default_rng(1)
    forecasts = rng.beta(0.3, 0.3, 150)
    residuals = ((rng.random(150) < forecasts**1.3) - forecasts) / 150
    found = smooth_calibration_error(forecasts, residuals)
    assert found == pytest.approx(by_definition(forecasts, residuals), abs=2e-4)


def test_values_are_those_of_relplot() -> None:
    """Its version 1.0.3 printed them, of residuals on a grid of its own."""
    rng = np.random.default_rng(2)
    forecasts = rng.choice([0.1, 0.3, 0.5, 0.8], 3000)
    labels = rng.random(3000) < forecasts**1.2
    assert smooth_calibration_error(forecasts, (labels - forecasts) / 3000) == pytest.approx(
        0.04536042816336418, rel=0.01
    )
