"""The windows: each map is that of the latest labels, of the length in its name, and fitted when due."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streamcal.maps.curves import fit_curve
from streamcal.maps.logistic import IDENTITY_ROW, KNOTS
from streamcal.mixture.forecasts_c import Line
from streamcal.mixture.names import WINDOWS
from streamcal.mixture.windows import _MAX_CELLS, _PARTS, Fits, Windows
from streamcal.sketch.score_sketch import ScoreSketch
from tests.mixture.plain import expit, hinge, isotonic, logits_of
from tests.states import bytes_of

STEP = 100
NEAR = 0.015
"""How near a hinge map fitted to groups of neighbouring scores is to that of every label."""

AT = np.linspace(0.005, 0.995, 200)


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two decimals, and labels whose meaning drifts."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, 100, n) / 100.0
    rate = scores + np.linspace(0.0, 1.0, n) * (0.5 - scores)
    return scores, (rng.random(n) < rate).astype(np.int8)


def said(theta: np.ndarray) -> np.ndarray:
    """Return what a hinge map says."""
    x = logits_of(AT)
    return expit(theta[0] * x + theta[1] + theta[2:] @ np.maximum(x - KNOTS[:, np.newaxis], 0.0))


def curve_of(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return what the curve of these labels says, which need not ascend."""
    sketch = ScoreSketch(_MAX_CELLS)
    sketch.add(scores, labels)
    return fit_curve(sketch.cells, sketch.level, sketch.counts, monotone=False).map.predict_many(AT)


def check_all(line: Line | None, theta: np.ndarray, scores: np.ndarray, labels: np.ndarray) -> None:
    """Compare the maps of all labels with their definitions."""
    assert line is not None
    gaps = np.abs(line.at(logits_of(AT)) - curve_of(scores, labels))
    assert np.mean(gaps > 2e-3) < 0.03  # a map of steps may be one score off at an edge
    assert said(theta) == pytest.approx(hinge(scores, labels, AT), abs=NEAR)


@pytest.mark.slow
def test_a_window_holds_the_labels_of_its_name_and_its_maps_are_fitted_when_due() -> None:
    n = 22_000
    scores, labels = stream(n, 1)
    windows, before = Windows(), [0] * (len(WINDOWS) + 1)
    assert np.array_equal(windows.fits.hinges, np.tile(IDENTITY_ROW, (len(WINDOWS) + 1, 1)))
    assert windows.fits.isotonic == ()
    for end in range(STEP, n + 1, STEP):
        part = slice(end - STEP, end)
        windows.add(scores[part], labels[part])
        old = windows.fits
        of_all = windows.fit()
        fits, fitted = windows.fits, windows.to_state().fitted_at
        lengths = [min(end, length) // _PARTS for length in WINDOWS] + [end // (2 * _PARTS)]
        for place, (at, last, due) in enumerate(zip(fitted, before, lengths, strict=True)):
            assert at == (end if end - last >= max(1, due) else last)
            if at != end:
                assert np.array_equal(fits.hinges[place], old.hinges[place])
        assert of_all == (fitted[-1] == end)
        assert of_all or fits.curve is old.curve
        before = fitted
        if end not in (300, 3000, 9000, n):
            continue
        held = slice(0, fitted[-1])
        check_all(fits.curve, fits.hinges[-1], scores[held], labels[held])
        for place, (at, length) in enumerate(zip(fitted, WINDOWS, strict=False)):
            held = slice(max(0, at - length), at)
            expected = isotonic(scores[held], labels[held], AT)
            assert fits.isotonic[place].at(logits_of(AT)) == pytest.approx(expected, abs=1e-5)
            assert said(fits.hinges[place]) == pytest.approx(hinge(scores[held], labels[held], AT), abs=NEAR)


def test_windows_that_hold_the_same_labels_share_their_maps() -> None:
    scores, labels = stream(240, 4)
    windows = Windows()
    windows.add(scores, labels)
    windows.fit()
    assert all(line is windows.fits.isotonic[0] for line in windows.fits.isotonic)
    assert (windows.fits.hinges[: len(WINDOWS)] == windows.fits.hinges[0]).all()


def test_a_restored_window_goes_on() -> None:
    scores, labels = stream(6000, 2)
    whole = Windows()
    for end in range(STEP, 6001, STEP):
        part = slice(end - STEP, end)
        whole.add(scores[part], labels[part])
        if end < 5000:  # of the others some wait
            whole.fit()
    again = Windows()
    again.restore(whole.to_state(), whole.fits)
    for windows in (whole, again):
        windows.add(scores[:STEP], labels[:STEP])
        windows.fit()
    assert bytes_of(again) == bytes_of(whole)
    assert np.array_equal(again.fits.hinges, whole.fits.hinges)


def test_positives_are_counted_whatever_happens_to_labels() -> None:
    """As they come, with weights, and restored."""
    scores, labels = stream(2000, 5)
    windows = Windows()
    windows.add(scores[:900], labels[:900])
    windows.add(scores[900:1500], labels[900:1500], np.full(600, 512))
    assert windows.positives == labels[:1500].sum()
    windows.add(scores[1500:], labels[1500:])
    assert windows.positives == labels.sum()
    assert windows.n == 2000
    windows.fit()
    again = Windows()
    again.restore(windows.to_state(), windows.fits)
    assert again.positives == labels.sum()


def test_a_state_that_does_not_fit_its_maps_is_refused() -> None:
    windows = Windows()
    windows.add(*stream(2000, 3))
    windows.fit()
    state, fits = windows.to_state(), windows.fits
    for changed, maps in (
        ({"fitted_at": [10**9] * len(state.fitted_at)}, fits),
        ({"fitted_at": state.fitted_at[:2]}, fits),
        ({"n": state.n - 1}, fits),
        ({"positives": state.n + 1}, fits),
        ({"newest": Windows().to_state().newest}, fits),
        ({"all": ScoreSketch(64)}, fits),
        ({}, Fits((), fits.hinges, fits.curve)),
        ({}, Fits(fits.isotonic, fits.hinges, None)),
    ):
        with pytest.raises(ValueError, match=r"windows|differ"):
            Windows().restore(msgspec.structs.replace(state, **changed), maps)
    with pytest.raises(ValueError, match="windows"):
        Windows().restore(Windows().to_state(), fits)
