"""Panes of predictions: cells and panes stay few, and changes are located."""

from __future__ import annotations

import numpy as np

from streamcal.priors.history import BLOCK, MAX_CELLS, History


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
