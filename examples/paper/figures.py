"""The pictures of docs/paper.md. Colours are Okabe and Ito's; every series has its own marker as well."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from analysis import (
    DELTA,
    RIVALS,
    exponents,
    label_shift_floor,
    optima,
    optimum_exponent,
    should_beat,
    smoothness,
    source_floor,
)
from experiments import LARGEST_BINS, SOURCE, CurveRow, GridRow, Results, RiskRow
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from page_tables import power
from PIL import Image
from scipy.special import logit
from scipy.stats import norm

from streamcal.certificates.theorems import TheoremBound, theorem1
from streamcal.maps.shift import shift_correction
from streamcal.testing import NormalPair

STYLE: Final = {  # method: colour, marker, name
    "source": ("#E69F00", "s", "source"),
    "target": ("#009E73", "^", "target"),
    "label_shift": ("#CC79A7", "D", "label_shift"),
    "composite": ("#0072B2", "o", "composite"),
}
CAL: Final = "$R^{\\mathrm{cal}}$"
SHA: Final = "$R^{\\mathrm{sha}}$"
BLACK: Final = "#222222"
VERMILION: Final = "#D55E00"
SHOWN_SIZES: Final = (100, 3162, 10**5, 3_162_278, 10**7)
SHOWN_BINS: Final = (6, 33, 184, 600)


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """Return colours from dark to light that differ in lightness as well."""
    return [colormaps["viridis"](place) for place in np.linspace(0.0, 0.85, count)]


def save(figure: Figure, path: Path) -> None:
    """Save as PNG with a palette: a third of the size, and the same to the eye."""
    image = io.BytesIO()
    figure.savefig(image, dpi=110)
    with Image.open(image) as full:
        full.convert("RGB").quantize(256, kmeans=4, dither=Image.Dither.NONE).save(path, optimize=True)


# Figure 1


def draw_bound(
    axes: Axes,
    x: npt.NDArray[np.float64],
    bounds: Sequence[TheoremBound],
    part: Callable[[TheoremBound], float],
    colour: object,
) -> None:
    """Draw a bound: solid where its premise is met, dashed where it is not."""
    y = np.array([part(bound) for bound in bounds])
    met = np.array([bound.met for bound in bounds])
    finite = np.isfinite(y)
    axes.plot(x[finite], y[finite], color=colour, linewidth=1.0, linestyle=(0, (3, 2)), alpha=0.9)
    if met.any():
        axes.plot(x[met & finite], y[met & finite], color=colour, linewidth=2.6, alpha=0.9)


def figure_1(results: Results, path: Path) -> None:
    """Draw R_cal against n, and R_cal, R_sha, R against B, with Theorem 1."""
    rows = results.risks
    shown = [row for row in rows if row.bins <= LARGEST_BINS]
    fit = exponents(rows)
    figure = Figure(figsize=(11, 9.2), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2)
    for axes in (a, b, c, d):
        axes.set(xscale="log", yscale="log")
        axes.axhspan(1.0, 100.0, color="0.93", zorder=0)
        axes.grid(alpha=0.25)
    available = sorted({row.bins for row in shown})
    some_bins = [min(available, key=lambda have: abs(np.log(have / want))) for want in SHOWN_BINS]
    for colour, bins in zip(shades(len(some_bins)), some_bins, strict=True):
        mine = [row for row in shown if row.bins == bins]
        a.plot(
            [row.n for row in mine],
            [row.calibration for row in mine],
            "o-",
            color=colour,
            markersize=4,
            linewidth=1.4,
            label=f"B = {bins}",
        )
        n = np.unique(np.logspace(np.log10(2 * bins), 7, 400).astype(int))
        draw_bound(a, n, [theorem1(int(k), bins, DELTA) for k in n], lambda bound: bound.calibration, colour)
    sizes = sorted({row.n for row in shown})
    some_sizes = sorted({min(sizes, key=lambda have: abs(np.log(have / want))) for want in SHOWN_SIZES})
    for colour, size in zip(shades(len(some_sizes)), some_sizes, strict=True):
        mine = [row for row in shown if row.n == size]
        x = np.arange(6, min(LARGEST_BINS, size // 2) + 1, dtype=np.float64)
        bounds = [theorem1(size, int(k), DELTA) for k in x]
        for axes, name in ((b, "calibration"), (c, "sharpness"), (d, "total")):
            axes.plot(
                [row.bins for row in mine],
                [getattr(row, name) for row in mine],
                "o-",
                color=colour,
                markersize=3.5,
                linewidth=1.4,
                label=f"n = {power(size)}",
            )
        draw_bound(b, x, bounds, lambda bound: bound.calibration, colour)
        draw_bound(d, x, bounds, lambda bound: bound.risk, colour)
    x = np.arange(6, LARGEST_BINS + 1, dtype=np.float64)
    constant = smoothness().constant
    for smooth, ink, name, at in ((None, BLACK, "2/B", 20), (constant, VERMILION, "8K²/B²", 120)):
        bounds = [theorem1(10**7, int(k), DELTA, smooth) for k in x]
        draw_bound(c, x, bounds, lambda bound: bound.sharpness, ink)
        c.annotate(
            name,
            (at, bounds[at - 6].sharpness),
            xytext=(5, 5),
            textcoords="offset points",
            color=ink,
            fontsize=11,
        )
    powers = f"$\\propto n^{{{fit.calibration_n:.2f}}} B^{{{fit.calibration_bins:.2f}}}$"
    a.set(xlabel="n", ylabel=CAL, xlim=(60, 1.6e7), ylim=(3e-9, 10), title=f"(a) calibration risk {powers}")
    b.set(xlabel="B", ylabel=CAL, ylim=(1e-10, 10), title=f"(b) calibration risk {powers}")
    c.set(
        xlabel="B",
        ylabel=SHA,
        ylim=(3e-7, 10),
        title=f"(c) sharpness risk $\\propto B^{{{fit.sharpness_bins:.2f}}}$, bounds at n = 10⁷",
    )
    d.set(xlabel="B", ylabel="R", ylim=(5e-7, 10), title="(d) recalibration risk, bound with 2/B")
    for axes, place in ((a, "lower left"), (b, "lower right"), (c, "lower left"), (d, "lower left")):
        axes.legend(loc=place, fontsize=8.5, framealpha=0.9, ncols=2 if axes is b else 1)
    figure.legend(
        handles=[
            Line2D([], [], color="0.3", marker="o", markersize=4, label="mean risk, streamed"),
            Line2D([], [], color="0.3", linewidth=2.6, label="Theorem 1, δ = 0.1: premise met"),
            Line2D([], [], color="0.3", linewidth=1, linestyle=(0, (3, 2)), label="premise not met"),
            Line2D([], [], color="0.87", linewidth=9, label="above 1: says nothing"),
        ],
        loc="outside upper center",
        ncols=4,
        frameon=False,
    )
    save(figure, path)


# Figure 2


def figure_2(results: Results, path: Path) -> None:
    """Draw the best B against n, linear and log, and the risk surface."""
    found = optima(results.risks)
    fit = optimum_exponent(found)
    n = np.array([best.n for best in found], np.float64)
    figure = Figure(figsize=(13.5, 4.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1, 1, 1.2]})
    level = float(np.exp(np.mean([np.log(best.bins) - fit.slopes[0] * np.log(best.n) for best in found])))
    x = np.logspace(2, 7, 300)
    for axes in (left, middle):
        axes.plot(
            x,
            level * x ** fit.slopes[0],
            color="#56B4E9",
            linewidth=1.5,
            label=f"${level:.1f}\\,n^{{{fit.slopes[0]:.3f}}}$, fitted",
        )
        axes.plot(n, [best.bins for best in found], "o", color="#0072B2", label="experiment")
        axes.plot(
            n,
            [best.theory_smooth for best in found],
            "s--",
            color=VERMILION,
            markersize=4,
            label="theory, with K",
        )
        axes.plot(
            n,
            [best.theory_free for best in found],
            "^--",
            color=BLACK,
            markersize=4,
            label="theory, without K (2/B)",
        )
        axes.plot(x, x ** (1 / 3), ":", color="0.45", label="$n^{1/3}$")
        axes.set(xlabel="n", ylabel="best B")
        axes.grid(alpha=0.25)
    left.set(ylim=(0, 2600), title="best number of bins, linear")
    left.ticklabel_format(axis="x", style="sci", scilimits=(0, 0), useMathText=True)
    middle.set(xscale="log", yscale="log", ylim=(3, 4000), title="logarithmic")
    middle.legend(fontsize=8.5, loc="upper left")
    draw_surface(right, results.risks, [(best.n, best.bins) for best in found])
    save(figure, path)


def draw_surface(axes: Axes, rows: Sequence[RiskRow], best: Sequence[tuple[float, float]]) -> None:
    """Draw mean R over n and B as coloured cells, the optimum as dots."""
    sizes, bins = (sorted({getattr(row, name) for row in rows}) for name in ("n", "bins"))
    surface = np.full((len(bins), len(sizes)), np.nan)
    for row in rows:
        surface[bins.index(row.bins), sizes.index(row.n)] = row.total
    mesh = axes.pcolormesh(sizes, bins, surface, norm=LogNorm(), cmap="viridis_r", shading="nearest")
    figure = axes.figure
    figure.colorbar(mesh, ax=axes, label="R, mean over the seeds")
    x, y = np.transpose(best)
    axes.plot(x, y, "o", color="black", markersize=6, markeredgecolor="white", label="optimum")
    axes.set(xscale="log", yscale="log", xlabel="n", ylabel="B", title="mean risk (blank: n < 2B)")
    axes.legend(loc="lower right", fontsize=8.5)


# Figure 4


def figure_4(results: Results, path: Path) -> None:
    """Draw the four calibration curves of one realisation with h*, and the density of Z."""
    target = NormalPair(0.1)
    z = np.linspace(1e-4, 1.0 - 1e-4, 4000)
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(z, target.optimal(z), color=BLACK, linewidth=2.6, label="h* under D(0.1)")
    curves: dict[str, list[CurveRow]] = {}
    for row in results.curves:
        curves.setdefault(row.method, []).append(row)
    for method, pieces in curves.items():
        colour, _, name = STYLE[method]
        if len(pieces) == 1:
            weights = (pieces[0].weight_0, pieces[0].weight_1)
            left.plot(z, shift_correction(z, weights), "--", color=colour, linewidth=1.8, label=name)
            continue
        edges = [piece.left for piece in pieces] + [1.0]
        left.stairs(
            [piece.value for piece in pieces],
            edges,
            baseline=None,
            color=colour,
            linewidth=1.8,
            linestyle="-." if method == "target" else "-",
            label=name,
        )
    left.set(
        xlabel="score z",
        ylabel="probability",
        xlim=(0, 1),
        ylim=(-0.02, 1.02),
        title="calibration curves, n_P = 10³, n_Q = 10²",
    )
    left.legend(fontsize=9, loc="upper left")
    left.grid(alpha=0.25)
    x = logit(z)
    for pair, colour, line in ((SOURCE, "#E69F00", "--"), (target, "#0072B2", "-")):
        density = (pair.prior * norm.pdf(x, 2.0) + (1 - pair.prior) * norm.pdf(x, -2.0)) / (z * (1 - z))
        right.plot(
            z,
            density,
            line,
            color=colour,
            linewidth=1.8,
            label=f"{'source' if pair is SOURCE else 'target'}, D({pair.prior:g})",
        )
    right.set(
        xlabel="score z",
        ylabel="density",
        yscale="log",
        xlim=(0, 1),
        ylim=(1e-2, 10),
        title="density of Z = f(X)",
    )
    right.legend(fontsize=9)
    right.grid(alpha=0.25)
    save(figure, path)


# The label-shift grid


def label_shift_grid(results: Results, path: Path) -> None:
    """Draw mean R against π_Q, one panel for each n_P and n_Q."""
    sources = sorted({row.n_source for row in results.grid})
    targets = sorted({row.n_target for row in results.grid})
    priors = sorted({row.target_prior for row in results.grid})
    figure = Figure(figsize=(13, 8.6), layout="constrained")
    panels = figure.subplots(len(targets), len(sources), sharex=True, sharey=True, squeeze=False)
    for i, n_target in enumerate(targets):
        for j, n_source in enumerate(sources):
            axes = panels[i, j]
            mine = [row for row in results.grid if (row.n_source, row.n_target) == (n_source, n_target)]
            draw_panel(axes, mine, priors)
            axes.set_title(f"n_P = {power(n_source)}, n_Q = {power(n_target)}", fontsize=10)
            if i == len(targets) - 1:
                axes.set_xlabel("π_Q")
            if j == 0:
                axes.set_ylabel("R")
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=5, label=name)
        for colour, marker, name in STYLE.values()
    ]
    handles += [
        Line2D(
            [],
            [],
            color=STYLE["composite"][0],
            marker="o",
            markerfacecolor="white",
            linestyle="",
            label="composite where theory promises no win",
        ),
        Line2D([], [], color=STYLE["composite"][0], linestyle=":", label="composite, KT priors"),
        Line2D([], [], color="0.6", linewidth=1, linestyle="--", label="floors of source and label_shift"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=7, frameon=False, fontsize=9)
    save(figure, path)


def draw_panel(axes: Axes, rows: Sequence[GridRow], priors: Sequence[float]) -> None:
    """Draw the methods' mean R against π_Q in one setting of sample sizes."""
    axes.set(yscale="log", ylim=(1e-6, 1.0), xlim=(-0.01, 0.51))
    for floor, method in ((source_floor, "source"), (label_shift_floor, "label_shift")):
        shifted = [prior for prior in priors if prior != SOURCE.prior or method == "label_shift"]
        axes.plot(
            shifted,
            [floor(prior) for prior in shifted],
            "--",
            color=STYLE[method][0],
            linewidth=0.9,
            alpha=0.7,
        )
    for method, (colour, marker, _) in STYLE.items():
        line = [next(row for row in rows if (row.method, row.target_prior) == (method, p)) for p in priors]
        axes.plot(
            priors,
            [row.total for row in line],
            color=colour,
            linewidth=1.6,
            marker=None if method == "composite" else marker,
            markersize=4,
        )
        if method == "composite":
            for row in line:
                sure = all(should_beat(row, rival) for rival in RIVALS)
                axes.plot(
                    row.target_prior,
                    row.total,
                    "o",
                    color=colour,
                    markersize=5.5,
                    markerfacecolor=colour if sure else "white",
                )
    smoothed = {row.target_prior: row.total for row in rows if row.method == "composite_kt"}
    axes.plot(priors, [smoothed[p] for p in priors], ":", color=STYLE["composite"][0], linewidth=1.6)
    axes.grid(alpha=0.25)


PICTURES: Final = {
    "figure1.png": figure_1,
    "figure2.png": figure_2,
    "figure4.png": figure_4,
    "label-shift-grid.png": label_shift_grid,
}


def draw_all(results: Results, folder: Path) -> None:
    """Draw every picture into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw(results, folder / name)
