"""Matured cohorts: certificates that hold whatever decides when a label comes, and which (lemma 19)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from streamcal import LabelEvent, PredictionEvent, Recalibrator, RecalibratorConfig
from streamcal.monitor.build import build_status
from streamcal.monitor.metrics import RunMetrics
from streamcal.run.config import RunConfig
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, NullSink, Outputs, Runner
from tests.command_line import read_lines, streamcal
from tests.memory import Log, MemorySource
from tests.release.streams import by_class, made


@pytest.mark.slow
def test_a_run_certifies_matured_cohorts_of_each_key(tmp_path: Path) -> None:
    """With a store, in parts of any size: as engines beside it, and the rows, metrics and `show` say so."""
    stream = made(24_000, [91, 0], by_class(300.0, 3000.0), rate=0.5)
    rows, order, j = [], stream.order(), 0
    for i, score in enumerate(stream.scores.tolist()):
        rows.append({"id": f"p{i}", "score": score, "key": "ab"[i % 2], "time": 60.0 * i})
        while j < len(order) and stream.due[order[j]] <= i:
            late = int(order[j])
            time = 60.0 * float(stream.due[late])
            rows.append({"id": f"p{late}", "label": int(stream.labels[late]), "time": time})
            j += 1
    config = RecalibratorConfig()
    engines = {key: Recalibrator(config) for key in "ab"}
    for row in rows:
        engine, time = engines["ab"[int(row["id"][1:]) % 2]], row["time"]
        if "label" in row:
            engine.step(LabelEvent(row["id"], row["label"], time))
        else:
            engine.step(PredictionEvent(row["id"], row["score"], time))
    pipeline, log, metrics = Pipeline(RunConfig(recalibrator=config)), Log(), RunMetrics([])
    log.partitions[""] = [msgspec.json.encode(row) for row in rows]
    inputs = Inputs([], [MemorySource("events", log, SourceOptions())])
    Runner(
        pipeline,
        inputs,
        Outputs(NullSink()),
        None,
        clock=lambda: 0.0,
        after=lambda done, _: metrics.batch(0, done),
    ).run()
    metrics.update(build_status(pipeline, claims=False))
    (family,) = (each for each in metrics.collect() if each.name == "streamcal_certified_pending")
    assert {sample.labels["key"] for sample in family.samples} == {"a", "b"}
    for key, engine in engines.items():
        found, certificate = pipeline.engines[key].certificate, engine.certificate
        assert certificate is not None
        assert found is not None
        assert found.risk == certificate.risk < 1.0
        assert (found.cohorts, found.pending) == ("matured", certificate.pending)
        assert "matured predictions" in certificate._repr_html_()
        restored = Recalibrator.from_bytes(engine.to_bytes())
        assert restored.certificate == certificate
        assert restored.to_bytes() == engine.to_bytes()
    (tmp_path / "e.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    arguments = [
        "--events",
        tmp_path / "e.jsonl",
        "--store",
        tmp_path / "s.db",
        "--maps",
        tmp_path / "m.jsonl",
    ]
    done = streamcal("run", *arguments, "--output", tmp_path / "o.jsonl")
    assert done.returncode == 0, done.stderr
    published = [row["certificate"] for row in read_lines(tmp_path / "m.jsonl")]
    last = next(each for each in reversed(published) if each)
    assert last["cohorts"] == "matured"
    assert last["pending"] > 0
    assert "90% sure, matured, " in done.stdout
    assert "90% sure, matured, " in streamcal("show", tmp_path / "s.db").stdout
    shown = streamcal("show", tmp_path / "s.db", "--json")
    assert {each["cohorts"] for each in json.loads(shown.stdout)["certificates"].values()} == {"matured"}
