"""The figures of a run: rows of a table for a person, a dictionary for the log and for ``--summary``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from streamcal.monitor.status import ClassRating, HeldLabels, Served, Status
from streamcal.quality.delays import Delay
from streamcal.quality.figures import WINDOW, Figures
from streamcal.times import show_duration

__all__ = [
    "closing_rows",
    "delay_rows",
    "gain",
    "held_rows",
    "points",
    "quality_rows",
    "rating_rows",
    "run_summary",
    "shown_value",
]

_FIGURES: Final = {
    "brier": ("Brier score", ".5f"),
    "miscalibration": ("  miscalibration", ".5f"),
    "discrimination": ("  discrimination", ".5f"),
    "log_loss": ("log loss", ".5f"),
    "ece": ("calibration error (ECE)", ".5f"),
    "gap": ("gap (mean forecast − mean label)", "+z.5f"),
    "worst_gap": (f"worst gap over {WINDOW:,} labels", "+z.5f"),
}

_CLASS_FIGURES: Final = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier score of all classes",
    "class_ece": "class-wise calibration error",
}


def closing_rows(status: Status) -> list[tuple[str, str]]:
    """Return the rows of the table at the end of a run: what it is, and the figure."""
    counts, matures = status.join, status.label_delay_limit is not None
    rows: list[tuple[str, int | float | str | None]] = [
        ("events", status.events),
        ("source labels", status.source_labels),
        ("predictions", counts.predictions),
        ("labels", counts.labels),
        ("  joined", counts.joined),
        *([("  implied (no label: counted as 0)", counts.implied)] if matures else []),
        ("  early (before their prediction)", counts.early),
        ("  late (after their prediction expired)", counts.late),
        ("  unmatched (prediction never came)", counts.unmatched),
        ("duplicate", counts.duplicate),
        ("  corrected (label unlike the first)", counts.corrected),
        *([("  contradicted (1 after it was counted as 0)", counts.contradicted)] if matures else []),
        ("expired (label never came in time)", counts.expired),
        ("pending at the end", status.pending),
        *delay_rows(status.delay),
        ("rejected", status.rejected),
    ]
    if status.unknown_fields is not None:
        rows.append(("unknown fields ignored", sum(status.unknown_fields.values())))
    for name, before, after in rating_rows(status.quality, status.classes):
        rows += [(f"{name} before", before), (f"{name} after", after)]
    for engine in status.engines:
        name = " of the decision" if status.classes else ""
        name += "" if len(status.engines) == 1 else f" [{engine.key}]"
        rows += [
            (f"map version{name}", engine.version),
            (f"bins{name}", engine.bins or "identity"),
            (f"prior, source{name}", engine.source_prior),
            (f"prior, target{name}", engine.target_prior),
            *_claims(engine, name),
            *held_rows(engine.held, name),
        ]
    if status.keys > len(status.engines):
        rows.append(("keys", status.keys))
    return [(name, shown_value(value)) for name, value in rows]


def gain(figures: Mapping[str, Figures]) -> str:
    """Return what recalibration changed, in a sentence; empty without labels."""
    before, after = figures["before"], figures["after"]
    parts = []
    for name, old, new in (
        ("Brier score", before.brier, after.brier),
        ("calibration error", before.ece, after.ece),
    ):
        if old is not None and new is not None:
            change = f" ({new / old - 1.0:+.1%})".replace("-", "−") if old else ""
            parts.append(f"{name} {old:.4f} → {new:.4f}{change}")
    if before.worst_gap is not None and after.worst_gap is not None:
        gaps = f"{points(before.worst_gap)} → {points(after.worst_gap)} points"
        parts.append(f"worst gap over {WINDOW:,} labels {gaps}")
    return f"Before → after: {', '.join(parts)}." if parts else ""


def points(value: float) -> str:
    """Return a difference of probabilities in percentage points, with its sign."""
    return f"{100.0 * value:+z.1f}".replace("-", "−")


def delay_rows(delay: Delay) -> list[tuple[str, str]]:
    """Return what is said of the delay of labels, and how much; without predictions, nothing."""
    rows = (
        ("half of the labels within", delay.median, show_duration),
        ("nine of ten labels within", delay.most, show_duration),
        ("share of predictions without a label", delay.out, "{:.1%}".format),
        ("  the oldest of them waits for", delay.oldest, show_duration),
    )
    return [(name, shown(value)) for name, value, shown in rows if value is not None]


def held_rows(held: HeldLabels | None, name: str = "") -> list[tuple[str, str]]:
    """Return the rows of labels held, and of the class that comes later; none where there is nothing to say.

    ``name`` is that of the engine, behind what each row is.
    """
    rows = list[tuple[str, str]]()
    if held is None:
        return rows
    if held.late is not None:
        ages = "–" if held.missing is None else "none has come"
        if held.apart is not None:
            age, *come = held.apart
            ages = f"after {held.age(age)} {come[held.late]:.0%}, of others {come[1 - held.late]:.0%}"
        rows.append((f"labels {held.late} come later{name}", ages))
    if held.outage is not None:
        label, since = held.outage
        rows.append((f"labels {label} have stopped{name}", f"since {held.moment(since)}"))
    if held.held:
        oldest = "" if held.oldest is None else f", the oldest for {held.age(held.oldest)}"
        which = "first labels held" if held.first else "labels held"
        rows.append((f"{which}{name}", f"{held.held:,}{oldest}"))
    if held.complete is not None:
        shares = "{:.0%}, {:.0%}".format(*held.complete)
        rows.append((f"  labels 0, 1 there that have come{name}", shares))
    if held.excluded:
        rows.append((f"labels by exclusion{name}", f"{held.excluded:,}, of which {held.mistaken:,} wrong"))
    return rows


def rating_rows(
    figures: Mapping[str, Figures], classes: ClassRating | msgspec.UnsetType
) -> list[tuple[str, str, str]]:
    """Return the rows of all figures; of many classes first theirs, then those of the decision."""
    rows = quality_rows(figures)
    if not classes:
        return rows
    found = [
        (name, shown_value(getattr(classes.before, field)), shown_value(getattr(classes.after, field)))
        for field, name in _CLASS_FIGURES.items()
    ]
    return [*found, *((f"decision: {name.strip()}", old, new) for name, old, new in rows)]


def quality_rows(figures: Mapping[str, Figures]) -> list[tuple[str, str, str]]:
    """Return what each figure is called, and its value before and after recalibration.

    Windows are not spoken of until one is full.
    """
    rows = []
    for field, (name, form) in _FIGURES.items():
        values = getattr(figures["before"], field), getattr(figures["after"], field)
        if field == "worst_gap" and None in values:
            continue
        old, new = ("–" if value is None else format(value, form) for value in values)
        rows.append((name, old, new))
    return rows


def _claims(engine: Served, name: str) -> list[tuple[str, str]]:
    """Return the certified risks of the map, and the assumptions that are refuted."""
    claim = engine.certified
    if claim is None:
        return [(f"certified risk{name}", engine.no_claim or "–")]
    share = f"{1.0 - claim.delta:.0%} sure"
    if claim.cohorts == "matured":
        share += f", matured, {claim.pending:,} pending"
    rows = [(f"certified risk of h, {claim.domain} ({share}){name}", _bound(claim.risk_bound, claim.risk))]
    if claim.domain == "source" and claim.target_risk != "none":
        words = _bound(claim.target_risk_bound, claim.target_risk)
        rows.append((f"certified risk in the target ({share}){name}", words))
    # By name only: what it says is long, and `streamcal show --json` has it with the certificate.
    return rows + [(f"refuted{name}", assumption) for assumption in claim.refuted]


def _bound(bound: float | None, words: str) -> str:
    return words if bound is None else f"{bound:.5f}"


def run_summary(status: Status) -> dict[str, Any]:
    """Return the figures of the run, for the JSON log and ``--summary``."""
    return {
        "verdict": status.verdict.sentence,
        "events": status.events,
        "source_labels": status.source_labels,
        "rejected": status.rejected,
        "reasons": status.reasons,
        "unknown_fields": sum((status.unknown_fields or {}).values()),
        "join": msgspec.structs.asdict(status.join),
        "pending": status.pending,
        "delay": msgspec.structs.asdict(status.delay),
        **{
            f"{name}_{when}": getattr(figures, name)
            for name in Figures.__struct_fields__
            for when, figures in status.quality.items()
        },
        **({"classes": msgspec.to_builtins(status.classes)} if status.classes else {}),
        "keys": status.keys,
        "map_versions": {engine.key or "": engine.version for engine in status.engines},
        "held": {each.key or "": msgspec.to_builtins(each.held) for each in status.engines if each.held},
        "remarks": status.warnings,
    }


def shown_value(value: float | str | None) -> str:
    """Return a value as it stands in a table; a dash for None."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.5f}"
