"""The picture and the table of docs/label-shift.md: ``python docs/figures/label_shift.py``.

The paper's four estimators on a shift with known truth, D(0.5) to D(0.1) (section 6); a prior that jumps
while labels are late; and the running prior of the flights stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from drawing import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    canvas,
    markdown,
    months,
    publish,
    scientific,
)
from flights import joined, source
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import expit, logit

from streamcal import Mode, PriorKind, Recalibrator
from streamcal.testing import NormalPair

SOURCE, TARGET = NormalPair(0.5), NormalPair(0.1)
STYLE: Final[dict[Mode, str]] = {
    "source": ORANGE,
    "target": GREEN,
    "label_shift": PURPLE,
    "composite": BLUE,
}
SHOWN: Final = (1000, 100)
"""Labels of source and target in the first panel, as in the paper."""
SOURCE_LABELS: Final = 10_000
TARGET_LABELS: Final = (10, 30, 100, 300, 1000, 3000, 10_000)
SEEDS: Final = 50
WINDOWS: Final = (1000, 3000, None)
STRIDE: Final = 1000
"""Labels between two points of the running prior."""

DELAY: Final = 2000
"""Predictions until a label comes, on the stream whose prior jumps."""
BLOCKS: Final = (0.1, 0.4, 0.05)
"""The target's priors, one per block."""
BLOCK_LENGTH: Final = 8000
LATE_SOURCE_LABELS: Final = 100_000
LATE_SEEDS: Final = 5
LOOK: Final = 100
"""Predictions between two readings of the estimate."""
NEAR: Final = 0.05
WAYS: Final[tuple[tuple[PriorKind, int | None], ...]] = (("labels", None), ("labels", 3000), ("scores", None))
"""The options ``prior`` and ``window``."""

Values = npt.NDArray[np.float64]


class Prior(NamedTuple):
    """The running prior of the target: time in seconds, estimate."""

    times: Values
    priors: Values


def engines(labels: int, rng: np.random.Generator) -> dict[Mode, Recalibrator]:
    """Return an engine of each mode that has learned a number of source labels."""
    sample = SOURCE.sample(labels, rng)
    found: dict[Mode, Recalibrator] = {mode: Recalibrator(mode=mode) for mode in STYLE}
    for engine in found.values():
        engine.learn_many(*sample, "source")
    return found


def risks(seeds: int, counts: Sequence[int]) -> dict[Mode, Values]:
    """Return the exact risk in the target, averaged over seeds, by mode and number of target labels."""
    total = {mode: np.zeros(len(counts)) for mode in STYLE}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        found = engines(SOURCE_LABELS, rng)
        scores, labels = TARGET.sample(counts[-1], rng)
        for place, (start, end) in enumerate(zip((0, *counts), counts, strict=False)):
            for mode, engine in found.items():
                engine.learn_many(scores[start:end], labels[start:end], "target")
                total[mode][place] += TARGET.risk(engine.map).total / seeds
    return total


def running_priors(
    times: Values, scores: Values, labels: npt.NDArray[np.int8], windows: Sequence[int | None]
) -> dict[int | None, Prior]:
    """Return the running prior of the flights' target, by ``window``."""
    found = {}
    for window in windows:
        engine = Recalibrator(mode="composite", window=window)
        engine.learn_many(*source(), "source")
        ends = np.arange(STRIDE, len(labels) + 1, STRIDE)
        priors = np.zeros(len(ends))
        for place, end in enumerate(ends):
            part = slice(end - STRIDE, end)
            engine.learn_many(scores[part], labels[part], "target")
            priors[place] = engine.target.prior
        found[window] = Prior(times[ends - 1], priors)
    return found


def jumps(kind: PriorKind, window: int | None, seed: int, blocks: Sequence[float], length: int) -> Values:
    """Return the running prior at every `LOOK` predictions, labels `DELAY` predictions late, float64[m].

    Parameters
    ----------
    kind, window
        the options ``prior`` and ``window``.
    seed
        of the stream.
    blocks, length
        the target's prior, for so many predictions each.
    """
    rng = np.random.default_rng(seed)
    engine = Recalibrator(mode="composite", prior=kind, window=window)
    engine.learn_many(*SOURCE.sample(LATE_SOURCE_LABELS, rng), "source")
    parts = [NormalPair(prior).sample(length, rng) for prior in blocks]
    scores = np.concatenate([part[0] for part in parts]).tolist()
    labels = np.concatenate([part[1] for part in parts]).tolist()
    memos, found = [], []
    for place, score in enumerate(scores):
        memos.append(engine.answer_one(score).memo)
        if (answered := place - DELAY) >= 0:
            engine.learn_one(scores[answered], labels[answered], memo=memos[answered])
        if place % LOOK == LOOK - 1:
            prior = engine.target.prior
            found.append(SOURCE.prior if prior is None else prior)
    return np.array(found)


def late_by(found: Values, blocks: Sequence[float], length: int) -> list[int]:
    """Return the predictions until the estimate is `NEAR` the prior, for each block after the first."""
    looks = length // LOOK
    late = []
    for place, prior in enumerate(blocks[1:], 1):
        near = np.abs(found[place * looks : (place + 1) * looks] - prior) <= NEAR
        late.append(LOOK * (int(near.argmax()) + 1) if near.any() else length)
    return late


