"""Panes of predictions: changes are located."""

from __future__ import annotations

import numpy as np

from streamcal.mixture.history import History


def test_changes_are_located() -> None:
    """1,024 scores near 0, then 1,024 near 1: the cut is at the change, not beyond."""
    history = History()
    history.observe(np.repeat([0.1, 0.9], 1024))
    assert history.change(np.array([0.2, 0.7])) == 1024 // 16
    assert history.change(np.array([0.2, 0.2])) == 0
    history.drop(1024 // 16)
    assert history.n == 1024
    assert history.change(np.array([0.2, 0.7])) == 0
