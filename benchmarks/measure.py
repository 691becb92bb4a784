"""Two pieces of work timed side by side: in turn, in one process, many times."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Row", "compare", "figure", "seconds"]

Work = Callable[[], object]


@dataclass
class Row:
    """One line of the table. ``ours``, ``theirs`` and ``ratios`` hold one entry for every repeat."""

    group: str
    operation: str
    n: int | None
    unit: str
    ours: list[float]
    yardstick: str = ""
    theirs: list[float] = field(default_factory=list)
    ratio: str = ""
    """What the ratio is, in words; it is worked out repeat by repeat."""
    ratios: list[float] = field(default_factory=list)
    budget: str = ""
    met: bool | None = None
    """Whether the budget is met by the median; None without a budget."""
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return all fields, and min, median and max of the lists."""
        out = asdict(self)
        for name in ("ours", "theirs", "ratios"):
            values = getattr(self, name)
            out[name] = dict(zip(("min", "median", "max"), spread(values), strict=True)) if values else None
        return out | {"repeats": len(self.ours)}


def spread(values: list[float]) -> tuple[float, float, float]:
    """Return min, median and max."""
    return min(values), statistics.median(values), max(values)


def seconds(*works: Work, repeats: int, before: Work | None = None) -> list[list[float]]:
    """Return the times of each piece of work, one for every repeat, after one round to warm up.

    The works take turns, so that what else the machine does falls on all of them; every other round goes
    backwards, so that none always runs in the wake of the same neighbour. ``before``, not timed, comes
    before each piece of work.
    """
    times: list[list[float]] = [[] for _ in works]
    enabled = gc.isenabled()
    gc.disable()
    try:
        for repeat in range(-1, repeats):
            turns = list(enumerate(works))
            for place, work in reversed(turns) if repeat % 2 else turns:
                if before is not None:
                    before()
                start = time.process_time()
                work()
                taken = time.process_time() - start
                if repeat >= 0:
                    times[place].append(taken)
            gc.collect()
    finally:
        if enabled:
            gc.enable()
    return times


def compare(
    group: str,
    operation: str,
    ours: Work,
    yardstick: str,
    theirs: Work,
    *,
    n: int,
    events: int | None = None,
    repeats: int = 7,
    at_least: float | None = None,
    at_most_ns: float | None = None,
    note: str = "",
) -> Row:
    """Time ours against a yardstick doing the same events; the ratio is how many times as fast ours is."""
    events = events or n
    times = seconds(ours, theirs, repeats=repeats)
    mine, other = ([1e9 * taken / events for taken in each] for each in times)
    ratios = [b / a for a, b in zip(mine, other, strict=True)]
    row = Row(group, operation, n, "ns/event", mine, yardstick, other, "× as fast", ratios, note=note)
    if at_least is not None:
        row.budget, row.met = f"≥ {at_least:g} ×", statistics.median(ratios) >= at_least
    if at_most_ns is not None:
        row.budget, row.met = f"≤ {at_most_ns:g} ns", statistics.median(mine) <= at_most_ns
    return row


def figure(group: str, operation: str, unit: str, values: list[float], **fields: Any) -> Row:
    """Return a row for a figure that has no yardstick, with the budget ``at_most`` if it is given."""
    at_most = fields.pop("at_most", None)
    row = Row(group, operation, fields.pop("n", None), unit, values, **fields)
    if at_most is not None:
        row.budget, row.met = f"≤ {at_most:g} {unit}", statistics.median(values) <= at_most
    return row
