"""Panes of predictions: cells and panes stay few, and changes are located."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from streamcal.priors.history import BLOCK, MAX_CELLS, History


def filled(n: int, seed: int = 0) -> tuple[History, np.ndarray]:
    scores = np.random.default_rng(seed).random(n)
    history = History()
    for start in range(0, n, BLOCK):
        history.observe(scores[start : start + BLOCK])
        history.compact()
    return history, scores


def test_cells_and_panes_are_few() -> None:
    """50,000 scores that differ, from 10⁻⁹ to 1 − 10⁻⁹."""
    history = History()
    scores = 1.0 / (1.0 + np.exp(np.random.default_rng(11).normal(0.0, 8.0, 50_000)))
    for start in range(0, len(scores), BLOCK):
        history.observe(scores[start : start + BLOCK])
        history.compact()
        assert len(history.cells) <= MAX_CELLS
        assert len(history.sizes) < 64


def test_changes_are_located() -> None:
    """1,024 scores near 0, then 1,024 near 1: the cut is at the change, not beyond."""
    history = History()
    history.observe(np.repeat([0.1, 0.9], 1024))
    assert history.change(np.array([0.2, 0.7])) == 1024 // 16
    assert history.change(np.array([0.2, 0.2])) == 0
    history.drop(1024 // 16)
    assert history.n == 1024
    assert history.change(np.array([0.2, 0.7])) == 0


def test_a_state_of_other_counts_is_refused() -> None:
    other, _ = filled(200)
    for name in ("cells", "counts"):
        damaged = getattr(other, name).ravel()[:-1]
        with pytest.raises(ValueError, match=r"histor|reshape"):
            msgspec.structs.replace(other, **{name: damaged})
    with pytest.raises(ValueError, match="do not add up"):
        msgspec.structs.replace(other, observed=150)
