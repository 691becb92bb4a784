"""The paper's experiments, run through the streaming engine: every function here computes, none draws.

Every map is formed by `streamcal.Recalibrator`, fed in chunks by `learn_many`, and measured by
`streamcal.testing.NormalPair`, exactly. Each run is seeded by what it is, so the results depend neither on
the number of processes nor on the order of the tasks.
"""

from __future__ import annotations

import csv
import math
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from streamcal import Mode, RecalibrationMap, Recalibrator
from streamcal.maps.shift import shift_weights
from streamcal.maps.uniform_mass import form
from streamcal.sketch.score_sketch import ScoreSketch
from streamcal.testing import NormalPair

Sample = tuple[npt.NDArray[np.float64], npt.NDArray[np.int8]]
Task = TypeVar("Task")
Result = TypeVar("Result")
Row = TypeVar("Row", bound=tuple[Any, ...])

CHUNK: Final = 1 << 20
SOURCE: Final = NormalPair(0.5)

LARGEST_BINS: Final = 1000
"""Figure 1 ends here, as the paper's; the search for the best B goes on to twice that."""

SAMPLE_SIZES: Final = tuple(round(10 ** (k / 2)) for k in range(4, 15))
BINS: Final = tuple(round(6 * (LARGEST_BINS / 6) ** (k / 30)) for k in range(35))  # 6 … 1000 … 1977
RISK_CELLS: Final = 16_384
"""Cells of the sketch in Figures 1 and 2. The default, 4096, cannot cut 1000 equal bins (see `cell_rows`)."""

CURVE_SEED: Final = 0
TABLE_1_SEEDS: Final = 300
GRID_RUNS: Final = {10: (200, 1), 10**3: (200, 1), 10**5: (40, 5), 10**7: (20, 10)}
"""For every n_P, how many source samples to draw, and how many target samples with each of them."""
GRID_TARGETS: Final = (10, 10**3, 10**5)
GRID_PRIORS: Final = (0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
MODES: Final[tuple[Mode, ...]] = ("source", "target", "label_shift", "composite")


class RiskRow(NamedTuple):
    """Risks of ĥ at one n and B under D(0.5): means over the seeds, sd, and the largest.

    ``calibration`` and ``sharpness`` condition on the bin, as the proof of Theorem 1 does; ``merged_…``
    condition on the value ĥ(Z), as Definitions 3 and 4 say. They differ when two bins have the same mean.
    """

    n: int
    bins: int
    seeds: int
    formed: float
    calibration: float
    sharpness: float
    total: float
    total_sd: float
    calibration_max: float
    sharpness_max: float
    total_max: float
    merged_calibration: float
    merged_sharpness: float


class CellRow(NamedTuple):
    """Risks at n = 10⁷ by the size of the sketch."""

    max_cells: int
    bins: int
    seeds: int
    formed: float
    calibration: float
    sharpness: float
    total: float


class TableRow(NamedTuple):
    """Table 1: one estimator's risks under D(0.1), mean and sd over the seeds; MSE = E[(h(Z) − Y)²]."""

    method: str
    source_bins: int
    seeds: int
    calibration: float
    calibration_sd: float
    sharpness: float
    sharpness_sd: float
    total: float
    total_sd: float
    mse: float
    mse_sd: float


class GridRow(NamedTuple):
    """The appendix's grid: one estimator's risks under D(π_Q), and its mean R less the composite's, paired.

    The method ``composite_kt`` is the engine's default: Krichevsky–Trofimov priors instead of the plug-in.
    """

    target_prior: float
    n_source: int
    n_target: int
    method: str
    seeds: int
    calibration: float
    sharpness: float
    total: float
    total_sd: float
    excess: float
    excess_error: float


class CurveRow(NamedTuple):
    """Figure 4: one bin of a step map, value on [left, right); ``label_shift`` is given by its weights."""

    method: str
    left: float
    right: float
    value: float
    weight_0: float
    weight_1: float


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows of one kind as CSV, five significant digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)  # type: ignore[attr-defined]
        for row in rows:
            writer.writerow(f"{value:.5g}" if isinstance(value, float) else value for value in row)


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Read what `write_rows` wrote."""
    types = list(get_type_hints(kind).values())
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    if lines[0] != list(kind._fields):  # type: ignore[attr-defined]
        raise ValueError(f"{path}: columns {lines[0]} are not those of {kind.__name__}; run with --fresh")
    return [kind(*(cast(text) for cast, text in zip(types, line, strict=True))) for line in lines[1:]]


def run_tasks(function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int) -> list[Result]:
    """Apply a function to every task, in ``jobs`` processes; results in the order of the tasks."""
    if jobs == 1:
        return [function(task) for task in tasks]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        return pool.map(function, tasks, chunksize=max(1, len(tasks) // 300))


# Figures 1 and 2


def chunks(pair: NormalPair, n: int, rng: np.random.Generator) -> Iterator[Sample]:
    """Yield n events of D(π) in chunks."""
    for start in range(0, n, CHUNK):
        yield pair.sample(min(CHUNK, n - start), rng)


def by_bin(recalibration: RecalibrationMap) -> RecalibrationMap:
    """Return the map with its values told apart (by 1e-12), so that risks condition on the bin."""
    values = np.asarray(recalibration.values)
    apart = (1 - 1e-12) * values + 1e-12 * (np.arange(len(values)) + 0.5) / len(values)
    return RecalibrationMap(
        version=recalibration.version, edges=recalibration.edges, values=tuple(apart.tolist())
    )


def streamed_maps(events: Iterable[Sample], engines: Sequence[Recalibrator]) -> list[RecalibrationMap]:
    """Feed one stream to all engines and return their maps at its end."""
    for scores, labels in events:
        for engine in engines:
            engine.learn_many(scores, labels, "source")
    for engine in engines:
        engine.refresh()
    return [engine.map for engine in engines]


def sketched(pair: NormalPair, n: int, rng: np.random.Generator, cells: int) -> ScoreSketch:
    """Return the sketch of one stream of n labels."""
    sketch = ScoreSketch(cells)
    for scores, labels in chunks(pair, n, rng):
        sketch.add(scores, labels)
    return sketch


def usable_bins(n: int) -> list[int]:
    """Return the B of the grid with two scores a bin or more: below, Theorem 1's bound is infinite."""
    return [bins for bins in BINS if 2 * bins <= n]


