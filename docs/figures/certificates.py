"""The picture and the tables of docs/certificates.md: ``python docs/figures/certificates.py``.

Streams with known truth: D(0.5), and D(0.5) with a target D(0.1). What is certified, what is true, and what
the paper's theorems say at the same labels and bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from drawing import BLACK, BLUE, GREY, ORANGE, canvas, markdown, publish, scientific
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamcal import Recalibrator
from streamcal.certificates.record import Certificate, PaperBound
from streamcal.testing import NormalPair

SOURCE, TARGET = NormalPair(0.5), NormalPair(0.1)
DELTA: Final = 0.1
CHUNK: Final = 1_000_000
COUNTS: Final = tuple(round(10 ** (k / 4)) for k in range(8, 29))
"""Numbers of source labels at which the first stream's map is measured: 10² to 10⁷."""
SOURCE_LABELS: Final = 1_000_000
TARGET_COUNTS: Final = tuple(round(10 ** (k / 4)) for k in range(4, 25))
"""Numbers of target labels at which the second stream's map is measured: 10 to 10⁶."""


class Point(NamedTuple):
    """The measurements at one moment of a stream."""

    labels: int
    bins: int
    true: float
    """The exact risk."""
    certified: float
    paper: float
    """The theorem's bound, cut at 1."""
    met: bool
    """Whether its premises hold."""


def learn(engine: Recalibrator, truth: NormalPair, count: int, rng: np.random.Generator, domain: str) -> None:
    """Learn a number of labels of a truth, a chunk at a time."""
    for start in range(0, count, CHUNK):
        engine.learn_many(*truth.sample(min(CHUNK, count - start), rng), domain)


def of_source(counts: Sequence[int], rng: np.random.Generator) -> list[Point]:
    """Return the measurements of the map at each number of source labels."""
    engine = Recalibrator(mode="source", delta=DELTA)
    points = []
    for start, end in zip((0, *counts), counts, strict=False):
        learn(engine, SOURCE, end - start, rng, "source")
        certificate = known(engine)
        risk = SOURCE.risk(engine.map).total
        points.append(point(end, certificate, risk, certificate.risk, certificate.paper))
    return points


def of_target(source_labels: int, counts: Sequence[int], rng: np.random.Generator) -> list[Point]:
    """Return the measurements of the composite map in the target at each number of target labels."""
    engine = Recalibrator(mode="composite", delta=DELTA)
    learn(engine, SOURCE, source_labels, rng, "source")
    points = []
    for start, end in zip((0, *counts), counts, strict=False):
        learn(engine, TARGET, end - start, rng, "target")
        certificate = known(engine)
        if certificate.target_risk is None or certificate.paper_target is None:
            continue  # Theorem 2 needs labels of both classes
        risk = TARGET.risk(engine.map).total
        points.append(point(end, certificate, risk, certificate.target_risk, certificate.paper_target))
    return points


def known(engine: Recalibrator) -> Certificate:
    """Return the certificate of an engine that has formed a map."""
    certificate = engine.certificate
    if certificate is None:
        raise ValueError("no map was formed yet")
    return certificate


def point(labels: int, certificate: Certificate, risk: float, certified: float, paper: PaperBound) -> Point:
    """Return the measurements at one moment."""
    return Point(labels, certificate.bins, risk, certified, paper.risk, paper.met)


def tables(source: Sequence[Point], target: Sequence[Point]) -> dict[str, str]:
    """Return the tables of the page: every power of ten."""
    return {"source": table(source, "Theorem 1"), "target": table(target, "Theorem 2")}


def table(points: Sequence[Point], theorem: str) -> str:
    """Return one of them."""
    rows = [
        (
            f"{each.labels:,}",
            str(each.bins),
            scientific(each.true),
            scientific(each.certified),
            f"{each.certified / each.true:.0f}" if each.certified < 1.0 else "–",
            scientific(each.paper) + ("" if each.met else ", not met"),
        )
        for each in points
        if np.log10(each.labels).is_integer()
    ]
    return markdown(("labels", "B", "true risk", "certified", "ratio", f"{theorem}, its premises"), rows)


def draw_points(axes: Axes, points: Sequence[Point], theorem: str) -> None:
    """Draw the three risks against the number of labels."""
    labels = [each.labels for each in points]
    axes.loglog(
        labels,
        [each.paper for each in points],
        color=ORANGE,
        linestyle="-" if all(each.met for each in points) else "--",
        linewidth=1.3,
        label=f"{theorem}, K-free" + ("" if all(each.met for each in points) else "; premises not met"),
    )
    certified, true = [each.certified for each in points], [each.true for each in points]
    axes.loglog(labels, certified, color=BLUE, marker="s", markersize=4, label="certified, 90 % sure")
    axes.loglog(labels, true, color=BLACK, marker="o", markersize=4, label="true risk")
    axes.fill_between(labels, true, certified, color=BLUE, alpha=0.08, linewidth=0)
    axes.axhline(1.0, color=GREY, linewidth=0.8)
    axes.set(ylabel="risk R", ylim=(None, 2.0))
    axes.legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.95), fontsize=9)


def draw(source: Sequence[Point], target: Sequence[Point], source_labels: int) -> Figure:
    """Draw the picture."""
    figure = canvas(10.5, 4.4)
    left, right = figure.subplots(1, 2)
    draw_points(left, source, "Theorem 1")
    left.set(title="Source alone, D(0.5)", xlabel="source labels")
    draw_points(right, target, "Theorem 2")
    right.set(
        title=f"Target D(0.1), after {source_labels:,} labels of D(0.5)",
        xlabel="target labels",
        ylabel="risk R in the target",
    )
    return figure


def main() -> None:
    """Draw, and fill the page."""
    source = of_source(COUNTS, np.random.default_rng(0))
    target = of_target(SOURCE_LABELS, TARGET_COUNTS, np.random.default_rng(1))
    publish(draw(source, target, SOURCE_LABELS), tables(source, target), "certificates")


if __name__ == "__main__":
    main()
