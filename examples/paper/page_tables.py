"""The tables of docs/paper.md, as Markdown, and how they get into it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from analysis import (
    DELTA,
    RIVALS,
    Exponents,
    exponents,
    label_shift_floor,
    optima,
    optimum_exponent,
    outcome,
    premise_met,
    should_beat,
    smoothness,
    source_floor,
    why_not,
)
from experiments import GRID_PRIORS, GridRow, Results, RiskRow, TableRow

from streamcal.certificates.theorems import theorem1, theorem2
from streamcal.maps.binning import cube_root

PAPER_EXPONENTS: Final = Exponents(-0.97, 0.93, -1.75, 0)

# method: (R_cal, R_sha, R, MSE), each (mean, sd); the paper's Table 1, from 10 realisations
PAPER_TABLE_1: Final = {
    "source": ((0.016, 0.005), (0.0032, 0.0014), (0.019, 0.006), (0.029, 0.006)),
    "target": ((0.0020, 0.0025), (0.049, 0.006), (0.051, 0.006), (0.060, 0.006)),
    "label_shift": ((0.026, 0.006), (0.0, 0.0), (0.026, 0.006), (0.035, 0.006)),
    "composite": ((0.00019, 0.00017), (0.0032, 0.0014), (0.0034, 0.0013), (0.0127, 0.0013)),
}
PAPER_SEEDS: Final = 10
PAPER_SOURCE_BINS: Final = 9
"""⌊1000^(1/3)⌋ in floating point: with it, not with 10, the paper's Table 1 comes out."""


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, the first column left and the rest right aligned."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def power(n: float) -> str:
    """Return n in the way of the page: 1000, 3.2·10⁴, 10⁷."""
    if n < 10_000:
        return f"{n:.0f}"
    exponent = int(np.floor(np.log10(n) + 1e-9))
    factor = f"{n / 10**exponent:.1f}".removesuffix(".0")
    digits = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}" if factor == "1" else f"{factor}·10{digits}"


def signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def minus(value: float, digits: int = 3) -> str:
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def summary(results: Results) -> str:
    """Return the paper's figures and ours: the exponents, and the risks of Table 1."""
    ours, paper = exponents(results.risks), PAPER_EXPONENTS
    best = optimum_exponent(optima(results.risks)).slopes[0]
    grid = "the paper gives only the ends of its grid, not what it fits"
    lines = [
        ("exponent of R_cal in n (Figure 1a)", paper.calibration_n, ours.calibration_n, 0.1, grid),
        ("exponent of R_cal in B (Figure 1b)", paper.calibration_bins, ours.calibration_bins, 0.1, grid),
        ("exponent of R_sha in B (Figure 1c)", paper.sharpness_bins, ours.sharpness_bins, 0.2, grid),
        ("exponent of the best B in n (Figure 2)", 1 / 3, best, 0.05, "B* is known to a few per cent"),
    ]
    rows = [
        [
            name,
            minus(theirs, 3 if theirs == 1 / 3 else 2),
            minus(mine),
            signed(mine - theirs),
            f"± {allowed}",
            why,
        ]
        for name, theirs, mine, allowed, why in lines
    ]
    for row in results.table_1:
        if row.source_bins == PAPER_SOURCE_BINS:
            theirs = PAPER_TABLE_1[row.method][2][0]
            error = row.total_sd / PAPER_SEEDS**0.5
            name = f"R of {row.method} (Table 1)"
            why = f"chance: the paper's mean of {PAPER_SEEDS} has a standard error of {error:.1g}"
            difference = f"{row.total - theirs:+.2g}".replace("-", "−")
            rows.append([name, f"{theirs:.3g}", f"{row.total:.3g}", difference, "–", why])
    return markdown(["figure", "paper", "ours", "difference", "allowed", "why they differ"], rows)


