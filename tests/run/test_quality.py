"""The figures of forecasts: as by definition, the same however labels come, and kept."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcal import DamagedStateError
from streamcal.run.quality import ECE_BINS, ForecastQuality, ForecastQualityState

FORECASTS = st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 1)), min_size=1, max_size=60)


def rated(pairs: list[tuple[float, int]]) -> ForecastQuality:
    made = ForecastQuality()
    made.add([forecast for forecast, _ in pairs], [label for _, label in pairs])
    return made


@given(FORECASTS, st.integers(0, 60), st.integers(0, 60))
def test_it_does_not_depend_on_how_labels_come_in_parts(
    pairs: list[tuple[float, int]], first: int, second: int
) -> None:
    """Nor on whether it was stored between them: equal to the last bit."""
    whole, cuts = rated(pairs), sorted((first, second))
    parts = ForecastQuality()
    for part in (pairs[: cuts[0]], pairs[cuts[0] : cuts[1]], pairs[cuts[1] :]):
        parts.add([forecast for forecast, _ in part], [label for _, label in part])
        stored = msgspec.json.encode(parts.state)
        parts = ForecastQuality.restore(msgspec.json.decode(stored, type=ForecastQualityState))
    assert msgspec.json.encode(parts.state) == msgspec.json.encode(whole.state)
    assert (parts.log_loss, parts.calibration_error) == (whole.log_loss, whole.calibration_error)


@given(FORECASTS)
def test_it_is_what_the_definitions_say(pairs: list[tuple[float, int]]) -> None:
    forecasts, labels = np.array(pairs).T
    quality = rated(pairs)
    likelihood = np.maximum(np.where(labels == 1.0, forecasts, 1.0 - forecasts), 1e-15)
    assert quality.log_loss == pytest.approx(np.mean(-np.log(likelihood)))
    bins = np.minimum(np.floor(forecasts * ECE_BINS), ECE_BINS - 1)
    gaps = [
        np.mean(bins == k) * abs(np.mean(forecasts[bins == k]) - np.mean(labels[bins == k]))
        for k in np.unique(bins)
    ]
    assert quality.calibration_error == pytest.approx(sum(gaps), abs=1e-12)
    assert (quality.labels, quality.positives) == (len(labels), labels.sum())


def test_the_diagram_has_bins_of_equal_mass_with_exact_rates() -> None:
    rng = np.random.default_rng(0)
    forecasts = rng.beta(0.5, 20.0, 30_000)  # most below 0.05, where bins of equal width would be one
    labels = (rng.random(30_000) < forecasts / 2).astype(int)
    made = ForecastQuality()
    made.add(forecasts.tolist(), labels.tolist())
    means, rates = made.diagram(10)
    assert len(means) == len(rates) == 10
    by_rank = np.argsort(forecasts)
    assert means == pytest.approx(forecasts[by_rank].reshape(10, -1).mean(axis=1), rel=0.05)
    assert rates == pytest.approx(labels[by_rank].reshape(10, -1).mean(axis=1), abs=0.005)


def test_without_labels_there_is_no_figure() -> None:
    quality = ForecastQuality()
    assert (quality.labels, quality.log_loss, quality.calibration_error) == (0, None, None)


def test_what_is_no_state_is_refused() -> None:
    good = rated([(0.5, 1)]).state
    for bad in (
        ForecastQualityState(good.log_losses, [[1.0]], good.sketch),
        ForecastQualityState(good.log_losses, good.bins, b"no sketch"),
    ):
        with pytest.raises(DamagedStateError):
            ForecastQuality.restore(bad)
