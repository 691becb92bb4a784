"""What the scripts of this folder share: one style, reproducible SVG files, and tables in pages.

Colours are Okabe and Ito's. Every script draws one picture into this folder and fills the tables of the page
that shows it; ``make figures`` runs them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter, MonthLocator
from matplotlib.figure import Figure

__all__ = [
    "BLACK",
    "BLUE",
    "FOLDER",
    "GREEN",
    "GREY",
    "ORANGE",
    "PURPLE",
    "SKY",
    "VERMILION",
    "canvas",
    "fill",
    "markdown",
    "months",
    "publish",
    "save",
    "scientific",
]

FOLDER: Final = Path(__file__).resolve().parent
DOCS: Final = FOLDER.parent

BLACK, GREY = "#222222", "#9A9A9A"
BLUE, GREEN, ORANGE = "#0072B2", "#009E73", "#E69F00"
PURPLE, SKY, VERMILION = "#CC79A7", "#56B4E9", "#D55E00"


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure; width and height are in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Iterable[Axes]) -> None:
    """Remove what is not needed to read the axes."""
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(color="0.92", linewidth=0.8)
        each.set_axisbelow(True)
        each.title.set_size(11)


def months(axes: Axes) -> None:
    """Name the months on an axis of dates."""
    axes.xaxis.set_major_locator(MonthLocator())
    axes.xaxis.set_major_formatter(DateFormatter("%b"))


def save(figure: Figure, path: Path) -> None:
    """Save as SVG, without a date; the same drawing gives the same bytes."""
    plain(figure.axes)
    with mpl.rc_context({"svg.hashsalt": path.stem, "path.simplify_threshold": 0.5}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def publish(figure: Figure, tables: Mapping[str, str], page: str, text: Path | None = None) -> None:
    """Save the picture of ``page``, fill its tables, and print them.

    Parameters
    ----------
    figure
        goes to ``figures/<page>.svg``.
    tables
        by the name in their marker in the page.
    page
        without its suffix.
    text
        the page; ``docs/<page>.md`` if not given.
    """
    picture, text = DOCS / "figures" / f"{page}.svg", text or DOCS / f"{page}.md"
    save(figure, picture)
    text.write_text(fill(text.read_text("utf-8"), tables), "utf-8")
    for name, table in tables.items():
        print(f"{name}\n\n{table}\n")  # noqa: T201  what the command is for
    print(f"{picture} and {text} are up to date")  # noqa: T201


def fill(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with the tables between their markers, ``<!-- table: NAME -->`` and ``<!-- end -->``.

    Other tables stay as they are: another command fills them.

    Raises
    ------
    ValueError
        if a table has not exactly one marker.
    """
    marks = re.findall(r"<!-- table: (\S+) -->", page)
    if any(marks.count(name) != 1 for name in tables):
        raise ValueError(f"the page has marks for {sorted(marks)}, the tables are {sorted(tables)}")
    return re.sub(
        r"<!-- table: (\S+) -->\n.*?<!-- end -->",
        lambda mark: (
            f"<!-- table: {mark[1]} -->\n{tables[mark[1]]}\n<!-- end -->" if mark[1] in tables else mark[0]
        ),
        page,
        flags=re.DOTALL,
    )


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Return a Markdown table; the columns after the first are right aligned if they hold numbers."""
    rule = ["---"] + ["---:" if numbers else "---"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *rows))


def scientific(value: float) -> str:
    """Return a risk with two digits: 1.9e-03, or 1 where it says nothing."""
    return "1" if value >= 1.0 else f"{value:.1e}"
