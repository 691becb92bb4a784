"""Maps that a calibration has formed are published once, by a sink that cannot be cut back."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.dying import DiedError, counted, watch
from tests.memory import MemorySink, MemorySource, MemoryStore, logs


def fill(name: str, count: int, seed: int = 1, **fields: object) -> None:
    rng = random.Random(seed)
    for i in range(count):
        row = {"score": rng.random(), "id": f"{name} {seed} {i}", "time": i, **fields}
        if "label" in fields:
            row["label"] = rng.randrange(2)
        logs[name].partitions[""].append(msgspec.json.encode(row))


def run(store: MemoryStore, *calibration: str, dies_at: int | None = None) -> None:
    """Calibrate, then answer; die before this commit of the store."""
    pipeline = Pipeline()
    deployment = [MemorySource("memory:events", logs["events"], SourceOptions())]
    sources = [
        MemorySource(f"memory:{name}", logs[name], SourceOptions(domain="source")) for name in calibration
    ]
    watch(counted("before the store", dies_at), store, "the store", "commit")
    sinks = [MemorySink(f"memory:{name}", logs[name]) for name in ("answers", "rejects", "maps")]
    try:
        Runner(pipeline, Inputs(sources, deployment), Outputs(*sinks), store, clock=lambda: 0.0).run()
    finally:
        del store.commit
        store.close()


def rows(name: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(row) for row in logs[name].partitions[""]]


@pytest.fixture(autouse=True)
def _empty() -> None:
    logs.clear()


def outcome(store: MemoryStore) -> tuple[Any, ...]:
    kept = msgspec.json.decode(store.load().run)
    return rows("answers"), rows("rejects"), rows("maps"), kept, [row.version for row in store.versions()]


def whole(*calibration: str) -> tuple[Any, ...]:
    """Return what a run that never stopped gives, and begin anew."""
    inputs = {name: list(log.partitions[""]) for name, log in logs.items()}
    store = MemoryStore("x")
    run(store, *calibration)
    found = outcome(store)
    logs.clear()
    for name, records in inputs.items():
        logs[name].partitions[""] += records
    return found


@pytest.mark.parametrize("commit", range(1, 7))
def test_a_run_that_dies_at_any_commit_publishes_every_map_once(commit: int) -> None:
    fill("source", 300, label=True)
    logs["source"].partitions[""].append(b"oops")
    fill("events", 50)
    expected = whole("source")
    store = MemoryStore("x")
    for deaths in (commit, commit):
        try:
            run(store, "source", dies_at=deaths)
        except DiedError:
            continue
    run(store, "source")
    assert outcome(store) == expected
    assert len(expected[2]) == len(expected[4]) == 1
