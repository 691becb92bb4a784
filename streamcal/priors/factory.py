"""Choice of the strategy that tracks the prior: `make_tracker`."""

from __future__ import annotations

from typing import Any

from streamcal.priors.label_trackers import (
    AllLabels,
    AllState,
    ChangeState,
    LabelsSinceChange,
    RecentLabels,
    RecentState,
)
from streamcal.priors.score_trackers import FusedState, FusedTracker, ScoreState, ScoreTracker
from streamcal.priors.tracker import PriorKind, PriorTracker, PriorWindow

__all__ = ["TrackerState", "make_tracker"]

TrackerState = AllState | RecentState | ChangeState | ScoreState | FusedState
"""The state of any tracker."""


def make_tracker(
    kind: PriorKind = "labels", window: PriorWindow = None, smoothing: float = 0.5
) -> PriorTracker:
    """Return a new tracker of the target's prior.

    Parameters
    ----------
    kind
        evidence that the prior is estimated from. ``"labels"``: the share of ones among labels. ``"scores"``:
        the likeliest prior given the scores. ``"both"``: the likeliest given the labels that have come and
        the scores of the other predictions.
    window
        number of the latest predictions that count (with ``"labels"``: labels). None: all. ``"adwin"``: the
        predictions since the last change. With scores, a window slides by a sixteenth of itself.
    smoothing
        s ≥ 0: the tracker adds s labels of each class to those that count, see `class_prior`.

    Raises
    ------
    ValueError
        if an option is out of range.
    """
    if kind not in ("labels", "scores", "both"):
        raise ValueError(f"kind must be 'labels', 'scores' or 'both', got {kind!r}")
    given: Any = window
    if given not in (None, "adwin") and (not isinstance(given, int) or given < 1):
        raise ValueError(f"window must be None, 'adwin' or an integer of at least 1, got {window!r}")
    if not 0.0 <= smoothing < float("inf"):
        raise ValueError(f"smoothing must be a number of at least 0, got {smoothing!r}")
    if kind == "both":
        return FusedTracker(window, smoothing)
    if kind == "scores":
        return ScoreTracker(window, smoothing)
    if window == "adwin":
        return LabelsSinceChange(smoothing)
    return AllLabels(smoothing) if window is None else RecentLabels(window, smoothing)