def risk_run(task: tuple[int, int]) -> npt.NDArray[np.float64]:
    """Return float64[B, 6]: bins formed, R_cal, R_sha, R by bin, R_cal and R_sha merged, for one sample."""
    n, seed = task
    sketch = sketched(SOURCE, n, np.random.default_rng([1, n, seed]), RISK_CELLS)
    rows = []
    for formed in (form(sketch, bins).map for bins in usable_bins(n)):
        merged = SOURCE.risk(formed)
        risk = merged if len(set(formed.values)) == formed.bins else SOURCE.risk(by_bin(formed))
        rows.append((formed.bins, *risk, risk.total, *merged))
    return np.array(rows)


def risk_seeds(n: int, effort: float = 1.0) -> int:
    """Return how many samples of size n to draw: 100 up to n = 10⁵ or nearly, falling to 9 at 10⁷."""
    return max(2, round(effort * min(100.0, 3e4 / math.sqrt(n))))


def risk_rows(sizes: Sequence[int], effort: float, jobs: int) -> list[RiskRow]:
    """Return the risks over the grid of n and B."""
    tasks = [(n, seed) for n in sorted(sizes, reverse=True) for seed in range(risk_seeds(n, effort))]
    runs: dict[int, list[npt.NDArray[np.float64]]] = {}
    for (n, _), run in zip(tasks, run_tasks(risk_run, tasks, jobs), strict=True):
        runs.setdefault(n, []).append(run)
    rows = []
    for n in sizes:
        stack = np.stack(runs[n])
        mean, sd, top = stack.mean(axis=0), stack.std(axis=0, ddof=1), stack.max(axis=0)
        for k, b in enumerate(usable_bins(n)):
            means, merged = mean[k, :4].tolist(), mean[k, 4:].tolist()
            rows.append(
                RiskRow._make((n, b, len(stack), *means, float(sd[k, 3]), *top[k, 1:4].tolist(), *merged))
            )
    return rows


