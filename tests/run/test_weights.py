"""Weights and propensities of events: alike from every format, and refused with the value and the place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamcal.events import LabelEvent, LabelledEvent, PredictionEvent
from streamcal.events.codec import CsvDecoder, JsonDecoder, Malformed
from streamcal.events.columns import Columns
from streamcal.events.table_codec import RowsDecoder
from streamcal.frames import backtest
from streamcal.monitor.build import group_columns, verdicts
from streamcal.quality.figures import ForecastQuality
from streamcal.sketch.decoding import decoded, encoded

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
    assert list(rows.decode(roles, [], len(ROWS))) == EVENTS  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('"w": 0', "a weight must be a number from 1e-9 to 10000, got 0"),
        ('"w": 2, "p": 0.5', "an event has a weight or a propensity, not both, got 2 and 0.5"),
    ],
)
def test_a_bad_weight_is_refused(given: str, reason: str) -> None:
    found = JsonDecoder("target", COLUMNS).decode(f'{{"id": "a", "score": 0.5, {given}}}'.encode())
    assert isinstance(found, Malformed)
    assert reason in found.reason


def test_figures_are_weighted() -> None:
    forecasts, labels, weights = np.array([0.2, 0.6, 0.9]), np.array([0, 1, 0]), np.array([1.0, 4.0, 0.5])
    quality = ForecastQuality()
    for part in (slice(0, 1), slice(1, 3)):
        quality.add(forecasts[part], labels[part], weights[part])
    quality = decoded(encoded(quality), ForecastQuality, "it")
    figures, n = quality.figures, weights.sum()
    assert figures.brier == pytest.approx((weights * (forecasts - labels) ** 2).sum() / n)
    assert figures.gap == pytest.approx((weights * (forecasts - labels)).sum() / n, abs=1e-6)
    assert figures.ece == pytest.approx((weights * np.abs(forecasts - labels)).sum() / n, abs=1e-6)
    mass, sums, positives = quality.bins(15)
    assert (mass.tolist(), positives.tolist()) == ([1.0, 4.0, 0.5], [0.0, 4.0, 0.0])
    assert sums == pytest.approx(weights * forecasts, abs=1e-6)
    even, plain = ForecastQuality(), ForecastQuality()
    even.add(forecasts, labels, np.ones(3))
    plain.add(forecasts, labels)
    assert encoded(even) == encoded(plain)


@pytest.mark.slow
def test_the_verdict_claims_nothing_of_weighted_labels() -> None:
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
    with pytest.warns(UserWarning, match="are surely off|are held") as told:
        done.append(backtest(frame, known))
    assert any("of 2 keys are surely off" in str(each.message) for each in told)
    weighted, plain = (verdicts(each._pipeline)[None] for each in done)
    assert plain.state == "too high"
    assert weighted.state == "cannot tell"
    assert "weights" in weighted.sentence
    assert not weighted.deviates
    assert abs(done[0].summary["gap_after"]) < 0.05 < done[1].summary["gap_after"]
    assert len(group_columns(done[0]._pipeline.quality).field) == 0
    assert len(group_columns(done[1]._pipeline.quality).field) == 2
