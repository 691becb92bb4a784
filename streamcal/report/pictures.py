"""The pictures of a report: each with its legend, and the figures behind it as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from streamcal.report.drawing import Plot, swatch
from streamcal.report.markup import Markup, tag
from streamcal.report.record import DelayQuantile
from streamcal.report.scales import Axis, count_axis, duration_axis, linear_axis, log_axis, time_axis
from streamcal.run.status import INTERVAL, Priors, Rating, View
from streamcal.times import show_duration, show_time

__all__ = ["data_table", "delay_figure", "over_time", "reliability_figures", "version_figures"]

_BOTH: Final = {"before": "score as it came", "after": "recalibrated"}
_PARTS: Final = 5  # candidates that have a colour of their own
_WIDE: Final = 10.0  # greatest over least value from which an axis is logarithmic


def reliability_figures(view: View) -> list[Markup]:
    """Return the reliability diagrams before and after, on the same axes; none without labels."""
    if not view.labels:
        return []
    reach = max(
        value
        for rating in (view.before, view.after)
        for values in (rating.bins.forecast, rating.bins.high)
        for value in values
    )
    axis = linear_axis([0.0, min(reach, 1.0)], "mean forecast of the bin", zero=True)
    if axis.high > 1.0:
        axis = msgspec.structs.replace(axis, high=1.0, ticks=[tick for tick in axis.ticks if tick[0] <= 1.0])
    return [
        *(
            _reliability(rating, kind, axis)
            for kind, rating in (("before", view.before), ("after", view.after))
        ),
        _deviations(view, axis),
    ]


def _reliability(rating: Rating, kind: str, x: Axis) -> Markup:
    bins = rating.bins
    plot = Plot(x, msgspec.structs.replace(x, title="rate of label 1"), square=True)
    plot.line([0.0, x.high], [0.0, x.high], "ideal")
    plot.intervals(bins.forecast, bins.low, bins.high, kind)
    titles = [
        f"forecast {forecast:.4f}, rate {rate:.4f} ({low:.4f} to {high:.4f}), {labels:,} labels"
        for labels, forecast, rate, low, high in zip(
            bins.labels, bins.forecast, bins.rate, bins.low, bins.high, strict=True
        )
    ]
    plot.marks(bins.forecast, bins.rate, kind, titles)
    title = "Before" if kind == "before" else "After"
    rows = [
        [f"{labels:,}", *(f"{value:.5f}" for value in values)]
        for labels, *values in zip(bins.labels, bins.forecast, bins.rate, bins.low, bins.high, strict=True)
    ]
    return _figure(
        f"Reliability: {_BOTH[kind]}",
        plot.svg(
            f"Reliability diagram, {title.lower()} recalibration",
            f"Rate of label 1 against mean forecast in {len(bins.labels)} bins, with intervals."
            f" Calibration error {rating.ece:.5f}.",
        ),
        [(kind, f"rate of label 1, {INTERVAL:.0%} interval"), ("ideal", "calibrated")],
        data_table(["labels", "mean forecast", "rate", "from", "to"], rows),
    )


def _deviations(view: View, x: Axis) -> Markup:
    """Return by how much the rate of each bin differs from its forecast: where a diagram shows little."""
    columns = {}
    for kind, bins in (("before", view.before.bins), ("after", view.after.bins)):
        forecasts = bins.forecast
        columns[kind] = [
            [value - forecast for value, forecast in zip(values, forecasts, strict=True)]
            for values in (bins.rate, bins.low, bins.high)
        ]
    shown = [value for rates, *_ in columns.values() for value in rates]
    plot = Plot(x, linear_axis([0.0, *shown], ""), square=True)
    plot.line([0.0, x.high], [0.0, 0.0], "ideal")
    rows = []
    for kind, bins in (("before", view.before.bins), ("after", view.after.bins)):
        rates, lows, highs = columns[kind]
        plot.intervals(bins.forecast, lows, highs, kind)
        plot.line(bins.forecast, rates, kind)
        plot.marks(bins.forecast, rates, kind)
        rows += [
            [_BOTH[kind], *(f"{value:+z.5f}" for value in values)]
            for values in zip(bins.forecast, rates, lows, highs, strict=True)
        ]
    return _figure(
        "Rate of label 1 − mean forecast",
        plot.svg(
            "Rate of label 1 less mean forecast, by bin", "Before and after recalibration; 0 is calibrated."
        ),
        list(_BOTH.items()),
        data_table(["of", "mean forecast", "difference", "from", "to"], rows),
    )


def over_time(view: View) -> list[Markup]:
    """Return how good the forecasts were, window by window; none before the first window is full."""
    windows = view.windows
    if not windows.labels:
        return []
    x, at, ends = _moments(windows.time, windows.labels, "joined labels")
    sides = {"before": windows.before, "after": windows.after}

    def figure(
        title: str, what: str, read: Callable[[str], Sequence[float]], *, zero: bool = False
    ) -> Markup:
        columns = {kind: read(kind) for kind in _BOTH}
        plot = Plot(x, linear_axis([each for column in columns.values() for each in column], "", zero=zero))
        for kind, column in columns.items():
            plot.line(at, column, kind)
        rows = [
            [end, f"{before:.5f}", f"{after:.5f}"]
            for end, before, after in zip(ends, columns["before"], columns["after"], strict=True)
        ]
        return _figure(
            title,
            plot.svg(title, f"{what}, of {len(at)} windows of {windows.width:,} labels."),
            list(_BOTH.items()),
            data_table(["until", "before", "after"], rows),
        )

    plot = Plot(
        x, linear_axis([*windows.rate, *windows.before.forecast, *windows.after.forecast], "", zero=True)
    )
    plot.line(at, windows.before.forecast, "before")
    plot.line(at, windows.after.forecast, "after")
    plot.line(at, windows.rate, "rate")
    rows = [
        [end, *(f"{value:.5f}" for value in values)]
        for end, *values in zip(
            ends, windows.rate, windows.before.forecast, windows.after.forecast, strict=True
        )
    ]
    balance = _figure(
        "Mean forecast, and rate of label 1",
        plot.svg("Mean forecast, and rate of label 1", f"Of {len(at)} windows of {windows.width:,} labels."),
        [*_BOTH.items(), ("rate", "rate of label 1")],
        data_table(["until", "rate", "forecast before", "after"], rows),
    )
    return [
        figure("Brier score", "Before and after recalibration", lambda kind: sides[kind].brier),
        figure("Log loss", "Before and after recalibration", lambda kind: sides[kind].log_loss),
        figure("Calibration error", "Before and after", lambda kind: sides[kind].ece, zero=True),
        balance,
    ]


def version_figures(view: View) -> list[Markup]:
    """Return the running prior, what was certified of the versions, and the weights of the mixture."""
    versions = view.versions
    if len(versions.version) < 2:
        return []
    dated = [time is not None for time in versions.time]
    chosen = (
        [number for number, has in enumerate(dated) if has] if sum(dated) > 1 else list(range(len(dated)))
    )
    x, at, names = _moments(
        [versions.time[number] for number in chosen],
        [versions.version[number] for number in chosen],
        "map version",
    )
    return [
        each
        for each in (
            _priors(view.priors),
            _certificates(
                x,
                at,
                names,
                {
                    "of-h": [versions.risk[number] for number in chosen],
                    "in-target": [versions.target_risk[number] for number in chosen],
                },
            ),
            _weights(
                x,
                at,
                names,
                {name: [column[number] for number in chosen] for name, column in versions.weights.items()},
            ),
        )
        if each is not None
    ]


def _priors(priors: Priors) -> Markup | None:
    """Return the running prior; a store keeps the one of now alone, of which there is no picture."""
    columns = {"of-source": priors.source, "of-target": priors.target}
    known = [value for column in columns.values() for value in column if value is not None]
    if len(priors.labels) < 2 or not known:
        return None
    x, at, names = _moments(priors.time, priors.labels, "target labels")
    plot = Plot(x, linear_axis(known, "", zero=True))
    for kind, column in columns.items():
        plot.line(at, column, kind, steps=True)
    rows = [
        [name, *("–" if value is None else f"{value:.5f}" for value in values)]
        for name, *values in zip(names, priors.source, priors.target, strict=True)
    ]
    return _figure(
        "Running prior",
        plot.svg("Running probability of class 1", "Of source and target, as map versions began."),
        [("of-source", "source"), ("of-target", "target")],
        data_table(["at", "source", "target"], rows),
    )


def _certificates(
    x: Axis, at: Sequence[float], names: Sequence[str], columns: dict[str, list[float | None]]
) -> Markup | None:
    if columns["in-target"] == columns["of-h"]:  # both are of the target
        columns = {"of-h": columns["of-h"]}
    known = [value for column in columns.values() for value in column if value]
    if not known:
        return None
    wide = max(known) > _WIDE * min(known)
    plot = Plot(x, log_axis(known, "") if wide else linear_axis(known, "", zero=True))
    legend = [
        (kind, words)
        for kind, words in (("of-h", "of the map"), ("in-target", "in the target"))
        if any(value is not None for value in columns.get(kind, ()))
    ]
    for kind, _ in legend:
        plot.line(at, columns[kind], kind, steps=True)
    rows = [
        [name, *("no claim" if value is None else f"{value:.5f}" for value in values)]
        for name, *values in zip(names, *columns.values(), strict=True)
    ]
    return _figure(
        "Certified risk: at most",
        plot.svg(
            "Certified risk over time",
            f"Of {len(at)} map versions. A gap: nothing is claimed.",
        ),
        legend if len(columns) > 1 else [],
        data_table(["version of", "of the map", "in the target"][: 1 + len(columns)], rows),
    )


def _weights(
    x: Axis, at: Sequence[float], names: Sequence[str], columns: dict[str, list[float]]
) -> Markup | None:
    if not columns:
        return None
    most = sorted(columns, key=lambda name: -sum(columns[name]))
    shown = {name: columns[name] for name in most[:_PARTS]}
    rest = [columns[name] for name in most[_PARTS:]]
    if rest:
        shown[f"{len(rest)} others"] = [sum(values) for values in zip(*rest, strict=True)]
    newest = max(columns, key=lambda name: columns[name][-1])
    plot = Plot(
        x, Axis(0.0, 1.0, [(0.0, "0"), (0.25, "25%"), (0.5, "50%"), (0.75, "75%"), (1.0, "100%")], "")
    )
    below = [0.0] * len(at)
    for number, column in enumerate(shown.values()):
        above = [low + value for low, value in zip(below, column, strict=True)]
        plot.between(at, below, above, f"part{number}")
        below = above
    rows = [
        [name, *(f"{value:.3f}" for value in values)]
        for name, *values in zip(names, *(columns[each] for each in most), strict=True)
    ]
    return _figure(
        "Weights of the mixture",
        plot.svg(
            "Weights of the candidates of the mixture",
            f"Of {len(at)} map versions. The largest now: {newest}.",
        ),
        [(f"part{number}", name) for number, name in enumerate(shown)],
        data_table(["version of", *most], rows),
    )


def delay_figure(delays: Sequence[DelayQuantile]) -> Markup | None:
    """Return how long labels took; None where nobody knows."""
    if not delays:
        return None
    seconds = [max(each.seconds, 0.001) for each in delays]
    y = Axis(0.0, 1.0, [(0.0, "0"), (0.25, "25%"), (0.5, "50%"), (0.75, "75%"), (1.0, "100%")], "")
    plot = Plot(duration_axis(seconds, "event time from prediction to label"), y)
    plot.line(seconds, [each.share for each in delays], "after")
    plot.marks(seconds, [each.share for each in delays], "after")
    rows = [[f"{each.share:.0%}", show_duration(each.seconds)] for each in delays]
    return _figure(
        "Share of the labels that had come",
        plot.svg(
            "Delay of labels",
            f"All of them within {rows[-1][1]}.",
        ),
        [],
        data_table(["share", "within"], rows),
    )


def data_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, kind: str | None = None
) -> Markup:
    """Return a table; the first column names the row."""
    head = tag("tr", *(tag("th", name, scope="col") for name in columns))
    body = [
        tag("tr", tag("th", first, scope="row"), *(tag("td", value) for value in rest))
        for first, *rest in rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", *body), class_=kind)
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=", ".join(columns))


def _figure(title: str, picture: Markup, legend: Sequence[tuple[str, str]], table: Markup) -> Markup:
    keys = (
        tag("ul", *(tag("li", swatch(kind), name) for kind, name in legend), class_="legend")
        if legend
        else None
    )
    behind = tag(
        "details", tag("summary", "Show the figures", tag("span", f" of: {title}", class_="aside")), table
    )
    return tag("figure", tag("figcaption", tag("h3", title)), keys, picture, behind)


def _moments(
    times: Sequence[float | None], numbers: Sequence[int], what: str
) -> tuple[Axis, list[float], list[str]]:
    """Return the axis of windows or versions, where each stands, and its name: by time, if all have one."""
    known = [time for time in times if time is not None]
    axis = time_axis(known) if len(known) == len(times) else None
    if axis is not None:
        return axis, known, [show_time(time, "%Y-%m-%d %H:%M") for time in known]
    counts = [float(number) for number in numbers]
    return count_axis(counts, what), counts, [f"{number:,}" for number in numbers]
