"""What the mixture of mode ``auto`` costs: time per labelled event by part, memory, and size of its state.

``python benchmarks/mixture.py`` prints a table in about a minute. Times are processor time, the median over
the steps after 100,000 labels. Labels come at once, a fixed number of labels late, or after exponential
delays, so that the labels of one step belong to predictions of many steps before.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from streamcal.maps.uniform_mass import form
from streamcal.mixture.mixture import Mixture
from streamcal.mixture.table import ServedTable, Table
from streamcal.mixture.weights import Weights
from streamcal.mixture.windows import Windows
from streamcal.sketch.nested_windows import NestedWindows
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

WARM = 100_000
TIMED = 50_000
DELAYS = {"at once": 0, "500 late": 500, "0 to ∞, mean 4,000": 4000}
SPREAD = 4000  # from here on, delays are exponential with this mean
PARTS = {
    "score labels": (Mixture, "_forecasts"),
    "move weights": (Weights, "track"),
    "count labels": (NestedWindows, "add"),
    "fit windows": (Windows, "fit"),
    "update table": (ServedTable, "fill"),
    "  evaluate it": (Table, "fill"),
    "mix map": (Mixture, "_mix"),
}
WEIGHING = "a weighing"
COLUMNS = ("all", WEIGHING, *PARTS)

Times = dict[str, list[float]]


def clocked(work: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        out = work(*args, **kwargs)
        times.append(time.process_time() - start)
        return out

    return timed


def per_label(mixture: Mixture, delay: int, *, parts: bool) -> dict[str, float]:
    """Return microseconds per labelled event, in all or by part.

    In all, this includes the time of one weighing between two steps, whether it mixes a map or not.
    """
    rng = np.random.default_rng(2)
    scores, labels = NormalPair(0.5).sample(WARM + TIMED + 8 * delay, rng)
    made = np.arange(len(scores))
    arrived = made + (rng.exponential(delay, len(made)) if delay >= SPREAD else delay)
    order = np.argsort(arrived, kind="stable")
    scores, labels, made, arrived = scores[order], labels[order], made[order], arrived[order]

    seen = made if delay else np.full(len(made), -1)

    def feed(end: int) -> tuple[list[float], list[float]]:
        """Return seconds per step, and per weighing."""
        taken: tuple[list[float], list[float]] = [], []
        while mixture.n < end:
            counted, first = mixture.n, mixture.n + mixture.weighed
            last = min(end, mixture.next_weighing)
            step = last >= mixture.next_step or last < mixture.next_weighing
            start = time.process_time()
            mixture.weigh(scores[first:last], labels[first:last], seen[first:last])
            if step:
                mixture.count(scores[counted:last], labels[counted:last])
                mixture.step(int(arrived[last - 1]) + 1)
            else:
                mixture.remix()
            taken[not step].append(time.process_time() - start)
        return taken

    feed(WARM)
    if not parts:
        steps, weighings = feed(WARM + TIMED)
        total = sum(statistics.median(taken) * len(taken) for taken in (steps, weighings))
        return {"all": 1e6 * total / TIMED, WEIGHING: 1e6 * statistics.median(weighings)}
    times: Times = defaultdict(list)
    originals = {part: getattr(owner, name) for part, (owner, name) in PARTS.items()}
    for part, (owner, name) in PARTS.items():
        setattr(owner, name, clocked(originals[part], times[part]))
    try:
        feed(WARM + TIMED)
    finally:
        for part, (owner, name) in PARTS.items():
            setattr(owner, name, originals[part])
    # Steps differ by the windows that are due: a part that is rare counts by how often it occurs.
    return {
        part: 1e6 * statistics.median(taken) * len(taken) / TIMED for part, taken in times.items() if taken
    }


def main() -> None:
    sketch = ScoreSketch()
    sketch.add(*NormalPair(0.5).sample(100_000, np.random.default_rng(1)))
    source = form(sketch, "auto").map
    print(f"{'us per labelled event':32}" + "".join(f"{part:>15}" for part in COLUMNS))
    for with_source in (False, True):
        for late, delay in DELAYS.items():
            row = {}
            for parts in (False, True):
                mixture = Mixture()
                if with_source:
                    mixture.set_source(source, sketch)
                row |= per_label(mixture, delay, parts=parts)
            name = ("source, " if with_source else "no source, ") + late
            print(f"{name:32}" + "".join(f"{row.get(part, 0.0):15.2f}" for part in COLUMNS))
            start = time.perf_counter()
            state = mixture.to_bytes()
            middle = time.perf_counter()
            Mixture.from_bytes(state)
            end = time.perf_counter()
            print(
                f"{'':32}state {len(state) / 1024:.0f} KiB, written in {1e3 * (middle - start):.1f} ms, "
                f"read in {1e3 * (end - middle):.1f} ms"
            )
    start = time.perf_counter()
    mixture.set_source(source, sketch)
    print(f"set_source: {1e3 * (time.perf_counter() - start):.1f} ms at {len(sketch.cells)} cells")
    tracemalloc.start()
    held = Mixture.from_bytes(state)
    print(f"memory: {tracemalloc.get_traced_memory()[0] / 1024:.0f} KiB after {held.n} labels, with a source")
    tracemalloc.stop()


if __name__ == "__main__":
    main()
