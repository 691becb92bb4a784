"""Weights and propensities of events: alike from every format, and refused with the value and the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codec import CsvDecoder, JsonDecoder
from streamcal.events.columns import Columns
from streamcal.events.table_codec import RowsDecoder
from streamcal.frames import backtest
from streamcal.monitor.build import group_columns, verdicts
from streamcal.monitor.decisions import decision_rows

COLUMNS = Columns(weight="w", propensity="p")
EVENTS = [
    PredictionEvent("a", 0.5, weight=4.0),
    PredictionEvent("b", 0.5, weight=2.5),
    LabelEvent("a", 1, weight=1.0),
    LabelEvent("b", 1),
    LabelledEvent(0.5, 0, weight=10.0),
]
ROWS: list[dict[str, Any]] = [
    {"id": "a", "score": 0.5, "p": 0.25},
    {"id": "b", "score": 0.5, "w": 2.5},
    {"id": "a", "label": 1, "p": 1},
    {"id": "b", "label": 1},
    {"score": 0.5, "label": 0, "p": 0.1},
]


def json(row: dict[str, Any]) -> bytes:
    return str(row).replace("'", '"').encode()


def test_every_format_gives_the_same_events() -> None:
    names = ["id", "score", "label", "w", "p"]
    lines, rows = JsonDecoder("target", COLUMNS), RowsDecoder(names, "target", COLUMNS)
    table = CsvDecoder(b"id,score,label,w,p", "target", COLUMNS)
    assert [lines.decode(json(row)) for row in ROWS] == EVENTS
    assert [
        table.decode(",".join(str(row.get(name, "")) for name in names).encode()) for row in ROWS
    ] == EVENTS
    values = {name: [row.get(name) for row in ROWS] for name in names}
    roles = dict(zip(("id", "score", "label", "weight", "propensity"), values.values(), strict=True))
    assert list(rows.decode(roles, [], len(ROWS))) == EVENTS


@pytest.mark.slow
def test_the_verdict_needs_propensities_and_claims_nothing_by_weights() -> None:
    """Negatives are looked at ten times as often: what is right on the whole is wrong for the labelled."""
    rng = np.random.default_rng(2)
    scores = rng.random(8000)
    labels = (rng.random(8000) < scores).astype(int)
    chance = np.where(labels == 0, 0.5, 0.05)
    seen = rng.random(8000) < chance
    keys = np.where(np.arange(8000) % 2, "a", "b")
    frame = pd.DataFrame({"id": range(8000), "score": scores, "key": keys, "time": range(8000), "p": chance})
    known = frame[seen].assign(label=labels[seen], time=frame["time"] + 1)[["id", "label", "time"]]
    done = [backtest(frame, known, columns={"propensity": "p"})]
    costs = {"false_positive": 1, "false_negative": 1}
    weighted = backtest(frame.assign(w=1 / chance), known, columns={"weight": "w"}, decision=costs)
    with pytest.warns(UserWarning, match="are surely off|are held") as told:
        done.append(backtest(frame, known))
    assert any("of 2 keys are surely off" in str(each.message) for each in told)
    sampled, plain, claims_nothing = (verdicts(each._pipeline)[None] for each in (*done, weighted))
    assert plain.state == "too high"
    assert claims_nothing.state == "cannot tell"
    assert "weights" in claims_nothing.sentence
    assert sampled.state == "well calibrated"
    assert "predictions, of which" in sampled.evidence
    assert abs(done[0].summary["gap_after"]) < 0.05 < done[1].summary["gap_after"]
    by_propensity, counted = (group_columns(each._pipeline.quality) for each in done)
    assert by_propensity.deviates == [False, False]
    assert all(
        low < 0.0 < high for low, high in zip(by_propensity.gap_low, by_propensity.gap_high, strict=True)
    )
    assert any(counted.deviates)
    assert group_columns(weighted._pipeline.quality).field == []
    assert "weights that are no propensities" in dict(decision_rows(weighted._status))["by labels that came"]