def sensitivity(results: Results) -> str:
    """Return the exponents by the part of the grid that is fitted, and by what the risks condition on."""
    rows = []
    for merged in (False, True):
        for name, keep in (
            ("n ≥ 2B (all)", lambda row: row.n >= 2 * row.bins),
            ("n ≥ 5B", lambda row: row.n >= 5 * row.bins),
            ("n ≥ 20B", lambda row: row.n >= 20 * row.bins),
            ("n ≥ 20B, B ≥ 24", lambda row: row.n >= 20 * row.bins and row.bins >= 24),
            ("n ≥ 20B, B ≥ 100", lambda row: row.n >= 20 * row.bins and row.bins >= 100),
            ("premise of Theorem 1 met", premise_met),
        ):
            fit = exponents(results.risks, keep, merged)
            rows.append(
                [
                    "its value" if merged else "its bin",
                    name,
                    str(fit.points),
                    minus(fit.calibration_n),
                    minus(fit.calibration_bins),
                    minus(fit.sharpness_bins),
                ]
            )
    return markdown(["risks given", "fitted over", "points", "R_cal in n", "R_cal in B", "R_sha in B"], rows)


def bounds(results: Results) -> str:
    """Return how far the largest observed risk stays below Theorem 1's bounds."""
    rows = []
    groups: tuple[tuple[str, list[RiskRow]], ...] = (
        ("premise met", [row for row in results.risks if premise_met(row)]),
        ("premise not met", [row for row in results.risks if not premise_met(row)]),
    )
    for name, group in groups:
        free = [(row, theorem1(row.n, row.bins, DELTA)) for row in group]
        smooth = [(row, theorem1(row.n, row.bins, DELTA, smoothness().constant)) for row in group]
        for part, ratios in (
            ("R_cal", [row.calibration_max / bound.calibration for row, bound in free]),
            ("R_sha ≤ 2/B", [row.sharpness_max / bound.sharpness for row, bound in free]),
            ("R_sha ≤ 8K²/B²", [row.sharpness_max / bound.sharpness for row, bound in smooth]),
            ("R, with 2/B", [row.total_max / bound.risk for row, bound in free]),
        ):
            over = sum(ratio > 1 for ratio in ratios)
            rows.append(
                [
                    part,
                    name,
                    str(len(ratios)),
                    str(sum(row.seeds for row in group)),
                    str(over),
                    f"{max(ratios):.2g}",
                    f"{float(np.median(ratios)):.2g}",
                ]
            )
    return markdown(
        ["bound", "", "points (n, B)", "runs", "points with a run above it", "largest risk/bound", "median"],
        rows,
    )


def optimum(results: Results) -> str:
    """Return the best B for every n."""
    rows = []
    for best in optima(results.risks):
        cube = round(best.n ** (1 / 3))
        mine = {row.bins: row.total for row in results.risks if row.n == best.n}
        at_cube = float(np.interp(np.log(cube), np.log(list(mine)), np.log(list(mine.values()))))
        rows.append(
            [
                power(best.n),
                str(best.grid_bins),
                f"{best.bins:.0f}",
                f"{best.bins / best.n ** (1 / 3):.1f}",
                str(best.theory_smooth),
                str(best.theory_free),
                f"{best.total:.2e}",
                f"{np.exp(at_cube) / best.total:.1f}" if cube >= min(mine) else "–",
            ]
        )
    return markdown(
        [
            "n",
            "best B on the grid",
            "B*, parabola",
            "B*/n^(1/3)",
            "theory, with K",
            "theory, 2/B",
            "R at best B",
            "R at B = n^(1/3), times that",
        ],
        rows,
    )


def cells(results: Results) -> str:
    """Return what the size of the sketch costs at n = 10⁷."""
    finest = {row.bins: row.total for row in results.cells if row.max_cells == 65_536}
    return markdown(
        ["cells", "B asked for", "bins formed", "R_cal", "R_sha", "R", "R over that of 65,536 cells"],
        [
            [
                f"{row.max_cells:,}",
                str(row.bins),
                f"{row.formed:.0f}",
                f"{row.calibration:.3g}",
                f"{row.sharpness:.3g}",
                f"{row.total:.3g}",
                f"{row.total / finest[row.bins]:.3f}",
            ]
            for row in results.cells
        ],
    )


