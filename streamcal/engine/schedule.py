"""The schedule of map versions: label counts at which one is due, and the number begun.

In the modes of the paper's estimators, and for the source in mode ``auto``, h is re-formed when the label
count reaches n_j = ⌈64·ρ^j⌉. Under a window the steps stop growing where they would exceed the step by
which the window slides. In mode ``auto`` the mixture decides on further versions.
"""

from __future__ import annotations

import math
from typing import Final, Self

import msgspec

from streamcal.events import DOMAINS, Domain
from streamcal.sketch.decoding import Number, Part, require

NEVER: Final = 1 << 62
"""Label count that is never reached."""

FIRST_LABELS: Final = 64
"""Label count at which the first map is formed; before it, the map is the identity."""

GROWTH: Final = 1.1
"""ρ, the factor by which labels grow from one version to the next."""


class Schedule:
    """Geometric re-forming times for a growth ρ > 1: few versions, each at most ρ times out of date.

    Parameters
    ----------
    growth
        ρ, greater than 1.
    step
        the longest step, in labels; None: no limit.
    """

    __slots__ = ("_growth", "_last", "_log_growth", "_step")

    def __init__(self, growth: float, step: int | None = None) -> None:
        self._growth = growth
        self._log_growth = math.log(growth)
        self._step = step or 0
        self._last: int | None = None  # the last j that the growth alone decides
        if step is not None:
            steps = math.log(step / (FIRST_LABELS * (growth - 1.0))) / self._log_growth
            self._last = max(0, int(steps) - 2)
            while self._geometric(self._last + 1) - self._geometric(self._last) <= step:
                self._last += 1

    def count(self, j: int) -> int:
        """Return n_j, j ≥ 0."""
        if self._last is None or j <= self._last:
            return self._geometric(j)
        return self._geometric(self._last) + (j - self._last) * self._step

    def passed(self, labels: int) -> int:
        """Return the number of n_j that are at most ``labels``: the number of versions formed by then."""
        if labels < FIRST_LABELS:
            return 0
        if self._last is not None and labels >= self.count(self._last):
            return self._last + 1 + (labels - self.count(self._last)) // self._step
        passed = max(0, int(math.log(labels / FIRST_LABELS) / self._log_growth) - 1)
        while self._geometric(passed) <= labels:
            passed += 1
        return passed

    def _geometric(self, j: int) -> int:
        return math.ceil(FIRST_LABELS * self._growth**j)


class VersionCounts(Part, dict=True):
    """The map versions that one engine has begun, and the label counts at which the next are due.

    Its fields are its state; `plan_by` must follow.
    """

    off_schedule: Number = 0
    """Number of versions begun by anything else than labels: a refresh, an alarm, a prior that moved."""
    begun: dict[Domain, Number] = msgspec.field(default_factory=lambda: dict.fromkeys(DOMAINS, 0))
    """Number of versions that each domain's label counts have begun."""

    def __post_init__(self) -> None:
        """Check a decoded state; raise ValueError if it is none."""
        require(tuple(self.begun) == DOMAINS, "versions of other domains")

    def plan_by(
        self, schedules: dict[Domain, Schedule], numbered: tuple[Domain, ...], labels: dict[Domain, int]
    ) -> Self:
        """Follow schedules from these numbers of labels on.

        Parameters
        ----------
        schedules
            schedule of each domain whose labels begin versions.
        numbered
            the domains whose versions are served; versions of the others are only certified.
        labels
            number of labels of each domain.
        """
        self._schedules, self._numbered = schedules, numbered
        self.due: dict[Domain, int] = dict.fromkeys(DOMAINS, NEVER)
        """Label count at which the next version of each domain begins."""
        for domain in schedules:
            self.plan(domain, labels[domain])
        return self

    def reform_by(self, growth: float, labels: dict[Domain, int]) -> None:
        """Go on with another growth, without a longest step; ``labels`` are the counts so far."""
        self.plan_by(dict.fromkeys(self._schedules, Schedule(growth)), self._numbered, labels)

    @property
    def number(self) -> int:
        """Number of the served version, without the versions that the mixture has begun."""
        return self.off_schedule + sum([self.begun[domain] for domain in self._numbered])

    def plan(self, domain: Domain, labels: int) -> None:
        """Compute the label count at which the next version of a domain is due."""
        schedule = self._schedules.get(domain)
        if schedule is not None:
            self.due[domain] = schedule.count(min(schedule.passed(labels), self.begun[domain]))

    def begin(self, domain: Domain, labels: int) -> None:
        """Count the version that begins at this many labels of a domain."""
        # Where event time slides a window, a version begins though no scheduled count was passed.
        self.begun[domain] = max(self.begun[domain] + 1, self._schedules[domain].passed(labels))
        self.plan(domain, labels)

    def schedule_now(self, domain: Domain, labels: int) -> None:
        """Let a version begin at this many labels, if none is due before."""
        if domain in self._schedules:
            self.due[domain] = min(self.due[domain], labels)

    def last_due(self, domain: Domain, labels: int, more: int) -> int:
        """Return the last scheduled count among the next ``more`` labels; 0 if there is none."""
        schedule = self._schedules.get(domain)
        if schedule is None:
            return 0
        passed = schedule.passed(labels + more)
        return schedule.count(passed - 1) if passed > schedule.passed(labels) else 0


def parts_of_call(size: int, known: int) -> list[int]:
    """Return the index at which each part of one call's labels begins.

    A part is as long as all labels before it, ``known`` ones among them: what was predicted for it could rest
    on no more.
    """
    starts, start = list[int](), 0
    while start < size:
        starts.append(start)
        start += max(1, known + start)
    return starts
