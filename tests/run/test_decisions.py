"""Decisions of a run: the same on every path, counted once, and refused where there are many classes."""

from __future__ import annotations

import csv
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import streamcal as sc
from streamcal.frames import backtest
from streamcal.run.config import read_config
from tests.command_line import read_lines, streamcal
from tests.serve.servers import LINES, Served, lines

COSTS = '[decision]\nfalse_positive = 1\nfalse_negative = 4\nreview = 0.3\ncurrency = "EUR"\n'
CAPACITY = "[decision]\ncapacity_per_day = 5\n"
BUDGET = "[sampling]\nshare = 0.5\n"


def events(n: int = 1_000) -> list[dict[str, Any]]:
    """Return predictions with the labels of those before, ten minutes apart."""
    rng = np.random.default_rng(0)
    p = rng.beta(1.0, 3.0, n)
    y = (rng.random(n) < p).astype(int)
    score, time = np.minimum(1.5 * p, 1.0), 600.0 * np.arange(n)
    made = [{"id": f"{i}", "score": score[i], "time": time[i]} for i in range(n)]
    told = [{"id": f"{i}", "label": int(y[i]), "time": time[i] + 3_600.0} for i in range(n)]
    return sorted([*made, *told], key=lambda event: (event["time"], "label" in event))


@pytest.mark.slow
@pytest.mark.parametrize("table", [COSTS, CAPACITY, COSTS + BUDGET])
def test_every_path_gives_the_same_decisions(tmp_path: Path, table: str) -> None:
    config, whole, store = tmp_path / "c.toml", tmp_path / "all.jsonl", tmp_path / "s.db"
    config.write_text(table)
    all_ = events()
    half = len(all_) // 2
    whole.write_bytes(lines(*all_) + b"\n")
    summaries = []
    for name, more in (("o.jsonl", []), ("o.parquet", []), ("p.csv", ["--store", store])):
        if more:  # in two runs on one store
            whole.write_bytes(lines(*all_[:half]) + b"\n")
        for part in range(1 + bool(more)):
            if part:
                whole.write_bytes(lines(*all_) + b"\n")
            summary = tmp_path / "summary.json"
            streamcal(
                "run",
                "--config",
                config,
                "--events",
                whole,
                "--output",
                tmp_path / name,
                "--summary",
                summary,
                *more,
                status=0,
            )
        summaries.append(json.loads(summary.read_text())["decision"])
    assert summaries == [summaries[0]] * 3
    rows = read_lines(tmp_path / "o.jsonl")
    decisions = {row["id"]: row["decision"] for row in rows}
    assert sum(each == "act" for each in decisions.values()) == summaries[0]["predictions"]["act"] > 0
    if table == CAPACITY:
        acted = {each for each, decision in decisions.items() if decision == "act"}
        ones = {event["id"] for event in all_ if event.get("label") == 1}
        precision, saved = (summaries[0][of] for of in ("precision", "saved"))
        assert precision[0] == pytest.approx(len(acted & ones) / len(acted))
        assert saved["acting on none"][0] == pytest.approx(len(acted & ones) / 1_000)
    else:
        by_hand = sc.decide([row["probability"] for row in rows], sc.Costs(1.0, 4.0, 0.3))
        assert list(decisions.values()) == by_hand.tolist()
        assert set(decisions.values()) == {"act", "pass", "review"}
        saved, asked = summaries[0]["saved"]["the raw score"], sum(row.get("ask", True) for row in rows)
        assert saved[1] <= saved[0] <= saved[2]
        assert 0.9 * asked < summaries[0]["labels"] <= asked
        assert summaries[0]["expected_precision"] is not None
    with (tmp_path / "p.csv").open() as file:
        assert decisions == {row["id"]: row["decision"] for row in csv.DictReader(file)}
    parquet = pl.read_parquet(tmp_path / "o.parquet")
    assert decisions == dict(zip(parquet["id"], parquet["decision"], strict=True))

    asked_for = {row["id"] for row in rows if row.get("ask", True)}
    predictions = pl.DataFrame([each for each in all_ if "score" in each])
    options = read_config(config)
    labels = pl.DataFrame([each for each in all_ if "label" in each and each["id"] in asked_for])
    found = backtest(predictions, labels, decision=options.decision, sampling=options.sampling)
    assert decisions == dict(zip(found.frame["id"], found.frame["decision"], strict=True))
    assert json.loads(json.dumps(found.summary["decision"])) == summaries[0]

    server, made = Served(tmp_path / "served.db", "--config", config), list[Any]()
    for at in range(0, len(all_), 500):
        event = all_[at : at + 500]
        kinds = {
            "predictions": [e for e in event if "score" in e],
            "labels": [e for e in event if "label" in e],
        }
        answers = [server.ask("POST", f"/v1/{kind}", lines(*some), LINES)[1] for kind, some in kinds.items()]
        again = server.ask("POST", "/v1/predictions", lines(*kinds["predictions"]), LINES)[1]
        assert answers[0] == again
        made += answers[0]
    early = [event for event in all_ if "score" in event][:200]  # whose labels have come
    assert server.ask("POST", "/v1/predictions", lines(*early), LINES)[1] == made[:200]
    assert server.metric("streamcal_decisions_total", decision="act") > 0
    server.stop()
    shown = streamcal("show", store).stdout
    assert ("at most 5 times" if table == CAPACITY else "EUR (95% sure:") in shown


@pytest.mark.nightly
def test_labels_come_within_three_points_of_what_was_expected_before_them() -> None:
    """Flights of three airports; the clinic, of which the verdict cannot tell, has nothing to expect."""
    from benchmarks.verdict import decisions

    for name, _, _, verdict, *cells in islice(decisions(None)[1], 7):
        if name == "clinic":
            assert (verdict, cells[0], cells[2]) == ("cannot tell", "–", "–")
        else:
            precision, precision_came, recall, recall_came = map(float, cells[:4])
            assert abs(precision - precision_came) <= 0.03
            assert abs(recall - recall_came) <= 0.03


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("false_positive = 1", "both needed"),
        ("false_positive = 0\nfalse_negative = 0", "both 0"),
        ("false_positive = -1\nfalse_negative = 2", "at least 0, got -1.0"),
        ("capacity_per_day = 0", "greater than or equal to 1; got 0"),
        ("capacity_per_day = 5\nreview = 1", "capacity_per_day excludes costs"),
        ("false_postive = 1", "did you mean false_positive"),
        ('false_positive = 1\nfalse_negative = 2\n[columns]\nclasses = ["a", "b", "c"]', "for two classes"),
        ('false_positive = 1\nfalse_negative = 2\n[columns]\nkeep = ["decision"]', "of their own"),
    ],
)
def test_options_that_make_no_rule_are_refused(tmp_path: Path, table: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"[decision]\n{table}\n")
    with pytest.raises(ValueError, match=message):
        read_config(path)
