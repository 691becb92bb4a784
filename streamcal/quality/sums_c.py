"""Sums over labels that confidence sequences are made of, of all forecasts and of groups."""

from __future__ import annotations

from streamcal.values import Counts, Floats

__all__ = ["add_labels", "add_sums"]


def add_sums(
    sums: Floats, bands: Floats, ranges: Floats, forecasts: Floats, labels: Floats, begin: int, end: int
) -> None:
    """Add labels one by one, so that it makes no difference how they come in parts.

    Parameters
    ----------
    sums
        float64[8 (m + 1) + 6 (r + 1) + 1], which are added to. For each band of
        scores: number of labels 0, sum of their scores, number of labels 1, sum of their scores. The same for
        each band of served probabilities. Of half the squared error of the score minus that of the served
        probability, for each range of the most that it could lose: their sum, that of their squares, and that
        of the most. The same by the most that it could gain. Last, the squared errors of the scores.
    bands
        between the bands of forecasts, ascending: float64[m].
    ranges
        between the ranges of what could be lost or gained, ascending: float64[r].
    forecasts, labels
        scores and served probabilities in [0, 1], float64[2, n]; labels, each 0 or 1, float64[n].
    begin, end
        index of the first label and behind the last, 0 ≤ begin ≤ end ≤ n.
    """
    differences = 8 * (len(bands) + 1)
    squares = differences + 6 * (len(ranges) + 1)
    for i in range(begin, end):
        before, after, label = forecasts[0, i], forecasts[1, i], labels[i]
        for side in range(2):
            value = after if side else before
            at = 4 * (side * (len(bands) + 1) + _place(bands, value)) + (2 if label else 0)
            sums[at] += 1.0
            sums[at + 1] += value
        # The label decides which of two values the difference has.
        of_zero = (before - after) * (before + after) / 2.0
        of_one = (after - before) * (2.0 - before - after) / 2.0
        gain = of_one if label else of_zero
        for side in range(2):
            extreme = max(of_zero, of_one) if side else -min(of_zero, of_one)
            at = differences + 3 * (side * (len(ranges) + 1) + _place(ranges, extreme))
            sums[at] += gain
            sums[at + 1] += gain * gain
            sums[at + 2] += extreme
        sums[squares] += (before - label) * (before - label)


def add_labels(sums: Floats, at: Counts, forecasts: Floats, labels: Floats) -> None:
    """Add labels one by one, so that it makes no difference how they come in parts.

    Parameters
    ----------
    sums
        float64[groups, 6], which are added to. For each group: number of labels, sum of the served
        probabilities, sum of the labels, sum of the squares of label − probability about their mean so far,
        and squared errors of scores and of served probabilities.
    at
        group of each label, int64[n].
    forecasts, labels
        scores and served probabilities in [0, 1], float64[2, n]; labels, each 0 or 1, float64[n].
    """
    for i in range(len(at)):
        row, score, forecast, label = at[i], forecasts[0, i], forecasts[1, i], labels[i]
        count = sums[row, 0]
        expected = (sums[row, 2] - sums[row, 1]) / count if count > 0.0 else 0.0
        error = label - forecast
        sums[row, 0] = count + 1.0
        sums[row, 1] += forecast
        sums[row, 2] += label
        sums[row, 3] += (error - expected) * (error - expected)
        sums[row, 4] += (score - label) * (score - label)
        sums[row, 5] += error * error


def _place(edges: Floats, value: float) -> int:
    """Return the number of edges that a value reaches."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if value < edges[middle]:
            high = middle
        else:
            low = middle + 1
    return low
