"""The commit protocol of streamcal.ports, with a transactional sink and a process that dies at each step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from streamcal import JoinConfig
from streamcal.base.errors import OutputError
from streamcal.run.config import DecisionConfig, RunConfig, SamplingConfig
from streamcal.run.connectors import Connectors
from streamcal.run.outputs import Outputs
from streamcal.run.pipeline import Pipeline
from streamcal.run.ports import SourceOptions
from streamcal.run.runner import Inputs, Runner
from tests.dying import DiedError, watch
from tests.join.recorder import stored_entries
from tests.memory import logs, stores
from tests.nightly import one_in


def fill(seed: int, count: int = 600) -> None:
    """Write predictions onto three partitions, and labels onto two: late, doubled, early, never."""
    rng = random.Random(seed)
    labels = []
    for i in range(count):
        row = {"id": str(i), "score": rng.random(), "time": i}
        logs["predictions"].partitions[str(rng.randrange(3))].append(msgspec.json.encode(row))
        if rng.random() < 0.6:
            late = {"id": str(i), "label": rng.randrange(2), "time": i + rng.randrange(-5, 60)}
            labels += [late] * rng.choice([1, 1, 1, 2])
    for label in sorted(labels, key=lambda row: row["time"]):
        logs["labels"].partitions[str(rng.randrange(2))].append(msgspec.json.encode(label))


def drive(*, follow: bool, die: Callable[[str], bool] = lambda _: False, seed: int = 0) -> Pipeline:
    """Run to the end of what is there; ``die`` is asked at each step of each commit."""
    connectors = Connectors()
    store = connectors.store("memory:state")
    decides = {"capacity_per_day": 50} if seed % 2 else {"false_positive": 1, "false_negative": 2}
    decision = DecisionConfig.model_validate(decides)
    sampling = SamplingConfig(share=0.7 if seed > 2 else None)
    pipeline = Pipeline(RunConfig(join=JoinConfig(label_ttl=50.0), decision=decision, sampling=sampling))
    sources = [
        connectors.source(f"memory:{name}", SourceOptions(follow=follow))
        for name in ("predictions", "labels")
    ]
    outputs = Outputs(*(connectors.sink(f"memory:{name}") for name in ("answers", "rejects", "maps")))

    def may_die(step: str) -> None:
        if die(step):
            raise DiedError

    for name in ("answers", "rejects", "maps"):
        watch(may_die, getattr(outputs, name), name, "commit")
    for name in ("commit", "keep"):
        watch(may_die, store, name, name)

    def stop() -> bool:
        return follow and not any(lag for source in sources for lag in source.lag().values())

    ticks = iter(range(10**9))
    runner = Runner(
        pipeline, Inputs([], sources), outputs, store, clock=lambda: next(ticks) * 0.01, stop=stop
    )
    try:
        runner.run()
    finally:
        del store.commit, store.keep
        store.close()
    return pipeline


def state() -> tuple[object, ...]:
    checkpoint = stores["state"].load()
    return checkpoint.engines, checkpoint.run, stored_entries(checkpoint)


def rows(name: str) -> list[bytes]:
    return logs[name].partitions[""]


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    logs.clear()
    stores.clear()
    monkeypatch.setattr("streamcal.run.runner.MAX_EVENTS", 32)


@pytest.mark.slow
@pytest.mark.parametrize("follow", [False, True], ids=["merged as wholes", "as they come"])
@pytest.mark.parametrize("seed", one_in(2, (0, 1, 3, 4)))
def test_dying_at_any_step_loses_and_doubles_nothing(seed: int, follow: bool) -> None:
    fill(seed)
    rng = random.Random(seed)
    died: Counter[str] = Counter()

    def die(step: str) -> bool:
        if died[step] < 3 and ("keep" in step or rng.random() < 0.3):
            died[step] += 1
            return True
        return False

    for _ in range(1000):
        try:
            drive(follow=follow, die=die, seed=seed)
            break
        except DiedError:
            pass
    assert set(died) == {
        f"{when} {what}"
        for when in ("before", "after")
        for what in ("answers", "rejects", "maps", "commit", "keep")
    }
    broken = {name: rows(name) for name in ("answers", "rejects", "maps")}, state()
    ids = [msgspec.json.decode(row)["id"] for row in rows("answers")]
    assert sorted(ids, key=int) == [str(i) for i in range(600)]

    logs.clear()
    stores.clear()
    fill(seed)
    drive(follow=follow, seed=seed)
    whole = {name: rows(name) for name in ("answers", "rejects", "maps")}, state()
    if not follow:  # then the order depends on the batches
        assert broken == whole
    assert broken[1][0].keys() == whole[1][0].keys()
    assert len(broken[0]["rejects"]) == len(whole[0]["rejects"])


@pytest.mark.slow
def test_the_order_is_that_of_event_times_whatever_the_partitions() -> None:
    seen = []
    for seed in range(20):
        logs.clear()
        stores.clear()
        rng = random.Random(seed)
        for i in range(300):
            row = {"id": str(i), "score": (i * 37 % 300) / 300, "time": i}
            logs["predictions"].partitions[str(rng.randrange(4))].append(msgspec.json.encode(row))
            if i % 3:
                label = {"id": str(i), "label": i % 2, "time": i + 20}
                logs["labels"].partitions[str(rng.randrange(4))].append(msgspec.json.encode(label))
        drive(follow=False)
        seen.append((rows("answers"), state()[0]))
    assert all(each == seen[0] for each in seen)


def test_a_sink_ahead_of_the_store_in_a_source_that_is_not_given() -> None:
    fill(0)
    with pytest.raises(DiedError):
        drive(follow=False, die=lambda step: step == "before keep" and bool(rows("answers")))
    logs["elsewhere"] = logs.pop("predictions")
    connectors = Connectors()
    store = connectors.store("memory:state")
    runner = Runner(
        Pipeline(),
        Inputs([], [connectors.source("memory:elsewhere")]),
        Outputs(connectors.sink("memory:answers")),
        store,
        clock=lambda: 0.0,
    )
    with pytest.raises(OutputError, match="memory:answers is one micro-batch of memory:"):
        runner.run()