def table_1(results: Results, source_bins: int) -> str:
    """Return Table 1 beside the paper's; z is the difference over its standard error."""
    rows = []
    for row in results.table_1:
        if row.source_bins != source_bins:
            continue
        for name, (paper, paper_sd), (mean, sd) in zip(
            ("R_cal", "R_sha", "R", "MSE"), PAPER_TABLE_1[row.method], _pairs(row), strict=True
        ):
            error = float(np.hypot(sd / PAPER_SEEDS**0.5, sd / row.seeds**0.5))
            score = (mean - paper) / error if error else 0.0
            rows.append(
                [
                    row.method,
                    name,
                    f"{paper:.3g} ± {paper_sd:.2g}",
                    f"{mean:.3g} ± {sd:.2g}",
                    f"{mean - paper:+.2g}".replace("-", "−"),
                    minus(score, 1),
                ]
            )
    return markdown(["method", "risk", "paper", "ours", "difference", "z"], rows)


def _pairs(row: TableRow) -> tuple[tuple[float, float], ...]:
    return (
        (row.calibration, row.calibration_sd),
        (row.sharpness, row.sharpness_sd),
        (row.total, row.total_sd),
        (row.mse, row.mse_sd),
    )


def grid_summary(results: Results) -> str:
    """Return in how many settings the composite wins, ties or loses, by whether the theory says it should."""
    rows = []
    for rival in RIVALS:
        for should in (True, False):
            group = [row for row in results.grid if row.method == rival and should_beat(row, rival) == should]
            count = Counter(outcome(row) for row in group)
            rows.append(
                [
                    rival,
                    "yes" if should else "no",
                    str(len(group)),
                    *(str(count[kind]) for kind in ("wins", "ties", "loses")),
                ]
            )
    return markdown(["against", "should win", "settings", "wins", "ties", "loses"], rows)


def grid_losses(results: Results) -> str:
    """Return the settings in which the composite does not win, and why."""
    groups: dict[tuple[str, int, int, str, str, bool], list[GridRow]] = {}
    for row in results.grid:
        if row.method in RIVALS and outcome(row) != "wins":
            key = (
                row.method,
                row.n_source,
                row.n_target,
                outcome(row),
                why_not(row),
                should_beat(row, row.method),
            )
            groups.setdefault(key, []).append(row)
    order = {method: place for place, method in enumerate(RIVALS)}
    rows = []
    for (method, n_source, n_target, kind, why, should), group in sorted(
        groups.items(), key=lambda item: (order[item[0][0]], *item[0][1:])
    ):
        ratios = [(row.total - row.excess) / row.total for row in group]
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        rows.append(
            [
                method,
                power(n_source),
                power(n_target),
                ", ".join(f"{row.target_prior:g}" for row in group),
                kind,
                low if low == high else f"{low} to {high}",
                why,
                "yes" if should else "no",
            ]
        )
    return markdown(
        ["against", "n_P", "n_Q", "π_Q", "composite", "R over rival's", "why", "should win"], rows
    )


def grid_totals(results: Results) -> str:
    """Return the mean R of every method in every setting, the best of the paper's four in bold."""
    cells: dict[tuple[int, int, float], dict[str, float]] = {}
    for row in results.grid:
        cells.setdefault((row.n_source, row.n_target, row.target_prior), {})[row.method] = row.total
    methods = ("source", "target", "label_shift", "composite", "composite_kt")
    rows = []
    for (n_source, n_target, prior), risk in cells.items():
        best = min(risk[method] for method in methods[:4])
        texts = [f"{risk[m]:.2e}" for m in methods]
        rows.append(
            [
                power(n_source),
                power(n_target),
                f"{prior:g}",
                *(
                    f"**{t}**" if risk[m] == best and m != "composite_kt" else t
                    for m, t in zip(methods, texts, strict=True)
                ),
            ]
        )
    return markdown(["n_P", "n_Q", "π_Q", *methods[:4], "composite, KT priors"], rows)


