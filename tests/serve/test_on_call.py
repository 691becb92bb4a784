"""A model whose ranking is reversed behind `streamcal serve`: what each face of it says."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import streamcal
from tests.receiver import receiver
from tests.serve.servers import LINES, Served

pytestmark = pytest.mark.slow

NOVEMBER = 1_763_000_000  # 13 Nov 2025, 02:13 UTC
NAMED = "the ranking of the scores is reversed"


def test_a_reversed_ranking_is_named_with_its_day_everywhere(tmp_path: Path) -> None:
    """After 4,096 labels, a higher score means fewer labels 1: 8,000 more come."""
    rng, store = np.random.default_rng(0), tmp_path / "store.db"
    scores = rng.uniform(0.02, 0.98, 12_096)
    rates = np.where(np.arange(len(scores)) < 4_096, scores, 1.0 - scores)
    labels = (rng.random(len(scores)) < rates).astype(int)
    with receiver(200) as hook:
        served = Served(store, "--alarms", hook.url)
        for begin in range(0, len(scores), 64):
            part = range(begin, min(begin + 64, len(scores)))
            for path, field, values in (("predictions", "score", scores), ("labels", "label", labels)):
                rows = [{"id": f"p{i}", field: values[i].item(), "time": NOVEMBER + 60 * i} for i in part]
                body = "\n".join(map(json.dumps, rows)).encode()
                assert served.ask("POST", f"/v1/{path}", body, LINES)[0] == 200
        while (status := served.ask("GET", "/page/state")[1]["status"])["labels"] < len(scores):
            time.sleep(0.1)  # the page is made anew once a second
        verdict = status["verdict"]
        assert served.metric("streamcal_deviates") == 1.0
        assert served.stop()[0] == 0
        posted = [json.loads(body)["data"] for _, body in hook.got]
    shown = json.loads(streamcal("show", store, "--json").stdout)["verdict"]
    report = tmp_path / "report.html"
    assert streamcal("report", store, "-o", report).returncode == 0
    for each in (verdict, shown):
        assert NAMED in each["evidence"]
        assert each["sentence"].startswith("Since 1")
        assert " Nov 2025, " in each["sentence"]
        assert abs(each["since"] - (NOVEMBER + 60 * 4_096)) < 60 * 1_100
        assert "option positive" in each["advice"]
    assert verdict["sentence"] in report.read_text()
    alarms = [each for each in posted if NAMED in each["reason"]]
    assert alarms
    assert 4_096 < alarms[0]["target_labels"] <= 5_632
