"""The windows: each map is that of the latest labels, of the length in its name, and fitted when due."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streamcal.errors import DamagedStateError
from streamcal.mixture.names import WINDOWS
from streamcal.mixture.windows import _PARTS, Windows
from streamcal.sketch.score_sketch import ScoreSketch
from tests.mixture.plain import isotonic, logits_of, uniform_mass

STEP = 100
AT = np.linspace(0.005, 0.995, 200)


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of two decimals, and labels whose meaning drifts."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(1, 100, n) / 100.0
    rate = scores + np.linspace(0.0, 1.0, n) * (0.5 - scores)
    return scores, (rng.random(n) < rate).astype(np.int8)


def test_a_window_holds_the_labels_of_its_name_and_its_map_is_fitted_when_due() -> None:
    n = 22_000
    scores, labels = stream(n, 1)
    windows, before = Windows(), [0] * (len(WINDOWS) + 1)
    for end in range(STEP, n + 1, STEP):
        part = slice(end - STEP, end)
        windows.add(scores[part], labels[part])
        of_all = windows.fit()
        fitted = windows.to_state().fitted_at
        lengths = [min(end, length) // _PARTS for length in WINDOWS] + [end // (2 * _PARTS)]
        for at, last, due in zip(fitted, before, lengths, strict=True):
            assert at == (end if end - last >= max(1, due) else last)
        assert of_all == (fitted[-1] == end)
        before = fitted
        if end not in (300, 3000, 9000, n):
            continue
        assert windows.uniform is not None
        held = slice(0, fitted[-1])
        expected = uniform_mass(windows.uniform.edges, scores[held], labels[held], AT)
        assert windows.uniform.at(AT) == pytest.approx(expected)
        for line, at, length in zip(windows.isotonic, fitted, WINDOWS, strict=False):
            held = slice(max(0, at - length), at)
            expected = isotonic(scores[held], labels[held], AT)
            assert line.at(logits_of(AT)) == pytest.approx(expected, abs=1e-5)


def test_a_restored_window_and_a_merged_one_go_on() -> None:
    scores, labels = stream(6000, 2)
    whole, one, other = Windows(), Windows(), Windows()
    for end in range(STEP, 6001, STEP):
        part = slice(end - STEP, end)
        for windows in (whole, one if end <= 3000 else other):
            windows.add(scores[part], labels[part])
            if end < 5000:  # of the others some wait
                windows.fit()
    again = Windows()
    again.restore(whole.to_state(), whole.isotonic, whole.uniform)
    for windows in (whole, again):
        windows.add(scores[:STEP], labels[:STEP])
        windows.fit()
    assert again.to_state() == whole.to_state()
    one.merge(other)
    assert one.n == 6000
    assert one.fit()
    assert one.to_state().fitted_at == [6000] * (len(WINDOWS) + 1)
    for line, length in zip(one.isotonic, WINDOWS, strict=True):
        expected = isotonic(scores[-length:], labels[-length:], AT)
        assert line.at(logits_of(AT)) == pytest.approx(expected, abs=1e-5)
    assert one.uniform is not None
    assert one.uniform.at(AT) == pytest.approx(uniform_mass(one.uniform.edges, scores, labels, AT))
    state = whole.to_state()
    for changed, lines, uniform in (
        ({"fitted_at": [10**9] * 4}, whole.isotonic, whole.uniform),
        ({"fitted_at": state.fitted_at[:2]}, whole.isotonic, whole.uniform),
        ({"n": state.n - 1}, whole.isotonic, whole.uniform),
        ({"newest": state.newest[4:]}, whole.isotonic, whole.uniform),
        ({"all": ScoreSketch(64).to_bytes()}, whole.isotonic, whole.uniform),
        ({}, (), whole.uniform),
        ({}, whole.isotonic, None),
    ):
        with pytest.raises(DamagedStateError):
            Windows().restore(msgspec.structs.replace(state, **changed), lines, uniform)
