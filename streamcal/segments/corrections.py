"""Corrections of one field: for each of its values, an offset and a slope on the logit, in 64 bytes.

With ℓ the logit of the pooled probability, x = ℓ less its centre, and o the corrections of the other fields,
the candidates of a value are

* ``pooled``: no correction, δ = 0;
* ``slow``: δ = a + b·x, remembered over 10⁵ labels of the segment, shrunk by `BetweenSegments`;
* ``fast``: ``slow`` and a further offset, remembered over 500, for segments that drift or jump;
* ``own``: δ = logit of the probability by the segment's own engine − ℓ, if it has one.

Each label takes one step of online Newton (an extended Kalman filter) on the log loss of expit(ℓ + o + δ),
where the other fields' uncertainty V counts as further noise: information w / (1 + w·V), w = p(1 − p).

Weights of the candidates are w_k ∝ π_k·exp(d_k), d_k the discounted log loss that the candidate has saved,
judged by its forecast as of the prediction. π are the weights that all segments together have: a new segment
begins with them. The field adds Σ_k w_k δ_k to the logit, shrunk as a whole by the share of
`BetweenSegments`, except for the part of ``own``.
"""

from __future__ import annotations

import math
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.segments.between import GRID, BetweenSegments
from streamcal.sketch.decoding import MOST, Finite, Probability, require, within
from streamcal.values import Floats

__all__ = ["Corrections", "CorrectionsState", "Term", "expit", "log_loss"]

Rows = npt.NDArray[np.float32]

_SLOW: Final = 1.0 - 1e-5  # kept of the slow correction's information, a label of the segment
_FAST: Final = 1.0 - 1.0 / 500.0
_KEPT: Final = 1.0 - 1.0 / 2000.0  # of the losses that weigh candidates, a label of the segment
_FAST_PRECISION: Final = 20.0  # prior of the fast offset
_FIRST: Final = (0.1, 0.75, 0.05)  # weights of pooled, slow and fast before there are labels
_OWN: Final = 0.1  # first weight of an own engine, always
_AHEAD: Final = 12.0  # most that a candidate is ahead of pooled, in log odds
_BEHIND: Final = 16.0  # most that a candidate is behind the best
_VOTES: Final = 20.0  # of the first weights, in segments
_MOST_VOTES: Final = 1000.0
_LEAST_LABELS: Final = 32  # of a segment that has a vote
_MOST_LABELS: Final = float(2**24 - 1)  # that a float32 counts

# Columns of a row.
_EVIDENCE: Final = slice(0, 5)  # H_aa, H_ab, H_bb, g_a, g_b
_READ: Final = slice(10, 15)  # the same, as `BetweenSegments` has read it
_COLUMNS: Final = 16  # behind g: H and g of the fast offset, d of slow, fast and own; behind _READ: labels


class Term(NamedTuple):
    """Forecast of one field for one event, on the logit."""

    added: float
    """Addition of the field to the logit."""
    slow: float
    """δ of the candidate ``slow``."""
    fast: float
    """δ of the candidate ``fast``."""
    own: float
    """δ of the candidate ``own``; NaN: the segment has no engine."""


class _Read(NamedTuple):
    term: Term
    slow_variance: float
    variance: float
    weights: tuple[float, float, float, float]


class CorrectionsState(msgspec.Struct):
    """State of one field."""

    names: list[str | None]
    rows: Rows
    evidence: Floats
    weights: Annotated[list[Probability], msgspec.Meta(min_length=3, max_length=3)]
    votes: Finite


