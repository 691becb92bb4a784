"""Rows of the decisions of a run: what they cost, were it not for them, and how many are right."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from streamcal.monitor.status import Status
from streamcal.quality.decision_figures import Estimate
from streamcal.quality.label_sums import DELTA

_SURE: Final = f"{1.0 - DELTA:.0%} sure"


def decision_rows(status: Status) -> list[tuple[str, str]]:
    """Return what is said of the decisions of a run, and how much; nothing where nothing is decided."""
    found = status.decision
    if found is None:
        return []
    (review, act), most = found.thresholds, found.rule.capacity_per_day
    rule = f"review from {review:.4g} on, act from {act:.4g} on" if review < act else f"act from {act:.4g} on"
    rows = [("decision", rule if most is None else f"{rule} today, at most {most:,} times")]
    total = sum(found.predictions.values())
    for decision, count in found.predictions.items():
        if count:
            rows.append((f"predictions: {decision}", f"{count:,} of {total:,} ({count / total:.1%})"))
    if found.acts_a_day is not None:
        rows.append(("acts a day", _interval(found.acts_a_day, ",.1f")))
    state = status.verdict.state
    withheld = "–" if state == "well calibrated" else f"withheld: the verdict is “{state}”"
    for name, expected, came in (
        ("precision", found.expected_precision, found.precision),
        ("recall", found.expected_recall, found.recall),
    ):
        rows.append((f"{name} expected before labels", withheld if expected is None else f"{expected:.3f}"))
        if came is not None:
            rows.append((f"  {name} by labels that came", _interval(came, ".3f")))
            rows.append(("    expected of these", f"{found.expected[name]:.3f}"))
    if found.withheld:
        rows.append(("by labels that came", f"withheld: {found.withheld}"))
    unit = found.rule.unit and f" {found.rule.unit}"
    of = "prediction" if status.samples else "label"
    for other, saved in found.saved.items():
        rows.append((f"saved against {other}, a {of}", _interval(saved, ".3g", unit)))
        rows.append((f"  over {found.rated:,} {of}s", f"{saved.mean * found.rated:,.0f}{unit}"))
    return rows + list(_regrets(status, unit))


def _regrets(status: Status, unit: str) -> Iterator[tuple[str, str]]:
    """Yield what maps may cost more than any rule on their scores: proofs of decisions, lemma 3."""
    costs = None if status.decision is None else status.decision.rule.costs
    for engine in status.engines:
        claim = engine.certified
        if costs is None or claim is None or claim.refuted or (risk := claim.bounds[-1].value) is None:
            continue
        worst = (costs.false_positive + costs.false_negative) * math.sqrt(risk)
        name = "" if len(status.engines) == 1 else f" [{engine.key}]"
        words = f"{worst:.3g}{unit} a prediction ({1.0 - claim.delta:.0%} sure, {claim.bounds[-1].of})"
        yield f"worse than any rule on this score, at most{name}", words


def _interval(estimate: Estimate, form: str, unit: str = "") -> str:
    mean, low, high = (format(value, form).replace("-", "−") for value in estimate)
    return f"{mean}{unit} ({_SURE}: {low} to {high})"