def cell_run(seed: int) -> list[CellRow]:
    """Return the risks of one sample of 10⁷ for three sizes of the sketch."""
    settings = [(cells, bins) for cells in (4096, RISK_CELLS, 65_536) for bins in (215, 500, 1000)]
    sketches = {
        cells: sketched(SOURCE, 10**7, np.random.default_rng([2, seed]), cells) for cells, _ in settings
    }
    rows = []
    for cells, bins in settings:
        formed = form(sketches[cells], bins).map
        risk = SOURCE.risk(by_bin(formed))
        rows.append(CellRow(cells, bins, 1, formed.bins, *risk, risk.total))
    return rows


def cell_rows(jobs: int, seeds: int = 4) -> list[CellRow]:
    """Return what the size of the sketch costs, means over the seeds."""
    runs = run_tasks(cell_run, range(seeds), jobs)
    return [
        CellRow._make((*same[0][:2], seeds, *np.mean([row[3:] for row in same], axis=0).tolist()))
        for same in zip(*runs, strict=True)
    ]


# Table 1 and Figure 4


def noise(pair: NormalPair) -> float:
    """Return E[Var(Y|Z)] = π(1 − π) − Var(h*(Z)), which no map can do without."""
    constant = RecalibrationMap(version=0, edges=(0.0, 1.0), values=(pair.prior,))
    return pair.prior * (1.0 - pair.prior) - pair.risk(constant).total


def plugged_in(engine: Recalibrator) -> RecalibrationMap:
    """Return the served map with the paper's plug-in priors, which are the shares of ones among the labels.

    The engine itself counts half a label of each class more.
    """
    if engine.config.mode not in ("label_shift", "composite"):
        return engine.map
    shares = [known.positives / known.labels for known in (engine.source, engine.target)]
    return engine.map.model_copy(update={"weights": shift_weights(*shares)})


def table_1_engine(mode: Mode, seed: int, source_bins: int) -> Recalibrator:
    """Return one estimator of Table 1: n_P = 10³ from D(0.5), n_Q = 10² from D(0.1).

    The four modes see the same samples; B is ``source_bins`` on the source and 4 = ⌊100^(1/3)⌋ on the target.
    """
    rng = np.random.default_rng([3, seed])
    source, target = SOURCE.sample(1000, rng), NormalPair(0.1).sample(100, rng)
    engine = Recalibrator(mode=mode, bins=4 if mode == "target" else source_bins)
    engine.learn_many(*source, "source")
    engine.learn_many(*target, "target")
    engine.refresh()
    return engine


def table_1_run(task: tuple[int, int]) -> list[tuple[float, float, float]]:
    """Return (R_cal, R_sha, R) of the four modes for one realisation."""
    seed, source_bins = task
    risks = [NormalPair(0.1).risk(plugged_in(table_1_engine(mode, seed, source_bins))) for mode in MODES]
    return [(*risk, risk.total) for risk in risks]


def table_1_rows(jobs: int, seeds: int = TABLE_1_SEEDS) -> list[TableRow]:
    """Return Table 1 with B = 9, ⌊n_P^(1/3)⌋ in floating point, and with 10, the cube root."""
    rows = []
    floor = noise(NormalPair(0.1))
    for source_bins in (9, 10):
        tasks = [(seed, source_bins) for seed in range(seeds)]
        runs = np.array(run_tasks(table_1_run, tasks, jobs))
        mean, sd = runs.mean(axis=0), runs.std(axis=0, ddof=1)
        for k, mode in enumerate(MODES):
            pairs = np.stack((mean[k], sd[k]), axis=1).ravel().tolist()
            mse = float(mean[k, 2]) + floor, float(sd[k, 2])
            rows.append(TableRow._make((mode, source_bins, seeds, *pairs, *mse)))
    return rows


def curve_rows(seed: int = CURVE_SEED) -> list[CurveRow]:
    """Return the four maps of one realisation of Table 1, with their shift correction applied."""
    rows = []
    for mode in MODES:
        served = plugged_in(table_1_engine(mode, seed, 9))
        edges = served.edges or (0.0, 1.0)
        for left, right in pairwise(edges):
            rows.append(CurveRow(mode, left, right, served.predict_one(left), *served.weights))
    return rows


# The label-shift grid


class GridTask(NamedTuple):
    """One source sample, and the targets that it meets."""

    n_source: int
    seed: int
    repeats: int
    priors: tuple[float, ...]
    targets: tuple[int, ...]