class Corrections:
    """Corrections of the values of one field; a value is a text, or None where the field is missing."""

    __slots__ = ("_first", "_places", "_rows", "_votes", "between")

    def __init__(self) -> None:
        self._places: dict[str | None, int] = {}
        self._rows: Rows = np.zeros((8, _COLUMNS), np.float32)
        self._first = list(_FIRST)
        self._votes = _VOTES
        self.between = BetweenSegments()

    def __len__(self) -> int:
        return len(self._places)

    @property
    def bytes_each(self) -> int:
        """Bytes of one correction."""
        return int(self._rows.itemsize * _COLUMNS)

    def labels(self, name: str | None) -> int:
        """Return the number of labels of a value, counted up to 2²⁴ − 1."""
        place = self._places.get(name)
        return 0 if place is None else int(self._rows[place, 15])

    def forecast(self, name: str | None, x: float, own: float = math.nan) -> Term:
        """Return the forecast of a value; ``own`` is δ of its own engine, NaN: none."""
        place = self._places.get(name)
        row = None if place is None else self._rows[place].tolist()
        return self.read(row, x, own).term

    def row(self, name: str | None) -> tuple[int, list[float]]:
        """Return place and numbers of a value, which gets a row if it has none."""
        place = self._places.get(name)
        if place is None:
            place = self._places[name] = len(self._places)
            if place == len(self._rows):
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
        row: list[float] = self._rows[place].tolist()
        return place, row

    def read(self, row: list[float] | None, x: float, own: float) -> _Read:
        """Return the forecast of a row, with its variance and the weights of the candidates."""
        between = self.between
        first = self._first
        a, b = between.offset_precision, between.slope_precision
        slow = fast = cross = 0.0
        precision = _FAST_PRECISION
        pooled_weight, slow_weight, fast_weight = first
        own_weight = 0.0 if own != own else _OWN
        if row is not None:
            a, cross, b, precision = a + row[0], row[1], b + row[2], precision + row[5]
            determinant = a * b - cross * cross
            slow = ((b * row[3] - cross * row[4]) + (a * row[4] - cross * row[3]) * x) / determinant
            fast = row[6] / precision
            slow_weight *= math.exp(row[7])
            fast_weight *= math.exp(row[8])
            own_weight *= math.exp(row[9])
        fast += slow
        slow_variance = (b - 2.0 * cross * x + a * x * x) / (a * b - cross * cross)
        total = pooled_weight + slow_weight + fast_weight + own_weight
        pooled_weight, slow_weight = pooled_weight / total, slow_weight / total
        fast_weight, own_weight = fast_weight / total, own_weight / total
        added = between.share * (slow_weight * slow + fast_weight * fast)
        if own_weight:
            added += own_weight * own
        variance = (slow_weight + fast_weight) * slow_variance + fast_weight / precision
        weights = pooled_weight, slow_weight, fast_weight, own_weight
        return _Read(Term(added, slow, fast, own), slow_variance, variance, weights)

    def learn(
        self,
        place: int,
        row: list[float],
        read: _Read,
        x: float,
        label: int,
        offset: float,
        noise: float,
        then: Term,
        then_offset: float,
    ) -> None:
        """Learn one label.

        Parameters
        ----------
        place, row, read
            of the value, before this label.
        x
            logit of the pooled probability less its centre.
        label
            0 or 1.
        offset, noise
            logit without this field, and the variance of the other fields in it.
        then, then_offset
            forecast of this field, and the logit without this field, as of the prediction.
        """
        none = log_loss(then_offset, label)
        row[7] = _KEPT * row[7] + none - log_loss(then_offset + then.slow, label)
        row[8] = _KEPT * row[8] + none - log_loss(then_offset + then.fast, label)
        if then.own == then.own:
            row[9] = _KEPT * row[9] + none - log_loss(then_offset + then.own, label)
        best = max(0.0, row[7], row[8], row[9])
        excess, least = max(0.0, best - _AHEAD), min(best, _AHEAD) - _BEHIND
        for k in (7, 8, 9):
            row[k] = max(least, row[k] - excess)

        slow, fast = read.term.slow, read.term.fast
        p = expit(offset + slow)
        curvature = p * (1.0 - p)
        part = 1.0 / (1.0 + curvature * noise)
        step, weight = (curvature * slow + label - p) * part, curvature * part
        row[0] = _SLOW * row[0] + weight
        row[1] = _SLOW * row[1] + weight * x
        row[2] = _SLOW * row[2] + weight * x * x
        row[3] = _SLOW * row[3] + step
        row[4] = _SLOW * row[4] + step * x

        p = expit(offset + fast)
        curvature = p * (1.0 - p)
        part = 1.0 / (1.0 + curvature * noise)
        row[5] = _FAST * row[5] + curvature * part
        row[6] = _FAST * row[6] + (curvature * (fast - slow) + label - p) * part

        row[15] = min(row[15] + 1.0, _MOST_LABELS)
        self._rows[place] = row
        count = int(row[15])
        if _due(count):
            self._share(place, count, x, then.own)

    def forget_own(self, name: str | None) -> None:
        """Forget the losses of a value's own engine, which is gone."""
        self._rows[self._places[name], 9] = 0.0

    def _share(self, place: int, count: int, x: float, own: float) -> None:
        """Let all segments know what one has learned."""
        row = self._rows[place].tolist()
        self.between.replace(row[_READ], row[_EVIDENCE])
        self._rows[place, _READ] = self._rows[place, _EVIDENCE]
        if count >= _LEAST_LABELS:
            weights = self.read(row, x, own).weights
            shared = sum(weights[:3])
            self._votes = min(self._votes + 1.0, _MOST_VOTES)
            if shared > 0.0:
                for k in range(3):
                    self._first[k] += ((1.0 - _OWN) * weights[k] / shared - self._first[k]) / self._votes

    # State

    def to_state(self) -> CorrectionsState:
        """Return the state."""
        rows = self._rows[: len(self._places)].ravel()
        evidence = self.between.evidence.ravel()
        return CorrectionsState(list(self._places), rows, evidence, list(self._first), self._votes)

    def restore(self, state: CorrectionsState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        count = len(state.names)
        self._places = {name: place for place, name in enumerate(state.names)}
        require(len(self._places) == count, "a segment comes twice")
        rows = within(state.rows, -float(MOST), float(MOST), "corrections", count * _COLUMNS)
        rows = rows.reshape(count, _COLUMNS)
        for diagonal in (rows[:, :3], rows[:, 10:13]):
            require((diagonal[:, (0, 2)] >= 0.0).all(), "negative information of a correction")
            product = diagonal[:, 0].astype(float) * diagonal[:, 2]
            slack = 1e-3 * product + 1e-6  # of float32
            require((diagonal[:, 1].astype(float) ** 2 <= product + slack).all(), "indefinite information")
        require((rows[:, 5] >= 0.0).all(), "negative information of a fast offset")
        within(rows[:, 7:10], -_BEHIND - 1.0, _AHEAD + 1.0, "losses")
        within(rows[:, 15], 1.0, _MOST_LABELS, "labels of a segment")
        spare = np.zeros((max(8, count) - count, _COLUMNS), np.float32)
        self._rows = np.concatenate((rows, spare))
        size = GRID[0] * GRID[1]
        self.between.evidence = within(state.evidence, -1e15, 1e15, "evidence", size).reshape(GRID).copy()
        self.between.refresh()
        total = sum(state.weights)
        require(abs(total - sum(_FIRST)) < 1e-6 and min(state.weights) > 0.0, f"weights with sum {total}")
        require(_VOTES <= state.votes <= _MOST_VOTES, f"{state.votes} votes")
        self._first, self._votes = list(state.weights), state.votes


def expit(logit: float) -> float:
    """Return 1 / (1 + e^−logit)."""
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1.0 + odds)


def log_loss(logit: float, label: int) -> float:
    """Return the log loss in nats of the forecast expit(logit) for a label, 0 or 1."""
    wrong = -logit if label else logit
    return wrong + math.log1p(math.exp(-wrong)) if wrong > 0.0 else math.log1p(math.exp(wrong))


def _due(count: int) -> bool:
    """Tell whether a segment is to be read at a label count: at each of the first 8, then four an octave."""
    return count < _MOST_LABELS and (count < 8 or count % (1 << (count.bit_length() - 3)) == 0)
