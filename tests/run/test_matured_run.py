"""A run with implied negatives: the same however it is cut into micro-batches; what it says and counts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from streamcal import JoinConfig
from streamcal.engine.config import RecalibratorConfig
from streamcal.monitor.build import build_status
from streamcal.run import runner
from streamcal.run.config import RunConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import NullSink, Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.runner import Inputs, Runner
from streamcal.sketch.decoding import encoded

HOUR = 3600.0
AFTER = 10 * HOUR


def written(folder: Path, count: int = 500) -> tuple[Path, Path]:
    """Write predictions and positives: every 9th is too late, and some are taken back."""
    rng = random.Random(2)
    predictions, labels = [], []
    for number in range(count):
        time, score = 600.0 * number, rng.random()
        predictions.append({"id": f"{number}", "score": score, "time": time})
        if rng.random() < score**2:
            told = time + (15 * HOUR if number % 9 == 0 else rng.uniform(0.0, AFTER))
            labels.append({"id": f"{number}", "label": 1, "time": told})
            if number % 5 == 0:
                labels.append({"id": f"{number}", "label": 0, "time": told + HOUR})
    paths = folder / "events.jsonl", folder / "labels.jsonl"
    for path, rows in zip(paths, (predictions, labels), strict=True):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in sorted(rows, key=lambda row: row["time"])))
    return paths


def run(paths: tuple[Path, ...], **options: Any) -> tuple[Pipeline, list[str]]:
    join = JoinConfig(missing_labels="negative", **({"label_delay_limit": AFTER} | options))
    pipeline = Pipeline(RunConfig(recalibrator=RecalibratorConfig(mode="target"), join=join))
    sources = [Connectors().source(str(path)) for path in paths]
    Runner(pipeline, Inputs([], sources), Outputs(NullSink()), None, clock=lambda: 0.0).run()
    words = [each.words for each in build_status(pipeline, sources, claims=False).remarks]
    for source in sources:
        source.close()
    return pipeline, words


@pytest.mark.slow
def test_micro_batches_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = written(tmp_path)
    states = []
    for size in (65_536, 7):
        monkeypatch.setattr(runner, "MAX_EVENTS", size)
        pipeline, _ = run(paths)
        own, engines = pipeline.snapshot()
        states.append((encoded(own, json=True), engines, pipeline.join.to_bytes()))
    assert states[0] == states[1]
    counts = pipeline.join.counts
    assert counts.predictions == counts.joined + counts.implied + pipeline.join.pending
    assert min(counts.joined, counts.implied, counts.contradicted, counts.conflicting) > 4
    assert pipeline.tally.rejected == counts.late + counts.duplicate
