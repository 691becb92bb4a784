"""Panes of predictions: a label counts in the pane of its prediction; cells and panes stay few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.priors.history import MAX_CELLS, PredictionHistory
from streamcal.priors.tracker import BLOCK
from tests.states import bytes_of

WINDOWS = (None, 5, 300, "adwin")


def filled(window: Any, n: int, seed: int = 0) -> tuple[PredictionHistory, np.ndarray]:
    scores = np.random.default_rng(seed).random(n)
    history = PredictionHistory(window)
    for start in range(0, n, BLOCK):
        history.observe(scores[start : start + BLOCK])
        history.compact()
    return history, scores


@pytest.mark.parametrize("window", [None, "adwin"])
@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, 999), max_size=60))
def test_labels_count_in_the_pane_of_their_prediction(window: Any, labelled: set[int]) -> None:
    history, scores = filled(window, 1000)
    seen = np.array(sorted(labelled), np.int64)
    history.settle(seen, np.ones(len(seen), np.int8), scores[seen])
    pane_of = np.searchsorted(np.cumsum(history.scores), seen, side="right")
    assert history.labels[1].tolist() == np.bincount(pane_of, minlength=len(history.scores)).tolist()
    assert history.label_counts == (0, len(seen))
    assert history.unlabelled.sum() == 1000 - len(seen)
    assert history.predictions == 1000


@pytest.mark.parametrize("window", [None, "adwin"])
def test_so_they_do_after_a_merge(window: Any) -> None:
    one, scores = filled(window, 640)
    two, later = filled(window, 320, 1)
    one.merge(two)
    everything = np.concatenate((scores, later))
    seen = np.array([3, 639, 640, 959])
    one.settle(seen, np.array([0, 0, 1, 1], np.int8), everything[seen])
    pane_of = np.searchsorted(np.cumsum(one.scores), seen, side="right")
    for label, panes in ((0, pane_of[:2]), (1, pane_of[2:])):
        assert one.labels[label].tolist() == np.bincount(panes, minlength=len(one.scores)).tolist()


def test_labels_of_forgotten_predictions_do_not_count() -> None:
    history, scores = filled(300, 1000)
    history.settle(np.array([10]), np.array([1], np.int8), scores[[10]])
    assert history.label_counts == (0, 0)
    assert history.unlabelled.sum() == history.predictions


@pytest.mark.parametrize("window", [5, 300, 1000])
def test_a_window_forgets(window: int) -> None:
    history, _ = filled(window, 4096)
    assert window <= history.predictions <= window + window // 16 + 1
    assert history.observed == 4096


@pytest.mark.parametrize("window", WINDOWS)
def test_cells_and_panes_are_few(window: Any) -> None:
    """50,000 scores that differ, from 10⁻⁹ to 1 − 10⁻⁹."""
    history = PredictionHistory(window)
    scores = 1.0 / (1.0 + np.exp(np.random.default_rng(11).normal(0.0, 8.0, 50_000)))
    for start in range(0, len(scores), BLOCK):
        history.observe(scores[start : start + BLOCK])
        history.compact()
        assert len(history.cells) <= MAX_CELLS
        assert len(history.scores) < 64


@settings(deadline=None)
@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 10**6))
def test_a_merge_adds_the_cells(here: int, there: int, seed: int) -> None:
    """On grids of different levels: what is counted is what one history would hold on the coarser grid."""
    one, scores = filled(None, here, seed)
    two, later = filled(None, there, seed + 1)
    one.merge(two)
    whole = PredictionHistory(None)
    whole.observe(np.concatenate((scores, later)))
    assert one.observed == one.predictions == here + there
    assert one.level >= two.level
    assert one.unlabelled.sum() == here + there
    if one.level == whole.level:
        assert one.cells.tolist() == whole.cells.tolist()
        assert one.unlabelled.tolist() == whole.unlabelled.tolist()


def test_changes_are_located() -> None:
    """1,024 labels 0 and 1,024 labels 1; scores near 0 and near 1: the cut is at the change, not beyond."""
    labels = PredictionHistory("adwin")
    labels.add_labels(np.repeat(np.array([0, 1], np.int8), 1024))
    cut = labels.label_change()
    assert labels.labels[:, :cut].sum(axis=1).tolist() == [1024, 0]
    scores = PredictionHistory("adwin")
    scores.observe(np.repeat([0.1, 0.9], 1024))
    assert scores.score_change(np.array([0.2, 0.7])) == 1024 // 16
    assert scores.score_change(np.array([0.2, 0.2])) == 0
    scores.drop(1024 // 16)
    assert scores.predictions == 1024
    assert scores.score_change(np.array([0.2, 0.7])) == 0


@pytest.mark.parametrize("window", WINDOWS)
def test_a_restored_history_is_the_same(window: Any) -> None:
    history, scores = filled(window, 700)
    history.settle(np.arange(600, 650), np.ones(50, np.int8), scores[600:650])
    restored = PredictionHistory(window)
    restored.restore(history.to_state())
    assert bytes_of(restored) == bytes_of(history)
    for each in (history, restored):
        each.observe(scores)
        each.add_labels(np.zeros(70, np.int8))
        each.compact()
    assert bytes_of(restored) == bytes_of(history)


def test_a_state_of_other_counts_is_refused() -> None:
    history, _ = filled(None, 100)
    other, _ = filled(None, 200)
    state = other.to_state()
    for name in ("cells", "panes", "counts"):
        damaged = other.to_state()
        setattr(damaged, name, getattr(state, name)[:-1])
        with pytest.raises(ValueError, match=r"histor|bytes|reshape"):
            history.restore(damaged)
    state.observed = 150
    with pytest.raises(ValueError, match="do not add up"):
        history.restore(state)