def grid_run(task: GridTask) -> npt.NDArray[np.float64]:
    """Return float64[repeats, priors, n_Q, methods, 3]: R_cal, R_sha, R, for one source sample.

    The source is learned once per mode; its engine state is restored for every target. The last method is the
    composite with the engine's own priors.
    """
    engines = [Recalibrator(bins="cube_root", mode=mode) for mode in MODES]
    source = chunks(SOURCE, task.n_source, np.random.default_rng([4, task.n_source, task.seed]))
    streamed_maps(source, engines)
    states = [engine.to_bytes() for engine in engines]
    result = np.empty((task.repeats, len(task.priors), len(task.targets), len(states) + 1, 3))
    for r, i, j in np.ndindex(*result.shape[:3]):
        pair, n_target = NormalPair(task.priors[i]), task.targets[j]
        rng = np.random.default_rng([5, i, n_target, task.n_source, task.seed, r])
        sample = pair.sample(n_target, rng)
        maps = []
        for state in states:
            engine = Recalibrator.from_bytes(state)
            engine.learn_many(*sample, "target")
            engine.refresh()
            maps.append(plugged_in(engine))
            if engine.config.mode == "composite":
                smoothed = engine.map
        for k, served in enumerate([*maps, smoothed]):
            risk = pair.risk(served)
            result[r, i, j, k] = (*risk, risk.total)
    return result


def grid_rows(
    plan: dict[int, tuple[int, int]],
    jobs: int,
    priors: tuple[float, ...] = GRID_PRIORS,
    targets: tuple[int, ...] = GRID_TARGETS,
) -> list[GridRow]:
    """Return the label-shift grid; ``plan`` maps n_P to (source samples, target samples with each)."""
    tasks = [
        GridTask(n, seed, plan[n][1], priors, targets)
        for n in sorted(plan, reverse=True)
        for seed in range(plan[n][0])
    ]
    runs: dict[int, list[npt.NDArray[np.float64]]] = {}
    for task, run in zip(tasks, run_tasks(grid_run, tasks, jobs), strict=True):
        runs.setdefault(task.n_source, []).append(run)
    rows = []
    for n_source in plan:
        stack = np.stack(runs[n_source])  # [sources, repeats, priors, targets, methods, 3]
        excess = stack[..., 2] - stack[..., MODES.index("composite"), None, 2]
        lead = excess.mean(axis=1)  # runs that share a source are not independent: one value a source
        error = lead.std(axis=0, ddof=1) / len(lead) ** 0.5
        flat = stack.reshape(-1, *stack.shape[2:])
        mean, sd = flat.mean(axis=0), flat.std(axis=0, ddof=1)
        for i, j, k in np.ndindex(*error.shape):
            setting = (priors[i], n_source, targets[j], (*MODES, "composite_kt")[k], len(flat))
            risks = (*mean[i, j, k].tolist(), float(sd[i, j, k, 2]))
            ahead = (float(lead[:, i, j, k].mean()), float(error[i, j, k]))
            rows.append(GridRow._make(setting + risks + ahead))
    return rows


# The cache


def cached(path: Path, kind: type[Row], compute: Callable[[], list[Row]], fresh: bool) -> list[Row]:
    """Return the rows of a CSV file, computing and writing them first if it is absent or ``fresh``."""
    if fresh or not path.exists():
        start = time.perf_counter()
        write_rows(path, compute())
        print(f"{path.name}: computed in {time.perf_counter() - start:.0f} s")
    return read_rows(path, kind)


class Results(NamedTuple):
    """All the rows the page is made of."""

    risks: list[RiskRow]
    cells: list[CellRow]
    table_1: list[TableRow]
    curves: list[CurveRow]
    grid: list[GridRow]


def results(folder: Path, fresh: bool = False, jobs: int = 2) -> Results:
    """Return every experiment's rows, from the cache in ``folder`` where it has them."""
    folder.mkdir(parents=True, exist_ok=True)
    return Results(
        cached(folder / "risks.csv", RiskRow, lambda: risk_rows(SAMPLE_SIZES, 1.0, jobs), fresh),
        cached(folder / "cells.csv", CellRow, lambda: cell_rows(jobs), fresh),
        cached(folder / "table1.csv", TableRow, lambda: table_1_rows(jobs), fresh),
        cached(folder / "curves.csv", CurveRow, curve_rows, fresh),
        cached(folder / "grid.csv", GridRow, lambda: grid_rows(GRID_RUNS, jobs), fresh),
    )
