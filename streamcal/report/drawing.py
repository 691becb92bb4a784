"""A picture with two axes, as SVG; its colours come from the page's style sheet, by class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Final

from streamcal.report.markup import Markup, tag
from streamcal.report.scales import Axis

__all__ = ["Plot", "swatch"]

_WIDTH, _HEIGHT = 360.0, 232.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 10.0, 10.0, 38.0
_MARK: Final = 2.6  # half the width of a mark

Maybe = float | None


class Plot:
    """What is drawn between two axes.

    Parameters
    ----------
    square
        whether both axes are of the same length.
    """

    def __init__(self, x: Axis, y: Axis, *, square: bool = False) -> None:
        self._x, self._y = x, y
        self._height = 320.0 if square else _HEIGHT
        self._inner = (_WIDTH - _LEFT - _RIGHT, self._height - _TOP - _BOTTOM)
        if square:
            side = min(self._inner)
            self._inner = (side, side)
        self._left = _LEFT + (_WIDTH - _LEFT - _RIGHT - self._inner[0]) / 2
        self._parts: list[Markup] = []

    def line(self, xs: Sequence[float], ys: Sequence[Maybe], kind: str, *, steps: bool = False) -> None:
        """Draw a line, with gaps where a value is None; ``steps``: each value stays until the next."""
        for known, group in groupby(zip(xs, ys, strict=True), key=lambda pair: pair[1] is not None):
            if not known:
                continue
            pairs = [(x, y) for x, y in group if y is not None]
            path = [f"M{self._place(*pairs[0])}"]
            for (_, before), (x, y) in pairwise(pairs):
                path += [f"L{self._place(x, before)}"] if steps else []
                path.append(f"L{self._place(x, y)}")
            if len(pairs) == 1:
                self.marks([pairs[0][0]], [pairs[0][1]], kind)
            self._parts.append(tag("path", d="".join(path), class_=f"line {kind}"))

    def marks(self, xs: Sequence[float], ys: Sequence[float], kind: str, titles: Sequence[str] = ()) -> None:
        """Draw a mark at each point: a circle, or a square for what is ``after``."""
        for number, (x, y) in enumerate(zip(xs, ys, strict=True)):
            at_x, at_y = self._at(x, y)
            title = tag("title", titles[number]) if titles else None
            if kind == "after":
                shape = tag(
                    "rect",
                    title,
                    x=_short(at_x - _MARK),
                    y=_short(at_y - _MARK),
                    width=2 * _MARK,
                    height=2 * _MARK,
                    class_=f"mark {kind}",
                )
            else:
                shape = tag("circle", title, cx=_short(at_x), cy=_short(at_y), r=_MARK, class_=f"mark {kind}")
            self._parts.append(shape)

    def intervals(
        self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], kind: str
    ) -> None:
        """Draw an upright line from each low value to the high one."""
        path = "".join(
            f"M{self._place(x, low)}L{self._place(x, high)}"
            for x, low, high in zip(xs, lows, highs, strict=True)
        )
        self._parts.append(tag("path", d=path, class_=f"interval {kind}"))

    def between(self, xs: Sequence[float], lows: Sequence[float], highs: Sequence[float], kind: str) -> None:
        """Fill what is between two lines; each value stays until the next."""
        there = self._stairs(xs, highs)
        back = reversed(self._stairs(xs, lows))
        self._parts.append(tag("path", d=f"M{'L'.join([*there, *back])}Z", class_=f"area {kind}"))

    def svg(self, title: str, description: str) -> Markup:
        """Return the picture; title and description are for who cannot see it."""
        width, height = self._inner
        left, right, bottom = self._left, self._left + width, _TOP + height
        grid, names = [], []
        for value, name in self._y.ticks:
            at = _short(bottom - height * self._y.at(value))
            grid.append(f"M{_short(left)} {at}H{_short(right)}")
            names.append(tag("text", name, x=_short(left - 6), y=at, class_="tick end"))
        for value, name in self._x.ticks:
            at = _short(left + width * self._x.at(value))
            grid.append(f"M{at} {_short(bottom)}v4")
            names.append(tag("text", name, x=at, y=_short(bottom + 15), class_="tick middle"))
        return tag(
            "svg",
            tag("title", title),
            tag("desc", description),
            tag("path", d="".join(grid), class_="grid"),
            tag("path", d=f"M{_short(left)} {_short(bottom)}H{_short(right)}", class_="axis"),
            *names,
            tag(
                "text", self._x.title, x=_short(left + width / 2), y=_short(bottom + 32), class_="name middle"
            ),
            *self._parts,
            viewBox=f"0 0 {_WIDTH:g} {self._height:g}",
            role="img",
            aria_label=f"{title}. {description}",
        )

    def _stairs(self, xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        corners: Iterable[tuple[float, float]] = [
            pair
            for number, x in enumerate(xs)
            for pair in (((x, ys[number - 1]), (x, ys[number])) if number else ((x, ys[0]),))
        ]
        return [self._place(x, y) for x, y in corners]

    def _at(self, x: float, y: float) -> tuple[float, float]:
        width, height = self._inner
        along = min(max(self._x.at(x), 0.0), 1.0)
        up = min(max(self._y.at(y), 0.0), 1.0)
        return self._left + width * along, _TOP + height * (1.0 - up)

    def _place(self, x: float, y: float) -> str:
        return " ".join(map(_short, self._at(x, y)))


def swatch(kind: str) -> Markup:
    """Return how a line of some kind, or an area, looks: for the legend."""
    if kind.startswith("part"):
        shape = tag("rect", x=4, y=1, width=16, height=10, class_=f"area {kind}")
        return tag("svg", shape, viewBox="0 0 24 12", class_="swatch", aria_hidden="true")
    parts = [tag("path", d="M1 6H23", class_=f"line {kind}")]
    if kind in ("before", "after"):
        mark = tag("rect", x=9.4, y=3.4, width=5.2, height=5.2, class_="mark after")
        parts.append(mark if kind == "after" else tag("circle", cx=12, cy=6, r=2.6, class_="mark before"))
    return tag("svg", *parts, viewBox="0 0 24 12", class_="swatch", aria_hidden="true")


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
