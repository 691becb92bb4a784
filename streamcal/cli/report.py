"""The report at the end of a run: a table for a person, a dictionary for the log and for ``--summary``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from rich.table import Table
from rich.text import Text

from streamcal.engine.engine import Engine
from streamcal.run.pipeline import Pipeline

__all__ = ["is_summary", "run_summary", "run_table"]

_SHOWN_KEYS: Final = 20


def run_table(pipeline: Pipeline, unknown_fields: int) -> Table:
    """Return the table at the end of a run."""
    tally, counts, quality = pipeline.tally, pipeline.counts, pipeline.quality
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    rows: list[tuple[str, int | float | str | None]] = [
        ("events", tally.events),
        ("source labels", tally.source_labels),
        ("predictions", counts.predictions),
        ("labels", counts.labels),
        ("  joined", counts.joined),
        ("  early (before their prediction)", counts.early),
        ("  late (after their prediction expired)", counts.late),
        ("  unmatched (prediction never came)", counts.unmatched),
        ("duplicate", counts.duplicate),
        ("  corrected (label unlike the first)", counts.corrected),
        ("expired (label never came in time)", counts.expired),
        ("pending at the end", pipeline.pending),
        ("rejected", tally.rejected),
        ("unknown fields ignored", unknown_fields),
        ("Brier score before", tally.brier_before),
        ("Brier score after", tally.brier_after),
        ("log loss before", quality.before.log_loss),
        ("log loss after", quality.after.log_loss),
        ("calibration error (ECE) before", quality.before.calibration_error),
        ("calibration error (ECE) after", quality.after.calibration_error),
    ]
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
    for label, value in rows:
        table.add_row(Text(label), Text(_show(value)))  # Text: a key is not markup
    return table


def _claims(engine: Engine, name: str) -> list[tuple[str, float | str | None]]:
    """Return the certified risks of the map, and the assumptions that are refuted."""
    certificate = engine.certificate
    if certificate is None:
        return [(f"certified risk{name}", None)]
    share = f"{1.0 - certificate.delta:.0%}"
    rows: list[tuple[str, float | str | None]] = [
        (f"certified risk of h, {certificate.domain} ({share} sure){name}", certificate.risk)
    ]
    if certificate.domain == "source" and certificate.target_risk is not None:
        rows.append((f"certified risk in the target ({share} sure){name}", certificate.target_risk))
    # By name only: what it says is long, and `streamcal show --json` has it with the certificate.
    rows += [(f"refuted{name}", assumption.partition(":")[0]) for assumption in certificate.refuted]
    return rows


def run_summary(pipeline: Pipeline, unknown_fields: int, remarks: Sequence[str]) -> dict[str, Any]:
    """Return the figures of the run, for the JSON log and ``--summary``."""
    tally, quality = pipeline.tally, pipeline.quality
    return {
        "events": tally.events,
        "source_labels": tally.source_labels,
        "rejected": tally.rejected,
        "reasons": pipeline.reasons,
        "unknown_fields": unknown_fields,
        "join": msgspec.structs.asdict(pipeline.counts),
        "pending": pipeline.pending,
        "brier_before": tally.brier_before,
        "brier_after": tally.brier_after,
        "log_loss_before": quality.before.log_loss,
        "log_loss_after": quality.after.log_loss,
        "ece_before": quality.before.calibration_error,
        "ece_after": quality.after.calibration_error,
        "keys": len(pipeline.engines),
        "map_versions": {
            key or "": engine.version for key, engine in pipeline.first_engines(_SHOWN_KEYS).items()
        },
        "remarks": list(remarks),
    }


def is_summary(data: bytes) -> bool:
    """Whether a file has the content of a summary."""
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError):
        return False
    return {"events", "remarks"} <= set(found)


def _show(value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.5f}"
