"""Nested windows: each holds exactly the latest labels that it claims to hold, on the grid of a sketch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcal.errors import DamagedStateError
from streamcal.sketch import grid
from streamcal.sketch.nested_windows import STEPS_PER_WINDOW, NestedWindows, WindowState
from streamcal.sketch.score_sketch import ScoreSketch

LENGTHS = (50, 100, 800)


def cells(scores: np.ndarray) -> np.ndarray:
    return grid.cells_of(scores, grid.MIN_LEVEL)


def stream(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = 1.0 / (1.0 + np.exp(-rng.normal(0.0, 4.0, n)))
    return scores, (rng.random(n) < scores).astype(np.int8)


def check(counts: NestedWindows, scores: np.ndarray, labels: np.ndarray, n: int) -> None:
    """Compare each window with a new sketch of only its labels."""
    every = ScoreSketch(64)
    every.add(scores[:n], labels[:n])
    assert (counts.level, counts.n) == (every.level, n)
    assert np.array_equal(counts.cells, every.cells)
    assert np.array_equal(counts.counts, every.counts)
    for length in LENGTHS:
        held = counts.held(length)
        fresh = ScoreSketch(64)
        fresh.add(scores[n - held : n], labels[n - held : n])
        fresh = fresh.at_level(counts.level)
        window = counts.window(length)
        occupied = window.any(axis=0)
        assert np.array_equal(counts.cells[occupied], fresh.cells)
        assert np.array_equal(window[:, occupied], fresh.counts)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=60), st.integers(0, 1000))
def test_windows_hold_exactly_the_labels_they_claim(steps: list[int], seed: int) -> None:
    scores, labels = stream(sum(steps), seed)
    counts, n = NestedWindows(LENGTHS, 64), 0
    for step in steps:
        counts.add(cells(scores[n : n + step]), labels[n : n + step])
        n += step
        counts.mark()
        for length in LENGTHS:
            held = counts.held(length)
            if n < length:
                assert held == n
            else:
                # The gap before the nearest boundary is at most an eighth of the window and one step.
                assert length <= held <= length + length // STEPS_PER_WINDOW + max(steps)
    check(counts, scores, labels, n)


def test_boundaries_are_thinned_but_never_too_far_apart() -> None:
    scores, labels = stream(6000, 1)
    counts = NestedWindows(LENGTHS, 64)
    for n in range(6000):
        counts.add(cells(scores[n : n + 1]), labels[n : n + 1])
        counts.mark()
        if n % 997 == 0 or n > 5990:
            check(counts, scores, labels, n + 1)
            for length in LENGTHS:
                held = counts.held(length)
                assert held == n + 1 if n < length else length <= held <= length + length // STEPS_PER_WINDOW
    # For each length twice the steps, for a gap on either side of a boundary; and boundaries not yet thinned.
    assert len(counts.to_state().marks) <= 2 * 3 * STEPS_PER_WINDOW + 16


def test_merge_adds_the_other_labels_as_later_ones() -> None:
    for first, second in ((300, 500), (2000, 300), (500, 3000), (0, 40), (40, 0)):
        scores, labels = stream(first + second, first)
        both = []
        for start, end in ((0, first), (first, first + second)):
            counts = NestedWindows(LENGTHS, 64)
            for n in range(start, end, 10):
                counts.add(cells(scores[n : n + 10]), labels[n : n + 10])
                counts.mark()
            both.append(counts)
        before = both[1].to_state()
        both[0].merge(both[1])
        both[0].mark()
        check(both[0], scores, labels, first + second)
        assert both[1].to_state() == before


def test_a_restored_state_continues_unchanged() -> None:
    scores, labels = stream(4000, 3)
    counts = NestedWindows(LENGTHS, 64)
    for n in range(0, 4000, 25):
        if n % 500 == 0:
            state = counts.to_state()
            counts = NestedWindows(LENGTHS, 64).restore(state)
            assert counts.to_state() == state
        counts.add(cells(scores[n : n + 25]), labels[n : n + 25])
        counts.mark()
    check(counts, scores, labels, 4000)


def test_a_damaged_state_is_refused() -> None:
    scores, labels = stream(300, 4)
    counts = NestedWindows(LENGTHS, 64)
    counts.add(cells(scores), labels)
    counts.mark()
    good = counts.to_state()
    cases = {
        "level": 3,
        "marks": [0, 1],
        "cells": good.cells[4:] + good.cells[:4],
        "forgotten": b"",
        "panes": [good.panes[0][:-1], good.panes[1]],
    }
    for field, value in cases.items():
        state = WindowState(
            **({name: getattr(good, name) for name in good.__struct_fields__} | {field: value})
        )
        with pytest.raises(DamagedStateError):
            NestedWindows(LENGTHS, 64).restore(state)


def test_windows_count_on_where_a_cell_has_more_labels_than_the_narrow_type_holds() -> None:
    windows, other = NestedWindows((50, 70_000), 64), NestedWindows((50, 70_000), 64)
    one, labels = cells(np.full(1000, 0.25)), np.ones(1000, np.int8)
    for n in range(1000, 100_001, 1000):
        windows.add(one, labels)
        windows.mark()
        assert windows.window(70_000).tolist() == [[0], [windows.held(70_000)]]
        assert windows.counts.tolist() == [[0], [n]]
    for _ in range(30):
        other.add(one, labels)
        other.mark()
    twice = NestedWindows((50, 70_000), 64).restore(other.to_state())
    twice.merge(other)
    assert twice.window(70_000).tolist() == [[0], [60_000]]
