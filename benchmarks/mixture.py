"""What the mixture of mode ``auto`` costs: time per labelled event by part, memory, and size of its state.

``python benchmarks/mixture.py`` prints a table in about a minute; `bench.py` has its budgets. Times are
processor time, the mean over the steps after 100,000 labels: which maps are due differs from step to step.
The map of a step is made when it is asked for, which costs more where every step is.
Labels come at once, a fixed number of labels late, or after exponential delays, so that the labels of one
step belong to predictions of many steps before.
"""

from __future__ import annotations

import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Row, figure
from numpy.typing import NDArray

from streamcal.mixture.mixture import Mixture
from streamcal.mixture.newton_c import OnlinePlatt
from streamcal.mixture.weights import Weights
from streamcal.mixture.windows import Windows
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

SOURCE = 100_000
WARM = 100_000
TIMED = 50_000
DELAYS = {"at once": 0, "500 late": 500, "0 to ∞, mean 4,000": 4000}
BUDGETS = {"at once": 1.5, "500 late": 3.0, "0 to ∞, mean 4,000": 3.0}  # µs
SPREAD = 4000  # from here on, delays are exponential with this mean
PARTS = {
    "score labels": (Mixture, "_losses"),
    "move weights": (Weights, "track"),
    "online Platt": (OnlinePlatt, "learn"),
    "count labels": (Windows, "add"),
    "fit windows": (Windows, "fit"),
}
COLUMNS = ("all", "with maps", *PARTS)

Floats = NDArray[np.float64]
Times = dict[str, list[float]]


def clocked(work: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        out = work(*args, **kwargs)
        times.append(time.process_time() - start)
        return out

    return timed


def per_label(mixture: Mixture, delay: int, *, parts: bool, maps: bool = False) -> dict[str, float]:
    """Return microseconds per labelled event, in all or by part; ``maps``: the map of each step is made."""
    rng = np.random.default_rng(2)
    scores, labels = NormalPair(0.5).sample(WARM + TIMED + 8 * delay, rng)
    made = np.arange(len(scores))
    arrived = made + (rng.exponential(delay, len(made)) if delay >= SPREAD else delay)
    order = np.argsort(arrived, kind="stable")
    scores, labels, made, arrived = scores[order], labels[order], made[order], arrived[order]

    seen = made if delay else np.full(len(made), -1)

    def feed(end: int) -> float:
        """Return seconds."""
        start = time.process_time()
        while mixture.n < end:
            first, last = mixture.n, min(end, mixture.next_step)
            number = min(int(arrived[last - 1]) + 1, len(scores))
            mixture.learn(scores[first:last], labels[first:last], seen[first:last], observed=number)
            mixed = mixture.step(number)
            if maps:
                assert mixed.map.values
        return time.process_time() - start

    feed(WARM)
    if not parts:
        return {"all": 1e6 * feed(WARM + TIMED) / TIMED}
    times: Times = defaultdict(list)
    originals = {part: getattr(owner, name) for part, (owner, name) in PARTS.items()}
    for part, (owner, name) in PARTS.items():
        setattr(owner, name, clocked(originals[part], times[part]))
    try:
        feed(WARM + TIMED)
    finally:
        for part, (owner, name) in PARTS.items():
            setattr(owner, name, originals[part])
    return {part: 1e6 * sum(taken) / TIMED for part, taken in times.items()}


def with_source(scores: Floats, labels: NDArray[np.int8]) -> Mixture:
    """Return a mixture whose source has these labels, float64[n] and int8[n]."""
    sketch = ScoreSketch()
    sketch.add(scores, labels)
    mixture = Mixture()
    mixture.set_source(sketch)
    mixture.continue_from(scores, labels)
    return mixture


def rows() -> Iterator[Row]:
    """Yield what a label costs, of a mixture with a source."""
    source = NormalPair(0.5).sample(SOURCE, np.random.default_rng(1))
    for late, delay in DELAYS.items():
        taken = [per_label(with_source(*source), delay, parts=False)["all"] for _ in range(3)]
        yield figure("mixture", f"a label in the mixture, {late}", "µs", taken, at_most=BUDGETS[late])


def main() -> None:
    source = NormalPair(0.5).sample(SOURCE, np.random.default_rng(1))
    print(f"{'us per labelled event':32}" + "".join(f"{part:>15}" for part in COLUMNS))
    for sourced in (False, True):
        for late, delay in DELAYS.items():
            row: dict[str, float] = {}
            for parts in (False, True):
                mixture = with_source(*source) if sourced else Mixture()
                row |= per_label(mixture, delay, parts=parts)
            mixture = with_source(*source) if sourced else Mixture()
            row["with maps"] = per_label(mixture, delay, parts=False, maps=True)["all"]
            name = ("source, " if sourced else "no source, ") + late
            print(f"{name:32}" + "".join(f"{row[part]:15.2f}" for part in COLUMNS))
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
    with_source(*source)
    print(f"a source of {SOURCE:,} labels: {1e3 * (time.perf_counter() - start):.1f} ms")
    tracemalloc.start()
    held = Mixture.from_bytes(state)
    print(f"memory: {tracemalloc.get_traced_memory()[0] / 1024:.0f} KiB after {held.n} labels, with a source")
    tracemalloc.stop()


if __name__ == "__main__":
    main()
