"""The figures of a run: rows of a table for a person, a dictionary for the log and for ``--summary``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from streamcal.engine.engine import Engine
from streamcal.engine.schedule import FIRST_LABELS
from streamcal.quality.delays import Delay
from streamcal.quality.figures import WINDOW, Figures
from streamcal.run.pipeline import Pipeline
from streamcal.times import show_duration

__all__ = ["closing_rows", "delay_rows", "quality_rows", "run_summary"]

_SHOWN_KEYS: Final = 20
_FIGURES: Final = {
    "brier": ("Brier score", ".5f"),
    "log_loss": ("log loss", ".5f"),
    "ece": ("calibration error (ECE)", ".5f"),
    "gap": ("gap (mean forecast − mean label)", "+z.5f"),
    "worst_gap": (f"worst gap over {WINDOW:,} labels", "+z.5f"),
}


def closing_rows(pipeline: Pipeline, unknown_fields: int | None) -> list[tuple[str, str]]:
    """Return the rows of the table at the end of a run: what it is, and the figure.

    Parameters
    ----------
    pipeline
        the run. Its first 20 keys have rows of their own.
    unknown_fields
        how many fields were ignored because events have none of that name; None, and it has no row, where
        nobody knows: a store does not keep it.
    """
    tally, counts, quality = pipeline.tally, pipeline.counts, pipeline.quality
    matures = pipeline.label_delay_limit is not None
    rows: list[tuple[str, int | float | str | None]] = [
        ("events", tally.events),
        ("source labels", tally.source_labels),
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
        ("pending at the end", pipeline.pending),
        *delay_rows(pipeline.delay),
        ("rejected", tally.rejected),
    ]
    if unknown_fields is not None:
        rows.append(("unknown fields ignored", unknown_fields))
    for name, before, after in quality_rows(quality.figures):
        rows += [(f"{name} before", before), (f"{name} after", after)]
    engines = pipeline.first_engines(_SHOWN_KEYS)
    for key, engine in engines.items():
        name = "" if len(engines) == 1 else f" [{key}]"
        rows += [
            (f"map version{name}", engine.version),
            (f"bins{name}", engine.map.bins or "identity"),
            (f"prior, source{name}", engine.source.prior),
            (f"prior, target{name}", engine.target.prior),
            *_claims(engine, name),
        ]
    if len(pipeline.engines) > len(engines):
        rows.append(("keys", len(pipeline.engines)))
    return [(name, _show(value)) for name, value in rows]


def delay_rows(delay: Delay) -> list[tuple[str, str]]:
    """Return what is said of the delay of labels, and how much; without predictions, nothing."""
    rows = (
        ("half of the labels within", delay.median, show_duration),
        ("nine of ten labels within", delay.most, show_duration),
        ("share still out, of all predictions", delay.out, "{:.1%}".format),
        ("  the oldest of them waits for", delay.oldest, show_duration),
    )
    return [(name, shown(value)) for name, value, shown in rows if value is not None]


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


def _claims(engine: Engine, name: str) -> list[tuple[str, float | str | None]]:
    """Return the certified risks of the map, and the assumptions that are refuted."""
    certificate = engine.certificate
    if certificate is None:
        by = {"target": [engine.target], "auto": [engine.source, engine.target]}.get(
            engine.config.mode, [engine.source]
        )
        labels = max(domain.labels for domain in by)
        words = f"no claim yet: {labels:,} labels so far, the first map comes with {FIRST_LABELS}"
        if engine.first_cohort is not None:
            first = engine.first_cohort
            count = engine.prediction_count
            words = f"no claim yet: first after {first:,} predictions and a label, now {count:,}"
        return [(f"certified risk{name}", words)]
    share = f"{1.0 - certificate.delta:.0%} sure"
    if certificate.cohorts == "matured":
        share += f", matured, {certificate.pending:,} pending"
    rows: list[tuple[str, float | str | None]] = [
        (
            f"certified risk of h, {certificate.domain} ({share}){name}",
            certificate.in_words("risk", ".5f"),
        )
    ]
    if certificate.domain == "source" and certificate.target_risk is not None:
        words = certificate.in_words("target_risk", ".5f")
        rows.append((f"certified risk in the target ({share}){name}", words))
    # By name only: what it says is long, and `streamcal show --json` has it with the certificate.
    rows += [(f"refuted{name}", assumption.partition(":")[0]) for assumption in certificate.refuted]
    return rows


def run_summary(pipeline: Pipeline, unknown_fields: int, remarks: Sequence[str]) -> dict[str, Any]:
    """Return the figures of the run, for the JSON log and ``--summary``."""
    tally, quality = pipeline.tally, pipeline.quality.figures
    return {
        "events": tally.events,
        "source_labels": tally.source_labels,
        "rejected": tally.rejected,
        "reasons": pipeline.reasons,
        "unknown_fields": unknown_fields,
        "join": msgspec.structs.asdict(pipeline.counts),
        "pending": pipeline.pending,
        "delay": msgspec.structs.asdict(pipeline.delay),
        **{
            f"{name}_{when}": getattr(figures, name)
            for name in Figures.__struct_fields__
            for when, figures in quality.items()
        },
        "keys": len(pipeline.engines),
        "map_versions": {
            key or "": engine.version for key, engine in pipeline.first_engines(_SHOWN_KEYS).items()
        },
        "remarks": list(remarks),
    }


def _show(value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.5f}"
