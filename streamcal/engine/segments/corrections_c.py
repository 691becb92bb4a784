"""Corrections of fields: of one, for each of its values, an offset and a slope on the logit, in 64 bytes.

With ℓ the logit of the pooled probability, x = ℓ less its centre, and o the corrections of the other fields,
the candidates of a value are

* ``pooled``: no correction, δ = 0;
* ``slow``: δ = a + b·x, remembered over 10⁵ labels of the segment, shrunk by `BetweenSegments`;
* ``fast``: ``slow`` and a further offset, remembered over 500, for segments that drift or jump;
* ``own``: δ = logit of the probability by the segment's own engine − ℓ, if it has one.

Each label takes one step of online Newton (an extended Kalman filter) on the log loss of expit(ℓ + o + δ),
where the other fields' uncertainty V counts as further noise: information w / (1 + w·V), w = p(1 − p).

Weights of the candidates are w_k ∝ π_k·exp(d_k), d_k the discounted log loss that the candidate has saved,
judged by its forecast as of the prediction. If m labels of the segment came between a prediction and its
label, the m + 1 forecasts knew about the same, and their errors come in runs: the label counts for
1 / (1 + m/20) in d. With full weight, the best of the latest run would be followed one delay late. π are the
weights that all segments together have: a new segment begins with them. The field adds Σ_k w_k δ_k to the
logit, shrunk as a whole by the share of `BetweenSegments`, except for the part of ``own``.

**Several fields** add up on the logit, and are fitted in turn: backfitting online. Each label updates every
field once, with the sum of the others as offset. That sum is the present one: with labels that are late, the
sum as of the prediction would let all fields learn the same deviation until the first label that shows it,
and overshoot together. The pooled probability is that of the prediction.

**Common deviation.** If labels are late, pooled probabilities are off for all segments alike while the pooled
engine catches up. A correction that took this up would add it a second time later. So a common offset,
remembered over 500 labels, is fitted in turn like a field, and is never served.

`SegmentRules` is what fields add to the rules of an engine.

Compiled where there is a C compiler; `corrections_c.pxd` has the types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.errors import DamagedStateError
from streamcal.base.values import Counts, Floats, shown
from streamcal.engine import event_rules_c
from streamcal.events import Kept
from streamcal.sketch.decoding import Count, Part, Probability, require, restoring, within

if TYPE_CHECKING:
    from streamcal.engine.segments.segments import Segments

# The grid: τ_a of 0.01 to 2.56 by factors of 2, τ_b by factors of 4.
_OFFSETS, _SLOPES, _SIZE = 9, 5, 45
_OFFSET_PRECISION: Any = (0.01 * 2.0 ** np.arange(_OFFSETS)) ** -2.0
_SLOPE_PRECISION: Any = (0.01 * 4.0 ** np.arange(_SLOPES)) ** -2.0
_PRIOR_VARIANCE: Any = (1.0 / np.outer(_OFFSET_PRECISION, _SLOPE_PRECISION)).ravel()
_LOG_OFFSET_PRECISION: Any = np.log(_OFFSET_PRECISION)
_LOG_SLOPE_PRECISION: Any = np.log(_SLOPE_PRECISION)
_ODDS = 4.0  # against any difference, before there is evidence
_SURE = 50.0  # log of a Bayes factor that leaves no doubt
_NOTHING = -60.0  # log of a part of the sum of exponentials that changes no bit of it


class BetweenSegments:
    """Prior of a correction: how much the segments of a field differ, by the corrections of all of them.

    `offset_precision` is 1 / τ_a², `slope_precision` is 1 / τ_b², and `share` is the probability that the
    segments differ, in (0, 1).

    The correction of a segment is an offset and a slope on the logit, (a, b) ~ N(0, diag(τ_a², τ_b²)). Labels
    of a segment give a Gaussian likelihood with information H, float[2, 2], and score vector g = H·estimate.
    The marginal likelihood of one segment under (τ_a, τ_b), over that under (0, 0), is

        log m = −½ log det(I + Λ⁻¹ H) + ½ gᵀ (H + Λ)⁻¹ g,    Λ = diag(τ_a⁻², τ_b⁻²),

    and sums over segments on a grid give the posterior of (τ_a, τ_b) under a uniform prior. It uses the same
    first two moments of a segment as a method of moments, but weighs segments of 10 and of 10⁵ labels rightly
    for every τ, and says how sure it is. Served are the geometric means of τ_a and τ_b under this posterior.

    Each segment counts in multiples of 2⁻²⁰, so sums below 2³³ are exact, whatever the order of the segments.

    The Bayes factor of the grid against no difference at all, with prior odds 1:4, is the `share` of each
    correction that is served. If segments do not differ, the Bayes factor tends to the part of the grid that
    is too fine to be told from none, so the share stays near 0.03, and little is lost.
    """

    def __init__(self) -> None:
        self._evidence: Any = np.zeros(_SIZE)
        self.refresh()

    @property
    def evidence(self) -> Floats:
        """Log marginal likelihood of all segments over that of no difference, float64[45], τ_b inmost."""
        return np.array(self._evidence)

    def restore(self, evidence: Floats) -> None:
        """Set the evidence; raise ValueError if it cannot be one."""
        self._evidence = evidence.reshape(_SIZE).copy()
        self.refresh()

    def replace(self, rows: Any, old: int, new: int) -> None:
        """Replace what the labels of one segment say.

        Parameters
        ----------
        rows
            numbers, float32[n].
        old, new
            where H_aa, H_ab, H_bb, g_a and g_b are in it.
        """
        aa, ab, bb = float(rows[new]), float(rows[new + 1]), float(rows[new + 2])
        a, b = float(rows[new + 3]), float(rows[new + 4])
        old_aa, old_ab, old_bb = float(rows[old]), float(rows[old + 1]), float(rows[old + 2])
        old_a, old_b = float(rows[old + 3]), float(rows[old + 4])
        self._add(1.0, aa, ab, bb, a, b)
        if old_aa != 0.0 or old_a != 0.0:  # it had labels
            self._add(-1.0, old_aa, old_ab, old_bb, old_a, old_b)

    def _add(self, sign: float, aa: float, ab: float, bb: float, a: float, b: float) -> None:
        """Add log m of one segment, or take it away, for each cell: in multiples of 2⁻²⁰."""
        rest, cross = max(aa * bb - ab * ab, 0.0), 2.0 * a * b * ab
        for i in range(_OFFSETS):
            first = _OFFSET_PRECISION[i]
            one, other = first * bb, b * b * (aa + first)
            for j in range(_SLOPES):
                second, at = _SLOPE_PRECISION[j], _SLOPES * i + j
                both = first * second + one + second * aa + rest  # see `determinant`
                found = (a * a * (bb + second) - cross + other) / both
                log_m = 0.5 * (found - math.log(both * _PRIOR_VARIANCE[at]))
                # Added and taken away, 1.5 · 2⁵² rounds to whole numbers.
                parts = (1048576.0 * log_m + 6755399441055744.0) - 6755399441055744.0
                self._evidence[at] += sign * parts * (1.0 / 1048576.0)

    def refresh(self) -> None:
        """Work out the prior and the share anew."""
        top = self._evidence[0]
        for k in range(1, _SIZE):
            top = max(top, self._evidence[k])
        total = offset = slope = 0.0
        for i in range(_OFFSETS):
            for j in range(_SLOPES):
                behind = self._evidence[_SLOPES * i + j] - top
                if behind < _NOTHING:
                    continue
                part = math.exp(behind)
                total += part
                offset += part * _LOG_OFFSET_PRECISION[i]
                slope += part * _LOG_SLOPE_PRECISION[j]
        factor = math.exp(min(top + math.log(total / _SIZE), _SURE))
        self.share = factor / (factor + _ODDS)
        self.offset_precision = math.exp(offset / total)
        self.slope_precision = math.exp(slope / total)


def determinant(offset_precision: float, slope_precision: float, aa: float, ab: float, bb: float) -> float:
    """Return det(H + Λ), which is positive whatever rounding did to H."""
    return (
        offset_precision * slope_precision
        + offset_precision * bb
        + slope_precision * aa
        + max(aa * bb - ab * ab, 0.0)
    )


Name = str | None
"""Name of the value of a field; None: the field is missing."""
Rows = npt.NDArray[np.float32]

_FIRST: Final = (0.1, 0.75, 0.05)  # weights of pooled, slow and fast before there are labels
FIRST_VOTES: Final = 20.0
"""Votes of the first weights, in segments."""
MOST_VOTES: Final = 1000.0
"""Votes at most: beyond, older ones are forgotten."""
MOST_LABELS: Final = 2**24 - 1
"""Labels of a segment that a float32 counts."""
AHEAD: Final = 12.0
"""Most that a candidate is ahead of pooled, in log odds."""
BEHIND: Final = 16.0
"""Most that a candidate is behind the best, in log odds."""
COLUMNS, LOSSES_AT, SHARED, LABELS_AT = 16, 7, 10, 15
"""Numbers of a row: H_aa, H_ab, H_bb, g_a and g_b; H and g of the fast offset; d of slow, fast and own; the
first five as `BetweenSegments` has read them; and the number of labels."""

# As C has them.
_SLOW = 1.0 - 1e-5  # kept of the slow correction's information, a label of the segment
_FAST = 1.0 - 1.0 / 500.0
_KEPT = 1.0 - 1.0 / 2000.0  # of the losses that weigh candidates, a label of the segment
_FAST_PRECISION = 20.0  # prior of the fast offset
_IN_FLIGHT = 20.0  # labels between a prediction and its label that halve the evidence
_OWN = 0.1  # first weight of an own engine, always
_AHEAD, _BEHIND, _VOTES, _MOST_VOTES = AHEAD, BEHIND, FIRST_VOTES, MOST_VOTES
_LEAST = 1e-9  # probability
_LEAST_LABELS = 32  # of a segment that has a vote
_MOST_LABELS = float(MOST_LABELS)

_COLUMNS, _FAST_AT, _LOSSES_AT, _SHARED, _LABELS_AT = COLUMNS, 5, LOSSES_AT, SHARED, LABELS_AT

READ: Final = 9
"""Count of numbers that `Corrections.read` gives: what is added to the logit, δ of slow and fast, the
variance, the weights of pooled, slow, fast and own, and the number of labels."""
SUMS: Final = 13
"""Count of numbers that `Corrections.put_terms` gives: of slow its value times the determinant at x = 0 and
its slope, the determinant, and fast less slow; the weights of pooled, slow, fast and own; the share; what the
variance is made of."""


class CorrectionsState(Part):
    """State of one field."""

    count: Count
    """Number of values with labels; the rows of those without a name here are in a store."""
    names: list[str | None]
    rows: Rows
    evidence: Floats
    weights: Annotated[list[Probability], msgspec.Meta(min_length=3, max_length=3)]
    votes: Annotated[float, msgspec.Meta(ge=FIRST_VOTES, le=MOST_VOTES)]


class Corrections:
    """Corrections of the values of one field; a value is a text, or None where the field is missing.

    Parameters
    ----------
    read_row
        gives the row of a value that is in a store, 64 bytes, or None; None: there is no store.
    """

    def __init__(self, read_row: Callable[[Name], bytes | None] | None = None) -> None:
        self.between = BetweenSegments()
        self._read_row: Any = read_row
        self._count, self._some_stored = 0, False
        self._now = 0  # number of calls of `take_changed`
        self._begin([], _rows(8))
        self._first: Any = np.array(_FIRST)
        self._votes = _VOTES
        self._terms: Any = np.empty(SUMS).data

    def _begin(self, names: Sequence[Name], rows: Any) -> None:
        """Hold these rows in memory, those of names at the places from 1 on."""
        # Place 0 is of all values without labels: a row of zeros.
        self._places = {name: place for place, name in enumerate(names, 1)}
        self._rows: Any = rows
        capacity = len(rows) // _COLUMNS
        self._changed: Any = np.zeros(capacity, np.uint8).data
        self._used: Any = np.full(capacity, self._now, np.int64).data

    def __len__(self) -> int:
        return self._count

    def labels(self, name: Name) -> int:
        """Return the number of labels of a value, counted up to 2²⁴ − 1."""
        return int(self.labels_at(self.find(name)))

    def labels_at(self, place: int) -> float:
        """Return the number of labels of the value at a place."""
        labels: float = self._rows[_COLUMNS * place + _LABELS_AT]
        return labels

    def find(self, name: Name) -> int:
        """Return the place of a value; 0: it has no labels."""
        place = self._places.get(name, 0)
        if not place:
            return self._fetch(name) if self._some_stored else 0
        self._used[place] = self._now
        return place

    def _fetch(self, name: Name) -> int:
        """Return the place of a value that may be in the store."""
        found = self._read_row(name)
        if found is None:
            return 0
        with restoring(f"the correction of segment {name!r}"):
            row = np.frombuffer(found, np.float32)
            require(len(row) == _COLUMNS, f"{len(row)} numbers")
        place = self._add(name)
        np.asarray(self._rows)[_COLUMNS * place : _COLUMNS * (place + 1)] = row
        return place

    def _add(self, name: Name) -> int:
        """Return a new place."""
        place = self._places[name] = len(self._places) + 1
        if _COLUMNS * place == len(self._rows):
            self._rows = _grown(self._rows)
            self._changed, self._used = _grown(self._changed), _grown(self._used)
        self._used[place] = self._now
        return place

    def place(self, name: Name) -> int:
        """Return the place of a value, which gets one if it has none."""
        place = self.find(name)
        if not place:
            place = self._add(name)
            self._count += 1
        return place

    def put_terms(self, place: int, out: Floats, at: int, has_own: bool) -> None:
        """Put what the forecasts of a value are made of into ``out``, float64, from ``at`` on: see `SUMS`."""
        row, between, first = _COLUMNS * place, self.between, self._first
        aa, ab, bb = self._rows[row], self._rows[row + 1], self._rows[row + 2]
        offset_score, slope_score = self._rows[row + 3], self._rows[row + 4]
        a, b = between.offset_precision + aa, between.slope_precision + bb
        precision = _FAST_PRECISION + self._rows[row + _FAST_AT]
        pooled = first[0]
        slow = first[1] * math.exp(self._rows[row + _LOSSES_AT])
        fast = first[2] * math.exp(self._rows[row + _LOSSES_AT + 1])
        own = _OWN * math.exp(self._rows[row + _LOSSES_AT + 2]) if has_own else 0.0
        total = pooled + slow + fast + own
        out[at], out[at + 1] = b * offset_score - ab * slope_score, a * slope_score - ab * offset_score
        out[at + 2] = determinant(between.offset_precision, between.slope_precision, aa, ab, bb)
        out[at + 3] = self._rows[row + _FAST_AT + 1] / precision
        out[at + 4], out[at + 5] = pooled / total, slow / total
        out[at + 6], out[at + 7] = fast / total, own / total
        out[at + 8], out[at + 9], out[at + 10], out[at + 11] = between.share, a, b, ab
        out[at + 12] = precision

    def read(self, place: int, x: float, own: float, out: Floats, at: int) -> None:
        """Put the forecast of a value into ``out``, float64, from ``at`` on: see `READ`.

        Parameters
        ----------
        place
            of the value.
        x
            logit of the pooled probability less its centre.
        own
            δ of its own engine, NaN: none.
        """
        t = self._terms
        self.put_terms(place, t, 0, own == own)
        out[at] = summed(t, 0, x, own)
        slow = (t[0] + t[1] * x) / t[2]
        out[at + 1], out[at + 2] = slow, slow + t[3]
        variance = (t[5] + t[6]) * (t[10] - 2.0 * t[11] * x + t[9] * x * x) / t[2]
        out[at + 3] = variance + t[6] / t[12]
        out[at + 4], out[at + 5], out[at + 6], out[at + 7] = t[4], t[5], t[6], t[7]
        out[at + 8] = self._rows[_COLUMNS * place + _LABELS_AT]

    def learn(
        self,
        place: int,
        x: float,
        label: int,
        read: Floats,
        at: int,
        offset: float,
        noise: float,
        then: Floats,
        then_at: int,
        then_offset: float,
    ) -> None:
        """Learn one label.

        Parameters
        ----------
        place
            of the value.
        x
            logit of the pooled probability less its centre.
        label
            0 or 1.
        read, at
            what `read` has given before this label; it is overwritten.
        offset, noise
            logit without this field, and the variance of the other fields in it.
        then, then_at, then_offset
            where the forecast of this field is, and the logit without this field, as of the prediction.
        """
        row, slow, fast = _COLUMNS * place, read[at + 1], read[at + 2]
        self._changed[place] = 1
        then_slow, then_fast, own = then[then_at + 1], then[then_at + 2], then[then_at + 3]
        none, losses = log_loss(then_offset, label), row + _LOSSES_AT
        between = max(self._rows[row + _LABELS_AT] - then[then_at + 4], 0.0)
        part = 1.0 / (1.0 + between / _IN_FLIGHT)
        slow_saved = _KEPT * self._rows[losses] + part * (none - log_loss(then_offset + then_slow, label))
        fast_saved = _KEPT * self._rows[losses + 1] + part * (none - log_loss(then_offset + then_fast, label))
        own_saved = float(self._rows[losses + 2])
        if own == own:
            own_saved = _KEPT * own_saved + part * (none - log_loss(then_offset + own, label))
        self._set_losses(losses, slow_saved, fast_saved, own_saved)

        p = expit(offset + slow)
        curvature = p * (1.0 - p)
        part = 1.0 / (1.0 + curvature * noise)
        step, weight = (curvature * slow + label - p) * part, curvature * part
        self._rows[row] = _SLOW * self._rows[row] + weight
        self._rows[row + 1] = _SLOW * self._rows[row + 1] + weight * x
        self._rows[row + 2] = _SLOW * self._rows[row + 2] + weight * x * x
        self._rows[row + 3] = _SLOW * self._rows[row + 3] + step
        self._rows[row + 4] = _SLOW * self._rows[row + 4] + step * x

        p = expit(offset + fast)
        curvature = p * (1.0 - p)
        part = 1.0 / (1.0 + curvature * noise)
        step = (curvature * (fast - slow) + label - p) * part
        self._rows[row + _FAST_AT] = _FAST * self._rows[row + _FAST_AT] + curvature * part
        self._rows[row + _FAST_AT + 1] = _FAST * self._rows[row + _FAST_AT + 1] + step

        count = min(self._rows[row + _LABELS_AT] + 1.0, _MOST_LABELS)
        self._rows[row + _LABELS_AT] = count
        if _due(int(count)):
            self._share(row)
            self.between.refresh()
            if count >= _LEAST_LABELS:
                self.read(place, x, own, read, at)
                self._vote(read, at + 4)

    def forget_own(self, name: Name) -> None:
        """Forget the losses of a value's own engine, which is gone."""
        place = self.find(name)
        self._changed[place] = 1
        self._rows[_COLUMNS * place + _LOSSES_AT + 2] = 0.0

    def _set_losses(self, at: int, slow: float, fast: float, own: float) -> None:
        """Write what the candidates have saved, within bounds, from ``at`` on."""
        best = max(max(slow, fast), max(own, 0.0))
        excess, least = max(best - _AHEAD, 0.0), min(best, _AHEAD) - _BEHIND
        self._rows[at] = max(slow - excess, least)
        self._rows[at + 1] = max(fast - excess, least)
        self._rows[at + 2] = max(own - excess, least)

    def _share(self, row: int) -> None:
        """Let the prior of all segments know what one has learned."""
        self.between.replace(self._rows, row + _SHARED, row)
        for k in range(_FAST_AT):
            self._rows[row + _SHARED + k] = self._rows[row + k]

    def _vote(self, weights: Floats, at: int) -> None:
        """Let the first weights of new segments know those of one."""
        shared = weights[at] + weights[at + 1] + weights[at + 2]
        self._votes = min(self._votes + 1.0, _MOST_VOTES)
        if shared > 0.0:
            for k in range(3):
                self._first[k] += ((1.0 - _OWN) * weights[at + k] / shared - self._first[k]) / self._votes

    # State

    def to_state(self) -> CorrectionsState:
        """Return the state; it does not depend on the order in which values first came."""
        names = sorted(self._places if self._read_row is None else (), key=order)
        rows = np.asarray(self._rows).reshape(-1, _COLUMNS)[[self._places[name] for name in names]]
        first, evidence = np.asarray(self._first).tolist(), self.between.evidence
        return CorrectionsState(self._count, names, rows.ravel(), evidence, first, self._votes)

    def take_changed(
        self, changed: dict[tuple[str | None, int, Name], bytes], key: str | None, field: int, most: int
    ) -> None:
        """Put the rows that have changed since the last call into ``changed``, for the store.

        Of more than ``most`` rows in memory, those that were used last stay.
        """
        self._now += 1
        marks, held = np.asarray(self._changed), np.asarray(self._rows).reshape(-1, _COLUMNS)
        marks[0] = 0
        places, names = np.flatnonzero(marks), [None, *self._places]
        data, size, at = held[places].tobytes(), _COLUMNS * held.itemsize, 0
        marks[places] = 0
        for place in places.tolist():
            changed[key, field, names[place]] = data[at : at + size]
            at += size
        if len(self._places) > most:
            self._some_stored = True
            used, kept = np.asarray(self._used)[: len(names)], max(3 * most // 4, 1)
            latest = np.sort(np.argpartition(used[1:], -kept)[-kept:] + 1)
            stamps, rows = used[latest], held[[0, *latest.tolist()]]
            self._begin([names[place] for place in latest.tolist()], _rows(len(rows), rows.ravel()))
            np.asarray(self._used)[1:] = stamps

    def restore(self, state: CorrectionsState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        count = len(state.names)
        require(len(state.rows) == _COLUMNS * count, f"{len(state.rows)} numbers of {count} segments")
        within(state.rows[_LABELS_AT::_COLUMNS], 1, _MOST_LABELS, "labels of segments")
        rows = _rows(max(8, count + 1), np.append(np.zeros(_COLUMNS, np.float32), state.rows))
        self._begin(state.names, rows)
        require(len(self._places) == count, "a segment twice")
        self._count = state.count
        self._some_stored = self._read_row is not None and state.count > count
        np.asarray(self._changed)[1 : count + 1] = 1  # these are not in the store, if there is one
        self.between.restore(state.evidence)
        self._first, self._votes = np.array(state.weights), state.votes


def summed(terms: Any, at: int, x: float, own: float) -> float:
    """Return what a value adds to the logit, by what `Corrections.put_terms` has put into ``terms``."""
    slow: float = (terms[at] + terms[at + 1] * x) / terms[at + 2]
    fast = slow + terms[at + 3]
    added: float = terms[at + 8] * (terms[at + 5] * slow + terms[at + 6] * fast)
    if terms[at + 7] != 0.0:
        added += terms[at + 7] * own
    return added


def as_bytes(name: Name) -> bytes:
    """Return a name as bytes; that of a missing value, as none."""
    return b"" if name is None else name.encode("utf-8", "surrogatepass")


def as_name(data: bytes) -> Name:
    """Return the name of what `as_bytes` gave."""
    return data.decode("utf-8", "surrogatepass") if data else None


def order(name: Name) -> tuple[bool, str]:
    """Return what names are sorted by: a missing value comes first."""
    return name is not None, name or ""


def expit(logit: float) -> float:
    """Return 1 / (1 + e^−logit)."""
    if logit >= 0.0:
        return 1.0 / (1.0 + math.exp(-logit))
    odds = math.exp(logit)
    return odds / (1.0 + odds)


def logit_of(probability: float) -> float:
    """Return the logit of a probability, clipped to [1e-9, 1 − 1e-9]."""
    p = min(max(probability, _LEAST), 1.0 - _LEAST)
    return math.log(p / (1.0 - p))


def log_loss(logit: float, label: int) -> float:
    """Return the log loss in nats of the forecast expit(logit) for a label, 0 or 1."""
    wrong = -logit if label else logit
    return wrong + math.log1p(math.exp(-wrong)) if wrong > 0.0 else math.log1p(math.exp(wrong))


def _due(count: int) -> bool:
    """Tell whether a segment is to be read at a label count: at each of the first 8, then four an octave."""
    step = 1
    while count >= 8 * step:
        step *= 2
    return count < _MOST_LABELS and count % step == 0


def _grown(column: Any) -> Any:
    """Return a column of twice the size that begins with another."""
    before = np.asarray(column)
    return np.append(before, np.zeros_like(before)).data


def _rows(count: int, before: Any = ()) -> Any:
    """Return rows that begin with those of before; reading a number of them gives a Python float."""
    rows = np.zeros(_COLUMNS * count, np.float32)
    rows[: len(before)] = before
    return rows.data


# Several fields


CENTRED: Final = 1000
"""Labels whose mean logit is the centre."""
WORTH: Final = 50
"""Labels of a segment that gets an engine, where one is left; one with fewer has none."""
TERMS: Final = 5
"""Numbers of a field in a forecast: what it adds to the logit, δ of slow, fast and own, if it has one, and
how many labels its value has."""

# As C has them.
_NUMBER_BYTES = 8  # bytes of a number
_COMMON = 1.0 - 1.0 / 500.0
_COMMON_PRECISION = 25.0
_CENTRED = CENTRED
_READ = READ
_FARTHEST = 4.0  # from the centre, where slopes end
_TERMS = TERMS
_SUMS = SUMS
_WORTH = WORTH
_NONE = float("nan")
_LONGEST = 4096  # bytes of a name
_PLAIN = 1024  # characters that cannot have more bytes
_MISSING: Any = ("NAType", "NaTType")  # of pandas
_MISSING_TEXTS: Any = ("NaN", "NaT")
_WHOLE: Any = re.compile(r"-?(0|[1-9]\d*)\.0", re.ASCII)
_WORDS: Any = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_MOMENT: Any = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*(Z|[+-]\d\d:?\d\d)?", re.ASCII)


class FieldsState(Part):
    """State of all fields."""

    fields: list[CorrectionsState]
    centre: Annotated[float, msgspec.Meta(ge=-100.0, le=100.0)]
    centred: Annotated[int, msgspec.Meta(ge=0, le=CENTRED)]
    score: Annotated[float, msgspec.Meta(ge=-1e5, le=1e5)]
    information: Annotated[float, msgspec.Meta(ge=0.0, le=1e3)]


class Fields:
    """Corrections of ``count`` fields; ``read_row`` gives those of a store, by field and name."""

    def __init__(self, count: int, read_row: Callable[[int, Name], bytes | None] | None = None) -> None:
        readers = [None if read_row is None else partial(read_row, field) for field in range(count)]
        self.fields = [Corrections(reader) for reader in readers]
        self._centre, self._centred = 0.0, 0
        self._score = self._information = 0.0  # of the common deviation
        self._places: Any = np.zeros(count, np.int64).data
        self._read: Any = np.zeros(_READ * count).data
        # What `learn` was given: numbers, and the same as bytes.
        given = np.zeros(1 + _TERMS * count)
        self._then: Any = given.data
        self._then_bytes: Any = given.view(np.uint8).data
        # What `forecast` is to give: numbers, the size of each value, and the values.
        self._out = bytearray(given.nbytes + 2 * count)
        self._row: Any = np.frombuffer(self._out, np.float64, len(given)).data
        self.served = 0.0
        """Probability of the last forecast."""
        self.labels = 0.0
        """Number of labels of the first field's value, as of the last forecast or with the last label."""

    @property
    def centre(self) -> float:
        """Logit at which slopes add nothing."""
        return self._centre

    @property
    def farthest(self) -> float:
        """Distance of the logit from the centre, beyond which slopes add no more."""
        return _FARTHEST

    def added(self, logit: float, names: Sequence[Name]) -> list[float]:
        """Return what each field adds to the logit of a pooled probability, without own engines."""
        x, read, out = self._x(logit), self._read, []
        for i in range(len(self.fields)):
            field = self.fields[i]
            field.read(field.find(names[i]), x, _NONE, read, 0)
            out.append(read[0])
        return out

    def forecast(self, pooled: float, names: Sequence[Name], own: Sequence[float] | None) -> bytes:
        """Return values of the fields and their forecast: what `learn` is to be given with the label.

        Parameters
        ----------
        pooled
            Pooled probability.
        names, own
            Value of each field, and δ of its own engine (NaN: none); None: no field has one.
        """
        logit, read, row, added, count = logit_of(pooled), self._read, self._row, 0.0, len(self.fields)
        x, out, values = self._x(logit), self._out, b""
        row[0] = pooled
        for i in range(count):
            field, data = self.fields[i], as_bytes(names[i])
            delta = _NONE if own is None else own[i]
            field.read(field.find(names[i]), x, delta, read, 0)
            added += read[0]
            at = 1 + _TERMS * i
            row[at], row[at + 1], row[at + 2] = read[0], read[1], read[2]
            row[at + 3], row[at + 4] = delta, read[8]
            at = _NUMBER_BYTES * len(row) + 2 * i
            out[at], out[at + 1] = len(data) & 255, len(data) >> 8
            values = values + data if i else data
            if i == 0:
                self.labels = read[8]
        self.served = expit(logit + added) if added else pooled
        return bytes(out[: len(self._out)]) + values

    def forecast_many(
        self,
        served: event_rules_c.ServedMap,
        scores: Floats,
        codes: Sequence[Counts],
        names: Sequence[Sequence[Name]],
        own: Sequence[event_rules_c.ServedMap | None] | None,
    ) -> Floats:
        """Return the probabilities of n checked scores, float64[n], to the last bit those of `forecast`.

        Parameters
        ----------
        served, scores
            map of all, and float64[n].
        codes, names
            by field: places of its values among their names, int64[n], and these names.
        own
            served map of the own engine of each name of the only field; None: it has none, or no field has.
        """
        count, at, places = len(self.fields), 0, np.empty((len(scores), len(self.fields)), np.int64)
        terms: Any = np.empty(_SUMS * sum(map(len, names))).data
        for i in range(count):
            field = self.fields[i]
            np.asarray(places)[:, i] = at + _SUMS * codes[i]
            for name in names[i]:
                has_own = own is not None and own[at // _SUMS] is not None
                field.put_terms(field.find(name), terms, at, has_own)
                at += _SUMS
        out = served.predict_many(np.asarray(scores))
        made: Any = out.data
        for i in range(len(scores)):
            pooled, added = made[i], 0.0
            logit = logit_of(pooled)
            x, delta = self._x(logit), _NONE
            engine = None if own is None else own[places[i, 0] // _SUMS]
            if engine is not None:
                delta = logit_of(engine.forecast(scores[i])) - logit
            for k in range(count):
                added += summed(terms, places[i, k], x, delta)
            made[i] = expit(logit + added) if added else pooled
        return out

    def learn(self, label: int, given: bytes) -> None:
        """Learn a label, 0 or 1, of what `forecast` has given."""
        logit = self._take(given)
        if self._centred < _CENTRED:
            self._centred += 1
            self._centre += (logit - self._centre) / self._centred
        x, read, count = self._x(logit), self._read, len(self.fields)
        sizes = _NUMBER_BYTES * len(self._then)
        at = sizes + 2 * count
        for i in range(count):
            field, size = self.fields[i], size_of(given, sizes + 2 * i)
            self._places[i] = field.place(as_name(given[at : at + size]))
            at += size
        before, now, noise = self._sums(logit, x)
        common = self._score / (self._information + _COMMON_PRECISION)
        p = expit(now)
        curvature = p * (1.0 - p)
        self._information = _COMMON * self._information + curvature
        self._score = _COMMON * self._score + curvature * common + label - p
        for i in range(count):
            field, at = self.fields[i], 1 + _TERMS * i
            others, their_noise = now - read[_READ * i], noise - read[_READ * i + 3]
            without = before - self._then[at]
            field.learn(
                self._places[i], x, label, read, _READ * i, others, their_noise, self._then, at, without
            )
        field = self.fields[0]
        self.labels = field.labels_at(self._places[0])

    def _take(self, given: bytes) -> float:
        """Take the forecast of each field as of the prediction; return the logit of the pooled one.

        Raises
        ------
        DamagedStateError
            if it is none of these fields: it may come from a store.
        """
        sizes, data = _NUMBER_BYTES * len(self._then), given
        left = len(given) - sizes - 2 * len(self.fields)
        if left >= 0:
            for k in range(sizes):
                self._then_bytes[k] = data[k]
            for i in range(len(self.fields)):
                left -= size_of(data, sizes + 2 * i)
        if left != 0:
            raise DamagedStateError("a prediction that waits has not the forecast of its segments")
        return logit_of(self._then[0])

    def _sums(self, logit: float, x: float) -> tuple[float, float, float]:
        """Read each field at its place; return the logits as of the prediction and now, and the variance."""
        read = self._read
        before, added, noise = logit, 0.0, 0.0
        for i in range(len(self.fields)):
            field = self.fields[i]
            field.read(self._places[i], x, self._then[_TERMS * i + 4], read, _READ * i)
            added += read[_READ * i]
            noise += read[_READ * i + 3]
            before += self._then[1 + _TERMS * i]
        common = self._score / (self._information + _COMMON_PRECISION)
        return before, logit + common + added, noise

    def _x(self, logit: float) -> float:
        """Return the logit less the centre, within the range of slopes."""
        return max(-_FARTHEST, min(_FARTHEST, logit - self._centre))

    # State

    def to_state(self) -> FieldsState:
        """Return the state."""
        fields = [field.to_state() for field in self.fields]
        return FieldsState(fields, self._centre, self._centred, self._score, self._information)

    def restore(self, state: FieldsState) -> None:
        """Set the state; raise ValueError if it cannot be one."""
        require(len(state.fields) == len(self.fields), f"{len(state.fields)} fields of segments")
        for field, each in zip(self.fields, state.fields, strict=True):
            field.restore(each)
        self._centre, self._centred = state.centre, state.centred
        self._score, self._information = state.score, state.information


def name_of(value: object) -> Name:
    """Return the name of one value of a field; None: it is missing.

    A value has one name in whatever format it comes: a boolean is ``true`` or ``false``, 3.0 is ``3`` (CSV
    has it where a column has gaps), a decimal has its digits, and a moment is in UTC, to the microsecond; at
    midnight it is a date. All other texts are their own names: ``1.10`` and ``1.1`` may be two versions.

    Raises
    ------
    ValueError
        If the value is no text of at most 4096 bytes, number, boolean, date, time or None. A number that JSON
        can hold, however long, has a name.
    """
    if type(value) is str:  # nearly always
        text: str = value
        size = len(text)
        if 0 < size <= _PLAIN:
            if not text.isascii():
                _check_size(text)
            if size > 4 and text[4] == "-":
                return _name_of_moment(text)
            if size > 2 and text[size - 1] == "0" and text[size - 2] == ".":
                return text[: size - 2] if _WHOLE.fullmatch(text) else text
            return _WORDS.get(text, text) if text[0] in "TF" else text
    if isinstance(value, np.datetime64 | date | Decimal):
        value = str(value)
        return None if value in _MISSING_TEXTS else name_of(value)
    if isinstance(value, str) and type(value) is not str:  # of NumPy, or an enumeration
        return name_of(str.__str__(value))
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        _check_size(value)
        return value or None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if value != value:
            return None
        return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    if isinstance(value, int):
        try:
            return str(int(value))
        except ValueError:  # of more digits than Python writes; no format reads so many
            raise ValueError(f"a segment must have fewer digits, got {shown(value)}") from None
    if value is None or type(value).__name__ in _MISSING:
        return None
    raise ValueError(f"a segment must be a text, number, boolean, date, time or None, got {shown(value)}")


def codes_of(values: Sequence[Any], names: list[Name]) -> Counts:
    """Return the place of the name of each value, int64[n], in ``names``, to which new ones are added.

    Raises
    ------
    ValueError
        as `name_of`, with the index of the value.
    """
    known: dict[Any, int] = {}
    out = np.empty(len(values), np.int64)
    codes: Any = out.data
    for i in range(len(values)):
        value = values[i]
        # 1, 1.0 and True are equal, but have different names, as have decimals of another number of digits.
        key = value if type(value) is str else (type(value), str(value) if type(value) is Decimal else value)
        try:
            code = known.get(key, -1)
        except TypeError:  # such as a list
            code = -1
        if code < 0:
            try:
                names.append(name_of(value))
            except ValueError as error:
                raise ValueError(f"index {i}: {error}") from None
            code = known[key] = len(names) - 1
        codes[i] = code
    return out


def names_of(given: Sequence[bytes], count: int, field: int) -> list[Name]:
    """Return the values of one of ``count`` fields, each of what `Fields.forecast` gave."""
    sizes = _NUMBER_BYTES * (1 + _TERMS * count)
    names = list[Name]()
    for each in given:
        at = sizes + 2 * count
        for i in range(field):
            at += size_of(each, sizes + 2 * i)
        names.append(as_name(each[at : at + size_of(each, sizes + 2 * field)]))
    return names


def size_of(data: Sequence[int], at: int) -> int:
    """Return the size of a value, in two bytes."""
    return data[at] | data[at + 1] << 8


class SegmentRules(event_rules_c.EventRules):
    """Rules of an engine with segments; `segmented_engine` adds those for many, and state.

    `segments` are the corrections and own engines.
    """

    segments: Segments

    def begin(self, segments: Segments, places: Sequence[int]) -> None:
        """Begin with segments, and the index of each field among the values that an event keeps."""
        self.segments, self._fields, self._has_own = segments, segments.corrections, segments.has_engines
        self._places = list(places)
        self.carries = True
        if self.release is not None:
            self.release.excludes = False  # of predictions without a label, nothing was kept

    def carry(self, kept: Kept, score: float, probability: float) -> tuple[float, bytes]:
        """Return the corrected probability of a score, and its segments with the forecast of each field."""
        names = list[Name]()
        for place in self._places:
            names.append(name_of(kept[place]) if place < len(kept) else None)
        forecast = self._fields.forecast(probability, names, None)
        if self._has_own and self._fields.labels >= _WORTH:
            forecast = self.segments.carry(score, probability, names, forecast)
        return self._fields.served, forecast

    def learn_memo(self, score: float, label: int, memo: Any) -> None:
        """Let corrections learn a label of the target."""
        self._fields.learn(label, memo)
        if self._has_own and self._fields.labels >= _WORTH:
            self.segments.learn_own(names_of([memo], 1, 0)[0], score, label)


def _check_size(text: str) -> None:
    """Raise ValueError if a text has too many bytes, or is none that has bytes."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a segment must be Unicode text, got {shown(text)}") from None
    if size > _LONGEST:
        raise ValueError(f"a segment must be at most {_LONGEST} bytes, got {shown(text)}")


def _name_of_moment(text: str) -> str:
    """Return the name of a date and time; of another text itself."""
    if not _MOMENT.fullmatch(text):
        return text
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # such as 30 February
        return text
    named = str(moment).removesuffix(" 00:00:00")
    return named.rstrip("0") if moment.microsecond else named
