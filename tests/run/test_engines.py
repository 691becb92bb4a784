"""One engine a key: parked and revived ones are byte-equal, and there are no more than allowed."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pydantic import ByteSize
from streamcal_connectors.sqlite.store import SqliteStore

from streamcal import RecalibratorConfig
from streamcal.engine.engine import Engine
from streamcal.events import PredictionEvent
from streamcal.run.config import KeysConfig, RunConfig, read_config
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Outcome, Pipeline
from streamcal.run.ports import SourceOptions, Store
from streamcal.run.runner import Inputs, Runner
from tests.memory import logs, stores

CONFIG = RecalibratorConfig()


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.clear()
    stores.clear()
    monkeypatch.setattr("streamcal.run.runner.MAX_EVENTS", 200)


def fill(keys: int, count: int = 1000, seed: int = 1) -> None:
    """Write labelled events of the source, predictions of many keys, few of them busy, and late labels."""
    rng = random.Random(seed)
    names = [None, *(f"k{i}" for i in range(1, keys))]
    shares = [1 / (i + 1) for i in range(keys)]
    late = []
    for i in range(count):
        (key,) = rng.choices(names, shares)
        score = rng.random()
        logs["source"].partitions[""].append(
            msgspec.json.encode({"score": score, "label": int(rng.random() < score), "key": key})
        )
        row = {"id": str(i), "score": score, "time": i, "key": key}
        logs["predictions"].partitions[""].append(msgspec.json.encode(row))
        if rng.random() < 0.5:
            late.append({"id": str(i), "label": int(rng.random() < score), "time": i + rng.randrange(300)})
    for label in sorted(late, key=lambda row: row["time"]):
        logs["labels"].partitions[""].append(msgspec.json.encode(label))


def drive(
    store: Store | None,
    keys: KeysConfig,
    *,
    calibrate: bool = True,
    batches: int = 10**9,
    config: RecalibratorConfig = CONFIG,
    watch: Any = None,
) -> Pipeline:
    """Run to the end, or for so many micro-batches."""
    connectors, left = Connectors(), iter(range(batches))
    pipeline = Pipeline(RunConfig(recalibrator=config, keys=keys))

    def after(outcome: Outcome, seconds: float) -> None:
        if watch is not None:
            watch(pipeline)

    Runner(
        pipeline,
        Inputs(
            [connectors.source("memory:source", SourceOptions(domain="source"))] if calibrate else [],
            [connectors.source(f"memory:{name}") for name in ("predictions", "labels")],
        ),
        Outputs(*(connectors.sink(f"memory:{name}") for name in ("answers", "rejects", "maps"))),
        store,
        clock=lambda: 0.0,
        stop=lambda: next(left, None) is None,
        after=after,
    ).run()
    return pipeline


def outputs() -> list[list[bytes]]:
    found = [list(logs[name].partitions[""]) for name in ("answers", "rejects", "maps")]
    for name in ("answers", "rejects", "maps"):
        del logs[name]
    return found


def states(pipeline: Pipeline) -> dict[str | None, bytes]:
    return {key: engine.to_bytes() for key, engine in pipeline.engines.items()}


@pytest.mark.slow
@pytest.mark.parametrize("stored", [True, False], ids=["in a store", "in memory"])
def test_parked_and_revived_engines_are_byte_equal(tmp_path: Path, stored: bool) -> None:
    fill(40)
    held: list[int] = []
    found = []
    for memory in (ByteSize(1 << 30), ByteSize(300 << 10)):
        store = SqliteStore(tmp_path / f"{memory}.db") if stored else None
        pipeline = drive(
            store, KeysConfig(memory=memory), watch=lambda pipeline: held.append(pipeline.engines.in_memory)
        )
        found.append((states(pipeline), outputs(), pipeline.tally, pipeline.join.counts))
        if store is not None:
            checkpoint = store.load()
            assert dict(checkpoint.engines) == found[-1][0]
            found.append((list(checkpoint.engines), checkpoint.run))
            store.close()
        assert max(held) == 40 if memory == 1 << 30 else 4 <= max(held) < 20
        held.clear()
    assert found[: len(found) // 2] == found[len(found) // 2 :]
    assert len(found[0][0]) == 40
    assert len(found[0][1][2]) > 10  # maps were published


@pytest.mark.slow
def test_maps_that_answers_begin_do_not_depend_on_batches_nor_on_parking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(8)
    found = []
    for size, memory in ((500, 1 << 30), (70, 1)):
        monkeypatch.setattr("streamcal.run.runner.MAX_EVENTS", size)
        store = SqliteStore(tmp_path / f"{size}-{memory}.db")
        config = RecalibratorConfig(prior="scores")
        drive(store, KeysConfig(memory=ByteSize(memory), certified=0), config=config)
        found.append((outputs(), dict(store.load().engines)))
        store.close()
    assert found[0] == found[1]
    labelled = sum(json.loads(row)["certificate"] is not None for row in found[0][0][2])
    assert labelled > 5
    assert len(found[0][0][2]) > labelled + 10


@pytest.mark.slow
def test_a_run_that_is_interrupted_goes_on_with_the_engines_it_needs(tmp_path: Path) -> None:
    fill(40)
    store = SqliteStore(tmp_path / "whole.db")
    drive(store, KeysConfig())
    whole, wrote = dict(store.load().engines), outputs()
    store.close()
    read: list[str | None] = []
    for batches in (3, 5, 9, 4, 7, 10**9):
        store = SqliteStore(tmp_path / "broken.db")
        before = len(read)
        spied = Spy(store, read)
        drive(spied, KeysConfig(memory=ByteSize(300 << 10)), batches=batches)
        if batches == 3:
            assert len(read) - before <= 1 + 3 * 40
        store.close()
    store = SqliteStore(tmp_path / "broken.db")
    assert dict(store.load().engines) == whole
    assert outputs() == wrote
    store.close()


class Spy:
    """A store that takes note of the engines it is asked for."""

    def __init__(self, store: SqliteStore, read: list[str | None]) -> None:
        self._store, self._read = store, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def load(self) -> Any:
        checkpoint = self._store.load()
        checkpoint.engines = Noted(checkpoint.engines, self._read)
        return checkpoint


class Noted(Mapping[str | None, bytes]):
    def __init__(self, engines: Mapping[str | None, bytes], read: list[str | None]) -> None:
        self._engines, self._read = engines, read

    def __getitem__(self, key: str | None) -> bytes:
        self._read.append(key)
        return self._engines[key]

    def __iter__(self) -> Iterator[str | None]:
        return iter(self._engines)

    def __len__(self) -> int:
        return len(self._engines)


def test_memory_is_a_number_of_bytes_or_a_text_with_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for text, memory in (("1000", 1000), ('"64MiB"', 64 << 20), ('"1.5 GB"', 1_500_000_000)):
        path.write_text(f"[keys]\nmemory = {text}\n")
        assert read_config(path).keys.memory == memory
    for text in ('"much"', "0", "2.5", '"3 engines"'):
        path.write_text(f"[keys]\nmemory = {text}\n")
        with pytest.raises(ValueError, match=r"\[keys\] memory"):
            read_config(path)


@pytest.mark.parametrize(("scores", "labels"), [(1, 0), (20, 10), (200, 100), (3000, 2000)])
def test_the_memory_of_an_engine_is_estimated_within_a_factor_of_two(scores: int, labels: int) -> None:
    """It is little for a young engine, whose state has some hundred bytes."""

    def made() -> Engine:
        engine, rng = Engine(CONFIG, "k"), random.Random(1)
        for i in range(scores):
            score = rng.random()
            engine.answer(PredictionEvent(str(i), score))
            if i < labels:
                engine.learn_label(score, int(rng.random() < score), True, float("-inf"), i)
        return engine

    data = made().to_bytes()
    tracemalloc.start()
    engines = [made() for _ in range(4)]
    taken = tracemalloc.get_traced_memory()[0] / len(engines)
    tracemalloc.stop()
    assert taken / 2 <= engines[0].memory <= 2 * taken
    if scores == 1:
        assert taken < 10 << 10
        assert len(data) < 512
