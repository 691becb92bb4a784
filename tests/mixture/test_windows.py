"""The windows: each map is that of the latest labels, of the length in its name, and fitted when due."""

from __future__ import annotations

import numpy as np
import pytest

from streamcal.maps.curves import fit_curve
from streamcal.mixture.candidates import CANDIDATES, WINDOWS
from streamcal.mixture.windows import _MAX_CELLS, _PARTS, Windows
from streamcal.sketch.score_sketch import ScoreSketch
from tests.mixture.plain import hinge, isotonic, logits_of

STEP = 100
NEAR = 0.015
"""How near a hinge map fitted to groups of neighbouring scores is to that of every label."""

AT = np.linspace(0.005, 0.995, 200)
FITTED = [row for row in CANDIDATES if row.fit is not None]
OF_ALL = np.array([row.memory is None for row in FITTED])


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two decimals, and labels whose meaning drifts."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, 100, n) / 100.0
    rate = scores + np.linspace(0.0, 1.0, n) * (0.5 - scores)
    return scores, (rng.random(n) < rate).astype(np.int8)


def curve_of(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return what the curve of these labels says, which need not ascend."""
    sketch = ScoreSketch(_MAX_CELLS)
    sketch.add(scores, labels)
    return fit_curve(sketch.cells, sketch.level, sketch.counts, monotone=False).map.predict_many(AT)


@pytest.mark.slow
def test_a_window_holds_the_labels_of_its_name_and_its_maps_are_fitted_when_due() -> None:
    n = 22_000
    scores, labels = stream(n, 1)
    windows, before = Windows.begun(), [0] * len(FITTED)
    assert windows.lines == (None,) * len(FITTED)
    for end in range(STEP, n + 1, STEP):
        part = slice(end - STEP, end)
        windows.add(scores[part], labels[part])
        old = windows.lines
        of_all = windows.fit()
        fitted = windows.fitted_at
        parts = [2 * _PARTS if row.memory is None else _PARTS for row in FITTED]
        lengths = [min(end, row.memory or end) for row in FITTED]
        due = np.array(end) - before >= np.maximum(1, np.array(lengths) // np.array(parts))
        if end > WINDOWS[0] and due[OF_ALL].any() and due[~OF_ALL].any():  # they take turns
            last_of_all, last_of_windows = (max(np.array(before)[of]) for of in (OF_ALL, ~OF_ALL))
            due &= OF_ALL if last_of_all <= last_of_windows else ~OF_ALL
        for place, (is_due, at, last) in enumerate(zip(due, fitted, before, strict=True)):
            assert at == (end if is_due else last)
            assert at == end or windows.lines[place] is old[place]
        assert of_all == due[OF_ALL].any()
        before = fitted
        if end not in (300, 3000, 9000, n):
            continue
        for row, at, line in zip(FITTED, fitted, windows.lines, strict=True):
            assert line is not None
            held, said = slice(max(0, at - (row.memory or at)), at), line.at(logits_of(AT))
            if "hinge" in row.name:
                assert said == pytest.approx(hinge(scores[held], labels[held], AT), abs=NEAR)
            elif "isotonic" in row.name:
                assert said == pytest.approx(isotonic(scores[held], labels[held], AT), abs=1e-5)
            else:
                gaps = np.abs(said - curve_of(scores[held], labels[held]))
                assert np.mean(gaps > 2e-3) < 0.03  # a map of steps may be one score off at an edge