def floors(_: Results) -> str:
    """Return the risks that no amount of data takes away."""
    return markdown(
        ["π_Q", *(f"{prior:g}" for prior in GRID_PRIORS)],
        [
            ["source, R_Q(h*_P)", *(f"{source_floor(prior):.2g}" for prior in GRID_PRIORS)],
            ["label_shift, R_Q(g*)", *(f"{label_shift_floor(prior):.2g}" for prior in GRID_PRIORS)],
        ],
    )


def smooth(_: Results) -> str:
    """Return K of assumption A3."""
    found = smoothness()
    return markdown(
        ["what", "value"],
        [
            ["K, the largest dh*/dF_Z while abs(x) ≤ reach; it is at x = 0", f"{found.constant:.3f}"],
            ["reach: the x beyond which dh*/dF_Z exceeds K, without limit", f"{found.reach:.2f}"],
            ["probability of a score beyond it", f"{found.mass:.0e}".replace("e-", "·10^−")],
            ["8K²/B² ≤ 1 from B =", f"{np.ceil(8**0.5 * found.constant):.0f}"],
            ["8K²/B² ≤ 2/B from B =", f"{np.ceil(4 * found.constant**2):.0f}"],
        ],
    )


def theorem_2(results: Results) -> str:
    """Return how Theorem 2 (with 2/B, the smaller here) compares with the composite's risk."""
    rows = []
    settings = [
        (
            row,
            theorem2(row.n_source, row.n_target, cube_root(row.n_source), DELTA, None, 0.5, row.target_prior),
        )
        for row in results.grid
        if row.method == "composite"
    ]
    for n_source in sorted({row.n_source for row, _ in settings}):
        mine = [(row, bound) for row, bound in settings if row.n_source == n_source]
        below = [(row, bound) for row, bound in mine if bound.risk < 1.0]
        ratio = f"{max(row.total / bound.risk for row, bound in below):.1g}" if below else "–"
        counts = len(mine), sum(bound.met for _, bound in mine), len(below)
        rows.append([power(n_source), *(str(count) for count in counts), ratio])
    header = ["n_P", "settings", "premises met", "bound below 1", "largest mean R/bound where below 1"]
    return markdown(header, rows)


def all_tables(results: Results) -> dict[str, str]:
    """Return every table of the page by name."""
    return {
        "summary": summary(results),
        "sensitivity": sensitivity(results),
        "smoothness": smooth(results),
        "bounds": bounds(results),
        "optimum": optimum(results),
        "cells": cells(results),
        "table1": table_1(results, PAPER_SOURCE_BINS),
        "table1-ten": table_1(results, 10),
        "theorem2": theorem_2(results),
        "floors": floors(results),
        "grid-summary": grid_summary(results),
        "grid-losses": grid_losses(results),
        "grid": grid_totals(results),
    }


def splice(page: str, tables: dict[str, str]) -> str:
    """Return the page with every ``<!-- table: NAME -->`` … ``<!-- end -->`` filled.

    Raises
    ------
    ValueError
        if a table has no place in the page, or a place no table.
    """
    marks = re.findall(r"<!-- table: (\S+) -->", page)
    if sorted(marks) != sorted(tables):
        raise ValueError(f"the page has places for {sorted(marks)}, the tables are {sorted(tables)}")
    return re.sub(
        r"<!-- table: (\S+) -->\n.*?<!-- end -->",
        lambda mark: f"<!-- table: {mark[1]} -->\n{tables[mark[1]]}\n<!-- end -->",
        page,
        flags=re.DOTALL,
    )
