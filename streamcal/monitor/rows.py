"""Rows of a run: a figure is declared here once; tables, ``--summary``, metrics, page and report follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from streamcal.base.times import show_duration, show_time
from streamcal.delayed.label_delays import LabelDelays
from streamcal.monitor.decisions import decision_rows
from streamcal.monitor.status import GroupColumns, Served, Status
from streamcal.quality.delays import Delay
from streamcal.quality.figures import WINDOW, Figures


class Figure(NamedTuple):
    """Declaration of a figure of forecasts, before and after recalibration."""

    field: str
    """Field of `Figures`."""
    title: str | None
    """Name in tables; None: it stands in none."""
    metric: str
    """Name for Prometheus, without ``streamcal_``."""
    help: str
    """Definition, which metrics, page and report show."""
    form: str = ".5f"
    """Format in tables; one with a sign is of a difference of probabilities, which cards give in points."""
    card: bool = False
    """Whether it is a card of page and report, and in the line above the table at the end of a run."""
    windows: bool = False
    """Whether it is None until a window of labels is full; till then tables leave it out."""


FIGURES: Final = (
    Figure("brier", "Brier score", "brier_score", "Mean of (forecast − label)².", card=True),
    Figure(
        "miscalibration",
        "  miscalibration",
        "miscalibration",
        "Part of the Brier score that an isotonic fit would take away.",
    ),
    Figure("discrimination", "  discrimination", "discrimination", "Part of the Brier score won by ranking."),
    Figure("log_loss", "log loss", "log_loss", "Mean of −ln of the probability of the label."),
    Figure(
        "ece",
        "calibration error (ECE)",
        "calibration_error",
        "Mean |mean forecast − rate of label 1| over bins of equal mass, each with its labels.",
        card=True,
    ),
    Figure("gap", "gap (mean forecast − mean label)", "gap", "Mean forecast − mean label.", "+z.5f"),
    Figure(
        "worst_gap",
        f"worst gap over {WINDOW:,} labels",
        "worst_gap",
        f"Largest gap of a window of {WINDOW:,} labels.",
        "+z.5f",
        card=True,
        windows=True,
    ),
    Figure("latest_gap", None, "latest_gap", f"Gap of the latest full window of {WINDOW:,} labels."),
)

_CLASS_FIGURES: Final = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score of all classes",
    "class_ece": "class-wise calibration error",
}

GROUP_HEAD: Final = (
    "field",
    "value",
    "labels",
    "forecast",
    "rate",
    "gap",
    "Brier\nbefore",
    "after",
)
"""Columns of `group_rows`."""


class Card(msgspec.Struct):
    """A figure in large letters."""

    title: str
    value: str
    beside: str
    """Smaller text below it."""
    change: str = ""
    """Change by recalibration, in percent."""
    better: bool = False
    """Whether it is for the better."""
    quiet: bool = False
    """Whether there is nothing to read yet."""


def closing_rows(status: Status) -> list[tuple[str, str]]:
    """Return the rows of the table at the end of a run: what it is, and the figure."""
    rows: list[tuple[str, int | float | str | None]] = [
        ("events", status.events),
        ("source labels", status.source_labels),
        *label_rows(status),
        *delay_rows(status.delay),
        ("rejected", status.rejected),
    ]
    if status.lost:
        rows.append(("records lost", lost_words(status)))
    if status.unknown_fields is not None:
        rows.append(("unknown fields ignored", sum(status.unknown_fields.values())))
    for name, before, after in rating_rows(status):
        rows += [(f"{name} before", before), (f"{name} after", after)]
    rows += decision_rows(status)
    for engine in status.engines:
        name = " of the decision" if status.classes else ""
        name += "" if len(status.engines) == 1 else f" [{engine.key}]"
        rows += [
            (f"map version{name}", engine.version),
            (f"bins{name}", engine.bins or "identity"),
            (f"prior, source{name}", engine.source_prior),
            (f"prior, target{name}", engine.target_prior),
            *_claims(engine, name),
            *held_rows(engine, name),
        ]
    if status.keys > len(status.engines):
        rows.append(("keys", status.keys))
    return [(name, shown_value(value)) for name, value in rows]


def lost_words(status: Status) -> str:
    """Return how many records were lost, in words."""
    records, unknown = (
        sum(getattr(each, name) for each in status.lost.values()) for name in ("records", "unknown")
    )
    words = [f"up to {records:,}"] * (records > 0) + [f"{unknown:,} times an unknown number"] * (unknown > 0)
    return " and ".join(words)


def label_rows(status: Status) -> list[tuple[str, int]]:
    """Return the rows of predictions and labels: what became of them, and how many."""
    counts, matures = status.join, status.label_delay_limit is not None
    return [
        ("predictions", counts.predictions),
        ("labels", counts.labels),
        ("  joined", counts.joined),
        *([("  implied (no label: counted as 0)", counts.implied)] if matures else []),
        ("  early (before their prediction)", counts.early),
        ("  late (after their prediction expired)", counts.late),
        ("  unmatched (prediction never came)", counts.unmatched),
        ("duplicate", counts.duplicate),
        ("  conflicting (label unlike the first)", counts.conflicting),
        *([("  contradicted (1 after it was counted as 0)", counts.contradicted)] if matures else []),
        ("expired (label never came in time)", counts.expired),
        ("pending at the end", status.pending),
    ]


def cards(before: Figures, after: Figures) -> list[Card]:
    """Return the cards of the figures of forecasts; none without labels."""
    return [
        Card(title, new, f"before {old}", change, change.startswith("−"))
        for title, old, new, change in _moved(before, after)
    ]


def gain(before: Figures, after: Figures) -> str:
    """Return what recalibration changed, in a sentence; empty without labels."""
    parts = [
        f"{title} {old} → {new}{f' ({change})' if change else ''}"
        for title, old, new, change in _moved(before, after)
    ]
    return f"Before → after: {', '.join(parts)}." if parts else ""


def _moved(before: Figures, after: Figures) -> Iterator[tuple[str, ...]]:
    """Yield the figures of cards: title, value before and after, and the change in percent, if any."""
    for figure in FIGURES:
        values = getattr(before, figure.field), getattr(after, figure.field)
        if not figure.card or None in values:
            continue
        signed = "+" in figure.form
        texts = [f"{100.0 * value:+z.1f} points" if signed else f"{value:.4f}" for value in values]
        change = "" if signed or not values[0] else f"{values[1] / values[0] - 1.0:+.1%}"
        yield str(figure.title), *(text.replace("-", "−") for text in (*texts, change))


def group_rows(groups: GroupColumns, most: int | None = None) -> list[list[str]]:
    """Return the rows of a table of segments, classes and keys, the worst first; ``!``: surely off."""
    return [
        [
            field,
            shown_value(name),
            f"{labels:,}",
            f"{forecast:.4f}",
            f"{rate:.4f}",
            f"{low:+.4f} to {high:+.4f}{' !' if deviates else '  '}",
            f"{before:.4f}",
            f"{after:.4f}",
        ]
        for field, name, labels, forecast, rate, low, high, before, after, deviates in islice(
            zip(*msgspec.structs.astuple(groups), strict=True), most
        )
    ]


def delay_rows(delay: Delay) -> list[tuple[str, str]]:
    """Return what is said of the delay of labels, and how much; without predictions, nothing."""
    rows = (
        ("half of the labels within", delay.median, show_duration),
        ("nine of ten labels within", delay.most, show_duration),
        ("share of predictions without a label", delay.out, "{:.1%}".format),
        ("  the oldest of them waits for", delay.oldest, show_duration),
    )
    return [(name, shown(value)) for name, value, shown in rows if value is not None]


def held_rows(engine: Served, name: str = "") -> list[tuple[str, str]]:
    """Return the rows of labels held, and of the class that comes later; none where there is nothing to say.

    ``name`` is that of the engine, behind what each row is.
    """
    rows, held = list[tuple[str, str]](), engine.held
    if held is None:
        return rows
    if held.late is not None:
        ages = "–" if held.missing is None else "none has come"
        if engine.apart is not None:
            at, *come = engine.apart
            ages = f"after {age(held, at)} {come[held.late]:.0%}, of others {come[1 - held.late]:.0%}"
        rows.append((f"labels {held.late} come later{name}", ages))
    if held.outage is not None:
        rows.append((f"labels {held.outage.label} have stopped{name}", f"since {outage_start(held)}"))
    if held.held:
        oldest = "" if held.oldest is None else f", the oldest for {age(held, held.oldest)}"
        which = "first labels held" if held.first else "labels held"
        rows.append((f"{which}{name}", f"{held.held:,}{oldest}"))
    if held.complete is not None:
        shares = "{:.0%}, {:.0%}".format(*held.complete)
        rows.append((f"  labels 0, 1 there that have come{name}", shares))
    if held.excluded:
        rows.append((f"labels by exclusion{name}", f"{held.excluded:,}, of which {held.mistaken:,} wrong"))
    return rows


def age(held: LabelDelays, value: float | None) -> str:
    """Return an age of predictions in words."""
    if value is None:
        return "never"
    return show_duration(value) if held.by_time else f"{value:,.0f} predictions"


def outage_start(held: LabelDelays) -> str:
    """Return in words since when labels of a class have stopped."""
    since = held.outage.since if held.outage is not None else 0.0
    return show_time(since, "%d %b %Y, %H:%M UTC") if held.by_time else f"prediction {since:,.0f}"


def rating_rows(status: Status) -> list[tuple[str, str, str]]:
    """Return the rows of all figures; of many classes first theirs, then those of the decision."""
    rows = _quality_rows(status.quality)
    if not status.classes:
        return rows
    sides = [
        [shown_value(getattr(each, field)) for field in _CLASS_FIGURES] for each in status.classes.values()
    ]
    found = zip(_CLASS_FIGURES.values(), *sides, strict=True)
    return [*found, *((f"decision: {name.strip()}", old, new) for name, old, new in rows)]


def _quality_rows(figures: Mapping[str, Figures]) -> list[tuple[str, str, str]]:
    """Return what each figure is called, and its value before and after recalibration."""
    rows = []
    for figure in FIGURES:
        values = [getattr(figures[when], figure.field) for when in ("before", "after")]
        if figure.title is None or (figure.windows and None in values):
            continue
        old, new = ("–" if value is None else format(value, figure.form) for value in values)
        rows.append((figure.title, old, new))
    return rows


def _claims(engine: Served, name: str) -> list[tuple[str, str]]:
    """Return the certified risks of the map, and the assumptions that are refuted."""
    claim = engine.certified
    if claim is None:
        return [(f"certified risk{name}", engine.no_claim or "–")]
    share = f"{1.0 - claim.delta:.0%} sure"
    if claim.cohorts == "matured":
        share += f", matured, {claim.pending:,} pending"
    rows = [(f"certified risk {bound.of} ({share}){name}", bound.words) for bound in claim.bounds]
    # By name only: what it says is long, and `streamcal show --json` has it with the certificate.
    return rows + [(f"refuted{name}", assumption) for assumption in claim.refuted]


def run_summary(status: Status) -> dict[str, Any]:
    """Return the figures of the run, for the JSON log and ``--summary``."""
    return {
        "verdict": status.verdict.sentence,
        "events": status.events,
        "source_labels": status.source_labels,
        "rejected": status.rejected,
        "reasons": status.reasons,
        "lost": msgspec.to_builtins(status.lost),
        "unknown_fields": sum((status.unknown_fields or {}).values()),
        "join": msgspec.structs.asdict(status.join),
        "pending": status.pending,
        "delay": msgspec.structs.asdict(status.delay),
        **{
            f"{name}_{when}": getattr(figures, name)
            for name in Figures.__struct_fields__
            for when, figures in status.quality.items()
        },
        "classes": msgspec.to_builtins(status.classes),
        "decision": msgspec.to_builtins(status.decision),
        "keys": status.keys,
        "map_versions": {engine.key or "": engine.version for engine in status.engines},
        "held": {each.key or "": msgspec.to_builtins(each.held) for each in status.engines if each.held},
        "remarks": [each.words for each in status.remarks],
    }


def shown_value(value: float | str | None) -> str:
    """Return a value as it stands in a table; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.5f}"
