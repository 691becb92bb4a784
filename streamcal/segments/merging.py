"""Merging of corrections that shards have learned: of a segment that several know, information adds up.

The result does not depend on the order of the shards but the first, whose centre is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from streamcal.segments.between_c import BetweenSegments
from streamcal.segments.corrections_c import (
    AHEAD,
    BEHIND,
    COLUMNS,
    FIRST_VOTES,
    LABELS_AT,
    LOSSES_AT,
    MOST_LABELS,
    MOST_VOTES,
    SHARED,
    CorrectionsState,
)
from streamcal.segments.fields_c import CENTRED, MOST_COMMON, FieldsState
from streamcal.segments.names_c import Name, order
from streamcal.values import Floats

__all__ = ["merged"]

_INFORMATION = 5  # numbers of H and g


def merged(shards: Sequence[FieldsState]) -> FieldsState:
    """Return the state of the corrections of all shards, which have the same fields."""
    centre = next((each.centre for each in shards if each.centred), 0.0)
    shifts = [each.centre - centre for each in shards]
    information = _sum(each.information for each in shards)
    scale = min(1.0, MOST_COMMON / information) if information else 1.0
    return FieldsState(
        [_merged_field(states, shifts) for states in zip(*[each.fields for each in shards], strict=True)],
        centre,
        min(sum(each.centred for each in shards), CENTRED),
        scale * _sum(each.score for each in shards),
        scale * information,
    )


def _merged_field(states: Sequence[CorrectionsState], shifts: Sequence[float]) -> CorrectionsState:
    places: dict[Name, int] = {name: 0 for state in states for name in state.names}
    names = sorted(places, key=order)
    places = {name: place for place, name in enumerate(names)}
    at = np.array([places[name] for state in states for name in state.names], np.intp)
    rows = np.concatenate([_shifted(state, shift) for state, shift in zip(states, shifts, strict=True)])
    total = np.zeros((len(names), COLUMNS))
    np.add.at(total, at, rows)
    several = np.bincount(at, minlength=len(names)) > 1
    some = total[several]
    some[:, LABELS_AT] = np.minimum(some[:, LABELS_AT], MOST_LABELS)
    losses = some[:, LOSSES_AT:SHARED]
    best = np.maximum(losses.max(1, initial=0.0), 0.0)[:, np.newaxis]
    losses -= np.maximum(best - AHEAD, 0.0)
    np.maximum(losses, np.minimum(best, AHEAD) - BEHIND, out=losses)
    some[:, SHARED:LABELS_AT] = some[:, :_INFORMATION]
    total[several] = some
    found = total.astype(np.float32)

    between = BetweenSegments()
    none = np.zeros(_INFORMATION, np.float32)
    for row in found[:, SHARED:LABELS_AT]:
        between.replace(np.append(none, row), 0, _INFORMATION)
    votes = [state.votes for state in states]
    weights = [
        _sum(each * state.weights[k] for each, state in zip(votes, states, strict=True)) / _sum(votes)
        for k in range(3)
    ]
    most = min(_sum(votes) - FIRST_VOTES * (len(votes) - 1), MOST_VOTES)
    return CorrectionsState(len(names), names, found.ravel(), between.evidence, weights, most)


def _shifted(state: CorrectionsState, shift: float) -> Floats:
    """Return the rows as they are about another centre, float64[n, 16]."""
    rows = state.rows.astype(np.float64).reshape(-1, COLUMNS)
    for start in (0, SHARED) if shift else ():
        aa, ab, bb, a, b = rows[:, start : start + _INFORMATION].T
        bb += shift * (2.0 * ab + shift * aa)
        ab += shift * aa
        b += shift * a
    return rows


def _sum(values: Iterable[float]) -> float:
    """Return a sum that does not depend on the order of the values."""
    return float(np.sum(np.sort(np.array(list(values)))))