def tables(
    measured: Mapping[Mode, Values], followed: Mapping[tuple[PriorKind, int | None], Values]
) -> dict[str, str]:
    """Return the tables of the page: risks of the modes, and how late the estimates of the prior are."""
    header = ("mode", *(f"{count:,} labels" for count in TARGET_LABELS))
    rows = [(f"`{mode}`", *map(scientific, row)) for mode, row in measured.items()]
    truth = np.repeat(BLOCKS, BLOCK_LENGTH // LOOK)
    late = [
        (
            f'`prior = "{kind}"`',
            "–" if window is None else f"`{window}`",
            *(
                f"{delay:,.0f}"
                for delay in np.mean([late_by(one, BLOCKS, BLOCK_LENGTH) for one in found], axis=0)
            ),
            f"{np.abs(found - truth).mean():.3f}",
        )
        for (kind, window), found in followed.items()
    ]
    moves = (f"{before:g} → {after:g}: late by" for before, after in pairwise(BLOCKS))
    return {
        "risks": markdown(header, rows),
        "priors": markdown(("estimate from", "`window`", *moves, "mean error"), late),
    }


def draw_maps(axes: Axes) -> None:
    """Draw the four maps at one moment against the truth."""
    rng = np.random.default_rng(1)
    found = engines(SHOWN[0], rng)
    sample = TARGET.sample(SHOWN[1], rng)
    x = np.linspace(-4.0, 4.0, 801)
    scores = expit(x)
    for mode, engine in found.items():
        engine.learn_many(*sample, "target")
        axes.plot(x, engine.predict_many(scores), color=STYLE[mode], linewidth=1.5, label=mode)
    axes.plot(x, TARGET.optimal(scores), color=BLACK, linestyle="--", linewidth=1.3, label="truth")
    ticks = np.array([0.02, 0.1, 0.5, 0.9, 0.98])
    axes.set_xticks(logit(ticks), [f"{tick:g}" for tick in ticks])
    axes.set(
        title=f"Four maps: {SHOWN[0]:,} source labels, {SHOWN[1]} target labels",
        xlabel="score",
        ylabel="probability in the target",
    )
    axes.legend(frameon=False)


def draw_risks(axes: Axes, measured: Mapping[Mode, Values]) -> None:
    """Draw risk against the number of target labels."""
    for mode, row in measured.items():
        axes.loglog(TARGET_LABELS[: len(row)], row, color=STYLE[mode], marker="o", markersize=4, label=mode)
    axes.set(
        title=f"What target labels buy, after {SOURCE_LABELS:,} of the source",
        xlabel="target labels",
        ylabel="risk in the target",
    )


def draw_priors(axes: Axes, found: Mapping[int | None, Prior]) -> None:
    """Draw the running priors."""
    for (window, prior), colour, width in zip(
        found.items(), (SKY, VERMILION, BLACK), (0.9, 1.5, 1.5), strict=True
    ):
        days = [datetime.fromtimestamp(time, UTC) for time in prior.times]
        name = "all labels" if window is None else f"window = {window}"
        axes.plot(days, prior.priors, color=colour, linewidth=width, label=name)  # type: ignore[arg-type]
    axes.set(title="Late flights, 2013: the prior that g uses", ylabel="P[late]", ylim=(0, 0.9))
    months(axes)
    axes.legend(frameon=False, loc="upper right", fontsize=8)


def draw_jumps(axes: Axes, followed: Mapping[tuple[PriorKind, int | None], Values]) -> None:
    """Draw the first seed's estimates of the jumping prior."""
    (first, *_) = followed.values()
    predictions = LOOK * np.arange(1, first.shape[1] + 1)
    truth = np.repeat(BLOCKS, BLOCK_LENGTH // LOOK)
    axes.plot(
        predictions, truth[: len(predictions)], color=BLACK, linestyle="--", linewidth=1.3, label="truth"
    )
    for (kind, window), colour in zip(WAYS, (SKY, PURPLE, VERMILION), strict=True):
        row = followed[kind, window][0]
        name = kind if window is None else f"{kind}, window = {window}"
        axes.plot(predictions[1::2], row[1::2], color=colour, linewidth=1.5, label=name)
    axes.set(
        title=f"The prior jumps, labels come {DELAY:,} predictions late",
        xlabel="predictions",
        ylabel="P[label = 1]",
        ylim=(0, 0.62),
    )
    axes.legend(frameon=False, loc="upper left", ncols=2, fontsize=8)


def draw(
    measured: Mapping[Mode, Values],
    followed: Mapping[tuple[PriorKind, int | None], Values],
    priors: Mapping[int | None, Prior],
) -> Figure:
    """Draw the picture."""
    figure = canvas(10.5, 7.6)
    (maps, risk), (jump, prior) = figure.subplots(2, 2)
    draw_maps(maps)
    draw_risks(risk, measured)
    draw_jumps(jump, followed)
    draw_priors(prior, priors)
    return figure


def main() -> None:
    """Draw, and fill the page."""
    scores, labels, _, times = joined()
    measured = risks(SEEDS, TARGET_LABELS)
    priors = running_priors(times, scores, labels, WINDOWS)
    followed = {
        way: np.array([jumps(*way, seed, BLOCKS, BLOCK_LENGTH) for seed in range(LATE_SEEDS)]) for way in WAYS
    }
    publish(draw(measured, followed, priors), tables(measured, followed), "label-shift")


if __name__ == "__main__":
    main()
