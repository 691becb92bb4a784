"""Decisions by probabilities of class 1: of least expected cost, by two thresholds, or by a capacity a day.

A decision is ``act`` (as on class 1), ``pass`` (as on class 0) or ``review`` (someone looks, and decides
right). With calibrated probabilities p, acting costs ``false_positive`` · (1 − p) on average, passing
``false_negative`` · p: docs/decisions.md.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from streamcal.base.times import as_times
from streamcal.base.values import Counts, Floats, check_order, shown
from streamcal.sketch.checks import as_scores
from streamcal.sketch.decoding import Count

Decision: TypeAlias = Literal["pass", "review", "act"]

DECISIONS: Final[tuple[Decision, ...]] = ("pass", "review", "act")
"""Decisions by their codes: the higher the probability, the higher the code."""

PASS, REVIEW, ACT = range(3)

_DAY: Final = 86_400.0
MOST: Final = 100_000  # decisions to act a day: so many probabilities are kept


class Thresholds(NamedTuple):
    """Thresholds of probabilities: from ``act`` on the decision is to act, below ``review`` to pass."""

    review: float
    act: float

    def codes(self, probabilities: Floats) -> Counts:
        """Return the decisions, as places in `DECISIONS`: int64[n]."""
        return (probabilities >= self.review).astype(np.int64) + (probabilities >= self.act)


class Costs(msgspec.Struct, frozen=True):
    """Costs of wrong decisions, in any one unit; right ones cost nothing.

    Parameters
    ----------
    false_positive
        cost of acting where the label is 0, ≥ 0.
    false_negative
        cost of passing where the label is 1, ≥ 0.
    review
        cost of a review, ≥ 0, whatever the label; None: there are none.

    Raises
    ------
    ValueError
        if a cost is negative or not finite, or both of wrong decisions are 0.

    Examples
    --------
    >>> Costs(false_positive=1.0, false_negative=19.0).thresholds
    Thresholds(review=0.05, act=0.05)
    >>> Costs(false_positive=10.0, false_negative=100.0, review=2.0).thresholds
    Thresholds(review=0.02, act=0.8)
    """

    false_positive: float
    false_negative: float
    review: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, int | float | np.number) and 0.0 <= value < math.inf
            ):
                raise ValueError(f"{name} must be a finite cost, at least 0, got {shown(value)}")
        if not self.false_positive + self.false_negative:
            raise ValueError(
                "false_positive and false_negative are both 0, so that no decision is better: give one of"
                " them a cost above 0"
            )

    @property
    def thresholds(self) -> Thresholds:
        """Thresholds of least expected cost.

        Acting costs no more than passing from false_positive/(false_positive + false_negative) on. A review
        costs less than either from review/false_negative to 1 − review/false_positive, if that is above it.
        """
        wrong, missed, review = self.false_positive, self.false_negative, self.review
        if review is not None and review * (wrong + missed) < wrong * missed:
            return Thresholds(review / missed, max(1.0 - review / wrong, review / missed))
        even = wrong / (wrong + missed)
        return Thresholds(even, even)

    @property
    def table(self) -> Floats:
        """Cost of each decision by label, 0 and 1: float64[3, 2]."""
        review = self.review or 0.0  # without a cost there is no review
        return np.array([[0.0, self.false_negative], [review, review], [self.false_positive, 0.0]])


class Capacity(msgspec.Struct):
    """Decisions to act on about the k most probable of each day, and never on more; its fields are its state.

    Which are the most probable is known at the end of a day. So one day's k-th largest probability is the
    threshold of the next. It is exact: the k largest of the day are kept. The first day has no threshold, and
    takes the first k. Days are those of event times in UTC; an event of an earlier day, or without a time,
    counts to the latest.

    Examples
    --------
    >>> capacity = Capacity(1)
    >>> [capacity.take(p, 86_400.0 * day) for day, p in [(0, 0.2), (0, 0.9), (1, 0.8), (1, 0.9), (1, 0.95)]]
    [2, 0, 0, 2, 0]
    """

    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST)]
    """Most decisions to act in a day: k."""
    seed: int = 0
    day: int | None = None
    """Latest day, from 1970 on; None: none has begun."""
    seen: Count = 0
    """Number of predictions of that day."""
    acted: Count = 0
    """Number of decisions to act in that day."""
    threshold: float = 0.0
    share: float = 1.0
    """Share of the probabilities that are equal to the threshold on which to act."""
    largest: list[float] = []
    """The k largest probabilities of that day, as a heap."""
    dropped: Count = 0
    """Number of other probabilities that are equal to the least of these."""

    def take(self, probability: float, time: float | None) -> int:
        """Return the decision on the next prediction, `ACT` or `PASS`; ``time`` is in seconds, NaN: none."""
        day = self.day or 0 if time is None or time != time else int(time // _DAY)
        if self.day is None or day > self.day:
            self._begin(day)
        self.seen += 1
        heap = self.largest
        if len(heap) < self.limit:
            heapq.heappush(heap, probability)
        elif probability >= heap[0]:
            least = heapq.heapreplace(heap, probability)
            self.dropped = self.dropped + 1 if least == heap[0] else 0
        acts = probability > self.threshold
        if probability == self.threshold:
            acts = self.share >= 1.0 or self._drawn() < self.share
        if not acts or self.acted == self.limit:
            return PASS
        self.acted += 1
        return ACT

    def _begin(self, day: int) -> None:
        """Begin a day with the threshold of the one before."""
        heap = self.largest
        if self.day is not None:
            self.threshold, self.share = 0.0, 1.0
            if len(heap) == self.limit:
                least, equal = heap[0], heap.count(heap[0])
                self.threshold, self.share = least, equal / (equal + self.dropped)
        self.day, self.seen, self.acted, self.largest, self.dropped = day, 0, 0, [], 0

    def _drawn(self) -> float:
        """Return a number from [0, 1) that depends on seed, day, and number of the prediction alone."""
        text = b"%d %d %d" % (self.seed, self.day or 0, self.seen)
        return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest()) / 2.0**48


def decide(
    probabilities: Any,
    costs: Costs | None = None,
    *,
    thresholds: tuple[float, float] | None = None,
    capacity_per_day: int | None = None,
    times: Any = None,
    seed: int = 0,
) -> npt.NDArray[np.str_]:
    """Decide by probabilities of class 1, by exactly one of costs, thresholds and a capacity.

    Parameters
    ----------
    probabilities
        calibrated ones, in [0, 1]: an array, list, or column of a data frame, of length n.
    costs
        of wrong decisions, and of a review: each decision is that of least expected cost. At equal costs it
        is to act.
    thresholds
        two probabilities, ascending, in [0, 1]: to review from the first on, to act from the second on.
    capacity_per_day
        number of decisions to act in a day, from 1 to 100,000: see `streamcal.quality.decisions.Capacity`.
    times
        event times of a capacity, their days ascending: those that `Recalibrator` takes. Length n.
    seed
        of the draws between equal probabilities, under a capacity.

    Returns
    -------
    ``"act"``, ``"pass"`` or ``"review"`` for each: str[n].

    Raises
    ------
    TypeError
        if costs are no `Costs`.
    ValueError
        if a probability, threshold, capacity, time or length is out of range, or not one of the three is
        given.

    Examples
    --------
    >>> decide([0.01, 0.1, 0.9], Costs(false_positive=1.0, false_negative=20.0)).tolist()
    ['pass', 'act', 'act']
    >>> decide([0.01, 0.1, 0.9], thresholds=(0.05, 0.5)).tolist()
    ['pass', 'review', 'act']
    """
    given = sum(each is not None for each in (costs, thresholds, capacity_per_day))
    if given != 1:
        raise ValueError(f"give one of costs, thresholds and capacity_per_day, got {given} of them")
    check_order(probabilities=probabilities, times=times)
    p = as_scores(probabilities)
    if costs is not None:
        if not isinstance(costs, Costs):
            raise TypeError(f"costs must be Costs(false_positive=…, false_negative=…), got {shown(costs)}")
        codes = costs.thresholds.codes(p)
    elif thresholds is not None:
        two = np.asarray(thresholds)
        if two.shape != (2,) or two.dtype.kind not in "fui" or not 0.0 <= two[0] <= two[1] <= 1.0:
            raise ValueError(f"thresholds must be two ascending probabilities, got {shown(thresholds)}")
        codes = Thresholds(*two.tolist()).codes(p)
    else:
        if not isinstance(capacity_per_day, int | np.integer) or not 1 <= capacity_per_day <= MOST:
            raise ValueError(f"capacity_per_day must be from 1 to {MOST:,}, got {shown(capacity_per_day)}")
        if times is None:
            raise ValueError(f"capacity_per_day needs times of the {len(p)} predictions, got None")
        seconds = as_times(times, len(p))
        if len(back := np.flatnonzero(np.diff(seconds // _DAY) < 0.0)):
            raise ValueError(
                f"index {back[0] + 1}: times must ascend, and this one is of an earlier day than that before:"
                " sort by time"
            )
        take = Capacity(int(capacity_per_day), seed).take
        codes = np.array(list(map(take, p.tolist(), seconds.tolist())), np.int64)
    return np.array(DECISIONS)[codes]
